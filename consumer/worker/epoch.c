/* SPDX-License-Identifier: Apache-2.0 */
/* epoch: a shard's leases belong to one life of its data (doc/lifecycle.txt, section 2). This file
 * joins an epoch, tells a server that has lost its data what is known to be finished (repair), and
 * takes everything of the epoch back when it is lost. connection.c notices that it is lost.
 *
 * Repair sends the floors, and the messages still known as done after the rewind, right after
 * enter. Messages whose handlers ended after the old epoch was lost are sent later, while the
 * quarantine lasts.
 *
 * The first run of a name needs no quarantine.
 *
 * A quarantine waits for leases that an earlier life of Redis has granted. But no message is given
 * to a handler before the group has a commit: a new epoch on an empty Redis carries the mark
 * `first`, and gate and claim refuse while it is there. The mark is removed when a worker knows of
 * a commit that Kafka has accepted (lift.lua). So if the group had no commit at a moment after the
 * epoch began, then no lease from before the epoch can be live, and the quarantine may end:
 *
 *     enter: the epoch begins, with the mark `first`
 *       --> query: the group has no commit       --> lift: the quarantine ends
 *       --> Kafka has accepted the first commits --> lift: the mark `first` is removed
 *
 * The order matters: a query that was sent before the epoch began proves nothing, because commits
 * and grants may have followed it. The query also proves nothing if the server was a replica,
 * because its old master may go on granting for a while. */
#include "consumer/worker/private.h"

#include "base/redis/reply.h"
#include "queue/epoch.h"

/* --- the epoch ------------------------------------------------------------------------------- */

static void set_epoch(struct lw_worker *w, struct shard *sh, const char *id) {
    assert(strlen(id) < sizeof sh->epoch.id);
    pthread_mutex_lock(&w->epoch_mutex);
    snprintf(sh->epoch.id, sizeof sh->epoch.id, "%s", id);
    pthread_mutex_unlock(&w->epoch_mutex);
}

bool lw_worker_epoch(struct lw_worker *w, int shard, char *epoch, size_t size) {
    assert(shard >= 0 && shard < w->n_shards);
    assert(epoch && size > 0);
    pthread_mutex_lock(&w->epoch_mutex);
    bool have = w->shards[shard].epoch.id[0] != 0;
    if (have) snprintf(epoch, size, "%s", w->shards[shard].epoch.id);
    pthread_mutex_unlock(&w->epoch_mutex);
    return have;
}

void epoch_quarantine(struct shard *sh, int64_t until_ms) {
    assert(sh->phase == READY);
    sh->epoch.quarantine_until_ms = until_ms;
}

int64_t quarantine_left_ms(const struct shard *sh, int64_t now) {
    return sh->epoch.quarantine_until_ms > now ? sh->epoch.quarantine_until_ms - now : 0;
}

bool shard_quarantined(const struct shard *sh, int64_t now) {
    return quarantine_left_ms(sh, now) > 0 || sh->first.waits;
}

/* --- the end of an epoch --------------------------------------------------------------------- */

/* Applies the rule "epoch ends, grants end": forgets the leases of this shard only, but rewinds all
 * partitions. Runs that are still in a handler go to the lost list of their lane, and block their
 * key in this worker. */
void shard_lost(struct lw_worker *w, struct shard *sh, const char *why) {
    if (!sh->index) limit_forget(w);
    if (!sh->epoch.id[0]) return;
    assert(sh->phase != DOWN && sh->phase != ENTERING);
    lw_warn("shard %d: epoch %s is lost: %s; rereading all partitions from their watermarks",
            sh->index, sh->epoch.id, why);
    count(&w->counts->epochs_lost);
    set_epoch(w, sh, "");
    lw_leases_cancel_shard(w->leases, sh->index);
    pipe_forget(w, sh);
    struct lane *l, *tmp;
    HASH_ITER(hh, sh->lanes, l, tmp) {
        assert(!l->in_call);
        if (l->hold) hold_to_lost(w, l->hold);
    }
    hints_forget(sh);
    ready_forget(w, sh);
    floor_unknown(w, sh);
    parts_rewind(w, true);
    commit_must_confirm(w);
    sh->epoch.quarantine_until_ms = 0;
    sh->first = (struct first){0};
    repair_restart(sh);
    /* Redis refuses calls that are still on their way on the old connection, because they name the
     * old epoch. */
    connection_restart(w, sh);
    assert(sh->phase == DOWN && !sh->epoch.id[0]);
}

/* --- enter ----------------------------------------------------------------------------------- */

static void schema(struct lw_worker *w, struct shard *sh) {
    assert(w->set.cluster_id && w->n_shards > 0);
    pipe_text(sh, "version"), pipe_number(sh, LW_SCHEMA_VERSION);
    pipe_text(sh, "shards"), pipe_number(sh, w->n_shards);
    pipe_text(sh, "key_rule"), pipe_text(sh, w->c->key.from_text);
    pipe_text(sh, "group_id"), pipe_text(sh, w->c->kafka.group_id);
    if (w->set.cluster_id[0]) pipe_text(sh, "kafka_cluster"), pipe_text(sh, w->set.cluster_id);
}

/* Returns how long the leases of earlier epochs may still live. A wiped Redis has no record of this
 * time, and other workers, which may be unreachable now, may use a longer TTL than this worker. The
 * time matters for one quarantine only. When the quarantine is over, all these leases have ended.
 * From then on, this function returns the TTL that the reply to enter has given. */
static int64_t old_leases_ms(struct lw_worker *w, const struct shard *sh) {
    int64_t left = sh->epoch.old_until_ms - now_ms(w);
    return left > sh->epoch.ttl_ms ? left : sh->epoch.ttl_ms;
}

void enter_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == ENTERING);
    pipe_begin(sh);
    pipe_script(sh, CALL_ENTER, &lw_script_enter, 3);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_fence), pipe_text(sh, sh->key_lanes);
    char id[LW_EPOCH_ID];
    lw_epoch_id(w->io->wall_ms(w->ctx), w->io->random(w->ctx), w->io->random(w->ctx), id);
    pipe_copy(sh, id);
    const struct lw_life *life = &sh->server.new_life;
    pipe_text(sh, life->id);
    pipe_number(sh, w->c->lock.ttl_ms), pipe_text(sh, sh->server.jumped);
    pipe_text(sh, w->set.host), pipe_number(sh, sh->server.wall_offset_ms);
    pipe_number(sh, (int64_t)w->runs.max_fence);
    pipe_text(sh, life->history);
    pipe_number(sh, old_leases_ms(w, sh));
    schema(w, sh);
    pipe_send(w, sh);
    assert(sh->pipe.open);
}

/* Stores the largest TTL in use and the end of the quarantine, as the reply to enter gives them.
 * Returns how long the quarantine still lasts. */
static int64_t take_times(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    int64_t now = now_ms(w),
            left = strtoll(r->element[3]->str, NULL, 10) - strtoll(r->element[2]->str, NULL, 10);
    sh->epoch.ttl_ms = strtoll(r->element[4]->str, NULL, 10);
    sh->epoch.old_until_ms = now + (left > 0 ? left : 0);
    if (left > 0) sh->epoch.quarantine_until_ms = now + left + 1;
    return left;
}

/* Ends the worker because a field of its schema differs from that of the fleet. */
static void refused(struct lw_worker *w, const struct shard *sh, const char *field,
                    const char *theirs) {
    char why[900], ours[LW_SCHEMA_VALUE];
    if (strcmp(field, "version") == 0) {
        snprintf(why, sizeof why,
                 "shard %d: the data of \"%s\" has schema %s, Latchwork " LW_VERSION
                 " has schema %d; run the version that wrote the data, or drain the fleet with "
                 "that version and start this one under "
                 "another name",
                 sh->index, w->c->name, theirs, LW_SCHEMA_VERSION);
    } else {
        const char *setting = lw_schema_part(w->c, w->set.cluster_id, field, ours);
        snprintf(why, sizeof why,
                 "shard %d: refused: fleet \"%s\" runs with %s=%.200s, this worker has %s; use the "
                 "fleet's value, or choose another name",
                 sh->index, w->c->name, setting, theirs, ours);
    }
    w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
}

static void tell_quarantine(const struct shard *sh, int64_t left) {
    if (left > 0)
        lw_info("shard %d: epoch %s: quarantine for %" PRId64
                " ms, until every earlier lease has ended",
                sh->index, sh->epoch.id, left);
}

void enter_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == ENTERING);
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements >= 3;
    for (size_t i = 0; sound && i < r->elements; i++)
        sound = r->element[i]->type == REDIS_REPLY_STRING;
    bool ok = sound && strcmp(r->element[0]->str, "OK") == 0;
    if (!sound || (ok && r->elements < 6)) {
        pipe_malformed(w, sh, r, "enter.lua", "3 strings (REFUSED) or 6 strings (OK)");
        return;
    }
    if (!ok) {
        refused(w, sh, r->element[1]->str, r->element[2]->str);
        return;
    }
    set_epoch(w, sh, r->element[1]->str);
    if (!sh->index) rival_epoch(w, sh->epoch.id);
    connection_entered(sh);
    w->joined = true;
    int64_t now = now_ms(w), left = take_times(w, sh, r);
    sh->first = (struct first){.waits = r->element[5]->str[0] == '1'};
    if (!sh->first.waits) tell_quarantine(sh, left); /* a first run mostly needs none */
    /* workers that no longer exist may have left lanes behind, so tend checks all lanes now */
    tend_now(sh, now);
    shard_to(sh, REPAIRING);
    sh->repair.over = false;
    repair_restart(sh);
}

/* --- repair ---------------------------------------------------------------------------------- */

void repair_restart(struct shard *sh) {
    sh->repair.part = sh->repair.at = 0;
    sh->repair.floors_sent = false;
}

/* Returns the maximum number of ranges per call of repair. */
static int repair_room(const struct lw_worker *w) {
    assert(w->set.repair_batch >= 0 && w->set.repair_batch <= REPAIR_BATCH);
    return w->set.repair_batch ? w->set.repair_batch : REPAIR_BATCH;
}

void repairs_restart(struct lw_worker *w) {
    for (int s = 0; s < w->n_shards; s++) repair_restart(&w->shards[s]);
}

/* Begins a call of repair with this number of floors, which the caller appends before the
 * ranges. */
static void call_begin(struct shard *sh, int floors) {
    pipe_script(sh, CALL_REPAIR, &lw_script_repair, 2);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_floor), pipe_text(sh, sh->epoch.id);
    pipe_number(sh, floors);
}

static void call_ranges(struct shard *sh) {
    for (int i = 0; i < sh->repair.n; i++) {
        const struct repair_item *it = &sh->repair.item[i];
        pipe_offsets(sh, it->part->name, it->lo, it->hi);
    }
}

/* Builds one call of repair: the floors first, then as many finished ranges as fit. The shard
 * becomes READY when nothing is left to write. */
void repair_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == REPAIRING && !sh->repair.over);
    pipe_begin(sh);
    sh->repair.n = 0;
    int floors = 0, offsets = 0;
    if (!sh->repair.floors_sent)
        for (size_t i = 0; i < w->n_assigned; i++) floors += w->assigned[i]->committed >= 0;
    while (sh->repair.part < w->n_assigned && sh->repair.n < repair_room(w) &&
           offsets < REPAIR_OFFSETS) {
        struct part *p = w->assigned[sh->repair.part];
        if (sh->repair.at >= p->kept.n) {
            sh->repair.part++;
            sh->repair.at = 0;
            continue;
        }
        struct kept_record k = p->kept.at[sh->repair.at++];
        if ((int)(k.tag % (uint32_t)w->n_shards) != sh->index) continue;
        struct repair_item *last = sh->repair.n ? &sh->repair.item[sh->repair.n - 1] : NULL;
        if (last && last->part == p && last->hi == k.offset)
            last->hi++;
        else
            sh->repair.item[sh->repair.n++] =
                (struct repair_item){.part = p, .gen = p->gen, .lo = k.offset, .hi = k.offset + 1};
        offsets++;
    }
    if (!floors && !sh->repair.n) {
        sh->repair.over = true;
        shard_to(sh, READY);
        return;
    }
    call_begin(sh, floors);
    if (floors)
        for (size_t i = 0; i < w->n_assigned; i++) {
            struct part *p = w->assigned[i];
            if (p->committed < 0) continue;
            pipe_offsets(sh, p->name, p->committed, p->log_begin);
        }
    call_ranges(sh);
    sh->repair.floors_sent = true;
    pipe_send(w, sh);
}

/* Collects the messages of a lost hold whose handlers ended with done after the end of the epoch.
 * These messages may be written back during the quarantine, if the order of the key's messages
 * allows it. Until that is decided, the rule "epoch ends, grants end" blocks the key in this
 * worker. */
static void collect_of(struct lw_worker *w, struct shard *sh, struct hold *h, bool quarantined) {
    check_hold(h);
    assert(h->lost);
    for (struct run *r = h->first, *next; r; r = next) {
        next = r->next;
        if (!r->late || r->in_repair) continue;
        struct part *p = r->msg->part;
        /* decide about this message only after the earlier messages of its partition, some of which
         * may have the same key, have been delivered again */
        if (p->gen && quarantined && lw_offsets_next(p->offsets) < r->msg->offset) continue;
        if (!p->gen || !quarantined || !part_closed(p, r->msg) || sh->repair.n == REPAIR_BATCH) {
            late_remove(w, r); /* late_remove() also frees the hold if this is its last run */
            continue;
        }
        r->in_repair = true;
        sh->repair.item[sh->repair.n++] = (struct repair_item){
            .part = p, .gen = p->gen, .lo = r->msg->offset, .hi = r->msg->offset + 1, .late = r};
    }
}

static void collect_late(struct lw_worker *w, struct shard *sh) {
    struct lane *l, *tmp;
    bool quarantined = shard_quarantined(sh, now_ms(w));
    HASH_ITER(hh, sh->lanes, l, tmp) {
        for (struct hold *h = l->lost, *next; h; h = next) {
            next = h->next;
            collect_of(w, sh, h, quarantined);
        }
    }
}

void repair_back(struct lw_worker *w, struct shard *sh) {
    (void)w;
    for (int i = 0; i < sh->repair.n; i++)
        if (sh->repair.item[i].late) sh->repair.item[i].late->in_repair = false;
}

void late_count(struct shard *sh, int by) {
    assert(by == 1 || by == -1);
    assert(by > 0 || sh->repair.n_late > 0);
    sh->repair.n_late += (size_t)by;
}

/* Writes back the messages whose handlers ended after the first repair. */
void late_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY);
    sh->repair.n = 0;
    if (sh->repair.n_late) collect_late(w, sh);
    if (!sh->repair.n) return;
    call_begin(sh, 0);
    call_ranges(sh);
}

void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    bool ok = r->str && strcmp(r->str, "OK") == 0, forget = false;
    if (!ok && (!r->str || strcmp(r->str, "LATE") != 0)) {
        pipe_malformed(w, sh, r, "repair.lua", "OK or LATE");
        return;
    }
    for (int i = 0; i < sh->repair.n; i++) {
        struct repair_item *it = &sh->repair.item[i];
        if (it->late) {
            if (ok && it->part->gen == it->gen) part_mark(it->part, it->lo, LW_OFF_DONE);
            it->late->in_repair = false;
            late_remove(w, it->late);
        } else {
            forget |= !ok;
        }
    }
    sh->repair.n = 0;
    /* The quarantine is over, so all messages that Redis does not know to be finished run again. */
    if (forget) {
        for (size_t i = 0; i < w->n_assigned; i++) part_forget_kept(w->assigned[i]);
        parts_rewind(w, false);
    }
}

/* --- the first run of a name ----------------------------------------------------------------- */

enum { LIFT_MS = 100, LOOK_AGAIN_MS = 500 };

static bool has_commit(const struct lw_worker *w) {
    assert(w->n_assigned <= w->cap_assigned);
    for (size_t i = 0; i < w->n_assigned; i++)
        if (w->assigned[i]->committed >= 0) return true;
    return false;
}

static bool should_look(const struct shard *sh) {
    return sh->first.waits && sh->first.look == LOOK_NOT && sh->server.life.never_replica;
}

void first_committed(struct lw_worker *w) {
    for (int s = 0; s < w->n_shards; s++) w->shards[s].first.lift_ms = 0;
}

/* Asks Kafka for all commits of the group, as soon as this worker has joined the epoch of every
 * shard. */
void first_look(struct lw_worker *w) {
    bool wanted = false, joined = true;
    for (int s = 0; s < w->n_shards; s++) {
        wanted |= should_look(&w->shards[s]);
        joined &= epoch_joined(&w->shards[s]);
    }
    if (!wanted || !joined || !w->io->look || w->looking || now_ms(w) < w->look_ms) return;
    w->look_ms = now_ms(w) + LOOK_AGAIN_MS;
    w->looking = !has_commit(w) && w->io->look(w->ctx);
    for (int s = 0; s < w->n_shards; s++)
        if (w->looking && should_look(&w->shards[s])) w->shards[s].first.look = LOOK_ASKED;
}

void lw_worker_listed(struct lw_worker *w, bool known, size_t commits) {
    w->looking = false;
    for (int s = 0; s < w->n_shards; s++) {
        struct shard *sh = &w->shards[s];
        if (sh->first.look != LOOK_ASKED) continue;
        sh->first.look = !known ? LOOK_NOT : commits ? LOOK_USED : LOOK_EMPTY;
        sh->first.lift_ms = 0;
    }
}

/* Returns true while the query for the group's commits is due or unanswered. Until the answer has
 * come, the worker commits no partition that has no commit yet. Otherwise the answer might list
 * the new commit, and then the quarantine could not end early. */
bool first_looks(struct lw_worker *w) {
    assert(w->n_shards > 0);
    int64_t now = now_ms(w);
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        bool open = should_look(sh) || sh->first.look == LOOK_ASKED;
        if (w->io->look && sh->first.waits && open && quarantine_left_ms(sh, now) && !has_commit(w))
            return true;
    }
    return false;
}

/* While nothing may be granted, tells Redis periodically whether this worker knows of a commit of
 * the group, and asks how long the quarantine still lasts. */
void lift_build(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY);
    if (!shard_quarantined(sh, now) || now < sh->first.lift_ms) return;
    sh->first.lift_ms = now + LIFT_MS;
    pipe_script(sh, CALL_LIFT, &lw_script_lift, 1);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->epoch.id);
    pipe_text(sh, has_commit(w) ? "1" : "0");
    pipe_text(sh, sh->first.look == LOOK_EMPTY ? "1" : "0");
}

void lift_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == READY);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 ||
        r->element[0]->type != REDIS_REPLY_INTEGER || r->element[1]->type != REDIS_REPLY_INTEGER) {
        pipe_malformed(w, sh, r, "lift.lua", "[integer, integer]");
        return;
    }
    int64_t now = now_ms(w), left = r->element[0]->integer;
    if (sh->first.waits && !r->element[1]->integer) tell_quarantine(sh, left);
    if (!left && quarantine_left_ms(sh, now))
        lw_info("shard %d: epoch %s: no quarantine: when it began, nobody had made a commit in "
                "group \"%s\"",
                sh->index, sh->epoch.id, w->c->kafka.group_id);
    epoch_quarantine(sh, left ? now + left + 1 : 0);
    sh->first.waits = r->element[1]->integer != 0;
}
