/* SPDX-License-Identifier: Apache-2.0 */
/* Tests base/notify, which sends messages to a service manager: which socket addresses and watchdog
 * settings in the environment are accepted, and what happens if the manager does not read. */
#include "base/notify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int manager = -1;
static char name[64];

/* Opens the socket of a service manager. `folder` ends with a slash, or is "@" for a socket in
 * the abstract namespace. */
static void listen_at(const char *folder) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "%slw-notify-%d", folder, (int)getpid());
    size_t n = strlen(name);
    memcpy(a.sun_path, name, n);
    if (*name == '@') a.sun_path[0] = '\0';
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
                     0);
    setenv("NOTIFY_SOCKET", name, 1);
}

static int close_manager(void **state) {
    (void)state;
    if (manager != -1) close(manager);
    if (*name == '/') unlink(name);
    manager = -1;
    *name = '\0';
    unsetenv("NOTIFY_SOCKET"), unsetenv("WATCHDOG_USEC"), unsetenv("WATCHDOG_PID");
    return 0;
}

static void is_told(const char *text) {
    char got[256];
    ssize_t n = recv(manager, got, sizeof got - 1, MSG_DONTWAIT);
    assert_true(n >= 0);
    got[n] = '\0';
    assert_string_equal(got, text);
}

static void tells(const char *folder) {
    struct lw_notify n;
    listen_at(folder);
    lw_notify_open(&n);
    assert_true(lw_notify_send(&n, "READY=%d\nSTATUS=%s", 1, "ok"));
    is_told("READY=1\nSTATUS=ok");
    assert_null(getenv("NOTIFY_SOCKET"));
    lw_notify_close(&n);
}
static void test_path(void **state) { (void)state, tells("/tmp/"); }
static void test_abstract(void **state) { (void)state, tells("@"); }

static void test_nobody_listens(void **state) {
    (void)state;
    struct lw_notify n;
    lw_notify_open(&n);
    assert_true(lw_notify_send(&n, "READY=1"));
    assert_true(n.fd == -1 && !n.watchdog_ms && !n.failing);
    lw_notify_close(&n);
}

static void test_unusable_addresses(void **state) {
    (void)state;
    char longer[200];
    memset(longer, 'a', sizeof longer);
    longer[0] = '/', longer[sizeof longer - 1] = '\0';
    const char *const bad[] = {"vsock:2:1234", "relative", "@", "/", longer};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct lw_notify n;
        setenv("NOTIFY_SOCKET", bad[i], 1);
        setenv("WATCHDOG_USEC", "1000000", 1);
        lw_notify_open(&n);
        assert_true(n.fd == -1 && !n.watchdog_ms);
        assert_null(getenv("WATCHDOG_USEC"));
    }
}

static int64_t watchdog_of(const char *us, const char *pid) {
    struct lw_notify n;
    listen_at("@");
    if (us) setenv("WATCHDOG_USEC", us, 1);
    if (pid) setenv("WATCHDOG_PID", pid, 1);
    lw_notify_open(&n);
    lw_notify_close(&n);
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    close_manager(NULL);
    return n.watchdog_ms;
}

static void test_watchdog(void **state) {
    (void)state;
    char own[24];
    snprintf(own, sizeof own, "%d", (int)getpid());
    assert_int_equal(watchdog_of("30000000", NULL), 30000);
    assert_int_equal(watchdog_of("30000000", own), 30000);
    /* a watchdog for another process id must be ignored */
    assert_int_equal(watchdog_of("30000000", "1"), 0);
    assert_int_equal(watchdog_of(NULL, own), 0);
    assert_int_equal(watchdog_of("0", NULL), 0);
    assert_int_equal(watchdog_of("-5000000", NULL), 0);
}

/* The manager restarts. While it is away, messages must fail. Afterwards messages must arrive again
 * at the same address. */
static void test_manager_goes_and_comes_back(void **state) {
    (void)state;
    struct lw_notify n;
    listen_at("@");
    lw_notify_open(&n);
    close(manager);
    assert_false(lw_notify_send(&n, "WATCHDOG=1"));
    assert_true(n.failing);
    listen_at("@");
    assert_true(lw_notify_send(&n, "WATCHDOG=1"));
    assert_false(n.failing);
    is_told("WATCHDOG=1");
    lw_notify_close(&n);
}

/* If the manager does not read, its socket becomes full. Then sending a message must fail at its
 * time limit, and must not block for ever. */
static void test_manager_does_not_read(void **state) {
    (void)state;
    struct lw_notify n;
    int size = 1, sent = 0;
    listen_at("@");
    assert_int_equal(setsockopt(manager, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    lw_notify_open(&n);
    while (sent < 100000 && lw_notify_send(&n, "STATUS=%d", sent)) sent++;
    assert_in_range(sent, 1, 99999);
    lw_notify_close(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_path, close_manager),
        cmocka_unit_test_teardown(test_abstract, close_manager),
        cmocka_unit_test_teardown(test_nobody_listens, close_manager),
        cmocka_unit_test_teardown(test_unusable_addresses, close_manager),
        cmocka_unit_test_teardown(test_watchdog, close_manager),
        cmocka_unit_test_teardown(test_manager_goes_and_comes_back, close_manager),
        cmocka_unit_test_teardown(test_manager_does_not_read, close_manager),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
