/* SPDX-License-Identifier: Apache-2.0 */
/* commit: commits the watermarks to Kafka. Each offset that Kafka has accepted as a commit is sent
 * to the shards, as the partition's floor. The group's commits also show another fleet.
 *
 * A rival is a fleet that has the name and consumer group of this fleet, but uses another Redis.
 * The two fleets share the partitions, and neither sees the other's locks, so two handlers of one
 * key may run at once.
 *
 * Each commit carries the first digits of the id of an epoch, which is the epoch of shard 0 in the
 * fleet that made the commit. A foreign epoch alone proves nothing, because Redis may have been
 * wiped or moved. An epoch that Redis names as an earlier one of its own is never foreign: after a
 * failover, workers may go on under it for as long as the old master serves them. But if commits
 * keep advancing under a foreign epoch for longer than the workers of this fleet need to notice the
 * end of their own epoch, another live fleet makes those commits.
 * The fleet with the younger epoch stops, because it is probably the one that was started by
 * mistake.
 *
 * The older fleet only logs an error. It logs the error even after a single commit under the
 * foreign epoch, because the younger fleet may have stopped before its second commit. But after
 * Redis was wiped, other workers of this fleet commit under a new epoch, too. So a worker first
 * waits as long as it may need to notice the end of its own epoch, and then logs the error. */
#include "consumer/worker/private.h"

#include "base/redis/reply.h"

/* --- commits --------------------------------------------------------------------------------- */

enum {
    COMMIT_MS = 200,
    CONFIRM_MS = 500, /* time between two attempts to confirm the assignment */
    COMMITS = 64
};

void commit_must_confirm(struct lw_worker *w) { w->commit.confirm = true; }

static size_t collect(struct lw_worker *w, struct lw_commit *c, size_t max, size_t *from,
                      bool all) {
    assert(max > 0 && *from <= w->n_assigned);
    size_t n = 0;
    for (; *from < w->n_assigned && n < max; (*from)++) {
        struct part *p = w->assigned[*from];
        int64_t mark = lw_offsets_watermark(p->offsets);
        if (!all && mark == p->committed) continue;
        if (!all && p->committed < 0 && first_looks(w)) continue;
        /* Leave the partition out until its states have been read from all shards, because only
         * then is it known that its watermark fits the floors. */
        if (!all && p->watch.n_fresh < w->n_shards) continue;
        c[n++] = (struct lw_commit){p->gen, mark, w->fleet};
    }
    return n;
}

void commit_step(struct lw_worker *w) {
    int64_t now = now_ms(w);
    if (now < w->commit.at_ms || w->io->commit_busy(w->ctx)) return;
    w->commit.at_ms = now + COMMIT_MS;
    struct lw_commit c[COMMITS];
    size_t from = w->commit.from < w->n_assigned ? w->commit.from : 0;
    size_t n = collect(w, c, COMMITS, &from, false);
    w->commit.from = from;
    struct lw_err err = {0};
    if (n && w->io->commit(w->ctx, c, n, &err) != 0)
        lw_warn_some(1, "commit: %s; retrying in %d ms", err.text, COMMIT_MS);
}

void lw_worker_committed(struct lw_worker *w, uint32_t gen, int64_t offset, bool ok) {
    struct part *p = part_of_gen(w, gen);
    /* nothing is done about a refused commit: if the partition was lost, Kafka also reports this by
     * a rebalance, and otherwise the commit is sent again */
    if (!p || !ok) return;
    part_committed(p, offset);
    first_committed(w);
    count(&w->counts->commits);
    if (w->set.board) lw_board_committed(w->set.board, p->topic, p->partition, offset);
    w->io->passed(w->ctx, p->topic, p->partition, offset);
}

/* Applies the rule "Kafka confirms first": before anything is repaired or gated after an epoch
 * loss, Kafka must accept a commit of the watermarks, which shows that the partitions still belong
 * to this worker. If Kafka refuses the commit of a single partition, this worker drops the
 * partition. Returns false if the whole commit failed. The caller then tries again. */
bool commit_confirm(struct lw_worker *w) {
    assert(w->commit.confirm);
    int64_t now = now_ms(w);
    if (now < w->commit.confirm_ms) return false;
    struct lw_commit c[COMMITS];
    bool ok[COMMITS];
    for (size_t from = 0; from < w->n_assigned;) {
        size_t n = collect(w, c, COMMITS, &from, true);
        struct lw_err err = {0};
        memset(ok, 0, sizeof ok);
        int rc = w->io->commit_sync(w->ctx, c, n, ok, &err);
        if (rc != 0) {
            lw_warn_some(1, "can't confirm the assignment with Kafka: %s; retrying in %d ms",
                         err.text, CONFIRM_MS);
            w->commit.confirm_ms = now_ms(w) + CONFIRM_MS;
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            struct part *p = part_of_gen(w, c[i].gen);
            if (ok[i] || !p) continue;
            lw_warn("%s: Kafka rejected the commit: this worker no longer owns the partition",
                    p->name);
            part_drop(w, p);
            from--;
        }
    }
    w->commit.confirm = false;
    return true;
}

/* --- when partitions are given up ------------------------------------------------------------ */

void commit_now(struct lw_worker *w, struct part **parts, size_t n) {
    struct lw_commit *c = lw_alloc((n + 1) * sizeof *c);
    struct lw_err err = {0};
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const struct part *p = parts[i];
        if (!p || !p->gen) continue;
        int64_t mark = lw_offsets_watermark(p->offsets);
        if (mark != p->committed) c[k++] = (struct lw_commit){p->gen, mark, w->fleet};
    }
    if (k && w->io->commit_sync(w->ctx, c, k, NULL, &err) != 0)
        lw_warn("commit before giving up %zu partitions: %s; their next owners read from the "
                "previous commit",
                n, err.text);
    free(c);
}

void lw_worker_commit_all(struct lw_worker *w) { commit_now(w, w->assigned, w->n_assigned); }

/* --- floors ---------------------------------------------------------------------------------- */

void floor_unknown(struct lw_worker *w, const struct shard *sh) {
    for (size_t i = 0; i < w->n_assigned; i++) w->assigned[i]->in[sh->index].floor_sent = -1;
}

void floor_known(const struct shard *sh, struct part *p, int64_t floor, bool again) {
    assert(p->gen);
    int64_t *sent = &p->in[sh->index].floor_sent;
    if (*sent < 0) *sent = floor;
    if (again && *sent > 0) --*sent;
}

void floor_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY);
    sh->floors.n = 0;
    for (size_t i = 0; i < w->n_assigned && sh->floors.n < FLOOR_BATCH; i++) {
        struct part *p = w->assigned[i];
        int64_t sent = p->in[sh->index].floor_sent, to = p->committed;
        if (to < 0 || sent >= to) continue;
        /* the floor that the last owner left in Redis has not been read yet, so no floor is sent */
        if (sent < 0 && !p->in[sh->index].fresh) continue;
        sh->floors.item[sh->floors.n++] = (struct floor_item){p, p->gen, to};
    }
    if (!sh->floors.n) return;
    pipe_script(sh, CALL_FLOOR, &lw_script_floor, 2);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_floor), pipe_text(sh, sh->epoch.id);
    for (int i = 0; i < sh->floors.n; i++) {
        const struct floor_item *it = &sh->floors.item[i];
        pipe_offsets(sh, it->part->name, it->to, it->part->log_begin);
    }
}

void floor_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->floors.n > 0 && sh->floors.n <= FLOOR_BATCH);
    bool all = r->str && strcmp(r->str, "OK") == 0;
    if (!all && r->type != REDIS_REPLY_INTEGER) {
        pipe_malformed(w, sh, r, "floor.lua", "OK or an integer");
        return;
    }
    int taken = all ? sh->floors.n : (int)r->integer;
    for (int i = 0; i < sh->floors.n && i < taken; i++)
        if (sh->floors.item[i].part->gen == sh->floors.item[i].gen)
            sh->floors.item[i].part->in[sh->index].floor_sent = sh->floors.item[i].to;
    sh->floors.n = 0;
}

/* --- another fleet --------------------------------------------------------------------------- */

enum { RIVAL_SEEN = 3, PATIENCE_MS = 3000, GAP_MS = 1000, FORGET_MS = 60000, SAID_MS = 60000 };

static bool was_ours(const struct lw_worker *w, const char *fleet) {
    bool ours = false;
    for (size_t i = 0; i < FLEETS; i++) ours |= strcmp(fleet, w->fleets[i]) == 0;
    return ours;
}

void rival_known(struct lw_worker *w, const char *names) {
    for (size_t n; *names; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        char fleet[LW_FLEET + 1];
        snprintf(fleet, sizeof fleet, "%.*s", (int)n, names);
        if (n < LW_FLEET || was_ours(w, fleet)) continue;
        memcpy(w->fleets[w->n_fleets++ % FLEETS], fleet, sizeof fleet);
        if (!strcmp(w->rival.fleet, fleet)) w->rival = (struct rival){.n = 0};
    }
}

void rival_epoch(struct lw_worker *w, const char *epoch) {
    assert(epoch && strlen(w->fleet) < sizeof w->fleet);
    if (strncmp(w->fleet, epoch, LW_FLEET) == 0) return;
    rival_known(w, w->fleet);
    snprintf(w->fleet, sizeof w->fleet, "%.*s", LW_FLEET, epoch);
    /* A fleet's name is the first LW_FLEET digits of the id of shard 0's epoch. An id with
     * fewer digits was not made by a worker, and cannot identify the fleet. */
    if (strlen(w->fleet) != LW_FLEET) w->fleet[0] = 0;
    w->rival = (struct rival){.n = 0};
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
    if (!w->fleet[0]) return;
    struct part *p = part_get(w, o->topic, strlen(o->topic), o->partition, 0);
    bool moved = p->looked.known && o->offset > p->looked.offset;
    p->looked = (struct looked){true, o->offset};
    if (moved && o->fleet[0] && strcmp(o->fleet, w->fleet) && !was_ours(w, o->fleet))
        moved_on(w, p, o->fleet);
    judge(w);
}
