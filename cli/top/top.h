/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork top`, which shows what a fleet is doing now, on a terminal, as
 * text or as JSON. */
#ifndef LW_CLI_TOP_TOP_H
#define LW_CLI_TOP_TOP_H

#include "cli/options.h"

extern const struct cli_command cli_top;

#endif
