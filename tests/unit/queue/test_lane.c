/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the names of lanes: no key has the lane of another key, or of a record without a key. */
#include "queue/lane.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_key_is_its_own_lane(void **state) {
    (void)state;
    char room[LW_LANE_ROOM], longest[LW_LANE_MAX];
    memset(longest, 'k', sizeof longest);
    const struct lw_bytes keys[] = {lw_bytes("", 0), lw_bytes("\0\001", 2), lw_bytes_of("c-17"),
                                    lw_bytes(longest, sizeof longest)};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct lw_bytes lane = lw_lane_id(keys[i], room, sizeof room);
        assert_ptr_equal(lane.p, keys[i].p);
        assert_int_equal(lane.n, keys[i].n);
    }
}

/* The hash is SHA-256, as `sha256sum` prints it. */
static void a_long_key_is_hashed(void **state) {
    (void)state;
    char room[2][LW_LANE_ROOM], key[LW_LANE_MAX + 1];
    memset(key, 'k', sizeof key);
    struct lw_bytes a = lw_lane_id(lw_bytes(key, sizeof key), room[0], LW_LANE_ROOM);
    assert_int_equal(a.n, 6 + 64);
    assert_memory_equal(
        a.p, "\001long:45a7c7ef95c3417e800362f5672aba16da807261fe7121f3a81b0a0fb6b9a05c", a.n);
    key[LW_LANE_MAX] = 'l';
    struct lw_bytes b = lw_lane_id(lw_bytes(key, sizeof key), room[1], LW_LANE_ROOM);
    assert_false(lw_bytes_eq(a, b));
}

/* A stranger sends the name of another lane as a key. It must get a lane of its own. */
static void no_key_is_the_name_of_another_lane(void **state) {
    (void)state;
    char room[3][LW_LANE_ROOM], key[LW_LANE_MAX + 1];
    memset(key, 'k', sizeof key);
    const struct lw_bytes victims[] = {lw_lane_id(lw_bytes(key, sizeof key), room[0], LW_LANE_ROOM),
                                       lw_lane_without_key("orders:0", 7, room[1], LW_LANE_ROOM)};
    for (size_t i = 0; i < 2; i++) {
        struct lw_bytes lane = lw_lane_id(victims[i], room[2], LW_LANE_ROOM);
        assert_false(lw_bytes_eq(lane, victims[i]));
        assert_int_equal(lane.n, 6 + 64);
        assert_false(lw_lane_lacks_key(lane));
    }
    assert_true(lw_lane_lacks_key(victims[1]));
}

static void a_person_may_name_a_lane(void **state) {
    (void)state;
    char room[3][LW_LANE_ROOM], key[LW_LANE_MAX + 1];
    memset(key, 'k', sizeof key);
    struct lw_bytes lane = lw_lane_id(lw_bytes(key, sizeof key), room[0], LW_LANE_ROOM);
    assert_true(lw_bytes_eq(lw_lane_named(lane, room[2], LW_LANE_ROOM), lane));
    assert_true(lw_bytes_eq(lw_lane_named(lw_bytes(key, sizeof key), room[2], LW_LANE_ROOM), lane));
    struct lw_bytes without = lw_lane_without_key("orders:0", 7, room[1], LW_LANE_ROOM);
    assert_true(lw_bytes_eq(lw_lane_named(without, room[2], LW_LANE_ROOM), without));
    /* a key that begins with byte 1, but is no lane's name */
    struct lw_bytes other = lw_bytes_of("\001other");
    assert_int_equal(lw_lane_named(other, room[2], LW_LANE_ROOM).n, 6 + 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_key_is_its_own_lane),
                                       cmocka_unit_test(a_long_key_is_hashed),
                                       cmocka_unit_test(no_key_is_the_name_of_another_lane),
                                       cmocka_unit_test(a_person_may_name_a_lane)};
    return cmocka_run_group_tests_name("lane", tests, NULL, NULL);
}
