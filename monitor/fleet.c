/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/fleet.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/redis/connection.h"
#include "config/shard.h"
#include "ops/fleet.h"
#include "ops/script.h"
#include "ops/shares.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A supervisor that has not ticked for STILL_MS stands still, and does not say that it is up. */
enum { ANSWER_MS = 1000, STILL_MS = 15000 };

struct lw_fleet {
    const struct lw_config *c;
    const struct lw_board *board;
    char host[OPS_FLEET_NAME + 1], id[OPS_FLEET_ID + 1];
    _Atomic int port; /* of the page; 0: not known yet */
    struct lw_redis *redis;
    struct lw_commands cmd;
    int64_t finished;                /* number of finished messages at the last heartbeat */
    int64_t counted_ms;              /* time of the last heartbeat, boot clock; 0: none yet */
    int64_t heard_ms, steady_ms;     /* last answer, boot clock; struct ops_fleet_reader */
    bool told;                       /* the present failure was logged */
    pthread_mutex_t lock;            /* guards all fields below it */
    json_t *seen;                    /* what the last answer said; NULL: none yet */
    int64_t asked_ms, asked_wall_ms; /* time of that answer, boot clock and wall clock */
    char why[sizeof(struct lw_err)]; /* why there is no later one; "" if it is the present one */
};

struct lw_fleet *lw_fleet_open(const struct lw_config *c, const struct lw_board *board) {
    struct lw_fleet *f = lw_alloc(sizeof *f);
    f->c = c;
    f->board = board;
    pthread_mutex_init(&f->lock, NULL);
    ops_fleet_host(f->host);
    snprintf(f->id, sizeof f->id, "%s-%d-%" PRIx64, f->host, (int)getppid(),
             (uint64_t)atomic_load(&board->started_wall_ms));
    snprintf(f->why, sizeof f->why, "not asked yet");
    return f;
}

void lw_fleet_close(struct lw_fleet *f) {
    if (!f) return;
    lw_redis_close(f->redis);
    lw_commands_free(&f->cmd);
    json_decref(f->seen);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void lw_fleet_serves(struct lw_fleet *f, int port) { atomic_store(&f->port, port); }

/* --- asking ----------------------------------------------------------------------------------- */

/* Calls fleet.lua. Returns NULL with *err if there is no reply. */
static redisReply *ask(struct lw_fleet *f, const char *id, struct lw_bytes text,
                       struct lw_bytes shares, struct lw_err *err) {
    char prefix[LW_SHARD_PREFIX];
    lw_shard_prefix(f->c, 0, prefix);
    if (!f->redis)
        f->redis = lw_config_connect(f->c, 0, "latchwork:fleet", ANSWER_MS, ANSWER_MS, err);
    if (!f->redis) return NULL;
    lw_commands_reset(&f->cmd);
    lw_cmd(&f->cmd, "EVAL");
    lw_arg_text(&f->cmd, lw_op_fleet.text);
    lw_arg_i64(&f->cmd, 1);
    lw_arg_join(&f->cmd, lw_bytes_of(prefix), "fleet", lw_bytes("", 0));
    ops_fleet_args(&f->cmd, id, text, OPS_FLEET_BEATS, shares);
    redisReply *r = lw_redis_ask_argv(f->redis, f->cmd.cmd[0].argc, f->cmd.argv, f->cmd.len);
    if (!r) lw_fail(err, "%s", f->redis->why);
    return r;
}

/* Closes the connection after a failure, because another node or master may answer next time. */
static void drop(struct lw_fleet *f) {
    lw_redis_close(f->redis);
    f->redis = NULL;
}

static void keep(struct lw_fleet *f, const redisReply *r, int64_t now_redis) {
    int64_t now_ms = lw_boot_ms();
    if (!f->heard_ms || now_ms - f->heard_ms > OPS_FLEET_SILENT_MS) f->steady_ms = now_redis;
    f->heard_ms = now_ms;
    struct ops_fleet_reader by = {f->id, f->host, f->steady_ms};
    json_t *seen = ops_fleet_json(r, &by);
    pthread_mutex_lock(&f->lock);
    json_decref(f->seen);
    f->seen = seen;
    f->asked_ms = now_ms;
    f->asked_wall_ms = lw_wall_ms();
    f->why[0] = '\0';
    pthread_mutex_unlock(&f->lock);
    f->told = false;
}

static void fail(struct lw_fleet *f, const struct lw_err *err) {
    drop(f);
    pthread_mutex_lock(&f->lock);
    snprintf(f->why, sizeof f->why, "%s", err->text);
    pthread_mutex_unlock(&f->lock);
    if (!f->told)
        lw_warn("shard 0: cannot read or write the heartbeats of the fleet: %s; the page shows the "
                "fleet as unknown; retrying every %d ms",
                err->text, OPS_FLEET_EVERY_MS);
    f->told = true;
}

/* --- the heartbeat ---------------------------------------------------------------------------- */

/* Returns the rate of finished messages since the last heartbeat; -1 at the first one. */
static double rate(struct lw_fleet *f, const json_t *stats) {
    static const char *const ends[] = {"done", "dead", "dropped", "skipped"};
    const json_t *counters = json_object_get(stats, "counters");
    int64_t finished = 0, before = f->finished, since_ms = f->counted_ms;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        finished += json_integer_value(json_object_get(counters, ends[i]));
    f->finished = finished;
    f->counted_ms = lw_boot_ms();
    if (!since_ms || f->counted_ms <= since_ms || finished < before) return -1;
    return 1000.0 * (double)(finished - before) / (double)(f->counted_ms - since_ms);
}

static void write_text(struct lw_fleet *f, const json_t *stats, struct lw_buf *text) {
    const struct lw_config *c = f->c;
    char listen[OPS_FLEET_NAME + 1];
    int port = atomic_load(&f->port);
    bool v6 = port && strchr(c->http.host, ':');
    if (port) snprintf(listen, sizeof listen, v6 ? "[%s]:%d" : "%s:%d", c->http.host, port);
    ops_fleet_text(text, f->host, (int)getppid(), port ? listen : NULL, rate(f, stats), stats);
}

/* Adds what groups take of the handlers of one worker. A worker that has died takes nothing. */
static void add_shares(struct ops_shares *to, const struct lw_board_worker *worker) {
    struct lw_share_look look;
    int64_t now_ms = lw_boot_ms();
    size_t used = 0;
    if (!atomic_load(&worker->pid)) return;
    for (int i = -1; i < LW_SHARES; i++) {
        const struct lw_share *s = i < 0 ? &worker->shares.all : &worker->shares.group[i];
        if (!lw_share_look(s, now_ms, &look)) continue;
        if (!look.running && !look.busy_ms && !(look.per_second > 0)) continue;
        used += i >= 0;
        ops_shares_add(to, &(struct ops_share){.name = i < 0 ? lw_bytes(NULL, 0)
                                                             : lw_bytes(look.name, look.n_name),
                                               .running = look.running,
                                               .busy_ms = look.busy_ms,
                                               .per_second = look.per_second});
    }
    /* otherwise a group that ran in the last minute may have lost its share to another one */
    to->complete &= used < LW_SHARES;
}

static void write_shares(const struct lw_fleet *f, struct lw_buf *text) {
    struct ops_shares all = {.complete = true};
    for (int i = 0; i < atomic_load(&f->board->n_workers); i++)
        add_shares(&all, &f->board->workers[i]);
    ops_shares_sum(&all);
    ops_shares_text(text, &all);
    ops_shares_free(&all);
}

void lw_fleet_beat(struct lw_fleet *f, const json_t *stats) {
    struct lw_buf text = {0}, shares = {0};
    struct lw_err err = {0};
    int64_t tick = atomic_load(&f->board->ticked_ms);
    bool still = tick && lw_boot_ms() - tick > STILL_MS;
    if (!still) write_text(f, stats, &text);
    if (!still && lw_config_limits(f->c)) write_shares(f, &shares);
    redisReply *r = ask(f, still ? "" : f->id, lw_bytes(text.p ? text.p : "", text.n),
                        lw_bytes(shares.p ? shares.p : "", shares.n), &err);
    int64_t now_redis = r ? ops_fleet_now(r, &err) : -1;
    if (now_redis >= 0)
        keep(f, r, now_redis);
    else
        fail(f, &err);
    freeReplyObject(r);
    lw_buf_free(&text);
    lw_buf_free(&shares);
}

void lw_fleet_leave(struct lw_fleet *f) {
    struct lw_err err = {0};
    freeReplyObject(ask(f, f->id, lw_bytes("", 0), lw_bytes("", 0), &err));
}

/* --- for the page ----------------------------------------------------------------------------- */

/* Adds the time since the answer to the ages in it. */
static void grow_older(json_t *seen, int64_t ms) {
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(seen, "supervisors"), i, row) {
        json_t *ago = json_object_get(row, "heard_ms_ago");
        if (json_is_integer(ago)) json_integer_set(ago, json_integer_value(ago) + ms);
    }
}

json_t *lw_fleet_json(struct lw_fleet *f) {
    pthread_mutex_lock(&f->lock);
    bool known = f->seen && !f->why[0];
    json_t *j = known
                    ? json_deep_copy(f->seen)
                    : json_pack("{s:n,s:n,s:n,s:b}", "supervisors", "sums", "more", "complete", 0);
    if (known) grow_older(j, lw_boot_ms() - f->asked_ms);
    json_object_set_new(j, "known", json_boolean(known));
    json_object_set_new(j, "why", known ? json_null() : json_string(f->why));
    json_object_set_new(j, "at_ms", f->seen ? json_integer(f->asked_wall_ms) : json_null());
    pthread_mutex_unlock(&f->lock);
    return j;
}
