/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/operator.h"

#include "queue/life.h"

#include "base/redis/command.h"
#include "lock/scripts.h"
#include "queue/envelope.h"
#include "queue/lane.h"
#include "ops/script.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPLAYS_MAX = 4000, BATCH_MAX = 8, HANDOFF_MS = TTL_MS / 2, TRIALS_MS = 4 * TTL_MS };

struct replay {
    int part, index;
    int64_t number;
    bool done, dead, stored, dropped;
    /* Place of this replay in the order in which replays ended, counted from 1. It is 0 if the
     * replay has not ended. */
    int at;
};
struct item {
    int key, part, index;
    int64_t number; /* number of the replay; 0: no replay */
    char entry[48];
};
struct operator{
    struct lw_commands cmd;
    struct replay replay[REPLAYS_MAX];
    int n_replays, ends;
    int64_t number;
    bool dropped[PARTS][MAX_RECORDS], never[PARTS][MAX_RECORDS], paused[KEYS], trial[KEYS];
    uint64_t broken[KEYS], fence_at_pause[KEYS];
    char trial_value[KEYS][64]; /* value of the lock that the trial holds */
    /* trial_until_ms is the time at which a trial's lease ends, and trial_end_ms the time at which
     * its handler ends. */
    int64_t trial_until_ms[KEYS], trial_end_ms[KEYS];
};

struct operator* operator_new(void) {
    return lw_alloc(sizeof(struct operator));
}
void operator_free(struct operator* op) {
    if (!op) return;
    lw_commands_free(&op->cmd);
    free(op);
}

/* --- calls ------------------------------------------------------------------------------------ */

static int shard_of_key(int key) {
    char name[8];
    uint32_t tag;
    snprintf(name, sizeof name, "k%d", key);
    return lw_lane_shard(lw_bytes_of(name), SHARDS, &tag);
}

static void begin(struct world *w, const char *name) {
    lw_commands_reset(&w->operator->cmd);
    lw_cmd(&w->operator->cmd, name);
}
/* Adds the name of a Redis key of the shard to the command. Unless `key` is -1, the name ends with
 * the lane's key. */
static void name_arg(struct world *w, int shard, const char *name, int key) {
    char text[80];
    int n = snprintf(text, sizeof text, "lw:{t.%d}:%s", shard, name);
    if (key >= 0) n += snprintf(text + n, sizeof text - (size_t)n, "k%d", key);
    lw_arg_copy(&w->operator->cmd, text, (size_t)n);
}
static void script(struct world *w, int shard, const char *text, int n_lanes,
                   const char *const *names) {
    int n = 0;
    while (names[n]) n++;
    begin(w, "EVAL");
    lw_arg_text(&w->operator->cmd, wire_mutated(w, text));
    lw_arg_i64(&w->operator->cmd, n + n_lanes);
    for (int i = 0; i < n; i++) name_arg(w, shard, names[i], -1);
}
static redisReply *send_it(struct world *w, int shard) {
    const struct lw_commands *c = &w->operator->cmd;
    return server_call(w, w->master[shard], c->cmd[0].argc, c->argv + c->cmd[0].first,
                       c->len + c->cmd[0].first);
}

/* Calls a script. Writes the answer to `out`, one letter per message, or "" if the script refused
 * the call. Sometimes sends the same call a second time, as after a lost answer, and writes the
 * second answer to `again`. Otherwise sets `again` to "". */
static void letters(struct world *w, int shard, int n, char out[BATCH_MAX + 1],
                    char again[BATCH_MAX + 1]) {
    for (int i = 0; i < 2; i++) {
        char *to = i ? again : out;
        to[0] = '\0';
        if (i && rnd_below(w, 3)) return;
        redisReply *r = send_it(w, shard);
        bool refused = !strcmp(r->str, "NOEPOCH") || !strcmp(r->str, "QUARANTINE");
        if (!refused && (int)r->len != n)
            world_bad(w, "operator: %s answers %d letters for %d messages",
                      w->operator->cmd.argv[0], (int)r->len, n);
        if (!refused) snprintf(to, BATCH_MAX + 1, "%s", r->str);
        freeReplyObject(r);
    }
}

static void encode(struct world *w, const struct item *it, struct lw_buf *out) {
    char key[8];
    snprintf(key, sizeof key, "k%d", it->key);
    struct lw_envelope e = {.topic = lw_bytes_of("t"),
                            .partition = it->part,
                            .offset = w->part[it->part].offset[it->index],
                            .replay = it->number,
                            .first_ms = 1,
                            .timestamp_ms = 1,
                            .key = lw_bytes_of(key),
                            .payload = lw_bytes_of("{}")};
    out->n = 0;
    lw_envelope_encode(&e, out);
}

/* --- what it remembers ------------------------------------------------------------------------ */

static struct replay *find(struct operator* op, int part, int index, int64_t number) {
    for (int i = op->n_replays; i-- > 0;)
        if (op->replay[i].number == number && op->replay[i].part == part &&
            op->replay[i].index == index)
            return &op->replay[i];
    return NULL;
}

int64_t operator_replay(const struct lw_job *job) {
    const char *hash = strchr(job->identity, '#');
    return hash ? strtoll(hash + 1, NULL, 10) : 0;
}

bool operator_broke(const struct world *w, const struct exec *x) {
    return x->job->fence < w->operator->broken[x->key];
}

bool operator_dropped(const struct world *w, int part, int index) {
    return w->operator->dropped[part][index];
}

static bool live(const struct world *w, const struct exec *x) {
    return !x->queued && atomic_load(&x->job->lease->deadline_ms) > w->now_ms &&
           !operator_broke(w, x);
}

static bool in_handler(const struct world *w, const struct item *it) {
    for (int i = 0; i < w->n_exec; i++) {
        const struct exec *x = &w->exec[i];
        if (!live(w, x) || x->job->partition != it->part || operator_replay(x->job) != it->number)
            continue;
        if (x->job->offset == w->part[it->part].offset[it->index]) return true;
    }
    return false;
}

/* --- replays ---------------------------------------------------------------------------------- */

static void put(struct world *w, int shard, const struct item *it, int n, bool read_again) {
    static const char *const names[] = {"epoch", "lanes", "floor", "ready", "dead", NULL};
    struct operator* op = w->operator;
    struct lw_buf text = {0};
    char got[BATCH_MAX + 1], second[BATCH_MAX + 1], tp[16];
    script(w, shard, lw_op_put.text, n, names);
    for (int i = 0; i < n; i++) name_arg(w, shard, "lock:", it[i].key);
    lw_arg_i64(&op->cmd, HANDOFF_MS), lw_arg_text(&op->cmd, "any"), lw_arg_text(&op->cmd, "");
    for (int i = 0; i < n; i++) {
        encode(w, &it[i], &text);
        lw_arg_copy(&op->cmd, text.p, text.n);
        snprintf(tp, sizeof tp, "t:%d", it[i].part);
        lw_arg_copy(&op->cmd, tp, read_again ? strlen(tp) : 0);
        lw_arg_text(&op->cmd, it[i].entry);
    }
    lw_buf_free(&text);
    letters(w, shard, n, got, second);
    for (int i = 0; got[i]; i++) {
        trace(w, "operator: replay of %d:%" PRId64 "#%" PRId64 ": %c", it[i].part,
              w->part[it[i].part].offset[it[i].index], it[i].number, got[i]);
        if (second[0] && second[i] == 'P') world_bad(w, "operator: put again what it had put");
        if (got[i] != 'P') continue;
        if (find(op, it[i].part, it[i].index, it[i].number))
            world_bad(w, "operator: a replay was put twice");
        assert(op->n_replays < REPLAYS_MAX);
        op->replay[op->n_replays++] =
            (struct replay){.part = it[i].part, .index = it[i].index, .number = it[i].number};
    }
}

/* Replays some records of a key in the order of their offsets. */
static void replay(struct world *w) {
    struct operator* op = w->operator;
    struct item it[BATCH_MAX];
    int key = rnd_below(w, KEYS), part = rnd_below(w, PARTS), n = 0,
        most = 1 + rnd_below(w, BATCH_MAX);
    const struct sim_part *p = &w->part[part];
    op->number++;
    for (int i = rnd_below(w, p->n); i < p->n && n < most; i++)
        if (p->key[i] == key)
            it[n++] = (struct item){.key = key, .part = part, .index = i, .number = op->number};
    if (n && op->n_replays + n < REPLAYS_MAX / 4) put(w, shard_of_key(key), it, n, true);
}

static bool take_letter(struct world *w, const redisReply *entry, struct item *it) {
    const redisReply *f = entry->element[1];
    struct lw_envelope e;
    struct lw_err err = {0};
    for (size_t i = 0; i + 1 < f->elements; i += 2) {
        if (strcmp(f->element[i]->str, "envelope") != 0) continue;
        if (lw_envelope_decode(lw_bytes(f->element[i + 1]->str, f->element[i + 1]->len), &e, &err))
            world_bad(w, "dead letter: %s", err.text);
        *it = (struct item){.key = key_of_name(e.key),
                            .part = e.partition,
                            .index = record_at(&w->part[e.partition], e.offset)};
        snprintf(it->entry, sizeof it->entry, "%s", entry->element[0]->str);
        lw_envelope_clear(&e);
        return true;
    }
    return false;
}

static void replay_dead(struct world *w) {
    struct item it[BATCH_MAX];
    int shard = rnd_below(w, SHARDS), n = 0;
    begin(w, "XRANGE"), name_arg(w, shard, "dead", -1);
    lw_arg_text(&w->operator->cmd, "-"), lw_arg_text(&w->operator->cmd, "+"),
        lw_arg_text(&w->operator->cmd, "COUNT");
    lw_arg_i64(&w->operator->cmd, 1 + rnd_below(w, BATCH_MAX));
    redisReply *r = send_it(w, shard);
    w->operator->number++;
    for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i < r->elements; i++)
        if (take_letter(w, r->element[i], &it[n])) it[n++].number = w->operator->number;
    freeReplyObject(r);
    if (n && w->operator->n_replays + n<REPLAYS_MAX / 2) put(w, shard, it, n, false);
}

/* --- drop ------------------------------------------------------------------------------------- */

static int some_waiting(struct world *w, int shard, int key, struct item *it) {
    char name[80];
    size_t n_name = (size_t)snprintf(name, sizeof name, "lw:{t.%d}:wait:k%d", shard, key), size;
    const struct store *st = w->master[shard]->store;
    size_t length = store_length(st, name, n_name);
    if (!length) return 0;
    int n = 0, most = 1 + rnd_below(w, BATCH_MAX);
    bool side_by_side = rnd_below(w, 2);
    for (size_t at = (size_t)rnd_below(w, (int)length); n < most && at < length;
         at += side_by_side ? 1 : 1 + (size_t)rnd_below(w, 5)) {
        const char *value;
        struct lw_envelope e;
        struct lw_err err = {0};
        if (!store_peek_list(st, name, n_name, at, &value, &size)) break;
        if (lw_envelope_decode(lw_bytes(value, size), &e, &err))
            world_bad(w, "a list holds what is no message: %s", err.text);
        it[n++] = (struct item){.key = key,
                                .part = e.partition,
                                .index = record_at(&w->part[e.partition], e.offset),
                                .number = e.replay};
        lw_envelope_clear(&e);
    }
    return n;
}

static void dropped(struct world *w, const struct item *it) {
    struct sim_part *p = &w->part[it->part];
    trace(w, "operator: drops %d:%" PRId64 "#%" PRId64, it->part, p->offset[it->index], it->number);
    if (in_handler(w, it))
        world_bad(w, "operator: dropped %d:%" PRId64 "#%" PRId64 ", which runs", it->part,
                  p->offset[it->index], it->number);
    if (it->number) {
        struct replay *r = find(w->operator, it->part, it->index, it->number);
        /* The replay's handler had already ended when the drop came, and only its outcome was not
         * recorded yet. So the oracles still count the replay as done or dead. */
        if (r->done || r->dead) return;
        r->dropped = true;
        return;
    }
    w->operator->dropped[it->part][it->index] = true;
    /* From now on the message must never run. The exception is a message that was done before the
     * drop, because another run of it may already have begun. */
    w->operator->never[it->part][it->index] = !p->done[it->index];
    /* From now on the other oracles treat the dropped message as finished. */
    p->done[it->index] = p->dead[it->index] = true;
}

static void drop(struct world *w) {
    static const char *const names[] = {"epoch", "lanes", "floor", NULL};
    struct operator* op = w->operator;
    struct item it[BATCH_MAX];
    char got[BATCH_MAX + 1], second[BATCH_MAX + 1], tp[40];
    int key = rnd_below(w, KEYS), shard = shard_of_key(key), n = some_waiting(w, shard, key, it);
    if (!n) return;
    script(w, shard, lw_op_drop.text, n, names);
    for (int i = 0; i < n; i++) name_arg(w, shard, "lock:", key);
    /* lock.run_ahead is the maximum number of heads that a lane's holder may have been granted.
     * drop.lua does not drop these heads. */
    lw_arg_i64(&op->cmd, w->config.lock.run_ahead), lw_arg_text(&op->cmd, "");
    for (int i = 0; i < n; i++) {
        int len = snprintf(tp, sizeof tp, "t:%d", it[i].part);
        if (it[i].number)
            len += snprintf(tp + len, sizeof tp - (size_t)len, "#%" PRId64, it[i].number);
        lw_arg_copy(&op->cmd, tp, (size_t)len),
            lw_arg_i64(&op->cmd, w->part[it[i].part].offset[it[i].index]);
    }
    letters(w, shard, n, got, second);
    for (int i = 0; got[i]; i++) {
        /* A message that stands twice in the waiting list is also named twice in the call, but only
         * its first drop counts. */
        bool twice = false;
        for (int k = 0; k < i; k++)
            twice |= it[k].part == it[i].part && it[k].index == it[i].index &&
                     it[k].number == it[i].number;
        if (second[0] && second[i] == 'X')
            world_bad(w, "operator: dropped again what it had dropped");
        if (got[i] == 'X' && !twice) dropped(w, &it[i]);
    }
}

/* --- lanes ------------------------------------------------------------------------------------ */

static uint64_t fence_of(struct world *w, int shard) {
    char name[40];
    const char *v;
    size_t n, n_name = (size_t)snprintf(name, sizeof name, "lw:{t.%d}:fence", shard);
    return store_peek_string(w->master[shard]->store, name, n_name, &v, &n) ? strtoull(v, NULL, 10)
                                                                            : 0;
}

static void pause_lane(struct world *w, int key) {
    int shard = shard_of_key(key);
    begin(w, "SADD"), name_arg(w, shard, "paused", -1),
        lw_arg_text(&w->operator->cmd, (char[3]){'k', (char)('0' + key), 0});
    freeReplyObject(send_it(w, shard));
    trace(w, "operator: pauses key %d", key);
    w->operator->paused[key] = true;
    w->operator->fence_at_pause[key] = fence_of(w, shard);
}

static void resume_lane(struct world *w, int key) {
    static const char *const names[] = {"epoch", "lanes", "ready", "paused", NULL};
    int shard = shard_of_key(key);
    script(w, shard, lw_op_wake.text, 1, names);
    name_arg(w, shard, "lock:", key);
    lw_arg_i64(&w->operator->cmd, HANDOFF_MS);
    redisReply *r = send_it(w, shard);
    if (strcmp(r->str, "R") != 0) world_bad(w, "operator: a paused lane was not paused");
    freeReplyObject(r);
    trace(w, "operator: resumes key %d", key);
    w->operator->paused[key] = false;
}

static void break_lane(struct world *w, int key) {
    static const char *const names[] = {"epoch", "lanes", "fence", "ready", "audit", NULL};
    int shard = shard_of_key(key);
    script(w, shard, lw_script_break.text, 1, names);
    name_arg(w, shard, "lock:", key);
    lw_arg_i64(&w->operator->cmd, HANDOFF_MS), lw_arg_text(&w->operator->cmd, "me");
    redisReply *r = send_it(w, shard);
    if (r->elements == 2) w->operator->broken[key] = strtoull(r->element[0]->str, NULL, 10);
    if (r->elements == 2) w->operator->trial[key] = false;
    trace(w, "operator: breaks key %d: %s", key, r->elements ? r->element[1]->str : "nobody");
    freeReplyObject(r);
}

/* --- trials: as ops/lane_lock.c and the lock library hold a lane ------------------------------ */

static void life_of(struct world *w, int shard, struct lw_life *life) {
    redisReply *r = server_call(w, w->master[shard], 1, (const char *const[]){"INFO"}, NULL);
    lw_life_read(life, r->str);
    freeReplyObject(r);
}

/* Joins the epoch of a shard, or starts a new epoch if the server's data has begun a new life. */
static void enter(struct world *w, int shard, char epoch[64], char redis_ms[32]) {
    static const char *const names[] = {"epoch", "fence", "lanes", NULL};
    struct lw_commands *cmd = &w->operator->cmd;
    struct lw_life life;
    char candidate[32];
    life_of(w, shard, &life);
    snprintf(candidate, sizeof candidate, "op%08x", (unsigned)rnd_below(w, 1 << 30));
    script(w, shard, lw_script_enter.text, 0, names);
    lw_arg_copy(cmd, candidate, strlen(candidate)), lw_arg_text(cmd, life.id),
        lw_arg_i64(cmd, TTL_MS);
    lw_arg_text(cmd, "");
    /* The operator works on the same host as all workers. skew_ms is the server's time minus the
     * wall clock of this host. */
    lw_arg_text(cmd, "h"), lw_arg_i64(cmd, w->master[shard]->skew_ms);
    lw_arg_text(cmd, "0");
    lw_arg_text(cmd, life.history), lw_arg_text(cmd, "0");
    redisReply *r = send_it(w, shard);
    assert(r->type == REDIS_REPLY_ARRAY && r->elements >= 3);
    snprintf(epoch, 64, "%s", r->element[1]->str);
    snprintf(redis_ms, 32, "%s", r->element[2]->str);
    freeReplyObject(r);
}

static redisReply *hold(struct world *w, int key) {
    static const char *const names[] = {"epoch", "fence", NULL};
    int shard = shard_of_key(key);
    struct lw_commands *cmd = &w->operator->cmd;
    char epoch[64], redis_ms[32];
    enter(w, shard, epoch, redis_ms);
    script(w, shard, lw_script_hold.text, 1, names);
    name_arg(w, shard, "lock:", key);
    lw_arg_copy(cmd, epoch, strlen(epoch)), lw_arg_copy(cmd, redis_ms, strlen(redis_ms)),
        lw_arg_i64(cmd, TTL_MS / 4);
    lw_arg_i64(cmd, TTL_MS), lw_arg_text(cmd, "trial.1"), lw_arg_text(cmd, "1");
    return send_it(w, shard);
}

static void granted(struct world *w, int key, const char *fence) {
    struct operator* op = w->operator;
    for (int i = 0; i < w->n_exec; i++)
        if (w->exec[i].key == key && live(w, &w->exec[i]))
            world_bad(w, "operator: a trial on key %d beside %s", key, w->exec[i].job->identity);
    op->trial[key] = true;
    op->trial_until_ms[key] = w->now_ms + TTL_MS;
    op->trial_end_ms[key] = w->now_ms + rnd_below(w, TRIALS_MS);
    snprintf(op->trial_value[key], sizeof op->trial_value[key], "trial.1:%s", fence);
    if (strtoull(fence, NULL, 10) <= w->fence_seen[key])
        world_bad(w, "operator: the fence of a trial does not grow");
    w->fence_seen[key] = strtoull(fence, NULL, 10);
    trace(w, "operator: a trial takes key %d", key);
}

static void take_lane(struct world *w, int key) {
    redisReply *r = hold(w, key);
    bool had = r->type == REDIS_REPLY_ARRAY && !strcmp(r->element[0]->str, "H");
    if (had) granted(w, key, r->element[1]->str);
    freeReplyObject(r);
}

/* Renews the lease of a trial if `keep` is true, and otherwise releases it. Returns false if the
 * trial had already lost its lease. */
static bool lease_call(struct world *w, int key, bool keep) {
    static const char *const hint[] = {"lanes", "ready"};
    struct operator* op = w->operator;
    char lane[8];
    int shard = shard_of_key(key);
    begin(w, "EVAL");
    lw_arg_text(&op->cmd, keep ? lw_lock_script_string_keep.text : lw_lock_script_mutex_drop.text);
    lw_arg_i64(&op->cmd, keep ? 1 : 4);
    for (int i = 0; i < (keep ? 1 : 2); i++) name_arg(w, shard, "lock:", key);
    for (int i = 0; !keep && i < 2; i++) name_arg(w, shard, hint[i], -1);
    lw_arg_text(&op->cmd, op->trial_value[key]);
    snprintf(lane, sizeof lane, "k%d", key);
    if (keep)
        lw_arg_i64(&op->cmd, TTL_MS);
    else
        lw_arg_copy(&op->cmd, lane, strlen(lane));
    redisReply *r = send_it(w, shard);
    bool ours = r->type == REDIS_REPLY_INTEGER && r->integer == 1;
    freeReplyObject(r);
    return ours;
}

static void end_trial(struct world *w, int key) {
    if (w->operator->trial[key]) lease_call(w, key, false);
    w->operator->trial[key] = false;
}

void operator_tend(struct world *w) {
    struct operator* op = w->operator;
    for (int key = 0; key < KEYS; key++) {
        if (!op->trial[key]) continue;
        int64_t left = op->trial_until_ms[key] - w->now_ms;
        if (left <= 0) {
            op->trial[key] = false; /* the trial's lease has ended, so its handler was killed */
        } else if (w->now_ms >= op->trial_end_ms[key]) {
            end_trial(w, key);
        } else if (left < TTL_MS - TTL_MS / 3) {
            op->trial[key] = lease_call(w, key, true);
            if (op->trial[key]) op->trial_until_ms[key] = w->now_ms + TTL_MS;
        }
    }
}

static void try_lane(struct world *w, int key) {
    if (w->operator->trial[key]) {
        /* If the lane already has a trial, this function seldom ends it, so that most trials last
         * until their lease has been renewed. */
        if (!rnd_below(w, 8)) end_trial(w, key);
    } else {
        take_lane(w, key);
    }
}

void operator_act(struct world *w) {
    int key = rnd_below(w, KEYS);
    switch (w->f->trials ? 4 : rnd_below(w, 12)) {
    case 0:
        if (!w->operator->paused[key]) pause_lane(w, key);
        break;
    case 1:
    case 2:
        if (w->operator->paused[key]) resume_lane(w, key);
        break;
    case 3: break_lane(w, key); break;
    case 4: try_lane(w, key); break;
    case 5: replay_dead(w); break;
    case 6:
    case 7:
    case 8: replay(w); break;
    default: drop(w); break;
    }
}

void operator_rest(struct world *w) {
    for (int key = 0; key < KEYS; key++) {
        if (w->operator->paused[key]) resume_lane(w, key);
        end_trial(w, key);
    }
}

/* --- oracles ---------------------------------------------------------------------------------- */

void operator_start(struct world *w, const struct exec *x) {
    struct operator* op = w->operator;
    if (operator_broke(w, x) || atomic_load(&x->job->lease->deadline_ms) <= w->now_ms) return;
    int part = x->job->partition, index = record_at(&w->part[part], x->job->offset);
    int64_t number = operator_replay(x->job);
    const struct replay *r = number ? find(op, part, index, number) : NULL;
    if (number && !r) world_bad(w, "%s was never replayed", x->job->identity);
    if (number ? r->dropped : op->never[part][index])
        world_bad(w, "%s runs, though it was dropped", x->job->identity);
    if (op->paused[x->key] && w->f->loss <= 0 && x->job->fence > op->fence_at_pause[x->key])
        world_bad(w, "%s was granted in a paused lane", x->job->identity);
    if (op->trial[x->key] && w->now_ms < op->trial_until_ms[x->key])
        world_bad(w, "%s runs beside a trial", x->job->identity);
}

enum lw_outcome operator_finish(struct world *w, const struct exec *x, int index) {
    struct replay *r = find(w->operator, x->job->partition, index, operator_replay(x->job));
    if (!r) world_bad(w, "%s was never replayed", x->job->identity);
    /* The store refuses an effect with an outdated fence. */
    if (!r->stored && x->job->fence < w->store_fence[x->key]) return LW_BACK;
    if (!r->stored) w->store_fence[x->key] = x->job->fence;
    r->stored = true;
    if (!r->done && !r->dead) r->at = ++w->operator->ends;
    r->done = true;
    return LW_DONE;
}

void operator_died(struct world *w, int part, int64_t offset, int64_t number) {
    struct replay *r = find(w->operator, part, record_at(&w->part[part], offset), number);
    if (!r)
        world_bad(w, "a dead letter of a replay that never was: %d:%" PRId64 "#%" PRId64, part,
                  offset, number);
    if (r->dead) world_bad(w, "%d:%" PRId64 "#%" PRId64 " died twice", part, offset, number);
    if (!r->done) r->at = ++w->operator->ends;
    r->dead = true;
}

void operator_end(struct world *w) {
    const struct operator* op = w->operator;
    for (int i = 0; i < op->n_replays; i++) {
        const struct replay *r = &op->replay[i];
        int key = w->part[r->part].key[r->index];
        if (!r->done && !r->dead && !r->dropped)
            world_bad(w, "lost: the replay %d:%" PRId64 "#%" PRId64, r->part,
                      w->part[r->part].offset[r->index], r->number);
        for (int k = i + 1;
             k < op->n_replays && op->replay[k].number == r->number && !w->o->skip_order; k++) {
            const struct replay *later = &op->replay[k];
            if (later->part != r->part || w->part[later->part].key[later->index] != key ||
                !later->at || !r->at)
                continue;
            if (later->index > r->index && later->at < r->at)
                world_bad(w, "replay %" PRId64 ": order broken on key %d of partition %d",
                          r->number, key, r->part);
        }
    }
}
