/* SPDX-License-Identifier: Apache-2.0 */
/* watch: reads the states of messages from Redis. They show the owner of a partition whether its
 * waiting messages are finished and, at the assignment, which messages were finished before.
 *
 * A waiting list may vanish: a person deletes it, or Redis evicts it, while the states say that
 * messages wait in it. Every script keeps a lane in `lanes` exactly as long as its list exists. So
 * a script that finds a lane in `lanes` without a list adds it to the stream `vanished`
 * (list_vanished in queue/lua/parts/lanes.lua). Every worker reads that stream. For each message
 * that it had parked in such a lane, it sets the state back to unseen (unpark). Its watch then
 * notices this state and reads the partition from Kafka again. A record is recognized by its key's
 * tag, and two keys with one tag count as one. So at worst a message is parked twice, and its
 * second copy does not run, because the message is finished by then.
 *
 * A worker that has just been assigned a partition reads the whole stream. It also sets back the
 * states of messages that earlier owners parked in such lanes, up to the end that the log had at
 * the assignment. */
#include "consumer/worker/private.h"

#include "base/redis/reply.h"

/* --- states ---------------------------------------------------------------------------------- */

enum {
    /* at most LOOK_SEGMENTS / 2 segments of a partition are read when it is assigned */
    LOOK_SEGMENTS = 64,
    /* LOOK_RECORDS is the maximum number of records that one watch call searches for waiting
     * records */
    LOOK_RECORDS = 1 << 16,
    RECHECK_MS = 1000,
};

static void look(struct shard *sh, struct part *p, int64_t segment, bool fresh, bool last) {
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
    assert(!p->in[sh->index].fresh);
    int64_t first = p->begin / LW_SEGMENT,
            last = (p->log_end > p->begin ? p->log_end - 1 : p->begin) / LW_SEGMENT;
    /* Read no more segments in advance: gate answers for the states of the records behind them. */
    if (last - first >= LOOK_SEGMENTS / 2) last = first + LOOK_SEGMENTS / 2 - 1;
    /* if the call has no room for these segments, the next turn reads them */
    if (sh->watch.n + (last - first + 1) > LOOK_BATCH) return;
    for (int64_t s = first; s <= last; s++) look(sh, p, s, true, s == last);
}

static void look_at(struct shard *sh, struct part *p, int64_t from) {
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
    assert(most > 0);
    int64_t mark = lw_offsets_watermark(p->offsets), next = lw_offsets_next(p->offsets),
            at = p->in[sh->index].look_from;
    size_t budget = LOOK_RECORDS;
    int first = sh->watch.n;
    if (at <= mark || at >= next) at = mark;
    if (at > mark && lw_offsets_get(p->offsets, mark) == LW_OFF_WAITING) look_at(sh, p, mark);
    while (sh->watch.n < LOOK_BATCH && sh->watch.n - first < most &&
           lw_offsets_find(p->offsets, LW_OFF_WAITING, &at, &budget)) {
        look_at(sh, p, at);
        at = (at / LW_SEGMENT + 1) * LW_SEGMENT;
    }
    p->in[sh->index].look_from = at;
}

/* Returns how many segments with waiting records a call may read of each partition. All partitions
 * get the same share, so that the call is not filled with segments of a few partitions. */
static int look_share(const struct lw_worker *w) {
    int n = 0;
    for (size_t i = 0; i < w->n_assigned; i++) n += lw_offsets_waiting(w->assigned[i]->offsets) > 0;
    return n > LOOK_BATCH / 4 ? 4 : LOOK_BATCH / (n ? n : 1);
}

void watch_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY);
    sh->watch.n = 0;
    int64_t now = now_ms(w);
    bool due = now >= sh->watch.at_ms;
    if (due) sh->watch.at_ms = now + WATCH_MS;
    int share = due ? look_share(w) : 0;
    /* each call begins with another partition, so that no partition is left out because the same
     * partitions fill every call */
    size_t from = sh->watch.from++;
    for (size_t i = 0; i < w->n_assigned && sh->watch.n < LOOK_BATCH; i++) {
        struct part *p = w->assigned[(from + i) % w->n_assigned];
        if (!p->in[sh->index].fresh && now >= p->watch.recheck_ms)
            look_fresh(sh, p);
        else if (!p->in[sh->index].fresh)
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
    pipe_text(sh, sh->epoch.id);
    for (int i = 0; i < sh->watch.n; i++) {
        const struct look_item *it = &sh->watch.item[i];
        pipe_offsets(sh, it->part->name, it->lo, it->hi);
    }
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
    if (!floor->len) return true;
    int64_t f = strtoll(floor->str, NULL, 10);
    if (p->committed >= 0 && p->begin >= f) return true;
    char why[900];
    if (p->log_end < f && p->begin < f) {
        snprintf(why, sizeof why,
                 "%s: its log ends at %" PRId64 ", below %" PRId64
                 " that was committed: the topic was recreated or truncated; choose another "
                 "\"name\" and group.id for the new topic",
                 p->name, p->log_end, f);
    } else if (only_behind(w, p, f)) {
        return false;
    } else if (p->committed < 0) {
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
    bool first = it->last && !p->in[sh->index].fresh;
    /* When the states of a newly assigned partition have been read for the first time, the floor is
     * sent once more, because the previous owner, or a repair, may have left segments below the
     * floor. */
    floor_known(sh, p, floor->len ? strtoll(floor->str, NULL, 10) : p->log_begin,
                floor->len && first);
    if (first) {
        p->in[sh->index].fresh = 1;
        p->watch.n_fresh++;
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
    int n = sh->watch.n;
    assert(n > 0 && n <= LOOK_BATCH);
    sh->watch.n = 0;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != (size_t)(2 * n)) {
        pipe_malformed(w, sh, r, "watch.lua", "an array of %d elements", 2 * n);
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
        if (x.lost && !p->in[sh->index].missing.more) {
            /* Redis has lost a waiting message, so the partition is read from Kafka again. */
            lw_warn_some(20, "%s: Redis lost waiting messages; reading them again from Kafka",
                         p->name);
            part_again(w, p);
        }
        part_pause(w, p);
    }
}

/* --- lists that vanish: which lanes ---------------------------------------------------------- */

enum { LANES_A_LOOK = 32, UNPARK_BATCH = 1024, SAID_MS = 60000 };

static bool before(struct stream_id a, struct stream_id b) {
    return a.ms < b.ms || (a.ms == b.ms && a.seq < b.seq);
}

/* Reads the next entries of the stream `vanished`. Each partition has a position of its own in the
 * stream, and the call begins at the lowest of them. */
void vanished_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY);
    if (!w->n_assigned) return;
    struct stream_id from = w->assigned[0]->in[sh->index].missing.seen;
    for (size_t i = 0; i < w->n_assigned; i++) {
        struct missing *m = &w->assigned[i]->in[sh->index].missing;
        if (before(m->seen, from)) from = m->seen;
        m->asked = true;
    }
    char id[48];
    snprintf(id, sizeof id, "(%" PRIu64 "-%" PRIu64, from.ms, from.seq);
    pipe_command(sh, CALL_VANISHED, "XRANGE");
    pipe_text(sh, sh->key_vanished), pipe_copy(sh, id), pipe_text(sh, "+");
    pipe_text(sh, "COUNT"), pipe_number(sh, LANES_A_LOOK);
}

struct vanished_lane {
    struct stream_id id;
    struct lw_bytes name;
    uint32_t tag;
    size_t n; /* number of this worker's messages that waited in the lane whose list has vanished */
};
struct looking {
    struct vanished_lane lane[LANES_A_LOOK];
    int n;
    struct stream_id last; /* the last entry of the reply, whether or not it could be read */
    uint64_t filter;       /* bitmap over tags, by which most records are skipped quickly */
    struct part *part;
    /* for each lane, `first` holds the lowest offset, in the partition `part`, of the messages that
     * waited in the lane */
    int64_t first[LANES_A_LOOK];
    size_t here[LANES_A_LOOK];
};

/* Reads an entry of the stream. Sets *last to its id, if it has one, even if the rest of the entry
 * cannot be read: it must not be met again, because a batch of such entries would hide all
 * others. */
static bool read_entry(struct lw_worker *w, const redisReply *r, struct vanished_lane *v,
                       struct stream_id *last) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 || !r->element[0]->str) return false;
    if (sscanf(r->element[0]->str, "%" SCNu64 "-%" SCNu64, &v->id.ms, &v->id.seq) != 2)
        return false;
    *last = v->id;
    const redisReply *fields = r->element[1];
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements != 2 || !fields->element[1]->str)
        return false;
    v->name = lw_bytes(fields->element[1]->str, fields->element[1]->len);
    lw_lane_shard(v->name, w->n_shards, &v->tag);
    v->n = 0;
    return true;
}

static bool count_one(void *ctx, int64_t offset, uint32_t tag) {
    struct looking *x = ctx;
    if (!(x->filter >> (tag % 64) & 1)) return true;
    for (int i = 0; i < x->n; i++) {
        if (x->lane[i].tag != tag) continue;
        if (!x->here[i]++) x->first[i] = offset;
    }
    return true;
}

static void add_missing(struct part *p, struct missing *m, uint32_t tag) {
    assert(p->gen);
    int64_t next = lw_offsets_next(p->offsets);
    if (!m->tags) m->tags = lw_alloc(OPEN_TAGS / 8), m->hi = 0;
    tag_set(m->tags, tag);
    m->lo = lw_offsets_watermark(p->offsets);
    int64_t hi = next > p->log_end ? next : p->log_end;
    if (hi > m->hi) m->hi = hi;
    m->serial++;
}

static void say_here(const struct lw_worker *w, const struct shard *sh, const struct looking *x,
                     int i) {
    assert(i >= 0 && i < x->n && x->here[i]);
    char name[LW_KEY_TEXT];
    tell_key(w, x->lane[i].name, name);
    lw_warn_some(
        20,
        "shard %d: the waiting list of lane %s has vanished, deleted or evicted from Redis by "
        "others: %zu messages of %s from offset "
        "%" PRId64 " on waited there, and are read from Kafka again; their order against later "
        "ones of the key is not kept, and "
        "replays and imports that waited there are lost",
        sh->index, name, x->here[i], x->part->name, x->first[i]);
}

static void look_in_part(struct lw_worker *w, struct shard *sh, struct part *p, struct looking *x) {
    assert(p->gen && x->n <= LANES_A_LOOK);
    struct missing *m = &p->in[sh->index].missing;
    if (!m->asked) return; /* a partition that was assigned after the call was sent is skipped */
    m->asked = false;
    memset(x->here, 0, sizeof x->here);
    x->part = p;
    lw_offsets_each(p->offsets, LW_OFF_WAITING, INT64_MIN, INT64_MAX, count_one, x);
    for (int i = 0; i < x->n; i++) {
        if (!before(m->seen, x->lane[i].id)) continue;
        m->seen = x->lane[i].id;
        add_missing(p, m, x->lane[i].tag);
        x->lane[i].n += x->here[i];
        if (x->here[i]) say_here(w, sh, x, i);
    }
    if (before(m->seen, x->last)) m->seen = x->last;
}

/* Logs that a waiting list without messages of this worker has vanished. This is worth a log line,
 * because the list may have held replays and imports of operators, which have no owner. */
static void say_none(const struct lw_worker *w, const struct shard *sh,
                     const struct vanished_lane *v) {
    assert(!v->n);
    char name[LW_KEY_TEXT];
    tell_key(w, v->name, name);
    lw_warn_some(
        20,
        "shard %d: the waiting list of lane %s has vanished, deleted or evicted from Redis by "
        "others: no message known to this worker "
        "waited there; the owners of other partitions read theirs from Kafka again, and replays "
        "and imports are lost",
        sh->index, name);
}

/* Logs that the stream `vanished` cannot be read. The worker goes on, because the stream matters
 * only if a list was deleted. It reads the stream again after a quarter of a TTL. */
void vanished_failed(struct lw_worker *w, struct shard *sh, const char *why) {
    int64_t now = now_ms(w);
    if (sh->vanished.failed_ms && now - sh->vanished.failed_ms < SAID_MS) return;
    sh->vanished.failed_ms = now;
    lw_warn("shard %d: can't read %s: %s; until that works, messages whose waiting list is deleted "
            "from Redis are not read from Kafka "
            "again; retrying every %d ms",
            sh->index, sh->key_vanished, why, (int)(w->c->lock.ttl_ms / 4));
}

void vanished_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == READY);
    if (r->type != REDIS_REPLY_ARRAY) {
        char why[LW_REPLY_TEXT];
        vanished_failed(w, sh, lw_malformed(why, r, "XRANGE", "an array"));
        return;
    }
    bool good = true;
    struct looking x = {.n = 0};
    for (size_t i = 0; i < r->elements && x.n < LANES_A_LOOK; i++) {
        if (!read_entry(w, r->element[i], &x.lane[x.n], &x.last)) {
            vanished_failed(w, sh, "it has an entry that no script of Latchwork wrote");
            good = false;
            continue;
        }
        x.filter |= UINT64_C(1) << (x.lane[x.n++].tag % 64);
    }
    if (good) sh->vanished.failed_ms = 0;
    for (size_t i = 0; i < w->n_assigned; i++) look_in_part(w, sh, w->assigned[i], &x);
    for (int i = 0; i < x.n; i++)
        if (before(sh->vanished.said, x.lane[i].id)) {
            sh->vanished.said = x.lane[i].id;
            if (!x.lane[i].n && !w->set.index) say_none(w, sh, &x.lane[i]);
        }
    /* if the batch was full, the stream may have more entries */
    if (r->elements == LANES_A_LOOK) tend_now(sh, now_ms(w));
}

/* --- lists that vanish: their messages ------------------------------------------------------- */

struct unparking_scan {
    const struct missing *missing;
    int64_t offset[UNPARK_BATCH];
    int n, shard, n_shards;
    int64_t to;
};

static bool is_wanted(const struct unparking_scan *x, uint32_t tag) {
    return (int)(tag % (uint32_t)x->n_shards) == x->shard && x->missing->tags &&
           tag_test(x->missing->tags, tag);
}

/* This callback gets each record that gate has not decided yet. It ends the scan before the first
 * record whose lane's list has vanished, because gate may still park that record. */
static bool stop_before(void *ctx, int64_t offset, uint32_t tag) {
    struct unparking_scan *x = ctx;
    if (!is_wanted(x, tag)) return true;
    x->to = offset;
    return false;
}

static bool take_one(void *ctx, int64_t offset, uint32_t tag) {
    assert(((struct unparking_scan *)ctx)->n < UNPARK_BATCH);
    struct unparking_scan *x = ctx;
    if (!is_wanted(x, tag)) return true;
    x->offset[x->n++] = offset;
    if (x->n < UNPARK_BATCH) return true;
    x->to = offset + 1;
    return false;
}

static void moved_to(struct missing *m, int64_t to) {
    assert(to >= m->lo);
    m->lo = to;
    if (m->lo < m->hi) return;
    free(m->tags);
    m->tags = NULL;
    m->more = false;
}

static bool unpark_part(struct lw_worker *w, struct shard *sh, struct part *p) {
    struct missing *m = &p->in[sh->index].missing;
    int64_t next = lw_offsets_next(p->offsets);
    struct unparking_scan x = {.missing = m,
                               .shard = sh->index,
                               .n_shards = w->n_shards,
                               .to = next < m->hi ? next : m->hi};
    if (!m->tags || m->lo >= x.to) return false;
    lw_offsets_each(p->offsets, LW_OFF_IN, m->lo, x.to, stop_before, &x);
    lw_offsets_each(p->offsets, LW_OFF_WAITING, m->lo, x.to, take_one, &x);
    m->more = x.n == UNPARK_BATCH;
    if (!x.n) {
        moved_to(m, x.to);
        return false;
    }
    pipe_script(sh, CALL_UNPARK, &lw_script_unpark, 2);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_floor), pipe_text(sh, sh->epoch.id);
    pipe_text(sh, p->name);
    for (int i = 0; i < x.n; i++) pipe_number(sh, x.offset[i]);
    sh->vanished.unpark = (struct unparking){p, p->gen, m->serial, x.to};
    return true;
}

void unpark_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY && !sh->pipe.open);
    int64_t now = now_ms(w);
    sh->vanished.unpark.part = NULL;
    if (now < sh->vanished.unpark_ms) return;
    for (size_t i = 0; i < w->n_assigned; i++)
        if (unpark_part(w, sh, w->assigned[i])) return;
    sh->vanished.unpark_ms = now + WATCH_MS;
}

void unpark_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == READY);
    struct part *p = sh->vanished.unpark.part;
    if (r->type != REDIS_REPLY_INTEGER) {
        pipe_malformed(w, sh, r, "unpark.lua", "an integer");
        return;
    }
    if (!p || p->gen != sh->vanished.unpark.gen) return;
    struct missing *m = &p->in[sh->index].missing;
    count_n(&w->counts->unparked, (uint64_t)r->integer);
    if (m->serial == sh->vanished.unpark.serial && m->tags) moved_to(m, sh->vanished.unpark.to);
}
