/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork check`, and loading a configuration including the check of its handler section, as
 * every command does it. */
#ifndef LW_CLI_CHECK_CHECK_H
#define LW_CLI_CHECK_CHECK_H

#include "cli/options.h"
#include "config/config.h"

extern const struct cli_command cli_check;

/* The type's own check of the handler section; an unknown type is a problem, too. */
void lw_config_check_handler(const struct lw_config *c, struct lw_problems *problems);
/* lw_config_load() with that check among the rest: all problems at once. */
struct lw_config *lw_config_load_checked(const char *path, const struct lw_override *set, size_t n_set, struct lw_problems *problems);

#endif
