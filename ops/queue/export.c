/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork queue export`. */
#include "ops/queue/queue.h"
#include "ops/ops.h"

static int put(struct ops *o, struct ops_message *m, void *ctx) {
    int64_t *left = ctx;
    (void)o;
    if (!*left) return 1;
    if (*left > 0) --*left;
    ops_put_json(ops_message_json(m, SIZE_MAX));
    return ferror(stdout) ? 1 : 0;
}

int queue_export(struct ops *o) {
    int64_t left = o->args.limit > 0 ? o->args.limit : -1;
    int stop = ops_each_message(o, put, &left);
    if (stop == 0 && ops_tell_missing(o, OPS_NOT_WAITING)) return OPS_FAILED;
    return stop < 0 ? OPS_FAILED : 0;
}
