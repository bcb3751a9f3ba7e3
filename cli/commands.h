/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the commands of the program, in the order of `latchwork --help`. */
#ifndef LW_CLI_COMMANDS_H
#define LW_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct cli_command *const cli_commands[];
extern const size_t cli_n_commands;

#endif
