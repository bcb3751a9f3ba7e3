/* SPDX-License-Identifier: Apache-2.0 */
/* intake: how records get in, and how they go back. Kafka assigns a partition and delivers its
 * records, which become messages behind the others of their lanes. A partition is held back when
 * this worker knows too many of its records. It is rewound to its watermark when Redis has lost
 * what it knew, and revoked when another worker gets it.
 *
 * This file does not know what gate decides about a message, nor when what is committed
 * (commit.c). */
#include "consumer/worker/private.h"

/* --- partitions ------------------------------------------------------------------------------ */

/* RECORDS_MAX limits the records that a worker tracks above its watermarks. Each record takes 16
 * bytes. Every partition gets an equal share of that number, but at least PART_RECORDS_MIN and at
 * most PART_RECORDS_MAX. */
enum {
    RECORDS_MAX = 4 << 20,
    PART_RECORDS_MAX = 1 << 20,
    PART_RECORDS_MIN = 1 << 16,
    FULL_SAID_MS = 60000
};

struct part *part_get(struct lw_worker *w, const char *topic, size_t n, int32_t partition,
                      int64_t replay) {
    char name[320];
    int len =
        snprintf(name, sizeof name, "%.*s:%" PRId32, (int)(n > 255 ? 255 : n), topic, partition);
    if (replay) len += snprintf(name + len, sizeof name - (size_t)len, "#%" PRId64, replay);
    struct part *p;
    HASH_FIND(hh, w->parts, name, (unsigned)len, p);
    if (p) return p;
    p = lw_alloc(sizeof *p);
    p->name = lw_memdup(name, (size_t)len);
    p->topic = lw_memdup(topic, n);
    p->partition = partition;
    p->replay = replay;
    p->in = lw_alloc((size_t)w->n_shards * sizeof *p->in);
    HASH_ADD_KEYPTR(hh, w->parts, p->name, (unsigned)len, p);
    return p;
}

void part_free(struct lw_worker *w, struct part *p) {
    check_part(p);
    assert(!p->gen && !p->n_msgs && !p->offsets);
    HASH_DELETE(hh, w->parts, p);
    free(p->name), free(p->topic), free(p->in), free(p->kept.at);
    free(p);
}

void part_idle(struct lw_worker *w, struct part *p) {
    assert(!p->n_msgs && p->replay);
    if (p->idle) return;
    p->idle = true;
    p->next_idle = w->idle_parts;
    w->idle_parts = p;
}

/* Returns true if a settle that may still be sent again names messages of this partition. */
static bool is_named(const struct lw_worker *w, const struct part *p) {
    for (int s = 0; s < w->n_shards; s++)
        if (settle_names(&w->shards[s], p)) return true;
    return false;
}

void parts_sweep(struct lw_worker *w) {
    struct part *p = w->idle_parts, *next;
    w->idle_parts = NULL;
    for (; p; p = next) {
        next = p->next_idle;
        p->idle = false;
        if (p->n_msgs) continue;
        if (is_named(w, p))
            part_idle(w, p);
        else
            part_free(w, p);
    }
}

struct part *part_of_gen(struct lw_worker *w, uint32_t gen) {
    for (size_t i = 0; i < w->n_assigned; i++)
        if (w->assigned[i]->gen == gen) return w->assigned[i];
    return NULL;
}

void part_mark(struct part *p, int64_t offset, enum lw_offset_state s) {
    if (p->gen) lw_offsets_mark(p->offsets, offset, s);
}

/* Returns the maximum number of records that one partition may track (queue/offsets.h). */
static size_t records_max(const struct lw_worker *w) {
    if (w->set.part_records) return w->set.part_records;
    size_t share = RECORDS_MAX / (w->n_assigned ? w->n_assigned : 1);
    if (share > PART_RECORDS_MAX) return PART_RECORDS_MAX;
    return share < PART_RECORDS_MIN ? PART_RECORDS_MIN : share;
}

/* Returns true if the partition tracks too many records, so that nothing more of it may be read.
 * One unfinished record keeps every record behind it in memory, so their number needs this
 * limit. */
static bool is_full(struct lw_worker *w, struct part *p) {
    size_t held = lw_offsets_held(p->offsets), most = records_max(w);
    int64_t now = now_ms(w), mark = lw_offsets_watermark(p->offsets);
    if (held < most) return false;
    if (p->full_ms && now - p->full_ms < FULL_SAID_MS) return true;
    p->full_ms = now;
    bool waits = lw_offsets_get(p->offsets, mark) == LW_OFF_WAITING;
    lw_warn("%s: offset %" PRId64 " is unfinished (%s) with %zu records behind it; the limit is "
            "%zu; pausing the partition until that "
            "record is finished",
            p->name, mark,
            waits ? "it waits in Redis: see queue ls, lock ls"
                  : "it waits for a handler in this worker, or is in one",
            held - 1, most);
    return true;
}

void part_pause(struct lw_worker *w, struct part *p) {
    assert(p->gen);
    bool pause = w->stopping || p->watch.n_fresh < w->n_shards ||
                 (int64_t)lw_offsets_waiting(p->offsets) >= w->c->queue.max_waiting;
    pause |= is_full(w, p);
    if (pause == p->paused) return;
    p->paused = pause;
    w->io->pause(w->ctx, p->gen, pause);
}

void parts_pause(struct lw_worker *w) {
    for (size_t i = 0; i < w->n_assigned; i++) part_pause(w, w->assigned[i]);
}

void lw_worker_end(struct lw_worker *w, uint32_t gen, int64_t offset) {
    struct part *p = part_of_gen(w, gen);
    if (p) lw_offsets_end(p->offsets, offset);
}

/* Forgets what was read and sent for an earlier assignment of the partition. An answer that comes
 * late is recognized by the changed number. */
static void reset_in(struct lw_worker *w, struct part *p) {
    p->watch = (struct part_watch){0};
    for (int s = 0; s < w->n_shards; s++) {
        free(p->in[s].missing.tags);
        p->in[s] = (struct part_in){.look_from = p->in[s].look_from,
                                    .floor_sent = -1,
                                    .missing.serial = p->in[s].missing.serial + 1};
    }
}

void lw_worker_assign(struct lw_worker *w, const struct lw_assigned *a) {
    assert(a->gen && !part_of_gen(w, a->gen));
    struct part *p = part_get(w, a->topic, strlen(a->topic), a->partition, 0);
    if (p->gen) part_drop(w, p);
    p->gen = a->gen;
    p->pass++;
    p->begin = a->begin;
    p->log_begin = a->log_begin;
    p->log_end = a->log_end;
    p->committed = a->committed;
    p->leaving = false;
    p->offsets = lw_offsets_open(a->begin);
    reset_in(w, p);
    p->kept.n = 0;
    p->paused = false;
    w->assigned = lw_more(w->assigned, w->n_assigned, &w->cap_assigned, sizeof(struct part *));
    w->assigned[w->n_assigned++] = p;
    part_pause(w, p); /* nothing is read from the partition until its states have been read */
    /* For `run --drain`, everything below the offset at which reading begins counts as committed,
     * because no record below it will arrive. */
    if (w->set.board) lw_board_committed(w->set.board, p->topic, p->partition, a->begin);
    lw_debug("%s assigned at %" PRId64 " (committed %" PRId64 ")", p->name, a->begin, a->committed);
    check_part(p);
}

void part_committed(struct part *p, int64_t offset) {
    if (offset > p->committed) p->committed = offset;
}

void part_forget_kept(struct part *p) { p->kept.n = 0; }

void part_drop(struct lw_worker *w, struct part *p) {
    if (!p->gen) return;
    check_part(p);
    lane_drop_pending(w, p);
    p->gen = 0;
    p->pass++;
    lw_offsets_free(p->offsets);
    p->offsets = NULL;
    reset_in(w, p);
    p->kept.n = 0;
    repairs_restart(w);
    for (size_t i = 0; i < w->n_assigned; i++)
        if (w->assigned[i] == p) {
            memmove(&w->assigned[i], &w->assigned[i + 1],
                    (w->n_assigned - i - 1) * sizeof(struct part *));
            w->n_assigned--;
            break;
        }
}

/* --- records --------------------------------------------------------------------------------- */

/* HELD_MAX is the maximum number of records in memory that are neither in a call nor running. */
enum { HELD_MAX = 20000 };

/* Sets the text under which Redis stores the message's business id: the lane and the id or, if they
 * are too long, a hash of both, as for a lane's name. */
static void set_dedup(struct lw_worker *w, struct msg *m, const struct lw_record *r,
                      struct lw_bytes lane) {
    struct lw_bytes id;
    if (!w->c->dedup.business ||
        lw_key_find(&w->c->dedup.id, r, &w->scratch2, &id, NULL) != LW_KEY_OK)
        return;
    struct lw_buf b = {0};
    lw_buf_addf(&b, "%zu:", lane.n);
    lw_buf_add(&b, lane.p, lane.n);
    lw_buf_add(&b, id.p, id.n);
    char room[LW_LANE_ROOM];
    struct lw_bytes name = lw_lane_id(lw_bytes(b.p, b.n), room, sizeof room);
    if (name.p == room) {
        b.n = 0;
        lw_buf_add(&b, name.p, name.n);
    }
    m->dedup_own = b.p;
    m->dedup = lw_bytes(b.p, b.n);
}

/* Holds the key and the lane of a record, or the reason why it has no key. */
struct found {
    enum lw_key_result how;
    /* the key, and the id of the lane; each record without a key gets a lane of its own */
    struct lw_bytes key, lane;
    uint32_t tag;
    struct lw_err err; /* the reason why the record has no key */
    char room[LW_IDENTITY_MAX];
};

static void find_lane(struct lw_worker *w, const struct part *p, const struct lw_arrival *a,
                      struct found *f) {
    f->key = lw_bytes("", 0);
    f->err = (struct lw_err){0};
    const struct lw_record_at at = {lw_bytes_of(p->topic), p->partition, a->offset};
    f->how = lw_key_of(w->c, &a->record, &at, &w->scratch, &f->key, &f->err);
    f->lane = f->how == LW_KEY_OK
                  ? lw_lane_id(f->key, f->room, sizeof f->room)
                  : lw_lane_without_key(p->name, a->offset, f->room, sizeof f->room);
    lw_lane_shard(f->lane, w->n_shards, &f->tag);
}

/* Notes the record's offset as delivered. Returns true if nothing else is to be done, because the
 * record was delivered before or is skipped. */
static bool is_over(struct lw_worker *w, struct part *p, const struct lw_arrival *a,
                    const struct found *f) {
    bool skip = f->how == LW_KEY_MISSING && w->c->key.missing == LW_MISSING_SKIP;
    enum lw_offset_state was = lw_offsets_deliver(p->offsets, a->offset, f->tag);
    if (skip) {
        lw_offsets_mark(p->offsets, a->offset, LW_OFF_DONE);
        count(&w->counts->skipped);
        outcome_of_record(w, p, a->offset, lw_bytes("", 0), LW_END_SKIPPED, f->err.text);
    } else if (was != LW_OFF_UNKNOWN) {
        count(&w->counts->redelivered);
    }
    return skip || was != LW_OFF_UNKNOWN;
}

static void set_key(struct lw_worker *w, struct msg *m, const struct lw_arrival *a,
                    const struct found *f) {
    m->key = f->key;
    if (f->how != LW_KEY_OK) {
        m->dead_reason = lw_strdup(f->err.text);
        m->key = a->record.key;
    } else if (f->key.n && f->key.p == w->scratch.p) {
        /* The key was decoded into the scratch buffer, so its bytes are not part of the record, and
         * the message needs its own copy. */
        m->own = lw_memdup(f->key.p, f->key.n);
        m->key = lw_bytes(m->own, f->key.n);
    }
}

static struct msg *message_of(struct lw_worker *w, struct part *p, const struct lw_arrival *a,
                              const struct found *f) {
    struct msg *m = msg_new(w, p);
    m->pass = p->pass;
    m->tag = f->tag;
    m->offset = a->offset;
    m->timestamp_ms = a->timestamp_ms;
    m->first_ms = w->io->wall_ms(w->ctx);
    m->payload = a->record.payload;
    m->origin = a->origin;
    if (a->record.n_headers) {
        m->headers = (struct lw_header *)(void *)lw_memdup(
            a->record.headers, a->record.n_headers * sizeof m->headers[0]);
        m->n_headers = a->record.n_headers;
    }
    set_key(w, m, a, f);
    msg_count(w, m, a->record.payload.n + a->record.key.n);
    /* a record without a key is given to no handler */
    if (w->c->group.on && f->how == LW_KEY_OK) msg_group(m, group_of(w, &a->record));
    if (f->how == LW_KEY_OK) set_dedup(w, m, &a->record, f->lane);
    return m;
}

void lw_worker_arrived(struct lw_worker *w, uint32_t gen, const struct lw_arrival *a) {
    struct part *p = part_of_gen(w, gen);
    struct found f;
    if (p) {
        count(&w->counts->received);
        find_lane(w, p, a, &f);
    }
    if (!p || is_over(w, p, a, &f)) {
        /* the record needs no handler, or it belongs to an earlier assignment of the partition */
        w->io->release(w->ctx, a->origin);
        return;
    }
    struct msg *m = message_of(w, p, a, &f);
    struct lane *l = lane_get(w, f.lane);
    if (l->head && l->head->group != m->group) count(&w->counts->group_changed);
    lane_push(w, l, m);
    lane_wake(w, l);
}

bool intake_crowded(const struct lw_worker *w) {
    return w->held >= HELD_MAX / 2 || w->memory.held >= w->bytes.held / 2;
}

size_t lw_worker_wants(const struct lw_worker *w) {
    if (w->stopping || w->held >= HELD_MAX || w->memory.held >= w->bytes.held) return 0;
    size_t fit = (w->bytes.held - w->memory.held) / w->memory.big + 1;
    return fit < HELD_MAX - w->held ? fit : HELD_MAX - w->held;
}

/* --- going back ------------------------------------------------------------------------------ */

struct closure {
    uint32_t tag;
    bool open;
};

static bool is_open(void *ctx, int64_t offset, uint32_t tag) {
    (void)offset;
    struct closure *c = ctx;
    if (tag == c->tag) c->open = true;
    return !c->open;
}

bool part_closed(const struct part *p, const struct msg *m) {
    if (!p->gen || lw_offsets_next(p->offsets) < m->offset) return false;
    struct closure c = {.tag = m->tag};
    lw_offsets_each(p->offsets, LW_OFF_IN, INT64_MIN, m->offset, is_open, &c);
    if (!c.open) lw_offsets_each(p->offsets, LW_OFF_WAITING, INT64_MIN, m->offset, is_open, &c);
    return !c.open;
}

/* Withdraws the grants of the fast path that have not started and belong to the partition `p`,
 * which is revoked or rewound. If p is NULL, withdraws those of all partitions. Kafka will deliver
 * their messages again. */
static void cut_holds(struct lw_worker *w, const struct part *p) {
    for (int s = 0; s < w->n_shards; s++)
        for (struct lane *l = w->shards[s].lanes; l; l = l->hh.next) {
            const struct run *r = l->hold && l->hold->kind == FAST ? l->hold->first : NULL;
            while (r && (r->state != AHEAD || (p && r->msg->part != p))) r = r->next;
            if (r) hold_cut(w, l->hold);
        }
}

/* Holds the state of a rewind. By the rule "no gap below a done", a rewind forgets a done message
 * if an earlier message of its key is not done. Keys are compared by their tags. So two keys with
 * the same tag count as one key, and the rewind may forget more messages than necessary, but never
 * fewer. */
struct rewinding {
    struct part *part;
    uint8_t *open;
};

static bool survives(void *ctx, int64_t offset, enum lw_offset_state state, uint32_t tag) {
    struct rewinding *x = ctx;
    struct part *p = x->part;
    if (state != LW_OFF_DONE) {
        tag_set(x->open, tag);
        return false;
    }
    if (tag_test(x->open, tag)) return false;
    p->kept.at = lw_more(p->kept.at, p->kept.n, &p->kept.cap, sizeof p->kept.at[0]);
    p->kept.at[p->kept.n++] = (struct kept_record){offset, tag};
    return true;
}

static void part_rewind(struct lw_worker *w, struct part *p, bool keep) {
    check_part(p);
    struct rewinding x = {p, lw_alloc(OPEN_TAGS / 8)};
    if (p->log_end < lw_offsets_next(p->offsets)) p->log_end = lw_offsets_next(p->offsets);
    p->kept.n = 0;
    int64_t at = lw_offsets_rewind(p->offsets, keep ? survives : NULL, &x);
    free(x.open);
    p->pass++;
    repairs_restart(w);
    /* a partition that is being revoked is not rewound, because its next owner begins at the
     * commit */
    if (p->leaving) return;
    struct lw_err err = {0};
    if (w->io->seek(w->ctx, p->gen, at, &err) != 0) {
        char reason[1200];
        snprintf(reason, sizeof reason, "%s: can't go back to offset %" PRId64 ": %s", p->name, at,
                 err.text);
        /* The worker ends if the seek fails. The next owner of the partition begins at the
         * commit. */
        w->io->stop(w->ctx, LW_EXIT_FAILED, reason);
    }
}

void part_again(struct lw_worker *w, struct part *p) {
    cut_holds(w, p);
    lane_drop_pending(w, p);
    part_rewind(w, p, true);
}

void parts_rewind(struct lw_worker *w, bool keep) {
    cut_holds(w, NULL);
    lane_drop_pending(w, NULL);
    for (size_t i = 0; i < w->n_assigned; i++) part_rewind(w, w->assigned[i], keep);
}

/* --- revoke ---------------------------------------------------------------------------------- */

/* Returns true while a rebalance must wait for this partition. It waits only for messages of the
 * fast path that are in a handler, or finished and not settled, because no other worker knows of
 * them. Heads are in their waiting list: they continue to run under their lease, or another worker
 * claims them. */
static bool needs_owner(const struct lw_worker *w, const struct part *p) {
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        /* A shard that is not READY cannot settle anything now, so the rebalance does not wait for
         * it. Kafka will deliver the messages again. */
        if (sh->phase != READY) continue;
        for (const struct lane *l = sh->lanes; l; l = l->hh.next)
            for (const struct run *r = l->hold && l->hold->kind == FAST ? l->hold->first : NULL; r;
                 r = r->next)
                if (r->msg->part == p) return true;
    }
    return false;
}

/* Makes sure that no more messages of a revoked partition start. The next owner gets from Kafka the
 * messages that have not started. */
static void part_leave(struct lw_worker *w, struct part *p) {
    p->leaving = true;
    p->pass++;
    cut_holds(w, p);
    lane_drop_pending(w, p);
    run_leave(w, p);
}

bool lw_worker_revoke(struct lw_worker *w, const uint32_t *gens, size_t n, bool lost) {
    struct part **parts = lw_alloc((n + 1) * sizeof *parts);
    bool waits = false;
    if (!w->revoke_until_ms) w->revoke_until_ms = now_ms(w) + w->c->shutdown.revoke_ms;
    for (size_t i = 0; i < n; i++) {
        parts[i] = part_of_gen(w, gens[i]);
        if (!parts[i]) continue;
        if (!parts[i]->leaving) part_leave(w, parts[i]);
        waits = waits || (!lost && needs_owner(w, parts[i]));
    }
    bool gone = !waits || now_ms(w) >= w->revoke_until_ms;
    if (gone) {
        if (waits && w->c->shutdown.revoke_ms)
            lw_warn("rebalance: a handler did not end within %" PRId64
                    " ms; giving up %zu partitions; their messages may run again",
                    w->c->shutdown.revoke_ms, n);
        w->revoke_until_ms = 0;
        if (!lost) commit_now(w, parts, n);
        for (size_t i = 0; i < n; i++)
            if (parts[i]) part_drop(w, parts[i]);
    }
    free(parts);
    return gone;
}
