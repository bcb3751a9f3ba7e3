/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the lock library under faults: lost answers; a Redis that is wiped, restarted or frozen;
 * and a holder that is frozen until its lease has ended. */
#include "tests/lock/fixture.h"
#include "tests/lock/proxy.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* --- a reply lost after the script ran -------------------------------------------------------- */

static int64_t leases_in_redis(enum latchwork_kind kind) {
    if (kind == LATCHWORK_KIND_READ) return redis_number("ZCARD lwl:{a}:read");
    if (kind == LATCHWORK_KIND_SEMAPHORE) return redis_number("ZCARD lwl:{a}:permits");
    return redis_number("EXISTS lwl:{a}:%s", kind == LATCHWORK_KIND_WRITE ? "write" : "lock");
}

static void lost_replies(enum latchwork_kind kind, unsigned flags, unsigned client_flags,
                         int lost) {
    struct lw_proxy proxy;
    assert_true(lw_proxy_start(&proxy, lw_test_redis_path(server)));
    char through[256];
    snprintf(through, sizeof through, "unix://%s", proxy.path);
    struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT, .flags = client_flags};
    struct latchwork_client *c = latchwork_client_open(through, &co, &error);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kind, .flags = flags,
                                       .permits = kind == LATCHWORK_KIND_SEMAPHORE ? 3 : 0};
    struct latchwork_lock *l = open_lock(c, "a", &o);
    /* Acquire and release once, so that the scripts are loaded and the reply that is lost later
     * belongs to the tested call. */
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    struct latchwork_hold *h;

    lw_proxy_lose(&proxy, lost);
    assert_ok(latchwork_lock_try(l, &h, &error));
    assert_int_equal(proxy.lose, 0);
    if (!(flags & LATCHWORK_FLAG_PLAIN)) assert_int_equal(leases_in_redis(kind), 1);
    assert_ok(latchwork_hold_check(h, &error));

    lw_proxy_lose(&proxy, lost);
    assert_ok(latchwork_hold_renew(h, 0, &error));
    assert_int_equal(proxy.lose, 0);

    lw_proxy_lose(&proxy, lost);
    /* The release was sent twice, and the second one found no lock. The caller cannot tell whether
     * the first release or another client freed the lock, so the error code is UNKNOWN. */
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    assert_int_equal(error.code, LATCHWORK_E_UNKNOWN);
    assert_int_equal(leases_in_redis(kind), 0);
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
    lw_proxy_stop(&proxy);
}

static void a_lost_reply_changes_nothing(void **state) {
    for (enum latchwork_kind kind = LATCHWORK_KIND_MUTEX; kind <= LATCHWORK_KIND_SEMAPHORE;
         kind++) {
        flush(state);
        lost_replies(kind, 0, 0, 1);
    }
    lost_replies(LATCHWORK_KIND_MUTEX, LATCHWORK_FLAG_PLAIN, 0, 1);
}
static void nor_does_one_without_scripts(void **state) {
    (void)state;
    /* A client without scripts sends a transaction. Lose the second reply, which answers EXEC. */
    lost_replies(LATCHWORK_KIND_MUTEX, 0, LATCHWORK_FLAG_NO_SCRIPTS, 2);
}

/* --- losing a lease --------------------------------------------------------------------------- */

struct told {
    atomic_int times, why, in_time;
};
static void on_lost(void *ctx, struct latchwork_hold *h, enum latchwork_loss why) {
    struct told *t = ctx;
    t->why = (int)why;
    t->in_time = lw_boot_ms() < latchwork_hold_deadline_ms(h);
    t->times++;
}
static struct latchwork_lock *open_renewed(struct latchwork_client *c, const char *name,
                                           int64_t ttl_ms, int64_t max_hold_ms, struct told *told) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                       .ttl_ms = ttl_ms, .max_hold_ms = max_hold_ms};
    o.lost = on_lost;
    o.lost_ctx = told;
    return open_lock(c, name, &o);
}
static void wait_until_told(struct told *t) {
    int64_t until = lw_boot_ms() + 20000;
    while (!t->times && lw_boot_ms() < until) lw_sleep_ms(1);
    assert_int_equal(t->times, 1);
}

/* The renewer gives up a hold if its renewal is late by a third of the TTL. The TTLs here, in ms,
 * are long enough to avoid that on a busy machine. */
enum { RENEWED_TTL_MS = 1500, FROZEN_TTL_MS = 4500 };

static void renewal_keeps_it_and_never_takes_it_again(void **state) {
    (void)state;
    struct told told = {0};
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_renewed(c, "a", RENEWED_TTL_MS, 0, &told);
    struct latchwork_hold *h = take(l, 0), *other;
    assert_result(LATCHWORK_LOCK_BUSY,
                  latchwork_lock_acquire(l, 2 * RENEWED_TTL_MS, &other, &error));
    assert_false(latchwork_hold_lost(h));
    assert_int_equal(told.times, 0);
    redis_says("SCRIPT FLUSH");
    assert_result(LATCHWORK_LOCK_BUSY,
                  latchwork_lock_acquire(l, 2 * RENEWED_TTL_MS, &other, &error));
    assert_int_equal(told.times, 0);
    lw_test_redis_flush(server);
    wait_until_told(&told);
    assert_int_equal(told.why, LATCHWORK_LOSS_NOT_OWNER);
    lw_sleep_ms(RENEWED_TTL_MS / 2);
    assert_string_equal(redis_says("DBSIZE"), "0");
    assert_true(latchwork_hold_lost(h));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    assert_int_equal(told.times, 1);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

static void the_longest_hold(void **state) {
    (void)state;
    struct told told = {0};
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_renewed(c, "a", RENEWED_TTL_MS, 2 * RENEWED_TTL_MS, &told);
    struct latchwork_hold *h = take(l, 0);
    int64_t most = lw_boot_ms() + 2 * RENEWED_TTL_MS;
    wait_until_told(&told);
    assert_int_equal(told.why, LATCHWORK_LOSS_MAX_HOLD);
    assert_true(latchwork_hold_deadline_ms(h) <= most);
    /* The acquire waits until the lease of the lost hold expires. */
    struct latchwork_hold *next = take(l, 10000);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    assert_ok(latchwork_hold_release(next, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

static void a_frozen_server(void **state) {
    (void)state;
    struct told told = {0};
    struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT, .connect_ms = 200,
                                          .command_ms = 200};
    struct latchwork_client *c = open_client(&co);
    struct latchwork_lock *l = open_renewed(c, "a", FROZEN_TTL_MS, 0, &told);
    struct latchwork_hold *h = take(l, 0), *other;
    kill(lw_test_redis_pid(server), SIGSTOP);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_try(l, &other, &error));
    assert_int_equal(error.code, LATCHWORK_E_TIMEOUT);
    wait_until_told(&told);
    kill(lw_test_redis_pid(server), SIGCONT);
    assert_int_equal(told.why, LATCHWORK_LOSS_UNCONFIRMED);
    /* The callback was called before the lease had ended. */
    assert_true(told.in_time);
    latchwork_hold_forget(h);
    h = take(l, 10000);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

static void *take_and_release(void *arg) {
    struct latchwork_hold *h;
    struct latchwork_error why = {0};
    enum latchwork_result r = latchwork_lock_acquire(arg, 30000, &h, &why);
    if (r == LATCHWORK_LOCK_OK) r = latchwork_hold_release(h, &why);
    if (r != LATCHWORK_LOCK_OK) fprintf(stderr, "%s: %s\n", latchwork_result_name(r), why.text);
    return (void *)(intptr_t)r;
}

static void *take_soon(void *arg) {
    /* The limit of 2.5 s is shorter than the 4 s after which a waiter tries without a message. */
    struct latchwork_hold *h;
    struct latchwork_error why = {0};
    enum latchwork_result r = latchwork_lock_acquire(arg, 2500, &h, &why);
    if (r == LATCHWORK_LOCK_OK) r = latchwork_hold_release(h, &why);
    return (void *)(intptr_t)r;
}

static void waiters_outlive_a_restart(void **state) {
    (void)state;
    struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT, .connect_ms = 500,
                                          .command_ms = 500};
    struct latchwork_client *c = open_client(&co);
    struct latchwork_lock *l[3] = {open_kind(c, "a", LATCHWORK_KIND_MUTEX, 60000),
                                   open_kind(c, "b", LATCHWORK_KIND_FAIR, 60000),
                                   open_kind(c, "c", LATCHWORK_KIND_WRITE, 60000)};
    struct latchwork_hold *h[3];
    pthread_t t[6];
    for (int i = 0; i < 3; i++) h[i] = take(l[i], 0);
    for (int i = 0; i < 6; i++) pthread_create(&t[i], NULL, take_and_release, l[i % 3]);
    lw_sleep_ms(200);
    lw_test_redis_kill(server);
    lw_sleep_ms(200);
    assert_true(lw_test_redis_restart(server));
    admin_anew();
    for (int i = 0; i < 6; i++) {
        void *r;
        pthread_join(t[i], &r);
        assert_int_equal((intptr_t)r, LATCHWORK_LOCK_OK);
    }
    for (int i = 0; i < 3; i++) {
        struct latchwork_hold *next = take(l[i], 0);
        assert_true(latchwork_hold_fence(next) > latchwork_hold_fence(h[i]));
        assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h[i], &error));
        assert_ok(latchwork_hold_release(next, &error));
        latchwork_lock_close(l[i]);
    }
    latchwork_client_close(c);
}

/* Cuts the connection over which a client is notified of releases, again and again. The client's
 * waiters must then try at intervals. */
static void wakings_are_cut(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL), *other = open_client(NULL);
    for (enum latchwork_kind kind = LATCHWORK_KIND_MUTEX; kind <= LATCHWORK_KIND_SEMAPHORE;
         kind++) {
        struct latchwork_lock *mine =
            open_kind(other, "a", kind == LATCHWORK_KIND_READ ? LATCHWORK_KIND_WRITE : kind, 60000);
        struct latchwork_lock *l = open_kind(c, "a", kind, 60000);
        struct latchwork_hold *h[3];
        int n = kind == LATCHWORK_KIND_SEMAPHORE ? 3 : 1;
        for (int i = 0; i < n; i++) h[i] = take(mine, 0);
        pthread_t t[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, take_soon, l);
        for (int i = 0; i < 5; i++) {
            lw_sleep_ms(20);
            redis_says("CLIENT KILL TYPE pubsub");
        }
        /* The client has subscribed again by now. Cut its connection once more, so that its waiters
         * get no message about the release. */
        lw_sleep_ms(200);
        redis_says("CLIENT KILL TYPE pubsub");
        for (int i = 0; i < n; i++) assert_ok(latchwork_hold_release(h[i], &error));
        for (int i = 0; i < 4; i++) {
            void *r;
            pthread_join(t[i], &r);
            assert_int_equal((intptr_t)r, LATCHWORK_LOCK_OK);
        }
        latchwork_lock_close(mine), latchwork_lock_close(l);
        lw_test_redis_flush(server);
    }
    latchwork_client_close(c), latchwork_client_close(other);
}

/* --- a holder frozen past its lease ----------------------------------------------------------- */

/* A store that refuses a write whose fence is smaller than the largest fence seen so far. */
struct store {
    _Atomic uint64_t fence;
    atomic_int refused, writes, stage;
};
static bool write_to(struct store *s, uint64_t fence) {
    uint64_t before = s->fence;
    if (fence < before) {
        s->refused++;
        return false;
    }
    s->fence = fence;
    s->writes++;
    return true;
}

static int frozen_holder(struct store *s) {
    struct latchwork_client *c = latchwork_client_open(url, NULL, &error);
    struct told told = {0};
    struct latchwork_lock *l = open_renewed(c, "a", 300, 0, &told);
    struct latchwork_hold *h;
    if (latchwork_lock_try(l, &h, &error) != LATCHWORK_LOCK_OK ||
        !write_to(s, latchwork_hold_fence(h)))
        return 1;
    s->stage = 1;
    /* In this loop the parent freezes and later continues this process. */
    while (s->stage != 2) lw_sleep_ms(1);
    int bad = 0;
    if (write_to(s, latchwork_hold_fence(h))) bad |= 2;
    if (!latchwork_hold_lost(h)) bad |= 4;
    if (latchwork_hold_renew(h, 0, &error) != LATCHWORK_LOCK_LOST) bad |= 8;
    if (latchwork_hold_release(h, &error) != LATCHWORK_LOCK_LOST) bad |= 16;
    if (told.times != 1) bad |= 32;
    latchwork_lock_close(l);
    latchwork_client_close(c);
    return bad;
}

static void a_holder_frozen_past_its_lease_is_fenced(void **state) {
    (void)state;
    struct store *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) _exit(frozen_holder(s));
    while (s->stage != 1) lw_sleep_ms(1);
    kill(pid, SIGSTOP);
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_kind(c, "a", LATCHWORK_KIND_MUTEX, 10000);
    struct latchwork_hold *h = take(l, 20000);
    assert_true(write_to(s, latchwork_hold_fence(h)));
    s->stage = 2;
    kill(pid, SIGCONT);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(s->refused, 1);
    assert_int_equal(s->writes, 2);
    /* The release by the formerly frozen holder has not changed the new holder's lock. */
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
    munmap(s, sizeof *s);
}

#define T(f) cmocka_unit_test_setup(f, flush)
int main(void) {
    const struct CMUnitTest tests[] = {T(a_lost_reply_changes_nothing),
                                       T(nor_does_one_without_scripts),
                                       T(renewal_keeps_it_and_never_takes_it_again),
                                       T(the_longest_hold),
                                       T(a_frozen_server),
                                       T(waiters_outlive_a_restart),
                                       T(wakings_are_cut),
                                       T(a_holder_frozen_past_its_lease_is_fenced)};
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
