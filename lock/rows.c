/* SPDX-License-Identifier: Apache-2.0 */
/* Row locks: several mutexes under one hold. A caller gets either all rows or none.
 *
 *     [take rows in order, up to the first that another client holds → wait for that row, while the
 *      renewer renews the rows taken so far]… → give all rows one fence and one lease
 *
 * Every row is a mutex whose name is the prefix followed by TABLE:ID. So a lock of one row, a lock
 * of several rows, and a mutex of the same name exclude each other. Rows are always taken in
 * ascending order, and a waiter holds only rows smaller than the row it waits for, so there can be
 * no deadlock. All rows of a hold have the same token, by which the scripts recognize the caller's
 * rows. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/redis/reply.h"
#include "lock/renewer.h"
#include "lock/one.h"
#include "lock/waking.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    /* TAKE_BATCH, RAISE_BATCH, DROP_BATCH and KEEP_BATCH are the maximum numbers of rows in one
     * call of rows_take, rows_raise, rows_drop and rows_keep. Each row needs two keys in a call,
     * but only one key in a call of rows_keep. */
    TAKE_BATCH = (LW_CALL_ARGS - 3 - 6) / 2,
    RAISE_BATCH = (LW_CALL_ARGS - 3 - 5) / 2,
    DROP_BATCH = (LW_CALL_ARGS - 3 - 2) / 2,
    KEEP_BATCH = LW_CALL_ARGS - 3 - 3,
    PAUSE_MS = 10, /* mean pause between attempts, in ms */
};

struct rows {
    size_t n;
    struct latchwork_lock *row[]; /* one mutex per row, in the order in which rows are taken */
};

static struct rows *rows_of(const struct latchwork_lock *l) { return l->more; }
static const char *is_plain(const struct latchwork_lock *l) {
    return l->o.flags & LATCHWORK_FLAG_PLAIN ? "1" : "0";
}

static void add_key(struct lw_call *c, const struct latchwork_lock *row, int key) {
    lw_call_key(c, row->key[key]);
}

static void malformed(const struct latchwork_lock *l, const redisReply *r, const char *script,
                      const char *expected, struct latchwork_error *error) {
    char name[64], why[LW_REPLY_TEXT];
    snprintf(name, sizeof name, "%s.lua", script);
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_REPLY, "Redis at %s: %s",
                 l->client->where, lw_malformed(why, r, name, "%s", expected));
}

/* Makes a call whose reply is an integer, and returns the integer, or -1 with *error. */
static int64_t ask_number(struct latchwork_lock *l, struct lw_call *c,
                          struct latchwork_error *error) {
    redisReply *r = lw_client_call(l->client, c, error);
    if (!r) return -1;
    int64_t n = r->type == REDIS_REPLY_INTEGER ? r->integer : -1;
    if (n < 0) malformed(l, r, c->script->name, "integer of at least 0", error);
    freeReplyObject(r);
    return n;
}

/* --- giving back and keeping ------------------------------------------------------------------ */

/* Releases those rows that still have the token of the hold. Returns their number, or -1 with
 * *error if a call failed. */
static int64_t drop_all(struct latchwork_hold *h, bool *sent_again, struct latchwork_error *error) {
    struct rows *rows = rows_of(h->lock);
    int64_t dropped = 0;
    *sent_again = false;
    for (size_t from = 0; from < rows->n; from += DROP_BATCH) {
        size_t n = lw_smaller(rows->n - from, DROP_BATCH);
        struct lw_call c;
        lw_call_script(&c, &lw_lock_script_rows_drop, 2 * (int)n);
        for (size_t i = 0; i < n; i++) {
            add_key(&c, rows->row[from + i], LW_KEY_LOCK);
            add_key(&c, rows->row[from + i], LW_KEY_WAIT);
        }
        lw_call_text(&c, h->token);
        lw_call_text(&c, is_plain(h->lock));
        int64_t some = ask_number(h->lock, &c, error);
        *sent_again = *sent_again || c.sent_again;
        /* Stop after an error: the other rows are released when their leases end. */
        if (some < 0) return -1;
        dropped += some;
    }
    return dropped;
}

static enum latchwork_result release(struct latchwork_hold *h, struct latchwork_error *error) {
    bool sent_again;
    int64_t dropped = drop_all(h, &sent_again, error);
    if (dropped < 0) return LATCHWORK_LOCK_ERROR;
    return (size_t)dropped == rows_of(h->lock)->n ? LATCHWORK_LOCK_OK
                                                  : lw_hold_not_ours(h, sent_again, error);
}

static void keep_some(struct latchwork_hold *h, size_t from, int64_t ttl_ms, struct lw_call *c) {
    struct rows *rows = rows_of(h->lock);
    size_t n = lw_smaller(rows->n - from, KEEP_BATCH);
    lw_call_script(c, &lw_lock_script_rows_keep, (int)n);
    for (size_t i = 0; i < n; i++) add_key(c, rows->row[from + i], LW_KEY_LOCK);
    lw_call_text(c, h->token);
    lw_call_number(c, ttl_ms);
    lw_call_text(c, is_plain(h->lock));
}
static void keep_call(struct latchwork_hold *h, int64_t ttl_ms, struct lw_call *c) {
    keep_some(h, 0, ttl_ms, c);
}

static enum latchwork_result keep(struct latchwork_hold *h, int64_t ttl_ms,
                                  struct latchwork_error *error) {
    int64_t first_sent_ms = 0;
    for (size_t from = 0; from < rows_of(h->lock)->n; from += KEEP_BATCH) {
        struct lw_call c;
        keep_some(h, from, ttl_ms, &c);
        int64_t done = ask_number(h->lock, &c, error);
        if (done < 0) return LATCHWORK_LOCK_ERROR;
        if (!done) return lw_hold_not_ours(h, false, error);
        if (!first_sent_ms) first_sent_ms = c.sent_ms;
    }
    if (ttl_ms) lw_hold_leased(h, first_sent_ms, ttl_ms);
    return LATCHWORK_LOCK_OK;
}

/* --- taking ----------------------------------------------------------------------------------- */

/* An attempt to take all rows. */
struct taking {
    struct latchwork_lock *lock;
    struct latchwork_hold *hold;
    /* An array with one hold per row. A row has a hold if the attempt had to wait for it, or if the
     * renewer renews it during a wait; for other rows the element is NULL. */
    struct latchwork_hold **sub;
    /* `taken` is the number of rows taken so far, and `kept` is the number of those rows that the
     * renewer renews. */
    size_t taken, kept;
    /* True if the rows were taken in several calls, so their leases and fences differ. */
    bool piecemeal;
    int64_t sent_ms, left_ms, deadline_ms;
    uint64_t fence; /* the largest fence of all rows taken so far */
};

static bool others_wait(const struct latchwork_lock *row) {
    struct lw_waking *waking = atomic_load(&row->client->waking);
    return waking && lw_wait_has_line(waking, lw_one_wait_name(row));
}

static enum lw_took take_some(struct taking *t, struct latchwork_error *error) {
    struct latchwork_lock *l = t->lock;
    struct rows *rows = rows_of(l);
    size_t n = 0, most = lw_smaller(rows->n - t->taken, TAKE_BATCH);
    /* Stop before a row for which another thread of this client stands in line, because that thread
     * must get the row first. */
    while (n < most && !(t->deadline_ms && others_wait(rows->row[t->taken + n]))) n++;
    t->piecemeal = t->piecemeal || n < rows->n;
    if (!n) return LW_HELD;
    struct lw_call c;
    lw_call_script(&c, &lw_lock_script_rows_take, 2 * (int)n);
    for (size_t i = 0; i < n; i++) {
        add_key(&c, rows->row[t->taken + i], LW_KEY_LOCK);
        add_key(&c, rows->row[t->taken + i], LW_KEY_FENCE);
    }
    uint64_t seen = atomic_load(&l->seen);
    lw_call_text(&c, t->hold->token);
    lw_call_number(&c, l->o.ttl_ms);
    lw_call_number(&c, (int64_t)(seen > t->fence ? seen : t->fence));
    lw_call_number(&c, l->fence_keep_ms);
    lw_call_text(&c, is_plain(l));
    lw_call_number(&c, l->o.give_ttl_ms);
    redisReply *r = lw_client_call(l->client, &c, error);
    if (!r) return LW_FAILED;
    enum lw_took took = LW_FAILED;
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 3 &&
        r->element[0]->type == REDIS_REPLY_STRING && r->element[1]->type == REDIS_REPLY_INTEGER &&
        (size_t)r->element[1]->integer <= n) {
        size_t got = (size_t)r->element[1]->integer;
        t->sent_ms = c.sent_ms;
        t->left_ms = r->element[2]->integer;
        if (got) t->fence = strtoull(r->element[0]->str, NULL, 10);
        t->taken += got;
        took = got == n ? LW_TAKEN : LW_HELD;
    } else {
        malformed(l, r, c.script->name, "[string, number of rows, integer]", error);
    }
    freeReplyObject(r);
    return took;
}

/* Creates a hold for one of the rows that are taken together. The new hold has the same token as
 * the hold of all rows. */
static struct latchwork_hold *sub_hold(struct taking *t, size_t i, struct latchwork_error *error) {
    struct latchwork_hold *h = lw_hold_new(rows_of(t->lock)->row[i], error);
    if (!h) return NULL;
    memcpy(h->token, t->hold->token, sizeof h->token);
    return h;
}

/* Creates a hold of a row that was taken together with others in one call. */
static bool hold_taken(struct taking *t, size_t i, struct latchwork_error *error) {
    if (t->sub[i]) return true;
    struct latchwork_hold *h = t->sub[i] = sub_hold(t, i, error);
    if (!h) return false;
    h->fence = t->fence;
    if (h->lock->o.flags & LATCHWORK_FLAG_PLAIN)
        snprintf(h->value, sizeof h->value, "%s", h->token);
    else
        snprintf(h->value, sizeof h->value, "%s:%llu", h->token, (unsigned long long)t->fence);
    lw_hold_leased(h, t->sent_ms, h->lock->o.ttl_ms);
    return true;
}

/* Lets the client's renewer renew the rows taken so far, because the wait for the next row may take
 * longer than a TTL. */
static bool renew_taken(struct taking *t, struct latchwork_error *error) {
    struct lw_hold_renewer *renewer = t->taken ? lw_client_renewer(t->lock, error) : NULL;
    if (t->taken && !renewer) return false;
    for (; t->kept < t->taken; t->kept++)
        if (!hold_taken(t, t->kept, error) || !lw_hold_renewer_add(renewer, t->sub[t->kept], error))
            return false;
    return true;
}

static enum latchwork_result wait_for_next(struct taking *t, struct latchwork_error *error) {
    t->piecemeal = true;
    if (!renew_taken(t, error)) return LATCHWORK_LOCK_ERROR;
    struct latchwork_lock *row = rows_of(t->lock)->row[t->taken];
    struct latchwork_hold *h = sub_hold(t, t->taken, error);
    if (!h) return LATCHWORK_LOCK_ERROR;
    lw_lock_saw(row, t->fence);
    enum latchwork_result result = lw_one_acquire(row, h, t->deadline_ms, error);
    if (result != LATCHWORK_LOCK_OK) {
        lw_hold_unref(h);
        return result;
    }
    t->sub[t->taken++] = h;
    if (h->fence > t->fence) t->fence = h->fence;
    return LATCHWORK_LOCK_OK;
}

/* Gives all rows the same fence and the same lease. Returns 1 on success, 0 if a row was lost since
 * it was taken, and -1 with *error. */
static int64_t make_one(struct taking *t, struct latchwork_error *error) {
    struct latchwork_lock *l = t->lock;
    struct rows *rows = rows_of(l);
    int64_t sent_ms = 0;
    for (size_t from = 0; from < rows->n; from += RAISE_BATCH) {
        size_t n = lw_smaller(rows->n - from, RAISE_BATCH);
        struct lw_call c;
        lw_call_script(&c, &lw_lock_script_rows_raise, 2 * (int)n);
        for (size_t i = 0; i < n; i++) {
            add_key(&c, rows->row[from + i], LW_KEY_LOCK);
            add_key(&c, rows->row[from + i], LW_KEY_FENCE);
        }
        lw_call_text(&c, t->hold->token);
        lw_call_number(&c, l->o.ttl_ms);
        lw_call_number(&c, (int64_t)t->fence);
        lw_call_number(&c, l->fence_keep_ms);
        lw_call_text(&c, is_plain(l));
        int64_t done = ask_number(l, &c, error);
        if (done != 1) return done;
        if (!sent_ms) sent_ms = c.sent_ms;
    }
    t->sent_ms = sent_ms;
    return 1;
}

static void end_sub_holds(struct taking *t) {
    struct lw_hold_renewer *renewer = atomic_load(&t->lock->client->renewer);
    for (size_t i = 0; i < rows_of(t->lock)->n; i++) {
        struct latchwork_hold *h = t->sub[i];
        if (!h) continue;
        if (renewer) lw_hold_renewer_remove(renewer, h);
        if (strcmp(h->token, t->hold->token)) {
            /* This row was first granted so late that the lease of the grant had already ended. So
             * the row was acquired again, with a token of its own, and must be released
             * separately. */
            struct latchwork_error ignored;
            lw_one_release(h, &ignored);
        }
        lw_hold_unref(h);
        t->sub[i] = NULL;
    }
}

static enum latchwork_result is_held(struct taking *t, struct latchwork_error *error) {
    struct lw_bytes key = rows_of(t->lock)->row[t->taken]->key[LW_KEY_LOCK];
    int n = (int)lw_smaller(key.n, 300);
    if (t->left_ms != -1)
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY, "%.*s is held by others",
                            n, key.p);
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NO_TTL,
                        "the lock %.*s has no TTL and never ends by itself: give it one "
                        "(give_ttl_ms, latchwork_lock_give_ttl) or break it",
                        n, key.p);
}

/* Tries to take all rows. Sets *again to true if the attempt failed but another attempt may succeed
 * at once. */
static enum latchwork_result attempt(struct taking *t, bool *again, struct latchwork_error *error) {
    size_t n = rows_of(t->lock)->n;
    *again = false;
    while (t->taken < n) {
        enum lw_took took = take_some(t, error);
        if (took == LW_TAKEN) continue;
        if (took == LW_FAILED && !(t->deadline_ms && lw_may_pass(error)))
            return LATCHWORK_LOCK_ERROR;
        if (!t->deadline_ms) return is_held(t, error);
        /* after a temporary failure, wait for the next row as if another client held it */
        enum latchwork_result result = wait_for_next(t, error);
        if (result != LATCHWORK_LOCK_OK) return result;
    }
    end_sub_holds(t);
    int64_t whole = t->piecemeal ? make_one(t, error) : 1;
    if (whole < 0) {
        *again = lw_may_pass(error);
        return LATCHWORK_LOCK_ERROR;
    }
    *again = !whole || lw_boot_ms() >= t->sent_ms + t->lock->o.ttl_ms;
    if (*again)
        return lw_lock_fail(
            error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
            "the leases of some rows ended before all rows were locked; take a longer TTL");
    t->hold->fence = t->fence;
    memcpy(t->hold->value, t->hold->token, sizeof t->hold->token);
    lw_hold_leased(t->hold, t->sent_ms, t->lock->o.ttl_ms);
    return LATCHWORK_LOCK_OK;
}

static enum latchwork_result acquire(struct latchwork_lock *l, struct latchwork_hold *h,
                                     int64_t deadline_ms, struct latchwork_error *error) {
    struct taking t = {.lock = l, .hold = h, .deadline_ms = deadline_ms};
    struct latchwork_error why = {0};
    bool again = true;
    enum latchwork_result result = LATCHWORK_LOCK_BUSY;
    t.sub = calloc(rows_of(l)->n, sizeof(struct latchwork_hold *));
    if (!t.sub) return lw_lock_no_memory(error);
    while (again) {
        t.taken = t.kept = 0, t.piecemeal = false;
        result = attempt(&t, &again, &why);
        if (result == LATCHWORK_LOCK_OK) break;
        bool sent_again;
        struct latchwork_error ignored;
        end_sub_holds(&t);
        /* Release all rows that have the token, including those of a call whose answer was lost. */
        drop_all(h, &sent_again, &ignored);
        again =
            again && lw_boot_ms() + PAUSE_MS < deadline_ms && !atomic_load(&l->client->interrupted);
        /* The next attempt is a new acquisition, so it needs a token that was never used before. */
        if (again && !lw_hold_token(h, &why)) {
            result = LATCHWORK_LOCK_ERROR;
            again = false;
        }
        if (again) lw_sleep_ms(PAUSE_MS / 2 + (int64_t)lw_random(PAUSE_MS));
    }
    free(t.sub);
    if (result != LATCHWORK_LOCK_OK && error) *error = why;
    return result;
}

/* --- looking ---------------------------------------------------------------------------------- */

struct look {
    latchwork_lock_seen *seen;
    void *ctx;
    bool stopped;
};
static int see(void *ctx, const struct latchwork_lock_info *info) {
    struct look *k = ctx;
    k->stopped = k->seen(k->ctx, info) != 0;
    return k->stopped;
}

/* Returns OK if the lock of at least one row exists in Redis, and BUSY with *error if there is no
 * such lock. `any` is the number of rows whose lock exists. */
static enum latchwork_result together(size_t any, struct latchwork_error *error) {
    return any ? LATCHWORK_LOCK_OK
               : lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NOT_HELD,
                              "there is no such row");
}

static enum latchwork_result show(struct latchwork_lock *l, latchwork_lock_seen *seen, void *ctx,
                                  struct latchwork_error *error) {
    struct rows *rows = rows_of(l);
    struct look k = {seen, ctx, false};
    size_t any = 0;
    for (size_t i = 0; i < rows->n && !k.stopped; i++) {
        enum latchwork_result r = lw_one_show(rows->row[i], see, &k, error);
        if (r == LATCHWORK_LOCK_ERROR) return r;
        any += r == LATCHWORK_LOCK_OK;
    }
    return together(any, error);
}

static enum latchwork_result end(struct latchwork_lock *l, uint64_t *fence,
                                 struct latchwork_error *error) {
    struct rows *rows = rows_of(l);
    uint64_t most = 0;
    size_t any = 0;
    for (size_t i = 0; i < rows->n; i++) {
        uint64_t one = 0;
        /* Raise the fence of each row above every fence that this client has seen for the lock of
         * all rows. Then a later lock that has at least one of these rows gets a larger fence. */
        lw_lock_saw(rows->row[i], atomic_load(&l->seen));
        enum latchwork_result r = lw_one_end(rows->row[i], &one, error);
        if (r == LATCHWORK_LOCK_ERROR) return r;
        any += r == LATCHWORK_LOCK_OK;
        if (one > most) most = one;
    }
    if (any && fence) *fence = most;
    return together(any, error);
}

static enum latchwork_result give_ttl(struct latchwork_lock *l, int64_t ttl_ms,
                                      struct latchwork_error *error) {
    struct rows *rows = rows_of(l);
    size_t any = 0;
    for (size_t i = 0; i < rows->n; i++) {
        enum latchwork_result r = lw_one_give_ttl(rows->row[i], ttl_ms, error);
        if (r == LATCHWORK_LOCK_ERROR) return r;
        any += r == LATCHWORK_LOCK_OK;
    }
    return together(any, error);
}

static void close_rows(struct latchwork_lock *l) {
    struct rows *rows = rows_of(l);
    for (size_t i = 0; rows && i < rows->n; i++) lw_lock_unref(rows->row[i]);
    free(rows);
}

/* --- opening ---------------------------------------------------------------------------------- */

static const struct lw_lock_ops few_ops = {.acquire = acquire,
                                           .release = release,
                                           .keep = keep,
                                           .keep_call = keep_call,
                                           .lock_fini = close_rows,
                                           .show = show,
                                           .end = end,
                                           .give_ttl = give_ttl};
/* These functions serve locks with more rows than one call can renew. `keep_call` is NULL, so the
 * renewer calls `keep`. */
static const struct lw_lock_ops many_ops = {.acquire = acquire,
                                            .release = release,
                                            .keep = keep,
                                            .lock_fini = close_rows,
                                            .show = show,
                                            .end = end,
                                            .give_ttl = give_ttl};

static int by_name(const void *a, const void *b) {
    const struct latchwork_row *x = a, *y = b;
    int tables = strcmp(x->table, y->table);
    return tables ? tables : strcmp(x->id, y->id);
}

static const char *check(const struct latchwork_row *rows, size_t n) {
    if (!rows || n < 1 || n > LATCHWORK_MAX_ROWS) return "1 to 256 rows are locked at once";
    for (size_t i = 0; i < n; i++) {
        size_t table = rows[i].table ? strlen(rows[i].table) : 0,
               id = rows[i].id ? strlen(rows[i].id) : 0;
        if (table < 1 || table > LATCHWORK_MAX_TABLE || strchr(rows[i].table, ':'))
            return "a row's table has 1 to 128 bytes and no ':'";
        if (id < 1 || id > LATCHWORK_MAX_ID) return "a row's id has 1 to 256 bytes";
    }
    return NULL;
}

/* Opens one mutex per row. These mutexes are opened without automatic renewal, because only the
 * hold of all rows is renewed. */
static bool open_rows(struct latchwork_lock *l, const char *prefix, struct latchwork_row *row,
                      size_t n, struct latchwork_error *error) {
    struct rows *rows = l->more = calloc(1, sizeof *rows + n * sizeof rows->row[0]);
    if (!rows) return lw_lock_no_memory(error), false;
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT,
                                       .flags = l->o.flags & LATCHWORK_FLAG_PLAIN};
    o.ttl_ms = l->o.ttl_ms;
    o.max_hold_ms = -1;
    o.give_ttl_ms = l->o.give_ttl_ms;
    for (size_t i = 0; i < n; i++) {
        if (i && by_name(&row[i - 1], &row[i]) == 0) continue;
        struct lw_buf name = {0};
        lw_buf_tryf(&name, "%s%s:%s", prefix, row[i].table, row[i].id);
        if (name.failed) return lw_lock_no_memory(error), false;
        o.name_len = name.n;
        struct latchwork_lock *one = latchwork_lock_open(l->client, name.p, &o, error);
        lw_buf_free(&name);
        if (!one) return false;
        rows->row[rows->n++] = one;
        if (i == 0) l->slot = one->slot;
        if (one->slot == l->slot || !l->client->table) continue;
        lw_lock_wrong(error,
                      "in a cluster all rows must be in one slot, but \"%s:%s\" and \"%s:%s\" are "
                      "in two: give a prefix such as {%s}:",
                      row[0].table, row[0].id, row[i].table, row[i].id, row[0].table);
        return false;
    }
    if (rows->n > KEEP_BATCH) l->ops = &many_ops;
    return true;
}

struct latchwork_lock *latchwork_rows_open(struct latchwork_client *client, const char *prefix,
                                           const struct latchwork_row *rows, size_t n,
                                           const struct latchwork_lock_options *options,
                                           struct latchwork_error *error) {
    if (!lw_client_ok(client, error)) return NULL;
    const char *wrong = check(rows, n);
    if (client->flags & LATCHWORK_FLAG_NO_SCRIPTS)
        wrong = "row locks need scripts, which the client may not use: a mutex does without";
    if (wrong) {
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR,
                     client->flags & LATCHWORK_FLAG_NO_SCRIPTS ? LATCHWORK_E_NO_SCRIPTS
                                                               : LATCHWORK_E_ARGUMENT,
                     "%s", wrong);
        return NULL;
    }
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT};
    if (options) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (options) o.size = options->size;
    o.kind = LATCHWORK_KIND_ROWS;
    o.names = NULL;
    o.name_len = 0;
    struct latchwork_lock *l = lw_lock_new(&few_ops, "rows", &o, client->label, error);
    if (!l) return NULL;
    l->client = client;
    l->renewer = lw_client_renewer;
    struct latchwork_row *sorted = malloc(n * sizeof *sorted);
    if (sorted) {
        memcpy(sorted, rows, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_name);
    }
    bool good = sorted && open_rows(l, prefix ? prefix : "row:", sorted, n, error);
    if (!sorted) lw_lock_no_memory(error);
    free(sorted);
    if (good) return l;
    lw_lock_unref(l);
    return NULL;
}
