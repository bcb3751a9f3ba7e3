/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what happens if memory runs out: for every n, the n-th allocation fails while a client and
 * its locks are used. There are tests for each kind of lock, for Redlock, for a client of a cluster
 * and for a client that asks Sentinels.
 *
 * For each n there are two runs: in the first run only the n-th allocation fails, in the second run
 * all later allocations fail as well. No run may crash, leak a block, or end with an error other
 * than MEMORY. The program is linked with a static hiredis and with --wrap, so that allocations of
 * hiredis fail as well. */
#include "fixture.h"
#include "tests/support/server_process.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
void __wrap_free(void *p);

static atomic_bool armed;
/* Allocations since the run began: the number of all, of those that failed, and of those that are
 * not freed yet. */
static atomic_long asked, failed, blocks;
/* Which allocations fail: those from number `first` to number `last`. */
static long first, last;

static bool fails(void) {
    if (!atomic_load(&armed)) return false;
    long n = atomic_fetch_add(&asked, 1) + 1;
    if (n < first || n > last) return false;
    atomic_fetch_add(&failed, 1);
    return true;
}
static void *counted(void *p) {
    if (p && atomic_load(&armed)) atomic_fetch_add(&blocks, 1);
    return p;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : counted(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) {
    return fails() ? NULL : counted(__real_calloc(n, size));
}
void *__wrap_realloc(void *p, size_t n) {
    if (fails()) return NULL;
    return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}
void __wrap_free(void *p) {
    if (p && atomic_load(&armed)) atomic_fetch_sub(&blocks, 1);
    __real_free(p);
}
char *__wrap_strndup(const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *p = __wrap_malloc(len + 1);
    if (!p) return NULL;
    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}
char *__wrap_strdup(const char *s) { return __wrap_strndup(s, strlen(s)); }

/* --- what a call may say ---------------------------------------------------------------------- */

/* Describes the first failed check of a run. It is printed after the run, when allocations work
 * again. */
static char wrong[1024];

static void complain(const char *what, int code, const char *text) {
    if (!wrong[0])
        snprintf(wrong, sizeof wrong, "%s: code %s: %s (allocations %ld to %ld failed)", what,
                 latchwork_code_name(code), text, first, last);
}

/* Checks that a result is OK, or is MEMORY and an allocation has failed. Returns true if it is
 * OK. */
static bool is_good(const char *what, enum latchwork_result result,
                    const struct latchwork_error *e) {
    if (result == LATCHWORK_LOCK_OK) return true;
    bool memory =
        atomic_load(&failed) && result == LATCHWORK_LOCK_ERROR && e->code == LATCHWORK_E_MEMORY;
    if (!memory) complain(what, e->code, e->text);
    return false;
}
static void *opened(const char *what, void *object, const struct latchwork_error *e) {
    is_good(what, object ? LATCHWORK_LOCK_OK : LATCHWORK_LOCK_ERROR, e);
    return object;
}
/* Checks the result of a release. If an allocation has failed, the result may be UNKNOWN: the
 * release may have been sent a second time, after the first had already deleted the lock. */
static void is_gone(const char *what, enum latchwork_result result,
                    const struct latchwork_error *e) {
    if (!atomic_load(&failed) || result == LATCHWORK_LOCK_ERROR || e->code != LATCHWORK_E_UNKNOWN)
        is_good(what, result, e);
}

static int see(void *ctx, const struct latchwork_lock_info *info) {
    (void)info;
    ++*(int *)ctx;
    return 0;
}

/* --- lives ------------------------------------------------------------------------------------ */

static void use_hold(struct latchwork_hold *hold) {
    struct latchwork_error e = {0};
    is_good("renew", latchwork_hold_renew(hold, 0, &e), &e);
    is_good("check", latchwork_hold_check(hold, &e), &e);
}

/* Acquires the lock in at most two attempts. The first attempt may take the lock and still fail, so
 * the second attempt may find the lock held. */
static struct latchwork_hold *acquire(struct latchwork_lock *lock) {
    struct latchwork_error e = {0};
    struct latchwork_hold *hold = NULL;
    for (int i = 0; i < 2 && !hold; i++) {
        enum latchwork_result result = latchwork_lock_try(lock, &hold, &e);
        if (i && result == LATCHWORK_LOCK_BUSY) break;
        is_good("try", result, &e);
        if ((result == LATCHWORK_LOCK_OK) != (hold != NULL))
            complain("try and its hold differ", e.code, e.text);
    }
    return hold;
}

static void hold_it(struct latchwork_lock *lock, bool shown) {
    struct latchwork_error e = {0};
    int n = 0;
    struct latchwork_hold *hold = acquire(lock);
    if (!hold) return;
    use_hold(hold);
    if (shown) is_good("show", latchwork_lock_show(lock, see, &n, &e), &e);
    is_gone("release", latchwork_hold_release(hold, &e), &e);
}

static struct latchwork_client *client_with(unsigned flags) {
    struct latchwork_error e = {0};
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .flags = flags};
    return opened("client", latchwork_client_open(url, &o, &e), &e);
}

struct kind {
    const char *name;
    enum latchwork_kind kind;
    unsigned flags, client_flags;
    bool custom;
};
static const struct kind kinds[] = {
    {"mutex", LATCHWORK_KIND_MUTEX, 0, 0, false},
    {"reentrant", LATCHWORK_KIND_REENTRANT, 0, 0, false},
    {"fair", LATCHWORK_KIND_FAIR, 0, 0, false},
    {"read", LATCHWORK_KIND_READ, 0, 0, false},
    {"write", LATCHWORK_KIND_WRITE, 0, 0, false},
    {"semaphore", LATCHWORK_KIND_SEMAPHORE, 0, 0, false},
    {"x{plain}", LATCHWORK_KIND_MUTEX, LATCHWORK_FLAG_PLAIN, 0, false},
    {"custom", LATCHWORK_KIND_MUTEX, 0, 0, true},
    {"scriptless", LATCHWORK_KIND_MUTEX, 0, LATCHWORK_FLAG_NO_SCRIPTS, false},
    {"renewed", LATCHWORK_KIND_MUTEX, LATCHWORK_FLAG_RENEW, 0, false},
};
static const struct kind *kind;

static void live_with_a_lock(void) {
    struct latchwork_error e = {0};
    struct latchwork_client *client = client_with(kind->client_flags);
    if (!client) return;
    struct latchwork_lock_names names = {LATCHWORK_NAMES_INIT, .lock = {"n", 1}, .fence = {"f", 1},
                                         .wait = {"w", 1}};
    names.hint_if = names.hint_to = names.hint = (struct latchwork_name){"h", 1};
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kind->kind,
                                       .flags = kind->flags};
    o.permits = kind->kind == LATCHWORK_KIND_SEMAPHORE ? 2 : 0;
    o.names = kind->custom ? &names : NULL;
    struct latchwork_lock *lock =
        opened("lock", latchwork_lock_open(client, kind->name, &o, &e), &e);
    if (lock) hold_it(lock, true);
    latchwork_lock_close(lock);
    latchwork_client_close(client);
}

static void live_with_a_list(void) {
    struct latchwork_error e = {0};
    struct latchwork_client *client = client_with(0);
    if (!client) return;
    int n = 0;
    is_good("ping", latchwork_client_ping(client, &e), &e);
    is_good("list", latchwork_lock_list(client, NULL, 0, see, &n, &e), &e);
    if (n != 40 && !atomic_load(&failed)) complain("not all locks are listed", 0, "");
    struct latchwork_lock *lock = opened("lock", latchwork_lock_open(client, "7", NULL, &e), &e);
    if (lock) is_gone("break", latchwork_lock_break(lock, NULL, &e), &e);
    latchwork_lock_close(lock);
    latchwork_client_close(client);
}
static void hold_forty(void) {
    for (int i = 0; i < 40; i++) redis_says("SET lwl:{%d}:lock me/00:%d PX 60000", i, i + 1);
}

/* Uses a row lock of three rows. Another client holds the middle row for a while. While the client
 * under test waits for the middle row, it renews the row that it already has. */
static void live_with_rows(void) {
    struct latchwork_error e = {0};
    const struct latchwork_row rows[] = {{"t", "1"}, {"t", "2"}, {"t", "3"}};
    struct latchwork_client *client = client_with(0);
    if (!client) return;
    struct latchwork_lock *lock =
        opened("rows", latchwork_rows_open(client, NULL, rows, 3, NULL, &e), &e);
    struct latchwork_hold *hold = NULL;
    if (lock) {
        enum latchwork_result result = latchwork_lock_acquire(lock, 3000, &hold, &e);
        is_good("acquire rows", result, &e);
        if (hold) use_hold(hold);
        if (hold) is_gone("release", latchwork_hold_release(hold, &e), &e);
    }
    latchwork_lock_close(lock);
    latchwork_client_close(client);
}
static void hold_a_row(void) { redis_says("SET lwl:{row:t:2}:lock me/00:1 PX 30"); }

enum { RENEWED_MS = 60 }; /* TTL, in ms, of the lease that is renewed */

/* Waits for a lock that another client holds, and then keeps it until a renewal has begun. */
static struct latchwork_hold *wait_and_renew(struct latchwork_lock *lock) {
    struct latchwork_error e = {0};
    struct latchwork_hold *hold = NULL;
    is_good("acquire", latchwork_lock_acquire(lock, 3000, &hold, &e), &e);
    lw_sleep_ms(hold ? RENEWED_MS / 2 : 0);
    return hold;
}

/* Releases a hold after its first renewal was due. The hold may be lost if a failed allocation has
 * prevented the renewal, or if its lease ended before the release arrived, because this process got
 * no CPU. */
static void release_late(struct latchwork_hold *hold) {
    struct latchwork_error e = {0};
    int64_t ends_ms = lw_boot_ms() + latchwork_hold_left_ms(hold);
    enum latchwork_result result = latchwork_hold_release(hold, &e);
    bool ended = lw_boot_ms() >= ends_ms;
    if (result != LATCHWORK_LOCK_LOST || (!atomic_load(&failed) && !ended))
        is_gone("release", result, &e);
}

/* Waits for a lock whose holder never releases it, until the lease ends. */
static void live_by_waiting(void) {
    struct latchwork_error e = {0};
    struct latchwork_client *client = client_with(0);
    if (!client) return;
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_FAIR,
                                       .flags = LATCHWORK_FLAG_RENEW, .ttl_ms = RENEWED_MS};
    struct latchwork_lock *lock = opened("lock", latchwork_lock_open(client, "waited", &o, &e), &e);
    struct latchwork_hold *hold = lock ? wait_and_renew(lock) : NULL;
    if (hold) release_late(hold);
    latchwork_lock_close(lock);
    latchwork_client_close(client);
}
static void hold_for_a_while(void) { redis_says("SET lwl:{waited}:lock me/00:1 PX 30"); }

/* Uses a Redlock whose three servers are three databases of one Redis server. */
static void live_with_redlock(void) {
    struct latchwork_error e = {0};
    char at[3][300];
    const char *urls[3];
    for (int i = 0; i < 3; i++) {
        snprintf(at[i], sizeof at[i], "unix://%s?db=%d", lw_test_redis_path(server), i + 1);
        urls[i] = at[i];
    }
    struct latchwork_redlock_options o = {LATCHWORK_REDLOCK_INIT, .node_ms = 2000,
                                          .restart_ms = -1};
    struct latchwork_redlock *redlock =
        opened("redlock", latchwork_redlock_open(urls, 3, &o, &e), &e);
    if (!redlock) return;
    struct latchwork_lock *lock =
        opened("redlock lock", latchwork_redlock_lock_open(redlock, "r", NULL, &e), &e);
    if (lock) hold_it(lock, false);
    latchwork_lock_close(lock);
    latchwork_redlock_close(redlock);
}

static struct lw_test_redis *cluster;
static int cluster_port;

/* Uses a cluster of one node, which owns all slots. Another client holds the lock for a while, so
 * the client under test has to wait. */
static void live_with_a_cluster(void) {
    struct latchwork_error e = {0};
    char address[32];
    const char *const addresses[] = {address};
    snprintf(address, sizeof address, "127.0.0.1:%d", cluster_port);
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .cluster = addresses,
                                         .n_cluster = 1};
    struct latchwork_client *client = opened("client", latchwork_client_open(NULL, &o, &e), &e);
    if (!client) return;
    struct latchwork_lock_options with = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                          .ttl_ms = RENEWED_MS};
    struct latchwork_lock *lock =
        opened("lock", latchwork_lock_open(client, "waited", &with, &e), &e);
    int n = 0;
    is_good("ping", latchwork_client_ping(client, &e), &e);
    struct latchwork_hold *hold = lock ? wait_and_renew(lock) : NULL;
    is_good("list", latchwork_lock_list(client, NULL, 0, see, &n, &e), &e);
    if (hold) release_late(hold);
    latchwork_lock_close(lock);
    latchwork_client_close(client);
}
static void hold_in_the_cluster(void) {
    redisContext *c = lw_test_redis_connect(cluster);
    freeReplyObject(redisCommand(c, "FLUSHALL"));
    freeReplyObject(redisCommand(c, "SET lwl:{waited}:lock me/00:1 PX 30"));
    redisFree(c);
}

/* Uses a client whose Sentinels do not answer. */
static void live_behind_sentinels(void) {
    struct latchwork_error e = {0};
    const char *const addresses[] = {"127.0.0.1:1"};
    struct latchwork_sentinels sentinels = {LATCHWORK_SENTINELS_INIT,
                                            .addresses = addresses,
                                            .n_addresses = 1,
                                            .master = "m",
                                            .user = "u",
                                            .password = "p",
                                            .tls_ca = "ca.pem"};
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .sentinels = &sentinels,
                                         .user = "u", .password = "p", .db = 2};
    struct latchwork_client *client = opened("client", latchwork_client_open(NULL, &o, &e), &e);
    if (client && latchwork_client_ping(client, &e) == LATCHWORK_LOCK_OK)
        complain("a Sentinel answers on port 1", 0, "");
    if (client && e.code != LATCHWORK_E_CONNECT && !atomic_load(&failed))
        complain("ping", e.code, e.text);
    latchwork_client_close(client);
}

/* --- every n ---------------------------------------------------------------------------------- */

struct life {
    void (*before)(void); /* prepares Redis for the run; NULL: nothing to prepare */
    void (*live)(void);
};

static void run(const struct life *l, long from, long to) {
    assert_true(lw_test_redis_flush(server));
    if (l->before) l->before();
    first = from;
    last = to;
    atomic_store(&asked, 0);
    atomic_store(&failed, 0);
    atomic_store(&blocks, 0);
    atomic_store(&armed, true);
    l->live();
    atomic_store(&armed, false);
    char what[sizeof wrong];
    memcpy(what, wrong, sizeof what);
    wrong[0] = '\0';
    if (what[0]) fail_msg("%s", what);
    if (atomic_load(&blocks))
        fail_msg("%ld blocks are left (allocations %ld to %ld failed)", atomic_load(&blocks), from,
                 to);
}

static void live_under_failures(const struct life *l, const char *name) {
    run(l, LONG_MAX, LONG_MAX);
    assert_true(atomic_load(&asked) > 5);
    long n = 0;
    do {
        n++;
        run(l, n, n);
    } while (atomic_load(&failed));
    assert_true(n > 5);
    print_message("%s: each of %ld allocations failed\n", name, n - 1);
    for (long i = 1; i <= n; i++) run(l, i, LONG_MAX);
}

static void every_kind_of_lock(void **state) {
    (void)state;
    const struct life life = {NULL, live_with_a_lock};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kind = &kinds[i];
        live_under_failures(&life, kind->name);
    }
}
static void lists(void **state) {
    (void)state;
    live_under_failures(&(struct life){hold_forty, live_with_a_list}, "list");
}
static void rows(void **state) {
    (void)state;
    live_under_failures(&(struct life){hold_a_row, live_with_rows}, "rows");
}
static void waiting_and_renewal(void **state) {
    (void)state;
    live_under_failures(&(struct life){hold_for_a_while, live_by_waiting}, "waiting");
}
static void redlock(void **state) {
    (void)state;
    live_under_failures(&(struct life){NULL, live_with_redlock}, "redlock");
}

static void clusters(void **state) {
    (void)state;
    char number[12], bus[12];
    snprintf(number, sizeof number, "%d", cluster_port = lw_test_free_port());
    snprintf(bus, sizeof bus, "%d", lw_test_free_port());
    cluster = lw_test_redis_start((const char *[]){"--bind", "127.0.0.1", "--port", number,
                                                   "--cluster-enabled", "yes", "--cluster-port",
                                                   bus, NULL});
    assert_non_null(cluster);
    redisContext *c = lw_test_redis_connect(cluster);
    freeReplyObject(redisCommand(c, "CLUSTER ADDSLOTSRANGE 0 16383"));
    for (int64_t until = lw_boot_ms() + 20000;; lw_sleep_ms(10)) {
        redisReply *r = redisCommand(c, "CLUSTER INFO");
        bool ok = r && strstr(r->str, "cluster_state:ok");
        freeReplyObject(r);
        if (ok) break;
        assert_true(lw_boot_ms() < until);
    }
    redisFree(c);
    live_under_failures(&(struct life){hold_in_the_cluster, live_with_a_cluster}, "cluster");
    lw_test_redis_stop(cluster);
}
static void sentinels(void **state) {
    (void)state;
    live_under_failures(&(struct life){NULL, live_behind_sentinels}, "sentinels");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_lock),
        cmocka_unit_test(lists),
        cmocka_unit_test(rows),
        cmocka_unit_test(waiting_and_renewal),
        cmocka_unit_test(redlock),
        cmocka_unit_test(clusters),
        cmocka_unit_test(sentinels),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
