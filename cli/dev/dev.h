/* SPDX-License-Identifier: Apache-2.0 */
/* The command `latchwork dev`: runs everything on this machine without any configuration. With
 * --demo it ends by itself and checks its figures. */
#ifndef LW_CLI_DEV_DEV_H
#define LW_CLI_DEV_DEV_H

#include "cli/options.h"

extern const struct cli_command cli_dev;

#endif
