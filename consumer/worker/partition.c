/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the assignment, rewind and release of partitions. Records arrive in arrive.c. */
#include "consumer/worker/private.h"

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
    assert(topic && n > 0);
    assert(partition >= 0 && replay >= 0);
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
    watch_open(w, p);
    floors_open(w, p);
    missing_open(w, p);
    HASH_ADD_KEYPTR(hh, w->parts, p->name, (unsigned)len, p);
    return p;
}

void part_free(struct lw_worker *w, struct part *p) {
    check_part(p);
    assert(!p->gen && !p->n_msgs && !p->offsets);
    HASH_DELETE(hh, w->parts, p);
    watch_free(p);
    free(p->name), free(p->topic), free(p->floor_sent), free(p->missing), free(p->kept);
    free(p);
}

void part_idle(struct lw_worker *w, struct part *p) {
    check_part(p);
    assert(!p->n_msgs && p->replay);
    if (p->idle) return;
    p->idle = true;
    p->next_idle = w->idle_parts;
    w->idle_parts = p;
}

/* Returns true if a settle that may still be sent again names messages of this partition. */
static bool is_named(const struct lw_worker *w, const struct part *p) {
    check_part(p);
    for (int s = 0; s < w->n_shards; s++)
        if (settle_names(&w->shards[s], p)) return true;
    return false;
}

void parts_sweep(struct lw_worker *w) {
    check_worker(w);
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
    assert(w->n_assigned <= w->cap_assigned);
    for (size_t i = 0; i < w->n_assigned; i++)
        if (w->assigned[i]->gen == gen) return w->assigned[i];
    return NULL;
}

void part_mark(struct lw_worker *w, struct part *p, int64_t offset, enum lw_offset_state s) {
    assert(!p->gen || p->offsets);
    (void)w;
    assert(offset >= 0);
    if (p->gen) lw_offsets_mark(p->offsets, offset, s);
}

size_t part_records_max(const struct lw_worker *w) {
    check_worker(w);
    if (w->set.part_records) return w->set.part_records;
    size_t share = RECORDS_MAX / (w->n_assigned ? w->n_assigned : 1);
    if (share > PART_RECORDS_MAX) return PART_RECORDS_MAX;
    return share < PART_RECORDS_MIN ? PART_RECORDS_MIN : share;
}

/* Returns true if the partition tracks too many records, so that nothing more of it may be read.
 * One unfinished record keeps every record behind it in memory, so their number needs this
 * limit. */
static bool is_full(struct lw_worker *w, struct part *p) {
    check_part(p);
    assert(p->gen);
    size_t held = lw_offsets_held(p->offsets), most = part_records_max(w);
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
    check_part(p);
    assert(p->gen);
    bool hold = w->stopping || p->watch.n_fresh < w->n_shards || p->claims ||
                (int64_t)lw_offsets_waiting(p->offsets) >= w->c->queue.max_waiting;
    hold |= is_full(w, p);
    if (hold != p->held) {
        p->held = hold;
        w->io->hold(w->ctx, p->gen, hold);
    }
}

void parts_pause(struct lw_worker *w) {
    for (size_t i = 0; i < w->n_assigned; i++) part_pause(w, w->assigned[i]);
}

bool all_joined(const struct lw_worker *w) {
    assert(w->n_shards > 0);
    for (int s = 0; s < w->n_shards; s++)
        if (!epoch_joined(&w->shards[s])) return false;
    return true;
}

void lw_worker_end(struct lw_worker *w, uint32_t gen, int64_t offset) {
    check_worker(w);
    assert(gen);
    struct part *p = part_of_gen(w, gen);
    if (p) lw_offsets_end(p->offsets, offset);
}

void lw_worker_assign(struct lw_worker *w, const struct lw_assigned *a) {
    check_worker(w);
    assert(a->gen && a->topic);
    assert(!part_of_gen(w, a->gen));
    struct part *p = part_get(w, a->topic, strlen(a->topic), a->partition, 0);
    if (p->gen) part_drop(w, p);
    p->gen = a->gen;
    p->pass++;
    p->begin = a->begin;
    p->log_begin = a->log_begin;
    p->log_end = a->log_end;
    p->committed = a->committed;
    p->had_commit = a->committed >= 0;
    p->leaving = false;
    p->offsets = lw_offsets_open(a->begin);
    watch_assigned(w, p);
    floors_assigned(w, p);
    p->n_kept = 0;
    p->held = false;
    if (a->metadata_len) {
        struct lw_err err = {0};
        struct lw_range ranges[LW_META_RANGES];
        int n = lw_meta_decode(a->committed, a->metadata, a->metadata_len, ranges, LW_META_RANGES,
                               &err);
        if (n < 0) lw_warn("%s: commit metadata ignored: %s", p->name, err.text);
        if (n > 0) {
            p->meta = (struct lw_range *)(void *)lw_memdup(ranges, (size_t)n * sizeof ranges[0]);
            p->n_meta = (size_t)n;
            p->meta_open = lw_alloc(OPEN_TAGS / 8);
            p->claims = true;
        }
    }
    if (w->n_assigned == w->cap_assigned) {
        w->cap_assigned = w->cap_assigned ? w->cap_assigned * 2 : 16;
        w->assigned = lw_realloc(w->assigned, w->cap_assigned * sizeof(struct part *));
    }
    w->assigned[w->n_assigned++] = p;
    part_pause(w, p); /* nothing is read from the partition until its states have been read */
    if (w->set.board) lw_board_committed(w->set.board, p->topic, p->partition, a->begin);
    lw_debug("%s assigned at %" PRId64 " (committed %" PRId64 ")", p->name, a->begin, a->committed);
    check_part(p);
}

void part_committed(struct part *p, int64_t offset) {
    check_part(p);
    assert(p->gen);
    if (offset > p->committed) p->committed = offset;
    p->had_commit = true;
    p->claims = false;
}

void part_forget_kept(struct part *p) {
    check_part(p);
    p->n_kept = 0;
}

void part_drop(struct lw_worker *w, struct part *p) {
    check_part(p);
    if (!p->gen) return;
    assert(p->offsets);
    lane_drop_pending(w, p);
    p->gen = 0;
    p->pass++;
    lw_offsets_free(p->offsets);
    p->offsets = NULL;
    part_forget_meta(p);
    missing_forget(w, p);
    p->claims = false;
    p->n_kept = 0;
    repairs_restart(w);
    for (size_t i = 0; i < w->n_assigned; i++)
        if (w->assigned[i] == p) {
            memmove(&w->assigned[i], &w->assigned[i + 1],
                    (w->n_assigned - i - 1) * sizeof(struct part *));
            w->n_assigned--;
            break;
        }
    check_part(p);
    assert(!p->gen);
}

void part_forget_meta(struct part *p) {
    assert(p->meta || !p->n_meta);
    free(p->meta);
    free(p->meta_open);
    p->meta = NULL;
    p->meta_open = NULL;
    p->n_meta = 0;
}

/* Finds out whether Redis has forgotten messages that the group's metadata lists as finished. Such
 * messages run again, unless a repair restores their states. A later owner must then not believe
 * the old metadata, because the effects that it describes are older than those of the second run.
 * So nothing of the partition runs until Kafka has accepted a commit whose metadata lists only
 * messages that Redis knows to be finished (commit.c). */
void part_check_claims(struct lw_worker *w, struct part *p) {
    check_part(p);
    if (!p->claims) return;
    struct lw_range known[META_RANGES];
    size_t n = lw_offsets_finished(p->offsets, known, META_RANGES);
    if (n == p->n_meta && memcmp(known, p->meta, n * sizeof known[0]) == 0)
        p->claims = false;
    else
        commit_soon(w);
}

static bool tag_test(const uint8_t *map, uint32_t tag) {
    assert(map);
    return map[(tag % OPEN_TAGS) / 8] >> (tag % 8) & 1;
}
static void tag_set(uint8_t *map, uint32_t tag) {
    assert(map);
    map[(tag % OPEN_TAGS) / 8] |= (uint8_t)(1u << (tag % 8));
}

/* Withdraws the grants of the fast path that have not started and belong to the partition `p`,
 * which is revoked or rewound. If p is NULL, withdraws those of all partitions. Kafka will deliver
 * their messages again. */
static void cut_holds(struct lw_worker *w, const struct part *p) {
    check_worker(w);
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
    assert(ctx && offset >= 0);
    struct rewinding *x = ctx;
    struct part *p = x->part;
    if (state != LW_OFF_DONE) {
        tag_set(x->open, tag);
        return false;
    }
    if (tag_test(x->open, tag)) return false;
    if (p->n_kept == p->cap_kept) {
        p->cap_kept = p->cap_kept ? p->cap_kept * 2 : 64;
        p->kept = lw_realloc(p->kept, p->cap_kept * sizeof p->kept[0]);
    }
    p->kept[p->n_kept++] = (struct kept){offset, tag};
    return true;
}

static void part_rewind(struct lw_worker *w, struct part *p, bool keep) {
    check_part(p);
    assert(p->gen && p->offsets);
    struct rewinding x = {p, lw_alloc(OPEN_TAGS / 8)};
    if (p->log_end < lw_offsets_next(p->offsets)) p->log_end = lw_offsets_next(p->offsets);
    p->n_kept = 0;
    part_forget_meta(p);
    int64_t at = lw_offsets_rewind(p->offsets, keep ? survives : NULL, &x, false);
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
    check_part(p);
}

void part_again(struct lw_worker *w, struct part *p) {
    check_part(p);
    assert(p->gen);
    cut_holds(w, p);
    lane_drop_pending(w, p);
    part_rewind(w, p, true);
}

void parts_rewind(struct lw_worker *w, bool keep) {
    check_worker(w);
    cut_holds(w, NULL);
    lane_drop_pending(w, NULL);
    for (size_t i = 0; i < w->n_assigned; i++) part_rewind(w, w->assigned[i], keep);
}

struct closure {
    uint32_t tag;
    bool open;
};

static bool is_open(void *ctx, int64_t offset, uint32_t tag) {
    assert(ctx && offset >= 0);
    (void)offset;
    struct closure *c = ctx;
    if (tag == c->tag) c->open = true;
    return !c->open;
}

/* Returns true if all messages of the partition before `m` were delivered, and those with the tag
 * of `m` are known to be done. */
bool part_closed(const struct part *p, const struct msg *m) {
    check_part(p);
    assert(m->part == p);
    if (!p->gen || lw_offsets_next(p->offsets) < m->offset) return false;
    struct closure c = {.tag = m->tag};
    lw_offsets_each(p->offsets, LW_OFF_IN, INT64_MIN, m->offset, is_open, &c);
    if (!c.open) lw_offsets_each(p->offsets, LW_OFF_WAITING, INT64_MIN, m->offset, is_open, &c);
    return !c.open;
}

/* Checks whether the commit metadata lists an arriving record as finished. If so, and if the rule
 * "no gap below a done" allows it, the record is listed to be written back to Redis during a
 * quarantine. In every other case gate decides according to the states in Redis. */
void part_look_in_meta(struct lw_worker *w, struct part *p, const struct msg *m) {
    check_part(p);
    assert(m->part == p);
    assert(p->gen && p->n_meta);
    struct shard *sh = &w->shards[m->tag % (uint32_t)w->n_shards];
    while (p->n_meta && p->meta[0].hi <= m->offset)
        memmove(p->meta, p->meta + 1, --p->n_meta * sizeof p->meta[0]);
    bool in = p->n_meta && m->offset >= p->meta[0].lo;
    if (in && !tag_test(p->meta_open, m->tag) && sh->phase == READY &&
        shard_quarantined(sh, now_ms(w)) && repair_has_room(sh)) {
        repair_meta(sh, p, m->offset);
    } else {
        tag_set(p->meta_open, m->tag);
    }
    if (!p->n_meta) part_forget_meta(p);
}

/* --- revoke ----------------------------------------------------------------------------------- */

/* Returns true while a rebalance must wait for this partition. It waits only for messages of the
 * fast path that are in a handler, or finished and not settled, because no other worker knows of
 * them. Heads are in their waiting list: they continue to run under their lease, or another worker
 * claims them. */
static bool needs_owner(const struct lw_worker *w, const struct part *p) {
    check_part(p);
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

static int try_commit(struct lw_worker *w, struct part **parts, size_t n, struct lw_err *err) {
    assert(parts || !n);
    struct lw_commit *c = lw_alloc((n + 1) * sizeof *c);
    char *meta = lw_alloc((n + 1) * (LW_META_MAX + 1));
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (!parts[i] || !parts[i]->gen) continue;
        struct part *p = parts[i];
        int64_t mark = lw_offsets_watermark(p->offsets);
        char *text = meta + k * (LW_META_MAX + 1);
        if (!commit_encode(w, p, text) && mark == p->committed) continue;
        c[k++] = (struct lw_commit){.gen = p->gen, .offset = mark, .metadata = text};
    }
    int rc = k ? w->io->commit_sync(w->ctx, c, k, NULL, err) : 0;
    free(c);
    free(meta);
    return rc;
}

static void commit_parts(struct lw_worker *w, struct part **parts, size_t n) {
    assert(parts || !n);
    struct lw_err err = {0};
    size_t room;
    int rc;
    do {
        /* If Kafka has refused the size of the metadata, the limit is now half as large, so the
         * commit is tried again with less. */
        room = w->commit.meta_max;
        rc = try_commit(w, parts, n, &err);
    } while (rc && w->commit.meta_max < room);
    if (rc)
        lw_warn("commit before giving up %zu partitions: %s; their next owners read from the "
                "previous commit",
                n, err.text);
}

/* Makes sure that no more messages of a revoked partition start. The next owner gets from Kafka the
 * messages that have not started. */
static void part_leave(struct lw_worker *w, struct part *p) {
    check_part(p);
    assert(p->gen);
    p->leaving = true;
    p->pass++;
    cut_holds(w, p);
    lane_drop_pending(w, p);
    run_leave(w, p);
}

static void wait_for_started(struct lw_worker *w, struct part **parts, const uint32_t *gens,
                             size_t n) {
    assert(parts && w->io->pump);
    int64_t begin = now_ms(w), until = begin + w->c->shutdown.revoke_ms;
    for (size_t i = 0; i < n; i++)
        while (parts[i] && parts[i]->gen == gens[i] && needs_owner(w, parts[i]) &&
               now_ms(w) < until)
            w->io->pump(w->ctx, 20);
    int64_t took = now_ms(w) - begin;
    if (took >= w->c->shutdown.revoke_ms && took > 0)
        lw_warn("rebalance: a handler did not end within %" PRId64
                " ms; giving up %zu partitions; their messages may run again",
                took, n);
}

void lw_worker_revoke(struct lw_worker *w, const uint32_t *gens, size_t n, bool lost) {
    check_worker(w);
    assert(gens || !n);
    struct part **parts = lw_alloc((n + 1) * sizeof *parts);
    for (size_t i = 0; i < n; i++) {
        parts[i] = part_of_gen(w, gens[i]);
        if (parts[i]) part_leave(w, parts[i]);
    }
    if (!lost && w->io->pump) wait_for_started(w, parts, gens, n);
    if (!lost) commit_parts(w, parts, n);
    for (size_t i = 0; i < n; i++)
        if (parts[i] && parts[i]->gen == gens[i]) part_drop(w, parts[i]);
    free(parts);
}

void lw_worker_commit_all(struct lw_worker *w) {
    check_worker(w);
    commit_parts(w, w->assigned, w->n_assigned);
}
