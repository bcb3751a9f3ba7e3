/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the command `latchwork ledger`. */
#ifndef LW_CLI_LEDGER_LEDGER_H
#define LW_CLI_LEDGER_LEDGER_H

#include "base/err.h"
#include "cli/options.h"
#include "config/config.h"

#include <jansson.h>
#include <stdatomic.h>

extern const struct cli_command cli_ledger;

/* Lets another thread see the progress of ledger_result(), and stop it. */
struct ledger_watch {
    const atomic_bool *cancel;
    /* `scanned` counts the waiting lists and the segments of states that were read in all
     * passes. */
    _Atomic int64_t *scanned;
};
/* Compares the data about the application's messages in Kafka with the data in Redis, and returns
 * the result:
 * {"ok","differences","waiting","lanes","locks","dead_letters","partitions":[…],"wrong":[at most
 * 100]}. Returns NULL with *err if a server does not answer, or if the watch's `cancel` has become
 * true. */
json_t *ledger_result(const struct lw_config *c, struct ledger_watch *watch, struct lw_err *err);

#endif
