/* SPDX-License-Identifier: Apache-2.0 */
/* Tests scripts that are called by a Redis user without the right to one of their commands. The
 * script must end with an error, and must not mistake the refusal of the command for a key of the
 * wrong type or a missing message. When the right is granted, the same call must do its work. */
#include "tests/support/lanes.h"

#include <string.h>

#include <cmocka.h>

static void take(struct lt *l, const char *right) {
    assert_string_equal(lt_text(l, "ACL SETUSER lane %s", right), "OK");
}

/* Makes the call twice. Without the right to `command` the call must fail, and with this right the
 * call must give the answer. */
#define DENIED(l, command, call, answer)      \
    do {                                      \
        take(l, "-" command);                 \
        assert_memory_equal(call, "-ERR", 4); \
        take(l, "+" command);                 \
        assert_string_equal(call, answer);    \
    } while (0)

static void gate_may_not_lock(void **state) {
    struct lt *l = *state;
    const struct lt_msg m = lt_msg(0, 0, "a", "t1");
    DENIED(l, "set", lt_gate(l, &m, 1), "R");
}

static void gate_may_not_read_the_lock(void **state) {
    struct lt *l = *state;
    const struct lt_msg first = lt_msg(0, 0, "a", "t1"), second = lt_msg(0, 1, "a", "t2"),
                        third = lt_msg(0, 2, "a", "t3");
    lt_gate(l, &first, 1);
    lt_gate(l, &second, 1);
    DENIED(l, "get", lt_gate(l, &third, 1), "W");
    assert_string_equal(lt_waiting(l, first), "0/1 0/2");
}

static void gate_may_not_park(void **state) {
    struct lt *l = *state;
    const struct lt_msg first = lt_msg(0, 0, "a", "t1"), second = lt_msg(0, 1, "a", "t2");
    lt_gate(l, &first, 1);
    DENIED(l, "lpush", lt_gate(l, &second, 1), "W");
    assert_string_equal(lt_waiting(l, first), "0/1");
    assert_int_equal(lt_state(l, second), 1);
}

static void park_and_free(struct lt *l) {
    const struct lt_msg first = lt_msg(0, 0, "a", "t1"), second = lt_msg(0, 1, "a", "t2");
    lt_gate(l, &first, 1);
    lt_gate(l, &second, 1);
    lt_free_lock(l, first);
}

static void claim_may_not_read_the_lock(void **state) {
    struct lt *l = *state;
    const struct lt_msg lane = lt_msg(0, 0, "a", "t3");
    park_and_free(l);
    DENIED(l, "get", lt_claim(l, &lane, 1), "N");
}

static void claim_may_not_read_the_list(void **state) {
    struct lt *l = *state;
    const struct lt_msg lane = lt_msg(0, 0, "a", "t3");
    park_and_free(l);
    DENIED(l, "lrange", lt_claim(l, &lane, 1), "N");
    assert_string_equal(lt_waiting(l, lane), "0/1");
}

static void claim_may_not_keep_what_is_not_ours(void **state) {
    struct lt *l = *state;
    const struct lt_msg lane = lt_msg(0, 0, "a", "t3");
    park_and_free(l);
    lt_int(l, "RPUSH " LT_TAG "wait:a torn");
    DENIED(l, "xadd", lt_claim(l, &lane, 1), "N");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 1);
}

/* The floor has risen when DEL fails. Redis must know by then which segments are to be deleted,
 * because a later call of floor looks for them only there. */
static void floor_may_not_delete(void **state) {
    struct lt *l = *state;
    for (int segment = 0; segment < 2; segment++)
        lt_int(l, "HSET " LT_TAG "tries:orders:3:%d 1 x", segment);
    lt_floor(l, "orders:3", 0, 0);
    DENIED(l, "del", lt_floor(l, "orders:3", 2 * 16384, 0), "OK");
    for (int segment = 0; segment < 2; segment++)
        assert_int_equal(lt_int(l, "EXISTS " LT_TAG "tries:orders:3:%d", segment), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "sweep"), 0);
}

static void gate_may_not_look_for_duplicates(void **state) {
    struct lt *l = *state;
    struct lt_msg first = lt_msg(0, 0, "a", "t1"), again = lt_msg(0, 1, "b", "t2");
    first.dedup = again.dedup = "1:a x";
    l->window_s = 60;
    lt_gate(l, &first, 1);
    first.outcome = "done";
    lt_settle(l, &first, 1);
    DENIED(l, "get", lt_gate(l, &again, 1), "U");
}

static void keys_are_rights_too(void **state) {
    struct lt *l = *state;
    const struct lt_msg first = lt_msg(0, 0, "a", "t1"), second = lt_msg(0, 1, "a", "t2");
    lt_gate(l, &first, 1);
    lt_text(l, "ACL SETUSER lane resetkeys ~" LT_TAG "[^w]*");
    assert_memory_equal(lt_gate(l, &second, 1), "-ERR", 4);
    lt_text(l, "ACL SETUSER lane resetkeys ~" LT_TAG "*");
    assert_string_equal(lt_gate(l, &second, 1), "W");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(gate_may_not_lock),           LT(gate_may_not_read_the_lock),
        LT(gate_may_not_park),           LT(claim_may_not_read_the_lock),
        LT(claim_may_not_read_the_list), LT(claim_may_not_keep_what_is_not_ours),
        LT(floor_may_not_delete),        LT(gate_may_not_look_for_duplicates),
        LT(keys_are_rights_too),
    };
    return LT_RUN(tests, LT_PLAIN);
}
