/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork dev: everything on this machine with nothing configured; --demo is the form that ends
 * by itself and checks its figures. */
#ifndef LW_CLI_DEV_DEV_H
#define LW_CLI_DEV_DEV_H

#include "cli/options.h"

extern const struct cli_command cli_dev;

#endif
