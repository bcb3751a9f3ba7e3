/* SPDX-License-Identifier: Apache-2.0 */
/* Handles waiting lists that vanish: a person deletes a list, or Redis evicts it, while the states
 * say that messages wait in it.
 *
 * Every script keeps a lane in `lanes` exactly as long as its list exists. So a script that finds a
 * lane in `lanes` without a list can conclude that the list has vanished, and adds the lane to the
 * stream `vanished` (list_vanished in queue/lua/parts/lanes.lua). Every worker reads that stream.
 * For each message that it had parked in such a lane, it sets the state back to unseen (unpark).
 * Its watch then notices this state and reads the partition from Kafka again. A record is
 * recognized by its key's tag, and two keys with one tag count as one. So at worst a message is
 * parked twice, and its second copy does not run, because the message is finished by then.
 *
 * A worker that has just been assigned a partition reads the whole stream. It also sets back the
 * states of messages that earlier owners parked in such lanes, up to the end that the log had at
 * the assignment. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

enum { LANES_A_LOOK = 32, UNPARK_BATCH = 1024, SAID_MS = 60000 };

static bool before(struct stream_id a, struct stream_id b) {
    return a.ms < b.ms || (a.ms == b.ms && a.seq < b.seq);
}

void missing_open(struct lw_worker *w, struct part *p) {
    assert(!p->missing);
    p->missing = lw_alloc((size_t)w->n_shards * sizeof *p->missing);
}

void missing_forget(struct lw_worker *w, struct part *p) {
    assert(p->missing);
    for (int s = 0; s < w->n_shards; s++) {
        free(p->missing[s].tags);
        p->missing[s] = (struct missing){.serial = p->missing[s].serial + 1};
    }
}

static bool is_missing(const struct missing *m, uint32_t tag) {
    check_missing(m);
    return m->tags && (m->tags[tag % OPEN_TAGS / 8] >> (tag % 8) & 1);
}

/* --- which lanes ------------------------------------------------------------------------------ */

/* Reads the next entries of the stream `vanished`. Each partition has a position of its own in the
 * stream, and the call begins at the lowest of them. */
void vanished_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY);
    if (!w->n_assigned) return;
    struct stream_id from = w->assigned[0]->missing[sh->index].seen;
    for (size_t i = 0; i < w->n_assigned; i++) {
        struct missing *m = &w->assigned[i]->missing[sh->index];
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
static bool read_entry(struct lw_worker *w, const redisReply *r, struct vanished_lane *l,
                       struct stream_id *last) {
    assert(r && l);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 || !r->element[0]->str) return false;
    if (sscanf(r->element[0]->str, "%" SCNu64 "-%" SCNu64, &l->id.ms, &l->id.seq) != 2)
        return false;
    *last = l->id;
    const redisReply *fields = r->element[1];
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements != 2 || !fields->element[1]->str)
        return false;
    l->name = lw_bytes(fields->element[1]->str, fields->element[1]->len);
    shard_of(w, l->name, &l->tag);
    l->n = 0;
    return true;
}

static bool count_one(void *ctx, int64_t offset, uint32_t tag) {
    assert(ctx);
    struct looking *x = ctx;
    if (!(x->filter >> (tag % 64) & 1)) return true;
    for (int i = 0; i < x->n; i++) {
        if (x->lane[i].tag != tag) continue;
        if (!x->here[i]++) x->first[i] = offset;
    }
    return true;
}

static void add_missing(struct part *p, struct missing *m, uint32_t tag) {
    check_missing(m);
    check_part(p);
    assert(p->gen);
    int64_t next = lw_offsets_next(p->offsets);
    if (!m->tags) m->tags = lw_alloc(OPEN_TAGS / 8), m->hi = 0;
    m->tags[tag % OPEN_TAGS / 8] |= (uint8_t)(1u << (tag % 8));
    m->lo = lw_offsets_watermark(p->offsets);
    int64_t hi = next > p->log_end ? next : p->log_end;
    if (hi > m->hi) m->hi = hi;
    m->serial++;
    check_missing(m);
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
    check_part(p);
    assert(p->gen && x->n <= LANES_A_LOOK);
    struct missing *m = &p->missing[sh->index];
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
                     const struct vanished_lane *l) {
    assert(!l->n);
    char name[LW_KEY_TEXT];
    tell_key(w, l->name, name);
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
    assert(why);
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

/* --- their messages --------------------------------------------------------------------------- */

bool unpark_busy(const struct part *p, int shard) {
    assert(shard >= 0 && p->missing);
    check_missing(&p->missing[shard]);
    return p->missing[shard].more;
}

struct unparking_scan {
    const struct missing *missing;
    int64_t offset[UNPARK_BATCH];
    int n, shard, n_shards;
    int64_t to;
};

static bool is_wanted(const struct unparking_scan *x, uint32_t tag) {
    check_missing(x->missing);
    return (int)(tag % (uint32_t)x->n_shards) == x->shard && is_missing(x->missing, tag);
}

/* This callback gets each record that gate has not decided yet. It ends the scan before the first
 * record whose lane's list has vanished, because gate may still park that record. */
static bool stop_before(void *ctx, int64_t offset, uint32_t tag) {
    assert(ctx);
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
    check_missing(m);
    assert(to >= m->lo);
    m->lo = to;
    if (m->lo < m->hi) return;
    free(m->tags);
    m->tags = NULL;
    m->more = false;
    check_missing(m);
}

static bool unpark_part(struct lw_worker *w, struct shard *sh, struct part *p) {
    check_part(p);
    check_missing(&p->missing[sh->index]);
    struct missing *m = &p->missing[sh->index];
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
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_floor), pipe_text(sh, epoch_id(sh));
    pipe_text(sh, p->name);
    for (int i = 0; i < x.n; i++) pipe_number(sh, x.offset[i]);
    sh->vanished.unpark = (struct unparking){p, p->gen, m->serial, x.to};
    return true;
}

void unpark_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY && !pipe_in_flight(sh));
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
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh, lw_malformed(why, r, "unpark.lua", "an integer"));
        return;
    }
    if (!p || p->gen != sh->vanished.unpark.gen) return;
    struct missing *m = &p->missing[sh->index];
    count_n(&w->counts->unparked, (uint64_t)r->integer);
    if (m->serial == sh->vanished.unpark.serial && m->tags) moved_to(m, sh->vanished.unpark.to);
}
