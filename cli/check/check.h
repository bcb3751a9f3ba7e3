/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork check`, and functions with which commands load a configuration
 * and check its handler section. */
#ifndef LW_CLI_CHECK_CHECK_H
#define LW_CLI_CHECK_CHECK_H

#include "cli/options.h"
#include "config/config.h"

extern const struct cli_command cli_check;

/* Checks the handler section by the rules of the handler's type; for lw_problems.check_handler. */
void lw_config_check_handler(const struct lw_config *c, struct lw_problems *problems);

/* Calls lw_config_load(), and checks the handler section by the rules of the handler's type, so
 * that all problems are reported at once. */
struct lw_config *lw_config_load_checked(const char *path, const struct lw_override *set,
                                         size_t n_set, struct lw_problems *problems);

#endif
