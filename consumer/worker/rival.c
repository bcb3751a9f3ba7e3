/* rival: another fleet with our name and consumer group that uses another Redis. The two fleets share
 * the partitions, and neither sees the other's locks, so two handlers of one key may run at once.
 *
 * Each commit names the fleet that made it, by the epoch of its shard 0. A foreign name alone proves
 * nothing: Redis may have been wiped or moved. But if commits keep advancing under a foreign name for
 * longer than our workers need to notice the end of their epoch, a live fleet makes them. The fleet with
 * the younger epoch stops, because it is probably the one that was started by mistake. */
#include "consumer/worker/state.h"

#include "queue/commit_meta.h"

#include <inttypes.h>
#include <stdio.h>

enum { RIVAL_SEEN = 3, PATIENCE_MS = 3000, GAP_MS = 1000, FORGET_MS = 60000, SAID_MS = 60000 };

void rival_epoch(struct lw_worker *w, const char *epoch) {
    if (strncmp(w->fleet, epoch, LW_META_FLEET) == 0) return;
    if (w->fleet[0]) memcpy(w->fleets[w->n_fleets++ % FLEETS], w->fleet, sizeof w->fleet);
    snprintf(w->fleet, sizeof w->fleet, "%.*s", LW_META_FLEET, epoch);
    if (strlen(w->fleet) != LW_META_FLEET) w->fleet[0] = 0; /* not an id of our form: commits name no fleet */
    w->rival = (struct rival){.n = 0};
}

static bool is_ours(const struct lw_worker *w, const char *fleet) {
    bool ours = strcmp(fleet, w->fleet) == 0;
    for (size_t i = 0; i < FLEETS; i++) ours |= strcmp(fleet, w->fleets[i]) == 0;
    return ours;
}

static void verdict(struct lw_worker *w, const char *name, int64_t now) {
    struct rival *r = &w->rival;
    char why[800];
    bool we_stop = strcmp(w->fleet, r->fleet) > 0;
    snprintf(
        why, sizeof why,
        "group \"%s\": another fleet of \"%s\" (%s) works beside this one (%s) with another Redis: it advanced the commit of %s %d times "
        "within %" PRId64
        " ms. Two handlers of one key may run at once. %s. Give one of them another group.id and \"name\", or let both use "
        "one Redis",
        w->c->kafka.group_id, w->c->name, r->fleet, w->fleet, name, r->n, now - r->first_ms,
        we_stop ? "This fleet began later, so it stops" : "The other fleet began later and should stop; this one goes on");
    if (we_stop) {
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    } else if (!r->said_ms || now - r->said_ms >= SAID_MS) {
        r->said_ms = now;
        lw_error("%s", why);
    }
}

static void moved_on(struct lw_worker *w, const struct part *p) {
    struct rival *r = &w->rival;
    int64_t now = now_ms(w), patience = w->c->lock.ttl_ms / 2 > PATIENCE_MS ? w->c->lock.ttl_ms / 2 : PATIENCE_MS;
    if (strcmp(r->fleet, p->foreign) != 0 || now - r->last_ms > FORGET_MS) {
        *r = (struct rival){.first_ms = now};
        memcpy(r->fleet, p->foreign, sizeof r->fleet);
    } else if (now - r->last_ms < GAP_MS) {
        return;
    }
    r->last_ms = now;
    if (++r->n >= RIVAL_SEEN && now - r->first_ms >= patience) verdict(w, p->name, now);
}

void lw_worker_looked(struct lw_worker *w, const struct lw_group_offset *o) {
    char fleet[LW_META_FLEET + 1];
    if (!w->fleet[0] || !lw_meta_fleet(o->offset, o->metadata, o->metadata_len, fleet) || is_ours(w, fleet)) return;
    struct part *p = part_get(w, o->topic, strlen(o->topic), o->partition, 0);
    bool moved = strcmp(p->foreign, fleet) == 0 && o->offset > p->foreign_at;
    memcpy(p->foreign, fleet, sizeof p->foreign);
    p->foreign_at = o->offset;
    if (moved) moved_on(w, p);
}
