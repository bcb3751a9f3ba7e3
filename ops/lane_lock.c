/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/lane_lock.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/redis/reply.h"
#include "config/shard.h"
#include "lock/one.h"
#include "ops/script.h"
#include "queue/epoch.h"
#include "queue/lane.h"
#include "queue/life.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MIN_MS = 10, LOOK_MAX_MS = 100, EPOCH_MAX = 64, TTL_LEAST_MS = 10 };
enum { KEY_ROOM = LW_SHARD_PREFIX + 8 };

struct lw_lane_lock {
    const struct lw_config *c;
    struct latchwork_client *client;
    struct latchwork_lock *lock;
    /* `ops` is the lock library's table of functions, in which only `acquire` is replaced. */
    struct lw_lock_ops ops;
    char epoch[KEY_ROOM], fence[KEY_ROOM], lanes[KEY_ROOM], ready[KEY_ROOM]; /* keys of the shard */
    int shard;
    /* `asked_ttl_ms` is the TTL that was requested, and `schema_ttl_ms` the TTL of the schema. The
     * lock gets the smaller of the two. */
    int64_t asked_ttl_ms, schema_ttl_ms;
    struct lw_bytes lane; /* an owned copy of the lane's name */
    bool paused_too;
};

struct latchwork_lock *lw_lane_lock_lock(struct lw_lane_lock *l) {
    return l->lock;
}
struct latchwork_client *lw_lane_lock_client(struct lw_lane_lock *l) {
    return l->client;
}
void lw_lane_lock_take_paused(struct lw_lane_lock *l) { l->paused_too = true; }

/* --- one try ---------------------------------------------------------------------------------- */

/* The state of one acquisition, which is a sequence of attempts. The attempts share one connection
 * until it breaks. They also share one token; but if a grant arrives only after the end of the
 * lease that it gives, the next attempt gets a new token. */
struct attempt {
    struct lw_lane_lock *l;
    struct latchwork_hold *hold;
    struct lw_redis *redis;
    char epoch[EPOCH_MAX]; /* id of the epoch; "": no epoch is joined yet */
    /* `redis_ms` is Redis' time when it executed enter, and `at_ms` the boot clock when the reply
     * arrived. */
    int64_t redis_ms, at_ms;
    /* `quiet_until_ms` is the end of the wait after a jump of Redis' clock. `left_ms` is the number
     * of ms until the lock or the quarantine ends. */
    int64_t quiet_until_ms, left_ms;
};

static redisReply *call_on(struct attempt *a, struct lw_call *call, struct latchwork_error *error) {
    struct lw_turn turn;
    redisReply *r = lw_call_on(a->l->client, a->redis, call, error);
    /* if the slot belongs to another server, the connection is closed, so that the next attempt
     * asks that server */
    if (r && r->type == REDIS_REPLY_ERROR &&
        lw_peer_turned(a->l->client, a->redis, r->str, a->l->client->slot, &turn))
        lw_redis_break(a->redis, LW_REDIS_BROKEN, "the slot is elsewhere");
    return r ? lw_take_reply(a->l->client, r, error) : NULL;
}

/* Reads from INFO to which life the server's data belongs. The life stays the same as long as the
 * connection lasts, unless the server is promoted. */
static bool ask_life(struct attempt *a, struct lw_life *life, struct latchwork_error *error) {
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_text(&c, "INFO");
    redisReply *r = call_on(a, &c, error);
    if (!r) return false;
    lw_life_read(life, r->type == REDIS_REPLY_STRING ? r->str : "");
    freeReplyObject(r);
    return true;
}

static enum latchwork_result malformed(const struct attempt *a, const redisReply *r,
                                       const char *name, const char *expected,
                                       struct latchwork_error *error) {
    char why[LW_REPLY_TEXT];
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_REPLY, "shard %d: %s", a->l->shard,
                        lw_malformed(why, r, name, "%s", expected));
}

static bool entered(struct attempt *a, const redisReply *r, struct latchwork_error *error) {
    struct lw_lane_lock *l = a->l;
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements >= 3;
    for (size_t i = 0; sound && i < r->elements; i++)
        sound = r->element[i]->type == REDIS_REPLY_STRING;
    if (sound && r->elements >= 5 && !strcmp(r->element[0]->str, "OK")) {
        snprintf(a->epoch, sizeof a->epoch, "%s", r->element[1]->str);
        a->redis_ms = strtoll(r->element[2]->str, NULL, 10);
        return true;
    }
    char ours[LW_SCHEMA_VALUE];
    if (sound)
        lw_lock_wrong(error,
                      "shard %d: the workers of \"%s\" run with %s=%s, this configuration has %s; "
                      "use the workers' value",
                      l->shard, l->c->name, lw_schema_part(l->c, "", r->element[1]->str, ours),
                      r->element[2]->str, ours);
    else
        malformed(a, r, "enter.lua", "an array of at least 3 strings", error);
    return false;
}

/* Reduces the TTL of the lock to the TTL of the schema, which is the longest TTL that the epoch
 * allows. After Redis is wiped, the quarantine lasts only as long as the longest TTL of the
 * workers. So a command whose lock.ttl_ms is longer uses the schema's TTL and does not raise it. */
static bool bound_ttl(struct attempt *a, struct latchwork_error *error) {
    struct lw_lane_lock *l = a->l;
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_text(&c, "HGET");
    lw_call_text(&c, l->epoch);
    lw_call_text(&c, "ttl_ms");
    redisReply *r = call_on(a, &c, error);
    if (!r) return false;
    int64_t theirs = r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : 0;
    freeReplyObject(r);
    l->schema_ttl_ms =
        theirs >= TTL_LEAST_MS && theirs < l->c->lock.ttl_ms ? theirs : l->c->lock.ttl_ms;
    l->lock->o.ttl_ms = l->asked_ttl_ms < l->schema_ttl_ms ? l->asked_ttl_ms : l->schema_ttl_ms;
    return true;
}

/* Measures the difference between Redis' clock and this host's wall clock, as a worker does. If
 * Redis' clock jumped, leases may have ended early. */
static bool ask_distance(struct attempt *a, int64_t *distance_ms, struct latchwork_error *error) {
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_text(&c, "TIME");
    int64_t sent_ms = lw_boot_ms();
    redisReply *r = call_on(a, &c, error);
    if (!r) return false;
    int64_t trip_ms = lw_boot_ms() - sent_ms, redis_ms = -1;
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2 && r->element[0]->str &&
        r->element[1]->str)
        redis_ms = strtoll(r->element[0]->str, NULL, 10) * 1000 +
                   strtoll(r->element[1]->str, NULL, 10) / 1000;
    if (redis_ms < 0) malformed(a, r, "TIME", "[seconds, microseconds]", error);
    freeReplyObject(r);
    if (redis_ms < 0) return false;
    *distance_ms = redis_ms - (lw_wall_ms() - trip_ms / 2);
    if (trip_ms <= a->l->schema_ttl_ms / 8) return true;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_TIMEOUT,
                 "shard %d: TIME took %lld ms; to compare clocks, it must take at most %lld ms "
                 "(an eighth of the TTL)",
                 a->l->shard, (long long)trip_ms, (long long)(a->l->schema_ttl_ms / 8));
    return false;
}

/* Joins the shard's epoch. After Redis was wiped or replaced, the call starts a new epoch, as a
 * worker would, and nobody can take a lock before the quarantine is over. The call also sends the
 * schema. So a command whose configuration has another number of shards is refused, and cannot lock
 * a lane in the wrong shard. */
static bool enter(struct attempt *a, struct latchwork_error *error) {
    const struct lw_lane_lock *l = a->l;
    struct lw_life life;
    char candidate[LW_EPOCH_ID], host[LW_HOST_MAX];
    int64_t distance_ms;
    if (!ask_life(a, &life, error) || !bound_ttl(a, error) || !ask_distance(a, &distance_ms, error))
        return false;
    lw_host(host);
    lw_epoch_id(lw_wall_ms(), lw_random(UINT64_MAX), lw_random(UINT64_MAX), candidate);
    struct lw_call c;
    lw_call_script(&c, &lw_script_enter, 3);
    lw_call_text(&c, l->epoch);
    lw_call_text(&c, l->fence);
    lw_call_text(&c, l->lanes);
    lw_call_text(&c, candidate);
    lw_call_text(&c, life.id);
    lw_call_number(&c, l->schema_ttl_ms);
    /* argument of enter.lua: this caller knows of no epoch that was lost because Redis' clock
     * jumped */
    lw_call_text(&c, "");
    lw_call_text(&c, host);
    lw_call_number(&c, distance_ms);
    /* argument of enter.lua: this caller has not seen any fence */
    lw_call_text(&c, "0");
    lw_call_text(&c, life.history);
    lw_call_text(&c, "0"); /* argument old_ms of enter.lua: this caller knows of no earlier epoch */
    lw_call_text(&c, "version");
    lw_call_number(&c, LW_SCHEMA_VERSION);
    lw_call_text(&c, "shards");
    lw_call_number(&c, l->c->redis.shards);
    lw_call_text(&c, "key_rule");
    lw_call_text(&c, l->c->key.from_text);
    lw_call_text(&c, "group_id");
    lw_call_text(&c, l->c->kafka.group_id);
    redisReply *r = call_on(a, &c, error);
    if (!r) return false;
    bool good = entered(a, r, error);
    a->at_ms = lw_boot_ms();
    freeReplyObject(r);
    return good;
}

static enum latchwork_result granted(struct attempt *a, const char *fence, int64_t sent_ms,
                                     struct latchwork_error *error) {
    struct lw_take t = {.lock = a->l->lock, .hold = a->hold};
    lw_one_granted(&t, fence, sent_ms);
    if (lw_boot_ms() < atomic_load(&a->hold->deadline_ms)) return LATCHWORK_LOCK_OK;
    struct latchwork_error ignored;
    lw_one_release(a->hold, &ignored);
    /* the next attempt needs a new token, because a token is used for one acquisition only */
    if (!lw_hold_token(a->hold, error)) return LATCHWORK_LOCK_ERROR;
    atomic_store(&a->hold->loss, 0);
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
                        "Redis answers too slowly for a TTL of %lld ms",
                        (long long)a->l->lock->o.ttl_ms);
}

static enum latchwork_result lost_epoch(struct attempt *a, bool jumped,
                                        struct latchwork_error *error) {
    a->epoch[0] = '\0';
    if (jumped) a->quiet_until_ms = lw_boot_ms() + a->l->c->lock.ttl_ms;
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
                        jumped ? "the clock of Redis jumped" : "a new epoch began in Redis");
}

static enum latchwork_result answered(struct attempt *a, const redisReply *r, int64_t sent_ms,
                                      struct latchwork_error *error) {
    if (r->type == REDIS_REPLY_STRING) return lost_epoch(a, !strcmp(r->str, "JUMP"), error);
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
                 r->element[0]->type == REDIS_REPLY_STRING;
    char letter = sound ? r->element[0]->str[0] : '?';
    const redisReply *more = sound ? r->element[1] : NULL;
    if (letter == 'H' && more->type == REDIS_REPLY_STRING)
        return granted(a, more->str, sent_ms, error);
    if (!sound || more->type != REDIS_REPLY_INTEGER)
        return malformed(a, r, "hold.lua", "string, [string, integer] or ['H', string]", error);
    a->left_ms = more->integer;
    if (letter == 'P')
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
                            "the lane is paused; use --paused to lock it anyway");
    if (letter == 'Q')
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
                            "quarantine for another %lld ms: Redis is new, or was restarted or "
                            "wiped, and leases from before may still be live",
                            more->integer);
    if (more->integer == -1)
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NO_TTL,
                            "held by a lock without a TTL, which never ends by itself");
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY, "held by others");
}

static enum latchwork_result take(struct attempt *a, struct latchwork_error *error) {
    const struct lw_lane_lock *l = a->l;
    struct lw_call c;
    lw_call_script(&c, &lw_script_hold, 3);
    lw_call_text(&c, l->epoch);
    lw_call_text(&c, l->fence);
    lw_call_add(&c, l->lock->key[LW_KEY_LOCK].p, l->lock->key[LW_KEY_LOCK].n);
    lw_call_text(&c, a->epoch);
    lw_call_number(&c, a->redis_ms + lw_boot_ms() - a->at_ms);
    lw_call_number(&c, l->c->lock.ttl_ms / 4);
    lw_call_number(&c, l->lock->o.ttl_ms);
    lw_call_text(&c, a->hold->token);
    lw_call_text(&c, l->paused_too ? "1" : "0");
    redisReply *r = call_on(a, &c, error);
    if (!r) return LATCHWORK_LOCK_ERROR;
    enum latchwork_result result = answered(a, r, c.sent_ms, error);
    freeReplyObject(r);
    return result;
}

static enum latchwork_result try_once(struct attempt *a, struct latchwork_error *error) {
    if (lw_boot_ms() < a->quiet_until_ms)
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
                            "the clock of Redis jumped: leases from before may still be live");
    if (!a->redis) {
        a->redis = lw_client_get(a->l->client, a->l->client->slot, error);
        a->epoch[0] = '\0';
    }
    if (!a->redis) return LATCHWORK_LOCK_ERROR;
    enum latchwork_result result =
        a->epoch[0] || enter(a, error) ? take(a, error) : LATCHWORK_LOCK_ERROR;
    if (a->redis->err) {
        lw_client_put(a->l->client, a->redis);
        a->redis = NULL;
    }
    return result;
}

/* --- acquire: tries, until the time is over --------------------------------------------------- */

static enum latchwork_result acquire(struct latchwork_lock *lock, struct latchwork_hold *hold,
                                     int64_t deadline_ms, struct latchwork_error *error) {
    struct latchwork_error why = {0};
    struct attempt a = {.l = lock->more, .hold = hold};
    enum latchwork_result result;
    for (;;) {
        a.left_ms = 0;
        result = try_once(&a, &why);
        int64_t left = deadline_ms ? deadline_ms - lw_boot_ms() : 0;
        if (result == LATCHWORK_LOCK_OK || left <= 0 ||
            (result == LATCHWORK_LOCK_ERROR && !lw_may_pass(&why)))
            break;
        int64_t pause = LOOK_MIN_MS + (int64_t)lw_random(LOOK_MAX_MS - LOOK_MIN_MS);
        if (a.left_ms > 0 && a.left_ms < pause) pause = a.left_ms + 1;
        lw_sleep_ms(pause < left ? pause : left);
        if (atomic_load(&lock->client->interrupted)) {
            result = lw_lock_fail(&why, LATCHWORK_LOCK_ERROR, LATCHWORK_E_CLOSED,
                                  "interrupted while waiting");
            break;
        }
    }
    if (a.redis) lw_client_put(lock->client, a.redis);
    if (result != LATCHWORK_LOCK_OK && error) *error = why;
    return result;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void name_keys(struct lw_lane_lock *l, const char *prefix, struct lw_buf *lock) {
    snprintf(l->epoch, sizeof l->epoch, "%sepoch", prefix);
    snprintf(l->fence, sizeof l->fence, "%sfence", prefix);
    snprintf(l->lanes, sizeof l->lanes, "%slanes", prefix);
    snprintf(l->ready, sizeof l->ready, "%sready", prefix);
    lw_buf_addf(lock, "%slock:", prefix);
    lw_buf_add(lock, l->lane.p, l->lane.n);
}

static bool open_lock(struct lw_lane_lock *l, const struct latchwork_lock_options *options,
                      struct latchwork_error *error) {
    char prefix[LW_SHARD_PREFIX];
    struct lw_buf lock = {0};
    lw_shard_prefix(l->c, l->shard, prefix);
    name_keys(l, prefix, &lock);
    struct latchwork_lock_names names = {LATCHWORK_NAMES_INIT,
                                         .lock = {lock.p, lock.n},
                                         .fence = {l->fence, strlen(l->fence)},
                                         .hint_if = {l->lanes, strlen(l->lanes)},
                                         .hint_to = {l->ready, strlen(l->ready)},
                                         .hint = {l->lane.p, l->lane.n}};
    struct latchwork_lock_options o = *options;
    o.names = &names;
    if (!o.ttl_ms) o.ttl_ms = l->c->lock.ttl_ms;
    l->lock = latchwork_lock_open(l->client, "lane", &o, error);
    lw_buf_free(&lock);
    if (!l->lock) return false;
    l->asked_ttl_ms = o.ttl_ms;
    l->ops = *l->lock->ops;
    l->ops.acquire = acquire;
    l->lock->ops = &l->ops;
    l->lock->more = l;
    return true;
}

struct latchwork_client *lw_lane_client_open(const struct lw_config *c, int shard,
                                             struct latchwork_error *error) {
    struct lw_redis_servers servers;
    char where[320];
    if (lw_config_servers(c, &servers, NULL)) return lw_lock_no_memory(error), NULL;
    if (servers.kind == LW_REDIS_SENTINEL)
        snprintf(where, sizeof where, "master \"%s\"", servers.master);
    else if (servers.kind == LW_REDIS_CLUSTER)
        snprintf(where, sizeof where, "the owner of slot %d", servers.slot[shard]);
    else
        lw_redis_url_where(&servers.at[(size_t)shard % servers.n], where, sizeof where);
    return lw_client_open_servers(&servers, shard, where, error);
}

struct lw_lane_lock *lw_lane_lock_open(const struct lw_config *c, struct lw_bytes lane,
                                       const struct latchwork_lock_options *options,
                                       struct latchwork_error *error) {
    if (options->ttl_ms > c->lock.ttl_ms) {
        lw_lock_wrong(
            error,
            "the TTL is %lld ms, but a lane's lease has at most lock.ttl_ms, %lld ms; use that, "
            "because the lease is renewed as long as it is needed",
            (long long)options->ttl_ms, (long long)c->lock.ttl_ms);
        return NULL;
    }
    struct lw_lane_lock *l = lw_alloc(sizeof *l);
    uint32_t tag;
    l->c = c;
    l->lane = lw_bytes(lw_memdup(lane.p, lane.n), lane.n);
    l->shard = lw_lane_shard(lane, c->redis.shards, &tag);
    l->client = lw_lane_client_open(c, l->shard, error);
    if (l->client && open_lock(l, options, error)) return l;
    lw_lane_lock_close(l);
    return NULL;
}

void lw_lane_lock_close(struct lw_lane_lock *l) {
    if (!l) return;
    latchwork_lock_close(l->lock);
    latchwork_client_close(l->client);
    free((void *)(uintptr_t)l->lane.p);
    free(l);
}
