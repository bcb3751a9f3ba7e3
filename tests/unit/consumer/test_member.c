/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the ids of static members: what they consist of, and that supervisors on one host never
 * share an id. */
#include "consumer/process/member.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char name[64], *two[] = {(char *)"a", (char *)"b"}, *swapped[] = {(char *)"b", (char *)"a"},
                      *joined[] = {(char *)"ab"};
static struct lw_config config;

static int setup(void **state) {
    (void)state;
    /* the name contains the process id, because other tests run on this host at the same time */
    snprintf(name, sizeof name, "test-member-%d", (int)getpid());
    config = (struct lw_config){.name = name};
    config.kafka.group_id = name;
    config.kafka.topics = two;
    config.kafka.n_topics = 2;
    return 0;
}

static const char *id(int slot, int worker) {
    static char ids[8][LW_MEMBER_MAX];
    static int used;
    char *out = ids[used++ % 8];
    assert_true(lw_member_id(&config, slot, worker, out));
    return out;
}

static void test_id_tells_workers_apart(void **state) {
    (void)state;
    assert_string_equal(id(0, 1), id(0, 1));
    assert_string_not_equal(id(0, 1), id(0, 2));
    assert_string_not_equal(id(0, 1), id(1, 1));
    const char *here = id(0, 0);
    config.kafka.member_id = (char *)"shop-1";
    assert_string_not_equal(here, id(0, 0));
    assert_non_null(strstr(id(0, 0), "-shop-1-0-0-"));
    char none[LW_MEMBER_MAX] = "x";
    assert_false(lw_member_id(&config, -1, 0, none));
    assert_string_equal(none, "");
}

static void test_id_changes_with_the_topics(void **state) {
    (void)state;
    const char *was = id(0, 0);
    config.kafka.topics = swapped;
    assert_string_equal(was, id(0, 0));
    config.kafka.n_topics = 1;
    assert_string_not_equal(was, id(0, 0));
    config.kafka.topics = joined;
    assert_string_not_equal(was, id(0, 0));
}

static void test_id_is_one_that_kafka_takes(void **state) {
    (void)state;
    char longest[101];
    memset(longest, 'm', 100);
    longest[100] = 0;
    config.kafka.member_id = longest;
    memset(name, 'n', sizeof name - 1);
    const char *full = id(LW_MEMBER_SLOTS - 1, 255);
    assert_true(strlen(full) <= 249 && strstr(full, "-63-255-"));
    assert_int_equal(
        strspn(full, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"),
        strlen(full));
}

static void test_slots_are_had_once(void **state) {
    (void)state;
    int a, b, c;
    assert_int_equal(lw_member_claim(&config, &a), 0);
    assert_int_equal(lw_member_claim(&config, &b), 1);
    close(a);
    assert_int_equal(lw_member_claim(&config, &c), 0);
    config.kafka.member_id = (char *)"another";
    assert_int_equal(lw_member_claim(&config, &a), 0);
    close(a), close(b), close(c);
}

static void test_slot_is_free_when_its_process_is_gone(void **state) {
    (void)state;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        _exit(lw_member_claim(&config, &fd));
    }
    int status, fd;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(lw_member_claim(&config, &fd), 0);
    close(fd);
}

static void test_none_when_off_or_used_up(void **state) {
    (void)state;
    int fds[LW_MEMBER_SLOTS], fd = 7;
    for (int i = 0; i < LW_MEMBER_SLOTS; i++)
        assert_int_equal(lw_member_claim(&config, &fds[i]), i);
    assert_int_equal(lw_member_claim(&config, &fd), -1);
    assert_int_equal(fd, -1);
    for (int i = 0; i < LW_MEMBER_SLOTS; i++) close(fds[i]);
    config.kafka.dynamic = true;
    assert_int_equal(lw_member_claim(&config, &fd), -1);
}

static void test_id_of_ones_own(void **state) {
    (void)state;
    static struct lw_property own = {(char *)"group.instance.id", (char *)"shop-7", false};
    const char *made = id(0, 0);
    config.kafka.properties = &own;
    config.kafka.n_properties = 1;
    assert_string_not_equal(made, id(0, 0));
    assert_int_equal(strncmp(id(0, 3), "shop-7-3-", strlen("shop-7-3-")), 0);
    /* an id that is made from the group.instance.id of the configuration must not depend on the
     * member slot */
    assert_string_equal(id(0, 3), id(-1, 3));
    assert_string_not_equal(id(0, 0), id(0, 1));
    const char *was = id(0, 0);
    config.kafka.n_topics = 1;
    assert_string_not_equal(was, id(0, 0));
}

#define T(f) cmocka_unit_test_setup(f, setup)
int main(void) {
    lw_log_setup(LW_LOG_OFF, false, "test");
    const struct CMUnitTest tests[] = {
        T(test_id_tells_workers_apart),     T(test_id_changes_with_the_topics),
        T(test_id_is_one_that_kafka_takes), T(test_id_of_ones_own),
        T(test_slots_are_had_once),         T(test_slot_is_free_when_its_process_is_gone),
        T(test_none_when_off_or_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
