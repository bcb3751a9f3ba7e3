/* SPDX-License-Identifier: Apache-2.0 */
/* fair: which group has the next handler, if more messages wait than handlers are free. Each worker
 * shares out its handlers by handler time, as in start-time fair queueing (Goyal, Vin and Cheng,
 * 1996): a group has a tag, the handler time that it was charged, divided by its weight. A message
 * is charged at its start with the mean of its group, with more once it has taken longer, and at
 * its end with what it took. The group with the smallest tag is next.
 *
 * The virtual time is the smallest tag of the groups that wait. A group that was away begins there:
 * it gets nothing for the time in which it had no work. One that lacks permits of its own limits is
 * away, too. A tag above the virtual time is kept when its group has nothing left, so that coming
 * back does not pay: until nobody waits, or it is above by one short message only. */
#include "consumer/worker/private.h"

#include <math.h>

enum { MEAN_OF = 8 };                  /* the mean follows this number of messages */
static const double LEAST_US = 1;      /* charge of a start, so that groups take turns */
static const double UNKNOWN_US = 1000; /* charge while no message has ended yet */
/* One message up to this time is forgotten with its group: of a million groups that have one each,
 * all would be remembered as long as others wait. */
static const double FORGIVEN_US = 100000;

static double cost_us(const struct fair *f, const struct group *g) {
    double us = g->mean_us > 0 ? g->mean_us : f->mean_us > 0 ? f->mean_us : UNKNOWN_US;
    return (us > LEAST_US ? us : LEAST_US) / g->weight;
}

/* Returns by how much the messages of the group that are in handlers have exceeded their charges.
 * So one whose messages take longer than was known does not get all handlers until they end. A
 * message may wait for its handler as long as others take, which is left out. */
static double over_us(const struct lw_worker *w, const struct group *g) {
    if (!g->in_handler) return 0;
    int64_t ms = w->limits.begun_ms * (int64_t)g->in_handler - g->begun_ms;
    double us = 1000.0 * (double)ms - w->fair.mean_us * (double)g->in_handler;
    us = us / g->weight - g->charged_us;
    return us > 0 ? us : 0;
}

static double tag_us(const struct lw_worker *w, const struct group *g) {
    double us = g->tag_us + over_us(w, g);
    return us > w->fair.virtual_us ? us : w->fair.virtual_us;
}

/* --- the order ------------------------------------------------------------------------------- */

/* Lets the group at i sink to its place in the heap, whose root has the smallest tag. */
static void sink(struct fair *f, size_t i) {
    struct turn x = f->turn[i];
    for (size_t child; (child = 2 * i + 1) < f->n; i = child) {
        if (child + 1 < f->n && f->turn[child + 1].tag_us < f->turn[child].tag_us) child++;
        if (x.tag_us <= f->turn[child].tag_us) break;
        f->turn[i] = f->turn[child];
    }
    f->turn[i] = x;
}

static size_t waits(struct lw_worker *w, const struct group *g) {
    return lw_smaller(group_waits(w, g), limit_group_permits(w, g));
}

/* Lists the groups that wait and have permits, and sets the virtual time. While a call names lanes
 * of a group, the group counts for it, because more of them may wait. Returns the number of
 * messages that wait. */
static size_t list(struct lw_worker *w) {
    struct fair *f = &w->fair;
    size_t all = 0;
    double least_us = INFINITY;
    f->n = 0;
    for (struct group *g = w->groups.table; g; g = g->hh.next) {
        size_t n = waits(w, g);
        g->most = SIZE_MAX;
        if (!n && !g->asked) continue;
        double us = tag_us(w, g);
        if (us < least_us) least_us = us;
        if (!n) continue;
        f->turn = lw_more(f->turn, f->n, &f->cap, sizeof f->turn[0]);
        f->turn[f->n++] = (struct turn){us, g, n};
        all += n;
    }
    if (isfinite(least_us)) f->virtual_us = least_us;
    return all;
}

void fair_begin(struct lw_worker *w) {
    struct fair *f = &w->fair;
    size_t left = w->limits.left;
    size_t all = list(w);
    f->waits = all > 0;
    f->contended = all > left && f->n > 1;
    if (!f->contended) return;
    for (size_t i = f->n; i-- > 0;) sink(f, i);
    for (size_t i = 0; i < f->n; i++) f->turn[i].group->most = group_used(f->turn[i].group);
    for (; left && f->n; left--) {
        struct turn *t = &f->turn[0];
        t->group->most++;
        t->tag_us += cost_us(f, t->group);
        if (!--t->waits) *t = f->turn[--f->n];
        if (f->n) sink(f, 0);
    }
}

size_t fair_left(const struct group *g) {
    size_t used = group_used(g);
    return g->most > used ? g->most - used : 0;
}

size_t fair_unknown(struct lw_worker *w, size_t n) {
    return w->fair.waits ? (n + w->io->random(w->ctx) % 2) / 2 : n;
}

bool fair_owes(const struct lw_worker *w, const struct group *g) {
    double one_us = cost_us(&w->fair, g);
    return g->tag_us > w->fair.virtual_us + (one_us < FORGIVEN_US ? one_us : FORGIVEN_US);
}

void fair_forget(struct lw_worker *w) {
    double most_us = w->fair.virtual_us;
    for (struct group *g = w->groups.table; g; g = g->hh.next) {
        if (waits(w, g)) return;
        if (g->tag_us > most_us) most_us = g->tag_us;
    }
    w->fair.virtual_us = most_us;
}

void fair_close(struct lw_worker *w) { free(w->fair.turn); }

/* --- what a message is charged ---------------------------------------------------------------- */

void fair_enters(struct lw_worker *w, struct run *r) {
    struct group *g = r->msg->group;
    if (!g) return;
    r->charged_us = cost_us(&w->fair, g);
    r->begun_ms = now_ms(w);
    g->tag_us = tag_us(w, g) - over_us(w, g) + r->charged_us;
    g->begun_ms += r->begun_ms;
    g->charged_us += r->charged_us;
}

static void follow(double *mean, double us) {
    *mean = *mean > 0 ? *mean + (us - *mean) / MEAN_OF : us;
}

void fair_leaves(struct lw_worker *w, struct run *r) {
    struct group *g = r->msg->group;
    if (!g) return;
    double us = (double)r->job.took_us;
    assert(g->in_handler);
    g->begun_ms -= r->begun_ms;
    g->charged_us = g->in_handler > 1 ? g->charged_us - r->charged_us : 0;
    g->tag_us += us / g->weight - r->charged_us;
    if (us > 0) { /* 0: no handler had it */
        follow(&g->mean_us, us);
        follow(&w->fair.mean_us, us);
    }
    /* lanes in memory for which it was not the turn of their group ask again */
    for (int s = 0; s < w->n_shards && w->fair.contended; s++) gate_urge(&w->shards[s]);
}
