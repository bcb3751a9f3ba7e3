/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the table of leases. In any order of grants, extensions and renewals, each lease must be
 * renewed or cancelled in time for its own deadline. */
#include "lock/lane/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* The header cmocka.h does not include the standard headers that it needs, so it comes last. */
#include <cmocka.h>

enum { TTL_MS = 9000, MANY = 300, STEPS = 20000 };

struct world {
    struct lw_leases *table;
    struct lw_lease lease[MANY];
    bool in[MANY], lost[MANY];
    int64_t now_ms;
    unsigned rng;
};

static unsigned rnd(struct world *w, unsigned n) {
    w->rng = w->rng * 1103515245u + 12345u;
    return (w->rng >> 8) % n;
}

static int64_t left_ms(const struct world *w, int i) {
    return atomic_load(&w->lease[i].held.deadline_ms) - w->now_ms;
}

static void check_due(struct world *w) {
    static struct lw_due due[MANY];
    bool told[MANY] = {false};
    size_t n = lw_leases_due(w->table, 0, w->now_ms, due, MANY);
    for (size_t k = 0; k < n; k++) told[due[k].lease - w->lease] = true;
    for (int i = 0; i < MANY; i++) {
        bool wanted =
            w->in[i] && !w->lost[i] && left_ms(w, i) > 0 && left_ms(w, i) <= TTL_MS - TTL_MS / 3;
        if (told[i] != wanted)
            fail_msg("lease %d ends in %lld ms: due for renewal %d, told %d", i,
                     (long long)left_ms(w, i), wanted, told[i]);
    }
}

static void check_fence(struct world *w) {
    lw_leases_fence(w->table, w->now_ms);
    for (int i = 0; i < MANY; i++)
        if (w->in[i] && left_ms(w, i) <= TTL_MS / 3 && !atomic_load(&w->lease[i].held.cancelled))
            fail_msg("lease %d ends in %lld ms and is not cancelled", i, (long long)left_ms(w, i));
}

/* Takes the answers to a renewal of some of the leases that are due, as if the renewal had been
 * sent a while ago. The answer '0' means that the lease is lost. */
static void renew_some(struct world *w) {
    static struct lw_due due[LW_RENEW_BATCH];
    char answers[LW_RENEW_BATCH];
    size_t n = lw_leases_due(w->table, 0, w->now_ms, due, 1 + rnd(w, LW_RENEW_BATCH));
    for (size_t k = 0; k < n; k++) {
        answers[k] = rnd(w, 20) ? '1' : '0';
        if (answers[k] == '0') w->lost[due[k].lease - w->lease] = true;
    }
    lw_leases_renewed(w->table, due, n, answers, w->now_ms - (int64_t)rnd(w, TTL_MS / 4));
}

static void change_one(struct world *w) {
    int i = (int)rnd(w, MANY);
    /* most answers come within 50 ms, and the others up to one TTL late */
    int64_t deadline_ms = w->now_ms + TTL_MS - (int64_t)rnd(w, rnd(w, 4) ? 50 : TTL_MS);
    if (!w->in[i])
        lw_leases_add(w->table, &w->lease[i], deadline_ms);
    else if (rnd(w, 2))
        lw_leases_extend(w->table, &w->lease[i], deadline_ms);
    else
        lw_leases_remove(w->table, &w->lease[i]);
    w->in[i] = w->lease[i].id != 0;
    w->lost[i] = false;
}

static void leases_are_looked_at_by_deadline(void **state) {
    (void)state;
    static struct world w;
    w = (struct world){.table = lw_leases_open(1, TTL_MS), .now_ms = 1000000, .rng = 7};
    for (int i = 0; i < MANY; i++)
        w.lease[i].lane = lw_bytes("k", 1), w.lease[i].token = (uint64_t)i + 1;
    for (int step = 0; step < STEPS; step++) {
        w.now_ms += rnd(&w, 30);
        if (rnd(&w, 8))
            change_one(&w);
        else
            renew_some(&w);
        check_due(&w);
        check_fence(&w);
    }
    for (int i = 0; i < MANY; i++) lw_leases_remove(w.table, &w.lease[i]);
    lw_leases_close(w.table);
}

/* The answer that grants a lease waits in the main loop while other leases are renewed. The new
 * lease must still be renewed in time. */
static void a_late_grant_is_renewed(void **state) {
    (void)state;
    struct lw_leases *t = lw_leases_open(1, TTL_MS);
    static struct lw_lease early, late;
    static struct lw_due due[LW_RENEW_BATCH];
    early.lane = late.lane = lw_bytes("k", 1), early.token = 1, late.token = 2;
    lw_leases_add(t, &early, TTL_MS);
    assert_int_equal(lw_leases_due(t, 0, 3500, due, LW_RENEW_BATCH), 1);
    lw_leases_renewed(t, due, 1, "1", 3500);
    /* the grant of this lease was requested at 100 ms, and its answer is read at 3600 ms */
    lw_leases_add(t, &late, 100 + TTL_MS);
    assert_int_equal(lw_leases_due(t, 0, 3600, due, LW_RENEW_BATCH), 1);
    assert_ptr_equal(due[0].lease, &late);
    assert_int_equal(lw_leases_fence(t, 100 + TTL_MS - TTL_MS / 3), 1);
    assert_true(atomic_load(&late.held.cancelled));
    assert_false(atomic_load(&early.held.cancelled));
    lw_leases_close(t);
}

/* A lost lease must not be renewed again. Otherwise a batch of lost leases would take the
 * renewer's time from the other leases. */
static void a_lost_lease_is_not_asked_for_again(void **state) {
    (void)state;
    struct lw_leases *t = lw_leases_open(1, TTL_MS);
    static struct lw_lease lost[LW_RENEW_BATCH], other;
    static struct lw_due due[LW_RENEW_BATCH];
    char answers[LW_RENEW_BATCH];
    memset(answers, '0', sizeof answers);
    other.lane = lw_bytes("k", 1);
    for (int i = 0; i < LW_RENEW_BATCH; i++) {
        lost[i].lane = other.lane;
        lw_leases_add(t, &lost[i], TTL_MS);
    }
    lw_leases_add(t, &other, TTL_MS + 1);
    assert_int_equal(lw_leases_due(t, 0, 4000, due, LW_RENEW_BATCH), LW_RENEW_BATCH);
    assert_int_equal(lw_leases_renewed(t, due, LW_RENEW_BATCH, answers, 4000), LW_RENEW_BATCH);
    assert_int_equal(lw_leases_due(t, 0, 4001, due, LW_RENEW_BATCH), 1);
    assert_ptr_equal(due[0].lease, &other);
    /* settle's answer shows that the worker still has this lease, so the lease must be renewed
     * again */
    lw_leases_extend(t, &lost[0], 4001 + TTL_MS);
    assert_int_equal(lw_leases_due(t, 0, 8000, due, LW_RENEW_BATCH), 2);
    lw_leases_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_are_looked_at_by_deadline),
        cmocka_unit_test(a_late_grant_is_renewed),
        cmocka_unit_test(a_lost_lease_is_not_asked_for_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
