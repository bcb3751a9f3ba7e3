/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"

#include "cli/check/check.h"
#include "cli/dead/dead.h"
#include "cli/dev/dev.h"
#include "cli/group/group.h"
#include "cli/handler/handler.h"
#include "cli/ledger/ledger.h"
#include "cli/lock/lock.h"
#include "cli/queue/queue.h"
#include "cli/reference/reference.h"
#include "cli/run/run.h"
#include "cli/version/version.h"

const struct cli_command *const cli_commands[] = {
    &cli_run,   &cli_dev,     &cli_check,  &cli_queue,   &cli_dead,     &cli_lock,
    &cli_group, &cli_handler, &cli_ledger, &cli_version, &cli_reference};
const size_t cli_n_commands = sizeof cli_commands / sizeof *cli_commands;
