/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `renew`, which extends leases that the caller still has, and never takes a
 * lock. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t left(struct lt *l, struct lt_msg m) {
    return lt_int(l, "PTTL " LT_TAG "lock:%b", m.lane.p, m.lane.n);
}
static void shorten(struct lt *l, struct lt_msg m) {
    lt_int(l, "PEXPIRE " LT_TAG "lock:%b 1000", m.lane.p, m.lane.n);
}

static void only_what_is_mine(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 1, "a", "t1"), lt_msg(0, 2, "b", "t1"), lt_msg(0, 3, "c", "t1"),
                         lt_msg(0, 4, "d", "t1"), lt_msg(0, 5, "e", "t1")};
    assert_string_equal(lt_gate(l, m, 5), "RRRRR");
    for (size_t i = 0; i < 5; i++) shorten(l, m[i]);
    lt_free_lock(l, m[1]);
    m[2].token = "other";
    /* The caller's token is a prefix of the holder's token, but not the same token. */
    m[3].token = "t";
    assert_string_equal(lt_renew(l, m, 5), "10001");
    assert_true(left(l, m[0]) > 1000 && left(l, m[0]) <= LT_TTL_MS);
    assert_int_equal(left(l, m[1]), -2); /* renew has not taken the lock of an ended lease again */
    assert_true(left(l, m[2]) <= 1000);
    assert_true(left(l, m[3]) <= 1000);
    assert_true(left(l, m[4]) > 1000);
}

static void a_backoff_is_nobodys(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "w.1"), "retry", "next");
    lt_text(l, "SET " LT_TAG "lock:k w.1:1 PX 60000");
    m.backoff_ms = 1000;
    lt_settle(l, &m, 1);
    assert_string_equal(lt_lock(l, m), "backoff");
    assert_string_equal(lt_renew(l, &m, 1), "0");
}

static void other_types_are_not_mine(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 1, "a", "t1"), lt_msg(0, 2, "b", "t1")};
    lt_gate(l, m, 2);
    lt_free_lock(l, m[0]);
    lt_int(l, "LPUSH " LT_TAG "lock:a x");
    assert_string_equal(lt_renew(l, m, 2), "01");
    assert_int_equal(left(l, m[0]), -1);
}

static void a_full_batch_of_any_bytes(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[LT_BATCH_MAX];
    static char lanes[LT_BATCH_MAX][3];
    char want[LT_BATCH_MAX + 1] = "";
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        memcpy(lanes[i], (char[]){(char)i, '\0', '}'}, 3);
        m[i] = lt_msg_bytes(0, i, lw_bytes(lanes[i], 3), "t1");
        want[i] = i % 3 ? '1' : '0';
    }
    lt_gate(l, m, LT_BATCH_MAX);
    for (int i = 0; i < LT_BATCH_MAX; i += 3) lt_free_lock(l, m[i]);
    assert_string_equal(lt_renew(l, m, LT_BATCH_MAX), want);
}

static void the_running_message_is_noted(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 1, "a", "t1"), lt_msg(0, 2, "b", "t1"), lt_msg(0, 3, "c", "t1")};
    assert_string_equal(lt_gate(l, m, 3), "RRR");
    m[0].run = "orders/0/1 2 1700";
    m[2].run = "orders/0/3 1 1700";
    m[2].token = "t2";
    assert_string_equal(lt_renew(l, m, 3), "110");
    char want[200];
    snprintf(want, sizeof want, "%s orders/0/1 2 1700", lt_text(l, "GET " LT_TAG "lock:a"));
    assert_string_equal(lt_text(l, "GET " LT_TAG "run:a"), want);
    int64_t ends = lt_int(l, "PTTL " LT_TAG "run:a");
    assert_true(ends > 0 && ends <= LT_TTL_MS);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "run:b " LT_TAG "run:c"), 0);
}

static void another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "t1");
    lt_gate(l, &m, 1);
    shorten(l, m);
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_string_equal(lt_renew(l, &m, 1), "LOST");
    assert_true(left(l, m) <= 1000);
    lt_text(l, "FLUSHALL");
    assert_string_equal(lt_renew(l, &m, 1), "LOST");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(only_what_is_mine),
        LT(a_backoff_is_nobodys),
        LT(other_types_are_not_mine),
        LT(a_full_batch_of_any_bytes),
        LT(the_running_message_is_noted),
        LT(another_epoch_is_lost),
    };
    return LT_RUN(tests, LT_ALL);
}
