/* SPDX-License-Identifier: Apache-2.0 */
/* epoch: the part of the worker that joins an epoch, and handles the end of an epoch
 * (doc/lifecycle.txt, section 3). */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"
#include "queue/epoch.h"

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
    if (have) {
        size_t n = strlen(w->shards[shard].epoch.id);
        if (n >= size) n = size - 1;
        memcpy(epoch, w->shards[shard].epoch.id, n);
        epoch[n] = 0;
    }
    pthread_mutex_unlock(&w->epoch_mutex);
    return have;
}

bool epoch_joined(const struct shard *sh) { return sh->epoch.id[0] != 0; }

const char *epoch_id(const struct shard *sh) { return sh->epoch.id; }

int64_t epoch_ttl_ms(const struct shard *sh) { return sh->epoch.ttl_ms; }

void epoch_quarantine(struct shard *sh, int64_t until_ms) {
    assert(sh->phase == READY);
    sh->epoch.quarantine_until_ms = until_ms;
}

int64_t quarantine_left_ms(const struct shard *sh, int64_t now) {
    return sh->epoch.quarantine_until_ms > now ? sh->epoch.quarantine_until_ms - now : 0;
}

bool shard_quarantined(const struct shard *sh, int64_t now) {
    return quarantine_left_ms(sh, now) > 0 || first_waits(sh);
}

/* --- the end of an epoch ---------------------------------------------------------------------- */

/* Applies the rule "epoch ends, grants end": forgets the leases of this shard only, but rewinds all
 * partitions. Runs that are still in a handler go to the lost list of their lane, and block their
 * key in this worker. */
void shard_lost(struct lw_worker *w, struct shard *sh, const char *why) {
    check_shard(sh);
    assert(why);
    if (!sh->epoch.id[0]) return;
    assert(sh->phase != DOWN && sh->phase != ENTERING);
    lw_warn("shard %d: epoch %s is lost: %s; rereading all partitions from their watermarks",
            sh->index, sh->epoch.id, why);
    atomic_fetch_add_explicit(&w->counts->epochs_lost, 1, memory_order_relaxed);
    set_epoch(w, sh, "");
    lw_leases_cancel_shard(w->leases, sh->index);
    pipe_forget(w, sh);
    struct lane *l, *tmp;
    HASH_ITER(hh, sh->lanes, l, tmp) {
        assert(!l->in_call);
        if (l->hold) hold_to_lost(w, l->hold);
    }
    hints_forget(sh);
    floor_unknown(w, sh);
    parts_rewind(w, true);
    commit_must_confirm(w);
    sh->epoch.quarantine_until_ms = 0;
    first_begin(sh, false);
    repair_drop(sh);
    /* Redis refuses calls that are still on their way on the old connection, because they name the
     * old epoch. */
    connection_restart(w, sh);
    assert(sh->phase == DOWN && !sh->epoch.id[0]);
}

/* --- enter ------------------------------------------------------------------------------------ */

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
    check_shard(sh);
    assert(sh->phase == ENTERING);
    pipe_begin(w, sh);
    pipe_script(sh, CALL_ENTER, &lw_script_enter, 3);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_fence), pipe_text(sh, sh->key_lanes);
    char id[LW_EPOCH_ID];
    lw_epoch_id(w->io->wall_ms(w->ctx), w->io->random(w->ctx), w->io->random(w->ctx), id);
    pipe_copy(sh, id);
    const struct lw_life *life = connection_life(sh);
    pipe_text(sh, life->id);
    pipe_number(sh, w->c->lock.ttl_ms), pipe_number(sh, w->set.grace_ms);
    pipe_text(sh, connection_jumped(sh));
    pipe_text(sh, w->set.host), pipe_number(sh, connection_wall_offset_ms(sh));
    pipe_number(sh, (int64_t)w->runs.max_fence);
    pipe_text(sh, life->history);
    pipe_number(sh, old_leases_ms(w, sh));
    schema(w, sh);
    pipe_send(w, sh);
    assert(pipe_in_flight(sh));
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

void enter_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == ENTERING);
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements >= 3;
    for (size_t i = 0; sound && i < r->elements; i++)
        sound = r->element[i]->type == REDIS_REPLY_STRING;
    bool ok = sound && strcmp(r->element[0]->str, "OK") == 0;
    if (!sound || (ok && r->elements < 6)) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh,
                       lw_malformed(why, r, "enter.lua", "3 strings (REFUSED) or 6 strings (OK)"));
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
    if (left > 0)
        lw_info("shard %d: epoch %s: quarantine for %" PRId64
                " ms, until every earlier lease has ended",
                sh->index, sh->epoch.id, left);
    first_begin(sh, r->element[5]->str[0] == '1');
    /* workers that no longer exist may have left lanes behind, so tend checks all lanes now */
    tend_now(sh, now);
    shard_to(sh, REPAIRING);
    repair_open(sh);
}
