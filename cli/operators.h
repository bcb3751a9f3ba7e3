/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork queue` and `latchwork dead` share: the table of their options, and a
 * function that connects to the shards and runs a verb. Most options belong to both commands. */
#ifndef LW_CLI_OPERATORS_H
#define LW_CLI_OPERATORS_H

#include "cli/options.h"
#include "ops/ops.h"

/* Each verb of `queue` and of `dead` has one bit. The table of options uses these bits to say which
 * verbs take an option. */
enum {
    QUEUE_LS = 1 << 0,
    QUEUE_SHOW = 1 << 1,
    QUEUE_PAUSE = 1 << 2,
    QUEUE_RESUME = 1 << 3,
    QUEUE_EXPORT = 1 << 4,
    QUEUE_IMPORT = 1 << 5,
    QUEUE_REPLAY = 1 << 6,
    QUEUE_DROP = 1 << 7,
    QUEUE_STATS = 1 << 8,
    QUEUE_AUDIT = 1 << 9,
    DEAD_LS = 1 << 10,
    DEAD_SHOW = 1 << 11,
    DEAD_EXPORT = 1 << 12,
    DEAD_REPLAY = 1 << 13,
    DEAD_DROP = 1 << 14,
    DEAD_EDIT = 1 << 15
};

struct operator_args {
    struct cli_args cli;
    struct ops_args ops;
};

extern const struct cli_option operator_options[];
extern const struct cli_status operator_statuses[];
/* Runs the verb that the user chose: loads the configuration, connects to the shards, and calls the
 * verb's function. `args` points to a struct operator_args. Returns the exit status. */
int operators_run(void *args);

#endif
