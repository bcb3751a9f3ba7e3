/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork ledger`. */
#ifndef LW_CLI_LEDGER_LEDGER_H
#define LW_CLI_LEDGER_LEDGER_H

#include "cli/options.h"

extern const struct cli_command cli_ledger;

#endif
