/* SPDX-License-Identifier: Apache-2.0 */
/* Prints locks as text for people, and as JSON for programs. */
#include "cli/lock/lock.h"

#include "base/clock.h"
#include "lock/client.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *kind_of(const struct latchwork_lock_info *i, bool plain) {
    if (plain) return "plain";
    if (i->kind == LATCHWORK_KIND_READ) return "read";
    if (i->kind == LATCHWORK_KIND_WRITE) return "write";
    return i->kind == LATCHWORK_KIND_SEMAPHORE ? "semaphore" : "mutex";
}

struct lock_row lock_row_of(const struct latchwork_lock_info *i, int64_t now_ms, bool plain,
                            const char *tag, int shard) {
    struct lock_row r = {.key = {i->name, i->name_len},
                         .token = {i->token, i->token_len},
                         .holder = {i->label, i->label_len},
                         .kind = kind_of(i, plain),
                         .shard = shard,
                         .fence = i->fence,
                         .since_ms = i->since_ms,
                         .left_ms = i->left_ms,
                         .now_ms = now_ms,
                         .waiting = i->waiting};
    if (!tag) return r;
    /* length of the text that precedes the lane's key: the prefix and "lock:" */
    size_t n = strlen(tag) + 5;
    if (*tag && r.key.n >= n) r.key = lw_bytes(r.key.p + n, r.key.n - n);
    r.kind = "lane";
    if (lw_bytes_eq(r.token, lw_bytes_of("backoff"))) {
        r.kind = "backoff";
        r.fence = 0; /* a backoff's lock has the value "backoff:MS", which is no fence */
        return r;
    }
    /* a worker's token is HOST-PID-RANDOM.ACQUISITION; the holder is the part before the last
     * dot */
    const char *dot = r.holder.p ? NULL : memrchr(r.token.p, '.', r.token.n);
    if (dot && i->fence) r.holder = lw_bytes(r.token.p, (size_t)(dot - r.token.p));
    return r;
}

int64_t lock_redis_now_ms(struct latchwork_client *client) {
    struct lw_call call;
    struct latchwork_error ignored;
    lw_call_script(&call, NULL, 0);
    lw_call_text(&call, "TIME");
    redisReply *r = lw_client_call(client, &call, &ignored);
    int64_t now = lw_wall_ms();
    if (r && r->type == REDIS_REPLY_ARRAY && r->elements == 2)
        now = strtoll(r->element[0]->str, NULL, 10) * 1000 +
              strtoll(r->element[1]->str, NULL, 10) / 1000;
    if (r) freeReplyObject(r);
    return now;
}

const char *lock_text(struct lw_bytes b, char *out, size_t size) {
    size_t n = b.n < size - 1 ? b.n : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)b.p[i] < 0x20 || b.p[i] == 0x7f ? '?' : b.p[i];
    out[n] = '\0';
    return out;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *number_or_null(int64_t n, bool known) {
    return known ? json_integer(n) : json_null();
}

static void print(json_t *o) {
    char *text = json_dumps(o, JSON_COMPACT);
    puts(text ? text : "{}");
    free(text);
    json_decref(o);
}

void lock_print_json(const struct lock_row *r) {
    json_t *o = json_object();
    ops_set_bytes(o, "key", r->key);
    json_object_set_new(o, "kind", json_string(r->kind));
    if (r->shard >= 0) json_object_set_new(o, "shard", json_integer(r->shard));
    ops_set_bytes(o, "holder", r->holder);
    ops_set_bytes(o, "token", r->token);
    json_object_set_new(o, "fence", number_or_null((int64_t)r->fence, r->fence));
    json_object_set_new(o, "since_ms", number_or_null(r->since_ms, r->since_ms));
    json_object_set_new(o, "left_ms", number_or_null(r->left_ms, r->left_ms >= 0));
    json_object_set_new(o, "until_ms", number_or_null(r->now_ms + r->left_ms, r->left_ms >= 0));
    json_object_set_new(o, "waiting", json_integer(r->waiting));
    json_object_set_new(o, "held", json_true());
    if (r->paused) json_object_set_new(o, "paused", json_true());
    if (!strcmp(r->kind, "lane")) json_object_set_new(o, "running", ops_run_json(r->run));
    if (r->why && r->why->reason) json_object_set_new(o, "why", ops_why_json(r->why));
    print(o);
}

void lock_print_free(const char *key, int64_t waiting, bool paused, const struct ops_why *why) {
    json_t *o = json_object();
    ops_set_bytes(o, "key", lw_bytes_of(key));
    json_object_set_new(o, "held", json_false());
    json_object_set_new(o, "waiting", json_integer(waiting));
    if (paused) json_object_set_new(o, "paused", json_true());
    if (why && why->reason) json_object_set_new(o, "why", ops_why_json(why));
    print(o);
}

void lock_print_broken(const char *key, const char *kind, struct lw_bytes holder, uint64_t fence,
                       bool done) {
    json_t *o = json_object();
    ops_set_bytes(o, "key", lw_bytes_of(key));
    json_object_set_new(o, "kind", json_string(kind));
    ops_set_bytes(o, "holder", holder);
    json_object_set_new(o, "broken", json_boolean(done));
    json_object_set_new(o, "fence", number_or_null((int64_t)fence, fence));
    print(o);
}

/* --- columns ---------------------------------------------------------------------------------- */

static const char *span(int64_t ms, char *out, size_t size) {
    if (ms < 0) ms = 0;
    if (ms < 100000)
        snprintf(out, size, "%.1f s", (double)ms / 1000);
    else if (ms < 2 * 3600 * 1000)
        snprintf(out, size, "%" PRId64 " min", ms / 60000);
    else
        snprintf(out, size, "%" PRId64 " h", ms / 3600000);
    return out;
}

static const char *holder(const struct lock_row *r, char *out, size_t size) {
    if (r->holder.p) return lock_text(r->holder, out, size);
    if (!strcmp(r->kind, "backoff")) return "(backoff)";
    return r->token.n ? lock_text(r->token, out, size) : "?";
}

void lock_print_head(void) {
    printf("%-24s %-9s %-28s %8s %12s %17s %7s\n", "KEY", "KIND", "HOLDER", "SINCE", "UNTIL",
           "FENCE", "WAITING");
}

void lock_print_row(const struct lock_row *r) {
    char key[200], who[120], since[32] = "?", until[40], fence[24] = "-", left[32];
    if (r->since_ms) span(r->now_ms - r->since_ms, since, sizeof since);
    if (r->left_ms < 0)
        snprintf(until, sizeof until, "never");
    else
        snprintf(until, sizeof until, "in %s", span(r->left_ms, left, sizeof left));
    if (r->fence) snprintf(fence, sizeof fence, "%" PRIu64, r->fence);
    printf("%-24s %-9s %-28s %8s %12s %17s %7" PRId64 "%s\n", lock_text(r->key, key, sizeof key),
           r->kind, holder(r, who, sizeof who), since, until, fence, r->waiting,
           r->paused ? "  paused" : "");
}

static void print_time(const char *what, int64_t ms, int64_t distance_ms, const char *before,
                       const char *after) {
    char text[64], far[32];
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    if (!gmtime_r(&s, &tm)) return;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    printf("%-8s %s (%s%s%s)\n", what, text, before, span(distance_ms, far, sizeof far), after);
}

void lock_print_whole(const struct lock_row *r) {
    char key[600], who[200];
    printf("%-8s %s\n", "key", lock_text(r->key, key, sizeof key));
    printf("%-8s %s\n", "kind", r->kind);
    if (r->shard >= 0) printf("%-8s %d\n", "shard", r->shard);
    printf("%-8s %s\n", "holder", holder(r, who, sizeof who));
    if (r->since_ms) print_time("since", r->since_ms, r->now_ms - r->since_ms, "", " ago");
    if (r->left_ms >= 0)
        print_time("until", r->now_ms + r->left_ms, r->left_ms, "in ", ", unless renewed");
    else
        printf("%-8s never: it has no TTL; use --set-ttl MS to give it one\n", "until");
    if (r->fence) printf("%-8s %" PRIu64 "\n", "fence", r->fence);
    if (!strcmp(r->kind, "lane")) {
        struct lw_buf run = {0};
        ops_run_text(r->run, r->now_ms, &run);
        printf("%-8s %.*s\n", "runs", (int)run.n, run.p);
        lw_buf_free(&run);
    }
    printf("%-8s %" PRId64 "\n", "waiting", r->waiting);
    if (r->paused) printf("%-8s yes\n", "paused");
    if (r->why && r->why->reason) printf("%-8s %s\n", "why", r->why->text);
}

int lock_flush(const struct lock_args *a) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    lock_say(a, "cannot write to stdout");
    return LOCK_EXIT_FAILED;
}
