/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the C code and the lane scripts share: the words for outcomes, and the encoding of
 * states in bytes. */
#include "queue/codes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void each_outcome_has_a_word(void **state) {
    (void)state;
    static const enum lw_outcome all[] = {LW_DONE, LW_RETRY,     LW_DEAD,
                                          LW_BACK, LW_DEAD_SENT, LW_LATER};
    static const char *const words[] = {"done", "retry", "dead", "back", "sent", "later"};
    static const bool ends[] = {true, false, true, false, true, false};
    for (size_t i = 0; i < 6; i++) {
        enum lw_outcome got = 0;
        assert_string_equal(lw_outcome_word(all[i]), words[i]);
        assert_true(lw_outcome_of(words[i], &got));
        assert_int_equal(got, all[i]);
        assert_int_equal(lw_outcome_ends(all[i]), ends[i]);
    }
}

static void another_word_is_no_outcome(void **state) {
    (void)state;
    enum lw_outcome got = LW_DEAD;
    assert_false(lw_outcome_of("", &got));
    assert_false(lw_outcome_of("DONE", &got));
    assert_false(lw_outcome_of("don", &got));
    assert_int_equal(got, LW_DEAD);
}

static void four_states_stand_in_a_byte(void **state) {
    (void)state;
    /* the byte 0x87 has the bits 10 00 01 11, two bits for each state */
    static const enum lw_state states[] = {LW_STATE_DONE, LW_STATE_UNSEEN, LW_STATE_WAITING,
                                           LW_STATE_DEAD};
    for (int64_t offset = 0; offset < 8; offset++)
        assert_int_equal(lw_state_in((char)0x87, offset), states[offset % 4]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_outcome_has_a_word),
                                       cmocka_unit_test(another_word_is_no_outcome),
                                       cmocka_unit_test(four_states_stand_in_a_byte)};
    return cmocka_run_group_tests_name("codes", tests, NULL, NULL);
}
