/* SPDX-License-Identifier: Apache-2.0 */
/* Tests chains in the pool: jobs of a key that run one after another without the main thread in
 * between. */
#include "tests/support/pool_fixture.h"

/* UNTOUCHED is the outcome that fx_job() sets, and that a job keeps if it does not run. */
enum { UNTOUCHED = 99 };

/* Makes one chain of all jobs, under the lease of the first job. */
static void chain(struct lw_job **jobs, size_t n) {
    for (size_t i = 1; i < n; i++) {
        jobs[i]->lease = jobs[0]->lease;
        assert_true(lw_job_then(jobs[i - 1], jobs[i]));
    }
}

/* Checks that the n jobs with the offsets from `first` on were reaped in order. Other jobs may have
 * been reaped between them. */
static void assert_in_order(struct lw_job **out, size_t n_out, int64_t first, int64_t n) {
    int64_t next = first;
    for (size_t i = 0; i < n_out; i++)
        if (out[i]->offset >= first && out[i]->offset < first + n)
            assert_int_equal(out[i]->offset, next++);
    assert_int_equal(next, first + n);
}

static size_t place_of(struct lw_job **out, int64_t offset) {
    size_t i = 0;
    while (out[i]->offset != offset) i++;
    return i;
}

/* --- what one chain does ---------------------------------------------------------------------- */

struct trail {
    int n, slot[200];
    int64_t offset[200];
};
static void note_trail(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    struct trail *t = h->ctx;
    for (size_t i = 0; i < n; i++) {
        t->slot[t->n] = slot;
        t->offset[t->n++] = jobs[i]->offset;
    }
}

static void test_a_chain_runs_in_order_on_one_thread(void **state) {
    (void)state;
    struct fx x;
    struct trail t = {0};
    open_fx(&x, &type, 4, 1, NULL);
    x.h.saw = note_trail;
    x.h.ctx = &t;
    struct many m = make_many(100, "go");
    chain(m.jobs, 100);
    lw_pool_submit(x.p, m.jobs, 1);
    reap(&x, m.out, 100);
    assert_in_order(m.out, 100, 0, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(t.offset[i], i);
        assert_int_equal(t.slot[i], t.slot[0]);
        assert_int_equal(m.jobs[i]->outcome, LW_DONE);
        /* a time of 0 would mean that the job was not run, and the job would have no span */
        assert_true(m.jobs[i]->took_us > 0);
        assert_ptr_equal(m.jobs[i]->then, LW_JOB_CLOSED);
    }
    free_many(&m);
    close_fx(&x);
}

static void test_linked_while_it_runs(void **state) {
    (void)state;
    for (size_t batch = 1; batch <= 4; batch += 3) {
        struct fx x;
        open_fx(&x, &type, 2, batch, NULL);
        struct many m = make_many(3, "wait");
        lw_pool_submit(x.p, m.jobs, 1);
        wait_for(x.h.waiting == 1);
        chain(m.jobs, 3);
        x.h.gate = true;
        reap(&x, m.out, 3);
        assert_in_order(m.out, 3, 0, 3);
        free_many(&m);
        close_fx(&x);
    }
}

static void test_too_late_to_link(void **state) {
    (void)state;
    static const char *const ends[] = {"go", "retry", "never"};
    for (int i = 0; i < 3; i++) {
        struct fx x;
        open_fx(&x, &type, 1, 1, NULL);
        struct many m = make_many(2, ends[i]);
        m.jobs[0]->lease->cancelled = i == 2;
        m.jobs[1]->lease->cancelled = false;
        lw_pool_submit(x.p, m.jobs, 1);
        struct pollfd pf = {.fd = x.fd, .events = POLLIN};
        /* poll() shows that the job has ended, but it has not been reaped yet */
        assert_int_equal(poll(&pf, 1, 120000), 1);
        assert_false(lw_job_then(m.jobs[0], m.jobs[1]));
        reap(&x, m.out, 1);
        assert_false(lw_job_then(m.jobs[0], m.jobs[1]));
        lw_pool_submit(x.p, m.jobs + 1, 1);
        reap(&x, m.out, 1);
        assert_ptr_equal(m.out[0], m.jobs[1]);
        free_many(&m);
        close_fx(&x);
    }
}

/* If a job was not done, the job behind it in the chain must not be changed in any way. */
static void test_not_done_ends_the_chain(void **state) {
    (void)state;
    for (size_t batch = 1; batch <= 4; batch += 3) {
        struct fx x;
        open_fx(&x, &type, 1, batch, NULL);
        struct many m = make_many(5, "go");
        m.jobs[1]->payload = lw_bytes_of("retry");
        chain(m.jobs, 4);
        struct fx_job before[2];
        memcpy(before, m.j + 2, sizeof before);
        lw_pool_submit(x.p, m.jobs, 1);
        reap(&x, m.out, 2);
        assert_int_equal(m.jobs[0]->outcome, LW_DONE);
        assert_int_equal(m.jobs[1]->outcome, LW_RETRY);
        lw_pool_submit(x.p, m.jobs + 4, 1);
        /* the pool's only thread has left the chain before it runs this job */
        reap(&x, m.out, 1);
        assert_ptr_equal(m.out[0], m.jobs[4]);
        assert_memory_equal(m.j + 2, before, sizeof before);
        close_fx(&x);
        free_many(&m);
    }
}

static void end_lease(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    (void)slot, (void)n;
    if (jobs[0]->offset != 1) return;
    if (h->ctx)
        atomic_store(&jobs[0]->lease->cancelled, true);
    else
        atomic_store(&jobs[0]->lease->deadline_ms, lw_boot_ms());
}

static void test_lease_ends_within_a_chain(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct fx x;
        open_fx(&x, &type, 1, i & 2 ? 4 : 1, NULL);
        x.h.saw = end_lease;
        x.h.ctx = i & 1 ? &x : NULL;
        struct many m = make_many(5, "go");
        chain(m.jobs, 5);
        lw_pool_submit(x.p, m.jobs, 1);
        reap(&x, m.out, 3);
        assert_in_order(m.out, 3, 0, 3);
        assert_int_equal(m.jobs[1]->outcome, LW_DONE);
        assert_int_equal(m.jobs[2]->outcome, LW_BACK);
        assert_string_equal(m.jobs[2]->reason, "");
        close_fx(&x);
        assert_int_equal(x.h.runs, 2);
        assert_int_equal(m.jobs[3]->outcome, UNTOUCHED);
        assert_ptr_equal(m.jobs[3]->then, m.jobs[4]);
        free_many(&m);
    }
}

static void see_seats(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    (void)slot;
    for (size_t i = 0; i < n; i++) note_seats(h, jobs[i]);
}

static void test_followers_sit_and_have_a_time_limit(void **state) {
    (void)state;
    struct lw_board_worker *board = lw_alloc(sizeof *board);
    struct fx x = {.h = {.batch_max = 1, .board = board, .saw = see_seats},
                   .fd = eventfd(0, EFD_NONBLOCK)};
    x.p = lw_pool_open(&type, &x.h, 1, 5000, board, x.fd, NULL);
    struct many m = make_many(10, "go");
    chain(m.jobs, 10);
    int64_t before = lw_boot_ms();
    lw_pool_submit(x.p, m.jobs, 1);
    reap(&x, m.out, 10);
    for (int i = 0; i < 10; i++) {
        assert_true(x.h.seen_busy[i]);
        assert_true(m.jobs[i]->give_up_ms >= before + 5000 &&
                    m.jobs[i]->give_up_ms <= lw_boot_ms() + 5000);
    }
    for (int i = 0; i < LW_BOARD_SEATS; i++) assert_false(board->seats[i].busy);
    free_many(&m);
    close_fx(&x);
    free(board);
}

/* --- batches ---------------------------------------------------------------------------------- */

enum { ROWS = 6, LONG = 5 };
struct batches {
    int n;
    size_t size[32];
    int64_t first[32];
};
static void note_batch(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    (void)slot;
    struct batches *b = h->ctx;
    /* all jobs of a batch must have different keys */
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(jobs[i]->offset / LONG, jobs[k]->offset / LONG);
    b->size[b->n] = n;
    b->first[b->n++] = jobs[0]->offset;
}

/* The queue holds six chains, and behind them jobs without a chain. Each batch of eight jobs must
 * consist of the next job of each chain and two jobs without a chain. */
static void test_followers_come_first_in_the_next_batch(void **state) {
    (void)state;
    struct fx x;
    struct batches b = {0};
    open_fx(&x, &type, 1, 8, NULL);
    struct many w = make_many(1, "wait"), m = make_many(ROWS * LONG, "go"),
                more = make_many(10, "go");
    lw_pool_submit(x.p, w.jobs, 1);
    wait_for(x.h.waiting == 1);
    w.jobs[0]->offset = 5000;
    for (int i = 0; i < 10; i++) more.jobs[i]->offset = 1000 + LONG * i;
    struct lw_job *heads[ROWS], *out[1 + ROWS * LONG + 10];
    for (int i = 0; i < ROWS; i++) {
        chain(m.jobs + i * LONG, LONG);
        heads[i] = m.jobs[i * LONG];
    }
    lw_pool_submit(x.p, heads, ROWS);
    lw_pool_submit(x.p, more.jobs, 10);
    /* x.h.saw needs no mutex, because the only thread waits for x.h.gate and reads x.h.saw
     * afterwards */
    x.h.saw = note_batch;
    x.h.ctx = &b;
    atomic_store(&x.h.gate, true);
    reap(&x, out, sizeof out / sizeof *out);
    assert_int_equal(b.n, LONG);
    for (int i = 0; i < LONG; i++) {
        assert_int_equal(b.size[i], 8);
        assert_int_equal(b.first[i], i);
    }
    for (int i = 0; i < ROWS; i++) assert_in_order(out, sizeof out / sizeof *out, i * LONG, LONG);
    free_many(&w);
    free_many(&m);
    free_many(&more);
    close_fx(&x);
}

/* Records the jobs of a batch. Each job is written as a letter for its key and a digit for its
 * place in the chain. */
static void note_shape(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    (void)slot;
    char *at = h->ctx;
    at += strlen(at);
    if (jobs[0]->offset >= 1000) return;
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%c%d", (char)('a' + jobs[i]->offset / LONG),
                      (int)(jobs[i]->offset % LONG));
    *at++ = ' ';
    *at = '\0';
}

/* Runs three chains of five jobs, which are all queued before the only thread is free. Writes the
 * batches to `out`. `retry` is the index of the job that fails, or -1 if none fails. */
static void see_shape(enum lw_batch_of of, size_t batch, int retry, char *out, size_t expected) {
    struct fx x;
    open_fx_of(&x, &type, 1, batch, of, NULL);
    struct many w = make_many(1, "wait"), m = make_many(3 * LONG, "go");
    w.jobs[0]->offset = 1000;
    lw_pool_submit(x.p, w.jobs, 1);
    wait_for(x.h.waiting == 1);
    struct lw_job *heads[3];
    for (int i = 0; i < 3; i++) {
        chain(m.jobs + i * LONG, LONG);
        heads[i] = m.jobs[i * LONG];
    }
    if (retry >= 0) m.jobs[retry]->payload = lw_bytes_of("retry");
    lw_pool_submit(x.p, heads, 3);
    *out = '\0';
    x.h.ctx = out;
    x.h.saw = note_shape;
    atomic_store(&x.h.gate, true);
    struct lw_job *reaped[1 + 3 * LONG];
    reap(&x, reaped, 1 + expected);
    for (int i = 0; i < 3; i++) {
        int64_t n = retry >= 0 && retry / LONG == i ? retry % LONG + 1 : LONG;
        assert_in_order(reaped, 1 + expected, (int64_t)i * LONG, n);
    }
    struct lw_job *more;
    assert_int_equal(lw_pool_reap(x.p, &more, 1), 0); /* no other job may be reported */
    for (size_t i = 0; i <= expected; i++)
        assert_int_equal(reaped[i]->outcome, reaped[i]->offset == retry ? LW_RETRY : LW_DONE);
    for (size_t i = 0; i <= expected; i++) assert_true(reaped[i]->took_us > 0);
    for (int i = retry + 1; retry >= 0 && i % LONG; i++) assert_int_equal(m.jobs[i]->took_us, 0);
    free_many(&w);
    free_many(&m);
    close_fx(&x);
}

static void test_several_jobs_of_a_key_in_a_batch(void **state) {
    (void)state;
    char shape[400];
    see_shape(LW_BATCH_KEYS, 8, -1, shape, 15);
    assert_string_equal(shape, "a0b0c0 a1b1c1 a2b2c2 a3b3c3 a4b4c4 ");
    see_shape(LW_BATCH_ONE_KEY, 8, -1, shape, 15);
    assert_string_equal(shape, "a0a1a2a3a4 b0b1b2b3b4 c0c1c2c3c4 ");
    /* if a chain is longer than a batch, its remaining jobs must run before other chains */
    see_shape(LW_BATCH_ONE_KEY, 3, -1, shape, 15);
    assert_string_equal(shape, "a0a1a2 a3a4 b0b1b2 b3b4 c0c1c2 c3c4 ");
    see_shape(LW_BATCH_ANY, 32, -1, shape, 15);
    assert_string_equal(shape, "a0a1a2a3a4b0b1b2b3b4c0c1c2c3c4 ");
    /* each key must get at least one place in the batch */
    see_shape(LW_BATCH_ANY, 8, -1, shape, 15);
    assert_string_equal(shape, "a0a1a2a3a4b0b1c0 b2b3b4c1c2c3c4 ");
}

/* If a job is not done, the jobs behind it in its chain must not be reported. Jobs of other keys
 * in the batch must not be affected. */
static void test_a_batch_is_done_in_part(void **state) {
    (void)state;
    char shape[400];
    see_shape(LW_BATCH_ANY, 32, LONG + 2, shape, 13);
    assert_string_equal(shape, "a0a1a2a3a4b0b1b2b3b4c0c1c2c3c4 ");
    see_shape(LW_BATCH_ONE_KEY, 4, LONG, shape, 11);
    assert_string_equal(shape, "a0a1a2a3 a4 b0b1b2b3 c0c1c2c3 c4 ");
    see_shape(LW_BATCH_ONE_KEY, 4, LONG + 3, shape, 14);
    assert_string_equal(shape, "a0a1a2a3 a4 b0b1b2b3 c0c1c2c3 c4 ");
    see_shape(LW_BATCH_ONE_KEY, 4, LONG + 4, shape, 15);
    assert_string_equal(shape, "a0a1a2a3 a4 b0b1b2b3 b4 c0c1c2c3 c4 ");
}

/* Before the only thread is free, the test submits jobs of five keys without followers, and then
 * jobs of two keys with followers. Each batch has jobs of one key. Batches of keys with followers
 * and of keys without must alternate until one kind is used up. */
static void test_a_hot_key_does_not_wait_behind_all_others(void **state) {
    (void)state;
    struct fx x;
    char shape[400] = "";
    open_fx_of(&x, &type, 1, 8, LW_BATCH_ONE_KEY, NULL);
    struct many w = make_many(1, "wait"), m = make_many(7 * LONG, "go");
    w.jobs[0]->offset = 1000;
    lw_pool_submit(x.p, w.jobs, 1);
    wait_for(x.h.waiting == 1);
    struct lw_job *heads[7];
    for (int i = 0; i < 7; i++) {
        heads[i] = m.jobs[i * LONG];
        if (i >= 5) chain(m.jobs + i * LONG, 2);
    }
    lw_pool_submit(x.p, heads, 7);
    x.h.ctx = shape;
    /* x.h.saw needs no mutex, because the only thread waits for x.h.gate and reads x.h.saw
     * afterwards */
    x.h.saw = note_shape;
    atomic_store(&x.h.gate, true);
    reap(&x, m.out, 10);
    assert_string_equal(shape, "f0f1 a0 g0g1 b0 c0 d0 e0 ");
    free_many(&w);
    free_many(&m);
    close_fx(&x);
}

/* The main thread reaps jobs as soon as it is woken. At that moment all jobs of a batch must be
 * ready to be reaped, because the worker asks Redis for as many followers as jobs have ended. */
static void test_a_batch_is_reported_at_once(void **state) {
    (void)state;
    enum { N = 64, ROUNDS = 300 };
    struct fx x;
    open_fx_of(&x, &type, 1, N, LW_BATCH_ONE_KEY, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        struct many m = make_many(N, "go");
        chain(m.jobs, N);
        lw_pool_submit(x.p, m.jobs, 1);
        struct pollfd pf = {.fd = x.fd, .events = POLLIN};
        assert_int_equal(poll(&pf, 1, 120000), 1);
        uint64_t drained;
        assert_int_equal(read(x.fd, &drained, sizeof drained), sizeof drained);
        assert_int_equal(lw_pool_reap(x.p, m.out, N), N);
        assert_in_order(m.out, N, 0, N);
        free_many(&m);
    }
    close_fx(&x);
}

/* --- others' share ---------------------------------------------------------------------------- */

/* The only thread has chains that last far longer than CHAIN_US, the time after which a chain gives
 * way to other jobs. Jobs that wait behind the chains, in the queue or already taken by the thread,
 * must run before the chains end. */
static void test_chains_do_not_starve_others(void **state) {
    (void)state;
    enum { N = 150, CHAINS = 2 };
    for (int i = 0; i < 3; i++) {
        struct fx x;
        /* `chains` is the number of chains that fill one batch */
        size_t batch = i == 2 ? 2 : 1, chains = i == 2 ? CHAINS : 1;
        open_fx(&x, &type, 1, batch, NULL);
        struct many fast = make_many(2000, "go"), m = make_many(CHAINS * N, "sleep"),
                    other = make_many(3, "go");
        if (i == 1) {
            /* shows the pool that the handler is fast, so that the thread takes all jobs at once */
            lw_pool_submit(x.p, fast.jobs, 2000);
            reap(&x, fast.out, 2000);
        }
        for (int k = 0; k < 3; k++) other.jobs[k]->offset = 1000 + k;
        struct lw_job *jobs[CHAINS + 3], *out[CHAINS * N + 3];
        size_t n = 0;
        for (size_t c = 0; c < chains; c++) {
            chain(m.jobs + c * N, N);
            jobs[n++] = m.jobs[c * N];
        }
        for (int k = 0; k < 3; k++) jobs[n++] = other.jobs[k];
        lw_pool_submit(x.p, jobs, n);
        size_t all = chains * N + 3;
        reap(&x, out, all);
        for (int k = 0; k < 3; k++)
            for (size_t c = 0; c < chains; c++)
                assert_true(place_of(out, 1000 + k) < place_of(out, (int64_t)(c * N + N - 1)));
        for (size_t c = 0; c < chains; c++) assert_in_order(out, all, (int64_t)c * N, N);
        free_many(&fast);
        free_many(&m);
        free_many(&other);
        close_fx(&x);
    }
}

/* The pool's clock while a test stops it; 0 while the pool sees the real clock. */
static _Atomic int64_t stopped_us;
int64_t __real_lw_boot_us(void);
int64_t __wrap_lw_boot_us(void);
int64_t __wrap_lw_boot_us(void) {
    int64_t us = atomic_load(&stopped_us);
    return us ? us : __real_lw_boot_us();
}
static int stop_clock(void **state) {
    (void)state;
    atomic_store(&stopped_us, __real_lw_boot_us());
    return 0;
}
static int release_clock(void **state) {
    (void)state;
    atomic_store(&stopped_us, 0);
    return 0;
}

enum { LINKS = 4, OTHERS = 6 };
struct holdup {
    atomic_int others; /* jobs of other keys that have run */
    bool stolen;       /* true if all of these ran while the chain's last job did */
};
/* Each job of the chain lasts half a millisecond of the pool's clock. Its last job does not end
 * before all jobs of other keys have run. The limit only turns a hang into a failure. */
static void hold_up(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    (void)slot, (void)n;
    struct holdup *held = h->ctx;
    if (jobs[0]->offset >= 1000) {
        atomic_fetch_add(&held->others, 1);
        return;
    }
    atomic_fetch_add(&stopped_us, 500);
    if (jobs[0]->offset < LINKS - 1) return;
    for (int ms = 0; atomic_load(&held->others) < OTHERS && ms < 10000; ms++) lw_sleep_ms(1);
    held->stolen = atomic_load(&held->others) == OTHERS;
}

/* A chain of short jobs delays the jobs that its thread has already taken, as one long job would,
 * so another thread must steal these jobs: no job of the chain is as long as STUCK_US, and all of
 * them together are twice as long. The pool's clock goes on only by the jobs of the chain, so that
 * jobs are as short beside other work as on an idle machine. */
static void test_the_hand_behind_a_chain_is_stolen(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 2, 1, NULL);
    for (int round = 0; round < 12; round++) {
        struct holdup held = {0};
        /* the jobs of `fast` show the pool that the handler is fast, so that a thread takes several
         * jobs at once */
        struct many fast = make_many(100, "go"), m = make_many(LINKS, "go"),
                    other = make_many(OTHERS, "go");
        x.h.saw = NULL;
        lw_pool_submit(x.p, fast.jobs, 100);
        reap(&x, fast.out, 100);
        x.h.saw = hold_up;
        x.h.ctx = &held;
        chain(m.jobs, LINKS);
        struct lw_job *jobs[1 + OTHERS] = {m.jobs[0]}, *out[LINKS + OTHERS];
        for (int k = 0; k < OTHERS; k++) {
            other.jobs[k]->offset = 1000 + k;
            jobs[k + 1] = other.jobs[k];
        }
        lw_pool_submit(x.p, jobs, 1 + OTHERS);
        reap(&x, out, LINKS + OTHERS);
        assert_in_order(out, LINKS + OTHERS, 0, LINKS);
        assert_true(held.stolen);
        free_many(&fast);
        free_many(&m);
        free_many(&other);
    }
    close_fx(&x);
}

static void test_close_in_a_chain(void **state) {
    (void)state;
    for (size_t batch = 1; batch <= 4; batch += 3) {
        struct fx x;
        open_fx(&x, &type, 1, batch, NULL);
        /* the chain is so long that lw_pool_close() does not wait for its end */
        struct many m = make_many(20000, "sleep");
        chain(m.jobs, 20000);
        lw_pool_submit(x.p, m.jobs, 1);
        wait_for(x.h.runs > 3);
        close_fx(&x);
        assert_int_equal(m.jobs[19999]->outcome, UNTOUCHED);
        free_many(&m);
    }
}

/* --- all of it at random ---------------------------------------------------------------------- */

enum { LANES = 24, EACH = 400, AHEAD = 5 };

struct lane {
    struct many m;
    /* jobs with an index below `submitted` have been given to the pool or linked behind another
     * job */
    int submitted;
    int reaped; /* jobs below this index have been reaped */
    /* the handler changes `effects` without a mutex, because a chain runs its jobs in order */
    int64_t effects;
};

/* Counts the effects of each key, and marks a job that runs out of the order of its chain. If two
 * runs of a key have no happens-before relation, they are a data race on the counter, which TSan
 * reports. */
static void effect(struct lw_handler *h, int slot, struct lw_job **jobs, size_t n) {
    (void)slot;
    struct lane *lanes = h->ctx;
    bool retry = false;
    for (size_t i = 0; i < n; i++) {
        struct lane *l = &lanes[jobs[i]->partition];
        /* a job must not run if an earlier job of its key in the batch is not done */
        if (retry && jobs[i - 1]->partition == jobs[i]->partition) continue;
        retry = jobs[i]->payload.p[0] == 'r';
        if (l->effects != jobs[i]->offset) jobs[i]->payload = lw_bytes_of("out of order");
        if (!retry) l->effects++;
        /* Cancels the lease of some jobs. The jobs behind such a job must come back without having
         * run. */
        if (jobs[i]->offset % 97 == 96) atomic_store(&jobs[i]->lease->cancelled, true);
    }
}

/* Gives the pool the next jobs of a lane: links them behind the lane's last job, or submits
 * them. */
static void go_on(struct fx *x, struct lane *l, int want) {
    while (want-- > 0 && l->submitted < EACH && l->submitted - l->reaped < AHEAD) {
        struct lw_job *job = l->m.jobs[l->submitted];
        bool first = l->submitted == l->reaped;
        /* If it is too late to link the next job behind the job before it, the next job is
         * submitted when the job before it has been reaped. */
        if (!first && !lw_job_then(l->m.jobs[l->submitted - 1], job)) return;
        l->submitted++;
        if (first) lw_pool_submit(x->p, &job, 1);
    }
}

static void take_back(struct lane *l, struct lw_job *job) {
    /* unlinks the unfinished jobs of the lane, of which only the first was started */
    for (int i = l->reaped; i < l->submitted; i++) l->m.jobs[i]->then = NULL;
    l->submitted = l->reaped;
    atomic_store(&job->lease->cancelled, false);
    if (job->outcome == LW_RETRY) job->payload = lw_bytes_of("go");
}

static void links_at_random(int threads, size_t batch, enum lw_batch_of of) {
    struct fx x;
    unsigned chance = 7;
    static struct lane lanes[LANES];
    memset(lanes, 0, sizeof lanes);
    open_fx_of(&x, &type, threads, batch, of, NULL);
    x.h.saw = effect;
    x.h.ctx = lanes;
    for (int i = 0; i < LANES; i++) {
        lanes[i].m = make_many(EACH, "go");
        for (int k = 0; k < EACH; k++) {
            struct lw_job *job = lanes[i].m.jobs[k];
            job->partition = i;
            job->lease = &lanes[i].m.j[0].lease;
            if (rand_r(&chance) % 23 == 0) job->payload = lw_bytes_of("retry");
        }
        go_on(&x, &lanes[i], 1 + i % AHEAD);
    }
    int retries = 0, backs = 0;
    for (int left = LANES * EACH; left;) {
        struct lw_job *out[16];
        size_t n = lw_pool_reap(x.p, out, 16);
        if (!n) {
            struct pollfd pf = {.fd = x.fd, .events = POLLIN};
            if (poll(&pf, 1, 120000) != 1) fail_msg("no signal; %d left", left);
            uint64_t v;
            assert_int_equal(read(x.fd, &v, 8), 8);
        }
        for (size_t i = 0; i < n; i++) {
            struct lane *l = &lanes[out[i]->partition];
            /* the jobs of a lane must be reaped in the order of offsets, and a job that was not
             * done must come again before the next job */
            assert_int_equal(out[i]->offset, l->reaped);
            assert_string_not_equal(out[i]->payload.p, "out of order");
            if (out[i]->outcome == LW_DONE) {
                l->reaped++, left--;
                if (l->submitted < l->reaped) fail_msg("a job was run that nobody linked");
            } else {
                retries += out[i]->outcome == LW_RETRY;
                backs += out[i]->outcome == LW_BACK;
                take_back(l, out[i]);
            }
            /* each lane must always have a job in the pool */
            go_on(&x, l, l->submitted == l->reaped ? 1 : 0);
        }
        for (int i = 0; i < 8; i++) go_on(&x, &lanes[rand_r(&chance) % LANES], rand_r(&chance) % 3);
    }
    assert_true(retries > 0 && backs > 0);
    for (int i = 0; i < LANES; i++) free_many(&lanes[i].m);
    close_fx(&x);
}

static void test_links_at_random(void **state) {
    (void)state;
    links_at_random(3, 1, LW_BATCH_KEYS);
    links_at_random(2, 7, LW_BATCH_KEYS);
    links_at_random(3, 5, LW_BATCH_ONE_KEY);
    links_at_random(2, 40, LW_BATCH_ANY);
}

int main(void) {
    lw_log_setup(LW_LOG_ERROR, false, "test");
    unsetenv("LATCHWORK_JOURNAL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chain_runs_in_order_on_one_thread),
        cmocka_unit_test(test_linked_while_it_runs),
        cmocka_unit_test(test_too_late_to_link),
        cmocka_unit_test(test_not_done_ends_the_chain),
        cmocka_unit_test(test_lease_ends_within_a_chain),
        cmocka_unit_test(test_followers_sit_and_have_a_time_limit),
        cmocka_unit_test(test_several_jobs_of_a_key_in_a_batch),
        cmocka_unit_test(test_a_batch_is_done_in_part),
        cmocka_unit_test(test_a_hot_key_does_not_wait_behind_all_others),
        cmocka_unit_test(test_a_batch_is_reported_at_once),
        cmocka_unit_test(test_followers_come_first_in_the_next_batch),
        cmocka_unit_test(test_chains_do_not_starve_others),
        cmocka_unit_test_setup_teardown(test_the_hand_behind_a_chain_is_stolen, stop_clock,
                                        release_clock),
        cmocka_unit_test(test_close_in_a_chain),
        cmocka_unit_test(test_links_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
