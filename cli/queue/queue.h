/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork queue`, which shows and changes lanes and their waiting
 * messages. */
#ifndef LW_CLI_QUEUE_QUEUE_H
#define LW_CLI_QUEUE_QUEUE_H

#include "cli/options.h"

extern const struct cli_command cli_queue;

#endif
