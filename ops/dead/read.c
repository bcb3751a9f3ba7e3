/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the streams of dead letters, and then the topic, if dead.to is one. */
#include "ops/dead/dead.h"

#include <stdlib.h>
#include <string.h>

static struct lw_bytes bytes(const redisReply *r) { return lw_bytes(r->str, r->len); }

static void take_field(struct ops_message *m, const redisReply *name, const redisReply *value) {
    static const struct {
        const char *name;
        size_t at;
        bool is_number;
    } fields[] = {
        {"reason", offsetof(struct ops_message, reason), false},
        {"original", offsetof(struct ops_message, original), false},
        {"edited_by", offsetof(struct ops_message, edited_by), false},
        {"edited_ms", offsetof(struct ops_message, edited_ms), true},
        {"attempts", offsetof(struct ops_message, attempts), true},
        {"first_ms", offsetof(struct ops_message, first_ms), true},
        {"last_ms", offsetof(struct ops_message, last_ms), true},
        {"envelope", offsetof(struct ops_message, raw), false},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].name, name->str) != 0) continue;
        char *to = (char *)m + fields[i].at;
        if (fields[i].is_number)
            *(int64_t *)(void *)to = strtoll(value->str, NULL, 10);
        else
            *(struct lw_bytes *)(void *)to = bytes(value);
    }
}

static int tell(struct ops *o, struct ops_shard *sh, const redisReply *entry, ops_message_fn *fn,
                void *ctx) {
    struct ops_message m = {.shard = sh->index, .reason = lw_bytes("", 0), .raw = lw_bytes("", 0)};
    const redisReply *f = entry->element[1];
    snprintf(m.id, sizeof m.id, "%d:%s", sh->index, entry->element[0]->str);
    for (size_t i = 0; i + 1 < f->elements; i += 2)
        take_field(&m, f->element[i], f->element[i + 1]);
    ops_message_read(&m, m.raw);
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane;
    struct lw_err err = {0};
    if (!m.bad && ops_lane_of(o, &m.e, &scratch, &key, &lane, &err) == 0) m.lane = lane;
    int stop = ops_message_matches(o, &m) ? fn(o, &m, ctx) : 0;
    ops_message_clear(&m);
    lw_buf_free(&scratch);
    return stop;
}

/* Writes the ID of the shard's newest dead letter to `out`. A command reads dead letters only up to
 * this ID, so it leaves out dead letters that are added later. Otherwise a replay that fails again
 * would be replayed forever. */
static int last_id(struct ops *o, struct ops_shard *sh, char out[64]) {
    ops_begin(o, "XREVRANGE"), ops_keys(o, sh, "dead");
    ops_words(o, "+", "-", "COUNT"), lw_arg_i64(&o->cmd, 1);
    redisReply *r = ops_ask_entries(o, sh);
    if (!r) return -1;
    out[0] = 0;
    if (r->elements == 1) snprintf(out, 64, "%s", r->element[0]->element[0]->str);
    freeReplyObject(r);
    return 0;
}

static size_t reply_bytes(const redisReply *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *f = r->element[i]->element[1];
        for (size_t k = 0; k < f->elements; k++) n += f->element[k]->len;
    }
    return n;
}

static int each_of(struct ops *o, struct ops_shard *sh, ops_message_fn *fn, void *ctx) {
    char from[80] = "-", last[64];
    int stop = last_id(o, sh, last);
    int64_t size = OPS_PAGE_FIRST;
    for (bool more = !stop && last[0]; more && !stop;) {
        if (ops_tick(o)) return -1;
        ops_begin(o, "XRANGE"), ops_keys(o, sh, "dead");
        ops_words(o, from, last, "COUNT"), lw_arg_i64(&o->cmd, size);
        redisReply *r = ops_ask_entries(o, sh);
        if (!r) return -1;
        for (size_t i = 0; i < r->elements && !stop; i++) {
            const redisReply *e = r->element[i];
            snprintf(from, sizeof from, "(%s", e->element[0]->str);
            o->scanned++;
            stop = tell(o, sh, e, fn, ctx);
        }
        more = (int64_t)r->elements == size;
        size = ops_page_size(size, reply_bytes(r));
        freeReplyObject(r);
    }
    return stop;
}

/* Returns true if the word has the form in which `dead ls` shows the ID of a dead letter, such as
 * "0:1700000000000-0". */
static bool is_id(const char *word, int *shard) {
    char *end;
    long s = strtol(word, &end, 10);
    *shard = (int)s;
    if (end == word || *end != ':' || s < 0 || s > INT16_MAX) return false;
    const char *id = end + 1;
    return *id && id[strspn(id, "0123456789-")] == 0;
}

/* Reads a single dead letter by its ID. */
static int one(struct ops *o, const char *word, int shard, ops_message_fn *fn, void *ctx) {
    struct ops_shard *sh = &o->shards[shard];
    const char *id = strchr(word, ':') + 1;
    ops_begin(o, "XRANGE"), ops_keys(o, sh, "dead");
    ops_words(o, id, id);
    redisReply *r = ops_ask_entries(o, sh);
    if (!r) return -1;
    int stop = r->elements ? tell(o, sh, r->element[0], fn, ctx) : 0;
    freeReplyObject(r);
    return stop;
}

static int count_all(struct ops *o) {
    for (int s = 0; s < o->c->redis.shards; s++) {
        long long n;
        ops_begin(o, "XLEN"), ops_keys(o, &o->shards[s], "dead");
        if (ops_ask_int(o, &o->shards[s], &n)) return -1;
        o->to_scan += n;
    }
    return 0;
}

int dead_each(struct ops *o, ops_message_fn *fn, void *ctx) {
    int stop = 0, shard, n_ids = 0, n = o->args.n_words;
    int32_t partition;
    int64_t offset;
    for (int i = 0; i < n; i++)
        n_ids += (is_id(o->args.words[i], &shard) && shard < o->c->redis.shards) ||
                 dead_id_in_topic(o, o->args.words[i], &partition, &offset);
    if (!n_ids || n_ids < n) {
        stop = dead_each_in_redis(o, fn, ctx);
        return stop || !o->c->dead.topic ? stop : dead_each_in_topic(o, fn, ctx);
    }
    o->to_scan = n_ids;
    for (int i = 0; i < n && !stop; i++) {
        const char *word = o->args.words[i];
        if (is_id(word, &shard))
            stop = one(o, word, shard, fn, ctx), o->scanned++;
        else
            stop = dead_one_in_topic(o, word, fn, ctx);
    }
    return stop;
}

int dead_each_in_redis(struct ops *o, ops_message_fn *fn, void *ctx) {
    int stop = 0;
    if (count_all(o)) return -1;
    for (int s = 0; s < o->c->redis.shards && !stop; s++) stop = each_of(o, &o->shards[s], fn, ctx);
    return stop;
}

int dead_tell(struct ops *o, struct ops_shard *sh, const redisReply *entry, ops_message_fn *fn,
              void *ctx) {
    return tell(o, sh, entry, fn, ctx);
}
