/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/process/hints.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/redis/script.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    /* BLOCK_S: a pop blocks for at most this time, so that a broken connection is noticed soon */
    BLOCK_S = 5,
    ANSWER_MS = 2 * BLOCK_S * 1000,
    /* RECONCILE_MAX is the maximum number of hints that are read back from the list `claimed`; if
     * the list has more hints, tend makes the rest of them again */
    RECONCILE_MAX = 1024,
    FULL_PAUSE_MS = 100, /* time between two calls of hints.lua while Redis is at maxmemory */
    /* FULL_MS: after an answer that Redis is at maxmemory, the blocking pop of hints is tried again
     * after this time */
    FULL_MS = 2000,
    FULL_BATCH = 64,
    REFUSED_MS = 1000,
    COMPLAIN_MS = 10000,
};

enum asked { NOTHING, RECONCILE, POP, EXPIRY, LOOK };
static const char *const asked_name[] = {
    [NOTHING] = "nothing",      [RECONCILE] = "the reading of popped hints",
    [POP] = "the pop of hints", [EXPIRY] = "the expiry of popped hints",
    [LOOK] = "hints.lua",
};

struct lw_hints {
    struct lw_hints_setup set;
    struct lw_wire *wire;
    char *ready, *claimed, *key_epoch;
    bool want, blmove;
    enum asked asked;
    int64_t next_ms;       /* time before which no hint is asked for */
    int64_t full_until_ms; /* time until which Redis is taken to be at maxmemory */
    int64_t complained_ms;
    /* `refused_at` is the kind of the command that Redis refused last, and has not accepted since;
     * NOTHING: there is no such command */
    enum asked refused_at;
    char refused[200]; /* text of the refusal, as Redis gave it */
    struct lw_commands commands;
};

static void send_asked(struct lw_hints *h, enum asked asked) {
    h->asked = asked;
    lw_wire_send(h->wire, &h->commands);
}

static void on_up(void *ctx) {
    struct lw_hints *h = ctx;
    lw_commands_reset(&h->commands);
    lw_cmd(&h->commands, "LRANGE"), lw_arg_text(&h->commands, h->claimed);
    lw_arg_i64(&h->commands, 0), lw_arg_i64(&h->commands, RECONCILE_MAX - 1);
    send_asked(h, RECONCILE);
}

static void on_down(void *ctx, const char *why) {
    struct lw_hints *h = ctx;
    lw_info("shard %d, hints: connection to Redis lost: %s; reconnecting", h->set.shard, why);
    h->asked = NOTHING;
}

static void tell(struct lw_hints *h, const redisReply *r) {
    if (r->type == REDIS_REPLY_STRING)
        h->set.hint(h->set.ctx, h->set.shard, lw_bytes(r->str, r->len));
}

static void on_error(struct lw_hints *h, const char *text) {
    int64_t now = lw_boot_ms();
    if (h->asked == POP && strncmp(text, "OOM", 3) == 0) {
        h->full_until_ms = now + FULL_MS;
    } else if (h->asked == POP && !h->blmove && strncmp(text, "ERR unknown command", 19) == 0) {
        h->blmove = true;
    } else {
        h->next_ms = now + REFUSED_MS;
        h->refused_at = h->asked;
        snprintf(h->refused, sizeof h->refused, "%.*s", (int)strcspn(text, "\r\n"), text);
        if (h->complained_ms && now - h->complained_ms < COMPLAIN_MS) return;
        h->complained_ms = now;
        lw_warn("shard %d, hints: Redis rejected %s: %s; asking for hints again in %d ms",
                h->set.shard, asked_name[h->asked], text, REFUSED_MS);
    }
}

static void on_reply(void *ctx, const redisReply *r) {
    struct lw_hints *h = ctx;
    if (r->type == REDIS_REPLY_ERROR) on_error(h, r->str);
    enum asked asked = h->asked;
    h->asked = asked == POP ? EXPIRY : NOTHING;
    if (r->type != REDIS_REPLY_ERROR && asked == h->refused_at) h->refused_at = NOTHING;
    /* the answer LOST of hints.lua is ignored here, because the worker's logic also notices that
     * the epoch has ended */
    if (r->type == REDIS_REPLY_STRING && asked == POP) tell(h, r);
    /* LRANGE returns the list `claimed` with the newest hint first, so its reply is read from the
     * end. hints.lua returns the oldest hint first. Another order would do no harm. */
    if (r->type == REDIS_REPLY_ARRAY)
        for (size_t i = 0; i < r->elements; i++)
            tell(h, r->element[asked == RECONCILE ? r->elements - 1 - i : i]);
}

/* A popped hint stays in the list `claimed` until its lane is claimed. If the worker dies before
 * that, the list expires: a command that sets its expiry is sent right after the pop. A server that
 * finds the connection closed may execute the pop only; then tend removes the list when it forgets
 * the worker. */
static void pop(struct lw_hints *h) {
    struct lw_commands *c = &h->commands;
    lw_commands_reset(c);
    lw_cmd(c, h->blmove ? "BLMOVE" : "BRPOPLPUSH"), lw_arg_text(c, h->ready),
        lw_arg_text(c, h->claimed);
    if (h->blmove) lw_arg_text(c, "RIGHT"), lw_arg_text(c, "LEFT");
    lw_arg_i64(c, BLOCK_S);
    lw_cmd(c, "PEXPIRE"), lw_arg_text(c, h->claimed), lw_arg_i64(c, 4 * h->set.ttl_ms);
    send_asked(h, POP);
}

/* Sends the script's text with EVAL, not its hash with EVALSHA: the call is rare, and with EVAL a
 * server that does not know the script needs no second round trip. */
static void look(struct lw_hints *h, int64_t now) {
    char epoch[64];
    h->next_ms = now + FULL_PAUSE_MS;
    if (!h->set.epoch(h->set.ctx, h->set.shard, epoch, sizeof epoch)) return;
    struct lw_commands *c = &h->commands;
    lw_commands_reset(c);
    lw_cmd(c, "EVAL"), lw_arg_text(c, lw_script_hints.text), lw_arg_i64(c, 3);
    lw_arg_text(c, h->key_epoch), lw_arg_text(c, h->ready), lw_arg_text(c, h->claimed);
    lw_arg_text(c, epoch), lw_arg_i64(c, FULL_BATCH), lw_arg_i64(c, h->set.ttl_ms);
    send_asked(h, LOOK);
}

void lw_hints_step(struct lw_hints *h) {
    if (!h->want || h->asked != NOTHING || !h->wire || !lw_wire_is_up(h->wire)) return;
    int64_t now = lw_boot_ms();
    if (now < h->next_ms) return;
    if (now < h->full_until_ms)
        look(h, now);
    else
        pop(h);
}

struct lw_hints *lw_hints_open(const struct lw_hints_setup *setup) {
    struct lw_hints *h = lw_alloc(sizeof *h);
    h->set = *setup;
    struct lw_buf b = {0};
    lw_buf_addf(&b, "%sepoch%c", setup->prefix, 0);
    h->key_epoch = b.p;
    return h;
}

static void connect_first(struct lw_hints *h) {
    char name[32];
    snprintf(name, sizeof name, "shard %d, hints", h->set.shard);
    struct lw_wire_setup s = {.finder = h->set.finder,
                              .shard = h->set.shard,
                              .name = name,
                              .owner = h->set.owner,
                              .answer_ms = ANSWER_MS,
                              .up = on_up,
                              .reply = on_reply,
                              .down = on_down,
                              .ctx = h};
    h->wire = lw_wire_open(&s);
}

void lw_hints_want(struct lw_hints *h, const char *ready, const char *claimed, bool want) {
    h->want = want;
    if (!want || h->wire) return;
    h->ready = lw_strdup(ready);
    h->claimed = lw_strdup(claimed);
    connect_first(h);
}

void lw_hints_close(struct lw_hints *h) {
    if (!h) return;
    lw_wire_close(h->wire);
    lw_commands_free(&h->commands);
    free(h->ready), free(h->claimed), free(h->key_epoch);
    free(h);
}

const char *lw_hints_refused(const struct lw_hints *h) {
    return h->want && h->refused_at != NOTHING && h->refused_at != RECONCILE ? h->refused : NULL;
}

struct pollfd lw_hints_poll(const struct lw_hints *h) {
    return h->wire ? lw_wire_poll(h->wire) : (struct pollfd){.fd = -1};
}

int64_t lw_hints_due_ms(const struct lw_hints *h) {
    if (!h->wire) return INT64_MAX;
    int64_t due = lw_wire_due_ms(h->wire);
    bool paused = h->want && h->asked == NOTHING && lw_wire_is_up(h->wire);
    return paused && h->next_ms < due ? h->next_ms : due;
}

void lw_hints_serve(struct lw_hints *h, short revents) {
    if (h->wire) lw_wire_serve(h->wire, revents);
}
