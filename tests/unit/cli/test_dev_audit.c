/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the audit of `latchwork dev --demo` (cli/dev/audit.h) on journals written by hand. The
 * audit must report each fault in a journal, and nothing else. */
#include "cli/dev/audit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct dev_audit audit;
static struct lw_err err;

static int judge(const char *journal, struct dev_killed killed, int64_t end) {
    char path[] = "/tmp/lw-audit-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, journal, strlen(journal)), strlen(journal));
    close(fd);
    struct dev_end ends[] = {{"t", 0, end}};
    err = (struct lw_err){0};
    int r = dev_audit_read(&audit, path, killed, ends, 1, &err);
    unlink(path);
    return r;
}

static const struct dev_killed nobody = {0, 0};

static void expect(int64_t runs, int64_t reruns, int64_t overlaps, int64_t misordered,
                   int64_t unfinished, int64_t open) {
    assert_int_equal(audit.runs, runs);
    assert_int_equal(audit.reruns, reruns);
    assert_int_equal(audit.overlaps, overlaps);
    assert_int_equal(audit.misordered, misordered);
    assert_int_equal(audit.unfinished, unfinished);
    assert_int_equal(audit.open, open);
    assert_true((audit.examples.n > 0) == (overlaps + misordered + unfinished + open > 0));
    dev_audit_free(&audit);
}

static void test_all_is_well(void **state) {
    (void)state;
    assert_int_equal(judge("start 10 7 t/0/0 aa 1 1\nstart 11 8 t/0/1 bb 2 1\nend 20 7 t/0/0 aa 1 "
                           "1 done\nend 21 8 t/0/1 bb 2 1 done\n"
                           "start 20 8 t/0/2 aa 3 1\nend 30 8 t/0/2 aa 3 1 done\n",
                           nobody, 3),
                     0);
    expect(3, 0, 0, 0, 0, 0);
}

static void test_two_at_one_key(void **state) {
    (void)state;
    assert_int_equal(judge("start 10 7 t/0/0 aa 1 1\nstart 19 8 t/0/1 aa 2 1\nend 20 7 t/0/0 aa 1 "
                           "1 done\nend 21 8 t/0/1 aa 2 1 done\n",
                           nobody, 2),
                     0);
    expect(2, 0, 1, 0, 0, 0);
}

/* A run must be compared with the earlier run that ends last, even if that run is not the one that
 * started last. Otherwise some overlaps would not be found. */
static void test_one_inside_a_long_one(void **state) {
    (void)state;
    assert_int_equal(judge("start 10 7 t/0/0 aa 1 1\nstart 12 8 t/0/1 aa 2 1\nend 13 8 t/0/1 aa 2 "
                           "1 done\nstart 14 8 t/0/2 aa 3 1\n"
                           "end 15 8 t/0/2 aa 3 1 done\nend 90 7 t/0/0 aa 1 1 done\n",
                           nobody, 3),
                     0);
    expect(3, 0, 2, 2 - 1, 0, 0);
}

static void test_given_back_holds_nothing(void **state) {
    (void)state;
    assert_int_equal(judge("start 10 7 t/0/0 aa 1 1\nstart 15 8 t/0/0 aa 2 1\nend 20 7 t/0/0 aa 1 "
                           "1 back\nend 21 8 t/0/0 aa 2 1 done\n",
                           nobody, 1),
                     0);
    assert_int_equal(audit.given_back, 1);
    expect(2, 1, 0, 0, 0, 0);
}

static void test_killed(void **state) {
    (void)state;
    static const char journal[] =
        "start 10 7 t/0/0 aa 1 1\nstart 50 8 t/0/0 aa 2 2\nend 60 8 t/0/0 aa 2 2 done\n";
    assert_int_equal(judge(journal, (struct dev_killed){7, 40}, 1), 0);
    assert_int_equal(audit.cut, 1);
    expect(2, 1, 0, 0, 0, 0);
    /* the process was killed after the second run had begun, so the two runs overlap */
    assert_int_equal(judge(journal, (struct dev_killed){7, 55}, 1), 0);
    expect(2, 1, 1, 0, 0, 0);
    /* process 7, whose run has no end in the journal, was not killed, so the audit must report that
     * this run has not ended */
    assert_int_equal(judge(journal, (struct dev_killed){9, 40}, 1), 0);
    expect(2, 1, 1, 0, 0, 1);
}

static void test_out_of_order(void **state) {
    (void)state;
    assert_int_equal(judge("start 10 7 t/0/1 aa 1 1\nend 11 7 t/0/1 aa 1 1 done\nstart 12 7 t/0/0 "
                           "aa 2 1\nend 13 7 t/0/0 aa 2 1 done\n",
                           nobody, 2),
                     0);
    expect(2, 0, 0, 1, 0, 0);
    /* A message is done, and is done again after a later message. For the order, only the first
     * time counts. */
    assert_int_equal(judge("start 10 7 t/0/0 aa 1 1\nend 11 7 t/0/0 aa 1 1 done\nstart 12 7 t/0/1 "
                           "aa 2 1\nend 13 7 t/0/1 aa 2 1 done\n"
                           "start 14 7 t/0/0 aa 3 1\nend 15 7 t/0/0 aa 3 1 done\n",
                           nobody, 2),
                     0);
    expect(3, 1, 0, 0, 0, 0);
    /* The check of the message order ignores a run with the outcome retry. */
    assert_int_equal(judge("start 10 7 t/0/1 aa 1 1\nend 11 7 t/0/1 aa 1 1 retry\nstart 12 7 t/0/0 "
                           "aa 2 1\nend 13 7 t/0/0 aa 2 1 done\n"
                           "start 14 7 t/0/1 aa 3 2\nend 15 7 t/0/1 aa 3 2 done\n",
                           nobody, 2),
                     0);
    assert_int_equal(audit.failed, 1);
    expect(3, 1, 0, 0, 0, 0);
}

static void test_unfinished(void **state) {
    (void)state;
    assert_int_equal(judge("start 10 7 t/0/0 aa 1 1\nend 11 7 t/0/0 aa 1 1 done\nstart 12 7 t/0/1 "
                           "aa 2 1\nend 13 7 t/0/1 aa 2 1 dead\n",
                           nobody, 4),
                     0);
    expect(2, 0, 0, 0, 3, 0);
    assert_int_equal(judge("", nobody, 1), 0);
    expect(0, 0, 0, 0, 1, 0);
}

static void test_not_a_journal(void **state) {
    (void)state;
    static const char *const bad[] = {
        "start 10 7 t/0/0 aa 1\n",
        "begin 10 7 t/0/0 aa 1 1\n",
        "start 10 7 identity aa 1 1\n",
        "end 10 7 t/0/0 aa 1 1 done\n",
        "start 10 7 t/0/0 aa 1 1\nstart 11 7 t/0/0 aa 1 1\n",
        "start 10 7 t/0/0 aa 1 1\nend 11 7 t/0/0 aa 1 1 done\nend 12 7 t/0/0 aa 1 1 done\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(judge(bad[i], nobody, 0), -1);
        assert_true(err.text[0] != '\0');
        dev_audit_free(&audit);
    }
    assert_int_equal(dev_audit_read(&audit, "/nonexistent/journal", nobody, NULL, 0, &err), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_well),
        cmocka_unit_test(test_two_at_one_key),
        cmocka_unit_test(test_one_inside_a_long_one),
        cmocka_unit_test(test_given_back_holds_nothing),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_unfinished),
        cmocka_unit_test(test_not_a_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
