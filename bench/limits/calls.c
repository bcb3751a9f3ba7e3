#include "bench/limits/calls.h"
#include "bench/limits/tool.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/script.h"
#include "consumer/command.h"
#include "queue/envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "lw:{bench.0}:"
#define EPOCH "00112233445566778899aabbccddeeff"
#define TOKENS "bench-1-00000000." /* what tokens begin with: as long as a worker's */
enum { SEGMENT = 16384, NAME_MAX_BYTES = 350 };

struct group {
    int32_t partition;
    int64_t segment;
    int n; /* messages */
};

struct calls {
    struct calls_setup set;
    char gate[41], settle[41]; /* SHA1 */
    int64_t redis_ahead_ms;    /* Redis time less the boot clock */
    uint64_t next_token;
    int64_t groups;
    struct group group[CALLS_BATCH_MAX];
    struct lw_commands commands;
    struct lw_buf envelope;
    char *payload;
};

/* --- parts of a call ---------------------------------------------------------------------------------------------------------------- */

static int group_all(struct calls *c, const struct call_msg *m, int n) {
    int k = 0;
    for (int i = 0; i < n; i++) {
        int64_t segment = m[i].offset / SEGMENT;
        struct group *g = k ? &c->group[k - 1] : NULL;
        if (!g || g->partition != m[i].partition || g->segment != segment)
            *(g = &c->group[k++]) = (struct group){m[i].partition, segment, 0};
        g->n++;
    }
    c->groups += k;
    return k;
}

static void begin(struct calls *c, const char *sha, int keys) {
    lw_commands_reset(&c->commands);
    lw_cmd(&c->commands, "EVALSHA");
    lw_arg_text(&c->commands, sha);
    lw_arg_i64(&c->commands, keys);
}

static void arg_partition(struct calls *c, int32_t partition) {
    char name[NAME_MAX_BYTES];
    lw_arg_copy(&c->commands, name, (size_t)snprintf(name, sizeof name, "%s:%d", c->set.topic, (int)partition));
}

static void arg_segments(struct calls *c, int n_groups) {
    for (int g = 0; g < n_groups; g++) {
        char name[NAME_MAX_BYTES];
        int n = snprintf(name, sizeof name, "%s:%d:%" PRId64, c->set.topic, (int)c->group[g].partition, c->group[g].segment);
        lw_arg_join(&c->commands, lw_bytes_of(TAG), "state:", lw_bytes(name, (size_t)n));
        lw_arg_join(&c->commands, lw_bytes_of(TAG), "tries:", lw_bytes(name, (size_t)n));
    }
}

static void arg_locks(struct calls *c, const struct call_msg *m, int n) {
    for (int i = 0; i < n; i++) {
        char lane[24] = "k-";
        lw_arg_join(&c->commands, lw_bytes_of(TAG), "lock:", lw_bytes(lane, 2 + lw_decimal(m[i].key, lane + 2)));
    }
}

static void arg_envelope(struct calls *c, const struct call_msg *m, int64_t now_ms) {
    char key[24] = "k-";
    struct lw_envelope e = {.topic = lw_bytes_of(c->set.topic),
                            .key = lw_bytes(key, 2 + lw_decimal(m->key, key + 2)),
                            .dedup = lw_bytes("", 0),
                            .payload = lw_bytes(c->payload, (size_t)c->set.payload),
                            .partition = m->partition,
                            .offset = m->offset,
                            .first_ms = now_ms,
                            .timestamp_ms = now_ms};
    c->envelope.n = 0;
    lw_envelope_encode(&e, &c->envelope);
    lw_arg_copy(&c->commands, c->envelope.p, c->envelope.n);
}

static void append(struct calls *c) {
    struct lw_commands *k = &c->commands;
    const struct lw_command *cmd = &k->cmd[0];
    redisAppendCommandArgv(c->set.redis, cmd->argc, k->argv + cmd->first, k->len + cmd->first);
}

/* --- the calls ---------------------------------------------------------------------------------------------------------------------- */

void calls_gate(struct calls *c, struct call_msg *m, int n) {
    struct lw_commands *k = &c->commands;
    int n_groups = group_all(c, m, n);
    int64_t wall_ms = lw_wall_ms();
    begin(c, c->gate, 4 + 2 * n_groups + n);
    lw_arg_text(k, TAG "epoch"), lw_arg_text(k, TAG "lanes"), lw_arg_text(k, TAG "floor"), lw_arg_text(k, TAG "fence");
    arg_segments(c, n_groups);
    arg_locks(c, m, n);
    lw_arg_text(k, EPOCH), lw_arg_i64(k, lw_boot_ms() + c->redis_ahead_ms), lw_arg_i64(k, c->set.ttl_ms / 4);
    lw_arg_i64(k, c->set.ttl_ms), lw_arg_text(k, "park"), lw_arg_text(k, TOKENS), lw_arg_i64(k, (int64_t)c->next_token);
    lw_arg_text(k, "0"), lw_arg_i64(k, n_groups);
    for (int g = 0; g < n_groups; g++) arg_partition(c, c->group[g].partition), lw_arg_i64(k, c->group[g].n);
    for (int i = 0; i < n; i++) {
        m[i].token = c->next_token++;
        lw_arg_i64(k, m[i].offset);
        arg_envelope(c, &m[i], wall_ms);
    }
    append(c);
}

void calls_settle(struct calls *c, const struct call_msg *m, int n) {
    struct lw_commands *k = &c->commands;
    int n_groups = group_all(c, m, n), of = 0, left = 0;
    begin(c, c->settle, 6 + 2 * n_groups + n);
    lw_arg_text(k, TAG "epoch"), lw_arg_text(k, TAG "lanes"), lw_arg_text(k, TAG "floor"), lw_arg_text(k, TAG "fence");
    lw_arg_text(k, TAG "ready"), lw_arg_text(k, TAG "dead");
    arg_segments(c, n_groups);
    arg_locks(c, m, n);
    lw_arg_text(k, EPOCH), lw_arg_i64(k, c->set.ttl_ms), lw_arg_i64(k, c->set.ttl_ms / 2), lw_arg_text(k, "block"), lw_arg_text(k, "");
    lw_arg_text(k, TOKENS), lw_arg_i64(k, n_groups);
    for (int g = 0; g < n_groups; g++) arg_partition(c, c->group[g].partition);
    for (int i = 0; i < n; i++) {
        if (!left) left = c->group[of++].n;
        left--;
        lw_arg_i64(k, of), lw_arg_i64(k, m[i].offset), lw_arg_i64(k, (int64_t)m[i].token), lw_arg_text(k, "dn");
    }
    append(c);
}

static void check_array(const char *script, const redisReply *r, size_t n) {
    if (r->type == REDIS_REPLY_ARRAY && r->elements == n) return;
    tool_die("%s answered %s", script, r->str ? r->str : "nonsense");
}

static void check_letter(const char *script, const redisReply *r, char letter) {
    if (r->str && r->str[0] == letter) return;
    tool_die("%s answered \"%s\" for a message, not %c; is this Redis in use, or a lease over?", script, r->str ? r->str : "", letter);
}

void calls_gate_check(const struct calls *c, int n, const redisReply *r) {
    (void)c;
    check_array("gate", r, (size_t)n);
    for (int i = 0; i < n; i++) check_letter("gate", r->element[i], 'R');
}

void calls_settle_check(const struct calls *c, int n, const redisReply *r) {
    (void)c;
    check_array("settle", r, 2 * (size_t)n + 1);
    for (int i = 0; i < n; i++) check_letter("settle", r->element[2 * i], 'L');
}

/* --- before and after --------------------------------------------------------------------------------------------------------------- */

static void load(redisContext *redis, const struct lw_script *script, char sha[41]) {
    redisReply *r = tool_ask(redis, "SCRIPT LOAD %s", script->text);
    snprintf(sha, 41, "%s", r->str);
    freeReplyObject(r);
}

static int64_t redis_ms(redisContext *redis) {
    redisReply *r = tool_ask(redis, "TIME");
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2) tool_die("Redis: TIME answered nonsense");
    int64_t ms = strtoll(r->element[0]->str, NULL, 10) * 1000 + strtoll(r->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(r);
    return ms;
}

struct calls *calls_open(const struct calls_setup *setup, int64_t last) {
    struct calls *c = lw_alloc(sizeof *c);
    c->set = *setup;
    c->next_token = 1;
    c->payload = lw_alloc((size_t)setup->payload + 1);
    memset(c->payload, 'x', (size_t)setup->payload);
    redisContext *redis = setup->redis;
    load(redis, &lw_script_gate, c->gate);
    load(redis, &lw_script_settle, c->settle);
    freeReplyObject(tool_ask(redis, "DEL %s %s %s %s", TAG "lanes", TAG "floor", TAG "ready", TAG "dead"));
    for (int32_t p = 0; p < setup->partitions; p++)
        for (int64_t s = 0; s <= last / SEGMENT; s++)
            freeReplyObject(tool_ask(redis, "DEL " TAG "state:%s:%d:%lld " TAG "tries:%s:%d:%lld", setup->topic, (int)p, (long long)s,
                                     setup->topic, (int)p, (long long)s));
    freeReplyObject(tool_ask(redis, "HSET %s id %s not_before 0", TAG "epoch", EPOCH));
    c->redis_ahead_ms = redis_ms(redis) - lw_boot_ms();
    return c;
}

void calls_close(struct calls *c) {
    lw_commands_free(&c->commands);
    lw_buf_free(&c->envelope);
    free(c->payload);
    free(c);
}

/* A done message has one bit of its two set. */
int64_t calls_done(struct calls *c, int64_t last) {
    int64_t all = 0;
    for (int32_t p = 0; p < c->set.partitions; p++)
        for (int64_t s = 0; s <= last / SEGMENT; s++) {
            redisReply *r = tool_ask(c->set.redis, "BITCOUNT " TAG "state:%s:%d:%lld", c->set.topic, (int)p, (long long)s);
            all += r->integer;
            freeReplyObject(r);
        }
    return all;
}

int64_t calls_groups(const struct calls *c) { return c->groups; }
