/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dev/audit.h"

#include "queue/codes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { EXAMPLES = 5, NAME_MAX_BYTES = 400 };

enum ending { OPEN, DONE, BACK, FAILED, CUT };

struct run {
    /* the text "PID IDENTITY FENCE ATTEMPT" of a run, which is the same in its start line and its
     * end line */
    char *name;
    char *identity, *key, *partition; /* `partition` has the form "topic/0" */
    int64_t offset, start_us, end_us;
    int pid;
    enum ending ending;
    UT_hash_handle hh;
};

struct journal {
    struct run *runs; /* hash table of runs, with `name` as the key */
    struct run **sorted;
    size_t n;
};

/* --- reading ---------------------------------------------------------------------------------- */

struct line {
    char what[8], identity[320], key[1100], outcome[8];
    int64_t at_us;
    int pid, attempt;
    uint64_t fence;
};

static bool scan(const char *text, struct line *l) {
    l->outcome[0] = '\0';
    int n = sscanf(text, "%7s %" SCNd64 " %d %319s %1099s %" SCNu64 " %d %7s", l->what, &l->at_us,
                   &l->pid, l->identity, l->key, &l->fence, &l->attempt, l->outcome);
    return (n == 7 && !strcmp(l->what, "start")) || (n == 8 && !strcmp(l->what, "end"));
}

static void name_run(const struct line *l, char *out) {
    snprintf(out, NAME_MAX_BYTES, "%d %s %" PRIu64 " %d", l->pid, l->identity, l->fence,
             l->attempt);
}

static int begin(struct journal *j, const struct line *l, struct lw_err *err) {
    const char *slash = strrchr(l->identity, '/');
    if (!slash || slash == l->identity) return lw_fail(err, "%s is not an identity", l->identity);
    struct run *r;
    char name[NAME_MAX_BYTES];
    name_run(l, name);
    HASH_FIND_STR(j->runs, name, r);
    if (r) return lw_fail(err, "%s starts twice under one fence", l->identity);
    r = lw_alloc(sizeof *r);
    *r = (struct run){.start_us = l->at_us,
                      .end_us = INT64_MAX,
                      .pid = l->pid,
                      .offset = strtoll(slash + 1, NULL, 10)};
    r->name = lw_strdup(name);
    r->identity = lw_strdup(l->identity);
    r->key = lw_strdup(l->key);
    r->partition = lw_memdup(l->identity, (size_t)(slash - l->identity));
    HASH_ADD_KEYPTR(hh, j->runs, r->name, strlen(r->name), r);
    return 0;
}

static int end(struct journal *j, const struct line *l, struct lw_err *err) {
    char name[NAME_MAX_BYTES];
    struct run *r;
    name_run(l, name);
    HASH_FIND_STR(j->runs, name, r);
    if (!r || r->ending != OPEN) return lw_fail(err, "%s ends without a start", l->identity);
    r->end_us = l->at_us;
    enum lw_outcome outcome = LW_RETRY;
    lw_outcome_of(l->outcome, &outcome);
    r->ending = outcome == LW_DONE ? DONE : outcome == LW_BACK ? BACK : FAILED;
    return 0;
}

static int read_lines(struct journal *j, FILE *f, struct lw_err *err) {
    char *text = NULL;
    size_t cap = 0, number = 0;
    int r = 0;
    struct line l;
    while (r == 0 && getline(&text, &cap, f) > 0) {
        number++;
        if (!scan(text, &l))
            r = lw_fail(err, "line %zu is not of the journal's form", number);
        else
            r = strcmp(l.what, "start") ? end(j, &l, err) : begin(j, &l, err);
    }
    free(text);
    return r;
}

static int load(struct journal *j, const char *path, struct lw_err *err) {
    FILE *f = fopen(path, "r");
    if (!f) return lw_fail(err, "%s: %s", path, strerror(errno));
    struct lw_err why = {0};
    int r = read_lines(j, f, &why);
    fclose(f);
    if (r) return lw_fail(err, "%s: %s", path, why.text);
    j->n = HASH_COUNT(j->runs);
    /* one element more than needed is allocated, so that the size is never 0 */
    j->sorted = lw_alloc((j->n + 1) * sizeof(struct run *));
    size_t i = 0;
    for (struct run *x = j->runs; x; x = x->hh.next) j->sorted[i++] = x;
    return 0;
}

static void unload(struct journal *j) {
    struct run *r, *next;
    HASH_ITER(hh, j->runs, r, next) {
        HASH_DEL(j->runs, r);
        free(r->name);
        free(r->identity);
        free(r->key);
        free(r->partition);
        free(r);
    }
    free(j->sorted);
}

/* --- judging ---------------------------------------------------------------------------------- */

static void example(struct dev_audit *a, int64_t so_far, const char *what, const struct run *one,
                    const struct run *other) {
    if (so_far > EXAMPLES) return;
    lw_buf_addf(&a->examples, "%s: %s (process %d, fence and attempt %s)", what, one->identity,
                one->pid, strchr(strchr(one->name, ' ') + 1, ' ') + 1);
    if (other)
        lw_buf_addf(&a->examples, " and %s (process %d), %" PRId64 " us apart", other->identity,
                    other->pid, other->start_us - one->start_us);
    lw_buf_add(&a->examples, "\n", 1);
}

static void close_cut(struct dev_audit *a, struct journal *j, struct dev_killed killed) {
    for (size_t i = 0; i < j->n; i++) {
        struct run *r = j->sorted[i];
        a->runs++;
        a->given_back += r->ending == BACK;
        a->failed += r->ending == FAILED;
        if (r->ending != OPEN) continue;
        if (killed.pid && r->pid == killed.pid) {
            r->ending = CUT;
            r->end_us = killed.at_us > r->start_us ? killed.at_us : r->start_us;
            a->cut++;
        } else {
            example(a, ++a->open, "never ended", r, NULL);
        }
    }
}

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_key(const void *x, const void *y) {
    const struct run *a = *(struct run *const *)x, *b = *(struct run *const *)y;
    int c = strcmp(a->key, b->key);
    return c ? c : compare(a->start_us, b->start_us);
}

static void find_overlaps(struct dev_audit *a, struct journal *j) {
    qsort(j->sorted, j->n, sizeof *j->sorted, by_key);
    /* the run that ended last among the checked runs of the key */
    const struct run *last = NULL;
    for (size_t i = 0; i < j->n; i++) {
        const struct run *r = j->sorted[i];
        if (r->ending == BACK) continue;
        bool same = last && !strcmp(last->key, r->key);
        if (same && r->start_us < last->end_us) example(a, ++a->overlaps, "overlap", last, r);
        if (!same || r->end_us > last->end_us) last = r;
    }
}

static int by_identity(const void *x, const void *y) {
    const struct run *a = *(struct run *const *)x, *b = *(struct run *const *)y;
    int c = strcmp(a->partition, b->partition);
    if (!c) c = compare(a->offset, b->offset);
    if (!c) c = compare(a->ending != DONE, b->ending != DONE);
    return c ? c : compare(a->end_us, b->end_us);
}

static bool same_message(const struct run *a, const struct run *b) {
    return a->offset == b->offset && !strcmp(a->partition, b->partition);
}

/* Moves each message's first run that ended as done to the front of the array, and returns the
 * number of these runs. Also counts the reruns. */
static size_t first_dones(struct dev_audit *a, struct journal *j) {
    qsort(j->sorted, j->n, sizeof *j->sorted, by_identity);
    size_t n = 0;
    struct run **firsts = lw_alloc((j->n + 1) * sizeof(struct run *));
    for (size_t i = 0; i < j->n; i++) {
        struct run *r = j->sorted[i];
        bool again = i && same_message(j->sorted[i - 1], r);
        a->reruns += again;
        if (!again && r->ending == DONE) firsts[n++] = r;
    }
    memcpy(j->sorted, firsts, n * sizeof *firsts);
    free(firsts);
    return n;
}

static int by_lane(const void *x, const void *y) {
    const struct run *a = *(struct run *const *)x, *b = *(struct run *const *)y;
    int c = strcmp(a->partition, b->partition);
    if (!c) c = strcmp(a->key, b->key);
    if (!c) c = compare(a->end_us, b->end_us);
    return c ? c : compare(a->offset, b->offset);
}

static void find_misordered(struct dev_audit *a, struct journal *j, size_t n) {
    qsort(j->sorted, n, sizeof *j->sorted, by_lane);
    for (size_t i = 1; i < n; i++) {
        const struct run *last = j->sorted[i - 1], *r = j->sorted[i];
        if (strcmp(last->partition, r->partition) || strcmp(last->key, r->key) ||
            last->offset < r->offset)
            continue;
        example(a, ++a->misordered, "out of order", last, r);
    }
}

static void find_unfinished(struct dev_audit *a, const struct journal *j, size_t n,
                            const struct dev_end *ends, int n_ends) {
    for (int e = 0; e < n_ends; e++) {
        char partition[300];
        snprintf(partition, sizeof partition, "%s/%d", ends[e].topic, (int)ends[e].partition);
        int64_t done = 0;
        for (size_t i = 0; i < n; i++)
            done +=
                !strcmp(j->sorted[i]->partition, partition) && j->sorted[i]->offset < ends[e].end;
        if (done == ends[e].end) continue;
        a->unfinished += ends[e].end - done;
        lw_buf_addf(&a->examples, "unfinished: %" PRId64 " of %s\n", ends[e].end - done, partition);
    }
}

int dev_audit_read(struct dev_audit *a, const char *journal, struct dev_killed killed,
                   const struct dev_end *ends, int n_ends, struct lw_err *err) {
    *a = (struct dev_audit){0};
    struct journal j = {0};
    int r = load(&j, journal, err);
    if (r == 0 && j.sorted) {
        close_cut(a, &j, killed);
        find_overlaps(a, &j);
        size_t n = first_dones(a, &j);
        find_misordered(a, &j, n);
        find_unfinished(a, &j, n, ends, n_ends);
    }
    unload(&j);
    return r;
}

void dev_audit_free(struct dev_audit *a) { lw_buf_free(&a->examples); }
