/* SPDX-License-Identifier: Apache-2.0 */
/* rival: the part of the worker that notices another fleet that has the name and consumer group of
 * this fleet, but uses another Redis. The two fleets share the partitions, and neither sees the
 * other's locks, so two handlers of one key may run at once.
 *
 * Each commit carries the first digits of the id of an epoch, which is the epoch of shard 0 in the
 * fleet that made the commit. A foreign epoch alone proves nothing, because Redis may have been
 * wiped or moved. But if commits keep advancing under a foreign epoch for longer than the workers
 * of this fleet need to notice the end of their own epoch, another live fleet makes those commits.
 * The fleet with the younger epoch stops, because it is probably the one that was started by
 * mistake.
 *
 * The older fleet only logs an error. It logs the error even after a single commit under the
 * foreign epoch, because the younger fleet may have stopped before its second commit. But after
 * Redis was wiped, other workers of this fleet commit under a new epoch, too. So a worker first
 * waits as long as it may need to notice the end of its own epoch, and then logs the error. */
#include "consumer/worker/private.h"

enum { RIVAL_SEEN = 3, PATIENCE_MS = 3000, GAP_MS = 1000, FORGET_MS = 60000, SAID_MS = 60000 };

void rival_epoch(struct lw_worker *w, const char *epoch) {
    assert(epoch && strlen(w->fleet) < sizeof w->fleet);
    if (strncmp(w->fleet, epoch, LW_META_FLEET) == 0) return;
    if (w->fleet[0]) memcpy(w->fleets[w->n_fleets++ % FLEETS], w->fleet, sizeof w->fleet);
    snprintf(w->fleet, sizeof w->fleet, "%.*s", LW_META_FLEET, epoch);
    /* A fleet's name is the first LW_META_FLEET digits of the id of shard 0's epoch. An id with
     * fewer digits was not made by a worker, and cannot identify the fleet. */
    if (strlen(w->fleet) != LW_META_FLEET) w->fleet[0] = 0;
    w->rival = (struct rival){.n = 0};
}

static bool is_ours(const struct lw_worker *w, const char *fleet) {
    assert(fleet && w->fleet[0]);
    bool ours = strcmp(fleet, w->fleet) == 0;
    for (size_t i = 0; i < FLEETS; i++) ours |= strcmp(fleet, w->fleets[i]) == 0;
    return ours;
}

/* Decides what to do about another fleet that commits in the same group. If this fleet began later,
 * stops this worker. Otherwise logs an error. */
static void rival_decide(struct lw_worker *w, int64_t now) {
    assert(w->rival.n > 0 && w->rival.fleet[0]);
    struct rival *r = &w->rival;
    char why[800];
    bool we_stop = strcmp(w->fleet, r->fleet) > 0;
    snprintf(why, sizeof why,
             "group \"%s\": another fleet of \"%s\" (%s) works beside this one (%s) with another "
             "Redis: the last partition that it committed is %s, and "
             "it has committed %d time(s) within %" PRId64
             " ms. Two handlers of one key may run at once. %s. Give one of them "
             "another group.id and \"name\", or let both use "
             "one Redis",
             w->c->kafka.group_id, w->c->name, r->fleet, w->fleet, r->part, r->n, now - r->first_ms,
             we_stop ? "This fleet began later, so it stops"
                     : "The other fleet began later and should stop; this one goes on");
    if (we_stop) {
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    } else {
        r->said_ms = now;
        lw_error("%s", why);
    }
}

/* Returns true if the error about the rival should be logged. The error is logged once. It is
 * logged again when SAID_MS have passed since the last log line, if a commit of the rival has
 * advanced since then. */
static bool is_news(const struct rival *r, int64_t now) {
    assert(r->n > 0);
    return !r->said_ms || (r->last_ms > r->said_ms && now - r->said_ms >= SAID_MS);
}

static void judge(struct lw_worker *w) {
    assert(w->rival.n >= 0);
    const struct rival *r = &w->rival;
    int64_t now = now_ms(w),
            patience = w->c->lock.ttl_ms / 2 > PATIENCE_MS ? w->c->lock.ttl_ms / 2 : PATIENCE_MS;
    if (!r->n) return;
    bool proof = r->n >= RIVAL_SEEN && r->last_ms - r->first_ms >= patience;
    bool sign = w->shards[0].phase == READY && now - r->first_ms >= patience && is_news(r, now);
    if (strcmp(w->fleet, r->fleet) > 0 ? proof : sign) rival_decide(w, now);
}

static void moved_on(struct lw_worker *w, const struct part *p, const char *fleet) {
    check_part(p);
    assert(fleet);
    struct rival *r = &w->rival;
    int64_t now = now_ms(w);
    if (strcmp(r->fleet, fleet) != 0 || now - r->last_ms > FORGET_MS) {
        *r = (struct rival){.first_ms = now};
        snprintf(r->fleet, sizeof r->fleet, "%s", fleet);
    } else if (now - r->last_ms < GAP_MS) {
        return;
    }
    snprintf(r->part, sizeof r->part, "%s", p->name);
    r->last_ms = now;
    r->n++;
}

void lw_worker_looked(struct lw_worker *w, const struct lw_group_offset *o) {
    check_worker(w);
    assert(o->topic);
    if (!w->fleet[0]) return;
    struct part *p = part_get(w, o->topic, strlen(o->topic), o->partition, 0);
    char fleet[LW_META_FLEET + 1];
    bool moved = p->looked.known && o->offset > p->looked.offset;
    p->looked = (struct looked){true, o->offset};
    if (moved && lw_meta_fleet(o->offset, o->metadata, o->metadata_len, fleet) &&
        !is_ours(w, fleet))
        moved_on(w, p, fleet);
    judge(w);
}
