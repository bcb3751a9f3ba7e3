/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork dead`, which shows and changes the dead letters kept in Redis. */
#ifndef LW_CLI_DEAD_DEAD_H
#define LW_CLI_DEAD_DEAD_H

#include "cli/options.h"

extern const struct cli_command cli_dead;

#endif
