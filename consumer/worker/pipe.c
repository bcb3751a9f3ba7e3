/* SPDX-License-Identifier: Apache-2.0 */
/* pipe: the part of the worker that builds one pipeline per turn and shard, reads its replies, and
 * sends calls again if the connection breaks before the replies have come.
 *
 * It applies two rules. "one call per key": while a call that names a key is unanswered, nothing
 * else about that key is sent. A shard has one pipeline at a time, so unanswered means: in the
 * pipeline that is in flight. "same calls first": after a lost reply the same calls are sent again
 * before anything else. Gate and claim then have the same tokens, and settle asks for no grants. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"
#include "queue/life.h"

void pipe_begin(struct shard *sh) {
    assert(!sh->pipe.open);
    lw_commands_reset(&sh->pipe.commands);
    sh->pipe.n = sh->pipe.answered = 0;
}

void pipe_call(struct shard *sh, enum call_kind kind) {
    assert(!sh->pipe.open && sh->pipe.n < PIPE_CALLS);
    sh->pipe.calls[sh->pipe.n++] = (struct call){.kind = kind};
}

void pipe_command(struct shard *sh, enum call_kind kind, const char *name) {
    pipe_call(sh, kind);
    lw_cmd(&sh->pipe.commands, name);
    assert(sh->pipe.commands.n == sh->pipe.n);
}

void pipe_text(struct shard *sh, const char *text) { lw_arg_text(&sh->pipe.commands, text); }

void pipe_copy(struct shard *sh, const char *text) {
    lw_arg_copy(&sh->pipe.commands, text, strlen(text));
}

void pipe_bytes(struct shard *sh, struct lw_bytes b) { lw_arg(&sh->pipe.commands, b); }
void pipe_number(struct shard *sh, int64_t v) { lw_arg_i64(&sh->pipe.commands, v); }

void pipe_key(struct shard *sh, const char *name) {
    lw_arg_join(&sh->pipe.commands, lw_bytes(sh->prefix, sh->n_prefix), "", lw_bytes_of(name));
}

void pipe_offsets(struct shard *sh, const char *partition, int64_t a, int64_t b) {
    assert(partition[0]);
    pipe_text(sh, partition), pipe_number(sh, a), pipe_number(sh, b);
}

void pipe_script(struct shard *sh, enum call_kind kind, const struct lw_script *script,
                 int n_keys) {
    assert(script && n_keys > 0);
    pipe_command(sh, kind, "EVALSHA");
    pipe_text(sh, script->sha1), pipe_number(sh, n_keys);
}

void pipe_send(struct lw_worker *w, struct shard *sh) {
    if (!sh->pipe.n) return;
    assert(sh->pipe.commands.n == sh->pipe.n && sh->phase != DOWN);
    sh->pipe.open = true;
    sh->pipe.answered = 0;
    sh->pipe.sent_ms = now_ms(w);
    count(&w->counts->redis_round_trips);
    count_n(&w->counts->redis_commands, (uint64_t)sh->pipe.n);
    w->io->send(w->ctx, sh->index, &sh->pipe.commands);
}

struct lw_lane_call pipe_lane_call(struct lw_worker *w, struct shard *sh,
                                   const struct lw_script *script) {
    assert(epoch_joined(sh) && !sh->pipe.open);
    return (struct lw_lane_call){.commands = &sh->pipe.commands,
                                 .sha = script->sha1,
                                 .prefix = lw_bytes(sh->prefix, sh->n_prefix),
                                 .epoch = sh->key_epoch,
                                 .lanes = sh->key_lanes,
                                 .floor = sh->key_floor,
                                 .fence = sh->key_fence,
                                 .ready = sh->key_ready,
                                 .dead = sh->key_dead,
                                 .claimed = sh->key_claimed,
                                 .epoch_id = sh->epoch.id,
                                 .redis_ms = connection_redis_ms(w, sh),
                                 .ttl_ms = w->c->lock.ttl_ms,
                                 .handoff_ms = w->c->lock.ttl_ms / 2,
                                 .fences = AHEAD_MAX,
                                 .skip = w->c->retry.order == LW_ORDER_SKIP};
}

uint64_t token_new(struct lw_worker *w) {
    assert(w->next_token < UINT64_MAX);
    return ++w->next_token;
}

/* Returns the limits, in bytes, for a call of claim or settle. The call may hand over as many bytes
 * of heads as memory has room for, but not more than w->bytes.call. Even if memory has no room, the
 * call may hand over a few bytes, so that small messages make progress while large ones fill the
 * memory. */
struct lw_call_bounds pipe_bounds(const struct lw_worker *w) {
    const struct lw_byte_bounds *b = &w->bytes;
    size_t room =
               b->heads > w->memory.heads ? (b->heads - w->memory.heads) / (size_t)w->n_shards : 0,
           least = b->call / 32 + 1;
    return (struct lw_call_bounds){.lane = b->lane,
                                   .call = room > b->call ? b->call
                                           : room > least ? room
                                                          : least,
                                   .met = w->memory.big};
}

static void load_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

const struct call_type call_types[] = {
    [CALL_LOAD] = {.name = "loading the scripts", .reply = load_reply},
    [CALL_INFO] = {.name = "the look at the server", .reply = life_reply},
    [CALL_TIME] = {.name = "the look at the server's clock", .reply = time_reply},
    [CALL_OWNER] = {.name = "the look at the epoch", .reply = owner_reply},
    [CALL_ENTER] = {.name = "script enter", .script = &lw_script_enter, .reply = enter_reply},
    [CALL_REPAIR] = {.name = "script repair",
                     .script = &lw_script_repair,
                     .reply = repair_reply,
                     .back = repair_back},
    [CALL_WATCH] = {.name = "script watch", .script = &lw_script_watch, .reply = watch_reply},
    [CALL_SETTLE] = {.name = "script settle",
                     .script = &lw_script_settle,
                     .reply = settle_reply,
                     .encode = settle_encode,
                     .back = settle_back},
    [CALL_GATE] = {.name = "script gate",
                   .script = &lw_script_gate,
                   .reply = gate_reply,
                   .encode = gate_encode,
                   .back = gate_back},
    [CALL_CLAIM] = {.name = "script claim",
                    .script = &lw_script_claim,
                    .reply = claim_reply,
                    .encode = claim_encode,
                    .back = claim_back},
    [CALL_HINTS] = {.name = "script hints", .script = &lw_script_hints, .reply = hints_reply},
    [CALL_READY] = {.name = "script ready", .script = &lw_script_ready, .reply = ready_reply},
    [CALL_TEND] = {.name = "script tend", .script = &lw_script_tend, .reply = tend_reply},
    [CALL_FLOOR] = {.name = "script floor", .script = &lw_script_floor, .reply = floor_reply},
    [CALL_VANISHED] = {.name = "the look for deleted lists", .reply = vanished_reply},
    [CALL_UNPARK] = {.name = "script unpark", .script = &lw_script_unpark, .reply = unpark_reply},
    [CALL_LIFT] = {.name = "script lift", .script = &lw_script_lift, .reply = lift_reply},
    [CALL_LIMIT] = {.name = "script limit", .script = &lw_script_limit, .reply = limit_reply},
    [CALL_ALIVE] = {.name = "the heartbeat"},
};

static bool keeps(enum call_kind k) { return call_types[k].encode != NULL; }

/* Sends the calls in the list `kept` again. Nothing else that names the same keys may be sent
 * before them. */
static void send_again(struct lw_worker *w, struct shard *sh) {
    assert(!sh->pipe.open && sh->pipe.n_kept > 0 && sh->pipe.n_kept <= KEPT_CALLS);
    lw_commands_reset(&sh->pipe.commands);
    settle_again(w, sh, sh->pipe.cut);
    sh->pipe.n = 0;
    int n = sh->pipe.n_kept;
    sh->pipe.n_kept = 0;
    for (int i = 0; i < n; i++) {
        pipe_call(sh, sh->pipe.kept[i]);
        call_types[sh->pipe.kept[i]].encode(w, sh);
    }
    pipe_send(w, sh);
}

/* Keeps the unanswered calls, and those that did not execute, so that they can be sent again. */
static void keep_calls(struct shard *sh) {
    for (int i = 0; i < sh->pipe.n; i++)
        if ((i >= sh->pipe.answered || sh->pipe.calls[i].again) && keeps(sh->pipe.calls[i].kind))
            sh->pipe.kept[sh->pipe.n_kept++] = sh->pipe.calls[i].kind;
    assert(sh->pipe.n_kept <= KEPT_CALLS);
    /* A call that was sent again and did not execute (NOSCRIPT, JUMP) says nothing about the copy
     * whose reply was lost: that one may still execute. So the doubt ends with the calls. */
    if (!sh->pipe.n_kept) sh->pipe.cut = false;
    sh->pipe.open = false;
    sh->pipe.n = sh->pipe.answered = 0;
}

static void withdraw(struct lw_worker *w, struct shard *sh, enum call_kind kind) {
    if (call_types[kind].back) call_types[kind].back(w, sh);
}

void pipe_forget(struct lw_worker *w, struct shard *sh) {
    for (int i = 0; i < sh->pipe.n_kept; i++) withdraw(w, sh, sh->pipe.kept[i]);
    if (sh->pipe.open)
        for (int i = 0; i < sh->pipe.n; i++)
            if (i >= sh->pipe.answered || sh->pipe.calls[i].again)
                withdraw(w, sh, sh->pipe.calls[i].kind);
    sh->pipe.open = sh->pipe.cut = false;
    sh->pipe.n_kept = sh->pipe.n = sh->pipe.answered = 0;
}

void pipe_broken(struct lw_worker *w, struct shard *sh) {
    if (!sh->pipe.open) return;
    for (int i = sh->pipe.answered; i < sh->pipe.n; i++) {
        sh->pipe.cut |= keeps(sh->pipe.calls[i].kind);
        if (sh->pipe.calls[i].kind == CALL_REPAIR) withdraw(w, sh, CALL_REPAIR);
    }
    keep_calls(sh);
}

void pipe_free(struct shard *sh) {
    assert(!sh->pipe.open);
    lw_commands_free(&sh->pipe.commands);
}

/* Notes that a call did not execute, so that it is sent again on this connection. */
static void not_executed(struct lw_worker *w, struct shard *sh, struct call *c) {
    c->again = keeps(c->kind);
    if (c->kind != CALL_REPAIR) return;
    withdraw(w, sh, CALL_REPAIR);
    repair_restart(sh);
}

/* Handles an error reply: decides whether the call has executed, and what follows. */
static void failed(struct lw_worker *w, struct shard *sh, struct call *c, const char *text) {
    assert(sh->pipe.answered > 0);
    if (strncmp(text, "NOSCRIPT", 8) == 0) {
        /* the script is missing, for example after SCRIPT FLUSH, so the call did not execute */
        connection_scripts(sh, false);
        not_executed(w, sh, c);
        return;
    }
    if (connection_moved(w, sh, text)) {
        /* the call may have executed in part, so it is treated like one whose reply was lost */
        sh->pipe.cut |= keeps(c->kind);
        not_executed(w, sh, c);
        return;
    }
    if (c->kind == CALL_GATE && strncmp(text, "OOM", 3) == 0) {
        /* nothing new is admitted while Redis is at maxmemory */
        gate_refused(w, sh);
        return;
    }
    bool denied = refusal_take(w, sh, c->kind, text);
    if (c->kind == CALL_VANISHED) {
        /* The worker can go on without reading the stream `vanished`, and tries again later. */
        vanished_failed(w, sh, text);
        return;
    }
    /* An error of the heartbeat does not matter, because only people read the list of live
     * workers. */
    if (c->kind == CALL_ALIVE) return;
    sh->pipe.answered--; /* the call counts as unanswered, so that it is sent again */
    if (denied) {
        connection_drop(w, sh);
        return;
    }
    char why[300];
    snprintf(why, sizeof why, "%s%s", text,
             lw_redis_lacks_lua(text) ? "; the server runs without its Lua module: load it" : "");
    lw_worker_disconnected(w, sh->index, why);
}

void pipe_malformed(struct lw_worker *w, struct shard *sh, const redisReply *r, const char *name,
                    const char *expected, ...) {
    assert(sh->pipe.open && sh->pipe.answered > 0);
    sh->pipe.answered--;
    char why[LW_REPLY_TEXT];
    va_list ap;
    va_start(ap, expected);
    lw_vmalformed(why, r, name, expected, ap);
    va_end(ap);
    lw_worker_disconnected(w, sh->index, why);
}

static void load_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->pipe.answered > 0 && sh->phase == HELLO);
    if (r->type != REDIS_REPLY_STRING || r->len != 40) {
        pipe_malformed(w, sh, r, "SCRIPT LOAD", "a string of 40 bytes");
        return;
    }
    /* an error of a later one ends the connection, so all are loaded when HELLO is answered */
    connection_scripts(sh, true);
}

/* Handles the replies that every script may give: LOST, JUMP and QUARANTINE. Returns false for any
 * other reply. */
static bool common(struct lw_worker *w, struct shard *sh, struct call *c, const redisReply *r) {
    assert(c && sh->phase != DOWN);
    if (r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_STATUS) return false;
    if (strcmp(r->str, "LOST") == 0) {
        /* LOST: the call did nothing, but the lanes and messages that it names must still be
         * released */
        c->again = true;
        shard_lost(w, sh, "another epoch began");
        return true;
    }
    if (strcmp(r->str, "JUMP") == 0) {
        /* JUMP: the call did nothing, and the clocks are compared before it is sent again */
        c->again = true;
        connection_check(sh);
        return true;
    }
    if (strcmp(r->str, "QUARANTINE") == 0) {
        /* The server is in a quarantine that this worker did not know of. The worker tries again
         * after 10 ms. */
        epoch_quarantine(sh, now_ms(w) + 10);
        withdraw(w, sh, c->kind);
        return true;
    }
    return false;
}

static void dispatch(struct lw_worker *w, struct shard *sh, struct call *c, const redisReply *r) {
    assert(c->kind <= CALL_ALIVE && !c->again);
    const struct call_type *t = &call_types[c->kind];
    if (t->script && c->kind != CALL_ENTER && common(w, sh, c, r)) return;
    if (t->reply) t->reply(w, sh, r);
}

void lw_worker_reply(struct lw_worker *w, int shard, const redisReply *r) {
    assert(shard >= 0 && shard < w->n_shards);
    struct shard *sh = &w->shards[shard];
    if (!sh->pipe.open) return; /* the reply belongs to a pipeline that this worker has given up */
    assert(sh->pipe.answered < sh->pipe.n);
    struct call *c = &sh->pipe.calls[sh->pipe.answered++];
    if (r->type == REDIS_REPLY_ERROR) {
        failed(w, sh, c, r->str);
    } else {
        refusal_allowed(sh, c->kind);
        dispatch(w, sh, c, r);
    }
    if (!sh->pipe.open || sh->pipe.answered < sh->pipe.n) return;
    keep_calls(sh);
    if (sh->phase == HELLO) hello_done(w, sh);
}

/* Sends what must come before a turn's own calls: the check of a new connection, scripts to load,
 * or calls to send again. Returns true if something was sent. */
bool pipe_urgent(struct lw_worker *w, struct shard *sh) {
    assert(!sh->pipe.open && sh->phase != DOWN);
    if (connection_unsure(sh)) {
        /* the check of a connection has a pipeline of its own, so calls that must be sent again
         * wait for the next pipeline */
        hello_build(w, sh, !sh->server.loaded);
        return true;
    }
    if (sh->pipe.n_kept && sh->phase != ENTERING) {
        /* calls are not sent again in phase ENTERING, because the epoch may turn out to be lost */
        send_again(w, sh);
        return true;
    }
    return false;
}
