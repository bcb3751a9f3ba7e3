/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LW_CLI_VERSION_H
#define LW_CLI_VERSION_H

#include "cli/options.h"

extern const struct cli_command cli_version;

#endif
