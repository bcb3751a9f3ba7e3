/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes about groups that share the handlers of a worker. */
#include "tests/sim/scenes/scene.h"

#include <stdlib.h>

enum { MOST = 20000, HANDLERS = 4, IN_USE = HANDLERS + HANDLERS / 4 + 1 };

static int64_t since[MOST]; /* when each record's job was first seen */

static void begin(void) {
    memset(since, 0, sizeof since);
    scene.groups = scene.all_linger = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
}

static void end(void) {
    scene.groups = scene.all_linger = false;
    end_worker();
}

/* Records of one group arrive, each with a key of its own. */
static void arrive_group(int from, int to, char group) {
    static struct { /* the worker has pointers to it */
        char key[12], payload[8];
    } record[MOST];
    for (int i = from; i < to; i++) {
        snprintf(record[i].key, sizeof record[i].key, "%c%d", group, i);
        snprintf(record[i].payload, sizeof record[i].payload, "\"%c\"", group);
        arrive_as(1, i, record[i].key, record[i].payload);
    }
}

/* Ends a job that took this time in its handler. */
static void end_job(int i, int64_t took_ms) {
    struct lw_job *job = scene.job[i];
    scene.job[i] = scene.job[--scene.n_job];
    job->outcome = LW_DONE;
    job->took_us = 1000 * took_ms;
    lw_job_end(job);
    lw_worker_finished(scene.lw, job);
}

static int in_handlers(char group) {
    int n = 0;
    for (int i = 0; i < scene.n_job; i++) n += scene.job[i]->key.p[0] == group;
    return n;
}

/* All handlers are busy with messages of one group, and more of it wait. The first message of
 * another group must have the next handler. */
bool a_newcomer_has_the_next_handler(void) {
    begin();
    arrive_group(0, 40, 'a');
    rounds(20);
    bool built = scene.n_job == IN_USE;
    for (int i = 0; i < 10 && built; i++) end_job(0, 10), rounds(4);
    arrive_group(40, 43, 'b');
    rounds(2);
    int before = in_handlers('b');
    if (built) end_job(0, 10);
    rounds(4);
    int after = in_handlers('b');
    if (!built || before || after != 1)
        printf("%d in handlers; of the newcomer %d, then %d\n", scene.n_job, before, after);
    end();
    return built && !before && after == 1;
}

/* More records of one group wait than memory keeps for the turns of groups, and one of another
 * group is behind them. The first ones must wait in Redis, the last one must not. */
bool a_flood_waits_in_redis(void) {
    enum { FLOOD = 400 };
    begin();
    arrive_group(0, FLOOD, 'a');
    rounds(20);
    long long alone = count_of("ZCARD", "lw:{t.0}:ready:a");
    arrive_group(FLOOD, FLOOD + 3, 'b');
    rounds(20);
    bool built = scene.n_job == IN_USE && !alone;
    if (built) end_job(0, 10);
    rounds(20);
    int newcomers = in_handlers('b');
    long long parked = count_of("ZCARD", "lw:{t.0}:ready:a");
    if (!built || newcomers != 1 || parked < FLOOD / 2 || parked == FLOOD)
        printf("alone: %d in handlers, %lld in Redis; then %d of the newcomer run, %lld in Redis\n",
               scene.n_job, alone, newcomers, parked);
    end();
    return built && newcomers == 1 && parked >= FLOOD / 2 && parked < FLOOD;
}

/* The only group has more records than memory has room for. Half of the room must become free while
 * the handlers are busy, or nobody would see a group behind them. */
bool a_lone_flood_leaves_room_in_memory(void) {
    begin();
    arrive_group(0, MOST, 'a');
    bool full = !lw_worker_wants(scene.lw);
    rounds(200);
    size_t room = lw_worker_wants(scene.lw);
    if (!full || room < MOST / 3)
        printf("room for %zu records of %d%s\n", room, MOST, full ? "" : ", and it was never full");
    end();
    return full && room >= MOST / 3;
}

/* Lets time pass. A message of a group whose name begins with a capital letter takes SLOW_MS in its
 * handler, others take QUICK_MS. Adds the time of each group to took_ms. */
enum { SLOW_MS = 40, QUICK_MS = 4 };
static void work(int64_t ms, int64_t took_ms[128]) {
    for (int64_t until_ms = scene.now_ms + ms; scene.now_ms < until_ms;) {
        rounds(1);
        for (int i = 0; i < scene.n_job; i++) {
            struct lw_job *job = scene.job[i];
            char group = job->key.p[0];
            int64_t *at = &since[job->offset];
            if (!*at) *at = scene.now_ms;
            if (scene.now_ms - *at < (group < 'a' ? SLOW_MS : QUICK_MS)) continue;
            took_ms[(int)group] += scene.now_ms - *at;
            end_job(i--, scene.now_ms - *at);
        }
    }
}

/* The messages of one group take ten times as long as those of another, which comes later. From
 * then on both groups must get the same time of the handlers, up to a tenth and what is in use at
 * once: no more for quick messages, and nothing for the time in which a group had none. */
bool groups_share_handler_time(void) {
    enum { OF_A = 150, UNTIL_MS = 1400 };
    int64_t took_ms[128] = {0};
    begin();
    arrive_group(0, OF_A, 'A');
    work(400, took_ms);
    bool built = took_ms['A'] > 400 * HANDLERS / 2;
    took_ms['A'] = 0;
    arrive_group(OF_A, OF_A + UNTIL_MS, 'b');
    work(UNTIL_MS, took_ms);
    int64_t all = took_ms['A'] + took_ms['b'], apart = llabs(took_ms['A'] - took_ms['b']);
    built &= all > UNTIL_MS * HANDLERS / 2;
    if (!built || apart > all / 10 + IN_USE * SLOW_MS)
        printf("the slow group took %lld ms, the quick one %lld ms%s\n", (long long)took_ms['A'],
               (long long)took_ms['b'], built ? "" : ", and the situation was not built");
    end();
    return built && apart <= all / 10 + IN_USE * SLOW_MS;
}

/* Of two groups whose messages are alike, one has the weight 3, so it must get three quarters. */
bool a_weight_multiplies_the_share(void) {
    enum { EACH = 2000, UNTIL_MS = 800 };
    int64_t took_ms[128] = {0};
    begin();
    arrive_group(0, EACH, 'b');
    arrive_group(EACH, 2 * EACH, 'w');
    work(UNTIL_MS, took_ms);
    int64_t all = took_ms['b'] + took_ms['w'], off = llabs(4 * took_ms['w'] - 3 * all);
    bool right = all > UNTIL_MS * HANDLERS / 2 && off < all / 5;
    if (!right)
        printf("the weight 3 took %lld of %lld ms\n", (long long)took_ms['w'], (long long)all);
    end();
    return right;
}

/* A group has had all handlers for long, while ten others began to wait. Then it has no work for a
 * while. When it comes back, it must wait until the others have had as much. */
bool coming_back_does_not_pay(void) {
    enum { OTHERS = 10, EACH = 200, AWAY_MS = 700 };
    int64_t took_ms[128] = {0};
    begin();
    arrive_group(0, IN_USE, 'A');
    rounds(1);
    for (int i = 0; i < OTHERS; i++)
        arrive_group(1000 + EACH * i, 1000 + EACH * (i + 1), (char)('b' + i));
    rounds(200);
    bool built = in_handlers('A') == IN_USE;
    while (built && scene.n_job) end_job(0, 400);
    work(AWAY_MS, took_ms);
    arrive_group(1000 + EACH * OTHERS, 1000 + EACH * OTHERS + IN_USE, 'A');
    rounds(1);
    work(SLOW_MS / 2, took_ms);
    int back = in_handlers('A');
    built &= took_ms['k'] > 0 && took_ms['b'] > 0;
    if (!built || back)
        printf("%d messages of the group run%s\n", back,
               built ? "" : ", and the situation was not built");
    end();
    return built && !back;
}

/* One of two shards is away, so half of the lanes of a group wait for it. They must not be given
 * the handlers that another group can use. */
bool lanes_of_a_lost_shard_have_no_turns(void) {
    int64_t took_ms[128] = {0};
    scene.lost_shard = true;
    scene.committed = 0; /* no first run, which waits for all shards */
    begin();
    arrive_group(0, 40, 'a');
    work(100, took_ms);
    bool built = !scene.n_job && scene.lw->held > IN_USE;
    arrive_group(40, 80, 'b');
    rounds(20);
    int n = in_handlers('b');
    if (!built || n != IN_USE)
        printf("%d messages run%s\n", n, built ? "" : ", and the situation was not built");
    end();
    scene.lost_shard = false;
    return built && n == IN_USE;
}

/* Redis is at maxmemory, so gate admits nothing. A group whose messages are all in memory must not
 * be given the handlers that lanes in Redis can use: these make room there. When there is room, it
 * is its turn. */
bool at_maxmemory_lanes_in_redis_have_the_turns(void) {
    enum { FLOOD = 400, FULL_MS = 600 };
    int64_t took_ms[128] = {0};
    begin();
    arrive_group(0, FLOOD, 'a');
    arrive_group(FLOOD, FLOOD + 10, 'c');
    work(40, took_ms);
    long long waited = count_of("ZCARD", "lw:{t.0}:ready:a");
    store_set_oom(scene.store, true);
    arrive_group(FLOOD + 10, FLOOD + 60, 'b');
    work(FULL_MS, took_ms);
    long long left = count_of("ZCARD", "lw:{t.0}:ready:a");
    bool built = waited > FLOOD / 2 && !in_handlers('b');
    arrive_group(FLOOD + 60, 2 * FLOOD, 'a');
    store_set_oom(scene.store, false);
    work(400, took_ms);
    if (!built || left > waited / 4 || !took_ms['b'])
        printf("%lld lanes waited in Redis, %lld were left; then the other group took %lld ms\n",
               waited, left, (long long)took_ms['b']);
    end();
    return built && left <= waited / 4 && took_ms['b'] > 0;
}

/* The messages of one group take much longer than anybody knows yet. They must not fill all
 * handlers while quick ones of another group wait. */
bool what_takes_longer_than_known_leaves_handlers(void) {
    enum { OF_A = 20, UNTIL_MS = 600 };
    int64_t took_ms[128] = {0};
    begin();
    arrive_group(0, 20, 'b');
    arrive_group(20, 20 + OF_A, 'A');
    arrive_group(20 + OF_A, 20 + OF_A + UNTIL_MS, 'b');
    int slow = 0;
    for (int64_t until_ms = scene.now_ms + UNTIL_MS; scene.now_ms < until_ms;) {
        rounds(1);
        slow = in_handlers('A');
        for (int i = 0; i < scene.n_job; i++) {
            int64_t *at = &since[scene.job[i]->offset];
            if (!*at) *at = scene.now_ms;
            if (scene.job[i]->key.p[0] == 'A' || scene.now_ms - *at < QUICK_MS) continue;
            took_ms['b'] += scene.now_ms - *at;
            end_job(i--, scene.now_ms - *at);
        }
    }
    bool fair = slow > 0 && slow < IN_USE && took_ms['b'] > UNTIL_MS / 2;
    if (!fair)
        printf("%d slow messages run; the quick ones took %lld ms\n", slow,
               (long long)took_ms['b']);
    end();
    return fair;
}

/* Many groups send one message each, while a message of another one is always in its handler. They
 * must be forgotten. */
bool groups_of_one_message_are_forgotten(void) {
    enum { GROUPS = 500 };
    static struct { char key[12], payload[12]; } record[GROUPS + 1];
    begin();
    arrive_group(0, 1, 'A');
    rounds(20);
    for (int i = 1; i <= GROUPS; i++) {
        snprintf(record[i].key, sizeof record[i].key, "b%d", i);
        snprintf(record[i].payload, sizeof record[i].payload, "\"b%d\"", i);
        arrive_as(1, i, record[i].key, record[i].payload);
        rounds(2);
        for (int k = 0; k < scene.n_job; k++)
            if (scene.job[k]->key.p[0] == 'b') end_job(k--, 200);
    }
    rounds(1000);
    unsigned known = HASH_COUNT(scene.lw->groups.table);
    bool good = in_handlers('A') == 1 && known == 1;
    if (!good) printf("%u groups are known, %d messages run\n", known, scene.n_job);
    end();
    return good;
}

/* Many lanes wait in Redis of which nobody knows the group, as after a replay. Messages of another
 * group must not wait until all of these are through. */
bool lanes_of_unknown_groups_leave_handlers(void) {
    enum { UNKNOWN = 600 };
    int64_t took_ms[128] = {0};
    char lock[40];
    begin();
    end();
    scene.all_linger = true;
    begin_worker("a-2"); /* it knows of no groups */
    assign(1);
    rounds(20);
    for (int i = 0; i < UNKNOWN; i++) {
        snprintf(lock, sizeof lock, "lw:{t.0}:lock:a%d", i);
        const char *set[] = {"SET", lock, "1:1", "PX", "1000"};
        freeReplyObject(store_call(scene.store, 5, set, NULL));
    }
    arrive_group(0, UNKNOWN, 'a');
    rounds(60);
    long long parked = count_of("ZCARD", "lw:{t.0}:lanes");
    end_worker();
    scene.groups = true;
    begin_worker("b-1");
    assign(1);
    rounds(2000);
    bool built = parked == UNKNOWN && in_handlers('a') == IN_USE;
    arrive_group(UNKNOWN, 2 * UNKNOWN, 'b');
    work(300, took_ms);
    if (!built || took_ms['b'] < took_ms['a'] / 3 || took_ms['a'] < took_ms['b'] / 3)
        printf("%lld were parked; unknown groups took %lld ms, the other one %lld ms\n", parked,
               (long long)took_ms['a'], (long long)took_ms['b']);
    end();
    return built && took_ms['b'] >= took_ms['a'] / 3 && took_ms['a'] >= took_ms['b'] / 3;
}
