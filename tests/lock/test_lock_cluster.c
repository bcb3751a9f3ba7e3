/* SPDX-License-Identifier: Apache-2.0 */
/* Tests locks on a real cluster: three masters with a replica each, slots that move, and a master
 * that is killed. */
#include "cluster.h"

#include <pthread.h>
#include <stdatomic.h>

static int start(void **state) {
    (void)state;
    return start_masters(true, NULL) ? 0 : -1;
}
static int stop(void **state) {
    (void)state;
    stop_nodes();
    return 0;
}
static int clean(void **state) {
    (void)state;
    /* Send FLUSHALL to all nodes. Replicas refuse it, but delete their data when their masters
     * do. */
    for (int i = 0; i < NODES; i++)
        if (alive(i) && owner_of(0) >= 0) say(i, "FLUSHALL");
    return 0;
}

/* Moves a slot to the next master, with a pause before the keys are moved, and one before the new
 * master becomes the owner. */
static void move_slowly(int slot) {
    int from = owner_of(slot), to = (from + 1) % MASTERS;
    assert_true(from >= 0);
    begin_move(slot, from, to);
    lw_sleep_ms(50);
    assert_true(move_keys(slot, from, to) > 0);
    lw_sleep_ms(50);
    end_move(slot, from, to);
    assert_int_equal(owner_of(slot), to);
}

/* --- without faults --------------------------------------------------------------------------- */

static int count(void *ctx, const struct latchwork_lock_info *info) {
    (void)info;
    ++*(int *)ctx;
    return 0;
}

static void every_kind_on_every_node(void **state) {
    (void)state;
    struct latchwork_client *c = open_cluster(NULL);
    const enum latchwork_kind kinds[] = {LATCHWORK_KIND_MUTEX, LATCHWORK_KIND_REENTRANT,
                                         LATCHWORK_KIND_FAIR,  LATCHWORK_KIND_READ,
                                         LATCHWORK_KIND_WRITE, LATCHWORK_KIND_SEMAPHORE};
    assert_ok(latchwork_client_ping(c, &error));
    int on[MASTERS] = {0};
    for (int i = 0; i < 30; i++) {
        char name[16];
        int n = 0;
        snprintf(name, sizeof name, "k%d", i);
        on[slot_of(name) * MASTERS / LW_SLOTS]++;
        struct latchwork_lock *l = open_kind(c, name, kinds[i % 6], LEASE_MS);
        struct latchwork_hold *h = take(l, 0);
        assert_ok(latchwork_hold_renew(h, 0, &error));
        assert_ok(latchwork_hold_check(h, &error));
        assert_ok(latchwork_lock_show(l, count, &n, &error));
        assert_int_equal(n, 1);
        assert_ok(latchwork_hold_release(h, &error));
        assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_show(l, count, &n, &error));
        latchwork_lock_close(l);
    }
    for (int i = 0; i < MASTERS; i++) assert_true(on[i] > 0);
    latchwork_client_close(c);
}

static void the_list_has_all_nodes(void **state) {
    (void)state;
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock *l[30];
    struct latchwork_hold *h[30];
    int n = 0;
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        l[i] =
            open_kind(c, name, i % 2 ? LATCHWORK_KIND_SEMAPHORE : LATCHWORK_KIND_MUTEX, LEASE_MS);
        h[i] = take(l[i], 0);
    }
    assert_ok(latchwork_lock_list(c, "l*", 0, count, &n, &error));
    assert_int_equal(n, 30);
    uint64_t fence = 0;
    assert_ok(latchwork_lock_break(l[0], &fence, &error));
    assert_true(fence > latchwork_hold_fence(h[0]));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h[0], &error));
    for (int i = 1; i < 30; i++) assert_ok(latchwork_hold_release(h[i], &error));
    for (int i = 0; i < 30; i++) latchwork_lock_close(l[i]);
    latchwork_client_close(c);
}

static void without_scripts(void **state) {
    (void)state;
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .flags = LATCHWORK_FLAG_NO_SCRIPTS};
    struct latchwork_client *c = open_cluster(&o);
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        struct latchwork_lock *l = open_kind(c, name, LATCHWORK_KIND_MUTEX, LEASE_MS);
        struct latchwork_hold *h = take(l, 0), *other = NULL;
        assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &other, &error));
        assert_ok(latchwork_hold_renew(h, 0, &error));
        assert_ok(latchwork_hold_release(h, &error));
        latchwork_lock_close(l);
    }
    latchwork_client_close(c);
}

static void names_must_be_in_one_slot(void **state) {
    (void)state;
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock_names names = {LATCHWORK_NAMES_INIT, .lock = {"a", 1}, .fence = {"b", 1}};
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .names = &names};
    assert_null(latchwork_lock_open(c, "x", &o, &error));
    assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    const struct latchwork_row rows[] = {{"stock", "1"}, {"stock", "2"}};
    assert_null(latchwork_rows_open(c, NULL, rows, 2, NULL, &error));
    assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    assert_non_null(strstr(error.text, "give a prefix such as {stock}:"));
    struct latchwork_lock *l = latchwork_rows_open(c, "{stock}:", rows, 2, NULL, &error);
    if (!l) fail_msg("%s", error.text);
    struct latchwork_hold *h = take(l, 0);
    assert_ok(latchwork_hold_renew(h, 0, &error));
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    o.names = NULL;
    o.flags = LATCHWORK_FLAG_PLAIN;
    l = open_lock(c, "plain", &o);
    h = take(l, 0);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

static void wrong_options(void **state) {
    (void)state;
    const char *const one[] = {"127.0.0.1:1"}, *const bad[] = {"redis://127.0.0.1:1"};
    const struct latchwork_sentinels sentinels = {LATCHWORK_SENTINELS_INIT, .addresses = one,
                                                  .n_addresses = 1, .master = "m"};
    struct latchwork_sentinels nameless = sentinels, empty = sentinels, lost = sentinels;
    nameless.master = NULL;
    empty.n_addresses = 0;
    lost.addresses = bad;
    const struct {
        const char *url, *says;
        struct latchwork_client_options o;
    } cases[] = {
        {NULL, "url: none given", {LATCHWORK_CLIENT_INIT}},
        {NULL,
         "either cluster or sentinels",
         {LATCHWORK_CLIENT_INIT, .cluster = one, .n_cluster = 1, .sentinels = &sentinels}},
        {"redis://h",
         "url must be NULL if there are sentinels",
         {LATCHWORK_CLIENT_INIT, .sentinels = &sentinels}},
        {NULL,
         "cluster has 1 to 64 addresses",
         {LATCHWORK_CLIENT_INIT, .cluster = one, .n_cluster = 65}},
        {NULL, "cluster has 1 to 64 addresses", {LATCHWORK_CLIENT_INIT, .n_cluster = 1}},
        {NULL,
         "must be a host and a port",
         {LATCHWORK_CLIENT_INIT, .cluster = bad, .n_cluster = 1}},
        {"redis://h/3",
         "no database but 0",
         {LATCHWORK_CLIENT_INIT, .cluster = one, .n_cluster = 1}},
        {"unix:///run/s",
         "a node of a cluster has a host",
         {LATCHWORK_CLIENT_INIT, .cluster = one, .n_cluster = 1}},
        {NULL,
         "db goes with sentinels",
         {LATCHWORK_CLIENT_INIT, .cluster = one, .n_cluster = 1, .db = 1}},
        {NULL,
         "options.user needs a password",
         {LATCHWORK_CLIENT_INIT, .cluster = one, .n_cluster = 1, .user = "u"}},
        {NULL, "master is missing", {LATCHWORK_CLIENT_INIT, .sentinels = &nameless}},
        {NULL, "1 to 64 addresses are needed", {LATCHWORK_CLIENT_INIT, .sentinels = &empty}},
        {NULL, "must be a host and a port", {LATCHWORK_CLIENT_INIT, .sentinels = &lost}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(latchwork_client_open(cases[i].url, &cases[i].o, &error));
        assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
        if (!strstr(error.text, cases[i].says)) fail_msg("%s: %s", cases[i].says, error.text);
    }
}

/* --- contention ------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 25 };
struct crowd {
    struct latchwork_client *client;
    atomic_int inside;
    atomic_int wrong;
    /* Fence of the last hold. Only the present holder of the lock reads and writes it. */
    uint64_t last;
};

static void *take_turns(void *arg) {
    struct crowd *crowd = arg;
    struct latchwork_lock *l = latchwork_lock_open(crowd->client, "crowd", NULL, NULL);
    for (int i = 0; l && i < ROUNDS; i++) {
        struct latchwork_hold *h = NULL;
        if (latchwork_lock_acquire(l, LIMIT_MS, &h, NULL) != LATCHWORK_LOCK_OK) {
            atomic_fetch_add(&crowd->wrong, 1);
            break;
        }
        if (atomic_fetch_add(&crowd->inside, 1)) atomic_fetch_add(&crowd->wrong, 1);
        if (latchwork_hold_fence(h) <= crowd->last) atomic_fetch_add(&crowd->wrong, 1);
        crowd->last = latchwork_hold_fence(h);
        atomic_fetch_sub(&crowd->inside, 1);
        if (latchwork_hold_release(h, NULL) != LATCHWORK_LOCK_OK)
            atomic_fetch_add(&crowd->wrong, 1);
    }
    latchwork_lock_close(l);
    return NULL;
}

static void a_crowd(void **state) {
    (void)state;
    struct crowd crowd = {.client = open_cluster(NULL)};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_turns, &crowd), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&crowd.wrong), 0);
    latchwork_client_close(crowd.client);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* A thread that waits for a lock, with a client of its own. */
struct waiter {
    struct latchwork_client *client;
    struct latchwork_lock *lock;
    pthread_t thread;
    enum latchwork_result result;
    uint64_t fence;
};

static void *wait_for_it(void *arg) {
    struct waiter *w = arg;
    struct latchwork_hold *h = NULL;
    w->result = latchwork_lock_acquire(w->lock, LIMIT_MS, &h, NULL);
    w->fence = latchwork_hold_fence(h);
    if (h) latchwork_hold_release(h, NULL);
    return NULL;
}

static void begin_waiting(struct waiter *w, const char *name, enum latchwork_kind kind,
                          const struct latchwork_client_options *o) {
    *w = (struct waiter){.client = open_cluster(o)};
    w->lock = open_kind(w->client, name, kind, LEASE_MS);
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
}

static void end_waiting(struct waiter *w) {
    pthread_join(w->thread, NULL);
    latchwork_lock_close(w->lock);
    latchwork_client_close(w->client);
}

/* Waits until the waiter is asleep between two attempts. */
static void let_it_wait(void) { lw_sleep_ms(300); }

static int count_waiters(void *ctx, const struct latchwork_lock_info *info) {
    *(int64_t *)ctx = info->waiting;
    return 0;
}

/* Waits until a fair lock, which somebody holds, has a waiter. */
static void let_it_queue(struct latchwork_lock *l) {
    int64_t waiting = 0, until = lw_boot_ms() + LIMIT_MS;
    while (!waiting && lw_boot_ms() < until) {
        assert_ok(latchwork_lock_show(l, count_waiters, &waiting, &error));
        lw_sleep_ms(1);
    }
    assert_int_equal(waiting, 1);
}

/* Checks that a waiter gets the lock by its release: the lease ends long after the waiter has given
 * up. */
static void is_handed_over(enum latchwork_kind kind, const char *name,
                           const struct latchwork_client_options *o) {
    struct latchwork_client *c = open_cluster(o);
    struct latchwork_lock *l = open_kind(c, name, kind, LEASE_MS);
    struct latchwork_hold *h = take(l, 0);
    struct waiter w;
    uint64_t fence = latchwork_hold_fence(h);
    begin_waiting(&w, name, kind, o);
    let_it_wait();
    assert_ok(latchwork_hold_release(h, &error));
    end_waiting(&w);
    assert_int_equal(w.result, LATCHWORK_LOCK_OK);
    assert_true(w.fence > fence);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

static void a_release_hands_over(void **state) {
    (void)state;
    is_handed_over(LATCHWORK_KIND_MUTEX, "m1", NULL);
    is_handed_over(LATCHWORK_KIND_FAIR, "f1", NULL);
    is_handed_over(LATCHWORK_KIND_WRITE, "rw1", NULL);
    is_handed_over(LATCHWORK_KIND_MUTEX, "{odd}name", NULL);
    struct latchwork_client_options scriptless = {LATCHWORK_CLIENT_INIT,
                                                  .flags = LATCHWORK_FLAG_NO_SCRIPTS};
    is_handed_over(LATCHWORK_KIND_MUTEX, "m2", &scriptless);
}

/* A fair lock is free after its release, and its first waiter polls. Nobody may overtake it: who
 * tries finds the lock busy, or comes after the waiter. */
static void a_polling_waiter_keeps_its_place(void **state) {
    (void)state;
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock *l = open_kind(c, "fair", LATCHWORK_KIND_FAIR, LEASE_MS);
    for (int i = 0; i < 20; i++) {
        struct latchwork_hold *h = take(l, 0), *next = NULL;
        struct waiter w;
        uint64_t next_fence = UINT64_MAX;
        begin_waiting(&w, "fair", LATCHWORK_KIND_FAIR, NULL);
        let_it_queue(l);
        assert_ok(latchwork_hold_release(h, &error));
        enum latchwork_result tried = latchwork_lock_try(l, &next, &error);
        if (tried == LATCHWORK_LOCK_OK) {
            next_fence = latchwork_hold_fence(next);
            assert_ok(latchwork_hold_release(next, &error));
        } else {
            assert_int_equal(tried, LATCHWORK_LOCK_BUSY);
        }
        end_waiting(&w);
        assert_int_equal(w.result, LATCHWORK_LOCK_OK);
        assert_true(w.fence < next_fence);
    }
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* --- slots that move -------------------------------------------------------------------------- */

static struct latchwork_lock *renewed(struct latchwork_client *c, const char *name,
                                      int64_t ttl_ms) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                       .ttl_ms = ttl_ms};
    return open_lock(c, name, &o);
}

/* Returns how long the lease of a lock lasts, as node i says, also if the node only imports the
 * slot. */
static int64_t left_ms(int i, const char *name) {
    redisContext *c = lw_test_redis_connect(node[i]);
    assert_non_null(c);
    freeReplyObject(redisCommand(c, "ASKING"));
    redisReply *r = redisCommand(c, "PTTL lwl:{%s}:lock", name);
    assert_true(r && r->type == REDIS_REPLY_INTEGER);
    int64_t left = r->integer;
    freeReplyObject(r);
    redisFree(c);
    return left;
}

/* Waits until a hold, whose lock is on node i, is renewed n times. */
static void wait_for_renewals(int i, const char *name, int n) {
    int64_t last = left_ms(i, name), until = lw_boot_ms() + LIMIT_MS;
    while (n > 0) {
        int64_t left = left_ms(i, name);
        n -= left > last;
        last = left;
        assert_true(lw_boot_ms() < until);
        lw_sleep_ms(10);
    }
}

/* Tests that a hold survives moves of its slot, and that it is renewed before and after its keys
 * are moved. */
static void held_while_its_slot_moves(void **state) {
    (void)state;
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock *l = renewed(c, "mover", 9000);
    struct latchwork_hold *h = take(l, 0), *none = NULL;
    int slot = slot_of("mover");
    for (int i = 0; i < 2; i++) {
        int from = owner_of(slot), to = (from + 1) % MASTERS;
        begin_move(slot, from, to);
        wait_for_renewals(from, "mover", 1);
        assert_true(move_keys(slot, from, to) > 0);
        wait_for_renewals(to, "mover", 1);
        end_move(slot, from, to);
        assert_false(latchwork_hold_lost(h));
        assert_ok(latchwork_hold_check(h, &error));
        assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &none, &error));
    }
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* The slot of a lock moves to another node while a client waits for the lock. The release at the
 * new node must reach the waiter. */
static void waited_for_while_its_slot_moves(void **state) {
    (void)state;
    const char *name = "moved";
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock *l = renewed(c, name, LEASE_MS);
    struct latchwork_hold *h = take(l, 0);
    struct waiter w;
    uint64_t fence = latchwork_hold_fence(h);
    begin_waiting(&w, name, LATCHWORK_KIND_MUTEX, NULL);
    let_it_wait();
    for (int i = 0; i < 3; i++) move_slowly(slot_of(name));
    let_it_wait();
    assert_ok(latchwork_hold_release(h, &error));
    end_waiting(&w);
    assert_int_equal(w.result, LATCHWORK_LOCK_OK);
    assert_true(w.fence > fence);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

struct move {
    int slot, from, to;
    atomic_bool goes_on;
};
static void *finish_move(void *arg) {
    struct move *m = arg;
    lw_sleep_ms(300);
    atomic_store(&m->goes_on, true);
    move_keys(m->slot, m->from, m->to);
    end_move(m->slot, m->from, m->to);
    return NULL;
}
/* A lock is released in the middle of a move of its slot. The client repeats the release until the
 * move is over. */
static void released_while_its_slot_moves(void **state) {
    (void)state;
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock *l = open_kind(c, "leaving", LATCHWORK_KIND_MUTEX, LEASE_MS);
    struct latchwork_hold *h = take(l, 0);
    struct move m = {.slot = slot_of("leaving")};
    m.from = owner_of(m.slot);
    m.to = (m.from + 1) % MASTERS;
    begin_move(m.slot, m.from, m.to);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, finish_move, &m), 0);
    assert_ok(latchwork_hold_release(h, &error));
    assert_true(atomic_load(&m.goes_on));
    pthread_join(thread, NULL);
    h = take(l, 0);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* --- a master that is killed ------------------------------------------------------------------ */

enum { CONTENDERS = 3, LOG_MAX = 4096 };
struct grant {
    uint64_t fence;
    int64_t at_ms;
};
struct contest {
    atomic_bool over;
    pthread_mutex_t mutex;
    int n;
    struct grant grant[LOG_MAX];
};

static void *contend(void *arg) {
    struct contest *t = arg;
    struct latchwork_client *c = open_cluster(NULL);
    struct latchwork_lock *l = renewed(c, "contest", 800);
    while (!atomic_load(&t->over)) {
        struct latchwork_hold *h = NULL;
        if (latchwork_lock_acquire(l, 500, &h, NULL) != LATCHWORK_LOCK_OK) continue;
        pthread_mutex_lock(&t->mutex);
        if (!latchwork_hold_lost(h) && t->n < LOG_MAX)
            t->grant[t->n++] = (struct grant){latchwork_hold_fence(h), lw_boot_ms()};
        pthread_mutex_unlock(&t->mutex);
        lw_sleep_ms(5);
        latchwork_hold_release(h, NULL);
    }
    latchwork_lock_close(l);
    latchwork_client_close(c);
    return NULL;
}

static int grants(struct contest *t) {
    pthread_mutex_lock(&t->mutex);
    int n = t->n;
    pthread_mutex_unlock(&t->mutex);
    return n;
}

static void wait_for_grants(struct contest *t, int n) {
    for (int64_t until = lw_boot_ms() + LIMIT_MS; grants(t) < n; lw_sleep_ms(10))
        assert_true(lw_boot_ms() < until);
}

/* Finds a name of a lock that node i stores. */
static void name_on(int i, char name[16]) {
    int n = 0;
    do snprintf(name, 16, "n%d", n++);
    while (owner_of(slot_of(name)) != i);
}

/* The master that stores a lock is killed while three clients contend for the lock, and its replica
 * takes over. Fences must still grow, and the clients must get the lock again. A hold whose lock is
 * on another node must be renewed all the time, also while nobody has taken over. */
static void its_master_is_killed(void **state) {
    (void)state;
    static struct contest t = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct latchwork_client *c = open_cluster(NULL);
    int owner = owner_of(slot_of("contest"));
    int other_owner = (owner + 1) % MASTERS;
    char name[16], same_name[16];
    name_on(other_owner, name), name_on(owner, same_name);
    struct latchwork_lock *other = renewed(c, name, 9000), *same = renewed(c, same_name, 9000);
    struct latchwork_hold *kept = take(other, 0), *struck = take(same, 0);
    uint64_t struck_fence = latchwork_hold_fence(struck);
    pthread_t thread[CONTENDERS];
    for (int i = 0; i < CONTENDERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, contend, &t), 0);
    wait_for_grants(&t, 20);
    for (int i = 0; i < NODES; i++)
        if (alive(i)) say(i, "CONFIG SET cluster-require-full-coverage no");
    int64_t killed_ms = lw_boot_ms();
    lw_test_redis_kill(node[owner]);
    wait_for_renewals(other_owner, name, 2);
    assert_int_equal(owner_of(slot_of("contest")), -1);
    for (int i = 0; i < NODES; i++)
        if (alive(i)) say(i, "CONFIG SET cluster-node-timeout 1000");
    for (int64_t until = lw_boot_ms() + LIMIT_MS; owner_of(slot_of("contest")) < 0; lw_sleep_ms(20))
        assert_true(lw_boot_ms() < until);
    int before = grants(&t);
    wait_for_grants(&t, before + 20);
    print_message("after %lld ms the lock is taken again\n", (long long)(lw_boot_ms() - killed_ms));
    atomic_store(&t.over, true);
    for (int i = 0; i < CONTENDERS; i++) pthread_join(thread[i], NULL);
    for (int i = 1; i < t.n; i++)
        if (t.grant[i].fence <= t.grant[i - 1].fence)
            fail_msg("grant %d: fence %llu after %llu", i, (unsigned long long)t.grant[i].fence,
                     (unsigned long long)t.grant[i - 1].fence);
    assert_false(latchwork_hold_lost(kept));
    assert_ok(latchwork_hold_check(kept, &error));
    assert_ok(latchwork_hold_release(kept, &error));
    /* The hold on the killed master may or may not be lost. In both cases the next hold has a
     * larger fence. */
    latchwork_hold_release(struck, &error);
    struck = take(same, LIMIT_MS);
    assert_true(latchwork_hold_fence(struck) > struck_fence);
    assert_ok(latchwork_hold_release(struck, &error));
    latchwork_lock_close(other);
    latchwork_lock_close(same);
    latchwork_client_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_kind_on_every_node, clean),
        cmocka_unit_test_setup(the_list_has_all_nodes, clean),
        cmocka_unit_test_setup(without_scripts, clean),
        cmocka_unit_test_setup(names_must_be_in_one_slot, clean),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test_setup(a_crowd, clean),
        cmocka_unit_test_setup(a_release_hands_over, clean),
        cmocka_unit_test_setup(a_polling_waiter_keeps_its_place, clean),
        cmocka_unit_test_setup(held_while_its_slot_moves, clean),
        cmocka_unit_test_setup(waited_for_while_its_slot_moves, clean),
        cmocka_unit_test_setup(released_while_its_slot_moves, clean),
        cmocka_unit_test_setup(its_master_is_killed, clean),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
