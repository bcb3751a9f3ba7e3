/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/outcome_list.h"

#include "ops/ops.h"

#include <stdlib.h>

static const char note[] = "only workers of this supervisor, since it started: of each worker the "
                           "last 1024 outcomes and the last 512 failures, and the last 4 of a key "
                           "that fails or waits. Not here: other supervisors, what commands did, "
                           "messages dropped while they waited, and outcomes recorded after an "
                           "epoch was lost";
_Static_assert(LW_OUTCOMES == 1024 && LW_FAILURES == 512 && LW_KEY_OUTCOMES == 4,
               "the note says how many outcomes are kept");

/* --- the query -------------------------------------------------------------------------------- */

static bool take_end(struct lw_outcome_query *out, const char *name) {
    for (int e = 0; e < LW_ENDS; e++) {
        if (strcmp(name, lw_end_name[e])) continue;
        out->ends |= 1u << e;
        return true;
    }
    return false;
}

static bool take(struct lw_outcome_query *out, const char *name, const char *value) {
    if (!strcmp(name, "key") && !out->key.p) return out->key = lw_bytes_of(value), true;
    if (!strcmp(name, "match") && !out->match.p) return out->match = lw_bytes_of(value), true;
    if (!strcmp(name, "outcome")) return take_end(out, value);
    if (strcmp(name, "limit") || strspn(value, "0123456789") != strlen(value)) return false;
    out->limit = (size_t)strtoul(value, NULL, 10);
    return out->limit >= 1 && out->limit <= LW_OUTCOMES_LIMIT_MAX;
}

bool lw_outcome_query(const struct lw_http_request *q, struct lw_outcome_query *out,
                      struct lw_http_answer *a) {
    *out = (struct lw_outcome_query){.limit = LW_OUTCOMES_LIMIT};
    for (size_t i = 0; i < q->n_args; i++) {
        if (take(out, q->args[i].name, q->args[i].value)) continue;
        lw_http_error(
            a, 400,
            "unknown parameter or value %.60s=%.200s; expected key or match (once), outcome (done, "
            "retry, dead, dropped, skipped or back) or limit (1 to %d)",
            q->args[i].name, q->args[i].value, (int)LW_OUTCOMES_LIMIT_MAX);
        return false;
    }
    return true;
}

/* --- the rings -------------------------------------------------------------------------------- */

struct found {
    int worker;
    struct lw_outcome_record record;
};

/* A position in one ring, which moves from the newest record to the oldest. */
struct cursor {
    const struct lw_outcome_rings *rings;
    const struct lw_key_ring *key; /* the ring is that of a key; NULL: it is one of the others */
    bool failures, has;
    uint64_t next, stop; /* the records from `stop` to `next` - 1 are not read yet */
    struct found found;
};

struct walk {
    const struct lw_outcome_query *q;
    struct cursor *cursor;
    size_t n;
};

static bool matches(const struct lw_outcome_query *q, const struct lw_outcome_record *r) {
    if (q->ends && !(q->ends >> r->end & 1)) return false;
    if (r->at_ms <= q->after_ms) return false;
    if (q->match.p && !ops_glob(q->match, lw_bytes(r->text, r->n_key))) return false;
    return !q->key.p || lw_outcome_has_key(r, q->key);
}

/* Copies record n of the cursor's ring. A record of a key's ring counts only if it is no longer in
 * the ring from which it was copied, so that no record is listed twice. */
static bool read_record(const struct cursor *c, uint64_t n, struct lw_outcome_record *out) {
    struct lw_outcome_record same;
    if (!c->key) return lw_outcome_get(c->rings, c->failures, n, out);
    return lw_outcome_get_key(c->key, n, out) &&
           !lw_outcome_get(c->rings, lw_outcome_failed(out), out->number, &same);
}

static void advance(const struct lw_outcome_query *q, struct cursor *c) {
    c->has = false;
    while (!c->has && c->next > c->stop) {
        c->next--;
        if (!read_record(c, c->next, &c->found.record)) continue;
        c->has = matches(q, &c->found.record);
        /* this record is too old for the query, and those before it are older still */
        if (c->found.record.at_ms <= q->after_ms) c->stop = c->next;
    }
}

/* The ring of failures may have outcomes of each kind (lw_outcome_failed). */
static bool wants(const struct lw_outcome_query *q, bool failures) {
    unsigned failed = 1u << LW_END_RETRY | 1u << LW_END_DEAD;
    return failures || !q->ends || (q->ends & ~failed);
}

static void open_ring(struct walk *k, const struct lw_board *b, int worker, bool failures) {
    if (!wants(k->q, failures)) return;
    struct cursor *c = &k->cursor[k->n++];
    uint64_t size = failures ? LW_FAILURES : LW_OUTCOMES;
    *c = (struct cursor){
        .rings = &b->workers[worker].outcomes, .failures = failures, .found.worker = worker};
    c->next = lw_outcome_count(c->rings, failures);
    c->stop = c->next > size ? c->next - size : 0;
}

static void open_key_ring(struct walk *k, const struct lw_board *b, int worker) {
    struct cursor *c = &k->cursor[k->n++];
    *c = (struct cursor){.rings = &b->workers[worker].outcomes, .found.worker = worker};
    c->key = lw_outcome_key_ring(c->rings, k->q->key);
    c->next = atomic_load_explicit(&c->key->n, memory_order_acquire);
    c->stop = c->next > LW_KEY_OUTCOMES ? c->next - LW_KEY_OUTCOMES : 0;
}

static struct walk open_walk(const struct lw_board *b, const struct lw_outcome_query *q) {
    int workers = atomic_load(&b->n_workers);
    struct walk k = {.q = q, .cursor = lw_alloc((3 * (size_t)workers + 1) * sizeof(struct cursor))};
    for (int i = 0; i < workers; i++) open_ring(&k, b, i, false), open_ring(&k, b, i, true);
    return k;
}

static struct cursor *newest(const struct walk *k) {
    struct cursor *best = NULL;
    for (size_t i = 0; i < k->n; i++) {
        struct cursor *c = &k->cursor[i];
        if (c->has && (!best || c->found.record.at_ms > best->found.record.at_ms)) best = c;
    }
    return best;
}

/* Calls each() for at most `limit` outcomes that match the query, newest first. */
static void each_outcome(const struct lw_board *b, const struct lw_outcome_query *q,
                         void (*each)(void *ctx, const struct found *f), void *ctx) {
    struct walk k = open_walk(b, q);
    struct cursor *c;
    int workers = atomic_load(&b->n_workers);
    for (int i = 0; q->key.p && i < workers; i++) open_key_ring(&k, b, i);
    for (size_t i = 0; i < k.n; i++) advance(q, &k.cursor[i]);
    for (size_t n = 0; n < q->limit && (c = newest(&k)); n++) {
        each(ctx, &c->found);
        advance(q, c);
    }
    free(k.cursor);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *outcome_json(const struct lw_board *b, const struct found *f) {
    const struct lw_outcome_record *r = &f->record;
    const struct lw_board_partition *p = &b->partitions[r->slot];
    json_t *j = json_pack("{s:I,s:i,s:s,s:i,s:I,s:s,s:i,s:I,s:o}", "at_ms", (json_int_t)r->at_ms,
                          "worker", f->worker, "topic", p->topic, "partition", (int)p->partition,
                          "offset", (json_int_t)r->offset, "outcome", lw_end_name[r->end],
                          "attempt", (int)r->attempt, "took_us", (json_int_t)r->took_us, "fence",
                          r->fence ? json_integer((json_int_t)r->fence) : json_null());
    ops_set_bytes(j, "key", lw_bytes(r->text, r->n_key));
    if (r->key_hash) json_object_set_new(j, "key_cut", json_true());
    ops_set_bytes(j, "reason", lw_bytes(r->text + r->n_key, r->n_reason));
    if (r->cut) json_object_set_new(j, "reason_cut", json_true());
    return j;
}

struct list {
    const struct lw_board *board;
    json_t *rows;
};

static void append(void *ctx, const struct found *f) {
    struct list *l = ctx;
    if (f->record.slot < 0 || f->record.slot >= LW_BOARD_PARTITIONS) return;
    json_array_append_new(l->rows, outcome_json(l->board, f));
}

json_t *lw_outcomes_list(const struct lw_board *b, const struct lw_outcome_query *q) {
    struct list l = {b, json_array()};
    each_outcome(b, q, append, &l);
    return l.rows;
}

/* Returns the wall time since which no outcome is missing in the rings. *lost becomes true if a
 * ring has already overwritten older outcomes. */
static int64_t complete_since(const struct lw_board *b, const struct lw_outcome_query *q,
                              bool *lost) {
    struct walk k = open_walk(b, q);
    int64_t since = atomic_load(&b->started_wall_ms);
    *lost = false;
    for (size_t i = 0; i < k.n; i++) {
        struct lw_outcome_record r;
        if (!k.cursor[i].stop) continue;
        *lost = true;
        for (uint64_t at = k.cursor[i].stop; at < k.cursor[i].next; at++) {
            /* a worker may overwrite the oldest record during this loop */
            if (!lw_outcome_get(k.cursor[i].rings, k.cursor[i].failures, at, &r)) continue;
            if (r.at_ms > since) since = r.at_ms;
            break;
        }
    }
    free(k.cursor);
    return since;
}

json_t *lw_outcomes_answer(const struct lw_board *b, const struct lw_outcome_query *q) {
    struct lw_outcome_query more = *q;
    bool lost;
    int64_t since = complete_since(b, q, &lost);
    more.limit++;
    json_t *rows = lw_outcomes_list(b, &more);
    bool cut = json_array_size(rows) > q->limit;
    if (cut) json_array_remove(rows, q->limit);
    return json_pack("{s:o,s:I,s:b,s:s}", "outcomes", rows, "since_ms", (json_int_t)since,
                     "complete", (int)(!lost && !cut), "note", note);
}

/* --- hot keys --------------------------------------------------------------------------------- */

struct key {
    uint8_t n;
    bool cut;
    char text[LW_OUTCOME_KEY];
    uint32_t times;
};

struct keys {
    struct key *key;
    size_t n;
};

static void collect(void *ctx, const struct found *f) {
    struct keys *k = ctx;
    struct key *key = &k->key[k->n];
    if (f->record.end == LW_END_SKIPPED) return; /* a skipped record has no key */
    k->n++;
    *key = (struct key){.n = f->record.n_key, .cut = f->record.key_hash, .times = 1};
    memcpy(key->text, f->record.text, key->n);
}

static int by_text(const void *a, const void *b) {
    const struct key *x = a, *y = b;
    return x->n != y->n ? x->n - y->n : memcmp(x->text, y->text, x->n);
}

static int by_times(const void *a, const void *b) {
    const struct key *x = a, *y = b;
    return x->times != y->times ? (x->times < y->times ? 1 : -1) : by_text(a, b);
}

static void count_keys(struct keys *k) {
    size_t n = 0;
    qsort(k->key, k->n, sizeof *k->key, by_text);
    for (size_t i = 0; i < k->n; i++) {
        if (n && !by_text(&k->key[n - 1], &k->key[i]))
            k->key[n - 1].times++;
        else
            k->key[n++] = k->key[i];
    }
    k->n = n;
    qsort(k->key, k->n, sizeof *k->key, by_times);
}

json_t *lw_outcomes_hot(const struct lw_board *b, int64_t wall_ms, size_t limit) {
    struct keys k = {.key = lw_alloc(LW_HOT_LOOK * sizeof(struct key))};
    each_outcome(b,
                 &(struct lw_outcome_query){.after_ms = wall_ms - LW_HOT_MS, .limit = LW_HOT_LOOK},
                 collect, &k);
    count_keys(&k);
    json_t *list = json_array();
    for (size_t i = 0; i < k.n && i < limit; i++) {
        json_t *j = json_object();
        ops_set_bytes(j, "key", lw_bytes(k.key[i].text, k.key[i].n));
        if (k.key[i].cut) json_object_set_new(j, "key_cut", json_true());
        json_object_set_new(j, "outcomes", json_integer(k.key[i].times));
        json_array_append_new(list, j);
    }
    free(k.key);
    return list;
}
