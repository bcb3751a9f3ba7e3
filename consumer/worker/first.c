/* SPDX-License-Identifier: Apache-2.0 */
/* first: the part of the worker that handles the first run of a name, which needs no quarantine.
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

enum { LIFT_MS = 100, LOOK_AGAIN_MS = 500 };

static bool has_commit(const struct lw_worker *w) {
    assert(w->n_assigned <= w->cap_assigned);
    for (size_t i = 0; i < w->n_assigned; i++)
        if (w->assigned[i]->committed >= 0) return true;
    return false;
}

static bool should_look(const struct shard *sh) {
    check_first(&sh->first);
    return sh->first.waits && sh->first.look == LOOK_NOT && connection_old_life(sh)->never_replica;
}

bool first_waits(const struct shard *sh) {
    check_first(&sh->first);
    return sh->first.waits;
}

void first_begin(struct shard *sh, bool waits) {
    check_first(&sh->first);
    sh->first = (struct first){.waits = waits};
}

void first_committed(struct lw_worker *w) {
    check_worker(w);
    for (int s = 0; s < w->n_shards; s++) w->shards[s].first.lift_ms = 0;
}

/* Asks Kafka for all commits of the group, as soon as this worker has joined the epoch of every
 * shard. */
void first_look(struct lw_worker *w) {
    check_worker(w);
    bool wanted = false;
    for (int s = 0; s < w->n_shards; s++) wanted |= should_look(&w->shards[s]);
    if (!wanted || !w->io->look || w->looking || !all_joined(w) || now_ms(w) < w->look_ms) return;
    w->look_ms = now_ms(w) + LOOK_AGAIN_MS;
    w->looking = !has_commit(w) && w->io->look(w->ctx);
    for (int s = 0; s < w->n_shards; s++)
        if (w->looking && should_look(&w->shards[s])) w->shards[s].first.look = LOOK_ASKED;
}

void lw_worker_listed(struct lw_worker *w, bool known, size_t commits) {
    check_worker(w);
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
    check_first(&sh->first);
    assert(sh->phase == READY);
    if (!shard_quarantined(sh, now) || now < sh->first.lift_ms) return;
    sh->first.lift_ms = now + LIFT_MS;
    pipe_script(sh, CALL_LIFT, &lw_script_lift, 1);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, epoch_id(sh));
    pipe_text(sh, has_commit(w) ? "1" : "0");
    pipe_text(sh, sh->first.look == LOOK_EMPTY ? "1" : "0");
}

void lift_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    check_first(&sh->first);
    assert(sh->phase == READY);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 ||
        r->element[0]->type != REDIS_REPLY_INTEGER || r->element[1]->type != REDIS_REPLY_INTEGER) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh, lw_malformed(why, r, "lift.lua", "[integer, integer]"));
        return;
    }
    int64_t now = now_ms(w), left = r->element[0]->integer;
    if (!left && quarantine_left_ms(sh, now))
        lw_info("shard %d: epoch %s: no quarantine: when it began, nobody had made a commit in "
                "group \"%s\"",
                sh->index, epoch_id(sh), w->c->kafka.group_id);
    epoch_quarantine(sh, left ? now + left + 1 : 0);
    sh->first.waits = r->element[1]->integer != 0;
}
