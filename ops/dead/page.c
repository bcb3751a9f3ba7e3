/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the dead letters of a shard page by page, for the API. A page is
 * the part of the shard's stream `dead` that one command returns. */
#include "ops/dead/dead.h"

#include <string.h>

int dead_page(struct ops *o, struct ops_shard *sh, bool newest, char at[DEAD_ID], int64_t count,
              bool *more, ops_message_fn *fn, void *ctx) {
    char from[DEAD_ID + 2];
    snprintf(from, sizeof from, "%s%s", at[0] ? "(" : newest ? "+" : "-", at);
    ops_begin(o, newest ? "XREVRANGE" : "XRANGE"), ops_key(o, sh, "dead", lw_bytes("", 0));
    lw_arg_text(&o->cmd, from), lw_arg_text(&o->cmd, newest ? "-" : "+"),
        lw_arg_text(&o->cmd, "COUNT"), lw_arg_i64(&o->cmd, count);
    redisReply *r = ops_ask_entries(o, sh);
    if (!r) return -1;
    int stop = 0;
    *more = (int64_t)r->elements == count;
    for (size_t i = 0; i < r->elements && !stop; i++) {
        const redisReply *e = r->element[i];
        snprintf(at, DEAD_ID, "%s", e->element[0]->str);
        stop = dead_tell(o, sh, e, fn, ctx);
        if (stop && i + 1 < r->elements) *more = true;
    }
    freeReplyObject(r);
    return stop;
}
