/* SPDX-License-Identifier: Apache-2.0 */
/* Reads dead letters page by page, for the API. A page of a shard is the part of the shard's stream
 * `dead` that one command returns; ops/dead/topic.c reads a page of the topic. */
#include "ops/dead/dead.h"

#include <string.h>

enum { STREAM_ID = 48 };

/* Returns true if the text is "", or the id of an entry of a stream: two numbers of ms and of
 * entries, far below the limits of Redis. */
static bool is_stream_id(const char *at) {
    int end = 0;
    return !*at || (sscanf(at, "%*18[0-9]-%*18[0-9]%n", &end) == 0 && end && !at[end]);
}

int dead_places(const struct ops *o) { return o->c->redis.shards + (o->c->dead.topic != NULL); }

bool dead_place_is_topic(const struct ops *o, int place) { return place == o->c->redis.shards; }

int dead_page(struct ops *o, int place, bool newest, char at[DEAD_PLACE], int64_t count, bool *more,
              ops_message_fn *fn, void *ctx) {
    if (dead_place_is_topic(o, place)) return dead_page_in_topic(o, newest, at, more, fn, ctx);
    struct ops_shard *sh = &o->shards[place];
    char from[STREAM_ID + 2];
    if (!is_stream_id(at)) return DEAD_MISPLACED;
    snprintf(from, sizeof from, "%s%s", at[0] ? "(" : newest ? "+" : "-", at);
    ops_begin(o, newest ? "XREVRANGE" : "XRANGE"), ops_keys(o, sh, "dead");
    ops_words(o, from, newest ? "-" : "+", "COUNT"), lw_arg_i64(&o->cmd, count);
    redisReply *r = ops_ask_entries(o, sh);
    if (!r) return -1;
    int stop = 0;
    *more = (int64_t)r->elements == count;
    for (size_t i = 0; i < r->elements && !stop; i++) {
        const redisReply *e = r->element[i];
        snprintf(at, DEAD_PLACE, "%s", e->element[0]->str);
        stop = dead_tell(o, sh, e, fn, ctx);
        if (stop && i + 1 < r->elements) *more = true;
    }
    freeReplyObject(r);
    return stop;
}
