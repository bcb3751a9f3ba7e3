/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/scenes/scene.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const keys[RECORDS] = {"A", "X", "K", "Y", "K", "K", "K"};

struct scene scene;

/* --- the worker's outside --------------------------------------------------------------------- */

static int64_t boot_ms(void *ctx) { return (void)ctx, scene.now_ms; }
static int64_t wall_ms(void *ctx) { return (void)ctx, scene.now_ms + 100000000; }
static uint64_t chance(void *ctx) {
    (void)ctx;
    return scene.random = scene.random * 6364136223846793005u + 1442695040888963407u;
}
static void drop_replies(void) {
    while (scene.n_reply) freeReplyObject(scene.reply[--scene.n_reply]);
}
static void connect_shard(void *ctx, int shard) {
    (void)ctx;
    if (shard) return; /* the second shard is away for ever */
    scene.connecting = true;
    drop_replies();
}

static int count_repairs(const struct lw_commands *k) {
    int n = 0;
    for (int i = 0; i < k->n; i++) {
        const char *const *a = k->argv + k->cmd[i].first;
        n += !strcmp(a[0], "EVALSHA") && !strncmp(a[1], lw_script_repair.sha1, 40);
    }
    return n;
}

/* Looks at a call of settle. Its ARGV begin behind the number of keys and the keys, and ARGV[8]
 * holds the items, whose fourth byte says how a lane continues. */
static void look_at_settle(const char *const *a, redisReply **reply) {
    if (strcmp(a[0], "EVALSHA") || strncmp(a[1], lw_script_settle.sha1, 40)) return;
    scene.settles++;
    scene.go = (enum lw_go)a[2 + atoi(a[2]) + 8][3];
    if (!scene.fail_settle) return;
    scene.fail_settle = false;
    const char *eval[] = {"EVAL", "return redis.error_reply('TRYAGAIN the slot is moved')", "0"};
    freeReplyObject(*reply);
    *reply = store_call(scene.store, 3, eval, NULL);
}

static void send_pipeline(void *ctx, int shard, const struct lw_commands *k) {
    (void)ctx, (void)shard;
    store_set_time_us(scene.store, (scene.now_ms + 100000000) * 1000);
    scene.repairs += count_repairs(k);
    for (int i = 0; i < k->n; i++) {
        const char *const *a = k->argv + k->cmd[i].first;
        scene.reply[scene.n_reply] =
            store_call(scene.store, k->cmd[i].argc, a, k->len + k->cmd[i].first);
        look_at_settle(a, &scene.reply[scene.n_reply++]);
    }
}

static void hints(void *ctx, int shard, const char *ready, const char *claimed, bool want) {
    (void)ctx, (void)shard;
    scene.ready = want ? ready : NULL;
    scene.claimed = claimed;
}
static void take_hint(void) {
    if (!scene.ready) return;
    const char *pop[] = {"RPOPLPUSH", scene.ready, scene.claimed};
    redisReply *r = store_call(scene.store, 3, pop, NULL);
    if (r->type == REDIS_REPLY_STRING) lw_worker_hint(scene.lw, 0, lw_bytes(r->str, r->len));
    freeReplyObject(r);
}
static void run_jobs(void *ctx, struct lw_job **jobs, size_t n) {
    (void)ctx;
    for (size_t i = 0; i < n; i++) scene.job[scene.n_job++] = jobs[i];
}
static int letter(void *ctx, const struct lw_dead_letter *l, struct lw_err *err) {
    return (void)ctx, (void)l, lw_fail(err, "no topic");
}
static void pause_part(void *ctx, uint32_t gen, bool pause) { (void)ctx, (void)gen, (void)pause; }
static int seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err) {
    (void)ctx, (void)err;
    if (gen != OTHER) scene.sought = offset;
    return 0;
}
static int commit(void *ctx, const struct lw_commit *k, size_t n, struct lw_err *err) {
    (void)ctx, (void)n, (void)err;
    scene.asked = k->offset;
    scene.asked_gen = k->gen;
    return 0;
}
static bool commit_busy(void *ctx) { return (void)ctx, scene.asked >= 0; }
static int commit_sync(void *ctx, const struct lw_commit *k, size_t n, bool *ok,
                       struct lw_err *err) {
    (void)ctx, (void)err;
    for (size_t i = 0; i < n; i++) {
        if (ok) ok[i] = true;
        if (k[i].gen == OTHER) continue;
        scene.committed = k[i].offset;
        lw_worker_committed(scene.lw, k[i].gen, k[i].offset, true);
    }
    return 0;
}
static int committed(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                     struct lw_err *err) {
    (void)ctx, (void)topic, (void)partition, (void)err;
    *offset = scene.committed;
    return 0;
}
static bool ask_group(void *ctx) { return (void)ctx, scene.looking = scene.can_look; }
static void release(void *ctx, void *origin) { (void)ctx, (void)origin; }
static void passed(void *ctx, const char *topic, int32_t partition, int64_t watermark) {
    (void)ctx, (void)topic, (void)partition, (void)watermark;
}
static void stop(void *ctx, int status, const char *reason) {
    (void)ctx, (void)reason;
    scene.stopped = status;
}
static const struct lw_io io = {.boot_ms = boot_ms,
                                .wall_ms = wall_ms,
                                .random = chance,
                                .connect = connect_shard,
                                .send = send_pipeline,
                                .hints = hints,
                                .run = run_jobs,
                                .letter = letter,
                                .pause = pause_part,
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
    int n = scene.n_reply;
    memcpy(r, scene.reply, sizeof r);
    scene.n_reply = 0;
    for (int i = 0; i < n; i++) {
        lw_worker_reply(scene.lw, 0, r[i]);
        freeReplyObject(r[i]);
    }
}

void finish(struct lw_job *job) {
    for (struct lw_job *f = job, *next; f; f = next) {
        f->outcome = LW_DONE;
        scene.effect[scene.n_effects++] = f->offset;
        next = lw_job_end(f);
        lw_worker_finished(scene.lw, f);
    }
}

bool has_key(const struct lw_job *job, char key) { return job->key.n == 1 && *job->key.p == key; }

static void finish_jobs(void) {
    struct lw_job *job[JOBS];
    int n = scene.n_job;
    memcpy(job, scene.job, sizeof job);
    scene.n_job = 0;
    for (int i = 0; i < n; i++)
        if (scene.all_linger || (scene.x_lingers && has_key(job[i], 'X')) ||
            (scene.k_lingers && has_key(job[i], 'K')))
            scene.job[scene.n_job++] = job[i];
        else
            finish(job[i]);
}

static void tell_commits(void) {
    if (!scene.looking) return;
    scene.looking = false;
    lw_worker_listed(scene.lw, true, scene.committed >= 0);
}

static void take_commit(void) {
    if (scene.asked < 0 || scene.no_commits) return;
    scene.committed = scene.asked;
    scene.asked = -1;
    lw_worker_committed(scene.lw, scene.asked_gen, scene.committed, true);
}

void round_of_all(void) {
    scene.now_ms += 2;
    if (scene.frozen) return;
    if (scene.connecting) {
        scene.connecting = false;
        lw_worker_connected(scene.lw, 0);
    }
    take_answers();
    take_hint();
    finish_jobs();
    tell_commits();
    take_commit();
    lw_worker_turn(scene.lw);
}
void rounds(int n) {
    while (n--) round_of_all();
}

static struct lw_config *config_of(void) {
    struct lw_config *c = lw_alloc(sizeof *c);
    c->name = "t";
    c->redis.shards = scene.lost_shard ? 2 : 1;
    c->key.from.from = LW_KEY_MESSAGE;
    c->key.from_text = "message-key";
    c->kafka.group_id = "t";
    c->lock.ttl_ms = scene.ttl_ms;
    c->lock.max_run = 64;
    c->lock.run_ahead = scene.run_ahead;
    c->queue.max_waiting = 1000;
    c->retry.max_attempts = 5;
    c->retry.backoff_ms = 200;
    c->retry.backoff_max_ms = 1000;
    c->retry.max_age_s = 60;
    c->handler.threads = 4;
    static char whole[] = "";
    static struct lw_group_weight heavy = {.weight = 3};
    heavy.name = lw_bytes_of("w");
    c->group.on = scene.groups;
    c->group.weights = &heavy;
    c->group.n_weights = 1;
    c->group.from = (struct lw_rule){LW_KEY_JSON, whole};
    c->shutdown.grace_ms = 1000;
    return c;
}

void begin_worker(const char *id) {
    scene.n_job = 0;
    scene.asked = -1;
    scene.frozen = scene.looking = false;
    scene.config = config_of();
    scene.lw = lw_worker_open(&(struct lw_worker_setup){.config = scene.config,
                                                        .counts = &scene.counts,
                                                        .board = scene.board,
                                                        .id = id,
                                                        .host = "h",
                                                        .cluster_id = "",
                                                        .io = &io,
                                                        .repair_batch = scene.repair_batch});
    rounds(20);
}
void end_worker(void) {
    lw_worker_free(scene.lw);
    free(scene.config);
    drop_replies();
    scene.ready = NULL;
    scene.lw = NULL;
}
void assign(uint32_t gen) {
    lw_worker_assign(scene.lw,
                     &(struct lw_assigned){.topic = "t",
                                           .gen = gen,
                                           .committed = scene.committed,
                                           .begin = scene.committed < 0 ? 0 : scene.committed,
                                           .log_end = RECORDS});
}
void arrive_as(uint32_t gen, int64_t offset, const char *key, const char *payload) {
    lw_worker_arrived(
        scene.lw, gen,
        &(struct lw_arrival){.record = {.key = lw_bytes_of(key), .payload = lw_bytes_of(payload)},
                             .offset = offset,
                             .timestamp_ms = 1});
}
void arrive_one(uint32_t gen, int64_t offset, const char *key) {
    arrive_as(gen, offset, key, "{}");
}
void arrive(uint32_t gen, int from, int to) {
    for (int i = from; i < to; i++) arrive_one(gen, i, keys[i]);
}

/* --- what cases share ------------------------------------------------------------------------- */

struct scene scene_new(void) {
    return (struct scene){
        .x_lingers = true, .committed = -1, .asked = -1, .run_ahead = 64, .ttl_ms = 10000};
}

void exchange(struct scene *other) {
    struct scene was = scene;
    scene = *other;
    scene.store = was.store;
    scene.now_ms = was.now_ms;
    scene.random = was.random;
    memcpy(scene.effect, was.effect, sizeof scene.effect);
    scene.n_effects = was.n_effects;
    *other = was;
}

void set_lock_of_k(bool taken) {
    const char *set[] = {"SET", "lw:{t.0}:lock:K", "1:1", "PX", "10000"},
               *del[] = {"DEL", "lw:{t.0}:lock:K"};
    redisReply *r =
        taken ? store_call(scene.store, 5, set, NULL) : store_call(scene.store, 2, del, NULL);
    freeReplyObject(r);
}

bool finish_k(void) {
    for (int i = 0; i < scene.n_job; i++)
        if (scene.job[i]->key.p[0] == 'K') {
            finish(scene.job[i]);
            scene.job[i] = scene.job[--scene.n_job];
            return true;
        }
    return false;
}

bool has_k(void) {
    for (int i = 0; i < scene.n_job; i++)
        if (scene.job[i]->key.p[0] == 'K') return true;
    return false;
}

bool k_is_locked(void) {
    const char *words[] = {"EXISTS", "lw:{t.0}:lock:K"};
    redisReply *r = store_call(scene.store, 2, words, NULL);
    bool locked = r->integer > 0;
    freeReplyObject(r);
    return locked;
}

void command(const char *name, const char *key, const char *value) {
    const char *words[] = {name, key, value};
    freeReplyObject(store_call(scene.store, value ? 3 : 2, words, NULL));
}

long long count_of(const char *command_name, const char *key) {
    const char *words[] = {command_name, key};
    redisReply *r = store_call(scene.store, 2, words, NULL);
    long long n = r->type == REDIS_REPLY_INTEGER ? r->integer : -1;
    freeReplyObject(r);
    return n;
}

void arrive_k(int from, int to) {
    for (int i = from; i < to; i++) arrive_one(1, i, "K");
}

void first_life(void) {
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive(1, 0, 5);
    rounds(400);
}

bool last_of_k(int64_t wanted) {
    int64_t last = -1;
    for (int i = 0; i < scene.n_effects; i++)
        if (*keys[scene.effect[i]] == 'K') last = scene.effect[i];
    if (last != wanted)
        printf("the last effect of key K is that of %d, not %d\n", (int)last, (int)wanted);
    return last == wanted;
}
