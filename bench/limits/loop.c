/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/loop.h"
#include "bench/limits/tool.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The replies to one take or one give (loop.h) that have not arrived yet. */
struct due {
    int slot, messages, n;
    bool give;
};

struct state {
    const struct loop *l;
    const struct loop_work *work;
    struct loop_batch *batches;
    bool *taken; /* taken[KEY] is true while a message of this key is taken */
    uint64_t random;
    int64_t next; /* number of the next message to take */
    int64_t round_trips;
    /* A ring of the expected replies. Each slot (loop.h) has at most two entries in the ring: one
     * for a give, and one for the take after it. */
    struct due due[2 * LOOP_DEPTH_MAX];
    int first_due, n_due;
};

static void expect(struct state *s, int slot, int n, bool give) {
    int ring = (int)(sizeof s->due / sizeof *s->due);
    s->due[(s->first_due + s->n_due++) % ring] = (struct due){slot, s->batches[slot].n, n, give};
}

static int64_t draw_key(struct state *s) {
    for (;;) {
        int64_t key = (int64_t)(tool_draw(&s->random) % (uint64_t)s->l->keys);
        if (s->taken[key]) continue;
        s->taken[key] = true;
        return key;
    }
}

static bool take(struct state *s, int slot) {
    struct loop_batch *b = &s->batches[slot];
    int64_t left = s->l->messages - s->next;
    b->slot = slot;
    b->n = (int)(left < s->l->batch ? left : s->l->batch);
    if (!b->n) return false;
    b->first = s->next;
    s->next += b->n;
    for (int i = 0; i < b->n; i++) b->keys[i] = draw_key(s);
    expect(s, slot, s->work->take(s->work->ctx, b), false);
    return true;
}

/* Appends the commands that give a batch back, and marks the keys of the batch as free before Redis
 * has answered. Later commands may use these keys, because Redis executes commands in the order in
 * which they were sent. */
static void give(struct state *s, int slot) {
    const struct loop_batch *b = &s->batches[slot];
    expect(s, slot, s->work->give(s->work->ctx, b), true);
    for (int i = 0; i < b->n; i++) s->taken[b->keys[i]] = false;
}

static void send_all(struct state *s) {
    for (int done = 0; !done;)
        if (redisBufferWrite(s->l->redis, &done)) tool_die("Redis: %s", s->l->redis->errstr);
    s->round_trips++;
}

static void answers(struct state *s, const struct due *d) {
    for (int i = 0; i < d->n; i++) {
        redisReply *r;
        if (redisGetReply(s->l->redis, (void **)&r)) tool_die("Redis: %s", s->l->redis->errstr);
        if (r->type == REDIS_REPLY_ERROR) tool_die("Redis: %s", r->str);
        (d->give ? s->work->gave : s->work->took)(s->work->ctx, d->slot, d->messages, i, r);
        freeReplyObject(r);
    }
}

static void run(struct state *s) {
    for (int slot = 0; slot < s->l->depth; slot++)
        if (take(s, slot)) send_all(s);
    while (s->n_due) {
        struct due d = s->due[s->first_due];
        s->first_due = (s->first_due + 1) % (int)(sizeof s->due / sizeof *s->due);
        s->n_due--;
        answers(s, &d);
        if (d.give) continue;
        give(s, d.slot);
        take(s, d.slot);
        send_all(s);
    }
}

void loop_run(const struct loop *l, const struct loop_work *work, struct loop_figures *out) {
    if (l->keys < 2 * l->batch * l->depth)
        tool_die("--keys must be at least twice what is under way, %" PRId64,
                 2 * l->batch * l->depth);
    struct state s = {.l = l, .work = work, .random = l->seed};
    s.batches = lw_alloc((size_t)l->depth * sizeof *s.batches);
    s.taken = lw_alloc((size_t)l->keys);
    int64_t redis_us = tool_redis_cpu_us(l->redis), own_us = tool_own_cpu_us();
    out->first_us = tool_now_us();
    run(&s);
    out->last_us = tool_now_us();
    out->own_cpu_us = tool_own_cpu_us() - own_us;
    out->redis_cpu_us = tool_redis_cpu_us(l->redis) - redis_us;
    out->round_trips = s.round_trips;
    free(s.batches);
    free(s.taken);
}

void loop_print(const struct loop *l, const struct loop_figures *f, const char *more) {
    double n = (double)l->messages;
    printf("{\"messages\":%" PRId64 ",\"first_us\":%" PRId64 ",\"last_us\":%" PRId64
           ",\"redis_cpu_us\":%.3f,\"own_cpu_us\":%.3f,"
           "\"round_trips\":%.4f%s}\n",
           l->messages, f->first_us, f->last_us, (double)f->redis_cpu_us / n,
           (double)f->own_cpu_us / n, (double)f->round_trips / n, more);
}
