/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the limits of the fleet (`limits`), as a service behind the handlers would count. */
#include "tests/sim/world/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double TOKEN_S = 0.1; /* time in s for which tokens are good */
enum { JUMP_MS = 1000 }; /* time after a jump of a clock in which starts are not counted */

/* Returns the number of messages that run under a live lease. */
static int running(const struct world *w) {
    int n = 0;
    for (int i = 0; i < w->n_exec; i++) {
        const struct exec *x = &w->exec[i];
        n += !x->queued && atomic_load(&x->job->lease->deadline_ms) > w->now_ms;
    }
    return n;
}

/* Returns the number of places in use in the statements of the home shard that have not expired. */
static int stated(struct world *w) {
    struct server *home = w->master[0];
    const char *words[] = {"HGETALL", "lw:{t.0}:limit"};
    int64_t now = w->now_ms + home->skew_ms + 1000000000;
    redisReply *r = server_call(w, home, 2, words, (size_t[]){7, 14});
    int n = 0, places;
    for (size_t i = 0; r && i + 1 < r->elements; i += 2) {
        int64_t ends;
        if (sscanf(r->element[i + 1]->str, "%*d %d %*d %*d %" SCNd64, &places, &ends) == 2 &&
            ends > now)
            n += places;
    }
    freeReplyObject(r);
    return n;
}

/* Counts a start in a bucket that loses per_second starts in a second. If it never holds more than
 * the burst and what a token's time allows, no time of W seconds has more starts than
 * burst + per_second * (W + TOKEN_S). */
static void count_start(struct world *w, const struct exec *x) {
    double rate = w->f->per_second;
    w->starts -= rate * (double)(w->now_ms - w->starts_ms) / 1000;
    if (w->starts < 0) w->starts = 0;
    w->starts_ms = w->now_ms;
    if (w->now_ms < w->jumped_ms + JUMP_MS) return;
    w->starts++;
    if (w->starts > LIMIT_BURST + rate * TOKEN_S + 1e-6)
        world_bad(w, "limit: %s starts above limits.per_second, by %.2f", x->job->identity,
                  w->starts - LIMIT_BURST - rate * TOKEN_S);
}

void limits_start(struct world *w, const struct exec *x) {
    if (w->f->per_second) count_start(w, x);
    if (!w->f->running) return;
    int n = running(w) + 1;
    if (n > w->f->running)
        world_bad(w, "limit: %s starts on worker %d as number %d of %d", x->job->identity,
                  x->worker, n, w->f->running);
    if (!w->losses && stated(w) < n)
        world_bad(w, "limit: %d messages run, but the home knows of %d", n, stated(w));
}

void limits_jump(struct world *w, int shard) {
    if (shard == 0) w->jumped_ms = w->now_ms;
}

void limits_end(struct world *w) {
    if (!w->f->running) return;
    int n = stated(w);
    if (n) world_bad(w, "limit: nothing runs, but the home knows of %d messages", n);
}
