/* SPDX-License-Identifier: Apache-2.0 */
/* Makes Redis forget the waiting messages of a lane while the epoch continues, as if a person
 * deleted the waiting list or Redis evicted it. In some worlds the states of these messages are
 * forgotten as well. In others the states still say that the messages wait. The owners must notice
 * the loss, and must read the messages that they had parked from Kafka again. Later messages of the
 * key may have run by then, so the oracles demand no order of this key. */
#include "tests/sim/world/world.h"

#include <inttypes.h>
#include <stdio.h>

static redisReply *ask(struct server *s, int argc, const char *const *argv, const size_t *len) {
    redisReply *r = store_call(s->store, argc, argv, len);
    return r;
}

/* Changes the mark of an offset from waiting to unseen. */
static void forget_state(struct server *s, const char *tp, int64_t offset) {
    char name[160], at[24];
    int64_t index = offset % LW_SEGMENT;
    snprintf(name, sizeof name, "lw:{t.%d}:state:%s:%" PRId64, s->shard, tp, offset / LW_SEGMENT);
    snprintf(at, sizeof at, "%" PRId64, index / 4);
    redisReply *r = ask(s, 4, (const char *const[]){"GETRANGE", name, at, at}, NULL);
    int shift = 2 * (3 - (int)(index % 4));
    if (r->type == REDIS_REPLY_STRING && r->len == 1 &&
        ((unsigned char)r->str[0] >> shift & 3) == 1) {
        char byte = (char)((unsigned char)r->str[0] & ~(3u << shift));
        freeReplyObject(ask(s, 4, (const char *const[]){"SETRANGE", name, at, &byte},
                            (const size_t[]){8, strlen(name), strlen(at), 1}));
    }
    freeReplyObject(r);
}

void lane_vanishes(struct world *w, int shard, int key, bool marks) {
    struct server *s = w->master[shard];
    char name[40];
    snprintf(name, sizeof name, "lw:{t.%d}:wait:k%d", shard, key);
    store_set_time_us(s->store, (w->now_ms + s->skew_ms + 1000000000) * 1000 + 123);
    redisReply *list = ask(s, 4, (const char *const[]){"LRANGE", name, "0", "-1"}, NULL);
    for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i < list->elements; i++) {
        char topic[16], tp[40];
        int partition;
        int64_t offset, replay;
        if (sscanf(list->element[i]->str, "1 %15s %d %" SCNd64 " %" SCNd64, topic, &partition,
                   &offset, &replay) != 4 ||
            replay)
            continue;
        snprintf(tp, sizeof tp, "%s:%d", topic, partition);
        if (marks) forget_state(s, tp, offset);
    }
    if (list->type == REDIS_REPLY_ARRAY && list->elements) {
        trace(w, "shard %d forgets the %zu messages that wait in lane k%d%s", shard, list->elements,
              key, marks ? "" : ", not their states");
        w->vanished[key] = true;
        freeReplyObject(ask(s, 2, (const char *const[]){"DEL", name}, NULL));
    }
    freeReplyObject(list);
}
