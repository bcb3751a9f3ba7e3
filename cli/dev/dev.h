/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork dev`, which runs Kafka, Redis and workers on this machine without
 * any configuration. With --demo it ends when all messages are finished, and checks its figures. */
#ifndef LW_CLI_DEV_DEV_H
#define LW_CLI_DEV_DEV_H

#include "cli/options.h"

extern const struct cli_command cli_dev;

#endif
