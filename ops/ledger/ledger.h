/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the functions by which `latchwork ledger` and the API compare the data in Kafka with the
 * data in Redis. */
#ifndef LW_OPS_LEDGER_LEDGER_H
#define LW_OPS_LEDGER_LEDGER_H

#include "base/err.h"
#include "config/config.h"

#include <jansson.h>
#include <stdatomic.h>

/* Lets another thread see the progress of ledger_result(), and stop it. */
struct ledger_watch {
    const atomic_bool *cancel;
    /* `scanned` is the number of waiting lists and segments of states that were read. Those that
     * several passes read are counted several times. */
    _Atomic int64_t *scanned;
};
/* Compares the data about the application's messages in Kafka with the data in Redis, and returns
 * the result:
 * {"ok","differences","waiting","lanes","locks","dead_letters","partitions":[…],"wrong":[at most
 * 100]}. Returns NULL with *err if a server does not answer, or if the watch's `cancel` has become
 * true. */
json_t *ledger_result(const struct lw_config *c, struct ledger_watch *watch, struct lw_err *err);

/* Prints the result to stdout, as text or as JSON objects, one per line. Returns 0 if Kafka and
 * Redis agree, 1 if they differ, and -1 with *err if a server does not answer. */
int ledger_print(const struct lw_config *c, bool json, struct lw_err *err);

#endif
