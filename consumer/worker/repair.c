/* SPDX-License-Identifier: Apache-2.0 */
/* repair: the step that runs during the quarantine of a Redis server that has lost its data. It
 * tells the server which messages this worker knows to be finished. The floors, and the messages
 * still known as done after the rewind, are sent first, right after enter. Two kinds of messages
 * are sent later: those whose handlers ended after the old epoch was lost, and those that are
 * listed as finished only in commit metadata. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

bool repair_over(const struct shard *sh) {
    check_repair(&sh->repair);
    return sh->repair.over;
}

bool repair_has_room(const struct shard *sh) {
    check_repair(&sh->repair);
    return sh->repair.n_meta < REPAIR_OFFSETS;
}

void repair_restart(struct shard *sh) {
    check_repair(&sh->repair);
    sh->repair.part = sh->repair.at = 0;
    sh->repair.floors_sent = false;
}

void repair_open(struct shard *sh) {
    check_repair(&sh->repair);
    assert(sh->phase == REPAIRING);
    sh->repair.over = false;
    repair_restart(sh);
}

void repair_drop(struct shard *sh) {
    check_repair(&sh->repair);
    sh->repair.n_meta = 0;
    repair_restart(sh);
}

void repair_free(struct shard *sh) {
    check_repair(&sh->repair);
    free(sh->repair.meta);
}

/* Returns the maximum number of ranges per call of repair. */
static int repair_room(const struct lw_worker *w) {
    assert(w->set.repair_batch >= 0 && w->set.repair_batch <= REPAIR_BATCH);
    return w->set.repair_batch ? w->set.repair_batch : REPAIR_BATCH;
}

void repairs_restart(struct lw_worker *w) {
    check_worker(w);
    for (int s = 0; s < w->n_shards; s++) repair_restart(&w->shards[s]);
}

/* Begins a call of repair with this number of floors, which the caller appends before the
 * ranges. */
static void call_begin(struct shard *sh, int floors) {
    pipe_script(sh, CALL_REPAIR, &lw_script_repair, 2);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_floor), pipe_text(sh, epoch_id(sh));
    pipe_number(sh, floors);
}

static void call_ranges(struct shard *sh) {
    check_repair(&sh->repair);
    for (int i = 0; i < sh->repair.n; i++) {
        const struct repair_item *it = &sh->repair.item[i];
        pipe_offsets(sh, it->part->name, it->lo, it->hi);
    }
}

/* Builds one call of repair: the floors first, then as many finished ranges as fit. The shard
 * becomes READY when nothing is left to write. */
void repair_build(struct lw_worker *w, struct shard *sh) {
    check_repair(&sh->repair);
    assert(sh->phase == REPAIRING && !sh->repair.over);
    pipe_begin(w, sh);
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
    check_repair(&sh->repair);
    struct lane *l, *tmp;
    bool quarantined = shard_quarantined(sh, now_ms(w));
    HASH_ITER(hh, sh->lanes, l, tmp) {
        for (struct hold *h = l->lost, *next; h; h = next) {
            next = h->next;
            collect_of(w, sh, h, quarantined);
        }
    }
    check_repair(&sh->repair);
}

void repair_begin(struct shard *sh) {
    check_repair(&sh->repair);
    sh->repair.n = 0;
}

void repair_forget(struct shard *sh) {
    check_repair(&sh->repair);
    for (int i = 0; i < sh->repair.n; i++)
        if (sh->repair.item[i].late) sh->repair.item[i].late->in_repair = false;
}

void late_count(struct shard *sh, int by) {
    assert(by == 1 || by == -1);
    assert(by > 0 || sh->repair.n_late > 0);
    sh->repair.n_late += (size_t)by;
}

void repair_meta(struct shard *sh, struct part *p, int64_t offset) {
    check_repair(&sh->repair);
    check_part(p);
    if (sh->repair.n_meta == sh->repair.cap_meta) {
        sh->repair.cap_meta = sh->repair.cap_meta ? sh->repair.cap_meta * 2 : 64;
        sh->repair.meta =
            lw_realloc(sh->repair.meta, sh->repair.cap_meta * sizeof sh->repair.meta[0]);
    }
    assert(p->gen && sh->repair.n_meta < REPAIR_OFFSETS);
    sh->repair.meta[sh->repair.n_meta++] = (struct repair_item){
        .part = p, .gen = p->gen, .lo = offset, .hi = offset + 1, .meta = true};
}

static void meta_drop(struct shard *sh, size_t n) {
    check_repair(&sh->repair);
    assert(n <= sh->repair.n_meta);
    sh->repair.n_meta -= n;
    if (sh->repair.n_meta)
        memmove(sh->repair.meta, sh->repair.meta + n,
                sh->repair.n_meta * sizeof sh->repair.meta[0]);
}

/* Writes back the messages that became known as finished after the first repair. Records that
 * commit metadata lists are sent oldest first, and stay in their list until Redis has answered OK.
 * If a later record of a key were written back and an earlier one were not, the earlier record
 * would run again after the later one. */
void late_build(struct lw_worker *w, struct shard *sh) {
    check_repair(&sh->repair);
    assert(sh->phase == READY);
    if (sh->repair.n) return;
    for (size_t i = 0; i < sh->repair.n_meta && sh->repair.n < repair_room(w); i++)
        sh->repair.item[sh->repair.n++] = sh->repair.meta[i];
    if (sh->repair.n_late) collect_late(w, sh);
    if (!sh->repair.n) return;
    call_begin(sh, 0);
    call_ranges(sh);
    check_repair(&sh->repair);
}

void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    check_repair(&sh->repair);
    bool ok = r->str && strcmp(r->str, "OK") == 0, forget = false;
    if (!ok && (!r->str || strcmp(r->str, "LATE") != 0)) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh, lw_malformed(why, r, "repair.lua", "OK or LATE"));
        return;
    }
    size_t metas = 0;
    for (int i = 0; i < sh->repair.n; i++) {
        struct repair_item *it = &sh->repair.item[i];
        if (it->late) {
            if (ok && it->part->gen == it->gen) part_mark(it->part, it->lo, LW_OFF_DONE);
            it->late->in_repair = false;
            late_remove(w, it->late);
        } else if (it->meta) {
            metas++;
            if (ok && it->part->gen == it->gen) part_mark(it->part, it->lo, LW_OFF_DONE);
        } else {
            forget |= !ok;
        }
    }
    sh->repair.n = 0;
    if (ok) meta_drop(sh, metas);
    /* If the answer is not OK, it is too late for a repair. Forget the remaining messages that were
     * to be written back because commit metadata lists them as finished. */
    else
        sh->repair.n_meta = 0;
    /* The quarantine is over, so all messages that Redis does not know to be finished run again. */
    if (forget) {
        for (size_t i = 0; i < w->n_assigned; i++) part_forget_kept(w->assigned[i]);
        parts_rewind(w, false);
        /* The metadata of the last commit may list some of these messages as finished. So nothing
         * is repaired or sent to gate before Kafka has accepted new commits, which do not list
         * them. */
        commit_must_confirm(w);
    }
    check_repair(&sh->repair);
}
