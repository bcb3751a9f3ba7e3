/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the functions of the feed that the loops of all handler types share: which job is next,
 * which job may start, and how a job is given back. */
#include "tests/support/handler_fixture.h"

#include "handlers/job_queue.h"

enum { NOW_MS = 1000, MARGIN_MS = 100 };

struct fx {
    struct lw_feed *feed;
    struct lw_job_queue line;
    struct fx_job j[4];
    struct lw_job *jobs[4], *ended[8];
};

static void open_fx(struct fx *x) {
    struct lw_err err = {0};
    memset(x, 0, sizeof *x);
    lw_jobs_clear(&x->line);
    x->feed = lw_feed_open(&(struct lw_feed_setup){.notify_fd = -1}, &err);
    assert_non_null(x->feed);
    for (int i = 0; i < 4; i++) {
        x->jobs[i] = fx_job(&x->j[i], i, "k", "");
        x->j[i].lease.deadline_ms = NOW_MS + 10 * MARGIN_MS;
    }
}

static size_t reap(struct fx *x) {
    lw_feed_publish(x->feed);
    return lw_feed_reap(x->feed, x->ended, 8);
}

static void test_margin(void **state) {
    (void)state;
    assert_int_equal(lw_feed_margin_ms(10000), 1000);
    assert_int_equal(lw_feed_margin_ms(501), 50);
    /* a tenth of this lease is too little time to kill a process, so the margin is 50 ms */
    assert_int_equal(lw_feed_margin_ms(100), 50);
}

static void test_first_keeps_the_order(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x);
    assert_null(lw_feed_first(x.feed, &x.line));
    lw_feed_submit(x.feed, x.jobs, 2);
    assert_ptr_equal(lw_feed_first(x.feed, &x.line), x.jobs[0]);
    lw_feed_submit(x.feed, x.jobs + 2, 2);
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(lw_feed_first(x.feed, &x.line), x.jobs[i]);
        assert_ptr_equal(lw_jobs_pop(&x.line), x.jobs[i]);
    }
    assert_null(lw_feed_first(x.feed, &x.line));
    lw_feed_close(x.feed);
}

/* A follower that gives way to others goes behind a job that was submitted meanwhile. */
static void test_a_new_job_comes_before_followers(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x);
    lw_feed_submit(x.feed, x.jobs, 1);
    assert_ptr_equal(lw_feed_first(x.feed, &x.line), x.jobs[0]);
    lw_feed_submit(x.feed, x.jobs + 1, 1);
    assert_non_null(lw_feed_first(x.feed, &x.line));
    lw_jobs_append(&x.line, x.jobs[2]);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(lw_feed_first(x.feed, &x.line), x.jobs[i]);
        assert_ptr_equal(lw_jobs_pop(&x.line), x.jobs[i]);
    }
    lw_feed_close(x.feed);
}

static void test_startable_until_the_margin(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x);
    int64_t end_ms = x.j[0].lease.deadline_ms - MARGIN_MS;
    assert_int_equal(lw_feed_lease_end(x.jobs[0], MARGIN_MS), end_ms);
    assert_true(lw_feed_startable(x.jobs[0], end_ms - 1, MARGIN_MS));
    assert_false(lw_feed_startable(x.jobs[0], end_ms, MARGIN_MS));
    atomic_store(&x.j[0].lease.cancelled, true);
    assert_false(lw_feed_startable(x.jobs[0], NOW_MS, MARGIN_MS));
    lw_feed_close(x.feed);
}

/* A closed job gets no follower any more. When lw_job_gather() collects a batch, it closes all jobs
 * but the last. When a job is given back, it must be closed only if it is not closed yet. */
static void test_give_back_closes_a_job_once(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x);
    struct lw_job *chain[2];
    assert_true(lw_job_then(x.jobs[0], x.jobs[1]));
    assert_int_equal(lw_job_gather((chain[0] = x.jobs[0], chain), 2), 2);
    lw_feed_give_back(x.feed, x.jobs[0]);
    lw_feed_give_back(x.feed, x.jobs[2]);
    assert_false(lw_job_then(x.jobs[2], x.jobs[3]));
    assert_int_equal(reap(&x), 2);
    assert_ptr_equal(x.ended[0], x.jobs[0]);
    assert_ptr_equal(x.ended[1], x.jobs[2]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(x.ended[i]->outcome, LW_BACK);
        assert_int_equal(x.ended[i]->took_us, 0); /* the job was given back without a run */
    }
    lw_feed_close(x.feed);
}

static void test_sweep(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x);
    for (int i = 0; i < 4; i++) lw_jobs_append(&x.line, x.jobs[i]);
    x.j[1].lease.deadline_ms = NOW_MS + MARGIN_MS;
    lw_feed_sweep(x.feed, &x.line, NOW_MS, MARGIN_MS, false);
    assert_int_equal(reap(&x), 1);
    assert_ptr_equal(x.ended[0], x.jobs[1]);
    assert_ptr_equal(lw_jobs_pop(&x.line), x.jobs[0]);
    lw_feed_sweep(x.feed, &x.line, NOW_MS, MARGIN_MS, true);
    assert_int_equal(reap(&x), 2);
    assert_ptr_equal(x.ended[1], x.jobs[3]);
    assert_null(x.line.head);
    lw_feed_close(x.feed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_margin),
        cmocka_unit_test(test_first_keeps_the_order),
        cmocka_unit_test(test_a_new_job_comes_before_followers),
        cmocka_unit_test(test_startable_until_the_margin),
        cmocka_unit_test(test_give_back_closes_a_job_once),
        cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
