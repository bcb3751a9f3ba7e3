/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork run`, which starts the supervisor and its workers. */
#ifndef LW_CLI_RUN_RUN_H
#define LW_CLI_RUN_RUN_H

#include "cli/options.h"

extern const struct cli_command cli_run;

#endif
