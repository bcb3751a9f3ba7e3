/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork group`. */
#ifndef LW_CLI_GROUP_GROUP_H
#define LW_CLI_GROUP_GROUP_H

#include "cli/options.h"

extern const struct cli_command cli_group;

#endif
