/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the tests of the pool: a handler that does what each payload says, a pool with
 * this handler, and a function that reaps jobs as the worker does. */
#ifndef LW_TESTS_SUPPORT_POOL_FIXTURE_H
#define LW_TESTS_SUPPORT_POOL_FIXTURE_H

#include "tests/support/handler_fixture.h"

#include "consumer/process/pool.h"

#include <poll.h>
#include <sys/eventfd.h>

/* --- a handler that does what the payload says ------------------------------------------------ */

struct lw_handler {
    size_t batch_max;
    enum lw_batch_of batch_of;
    atomic_int slots_open, runs, in_run, most_in_run, biggest;
    atomic_bool gate; /* jobs with the payload "wait" end when `gate` is true */
    atomic_int waiting;
    bool seen_suspect[64], seen_busy[64];
    struct lw_board_worker *board;
    /* saw() is called at the start of each run, unless it is NULL. */
    void (*saw)(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n);
    /* context for saw(), set by the test */
    void *ctx;
};
struct lw_slot {
    int index;
};

static UNUSED struct lw_slot *slot_open(struct lw_handler *h, int slot, struct lw_err *err) {
    if (slot == 63) return lw_fail(err, "no slot 63"), NULL;
    struct lw_slot *s = lw_alloc(sizeof *s);
    s->index = slot;
    atomic_fetch_add(&h->slots_open, 1);
    return s;
}

static UNUSED void slot_close(struct lw_handler *h, struct lw_slot *s) {
    atomic_fetch_sub(&h->slots_open, 1);
    free(s);
}

static UNUSED size_t batch_max(const struct lw_handler *h) { return h->batch_max; }

static UNUSED enum lw_batch_of batch_of(const struct lw_handler *h) { return h->batch_of; }

/* Returns true if the seat names the identity. Other threads may change their own seats
 * concurrently, but only the calling thread's seats can match, and these do not change during the
 * call. */
__attribute__((noinline, no_sanitize("thread"))) static UNUSED bool names(const struct lw_seat *s,
                                                                          const char *identity) {
    size_t i = 0;
    while (s->identity[i] && s->identity[i] == identity[i]) i++;
    return s->identity[i] == identity[i];
}

static UNUSED void note_seats(struct lw_handler *h, const struct lw_job *job) {
    if (!h->board) return;
    for (int i = 0; i < LW_BOARD_SEATS; i++) {
        const struct lw_seat *s = &h->board->seats[i];
        if (!atomic_load(&s->busy) || !names(s, job->identity)) continue;
        h->seen_busy[job->offset] = true;
        h->seen_suspect[job->offset] = job->suspect;
    }
}

static UNUSED void run_one(struct lw_handler *h, struct lw_job *job) {
    const char *what = job->payload.p ? job->payload.p : "";
    if (strcmp(what, "wait") == 0) {
        atomic_fetch_add(&h->waiting, 1);
        while (!atomic_load(&h->gate)) lw_sleep_ms(1);
    } else if (strcmp(what, "sleep") == 0) {
        lw_sleep_ms(1);
    } else if (strcmp(what, "seat") == 0) {
        note_seats(h, job);
    }
    job->outcome = strcmp(what, "retry") == 0 ? LW_RETRY : LW_DONE;
}

static UNUSED void run(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n) {
    atomic_fetch_add(&h->runs, 1);
    if (h->saw) h->saw(h, s->index, jobs, n);
    if ((int)n > atomic_load(&h->biggest)) atomic_store(&h->biggest, (int)n);
    int now = atomic_fetch_add(&h->in_run, 1) + 1;
    if (now > atomic_load(&h->most_in_run)) atomic_store(&h->most_in_run, now);
    for (size_t i = 0; i < n; i++) run_one(h, jobs[i]);
    atomic_fetch_sub(&h->in_run, 1);
}

static UNUSED const struct lw_handler_type type = {.name = "test",
                                                   .runs_in_worker = true,
                                                   .slot_open = slot_open,
                                                   .batch_max = batch_max,
                                                   .batch_of = batch_of,
                                                   .run = run,
                                                   .slot_close = slot_close};
static UNUSED const struct lw_handler_type blameless = {.name = "test",
                                                        .slot_open = slot_open,
                                                        .batch_max = batch_max,
                                                        .batch_of = batch_of,
                                                        .run = run,
                                                        .slot_close = slot_close};

struct fx {
    struct lw_handler h;
    struct lw_pool *p;
    int fd;
};

static UNUSED void open_fx_of(struct fx *x, const struct lw_handler_type *t, int threads,
                              size_t batch, enum lw_batch_of of, struct lw_board_worker *board) {
    memset(x, 0, sizeof *x);
    x->h.batch_max = batch;
    x->h.batch_of = of;
    x->h.board = board;
    x->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct lw_err err = {0};
    x->p = lw_pool_open(t, &x->h, threads, 0, board, x->fd, &err);
    if (!x->p) fail_msg("%s", err.text);
}

static UNUSED void open_fx(struct fx *x, const struct lw_handler_type *t, int threads, size_t batch,
                           struct lw_board_worker *board) {
    open_fx_of(x, t, threads, batch, LW_BATCH_KEYS, board);
}

static UNUSED void close_fx(struct fx *x) {
    assert_true(lw_pool_close(x->p, 20000));
    assert_int_equal(x->h.slots_open, 0);
    close(x->fd);
}

/* Reaps jobs only when the eventfd signals them, as the worker does, so that a lost signal makes
 * the test hang. */
static UNUSED void reap(struct fx *x, struct lw_job **out, size_t want) {
    size_t got = 0;
    while (got < want) {
        struct pollfd pf = {.fd = x->fd, .events = POLLIN};
        if (poll(&pf, 1, 120000) != 1) fail_msg("no signal; %zu of %zu finished", got, want);
        uint64_t v;
        assert_int_equal(read(x->fd, &v, 8), 8);
        size_t n;
        do got += n = lw_pool_reap(x->p, out + got, want - got < 64 ? want - got : 64);
        while (n && got < want);
    }
}

struct many {
    struct fx_job *j;
    struct lw_job **jobs, **out;
};

static UNUSED struct many make_many(size_t n, const char *payload) {
    struct many m = {lw_alloc(n * sizeof *m.j), lw_alloc(n * sizeof *m.jobs),
                     lw_alloc(n * sizeof *m.out)};
    for (size_t i = 0; i < n; i++) m.jobs[i] = fx_job(&m.j[i], (int64_t)i, "k", payload);
    return m;
}

static UNUSED void free_many(struct many *m) {
    free(m->j);
    free(m->jobs);
    free(m->out);
}

#endif
