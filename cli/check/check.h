/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork check`, and loading a configuration with its handler section checked, as every command does it. */
#ifndef LW_CLI_CHECK_CHECK_H
#define LW_CLI_CHECK_CHECK_H

#include "config/config.h"

int lw_cmd_check(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */

/* The type's own check of the handler section; an unknown type is a problem, too. */
void lw_config_check_handler(const struct lw_config *c, struct lw_problems *problems);
/* lw_config_load() with that check among the rest: all problems at once. */
struct lw_config *lw_config_load_checked(const char *path, const struct lw_override *set, size_t n_set, struct lw_problems *problems);

#endif
