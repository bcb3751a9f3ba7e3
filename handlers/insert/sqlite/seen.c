/* SPDX-License-Identifier: Apache-2.0 */
/* Records which messages are done: one bit per offset, in rows of LW_SEEN_OFFSETS bits. A
 * transaction reads a row at most once, when it first needs the row, and writes it at most once, at
 * its end. The transaction holds SQLite's write lock, so the row cannot change in between. */
#include "handlers/insert/sqlite/sqlite.h"

#include <stdlib.h>

struct lw_segment {
    const char *topic; /* name of the topic, borrowed from a job */
    int64_t number;    /* number of the row: offset / LW_SEEN_OFFSETS */
    int32_t partition;
    bool dirty;
    unsigned char stored[LW_SEEN_OFFSETS / 8], bits[LW_SEEN_OFFSETS / 8];
};

static void bind_segment(struct lw_sqlite *s, sqlite3_stmt *st, const struct lw_segment *g) {
    sqlite3_bind_text(st, 1, s->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, g->topic, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 3, g->partition);
    sqlite3_bind_int64(st, 4, g->number);
}

static int load(struct lw_sqlite *s, struct lw_segment *g) {
    sqlite3_stmt *st = s->st[LW_ST_SEEN];
    bind_segment(s, st, g);
    int r = sqlite3_step(st);
    if (r == SQLITE_ROW && sqlite3_column_bytes(st, 0) == (int)sizeof g->stored)
        memcpy(g->stored, sqlite3_column_blob(st, 0), sizeof g->stored);
    memcpy(g->bits, g->stored, sizeof g->bits);
    int e = sqlite3_reset(st);
    return e != SQLITE_OK ? e : SQLITE_DONE;
}

/* Returns the row of latchwork_seen that contains a job's offset, and reads the row first if this
 * transaction has not read it yet. If the database fails, returns NULL, and sets *r to SQLite's
 * result code. */
static struct lw_segment *segment(struct lw_sqlite *s, const struct lw_job *job, int *r) {
    struct lw_seen *seen = &s->seen;
    int64_t number = job->offset / LW_SEEN_OFFSETS;
    *r = SQLITE_DONE;
    for (size_t i = seen->n; i-- > 0;) {
        /* The search is short, because the offsets of a batch share a few rows. */
        struct lw_segment *g = &seen->segments[i];
        if (g->number == number && g->partition == job->partition &&
            (g->topic == job->topic || strcmp(g->topic, job->topic) == 0))
            return g;
    }
    if (!seen->segments) seen->segments = lw_alloc(LW_INSERT_BATCH * sizeof *seen->segments);
    struct lw_segment *g = &seen->segments[seen->n];
    *g = (struct lw_segment){.topic = job->topic, .number = number, .partition = job->partition};
    if ((*r = load(s, g)) != SQLITE_DONE) return NULL;
    seen->n++;
    return g;
}

static bool bit(const unsigned char *bits, int64_t offset) {
    size_t i = (size_t)(offset % LW_SEEN_OFFSETS);
    return bits[i / 8] >> i % 8 & 1;
}

int lw_seen_get(struct lw_sqlite *s, const struct lw_job *job, enum lw_known *known) {
    int r;
    const struct lw_segment *g = segment(s, job, &r);
    if (g)
        *known = bit(g->stored, job->offset) ? LW_KNOWN
                 : bit(g->bits, job->offset) ? LW_KNOWN_HERE
                                             : LW_UNKNOWN;
    return r;
}

int lw_seen_set(struct lw_sqlite *s, const struct lw_job *job) {
    int r;
    struct lw_segment *g = segment(s, job, &r);
    if (!g) return r;
    size_t i = (size_t)(job->offset % LW_SEEN_OFFSETS);
    g->bits[i / 8] |= (unsigned char)(1U << i % 8);
    g->dirty = true;
    return r;
}

int lw_seen_write(struct lw_sqlite *s) {
    int r = SQLITE_DONE;
    sqlite3_stmt *st = s->st[LW_ST_SET_SEEN];
    for (size_t i = 0; i < s->seen.n && r == SQLITE_DONE; i++) {
        const struct lw_segment *g = &s->seen.segments[i];
        if (!g->dirty) continue;
        bind_segment(s, st, g);
        sqlite3_bind_blob(st, 5, g->bits, sizeof g->bits, SQLITE_STATIC);
        r = lw_sqlite_step(st);
    }
    sqlite3_clear_bindings(st);
    return r;
}

void lw_seen_forget(struct lw_seen *seen) { seen->n = 0; }

void lw_seen_free(struct lw_seen *seen) {
    free(seen->segments);
    *seen = (struct lw_seen){0};
}
