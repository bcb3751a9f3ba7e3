/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/calls.h"
#include "bench/limits/tool.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/redis/script.h"
#include "queue/calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "lw:{bench.0}:"
#define EPOCH "00112233445566778899aabbccddeeff"
/* WORKER must be as long as a real worker's id, because Redis needs more time for a longer id. */
#define WORKER "bench-1-00000000"
enum {
    NAME_MAX_BYTES = 350,
    FENCES = 64 /* fences requested per lane: the same number as a worker requests */,
    HEADS = 64
};

struct calls {
    struct calls_setup set;
    char gate[41], settle[41]; /* SHA1 of each script, in hex */
    int64_t redis_ahead_ms;    /* Redis time minus the boot clock */
    uint64_t next_token;
    int64_t segments;
    char (*name)[NAME_MAX_BYTES]; /* name of each partition: TOPIC:NUMBER */
    struct lw_places places;
    struct lw_commands commands;
};

/* --- the calls -------------------------------------------------------------------------------- */

static void place_all(struct calls *c, const struct call_batch *b) {
    lw_places_clear(&c->places);
    for (int i = 0; i < b->n; i++) {
        if (!lw_places_fit(&c->places, 1))
            tool_die("a batch of %d segments or more; make --batch smaller", LW_SEGMENTS_MAX);
        lw_places_add(&c->places, c->name[b->msg[i].partition], b->msg[i].offset);
    }
    c->segments += c->places.n;
}

static struct lw_lane_call call_of(struct calls *c, const char *sha) {
    lw_commands_reset(&c->commands);
    return (struct lw_lane_call){.commands = &c->commands,
                                 .sha = sha,
                                 .prefix = lw_bytes_of(TAG),
                                 .epoch = TAG "epoch",
                                 .lanes = TAG "lanes",
                                 .floor = TAG "floor",
                                 .fence = TAG "fence",
                                 .ready = TAG "ready",
                                 .dead = TAG "dead",
                                 .epoch_id = EPOCH,
                                 .redis_ms = lw_boot_ms() + c->redis_ahead_ms,
                                 .ttl_ms = c->set.ttl_ms,
                                 .handoff_ms = c->set.ttl_ms / 2,
                                 .fences = FENCES};
}

static void call_lanes(const struct lw_lane_call *call, const struct call_batch *b) {
    for (int i = 0; i < b->n; i++) {
        char lane[24] = "k-";
        lw_call_lane(call, lw_bytes(lane, 2 + lw_decimal(b->msg[i].key, lane + 2)));
    }
}

static void append(struct calls *c) {
    struct lw_commands *k = &c->commands;
    const struct lw_command *cmd = &k->cmd[0];
    redisAppendCommandArgv(c->set.redis, cmd->argc, k->argv + cmd->first, k->len + cmd->first);
}

void calls_gate(struct calls *c, struct call_batch *b) {
    char token[LW_TOKEN_TEXT];
    struct lw_lane_call call = call_of(c, c->gate);
    b->token = c->next_token++;
    place_all(c, b);
    lw_gate_begin(&call, &c->places, b->n);
    call_lanes(&call, b);
    lw_gate_args(&call, &c->places,
                 &(struct lw_gate_call){.token = lw_token_text(token, WORKER, b->token)});
    append(c);
}

void calls_settle(struct calls *c, const struct call_batch *b) {
    const struct lw_settle_item item = {
        .n_done = 1, .outcome = LW_DONE, .go = LW_GO_NEXT, .want = HEADS};
    static unsigned char items[LW_ITEM_BYTES * CALLS_BATCH_MAX];
    char value[LW_TOKEN_TEXT];
    struct lw_lane_call call = call_of(c, c->settle);
    place_all(c, b);
    for (int i = 0; i < b->n; i++) lw_settle_item(&item, items + LW_ITEM_BYTES * i);
    lw_settle_begin(&call, &c->places, b->n);
    call_lanes(&call, b);
    struct lw_settle_call s = {.bounds = {LW_LANE_BYTES, LW_CALL_BYTES, 0},
                               .items = lw_bytes((const char *)items, LW_ITEM_BYTES * (size_t)b->n),
                               .n_values = 1};
    lw_settle_args(&call, &c->places, &s);
    lw_call_value(&call, lw_value_text(value, WORKER, b->token, b->fence));
    append(c);
}

/* Checks a reply {fence, one letter per message, …}, in which every letter must be `letter`. */
static void check(const char *script, const redisReply *r, size_t parts, int n, char letter) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != parts || !r->element[0]->str ||
        !r->element[1]->str || r->element[1]->len != (size_t)n)
        tool_die("%s answered %s", script, r->str ? r->str : "a malformed reply");
    const char *letters = r->element[1]->str;
    for (int i = 0; i < n; i++)
        if (letters[i] != letter)
            tool_die(
                "%s answered \"%c\" for a message, not %c; is this Redis in use, or a lease over?",
                script, letters[i], letter);
}

void calls_gate_check(struct call_batch *b, const redisReply *r) {
    check("gate", r, 3, b->n, LW_GATED_RUN);
    b->fence = strtoull(r->element[0]->str, NULL, 10);
}

void calls_settle_check(int n, const redisReply *r) {
    check("settle", r, 7, n, LW_SETTLED_RELEASED);
}

/* --- before and after ------------------------------------------------------------------------- */

static void load(redisContext *redis, const struct lw_script *script, char sha[41]) {
    redisReply *r = tool_ask(redis, "SCRIPT LOAD %s", script->text);
    snprintf(sha, 41, "%s", r->str);
    freeReplyObject(r);
}

static int64_t redis_ms(redisContext *redis) {
    redisReply *r = tool_ask(redis, "TIME");
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2) tool_die("malformed reply to TIME");
    int64_t ms =
        strtoll(r->element[0]->str, NULL, 10) * 1000 + strtoll(r->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(r);
    return ms;
}

struct calls *calls_open(const struct calls_setup *setup, int64_t last) {
    struct calls *c = lw_alloc(sizeof *c);
    c->set = *setup;
    c->next_token = 1;
    c->name = lw_alloc((size_t)setup->partitions * sizeof *c->name);
    for (int32_t p = 0; p < setup->partitions; p++)
        snprintf(c->name[p], sizeof *c->name, "%s:%d", setup->topic, (int)p);
    redisContext *redis = setup->redis;
    load(redis, &lw_script_gate, c->gate);
    load(redis, &lw_script_settle, c->settle);
    freeReplyObject(
        tool_ask(redis, "DEL %s %s %s %s", TAG "lanes", TAG "floor", TAG "ready", TAG "dead"));
    for (int32_t p = 0; p < setup->partitions; p++)
        for (int64_t s = 0; s <= last / LW_SEGMENT; s++)
            freeReplyObject(tool_ask(redis, "DEL " TAG "state:%s:%d:%lld " TAG "tries:%s:%d:%lld",
                                     setup->topic, (int)p, (long long)s, setup->topic, (int)p,
                                     (long long)s));
    freeReplyObject(tool_ask(redis, "HSET %s id %s not_before 0", TAG "epoch", EPOCH));
    c->redis_ahead_ms = redis_ms(redis) - lw_boot_ms();
    return c;
}

void calls_close(struct calls *c) {
    lw_commands_free(&c->commands);
    free(c->name);
    free(c);
}

/* Counts the done states in a reply. Ends the program if any state is waiting or dead. */
static int64_t done_in(const redisReply *r) {
    int64_t n = 0;
    if (r->type != REDIS_REPLY_STRING) tool_die("Redis: GETRANGE of a state answered no text");
    for (size_t i = 0; i < r->len; i++)
        for (int k = 0; k < 4; k++) {
            enum lw_state state = lw_state_in(r->str[i], k);
            if (state != LW_STATE_UNSEEN && state != LW_STATE_DONE)
                tool_die("a message has state %d, neither unseen nor done", (int)state);
            n += state == LW_STATE_DONE;
        }
    return n;
}

int64_t calls_done(struct calls *c, int64_t last) {
    int64_t all = 0;
    for (int32_t p = 0; p < c->set.partitions; p++)
        for (int64_t s = 0; s <= last / LW_SEGMENT; s++) {
            redisReply *r = tool_ask(c->set.redis, "GETRANGE " TAG "state:%s:%d:%lld 0 -1",
                                     c->set.topic, (int)p, (long long)s);
            all += done_in(r);
            freeReplyObject(r);
        }
    return all;
}

int64_t calls_segments(const struct calls *c) { return c->segments; }
