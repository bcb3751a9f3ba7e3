/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define A "07c37dfeb235213a872192d90877d0cd55635b91"
#define B "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1"
#define C "292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f"

static const char seen_by_a[] =
    A " 127.0.0.1:30004@31004,host myself,master - 0 1426238317239 4 connected 0-99 7000 [7000->-" B
      "] [7002-<-" C "]\n" B
      " 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5461-6999 7001-10922\n" C
      " 127.0.0.1:30003@31003 slave,fail " B " 0 1426238318243 3 connected\n";

static enum lw_slot_at at(const char *nodes, int slot) {
    struct lw_cluster_node n;
    assert_true(lw_nodes_self(nodes, slot, &n));
    return n.slot;
}

static void test_who_answers(void **state) {
    (void)state;
    struct lw_cluster_node n;
    assert_true(lw_nodes_self(seen_by_a, 5, &n));
    assert_string_equal(n.id, A);
    assert_string_equal(n.config_epoch, "4");
    assert_true(n.master);
}

static void test_whose_a_slot_is(void **state) {
    (void)state;
    assert_int_equal(at(seen_by_a, 0), LW_SLOT_WHOLE);
    assert_int_equal(at(seen_by_a, 99), LW_SLOT_WHOLE);
    assert_int_equal(at(seen_by_a, 100), LW_SLOT_ELSEWHERE);
    assert_int_equal(at(seen_by_a, 7000), LW_SLOT_LEAVING);
    /* another line of the reply says that slot 7001 belongs to another node */
    assert_int_equal(at(seen_by_a, 7001), LW_SLOT_ELSEWHERE);
    /* slot 7002 is moving to this node, and the move is not complete */
    assert_int_equal(at(seen_by_a, 7002), LW_SLOT_ELSEWHERE);
}

static void test_who_is_a_master(void **state) {
    (void)state;
    assert_true(lw_nodes_master(seen_by_a, A));
    assert_true(lw_nodes_master(seen_by_a, B));
    assert_false(lw_nodes_master(seen_by_a, C));
    assert_false(lw_nodes_master(seen_by_a, "0000"));
    assert_false(lw_nodes_master("", A));
}

static void test_a_replica_has_no_slot(void **state) {
    (void)state;
    struct lw_cluster_node n;
    assert_true(
        lw_nodes_self(B " :30003@31003 myself,slave " A " 0 1426238318243 3 connected\n", 5, &n));
    assert_false(n.master);
    assert_int_equal(n.slot, LW_SLOT_ELSEWHERE);
}

static void test_what_is_no_answer(void **state) {
    (void)state;
    struct lw_cluster_node n;
    static const char *const texts[] = {
        "",       "\n", "ERR", A " x myself", A " 127.0.0.1:1@2 master - 0 1 4 connected 0-5\n",
        "\n\n \n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(lw_nodes_self(texts[i], 5, &n));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_answers),       cmocka_unit_test(test_whose_a_slot_is),
        cmocka_unit_test(test_who_is_a_master),   cmocka_unit_test(test_a_replica_has_no_slot),
        cmocka_unit_test(test_what_is_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
