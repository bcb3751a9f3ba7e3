/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of situations that random runs of the simulation seldom meet: writing back to Redis during
 * a quarantine, another fleet in the consumer group, and the first run of an application, for which
 * neither Redis nor Kafka knows an earlier worker. The situations are built by hand, with the real
 * worker logic and the real scripts on a fake Redis. In most cases the handler of record 1 (key X)
 * does not end, so that the watermark stands still, and the case checks which record of key K has
 * the last effect.
 * usage: sim_meta [CASE…] */
#include "consumer/worker/private.h"
#include "base/log.h"
#include "tests/sim/redis/store.h"

#include <stdio.h>
#include <stdlib.h>

enum { OTHER = 99 }; /* generation of the assignment of partition 1 */
enum { RECORDS = 7, JOBS = 64, REPLIES = 128, EFFECTS = 64 };
static const char *const keys[RECORDS] = {"A", "X", "K", "Y", "K", "K", "K"};

static struct scene {
    struct store *store;
    int64_t now_ms;
    struct lw_worker *lw;
    struct lw_counts counts;
    struct lw_board *board;  /* NULL: nothing is a suspect */
    bool connecting, frozen; /* frozen: the worker gets no turns and no answers */
    bool x_lingers, k_lingers, all_linger;
    redisReply *reply[REPLIES];
    int n_reply;
    struct lw_job *job[JOBS];
    int n_job;
    int64_t committed, asked; /* asked: offset of the commit under way; -1: none */
    uint32_t asked_gen;
    int64_t sought; /* offset from which the worker wants to read partition 0 again; -1: none */
    /* Number of commits that changed a partition's offset while the partition was held back. */
    int premature;
    /* can_look: Kafka can list the commits of the group. looking: the worker waits for this list.
     * no_commits: Kafka never answers a commit. */
    bool can_look, looking, no_commits;
    int run_ahead, repair_batch, ttl_ms;
    int repairs; /* number of calls of repair so far */
    /* fail_settle: the next call of settle executes, but is answered with an error. settles: number
     * of calls of settle so far. go: how the last one wanted its first lane to continue. */
    bool fail_settle;
    int settles;
    enum lw_go go;
    bool held;
    int stopped; /* exit status with which the worker asked to end */
    /* Names of the Redis lists of hints and of claimed hints. `ready` is NULL while the worker does
     * not want hints. */
    const char *ready, *claimed;
    int64_t effect[EFFECTS];
    int n_effects;
} s;

/* --- the worker's outside --------------------------------------------------------------------- */

static int64_t boot_ms(void *ctx) { return (void)ctx, s.now_ms; }
static int64_t wall_ms(void *ctx) { return (void)ctx, s.now_ms + 100000000; }
static uint64_t chance(void *ctx) {
    static uint64_t x = 7;
    (void)ctx;
    return x = x * 6364136223846793005u + 1442695040888963407u;
}
static void drop_replies(void) {
    while (s.n_reply) freeReplyObject(s.reply[--s.n_reply]);
}
static void connect_shard(void *ctx, int shard) {
    (void)ctx, (void)shard;
    s.connecting = true;
    drop_replies();
}

static int count_repairs(const struct lw_commands *k) {
    int n = 0;
    for (int i = 0; i < k->n; i++) {
        const char *const *a = k->argv + k->cmd[i].first;
        n += !strcmp(a[0], "EVALSHA") && !strncmp(a[1], script_sha(&lw_script_repair), 40);
    }
    return n;
}

/* Looks at a call of settle. Its ARGV begin behind the number of keys and the keys, and ARGV[8]
 * holds the items, whose fourth byte says how a lane continues. */
static void look_at_settle(const char *const *a, redisReply **reply) {
    if (strcmp(a[0], "EVALSHA") || strncmp(a[1], script_sha(&lw_script_settle), 40)) return;
    s.settles++;
    s.go = (enum lw_go)a[2 + atoi(a[2]) + 8][3];
    if (!s.fail_settle) return;
    s.fail_settle = false;
    const char *eval[] = {"EVAL", "return redis.error_reply('TRYAGAIN the slot is moved')", "0"};
    freeReplyObject(*reply);
    *reply = store_call(s.store, 3, eval, NULL);
}

static void send_pipeline(void *ctx, int shard, const struct lw_commands *k) {
    (void)ctx, (void)shard;
    store_set_time_us(s.store, (s.now_ms + 100000000) * 1000);
    s.repairs += count_repairs(k);
    for (int i = 0; i < k->n; i++) {
        const char *const *a = k->argv + k->cmd[i].first;
        s.reply[s.n_reply] = store_call(s.store, k->cmd[i].argc, a, k->len + k->cmd[i].first);
        look_at_settle(a, &s.reply[s.n_reply++]);
    }
}

static void hints(void *ctx, int shard, const char *ready, const char *claimed, bool want) {
    (void)ctx, (void)shard;
    s.ready = want ? ready : NULL;
    s.claimed = claimed;
}
static void take_hint(void) {
    if (!s.ready) return;
    const char *pop[] = {"RPOPLPUSH", s.ready, s.claimed};
    redisReply *r = store_call(s.store, 3, pop, NULL);
    if (r->type == REDIS_REPLY_STRING) lw_worker_hint(s.lw, 0, lw_bytes(r->str, r->len));
    freeReplyObject(r);
}
static void run_jobs(void *ctx, struct lw_job **jobs, size_t n) {
    (void)ctx;
    for (size_t i = 0; i < n; i++) s.job[s.n_job++] = jobs[i];
}
static int letter(void *ctx, const struct lw_dead_letter *l, struct lw_err *err) {
    return (void)ctx, (void)l, lw_fail(err, "no topic");
}
static void hold(void *ctx, uint32_t gen, bool held) {
    (void)ctx, (void)gen;
    s.held = held;
}
static int seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err) {
    (void)ctx, (void)err;
    if (gen != OTHER) s.sought = offset;
    return 0;
}
static int commit(void *ctx, const struct lw_commit *k, size_t n, struct lw_err *err) {
    (void)ctx, (void)n, (void)err;
    s.premature += s.held && k->offset != s.committed;
    s.asked = k->offset;
    s.asked_gen = k->gen;
    return 0;
}
static bool commit_busy(void *ctx) { return (void)ctx, s.asked >= 0; }
static int commit_sync(void *ctx, const struct lw_commit *k, size_t n, bool *ok,
                       struct lw_err *err) {
    (void)ctx, (void)err;
    for (size_t i = 0; i < n; i++) {
        if (ok) ok[i] = true;
        if (k[i].gen == OTHER) continue;
        s.committed = k[i].offset;
        lw_worker_committed(s.lw, k[i].gen, k[i].offset, true, false);
    }
    return 0;
}
static int committed(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                     struct lw_err *err) {
    (void)ctx, (void)topic, (void)partition, (void)err;
    *offset = s.committed;
    return 0;
}
static bool ask_group(void *ctx) { return (void)ctx, s.looking = s.can_look; }
static void release(void *ctx, void *origin) { (void)ctx, (void)origin; }
static void passed(void *ctx, const char *topic, int32_t partition, int64_t watermark) {
    (void)ctx, (void)topic, (void)partition, (void)watermark;
}
static void stop(void *ctx, int status, const char *reason) {
    (void)ctx, (void)reason;
    s.stopped = status;
}
static const struct lw_io io = {.boot_ms = boot_ms,
                                .wall_ms = wall_ms,
                                .random = chance,
                                .connect = connect_shard,
                                .send = send_pipeline,
                                .hints = hints,
                                .run = run_jobs,
                                .letter = letter,
                                .hold = hold,
                                .seek = seek,
                                .commit = commit,
                                .commit_busy = commit_busy,
                                .commit_sync = commit_sync,
                                .committed = committed,
                                .look = ask_group,
                                .release = release,
                                .passed = passed,
                                .stop = stop};

/* --- time passes ------------------------------------------------------------------------------ */

static void take_answers(void) {
    redisReply *r[REPLIES];
    int n = s.n_reply;
    memcpy(r, s.reply, sizeof r);
    s.n_reply = 0;
    for (int i = 0; i < n; i++) {
        lw_worker_reply(s.lw, 0, r[i]);
        freeReplyObject(r[i]);
    }
}

static void finish(struct lw_job *job) {
    for (struct lw_job *f = job, *next; f; f = next) {
        f->outcome = LW_DONE;
        s.effect[s.n_effects++] = f->offset;
        next = lw_job_end(f);
        lw_worker_finished(s.lw, f);
    }
}

static bool has_key(const struct lw_job *job, char key) {
    return job->key.n == 1 && *job->key.p == key;
}

static void finish_jobs(void) {
    struct lw_job *job[JOBS];
    int n = s.n_job;
    memcpy(job, s.job, sizeof job);
    s.n_job = 0;
    for (int i = 0; i < n; i++)
        if (s.all_linger || (s.x_lingers && has_key(job[i], 'X')) ||
            (s.k_lingers && has_key(job[i], 'K')))
            s.job[s.n_job++] = job[i];
        else
            finish(job[i]);
}

static void tell_commits(void) {
    if (!s.looking) return;
    s.looking = false;
    lw_worker_listed(s.lw, true, s.committed >= 0);
}

static void take_commit(void) {
    if (s.asked < 0 || s.no_commits) return;
    s.committed = s.asked;
    s.asked = -1;
    lw_worker_committed(s.lw, s.asked_gen, s.committed, true, false);
}

static void round_of_all(void) {
    s.now_ms += 2;
    if (s.frozen) return;
    if (s.connecting) {
        s.connecting = false;
        lw_worker_connected(s.lw, 0);
    }
    take_answers();
    take_hint();
    finish_jobs();
    tell_commits();
    take_commit();
    lw_worker_turn(s.lw);
}
static void rounds(int n) {
    while (n--) round_of_all();
}

static struct lw_config *config_of(void) {
    /* One configuration for each TTL, because workers with different TTLs can run at once. */
    static struct lw_config of[2];
    struct lw_config *c = &of[s.ttl_ms > 10000];
    c->name = "t";
    c->redis.shards = 1;
    c->key.from.from = LW_KEY_MESSAGE;
    c->key.from_text = "message-key";
    c->kafka.group_id = "t";
    c->lock.ttl_ms = s.ttl_ms;
    c->lock.max_run = 64;
    c->lock.run_ahead = s.run_ahead;
    c->queue.max_waiting = 1000;
    c->retry.max_attempts = 5;
    c->retry.backoff_ms = 200;
    c->retry.backoff_max_ms = 1000;
    c->retry.max_age_s = 60;
    c->handler.threads = 4;
    c->shutdown.grace_ms = 1000;
    return c;
}

static void begin_worker(const char *id) {
    s.n_job = 0;
    s.asked = -1;
    s.frozen = s.looking = false;
    s.lw = lw_worker_open(&(struct lw_worker_setup){.config = config_of(),
                                                    .counts = &s.counts,
                                                    .board = s.board,
                                                    .id = id,
                                                    .host = "h",
                                                    .cluster_id = "",
                                                    .io = &io,
                                                    .repair_batch = s.repair_batch});
    rounds(20);
}
static void end_worker(void) {
    lw_worker_free(s.lw);
    drop_replies();
    s.ready = NULL;
    s.lw = NULL;
}
static void assign(uint32_t gen) {
    lw_worker_assign(s.lw, &(struct lw_assigned){.topic = "t",
                                                 .gen = gen,
                                                 .committed = s.committed,
                                                 .begin = s.committed < 0 ? 0 : s.committed,
                                                 .log_end = RECORDS});
}
static void arrive_one(uint32_t gen, int64_t offset, const char *key) {
    lw_worker_arrived(
        s.lw, gen,
        &(struct lw_arrival){.record = {.key = lw_bytes_of(key), .payload = lw_bytes_of("{}")},
                             .offset = offset,
                             .timestamp_ms = 1});
}
static void arrive(uint32_t gen, int from, int to) {
    for (int i = from; i < to; i++) arrive_one(gen, i, keys[i]);
}

/* QUARANTINE is a number of calls of round_of_all(), each of which advances the clock by 2 ms.
 * Together they last longer than a quarantine. */
enum { QUARANTINE = 5200 };

/* Runs a worker until records 0, 2, 3 and 4 are done, while record 1 is still with its handler. */
static void first_life(void) {
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive(1, 0, 5);
    rounds(400);
}

static bool last_of_k(int64_t wanted) {
    int64_t last = -1;
    for (int i = 0; i < s.n_effects; i++)
        if (*keys[s.effect[i]] == 'K') last = s.effect[i];
    if (last != wanted)
        printf("the last effect of key K is that of %d, not %d\n", (int)last, (int)wanted);
    return last == wanted;
}

/* --- the cases -------------------------------------------------------------------------------- */

/* The first worker learns of a new epoch too late: a second worker has already entered the epoch,
 * and the quarantine of the epoch is over. The records of key K that the first worker had finished
 * must run again before record 5, which has the same key. */
static bool a_repair_that_is_late(void) {
    first_life();
    struct scene a = s;
    store_flushall(s.store);
    s.n_reply = 0;
    begin_worker("b-2");
    lw_worker_assign(
        s.lw,
        &(struct lw_assigned){
            .topic = "t", .partition = 1, .gen = OTHER, .committed = 2, .begin = 2, .log_end = 2});
    rounds(QUARANTINE);
    end_worker();
    int64_t now = s.now_ms;
    struct store *store = s.store;
    s = a;
    s.now_ms = now, s.store = store;
    rounds(600);
    arrive(1, 1, 6);
    rounds(400);
    end_worker();
    begin_worker("c-3");
    assign(2);
    rounds(200);
    arrive(2, 1, 6);
    s.x_lingers = false;
    rounds(800);
    end_worker();
    return last_of_k(5);
}

/* Partition 1 is repaired first, with one record per call, and is taken away after the first call.
 * The repair of partition 0 must then begin at the first record of partition 0, and not at the
 * position that the repair of partition 1 had reached. Otherwise record 4 would be written back to
 * Redis without record 2, which has the same key. */
static bool a_repair_whose_place_moves(void) {
    s.repair_batch = 1;
    begin_worker("a-1");
    lw_worker_assign(
        s.lw, &(struct lw_assigned){.topic = "t", .partition = 1, .gen = OTHER, .log_end = 2});
    assign(1);
    rounds(QUARANTINE);
    arrive(1, 0, 5);
    /* Record 0 of partition 1 has the same key as record 1 of partition 0, and waits behind it. */
    arrive_one(OTHER, 0, "X");
    arrive_one(OTHER, 1, "Z");
    rounds(400);
    store_flushall(s.store);
    s.repairs = 0;
    for (int i = 0; i < 2000 && !s.repairs; i++) round_of_all();
    lw_worker_revoke(s.lw, &(uint32_t){OTHER}, 1, true);
    rounds(100);
    bool several = s.repairs > 1;
    end_worker();
    begin_worker("b-2");
    assign(2);
    rounds(200);
    arrive(2, 1, 5);
    rounds(QUARANTINE);
    s.x_lingers = false;
    rounds(400);
    end_worker();
    return several && last_of_k(4);
}

/* A scene is a worker with its fake Kafka. This function swaps the current scene with `other`. The
 * fake Redis, the time and the list of effects stay as they are, because both scenes share them. */
static void exchange(struct scene *other) {
    struct scene was = s;
    s = *other;
    s.store = was.store;
    s.now_ms = was.now_ms;
    memcpy(s.effect, was.effect, sizeof s.effect);
    s.n_effects = was.n_effects;
    *other = was;
}

static void set_lock_of_k(bool taken) {
    const char *set[] = {"SET", "lw:{t.0}:lock:K", "1:1", "PX", "10000"},
               *del[] = {"DEL", "lw:{t.0}:lock:K"};
    redisReply *r = taken ? store_call(s.store, 5, set, NULL) : store_call(s.store, 2, del, NULL);
    freeReplyObject(r);
}

static bool finish_k(void) {
    for (int i = 0; i < s.n_job; i++)
        if (s.job[i]->key.p[0] == 'K') {
            finish(s.job[i]);
            s.job[i] = s.job[--s.n_job];
            return true;
        }
    return false;
}

static bool has_k(void) {
    for (int i = 0; i < s.n_job; i++)
        if (s.job[i]->key.p[0] == 'K') return true;
    return false;
}

/* Records 2 and 4 of key K wait in Redis. The first worker claims and handles both, but is cut off
 * before it can settle them. Its lease ends, a second worker runs record 2 again, and then Redis is
 * wiped. The first worker may record only record 2 as done. Record 4 must run again, after the
 * second worker's run of record 2. */
static bool dones_of_an_ended_lease(void) {
    s.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    set_lock_of_k(true);
    arrive(1, 0, 5);
    rounds(100);
    set_lock_of_k(false);
    for (int i = 0; i < 2 * QUARANTINE && !has_k(); i++) round_of_all();
    bool both = finish_k() && s.n_effects >= 2 && s.effect[s.n_effects - 2] == 2 &&
                s.effect[s.n_effects - 1] == 4;
    struct scene b = {.k_lingers = true,
                      .x_lingers = true,
                      .committed = -1,
                      .asked = -1,
                      .run_ahead = 1,
                      .ttl_ms = 10000};
    exchange(&b); /* `b` now holds the first worker, which is cut off */
    begin_worker("b-2");
    for (int i = 0; i < 2 * QUARANTINE && !has_k(); i++) round_of_all();
    bool again = finish_k() && s.effect[s.n_effects - 1] == 2;
    end_worker();
    store_flushall(s.store);
    exchange(&b);
    s.k_lingers = false;
    rounds(200);
    arrive(1, (int)s.committed, 5);
    s.x_lingers = false;
    rounds(2 * QUARANTINE);
    end_worker();
    if (!both || !again) printf("the situation was not built: %d %d\n", both, again);
    return both && again && last_of_k(4);
}

static bool k_is_locked(void) {
    const char *words[] = {"EXISTS", "lw:{t.0}:lock:K"};
    redisReply *r = store_call(s.store, 2, words, NULL);
    bool locked = r->integer > 0;
    freeReplyObject(r);
    return locked;
}

/* Records of key K wait in Redis, and one of them is settled. Redis hands over the next one with
 * its answer, but meanwhile the worker has been told to stop. It must give the lane back, and not
 * leave it locked for a TTL. */
static bool a_stop_while_the_next_head_comes(void) {
    s.k_lingers = true;
    s.x_lingers = false;
    s.run_ahead = 1;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    set_lock_of_k(true);
    arrive(1, 0, RECORDS);
    rounds(100);
    set_lock_of_k(false);
    for (int i = 0; i < 2 * QUARANTINE && !has_k(); i++) round_of_all();
    bool built = finish_k();
    int before = s.n_reply;
    for (int i = 0; i < 50 && s.n_reply == before; i++) s.now_ms += 2, lw_worker_turn(s.lw);
    built = built && s.n_reply > before && k_is_locked();
    lw_worker_stop(s.lw);
    rounds(300);
    bool locked = k_is_locked();
    if (!built || locked) printf("%s\n", built ? "the lane is still locked" : "it was not built");
    end_worker();
    return built && !locked;
}

/* A worker with a TTL of one minute runs a record of key K and is cut off, and Redis is wiped. The
 * next owner has a TTL of 10 s, but learned of the longer TTL before the wipe. So its quarantine
 * must last until the lease of the first worker has ended. */
static bool a_wipe_with_two_ttls(void) {
    struct scene b = {.x_lingers = true,
                      .k_lingers = true,
                      .committed = -1,
                      .asked = -1,
                      .run_ahead = 64,
                      .ttl_ms = s.ttl_ms};
    s.k_lingers = true;
    s.ttl_ms = 60000;
    begin_worker("a-1");
    assign(1);
    rounds(6 * QUARANTINE);
    exchange(&b);
    begin_worker("b-2");
    rounds(100);
    exchange(&b);
    arrive(1, 0, 3);
    rounds(100);
    bool runs = has_k();
    int64_t lease_ms = 0;
    for (int i = 0; i < s.n_job; i++)
        if (s.job[i]->key.p[0] == 'K') lease_ms = atomic_load(&s.job[i]->lease->deadline_ms);
    b.committed = s.committed;
    exchange(&b); /* `b` now holds the first worker, which is cut off */
    store_flushall(s.store);
    assign(2);
    rounds(400);
    arrive(2, 1, 3);
    for (int i = 0; i < 7 * QUARANTINE && !has_k(); i++) round_of_all();
    bool good = runs && has_k() && s.now_ms >= lease_ms;
    if (!good)
        printf("key K ran %d ms before another's lease of it ended\n", (int)(lease_ms - s.now_ms));
    end_worker();
    exchange(&b);
    end_worker();
    return good;
}

/* Redis has a floor of the partition, but the consumer group has no commit. The worker must not
 * commit before it has read the recorded states from Redis. */
static bool commits_before_the_states(void) {
    first_life();
    end_worker();
    s.committed = -1;
    begin_worker("b-2");
    assign(2);
    rounds(200);
    end_worker();
    if (s.premature) printf("%d commits before the states were read\n", s.premature);
    return !s.premature;
}

/* Shows the worker a commit of its consumer group: `fleet` has committed `offset` in partition
 * 2. */
static void look(const char *fleet, int64_t offset) {
    lw_worker_looked(s.lw, &(struct lw_group_offset){"t", 2, offset, fleet});
}

/* Number of rounds of the test, 2 ms each, between two looks at the commits of the group. A worker
 * reports a rival only after 2.5 * LOOK rounds, which is half of its TTL. */
enum { LOOK = 1000 };
#define YOUNGER "ffffffffffffffff"
#define OLDER "0000000000000001"

static bool fleet_said(bool wanted) {
    bool said = s.lw->rival.said_ms > 0;
    if (said != wanted) printf("the other fleet was %s\n", said ? "told of" : "not told of");
    return said == wanted;
}

/* The younger of two fleets makes only one commit and then stops. The older fleet must still report
 * this commit after a few more looks at the commits of the group. */
static bool a_younger_fleet_seen_once(void) {
    begin_worker("a-1");
    rounds(QUARANTINE);
    look(s.lw->fleet, 10);
    look(YOUNGER, 20);
    rounds(LOOK);
    look(YOUNGER, 20);
    bool good = fleet_said(false);
    rounds(2 * LOOK);
    look(s.lw->fleet, 30);
    good = fleet_said(true) && good && !s.stopped;
    end_worker();
    return good;
}

/* A commit may look like that of a younger fleet although no such fleet exists. The test covers two
 * cases. In the first, the commit existed before the worker looked for the first time. In the
 * second, Redis was wiped, and the worker's own fleet committed in a new epoch of which the worker
 * has not heard yet. */
static bool no_younger_fleet(void) {
    begin_worker("a-1");
    rounds(QUARANTINE);
    look(YOUNGER, 20);
    rounds(3 * LOOK);
    look(YOUNGER, 20);
    bool good = fleet_said(false);
    look(YOUNGER, 30);
    store_flushall(s.store);
    rounds(3 * LOOK);
    look(YOUNGER, 40);
    good = fleet_said(false) && good;
    end_worker();
    return good;
}

/* The younger of two fleets must stop after it has seen three times, with enough time in between,
 * that the commits of the older fleet have advanced. */
static bool an_older_fleet(void) {
    begin_worker("a-1");
    rounds(QUARANTINE);
    bool good = true;
    for (int i = 0; i <= 3; i++) {
        good = good && !s.stopped;
        look(OLDER, 10 + i);
        rounds(3 * LOOK / 2);
        look(OLDER, 10 + i);
    }
    good = good && s.stopped == LW_EXIT_REFUSED;
    end_worker();
    return good;
}

/* Redis has failed over, and its old master still serves a worker of the fleet. A worker that knew
 * none of the epochs before, because it started after the failover, must not take that worker's
 * commits for those of another fleet, and stop. */
static bool an_epoch_before_the_failover(void) {
    char before[LW_FLEET + 1];
    begin_worker("a-1");
    rounds(QUARANTINE);
    snprintf(before, sizeof before, "%s", s.lw->fleet);
    end_worker();
    store_promote(s.store);
    for (int k = 0; k < 2; k++) { /* the second worker joins the epoch that the first one began */
        begin_worker(k ? "c-1" : "b-1");
        rounds(QUARANTINE);
        bool built = strcmp(before, s.lw->fleet) < 0;
        for (int i = 0; i <= 5; i++) {
            look(before, 10 * (k + 1) + i);
            rounds(3 * LOOK / 2);
        }
        if (!built || s.stopped) printf("%s\n", built ? "it stopped" : "it was not built");
        end_worker();
        if (!built || s.stopped) return false;
    }
    return true;
}

/* Starts a worker and assigns it the partition. Returns true if a record of key K is with a handler
 * long before a quarantine could be over. */
static bool runs_at_once(const char *id, uint32_t gen) {
    begin_worker(id);
    rounds(100);
    assign(gen);
    rounds(200);
    arrive(gen, s.committed < 0 ? 0 : (int)s.committed, 3);
    rounds(200);
    return has_k();
}

static bool a_first_run(void) {
    s.can_look = s.k_lingers = true;
    bool good = runs_at_once("a-1", 1);
    end_worker();
    return good;
}

/* The Redis server is a promoted replica, and its old master may still grant leases. So even the
 * first run of a name must wait for a whole quarantine. */
static bool a_first_run_on_a_promoted_replica(void) {
    s.can_look = s.k_lingers = true;
    store_promote(s.store);
    bool early = runs_at_once("a-1", 1);
    rounds(QUARANTINE);
    bool good = !early && has_k();
    end_worker();
    return good;
}

static void set_vanished(bool broken) {
    const char *set[] = {"SET", "lw:{t.0}:vanished", "x"}, *del[] = {"DEL", "lw:{t.0}:vanished"};
    freeReplyObject(broken ? store_call(s.store, 3, set, NULL) : store_call(s.store, 2, del, NULL));
}

/* The worker cannot read the Redis stream that names vanished waiting lists. It must report the
 * error and continue, and stop reporting it once the stream can be read again. */
static bool an_unreadable_stream_of_vanished_lists(void) {
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    bool good = !s.lw->shards[0].vanished.failed_ms;
    set_vanished(true);
    rounds(2 * LOOK);
    good = good && s.lw->shards[0].vanished.failed_ms && s.lw->shards[0].phase == READY;
    set_vanished(false);
    rounds(2 * LOOK);
    good = good && !s.lw->shards[0].vanished.failed_ms;
    end_worker();
    return good;
}

static void command(const char *name, const char *key, const char *value) {
    const char *words[] = {name, key, value};
    freeReplyObject(store_call(s.store, value ? 3 : 2, words, NULL));
}

/* Somebody else has added more entries to the stream of vanished lists than one call reads, and
 * none of them can be read. An entry behind them must still be noticed. */
static bool unreadable_entries_before_a_vanished_list(void) {
    begin_worker("a-1");
    command("SADD", "lw:{t.0}:paused", "P");
    lw_worker_assign(s.lw, &(struct lw_assigned){.topic = "t", .gen = 1, .committed = -1});
    rounds(QUARANTINE);
    arrive_one(1, 0, "P");
    rounds(LOOK);
    for (int i = 0; i < 100; i++) {
        const char *words[] = {"XADD", "lw:{t.0}:vanished", "*", "a", "b", "c", "d"};
        freeReplyObject(store_call(s.store, 7, words, NULL));
    }
    s.sought = -1;
    command("DEL", "lw:{t.0}:wait:P", NULL);
    for (int i = 0; i < 2 * QUARANTINE && s.sought < 0; i++) rounds(1);
    bool good = s.sought == 0;
    if (!good) printf("record 0 was not read again\n");
    end_worker();
    return good;
}

/* Keys P and Q are paused, so their records wait in Redis. The waiting list of Q is deleted, and
 * the worker begins to read the partition from Kafka again. When it has read only record 0 again,
 * the waiting list of P is deleted too, and a record of another partition begins a new list of P.
 * Records 1 and 2 of P were in the deleted list. They must be read once more, although the worker
 * had not reached them yet when their list was deleted. */
static bool a_list_vanishes_while_records_are_read_again(void) {
    begin_worker("a-1");
    command("SADD", "lw:{t.0}:paused", "P");
    command("SADD", "lw:{t.0}:paused", "Q");
    /* At the assignment both partitions are empty (log_end is 0), and the group has no commit. */
    lw_worker_assign(s.lw, &(struct lw_assigned){.topic = "t", .gen = 1, .committed = -1});
    lw_worker_assign(
        s.lw, &(struct lw_assigned){.topic = "t", .partition = 1, .gen = OTHER, .committed = -1});
    rounds(QUARANTINE);
    arrive_one(1, 0, "Q"), arrive_one(1, 1, "P"), arrive_one(1, 2, "P");
    rounds(LOOK);
    s.sought = -1;
    command("DEL", "lw:{t.0}:wait:Q", NULL);
    for (int i = 0; i < QUARANTINE && s.sought < 0; i++) rounds(1);
    bool built = s.sought == 0;
    arrive_one(1, 0, "Q");
    command("DEL", "lw:{t.0}:wait:P", NULL);
    arrive_one(OTHER, 0, "P");
    rounds(LOOK);
    s.sought = -1;
    arrive_one(1, 1, "P"), arrive_one(1, 2, "P");
    rounds(QUARANTINE);
    bool good = built && s.sought == 0;
    if (!good)
        printf("%s\n",
               built ? "records 1 and 2 were not read again" : "the situation was not built");
    end_worker();
    return good;
}

/* Record 1 and a record of key K are with handlers when Redis is wiped. Another fleet knows nothing
 * of these runs, but finds a commit of the group. So it must wait until the quarantine is over. */
static bool a_wipe_after_the_first_commit(void) {
    s.k_lingers = true;
    first_life();
    struct scene a = {.x_lingers = true,
                      .k_lingers = true,
                      .can_look = true,
                      .asked = -1,
                      .run_ahead = 64,
                      .ttl_ms = s.ttl_ms};
    a.committed = s.committed;
    bool runs = has_k();
    exchange(&a); /* `a` now holds the first worker */
    store_flushall(s.store);
    bool early = runs_at_once("b-2", 2);
    end_worker();
    exchange(&a);
    end_worker();
    return runs && !early;
}

/* Kafka never answers a commit of the first worker. If Redis is wiped, a second worker therefore
 * cannot learn that there was a first one, and runs records at once. So the first worker must not
 * have run anything. */
static bool a_wipe_before_the_first_commit(void) {
    s.can_look = s.k_lingers = s.no_commits = true;
    bool early = runs_at_once("a-1", 1);
    rounds(2 * QUARANTINE);
    bool late = has_k();
    struct scene a = {.x_lingers = true,
                      .k_lingers = true,
                      .can_look = true,
                      .committed = -1,
                      .asked = -1,
                      .run_ahead = 64};
    a.ttl_ms = s.ttl_ms;
    exchange(&a);
    store_flushall(s.store);
    bool runs = runs_at_once("b-2", 2);
    end_worker();
    exchange(&a);
    end_worker();
    return runs && !early && !late;
}

static void arrive_k(int from, int to) {
    for (int i = from; i < to; i++) arrive_one(1, i, "K");
}

/* Ends the first job of key K in its thread, which continues with the next job of the local chain.
 * Returns the ended job, which the worker has not been told of yet. */
static struct lw_job *end_one_of_k(void) {
    struct lw_job *job = s.job[0];
    job->outcome = LW_DONE;
    s.job[0] = lw_job_end(job);
    if (!s.job[0]) s.n_job = 0;
    return job;
}

static int chain_of_k(void) {
    int n = 0;
    for (struct lw_job *job = s.n_job == 1 ? s.job[0] : NULL; job; job = atomic_load(&job->then))
        n++;
    return n;
}

/* Redis grants four messages of key K when the handler thread has already ended the message before
 * them, but the worker does not know that yet. So they cannot be linked to that message. When the
 * first of the four starts, the other three must be linked to it. Otherwise a hot key would run one
 * message per turn for as long as messages come. */
static bool a_chain_that_was_cut_is_linked_again(void) {
    s.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 1);
    rounds(20);
    arrive_k(1, 3);
    finish_k();
    rounds(20);
    bool two = chain_of_k() == 2;
    arrive_k(3, 7);
    if (two) lw_worker_finished(s.lw, end_one_of_k());
    round_of_all(); /* sends the settle that requests the four messages */
    struct lw_job *last = two ? end_one_of_k() : NULL;
    bool over = two && !s.n_job;
    round_of_all(); /* in this round Redis grants the four messages */
    if (over) lw_worker_finished(s.lw, last);
    round_of_all();
    int n = chain_of_k();
    if (n != 4)
        printf("%d of 4 messages are in the chain%s\n", n,
               over ? "" : ", and the situation was not built");
    s.k_lingers = s.x_lingers = false;
    rounds(20);
    end_worker();
    return over && n == 4;
}

/* Twenty messages of key K end within one turn. They ran one after the other, so they show no need
 * for a wider window: it must stay at its minimum, twice the number of handlers. In a wider window
 * the worker would take locks of other keys, and K would wait behind their messages. */
static bool a_long_chain_leaves_the_window_as_it_is(void) {
    s.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 20);
    rounds(20);
    bool built = chain_of_k() == 20;
    finish_k();
    size_t widest = 0;
    for (int i = 0; i < 10; i++) {
        round_of_all();
        if (s.lw->window > widest) widest = s.lw->window;
    }
    if (!built || widest != 8)
        printf("the window grew to %zu%s\n", widest,
               built ? "" : ", and the situation was not built");
    end_worker();
    return built && widest == 8;
}

/* Ends the first job of each key in its thread, which continues with the next job of the key, as a
 * handler of batches does. Reports all ended jobs to the worker. */
static void end_first_of_each(void) {
    struct lw_job *ended[JOBS];
    int n = 0, left = 0;
    for (int i = 0; i < s.n_job; i++) {
        ended[n] = s.job[i];
        ended[n]->outcome = LW_DONE;
        struct lw_job *next = lw_job_end(ended[n++]);
        if (next) s.job[left++] = next;
    }
    s.n_job = left;
    for (int i = 0; i < n; i++) lw_worker_finished(s.lw, ended[i]);
}

/* A handler of batches ends one message of each of the eight keys that the window allows, and every
 * key has another message. The window must widen so that the next batch gets more keys. Otherwise
 * batches would stay small for as long as these keys have messages. */
static bool a_batch_of_many_keys_widens_the_window(void) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
    enum { NAMES = sizeof names / sizeof names[0] };
    s.all_linger = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    for (int i = 0; i < 3 * NAMES; i++) arrive_one(1, i, names[i % NAMES]);
    rounds(20);
    bool built = s.n_job == 8;
    end_first_of_each();
    rounds(1);
    size_t window = s.lw->window;
    if (!built || window < 16)
        printf("the window is %zu after a batch of %s\n", window,
               built ? "eight keys" : "another size, so the situation was not built");
    s.all_linger = s.x_lingers = false;
    rounds(20);
    end_worker();
    return built && window >= 16;
}

static long long count_of(const char *command_name, const char *key) {
    const char *words[] = {command_name, key};
    redisReply *r = store_call(s.store, 2, words, NULL);
    long long n = r->type == REDIS_REPLY_INTEGER ? r->integer : -1;
    freeReplyObject(r);
    return n;
}

/* A dead worker still holds the lock of record 0, which has no key, so the record waits in Redis
 * until the lock ends. The worker that claims the record then knows only its envelope. It must make
 * the record a dead letter without giving it to a handler. */
static bool a_record_without_a_key_waits_in_redis(void) {
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    const char *lock[] = {"SET", "lw:{t.0}:lock:\001none:t:0:0", "1:1", "PX", "10000"};
    freeReplyObject(store_call(s.store, 5, lock, NULL));
    lw_worker_arrived(
        s.lw, 1, &(struct lw_arrival){.record = {.payload = lw_bytes_of("{}")}, .timestamp_ms = 1});
    rounds(400);
    bool built = count_of("LLEN", "lw:{t.0}:wait:\001none:t:0:0") == 1;
    rounds(2 * QUARANTINE);
    long long buried = count_of("XLEN", "lw:{t.0}:dead");
    if (!built || s.n_effects || buried != 1)
        printf("waited: %d; runs of the handler: %d; dead letters: %lld\n", built, s.n_effects,
               buried);
    end_worker();
    return built && !s.n_effects && buried == 1;
}

/* Two records of key K wait in Redis until the lock of a dead worker ends. The worker claims them
 * one by one, and the first one is with its handler when this function returns. */
static bool two_heads_of_k(void) {
    s.k_lingers = true;
    s.run_ahead = 1;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    const char *lock[] = {"SET", "lw:{t.0}:lock:K", "1:1", "PX", "10000"};
    freeReplyObject(store_call(s.store, 5, lock, NULL));
    arrive_k(0, 2);
    rounds(2 * QUARANTINE);
    return count_of("LLEN", "lw:{t.0}:wait:K") == 2 && has_k();
}

/* Waits for the next settle. Returns true if it asks for no head. */
static bool asks_for_nothing(void) {
    int before = s.settles;
    for (int i = 0; i < 500 && s.settles == before; i++) round_of_all();
    return s.settles > before && s.go == LW_GO_DROP;
}

/* A settle is answered with an error after it executed, because its slot is being moved. The settle
 * that is sent again meets its own effects, so it must not ask for the next head. Nor may the one
 * that follows because the server lacks the script: it says nothing about the first one. */
static bool a_settle_that_failed_in_the_middle(void) {
    bool built = two_heads_of_k() && finish_k();
    s.fail_settle = true;
    round_of_all();
    built = built && !s.fail_settle && s.go == LW_GO_NEXT;
    command("SCRIPT", "FLUSH", NULL);
    bool good = built && asks_for_nothing() && asks_for_nothing();
    if (!good)
        printf("%s\n", built ? "the settle was not sent again as it should"
                             : "the situation was not built");
    s.k_lingers = false;
    rounds(20);
    end_worker();
    return good;
}

/* Three messages are suspects. They run beside messages of other keys, and only they are marked. */
static bool suspects_run_beside_others(void) {
    enum { SUSPECTS = 3 };
    struct lw_err err = {0};
    s.board = lw_board_open(1, &err);
    s.all_linger = true;
    char text[32], key[8];
    for (int i = 0; i < SUSPECTS; i++) {
        snprintf(text, sizeof text, "t/0/%d", i);
        lw_seat_take(&s.board->workers[0].seats[i], text, lw_bytes_of("k"), 1);
    }
    lw_board_suspect(s.board, 0);
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    for (int i = 0; i < SUSPECTS + 2; i++) {
        snprintf(key, sizeof key, "s%d", i);
        arrive_one(1, i, key);
    }
    rounds(100);
    int marked = 0;
    bool right = s.n_job == SUSPECTS + 2;
    for (int i = 0; i < s.n_job; i++) {
        marked += s.job[i]->suspect;
        if (s.job[i]->suspect != (s.job[i]->offset < SUSPECTS)) right = false;
    }
    if (!right) printf("%d messages run, %d of them as suspects\n", s.n_job, marked);
    for (int i = 0; i < s.n_job; i++) finish(s.job[i]);
    s.n_job = 0;
    rounds(100);
    bool forgotten = s.board->n_suspects == 0;
    end_worker();
    lw_board_close(s.board);
    return right && forgotten;
}

/* The handler of record 1 (key X) asks for a retry that comes later and counts no attempt. The
 * other keys of the partition must run meanwhile, and record 1 must run at its time, not before,
 * and when the next tend has seen its lane. */
static bool what_comes_back_later_holds_no_other_key(void) {
    enum { LATER_MS = 20000 };
    first_life();
    struct lw_job *x = s.job[0];
    bool built = s.n_job == 1 && has_key(x, 'X');
    s.n_job = 0;
    if (built) {
        x->outcome = LW_RETRY;
        x->wait_ms = LATER_MS;
        x->uncounted = true;
        lw_job_end(x);
        lw_worker_finished(s.lw, x);
    }
    int64_t due_ms = s.now_ms + LATER_MS;
    arrive(1, 5, RECORDS);
    rounds(400);
    bool others = last_of_k(6) && s.n_effects == RECORDS - 1;
    while (s.now_ms < due_ms + LATER_MS && !s.n_job) rounds(1);
    bool back = s.n_job == 1 && s.job[0]->offset == 1 && s.job[0]->attempt == 1,
         in_time = s.now_ms >= due_ms && s.now_ms < due_ms + s.ttl_ms / 4 + 200;
    s.x_lingers = false;
    rounds(1000);
    if (!built || !others || !back || !in_time || s.committed != RECORDS)
        printf("%s%s%s%s committed %lld\n", built ? "" : "the situation was not built;",
               others ? "" : "others waited;", back ? "" : "it did not come back as attempt 1;",
               in_time ? "" : "not at its time;", (long long)s.committed);
    end_worker();
    return built && others && back && in_time && s.committed == RECORDS;
}

/* Record 1 comes back without an attempt for longer than retry.max_age_s, first because nothing of
 * it could be sent, then because its handler says so. Only the latter may count in the end. */
static bool an_outage_counts_no_attempt(void) {
    enum { LATER_MS = 20000, TIMES = 5 };
    first_life();
    bool right = s.n_job == 1 && has_key(s.job[0], 'X');
    for (int i = 0; i <= TIMES && right; i++) {
        struct lw_job *x = s.job[0];
        s.n_job = 0;
        x->outcome = LW_RETRY;
        x->wait_ms = LATER_MS;
        x->uncounted = true;
        x->unsent = i < TIMES;
        lw_job_end(x);
        lw_worker_finished(s.lw, x);
        for (int64_t due_ms = s.now_ms + 2 * LATER_MS; s.now_ms < due_ms && !s.n_job;) rounds(1);
        int attempt = i < TIMES ? 1 : 2;
        right = s.n_job == 1 && s.job[0]->attempt == attempt;
        if (!right) printf("time %d: %d runs, not one as attempt %d\n", i, s.n_job, attempt);
    }
    s.x_lingers = false;
    rounds(1000);
    end_worker();
    return right;
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"a_list_vanishes_while_records_are_read_again", a_list_vanishes_while_records_are_read_again},
    {"an_unreadable_stream_of_vanished_lists", an_unreadable_stream_of_vanished_lists},
    {"a_younger_fleet_seen_once", a_younger_fleet_seen_once},
    {"no_younger_fleet", no_younger_fleet},
    {"an_older_fleet", an_older_fleet},
    {"an_epoch_before_the_failover", an_epoch_before_the_failover},
    {"a_repair_that_is_late", a_repair_that_is_late},
    {"a_repair_whose_place_moves", a_repair_whose_place_moves},
    {"dones_of_an_ended_lease", dones_of_an_ended_lease},
    {"unreadable_entries_before_a_vanished_list", unreadable_entries_before_a_vanished_list},
    {"a_stop_while_the_next_head_comes", a_stop_while_the_next_head_comes},
    {"a_wipe_with_two_ttls", a_wipe_with_two_ttls},
    {"commits_before_the_states", commits_before_the_states},
    {"a_first_run", a_first_run},
    {"a_first_run_on_a_promoted_replica", a_first_run_on_a_promoted_replica},
    {"a_wipe_after_the_first_commit", a_wipe_after_the_first_commit},
    {"a_wipe_before_the_first_commit", a_wipe_before_the_first_commit},
    {"a_chain_that_was_cut_is_linked_again", a_chain_that_was_cut_is_linked_again},
    {"a_long_chain_leaves_the_window_as_it_is", a_long_chain_leaves_the_window_as_it_is},
    {"a_batch_of_many_keys_widens_the_window", a_batch_of_many_keys_widens_the_window},
    {"a_record_without_a_key_waits_in_redis", a_record_without_a_key_waits_in_redis},
    {"a_settle_that_failed_in_the_middle", a_settle_that_failed_in_the_middle},
    {"suspects_run_beside_others", suspects_run_beside_others},
    {"what_comes_back_later_holds_no_other_key", what_comes_back_later_holds_no_other_key},
    {"an_outage_counts_no_attempt", an_outage_counts_no_attempt}};
enum { CASES = sizeof cases / sizeof cases[0] };

static bool run_case(int i) {
    s = (struct scene){.store = store_open(1),
                       .now_ms = 1000000,
                       .x_lingers = true,
                       .committed = -1,
                       .asked = -1,
                       .run_ahead = 64,
                       .ttl_ms = 10000};
    bool good = cases[i].run();
    store_close(s.store);
    printf("[  %s ] %s\n", good ? "     OK" : "FAILED ", cases[i].name);
    return good;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    lw_log_setup(LW_LOG_OFF, false, "meta");
    for (int i = 0; i < CASES; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], cases[i].name);
        if (wanted) run_case(i) ? passed++ : failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
