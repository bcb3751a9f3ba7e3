/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/calls.h"
#include "bench/limits/tool.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/redis/script.h"
#include "base/redis/command.h"
#include "queue/codes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "lw:{bench.0}:"
#define EPOCH "00112233445566778899aabbccddeeff"
#define TOKENS "bench-1-00000000." /* what tokens begin with: as long as a worker's */
enum { NAME_MAX_BYTES = 350, GROUPS_MAX = 250, FENCES = 64 /* a lane, as the worker asks for */, HEADS = 64 };

struct group {
    int32_t partition;
    int64_t segment;
    int lo, hi; /* the bytes with their states */
};

struct calls {
    struct calls_setup set;
    char gate[41], settle[41]; /* SHA1 */
    int64_t redis_ahead_ms;    /* Redis time less the boot clock */
    uint64_t next_token;
    int64_t groups;
    struct group group[GROUPS_MAX];
    int n_groups;
    unsigned char places[3 * CALLS_BATCH_MAX];
    struct lw_commands commands;
};

/* --- parts of a call ---------------------------------------------------------------------------------------------------------------- */

/* Groups the batch by segment; a message's place is three bytes: which group, from 1, and its index there. */
static void place_all(struct calls *c, const struct call_batch *b) {
    c->n_groups = 0;
    unsigned char *to = c->places;
    for (int i = 0; i < b->n; i++) {
        const struct call_msg *m = &b->msg[i];
        int64_t segment = m->offset / LW_SEGMENT;
        int index = (int)(m->offset % LW_SEGMENT), byte = index / 4;
        struct group *g = c->n_groups ? &c->group[c->n_groups - 1] : NULL;
        if (!g || g->partition != m->partition || g->segment != segment) {
            if (c->n_groups == GROUPS_MAX) tool_die("a batch of more than %d segments; make --batch smaller", GROUPS_MAX);
            *(g = &c->group[c->n_groups++]) = (struct group){m->partition, segment, byte, byte};
        }
        g->hi = byte;
        *to++ = (unsigned char)c->n_groups;
        *to++ = (unsigned char)(index >> 8);
        *to++ = (unsigned char)(index & 255);
    }
    c->groups += c->n_groups;
}

static void begin(struct calls *c, const char *sha, int keys) {
    lw_commands_reset(&c->commands);
    lw_cmd(&c->commands, "EVALSHA");
    lw_arg_text(&c->commands, sha);
    lw_arg_i64(&c->commands, keys);
}

static size_t partition_name(const struct calls *c, const struct group *g, char *name) {
    return (size_t)snprintf(name, NAME_MAX_BYTES, "%s:%d", c->set.topic, (int)g->partition);
}

static void arg_segments(struct calls *c) {
    for (int i = 0; i < c->n_groups; i++) {
        char name[NAME_MAX_BYTES];
        size_t n = partition_name(c, &c->group[i], name);
        name[n++] = ':';
        n += lw_decimal(c->group[i].segment, name + n);
        lw_arg_join(&c->commands, lw_bytes_of(TAG), "state:", lw_bytes(name, n));
        lw_arg_join(&c->commands, lw_bytes_of(TAG), "tries:", lw_bytes(name, n));
    }
}

static void arg_places(struct calls *c, int n) {
    struct lw_commands *k = &c->commands;
    lw_arg_copy(k, (const char *)c->places, 3 * (size_t)n), lw_arg_i64(k, c->n_groups);
    for (int i = 0; i < c->n_groups; i++) {
        const struct group *g = &c->group[i];
        char name[NAME_MAX_BYTES];
        lw_arg_copy(k, name, partition_name(c, g, name));
        lw_arg_i64(k, g->segment), lw_arg_i64(k, g->lo), lw_arg_i64(k, g->hi);
    }
}

static void arg_locks(struct calls *c, const struct call_batch *b) {
    for (int i = 0; i < b->n; i++) {
        char lane[24] = "k-";
        lw_arg_join(&c->commands, lw_bytes_of(TAG), "lock:", lw_bytes(lane, 2 + lw_decimal(b->msg[i].key, lane + 2)));
    }
}

static void arg_token(struct calls *c, uint64_t token) {
    char text[24];
    lw_arg_join(&c->commands, lw_bytes_of(TOKENS), "", lw_bytes(text, lw_decimal((int64_t)token, text)));
}

static void arg_value(struct calls *c, const struct call_batch *b) {
    char text[48];
    size_t n = lw_decimal((int64_t)b->token, text);
    text[n++] = ':';
    n += lw_decimal((int64_t)b->fence, text + n);
    lw_arg_join(&c->commands, lw_bytes_of(TOKENS), "", lw_bytes(text, n));
}

static void append(struct calls *c) {
    struct lw_commands *k = &c->commands;
    const struct lw_command *cmd = &k->cmd[0];
    redisAppendCommandArgv(c->set.redis, cmd->argc, k->argv + cmd->first, k->len + cmd->first);
}

/* --- the calls ---------------------------------------------------------------------------------------------------------------------- */

void calls_gate(struct calls *c, struct call_batch *b) {
    struct lw_commands *k = &c->commands;
    place_all(c, b);
    b->token = c->next_token++;
    begin(c, c->gate, 4 + 2 * c->n_groups + b->n);
    lw_arg_text(k, TAG "epoch"), lw_arg_text(k, TAG "lanes"), lw_arg_text(k, TAG "floor"), lw_arg_text(k, TAG "fence");
    arg_segments(c);
    arg_locks(c, b);
    lw_arg_text(k, EPOCH), lw_arg_i64(k, lw_boot_ms() + c->redis_ahead_ms), lw_arg_i64(k, c->set.ttl_ms / 4);
    lw_arg_i64(k, c->set.ttl_ms), lw_arg_text(k, "park"), arg_token(c, b->token), lw_arg_text(k, "0"), lw_arg_i64(k, FENCES);
    lw_arg_text(k, ""); /* one message a lane, and no envelopes */
    arg_places(c, b->n);
    append(c);
}

/* An item: the one value; one message, done; who waits goes on, up to HEADS of them; nothing named, nothing before. */
static void arg_items(struct calls *c, int n) {
    static const char item[7] = {0, 1, 'd', 'n', 0, HEADS, 0};
    char *to = lw_arg_room(&c->commands, sizeof item * (size_t)n);
    for (int i = 0; i < n; i++) memcpy(to + sizeof item * (size_t)i, item, sizeof item);
}

void calls_settle(struct calls *c, const struct call_batch *b) {
    struct lw_commands *k = &c->commands;
    place_all(c, b);
    begin(c, c->settle, 6 + 2 * c->n_groups + b->n);
    lw_arg_text(k, TAG "epoch"), lw_arg_text(k, TAG "lanes"), lw_arg_text(k, TAG "floor"), lw_arg_text(k, TAG "fence");
    lw_arg_text(k, TAG "ready"), lw_arg_text(k, TAG "dead");
    arg_segments(c);
    arg_locks(c, b);
    lw_arg_text(k, EPOCH), lw_arg_i64(k, c->set.ttl_ms), lw_arg_i64(k, c->set.ttl_ms / 2), lw_arg_text(k, "block"), lw_arg_text(k, "");
    lw_arg_i64(k, FENCES), arg_items(c, b->n);
    arg_places(c, b->n);
    lw_arg_i64(k, 1), arg_value(c, b);
    append(c);
}

/* {fence, a letter a message, …}, each message the same letter */
static void check(const char *script, const redisReply *r, size_t parts, int n, char letter) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != parts || !r->element[0]->str || !r->element[1]->str ||
        r->element[1]->len != (size_t)n)
        tool_die("%s answered %s", script, r->str ? r->str : "a malformed reply");
    const char *letters = r->element[1]->str;
    for (int i = 0; i < n; i++)
        if (letters[i] != letter)
            tool_die("%s answered \"%c\" for a message, not %c; is this Redis in use, or a lease over?", script, letters[i], letter);
}

void calls_gate_check(struct call_batch *b, const redisReply *r) {
    check("gate", r, 3, b->n, 'R');
    b->fence = strtoull(r->element[0]->str, NULL, 10);
}

void calls_settle_check(int n, const redisReply *r) { check("settle", r, 7, n, 'L'); }

/* --- before and after --------------------------------------------------------------------------------------------------------------- */

static void load(redisContext *redis, const struct lw_script *script, char sha[41]) {
    redisReply *r = tool_ask(redis, "SCRIPT LOAD %s", script->text);
    snprintf(sha, 41, "%s", r->str);
    freeReplyObject(r);
}

static int64_t redis_ms(redisContext *redis) {
    redisReply *r = tool_ask(redis, "TIME");
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2) tool_die("malformed reply to TIME");
    int64_t ms = strtoll(r->element[0]->str, NULL, 10) * 1000 + strtoll(r->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(r);
    return ms;
}

struct calls *calls_open(const struct calls_setup *setup, int64_t last) {
    struct calls *c = lw_alloc(sizeof *c);
    c->set = *setup;
    c->next_token = 1;
    redisContext *redis = setup->redis;
    load(redis, &lw_script_gate, c->gate);
    load(redis, &lw_script_settle, c->settle);
    freeReplyObject(tool_ask(redis, "DEL %s %s %s %s", TAG "lanes", TAG "floor", TAG "ready", TAG "dead"));
    for (int32_t p = 0; p < setup->partitions; p++)
        for (int64_t s = 0; s <= last / LW_SEGMENT; s++)
            freeReplyObject(tool_ask(redis, "DEL " TAG "state:%s:%d:%lld " TAG "tries:%s:%d:%lld", setup->topic, (int)p, (long long)s,
                                     setup->topic, (int)p, (long long)s));
    freeReplyObject(tool_ask(redis, "HSET %s id %s not_before 0", TAG "epoch", EPOCH));
    c->redis_ahead_ms = redis_ms(redis) - lw_boot_ms();
    return c;
}

void calls_close(struct calls *c) {
    lw_commands_free(&c->commands);
    free(c);
}

/* Nothing here is waiting or dead. */
static int64_t done_in(const redisReply *r) {
    int64_t n = 0;
    if (r->type != REDIS_REPLY_STRING) tool_die("Redis: GETRANGE of a state answered no text");
    for (size_t i = 0; i < r->len; i++)
        for (int k = 0; k < 4; k++) {
            enum lw_state state = lw_state_in(r->str[i], k);
            if (state != LW_STATE_UNSEEN && state != LW_STATE_DONE) tool_die("a message has state %d, neither unseen nor done", (int)state);
            n += state == LW_STATE_DONE;
        }
    return n;
}

int64_t calls_done(struct calls *c, int64_t last) {
    int64_t all = 0;
    for (int32_t p = 0; p < c->set.partitions; p++)
        for (int64_t s = 0; s <= last / LW_SEGMENT; s++) {
            redisReply *r = tool_ask(c->set.redis, "GETRANGE " TAG "state:%s:%d:%lld 0 -1", c->set.topic, (int)p, (long long)s);
            all += done_in(r);
            freeReplyObject(r);
        }
    return all;
}

int64_t calls_groups(const struct calls *c) { return c->groups; }
