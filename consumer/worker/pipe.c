/* One pipeline a turn and shard: what is in it, what came back, and what happens when the connection breaks in between.
 *
 * Rule 1: while a call that names a key is unanswered nothing else about that key is sent; there is one pipeline a shard at a time, so
 * "unanswered" is "in the open pipeline". Rule 3: after a lost reply the same calls go first, gate and claim with the same tokens, settle
 * in mode drop. */
#include "consumer/worker/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static char sha[LW_SCRIPTS][41]; /* as SCRIPT LOAD answered; the same in all shards */

const char *script_sha(const struct lw_script *s) {
    for (int i = 0; i < LW_SCRIPTS; i++)
        if (lw_scripts[i] == s) return sha[i];
    return "";
}

/* Begins a pipeline. The items of calls that must be sent again stay as they are: only the check of a connection goes before those. */
void pipe_begin(struct lw_worker *w, struct shard *sh) {
    (void)w;
    assert(!sh->open);
    lw_commands_reset(&sh->commands);
    sh->n_calls = sh->answered = 0;
    if (!sh->n_kept) sh->n_gate = sh->n_gate_msgs = sh->n_settle = sh->n_named = sh->n_claim = 0;
    sh->n_look = sh->n_repair = sh->n_floors = 0;
}

void pipe_call(struct shard *sh, enum call_kind kind) {
    assert(sh->n_calls < PIPE_CALLS);
    sh->calls[sh->n_calls++] = (struct call){.kind = kind};
}

void pipe_script(struct shard *sh, const struct lw_script *script, int n_keys) {
    lw_cmd(&sh->commands, "EVALSHA");
    lw_arg(&sh->commands, lw_bytes(script_sha(script), 40));
    lw_arg_i64(&sh->commands, n_keys);
}

void pipe_send(struct lw_worker *w, struct shard *sh) {
    if (!sh->n_calls) return;
    assert(sh->commands.n == sh->n_calls);
    sh->open = true;
    sh->answered = 0;
    sh->sent_ms = now_ms(w);
    sh->sent_wall_ms = w->io->wall_ms(w->ctx);
    atomic_fetch_add_explicit(&w->counts->redis_round_trips, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->counts->redis_commands, (uint64_t)sh->n_calls, memory_order_relaxed);
    w->io->send(w->ctx, sh->index, &sh->commands);
}

void arg_lock(struct shard *sh, struct lw_bytes lane) { lw_arg_join(&sh->commands, lw_bytes(sh->prefix, sh->n_prefix), "lock:", lane); }

void arg_token(struct lw_worker *w, struct shard *sh, uint64_t token) {
    char text[24];
    size_t n = lw_decimal((int64_t)token, text);
    lw_arg_join(&sh->commands, lw_bytes_of(w->set.id), ".", lw_bytes(text, n));
}

/* Appends the byte limits of a claim or settle. The call may hand over what memory has room for, and
 * always a little, so that small messages make progress beside large ones. */
void arg_bounds(struct lw_worker *w, struct shard *sh) {
    const struct lw_byte_bounds *b = &w->bytes;
    size_t room = b->heads > w->head_bytes ? (b->heads - w->head_bytes) / (size_t)w->n_shards : 0, least = b->call / 32 + 1;
    char text[80];
    int n = snprintf(text, sizeof text, "%zu %zu %zu", b->lane, room > b->call ? b->call : room > least ? room : least, w->big_bytes);
    lw_arg_copy(&sh->commands, text, (size_t)n);
}

static bool keeps(enum call_kind k) { return k == CALL_SETTLE || k == CALL_GATE || k == CALL_CLAIM; }

/* Sends the kept calls again, before anything else of their keys. */
static void send_again(struct lw_worker *w, struct shard *sh) {
    lw_commands_reset(&sh->commands);
    sh->n_named = 0;
    for (int i = 0; i < sh->n_settle; i++) settle_choose(w, sh, &sh->settle[i], sh->cut);
    sh->cut = false;
    sh->n_calls = 0;
    int n = sh->n_kept;
    sh->n_kept = 0;
    for (int i = 0; i < n; i++) {
        pipe_call(sh, sh->kept[i]);
        switch (sh->kept[i]) {
        case CALL_SETTLE: settle_encode(w, sh); break;
        case CALL_GATE: gate_encode(w, sh); break;
        default: claim_encode(w, sh); break;
        }
    }
    pipe_send(w, sh);
}

/* Keeps the unanswered calls and those that did not execute, to be sent again. */
static void keep_calls(struct shard *sh) {
    for (int i = 0; i < sh->n_calls; i++)
        if ((i >= sh->answered || sh->calls[i].again) && keeps(sh->calls[i].kind)) sh->kept[sh->n_kept++] = sh->calls[i].kind;
    assert(sh->n_kept <= KEPT_CALLS);
    sh->open = false;
    sh->n_calls = sh->answered = 0;
}

static void forget_call(struct lw_worker *w, struct shard *sh, enum call_kind kind) {
    switch (kind) {
    case CALL_GATE:
        for (int k = 0; k < sh->n_gate; k++) {
            sh->gate[k].lane->in_call = false;
            for (int m = 0; m < sh->gate[k].n; m++) msg_free(w, sh->gate_msgs[sh->gate[k].first + m]);
            lane_wake(w, sh->gate[k].lane);
        }
        break;
    case CALL_SETTLE:
        unsure_owe(w, sh);
        for (int k = 0; k < sh->n_settle; k++) sh->settle[k].hold->lane->in_call = false;
        break;
    case CALL_CLAIM: claim_forget(w, sh); break;
    case CALL_REPAIR:
        for (int k = 0; k < sh->n_repair; k++)
            if (sh->repair[k].late) sh->repair[k].late->in_repair = false;
        break;
    default: break;
    }
}

void pipe_forget(struct lw_worker *w, struct shard *sh) {
    for (int i = 0; i < sh->n_kept; i++) forget_call(w, sh, sh->kept[i]);
    if (sh->open)
        for (int i = 0; i < sh->n_calls; i++)
            if (i >= sh->answered || sh->calls[i].again) forget_call(w, sh, sh->calls[i].kind);
    sh->open = sh->cut = false;
    sh->n_kept = sh->n_calls = sh->answered = 0;
}

void lw_worker_disconnected(struct lw_worker *w, int shard, const char *why) {
    struct shard *sh = &w->shards[shard];
    if (sh->phase == DOWN) return;
    lw_warn("shard %d: Redis connection: %s", shard, why);
    if (sh->open) {
        for (int i = sh->answered; i < sh->n_calls; i++) {
            sh->cut |= keeps(sh->calls[i].kind);
            if (sh->calls[i].kind == CALL_REPAIR) forget_call(w, sh, CALL_REPAIR);
        }
        keep_calls(sh);
    }
    sh->loaded = sh->checking = false;
    sh->phase = DOWN;
    w->io->connect(w->ctx, shard);
}

/* An error reply: what executed, and what now. */
static void failed(struct lw_worker *w, struct shard *sh, struct call *c, const char *text) {
    if (strncmp(text, "NOSCRIPT", 8) == 0) { /* SCRIPT FLUSH: nothing executed */
        sh->loaded = false;
        c->again = keeps(c->kind);
        if (c->kind == CALL_REPAIR) {
            forget_call(w, sh, CALL_REPAIR);
            repair_restart(sh);
        }
        return;
    }
    if (c->kind == CALL_GATE && strncmp(text, "OOM", 3) == 0) { /* at maxmemory: admission waits, the queue drains */
        if (!sh->oom_until_ms) lw_warn("shard %d: Redis is at maxmemory: nothing new is admitted until it has room", sh->index);
        sh->oom_until_ms = now_ms(w) + 200;
        gate_back(w, sh);
        return;
    }
    /* it is asked again; the worker can go on without */
    if (c->kind == CALL_VANISHED) return;
    if (c->kind == CALL_ALIVE) return; /* for people only */
    sh->answered--;                    /* counts as unanswered */
    char why[300];
    snprintf(why, sizeof why, "%s", text);
    lw_worker_disconnected(w, sh->index, why);
}

static void load_reply(struct shard *sh, const redisReply *r) {
    int at = 0;
    for (int i = 0; i < sh->answered - 1; i++) at += sh->calls[i].kind == CALL_LOAD;
    if (r->type != REDIS_REPLY_STRING || r->len != 40) return;
    memcpy(sha[at], r->str, 41);
    sh->loaded = at == LW_SCRIPTS - 1;
}

/* The answers that every script may give. */
static bool common(struct lw_worker *w, struct shard *sh, struct call *c, const redisReply *r) {
    if (r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_STATUS) return false;
    if (strcmp(r->str, "LOST") == 0) {
        c->again = true; /* it did nothing: its items are still to be let go */
        shard_lost(w, sh, "another epoch began");
        return true;
    }
    if (strcmp(r->str, "JUMP") == 0) { /* nothing executed; look at the clocks before saying it again */
        c->again = true;
        sh->checking = true;
        return true;
    }
    if (strcmp(r->str, "QUARANTINE") == 0) {
        sh->quiet_until_ms = now_ms(w) + 10; /* joined late; what enter said holds, else ask again soon */
        switch (c->kind) {
        case CALL_SETTLE: settle_back(w, sh); break;
        case CALL_GATE: gate_back(w, sh); break;
        case CALL_CLAIM: claim_forget(w, sh); break;
        default: break;
        }
        return true;
    }
    return false;
}

static void dispatch(struct lw_worker *w, struct shard *sh, struct call *c, const redisReply *r) {
    bool scripted = c->kind == CALL_REPAIR || c->kind == CALL_WATCH || c->kind == CALL_SETTLE || c->kind == CALL_GATE ||
                    c->kind == CALL_CLAIM || c->kind == CALL_HINTS || c->kind == CALL_TEND || c->kind == CALL_FLOOR ||
                    c->kind == CALL_UNPARK;
    if (scripted && common(w, sh, c, r)) return;
    switch (c->kind) {
    case CALL_LOAD: load_reply(sh, r); break;
    case CALL_INFO: life_reply(w, sh, r); break;
    case CALL_TIME: time_reply(w, sh, r); break;
    case CALL_ENTER: enter_reply(w, sh, r); break;
    case CALL_REPAIR: repair_reply(w, sh, r); break;
    case CALL_WATCH: watch_reply(w, sh, r); break;
    case CALL_SETTLE: settle_reply(w, sh, r); break;
    case CALL_GATE: gate_reply(w, sh, r); break;
    case CALL_CLAIM: claim_reply(w, sh, r); break;
    case CALL_HINTS: hints_reply(w, sh, r); break;
    case CALL_TEND: tend_reply(w, sh, r); break;
    case CALL_FLOOR: floor_reply(w, sh, r); break;
    case CALL_VANISHED: vanished_reply(w, sh, r); break;
    case CALL_UNPARK: unpark_reply(w, sh, r); break;
    case CALL_ALIVE: break;
    }
}

void lw_worker_reply(struct lw_worker *w, int shard, const redisReply *r) {
    struct shard *sh = &w->shards[shard];
    if (!sh->open) return; /* of a pipeline that was given up */
    struct call *c = &sh->calls[sh->answered++];
    if (r->type == REDIS_REPLY_ERROR)
        failed(w, sh, c, r->str);
    else
        dispatch(w, sh, c, r);
    if (!sh->open || sh->answered < sh->n_calls) return;
    keep_calls(sh);
    if (sh->phase == HELLO) hello_done(w, sh);
}

/* What must go out before a turn's own calls: the check of a joined life, scripts to load, calls to send again. True: something was sent.
 */
bool pipe_urgent(struct lw_worker *w, struct shard *sh) {
    if (sh->checking || !sh->loaded) {
        /* a pipeline of its own; the calls to send again wait beside it */
        hello_build(w, sh, !sh->loaded);
        return true;
    }
    if (sh->n_kept) {
        send_again(w, sh);
        return true;
    }
    return false;
}
