/* SPDX-License-Identifier: Apache-2.0 */
/* Implements ops_pause() and ops_resume(), which pause and resume a lane. */
#include "ops/ops.h"

int ops_pause(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed) {
    long long added;
    ops_begin(o, "SADD");
    ops_key(o, sh, "paused", lw_bytes("", 0));
    lw_arg(&o->cmd, lane);
    if (ops_ask_int(o, sh, &added)) return -1;
    *changed = added;
    return 0;
}

int ops_resume(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed) {
    struct lw_bytes none = lw_bytes("", 0);
    ops_script(o, &lw_op_wake, 5);
    ops_key(o, sh, "epoch", none), ops_key(o, sh, "lanes", none), ops_key(o, sh, "ready", none),
        ops_key(o, sh, "paused", none);
    ops_key(o, sh, "lock:", lane);
    lw_arg_i64(&o->cmd, o->c->lock.ttl_ms / 2);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_STRING);
    if (!r) return -1;
    *changed = r->len == 1 && r->str[0] == 'R';
    freeReplyObject(r);
    return 0;
}
