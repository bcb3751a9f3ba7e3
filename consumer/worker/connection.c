/* SPDX-License-Identifier: Apache-2.0 */
/* connection: knows the server behind a shard: which life it is in, what its clock says, whether it
 * has the scripts, what it refuses, and whether it still owns the shard's slot of a cluster.
 *
 * By the rule "life first", a new connection carries only HELLO until the worker has compared the
 * server's life (run_id, master_replid) with the life that it knows. tend repeats the comparison
 * regularly, checks lanes when their time has come, and notes in Redis that this worker is alive.
 *
 * On a Redis Cluster a shard is one slot, which may be moved to another node, key by key. A call
 * that needs a key which has left fails with ASK or TRYAGAIN. It is sent again, after a pause and
 * another HELLO, until the slot has moved: then HELLO itself fails with MOVED, and the worker
 * connects to the new owner. That node has another life, so the epoch ends. */
#include "consumer/worker/private.h"

#include "base/redis/denied.h"
#include "base/redis/reply.h"

/* --- life, clock and scripts ----------------------------------------------------------------- */

enum {
    /* PAUSE_MS is the pause after the first call that fails because keys are moving; each further
     * one doubles the pause */
    PAUSE_MS = 5,
    PAUSE_MAX_MS = 80,
    /* If SLOW_TRIPS replies to TIME in a row are late, the worker blames the network. Fewer late
     * replies may come from a pause of this machine. */
    SLOW_TRIPS = 3,
    SLOW_TRIPS_A_WARNING = 64, /* number of late replies from one warning to the next */
};

void connection_check(struct shard *sh) {
    assert(sh->phase != DOWN);
    sh->server.checking = true;
}

void connection_scripts(struct shard *sh, bool loaded) {
    assert(sh->phase != DOWN);
    sh->server.loaded = loaded;
}

int64_t connection_redis_ms(struct lw_worker *w, const struct shard *sh) {
    return now_ms(w) + sh->server.offset_ms;
}

bool connection_unsure(const struct shard *sh) { return sh->server.checking || !sh->server.loaded; }

bool connection_moved(struct lw_worker *w, struct shard *sh, const char *text) {
    struct connection *s = &sh->server;
    if (!lw_redis_moved(text)) return false;
    int64_t now = now_ms(w);
    if (!s->pause_ms || now - s->rest_ms > 1000) {
        lw_info("shard %d: %.*s; its slot is being moved; its calls wait until that is over",
                sh->index, (int)strcspn(text, "\r\n"), text);
        s->pause_ms = PAUSE_MS / 2;
    }
    if (now >= s->rest_ms)
        s->pause_ms = s->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : s->pause_ms * 2;
    s->rest_ms = now + s->pause_ms;
    s->elsewhere = strncmp(text, "MOVED ", 6) == 0;
    connection_check(sh);
    return true;
}

bool connection_rests(const struct shard *sh, int64_t now) { return now < sh->server.rest_ms; }

void connection_restart(struct lw_worker *w, struct shard *sh) {
    assert(!sh->pipe.open && sh->phase != DOWN);
    sh->server.loaded = sh->server.checking = sh->server.elsewhere = false;
    shard_to(sh, DOWN);
    w->io->connect(w->ctx, sh->index);
}

void connection_drop(struct lw_worker *w, struct shard *sh) {
    pipe_broken(w, sh);
    connection_restart(w, sh);
}

void lw_worker_disconnected(struct lw_worker *w, int shard, const char *why) {
    assert(shard >= 0 && shard < w->n_shards);
    struct shard *sh = &w->shards[shard];
    if (sh->phase == DOWN) return;
    /* a site per shard, so that one shard's lines do not hide another's */
    static struct lw_log_some said[32];
    lw_log_some(&said[shard % 32], 1, LW_LOG_WARN, NULL, 0,
                "shard %d: connection to Redis lost: %s; reconnecting, then sending unanswered "
                "calls again",
                shard, why);
    connection_drop(w, sh);
}

void connection_entered(struct shard *sh) {
    assert(sh->phase == ENTERING);
    sh->server.life = sh->server.new_life;
    sh->server.jumped[0] = 0;
}

/* Builds the call INFO, which reads the server's life, version and memory policy. */
static void info_build(struct shard *sh) {
    pipe_command(sh, CALL_INFO, "INFO");
    pipe_text(sh, "server"), pipe_text(sh, "replication"), pipe_text(sh, "stats");
    pipe_text(sh, "memory");
}

void hello_build(struct lw_worker *w, struct shard *sh, bool with_scripts) {
    assert(!sh->pipe.open);
    pipe_begin(sh);
    /* TIME must be the first command of the pipeline. Otherwise the time that the server takes for
     * the commands before it would look like network delay. */
    pipe_command(sh, CALL_TIME, "TIME");
    if (with_scripts)
        for (int i = 0; i < LW_SCRIPTS; i++) {
            pipe_command(sh, CALL_LOAD, "SCRIPT");
            pipe_text(sh, "LOAD"), pipe_text(sh, lw_scripts[i]->text);
        }
    info_build(sh);
    /* a command that names a key also shows whether this node of a cluster owns the slot */
    pipe_command(sh, CALL_OWNER, "HMGET");
    pipe_text(sh, sh->key_epoch), pipe_text(sh, "id"), pipe_text(sh, "was");
    sh->server.elsewhere = false;
    shard_to(sh, HELLO);
    pipe_send(w, sh);
    assert(sh->phase == HELLO && sh->pipe.open);
}

void lw_worker_connected(struct lw_worker *w, int shard) {
    assert(shard >= 0 && shard < w->n_shards);
    struct shard *sh = &w->shards[shard];
    if (sh->phase != DOWN) return;
    sh->server.loaded = false;
    sh->server.rest_ms = 0;
    hello_build(w, sh, true);
}

/* Checks whether the server's life is unchanged. If so, stores the life that the server has just
 * reported, and returns true. The replication id in the new life may be another one, because the id
 * changes harmlessly when a replica is attached. */
static bool same_life(struct shard *sh) {
    assert(epoch_joined(sh));
    if (!lw_life_same(&sh->server.life, &sh->server.new_life)) return false;
    if (strcmp(sh->server.life.id, sh->server.new_life.id) != 0)
        lw_info("shard %d: Redis has another replication id, and was no replica meanwhile; nothing "
                "is lost, and the epoch goes on",
                sh->index);
    sh->server.life = sh->server.new_life;
    return true;
}

static void program_reply(struct lw_worker *w, struct shard *sh, const char *info) {
    struct lw_redis_server was = sh->server.program;
    lw_redis_server_read(&sh->server.program, info);
    if (sh->server.program.too_old) {
        char why[256];
        snprintf(why, sizeof why, "shard %d: %s is too old; Redis 7.0 or a Valkey is needed",
                 sh->index, sh->server.program.text);
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    } else if (strcmp(was.text, sh->server.program.text) != 0) {
        lw_info("shard %d: the server is %s", sh->index, sh->server.program.text);
    }
}

void life_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == HELLO || sh->phase == READY);
    if (r->type != REDIS_REPLY_STRING) {
        pipe_malformed(w, sh, r, "INFO", "a string");
        return;
    }
    char policy[64];
    lw_life_read(&sh->server.new_life, r->str);
    if (lw_info_field(r->str, "maxmemory_policy", policy, sizeof policy) &&
        strcmp(policy, "noeviction") != 0) {
        char why[256];
        snprintf(why, sizeof why,
                 "shard %d: Redis has maxmemory-policy %s, which deletes locks and waiting "
                 "messages; set noeviction",
                 sh->index, policy);
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    }
    program_reply(w, sh, r->str);
    /* In phase READY, this reply to INFO belongs to the periodic check, so the life in the reply is
     * compared at once. */
    if (sh->phase == READY && !same_life(sh))
        shard_lost(w, sh, "the server is another, or restarted");
}

bool connection_slow(const struct lw_worker *w, const struct shard *sh, char *out, size_t size) {
    assert(out && size > 0);
    if (sh->server.slow_trips < SLOW_TRIPS) return false;
    snprintf(out, size,
             "the server takes %" PRId64 " ms to answer, but its clock can be compared only if it "
             "answers within lock.ttl_ms / 8 = %" PRId64 " ms; set lock.ttl_ms to %" PRId64
             " or more, or bring the server nearer",
             sh->server.trip_ms, (int64_t)w->c->lock.ttl_ms / 8,
             (sh->server.trip_ms * 12 / 1000 + 1) * 1000);
    return true;
}

/* Counts a reply to TIME that came too late to compare the clock of the server with that of this
 * machine. Logs a warning if such replies keep the shard in phase HELLO. */
static void slow_reply(struct lw_worker *w, struct shard *sh, int64_t trip_ms) {
    assert(trip_ms > 0);
    sh->server.checking = true; /* the next pipeline asks for the time again */
    sh->server.trip_ms = trip_ms;
    sh->server.slow_trips++;
    char why[256];
    if (sh->phase == HELLO && sh->server.slow_trips % SLOW_TRIPS_A_WARNING == SLOW_TRIPS &&
        connection_slow(w, sh, why, sizeof why))
        lw_warn("shard %d: %s", sh->index, why);
}

void time_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == HELLO || sh->phase == READY);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 || !r->element[0]->str ||
        !r->element[1]->str) {
        pipe_malformed(w, sh, r, "TIME", "[string, string]");
        return;
    }
    int64_t redis_ms = strtoll(r->element[0]->str, NULL, 10) * 1000 +
                       strtoll(r->element[1]->str, NULL, 10) / 1000,
            now = now_ms(w);
    int64_t trip = now - sh->pipe.sent_ms;
    if (trip > w->c->lock.ttl_ms / 8) {
        slow_reply(w, sh, trip);
        return;
    }
    sh->server.checking = false;
    sh->server.slow_trips = 0;
    sh->server.new_offset_ms = redis_ms - (now - trip / 2);
    sh->server.wall_offset_ms = redis_ms - (w->io->wall_ms(w->ctx) - trip / 2);
    if (!epoch_joined(sh) || sh->phase != READY) return;
    if (llabs(sh->server.new_offset_ms - sh->server.offset_ms) > w->c->lock.ttl_ms / 4) {
        snprintf(sh->server.jumped, sizeof sh->server.jumped, "%s", sh->epoch.id);
        shard_lost(w, sh, "its clock jumped");
    } else {
        sh->server.offset_ms = sh->server.new_offset_ms;
    }
}

/* Takes the id of the epoch and the names of those before it, as the server knows them. */
void owner_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == HELLO);
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements == 2;
    for (size_t i = 0; sound && i < r->elements; i++)
        sound = r->element[i]->type == REDIS_REPLY_STRING || r->element[i]->type == REDIS_REPLY_NIL;
    if (!sound) {
        pipe_malformed(w, sh, r, "HMGET", "an array of 2 strings or nils");
        return;
    }
    if (sh->index) return;
    for (size_t i = 0; i < r->elements; i++)
        if (r->element[i]->str) rival_known(w, r->element[i]->str);
}

void hello_done(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == HELLO && !sh->pipe.open);
    if (sh->server.elsewhere) {
        connection_restart(w, sh);
    } else if (sh->server.checking) {
        /* while the shard rests, the turn sends the next HELLO */
        if (!connection_rests(sh, now_ms(w))) hello_build(w, sh, false);
    } else if (!epoch_joined(sh)) {
        sh->server.offset_ms = sh->server.new_offset_ms;
        shard_to(sh, ENTERING);
    } else if (!same_life(sh)) {
        shard_lost(w, sh, "the server is another, or restarted");
    } else if (llabs(sh->server.new_offset_ms - sh->server.offset_ms) > w->c->lock.ttl_ms / 4) {
        snprintf(sh->server.jumped, sizeof sh->server.jumped, "%s", sh->epoch.id);
        shard_lost(w, sh, "its clock jumped");
    } else {
        sh->server.offset_ms = sh->server.new_offset_ms;
        shard_to(sh, sh->repair.over ? READY : REPAIRING);
        if (!sh->repair.over) repair_restart(sh);
    }
}

/* --- tend: the regular look ------------------------------------------------------------------ */

enum { TEND_BATCH = 256 };

void tend_now(struct shard *sh, int64_t now) {
    assert(now > 0);
    sh->tend.at_ms = now;
}

void tend_by(struct shard *sh, int64_t due_ms) {
    assert(due_ms > 0);
    if (!sh->tend.due_ms || due_ms < sh->tend.due_ms) sh->tend.due_ms = due_ms;
}

static void tend_call(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY && !sh->pipe.open);
    sh->tend.due_ms = 0;
    if (shard_quarantined(sh, now)) return;
    pipe_script(sh, CALL_TEND, &lw_script_tend, 4);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_lanes), pipe_text(sh, sh->key_ready);
    pipe_text(sh, sh->key_workers);
    pipe_text(sh, sh->epoch.id), pipe_number(sh, TEND_BATCH);
    pipe_number(sh, w->c->lock.ttl_ms), pipe_number(sh, w->c->lock.ttl_ms / 2);
    pipe_text(sh, w->c->group.on ? "1" : "0");
}

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY && !sh->pipe.open);
    if (now < sh->tend.at_ms) {
        if (sh->tend.due_ms && now >= sh->tend.due_ms) tend_call(w, sh, now);
        return;
    }
    int64_t period = w->c->lock.ttl_ms / 4;
    assert(period > 0);
    sh->tend.at_ms = now + period - (int64_t)(w->io->random(w->ctx) % (uint64_t)(period / 4 + 1));
    pipe_command(sh, CALL_TIME, "TIME");
    info_build(sh);
    pipe_command(sh, CALL_ALIVE, "ZADD");
    pipe_text(sh, sh->key_workers), pipe_number(sh, w->io->wall_ms(w->ctx));
    pipe_text(sh, w->set.id);
    tend_call(w, sh, now);
    vanished_build(w, sh);
    tell_runs(w, sh, now);
}
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == READY && r);
    if (r->type != REDIS_REPLY_INTEGER) {
        pipe_malformed(w, sh, r, "tend.lua", "an integer");
        return;
    }
    if (r->integer > 0) ready_look(w, sh);
    /* if the batch was full, more lanes may be due */
    if (r->integer >= TEND_BATCH) tend_now(sh, now_ms(w));
}

/* --- rights that Redis denies ---------------------------------------------------------------- */

enum {
    HOLD_MS = 2000,      /* time after a refusal in which nothing is admitted */
    SAY_SAME_MS = 10000, /* minimum time between two log lines about the same refusal */
    SAY_MS = 1000,       /* minimum time between two log lines about different refusals */
};

/* Asserts that a refusal has a text, and that its times are in order. */
static inline void check_refusal(const struct refusal *r) {
    assert(!r->last_ms || r->text[0]);
    assert(!r->last_ms || r->since_ms <= r->last_ms);
    assert(r->said_ms <= r->last_ms);
}

static void write_text(const struct lw_worker *w, struct shard *sh, enum call_kind kind,
                       const char *error) {
    const struct call_type *call = &call_types[kind];
    char command[LW_DENIED_NAMES], *text = sh->refusal.text;
    size_t size = sizeof sh->refusal.text;
    enum lw_denied denied = lw_denied(error, call->script, command);
    if (denied == LW_DENIED_COMMAND)
        snprintf(text, size, "this Redis user may not run %s (in %s)",
                 *command ? command : "a command", call->name);
    else if (denied == LW_DENIED_KEY)
        snprintf(text, size,
                 "this Redis user may not use a key%s%s (in %s); it needs ~lw:{%s.[0-9]*}:*",
                 *command ? " of " : "", command, call->name, w->c->name);
    else
        snprintf(text, size, "Redis refuses this worker: %.*s", (int)strcspn(error, "\r\n"), error);
}

bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error) {
    char command[LW_DENIED_NAMES], before[sizeof sh->refusal.text];
    int64_t now = now_ms(w);
    if (lw_denied(error, NULL, command) == LW_DENIED_NOTHING) return false;
    memcpy(before, sh->refusal.text, sizeof before);
    write_text(w, sh, kind, error);
    if (!sh->refusal.last_ms) sh->refusal.since_ms = now;
    sh->refusal.kind = kind;
    sh->refusal.allowed = false;
    sh->refusal.last_ms = now;
    if (now - sh->refusal.said_ms < (strcmp(before, sh->refusal.text) == 0 ? SAY_SAME_MS : SAY_MS))
        return true;
    sh->refusal.said_ms = now;
    lw_warn("shard %d: a right is missing: %s; retrying; `latchwork check --acl USER -c FILE` "
            "prints all rights that it needs",
            sh->index, sh->refusal.text);
    return true;
}

void refusal_allowed(struct shard *sh, enum call_kind kind) {
    if (sh->refusal.last_ms && sh->refusal.kind == kind) sh->refusal.allowed = true;
}

/* Ends the refusal if it is over, and logs its end. A refusal is over if Redis has refused no call
 * for HOLD_MS, and a call of the refused kind has succeeded since the last refusal. A success alone
 * proves little, because a script may need the missing right only for some messages. A refused call
 * is tried again within HOLD_MS or, if it is a periodic one, each quarter of a TTL. If no message
 * needs the call any more, it is not tried again. The refusal is then over after HOLD_MS plus a
 * TTL. */
void refusal_look(struct lw_worker *w, struct shard *sh, int64_t now) {
    check_refusal(&sh->refusal);
    int64_t quiet_ms = now - sh->refusal.last_ms;
    if (!sh->refusal.last_ms || quiet_ms < HOLD_MS ||
        (!sh->refusal.allowed && quiet_ms < HOLD_MS + w->c->lock.ttl_ms))
        return;
    lw_info("shard %d: Redis accepts all commands again after %" PRId64 " ms", sh->index,
            now - sh->refusal.since_ms);
    sh->refusal.last_ms = sh->refusal.said_ms = 0;
    sh->refusal.text[0] = '\0';
}

bool refusal_holds(const struct shard *sh, int64_t now) {
    return sh->refusal.last_ms && now - sh->refusal.last_ms < HOLD_MS;
}

const char *refusal_text(const struct shard *sh) {
    return sh->refusal.last_ms ? sh->refusal.text : NULL;
}
