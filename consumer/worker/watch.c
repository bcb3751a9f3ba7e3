/* SPDX-License-Identifier: Apache-2.0 */
/* watch: the step that reads the states of messages from Redis. The states show an owner whether
 * its waiting messages are finished and, at the assignment, which messages were finished before. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

enum {
    /* at most LOOK_SEGMENTS / 2 segments of a partition are read when it is assigned */
    LOOK_SEGMENTS = 64,
    /* LOOK_RECORDS is the maximum number of records that one watch call searches for waiting
     * records */
    LOOK_RECORDS = 1 << 16,
    RECHECK_MS = 1000,
};

void watch_open(struct lw_worker *w, struct part *p) {
    assert(!p->watch.fresh && !p->watch.at);
    p->watch.fresh = lw_alloc((size_t)w->n_shards);
    p->watch.at = lw_alloc((size_t)w->n_shards * sizeof *p->watch.at);
}

void watch_assigned(struct lw_worker *w, struct part *p) {
    check_part_watch(&p->watch);
    assert(p->gen);
    memset(p->watch.fresh, 0, (size_t)w->n_shards);
    p->watch.n_fresh = 0;
    p->watch.recheck_ms = 0;
}

void watch_free(struct part *p) {
    check_part_watch(&p->watch);
    free(p->watch.fresh);
    free(p->watch.at);
}

void watch_begin(struct shard *sh) {
    check_watch(&sh->watch);
    sh->watch.n = 0;
}

static void look(struct shard *sh, struct part *p, int64_t segment, bool fresh, bool last) {
    check_part(p);
    assert(sh->watch.n < LOOK_BATCH && p->gen && segment >= 0);
    sh->watch.item[sh->watch.n++] = (struct look_item){.part = p,
                                                       .gen = p->gen,
                                                       .pass = p->pass,
                                                       .segment = segment,
                                                       .next = lw_offsets_next(p->offsets),
                                                       .lo = 0,
                                                       .hi = LW_SEGMENT / 4 - 1,
                                                       .fresh = fresh,
                                                       .last = last};
}

/* Asks for the states of a partition that was newly assigned: from the offset at which reading
 * begins to the end that the log had at the assignment, but for at most LOOK_SEGMENTS / 2
 * segments. */
static void look_fresh(struct shard *sh, struct part *p) {
    check_watch(&sh->watch);
    check_part_watch(&p->watch);
    assert(!p->watch.fresh[sh->index]);
    int64_t first = p->begin / LW_SEGMENT,
            last = (p->log_end > p->begin ? p->log_end - 1 : p->begin) / LW_SEGMENT;
    /* Read no more segments in advance: gate answers for the states of the records behind them. */
    if (last - first >= LOOK_SEGMENTS / 2) last = first + LOOK_SEGMENTS / 2 - 1;
    /* if the call has no room for these segments, the next turn reads them */
    if (sh->watch.n + (last - first + 1) > LOOK_BATCH) return;
    for (int64_t s = first; s <= last; s++) look(sh, p, s, true, s == last);
}

static void look_at(struct shard *sh, struct part *p, int64_t from) {
    check_watch(&sh->watch);
    assert(from >= 0);
    int64_t next = lw_offsets_next(p->offsets), segment = from / LW_SEGMENT;
    look(sh, p, segment, false, false);
    struct look_item *it = &sh->watch.item[sh->watch.n - 1];
    it->lo = (int)(from % LW_SEGMENT / 4);
    if ((next - 1) / LW_SEGMENT == segment) it->hi = (int)((next - 1) % LW_SEGMENT / 4);
}

/* Adds to the list of segments to read up to `most` segments of the partition that have waiting
 * records. If the record at the watermark waits, its segment is read in each call. The other
 * segments take turns: the next call begins where this one ended. */
static void look_waiting(struct shard *sh, struct part *p, int most) {
    check_part(p);
    assert(most > 0);
    int64_t mark = lw_offsets_watermark(p->offsets), next = lw_offsets_next(p->offsets),
            at = p->watch.at[sh->index];
    size_t budget = LOOK_RECORDS;
    int first = sh->watch.n;
    if (at <= mark || at >= next) at = mark;
    if (at > mark && lw_offsets_get(p->offsets, mark) == LW_OFF_WAITING) look_at(sh, p, mark);
    while (sh->watch.n < LOOK_BATCH && sh->watch.n - first < most &&
           lw_offsets_find(p->offsets, LW_OFF_WAITING, &at, &budget)) {
        look_at(sh, p, at);
        at = (at / LW_SEGMENT + 1) * LW_SEGMENT;
    }
    p->watch.at[sh->index] = at;
}

/* Returns how many segments with waiting records a call may read of each partition. All partitions
 * get the same share, so that the call is not filled with segments of a few partitions. */
static int look_share(const struct lw_worker *w) {
    check_worker(w);
    int n = 0;
    for (size_t i = 0; i < w->n_assigned; i++) n += lw_offsets_waiting(w->assigned[i]->offsets) > 0;
    return n > LOOK_BATCH / 4 ? 4 : LOOK_BATCH / (n ? n : 1);
}

void watch_build(struct lw_worker *w, struct shard *sh) {
    check_watch(&sh->watch);
    assert(!sh->watch.n && sh->phase == READY);
    int64_t now = now_ms(w);
    bool due = now >= sh->watch.at_ms;
    if (due) sh->watch.at_ms = now + WATCH_MS;
    int share = due ? look_share(w) : 0;
    /* each call begins with another partition, so that no partition is left out because the same
     * partitions fill every call */
    size_t from = sh->watch.from++;
    for (size_t i = 0; i < w->n_assigned && sh->watch.n < LOOK_BATCH; i++) {
        struct part *p = w->assigned[(from + i) % w->n_assigned];
        if (!p->watch.fresh[sh->index] && now >= p->watch.recheck_ms)
            look_fresh(sh, p);
        else if (!p->watch.fresh[sh->index])
            continue;
        else if (due && lw_offsets_waiting(p->offsets))
            look_waiting(sh, p, share);
    }
    if (!sh->watch.n) return;
    pipe_script(sh, CALL_WATCH, &lw_script_watch, 2 + sh->watch.n);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_floor);
    for (int i = 0; i < sh->watch.n; i++) {
        char name[350];
        snprintf(name, sizeof name, "state:%s:%" PRId64, sh->watch.item[i].part->name,
                 sh->watch.item[i].segment);
        pipe_key(sh, name);
    }
    pipe_text(sh, epoch_id(sh));
    for (int i = 0; i < sh->watch.n; i++) {
        const struct look_item *it = &sh->watch.item[i];
        pipe_offsets(sh, it->part->name, it->lo, it->hi);
    }
    check_watch(&sh->watch);
}

static enum lw_state state_at(const struct look_item *it, const redisReply *bytes, int64_t offset) {
    assert(it->lo >= 0 && it->lo <= it->hi);
    assert(offset >= 0);
    int64_t index = offset % LW_SEGMENT, at = index / 4 - it->lo;
    if (at < 0 || (size_t)at >= bytes->len) return LW_STATE_UNSEEN;
    return lw_state_in(bytes->str[at], offset);
}

/* Asks Kafka again for the group's commit, because the commit is missing or below the floor in
 * Redis. Returns true if no fault is proven: either the commit has reached the floor, because
 * another member has taken over the partition, or there is no answer from Kafka yet. */
static bool only_behind(struct lw_worker *w, struct part *p, int64_t floor) {
    check_part(p);
    assert(p->gen);
    struct lw_err err = {0};
    int64_t committed = -1;
    p->watch.recheck_ms = now_ms(w) + RECHECK_MS;
    /* While Kafka does not answer, the worker asks for the commit of only one partition at a time,
     * because each request may block this thread. */
    if (now_ms(w) < w->unanswered_until_ms) return true;
    if (w->io->committed(w->ctx, p->topic, p->partition, &committed, &err) != 0) {
        lw_warn_some(3, "%s: can't ask for the group's offset: %s; retrying in %d ms", p->name,
                     err.text, RECHECK_MS);
        w->unanswered_until_ms = p->watch.recheck_ms = now_ms(w) + RECHECK_MS;
        return true;
    }
    return committed >= floor;
}

/* Applies the rule "floor fits the log". Returns true if the floor fits, and stops the worker if it
 * can never fit. If the worker went on, it would treat new records as finished, because older
 * records with the same offsets were finished. */
static bool floor_fits(struct lw_worker *w, struct part *p, const redisReply *floor) {
    check_part(p);
    assert(floor->str);
    if (!floor->len) return true;
    int64_t f = strtoll(floor->str, NULL, 10);
    if (p->log_end >= f && p->had_commit && p->begin >= f) return true;
    char why[900];
    if (p->log_end < f && p->begin < f) {
        snprintf(why, sizeof why,
                 "%s: its log ends at %" PRId64 ", below %" PRId64
                 " that was committed: the topic was recreated or truncated; choose another "
                 "\"name\" and group.id for the new topic",
                 p->name, p->log_end, f);
    } else if (p->begin >= f && p->had_commit) {
        return true;
    } else if (only_behind(w, p, f)) {
        return false;
    } else if (!p->had_commit) {
        snprintf(why, sizeof why,
                 "%s: the group has no committed offset, yet all below %" PRId64
                 " is known finished. If the topic was deleted and recreated, which deletes its "
                 "commits, choose another \"name\" and group.id: "
                 "setting the offset would skip new records. Only if it is the same topic, whose "
                 "commits have expired or were deleted, set the "
                 "group's offset to %" PRId64,
                 p->name, f, f);
    } else {
        snprintf(why, sizeof why,
                 "%s: the group's offset %" PRId64 " is below %" PRId64
                 ", where all is finished. If the topic was deleted and recreated, choose another "
                 "\"name\" and group.id. If the offset was "
                 "moved back, set it to %" PRId64 "; to run records again use `queue replay`",
                 p->name, p->begin, f, f);
    }
    w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    return false;
}

static void take_fresh(struct lw_worker *w, struct shard *sh, struct look_item *it,
                       const redisReply *floor, const redisReply *bytes) {
    check_part(it->part);
    check_part_watch(&it->part->watch);
    assert(it->fresh);
    struct part *p = it->part;
    if (!floor_fits(w, p, floor)) return;
    int64_t base = it->segment * LW_SEGMENT;
    for (int64_t i = 0; i < (int64_t)bytes->len * 4; i++) {
        if (!bytes->str[i / 4] || state_at(it, bytes, base + i) < LW_STATE_DONE) continue;
        int64_t lo = base + i;
        while (i + 1 < (int64_t)bytes->len * 4 &&
               state_at(it, bytes, base + i + 1) >= LW_STATE_DONE)
            i++;
        if (base + i >= p->begin) lw_offsets_ahead(p->offsets, (struct lw_range){lo, base + i + 1});
    }
    bool first = it->last && !p->watch.fresh[sh->index];
    /* When the states of a newly assigned partition have been read for the first time, the floor is
     * sent once more, because the previous owner, or a repair, may have left segments below the
     * floor. */
    floor_known(sh, p, floor->len ? strtoll(floor->str, NULL, 10) : p->log_begin,
                floor->len && first);
    if (first) {
        p->watch.fresh[sh->index] = 1;
        if (++p->watch.n_fresh == w->n_shards) part_check_claims(w, p);
        part_pause(w, p);
    }
}

struct watching {
    struct lw_worker *w;
    struct look_item *it;
    const redisReply *bytes;
    int64_t floor;
    int shard;
    bool lost;
};

static bool check_one(void *ctx, int64_t offset, uint32_t tag) {
    assert(ctx);
    struct watching *x = ctx;
    if ((int)(tag % (uint32_t)x->w->n_shards) != x->shard) return true;
    enum lw_state state = state_at(x->it, x->bytes, offset);
    if (offset < x->floor || state >= LW_STATE_DONE) {
        lw_offsets_mark(x->it->part->offsets, offset, LW_OFF_DONE);
    } else if (state == LW_STATE_UNSEEN)
        x->lost = true;
    return true;
}

void watch_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    check_watch(&sh->watch);
    int n = sh->watch.n;
    assert(n > 0 && n <= LOOK_BATCH);
    sh->watch.n = 0;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != (size_t)(2 * n)) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh, lw_malformed(why, r, "watch.lua", "an array of %d elements", 2 * n));
        return;
    }
    for (int i = 0; i < n; i++) {
        struct look_item *it = &sh->watch.item[i];
        const redisReply *floor = r->element[2 * i], *bytes = r->element[2 * i + 1];
        struct part *p = it->part;
        if (!p->gen || p->gen != it->gen || !floor->str || !bytes->str) continue;
        if (it->fresh) {
            take_fresh(w, sh, it, floor, bytes);
            continue;
        }
        if (it->pass != p->pass) continue;
        struct watching x = {w,         it,   bytes, floor->len ? strtoll(floor->str, NULL, 10) : 0,
                             sh->index, false};
        int64_t base = it->segment * LW_SEGMENT, lo = base + it->lo * 4,
                hi = base + (it->hi + 1) * 4;
        if (hi > it->next) hi = it->next;
        lw_offsets_each(p->offsets, LW_OFF_WAITING, lo, hi, check_one, &x);
        if (x.lost && !unpark_busy(p, sh->index)) {
            /* Redis has lost a waiting message, so the partition is read from Kafka again. */
            lw_warn_some(20, "%s: Redis lost waiting messages; reading them again from Kafka",
                         p->name);
            part_again(w, p);
        }
        part_pause(w, p);
    }
}
