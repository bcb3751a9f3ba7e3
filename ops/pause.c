/* SPDX-License-Identifier: Apache-2.0 */
/* Implements what an operator does to one lane: ops_pause(), ops_resume() and ops_break(). */
#include "ops/ops.h"

#include <stdlib.h>

int ops_pause(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed) {
    long long added;
    ops_begin(o, "SADD");
    ops_keys(o, sh, "paused");
    lw_arg(&o->cmd, lane);
    if (ops_ask_int(o, sh, &added)) return -1;
    *changed = added;
    return 0;
}

int ops_resume(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed) {
    ops_script(o, &lw_op_wake, 5);
    ops_keys(o, sh, "epoch", "lanes", "ready", "paused");
    ops_key(o, sh, "lock:", lane);
    lw_arg_i64(&o->cmd, o->c->lock.ttl_ms / 2);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_STRING);
    if (!r) return -1;
    *changed = r->len == 1 && r->str[0] == 'R';
    freeReplyObject(r);
    return 0;
}

int ops_break(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, uint64_t *fence,
              struct lw_buf *was) {
    char who[256];
    ops_who(o, who, sizeof who);
    ops_script(o, &lw_script_break, 6);
    ops_keys(o, sh, "epoch", "lanes", "fence", "ready", "audit");
    ops_key(o, sh, "lock:", lane);
    lw_arg_i64(&o->cmd, o->c->lock.ttl_ms / 2);
    lw_arg_text(&o->cmd, who);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    *fence = 0;
    int bad = 0;
    if (r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
        r->element[1]->type == REDIS_REPLY_STRING) {
        *fence = strtoull(r->element[0]->str, NULL, 10);
        lw_buf_add(was, r->element[1]->str, r->element[1]->len);
    } else if (r->elements) {
        bad = ops_malformed(o, sh, r, "[fence, old value] or []");
    }
    freeReplyObject(r);
    return bad;
}
