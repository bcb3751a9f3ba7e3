/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the largest fence with which each key was written. This costs a transaction only about one
 * written page of SQLite's file.
 *
 * If all fences were in one tree by key, a transaction of many keys would rewrite nearly all
 * pages of the tree. So the fences are kept as in a log-structured merge tree (O'Neil et al.,
 * 1996). A transaction appends one row with all its fences to `latchwork_recent`, and every
 * MERGE_EVERY-th transaction moves the earlier rows, sorted, into the tree `latchwork_fences`.
 * Each connection remembers in memory the fences that it has seen. At the beginning of each
 * transaction, when no other process can write, the connection reads the rows that other
 * connections have appended. Then the fence in memory is right for each key that the connection
 * remembers, and the tree is right for all other keys. If rows were merged before the connection
 * saw them, it forgets all fences in its memory and reads all rows again.
 *
 * Keys are identified by the hash of lw_fence_key(). */
#include "handlers/insert/sqlite/sqlite.h"

#include <stdlib.h>

enum {
    MERGE_EVERY = 64,    /* number of transactions between two merges */
    FENCES_FIRST = 1024, /* initial number of slots of the table in memory */
    /* FENCES_MOST is the maximum number of slots (12 MiB). The table is emptied before half of
     * this number is used. */
    FENCES_MOST = 1 << 19,
    FENCE_BYTES = 24,
};

/* --- in memory -------------------------------------------------------------------------------- */

static bool used(const struct lw_fence *s) { return s->key.a || s->key.b; }

static struct lw_fence *slot(const struct lw_fences *f, struct lw_fence_key key) {
    size_t i = key.a & (f->size - 1);
    while (used(&f->slots[i]) && !lw_fence_key_same(f->slots[i].key, key))
        i = (i + 1) & (f->size - 1);
    return &f->slots[i];
}

static void grow(struct lw_fences *f) {
    struct lw_fences old = *f;
    f->size = old.size ? 2 * old.size : FENCES_FIRST;
    f->slots = lw_alloc(f->size * sizeof *f->slots);
    for (size_t i = 0; i < old.size; i++)
        if (used(&old.slots[i])) *slot(f, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

/* Remembers a fence, unless a larger fence of the key is known. */
static void remember(struct lw_fences *f, struct lw_fence_key key, uint64_t fence) {
    if (2 * (f->n + 1) > f->size) grow(f);
    struct lw_fence *s = slot(f, key);
    if (!used(s)) f->n++;
    s->key = key;
    if (fence > s->fence) s->fence = fence;
}

void lw_fences_forget(struct lw_fences *f) {
    free(f->slots);
    *f = (struct lw_fences){.written = f->written};
    f->written.n = 0;
}

void lw_fences_free(struct lw_fences *f) {
    lw_buf_free(&f->written);
    lw_fences_forget(f);
}

/* --- rows of latchwork_recent: pairs of key and fence (little-endian) ------------------------- */

static void put64(char *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (char)(v >> 8 * i);
}

static uint64_t get64(const char *p) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return v;
}

static struct lw_fence fence_at(const char *p) {
    struct lw_fence f;
    memcpy(&f.key, p, sizeof f.key);
    f.fence = get64(p + sizeof f.key);
    return f;
}

/* Reads the rows of latchwork_recent after the last row seen. Returns false if the row that follows
 * the last row seen is missing, because its fences have been moved to latchwork_fences. *r becomes
 * SQLite's last result code. */
static bool read_recent(struct lw_sqlite *s, int *r) {
    struct lw_fences *f = &s->fences;
    sqlite3_stmt *st = s->st[LW_ST_RECENT];
    sqlite3_bind_int64(st, 1, f->seen);
    bool whole = true, first = true;
    while (whole && (*r = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0);
        if (first) whole = !f->seen || id == f->seen + 1;
        first = false;
        const char *p = sqlite3_column_blob(st, 1);
        int n = p && whole ? sqlite3_column_bytes(st, 1) / FENCE_BYTES : 0;
        for (int i = 0; i < n; i++, p += FENCE_BYTES)
            remember(f, fence_at(p).key, fence_at(p).fence);
        f->seen = id;
    }
    int e = sqlite3_reset(st);
    if (e != SQLITE_OK) *r = e;
    return whole;
}

int lw_fences_catch_up(struct lw_sqlite *s) {
    int r = SQLITE_DONE;
    s->fences.written.n = 0;
    if (2 * s->fences.n > FENCES_MOST - 2 * LW_INSERT_BATCH * MERGE_EVERY)
        lw_fences_forget(&s->fences);
    if (read_recent(s, &r)) return r;
    lw_fences_forget(&s->fences);
    read_recent(s, &r);
    return r;
}

/* --- questions and writes --------------------------------------------------------------------- */

static int bind_key(sqlite3_stmt *st, const struct lw_fence_key *key) {
    return sqlite3_bind_blob(st, 1, key, sizeof *key, SQLITE_TRANSIENT);
}

int lw_fences_get(struct lw_sqlite *s, struct lw_fence_key key, uint64_t *fence) {
    struct lw_fences *f = &s->fences;
    *fence = 0;
    if (f->size) {
        const struct lw_fence *known = slot(f, key);
        if (used(known)) return *fence = known->fence, SQLITE_DONE;
    }
    sqlite3_stmt *st = s->st[LW_ST_FENCE];
    int r = bind_key(st, &key);
    if (r != SQLITE_OK) return r;
    r = sqlite3_step(st);
    if (r == SQLITE_ROW) *fence = (uint64_t)sqlite3_column_int64(st, 0);
    int e = sqlite3_reset(st);
    if (e != SQLITE_OK) return e;
    remember(f, key, *fence);
    return SQLITE_DONE;
}

void lw_fences_set(struct lw_sqlite *s, struct lw_fence_key key, uint64_t fence) {
    char pair[FENCE_BYTES];
    memcpy(pair, &key, sizeof key);
    put64(pair + sizeof key, fence);
    lw_buf_add(&s->fences.written, pair, sizeof pair);
    remember(&s->fences, key, fence);
}

static int by_key(const void *a, const void *b) {
    const struct lw_fence *x = a, *y = b;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order ? order : x->fence < y->fence ? -1 : x->fence > y->fence;
}

/* Collects all fences of `latchwork_recent`, sorted by key (as in `latchwork_fences`), and by fence
 * within a key. */
static int gather(struct lw_sqlite *s, struct lw_buf *all) {
    sqlite3_stmt *st = s->st[LW_ST_RECENT];
    sqlite3_bind_int64(st, 1, 0);
    int r;
    while ((r = sqlite3_step(st)) == SQLITE_ROW) {
        const char *p = sqlite3_column_blob(st, 1);
        int n = p ? sqlite3_column_bytes(st, 1) / FENCE_BYTES : 0;
        for (int i = 0; i < n; i++, p += FENCE_BYTES) {
            struct lw_fence one = fence_at(p);
            lw_buf_add(all, &one, sizeof one);
        }
    }
    int e = sqlite3_reset(st);
    if (all->n) qsort(all->p, all->n / sizeof(struct lw_fence), sizeof(struct lw_fence), by_key);
    return e != SQLITE_OK ? e : r;
}

static int merge(struct lw_sqlite *s) {
    struct lw_buf all = {0};
    int r = gather(s, &all);
    const struct lw_fence *f = (const struct lw_fence *)(const void *)all.p;
    size_t n = all.n / sizeof *f;
    for (size_t i = 0; i < n && r == SQLITE_DONE; i++) {
        if (i + 1 < n && lw_fence_key_same(f[i + 1].key, f[i].key)) continue;
        if ((r = bind_key(s->st[LW_ST_SET_FENCE], &f[i].key)) != SQLITE_OK) break;
        sqlite3_bind_int64(s->st[LW_ST_SET_FENCE], 2, (int64_t)f[i].fence);
        r = lw_sqlite_step(s->st[LW_ST_SET_FENCE]);
    }
    lw_buf_free(&all);
    return r == SQLITE_DONE ? lw_sqlite_step(s->st[LW_ST_MERGED]) : r;
}

int lw_fences_write(struct lw_sqlite *s) {
    struct lw_fences *f = &s->fences;
    if (!f->written.n) return SQLITE_DONE;
    int64_t id = f->seen + 1;
    /* merge() deletes all rows of latchwork_recent. The row that this function then appends
     * remains, so every process can still see the last id. */
    int r = id % MERGE_EVERY == 0 ? merge(s) : SQLITE_DONE;
    if (r != SQLITE_DONE) return r;
    sqlite3_stmt *st = s->st[LW_ST_ADD_RECENT];
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_blob64(st, 2, f->written.p, f->written.n, SQLITE_STATIC);
    r = lw_sqlite_step(st);
    sqlite3_clear_bindings(st);
    f->seen = id;
    return r;
}
