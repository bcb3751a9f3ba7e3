/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the ids of epochs: a younger id sorts after an older one, and ids have random digits. */
#include "queue/epoch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_younger_sorts_behind(void **state) {
    (void)state;
    char old[LW_EPOCH_ID], young[LW_EPOCH_ID];
    lw_epoch_id(1700000000000, UINT64_MAX, UINT64_MAX, old);
    lw_epoch_id(1700000000001, 0, 0, young);
    assert_int_equal(strlen(old), 32);
    assert_int_equal(strlen(young), 32);
    assert_true(strcmp(old, young) < 0);
    assert_int_equal(strspn(old, "0123456789abcdef"), 32);
}

static void the_name_of_a_fleet_has_random_digits(void **state) {
    (void)state;
    char a[LW_EPOCH_ID], b[LW_EPOCH_ID];
    lw_epoch_id(1700000000000, 1, 2, a);
    lw_epoch_id(1700000000000, 2, 2, b);
    assert_int_equal(strncmp(a, b, 11), 0);
    assert_true(strncmp(a, b, 16) != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_younger_sorts_behind),
                                       cmocka_unit_test(the_name_of_a_fleet_has_random_digits)};
    return cmocka_run_group_tests_name("epoch", tests, NULL, NULL);
}
