/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork queue stats`: one reading of sizes and rates as a page, or with
 * --watch a line per reading until a signal ends the process. */
#include "base/clock.h"
#include "ops/fleet.h"
#include "ops/queue/queue.h"
#include "ops/kafka.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum {
    TOP = 10,
    TOP_MAX = 1000,
    DEAD_LOOK = 10000,
    REASON_BYTES = 80,
    RATE_MS = 1000,
    LOG_MS = 2000, /* how long to wait for Kafka */
    SCREEN = 20,   /* lines of --watch below a heading */
};

struct top {
    struct lw_bytes name; /* name of a lane, an owned copy */
    int64_t n;
};
struct reason {
    UT_hash_handle hh;
    int64_t n;
    size_t len;
    char text[REASON_BYTES];
};
struct stats {
    int64_t lanes, waiting, held, backoff, paused, broken, dead, dead_looked, oldest_ms, workers;
    struct top top[TOP_MAX];
    size_t n_top, most;
    struct reason *reasons;
    /* `in` and `out` are rates in messages per second; `change` is the growth of the waiting lists
     * in messages per second */
    double in, out, change;
    bool knows_in;
    json_t *fleet; /* ops_fleet_json(); NULL: unknown, for the reason in no_fleet */
    struct lw_err no_fleet;
};

static void add_top(struct stats *s, struct lw_bytes name, int64_t n) {
    if (s->n_top == s->most && n <= s->top[s->n_top - 1].n) return;
    for (size_t i = 0; i < s->n_top; i++)
        if (lw_bytes_eq(s->top[i].name, name)) return;
    if (s->n_top == s->most) free((void *)(uintptr_t)s->top[--s->n_top].name.p);
    size_t at = s->n_top++;
    for (; at && s->top[at - 1].n < n; at--) s->top[at] = s->top[at - 1];
    s->top[at] = (struct top){lw_bytes(lw_memdup(name.p, name.n), name.n), n};
}

static int add_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct stats *s = ctx;
    struct lw_bytes worker;
    uint64_t fence;
    (void)o;
    s->paused += l->paused;
    if (l->n < 0) s->broken++;
    if (!l->has_head) return 0;
    s->lanes++;
    s->waiting += l->n;
    if (ops_lane_held(l, &worker, &fence))
        s->held++;
    else if (l->lock.n)
        s->backoff++;
    if (!s->oldest_ms || l->first_ms < s->oldest_ms) s->oldest_ms = l->first_ms;
    add_top(s, l->name, l->n);
    return 0;
}

static void add_reason(struct stats *s, const char *text, size_t n) {
    struct reason *r;
    if (n > REASON_BYTES) n = REASON_BYTES;
    HASH_FIND(hh, s->reasons, text, n, r);
    if (!r && HASH_COUNT(s->reasons) < 1000) {
        r = lw_alloc(sizeof *r);
        memcpy(r->text, text, n);
        r->len = n;
        HASH_ADD_KEYPTR(hh, s->reasons, r->text, n, r);
    }
    if (r) r->n++;
}

/* Counts the dead letters of a shard, and the reasons of the newest ones. */
static int look_at_dead(struct ops *o, struct ops_shard *sh, struct stats *s) {
    long long n;
    ops_begin(o, "XLEN"), ops_keys(o, sh, "dead");
    if (ops_ask_int(o, sh, &n)) return -1;
    s->dead += n;
    char before[64] = "+";
    int64_t size = OPS_PAGE_FIRST;
    for (int64_t left = DEAD_LOOK; left > 0; left -= size) {
        ops_begin(o, "XREVRANGE"), ops_keys(o, sh, "dead");
        ops_words(o, before, "-", "COUNT"), lw_arg_i64(&o->cmd, size);
        redisReply *r = ops_ask_entries(o, sh);
        if (!r) return -1;
        size_t k = r->elements, bytes = 0;
        for (size_t i = 0; i < k; i++) {
            const redisReply *f = r->element[i]->element[1];
            s->dead_looked++;
            for (size_t j = 0; j + 1 < f->elements; bytes += f->element[j + 1]->len, j += 2)
                if (strcmp(f->element[j]->str, "reason") == 0)
                    add_reason(s, f->element[j + 1]->str, f->element[j + 1]->len);
            snprintf(before, sizeof before, "(%s", r->element[i]->element[0]->str);
        }
        freeReplyObject(r);
        if ((int64_t)k < size) break;
        size = ops_page_size(size, bytes);
    }
    return 0;
}

static int by_count(struct reason *a, struct reason *b) {
    return a->n < b->n ? 1 : a->n > b->n ? -1 : 0;
}

/* Adds up the floors of all partitions, which are their committed offsets. Only the first shard is
 * asked, because every shard stores the floors of all partitions. */
static int floors(struct ops *o, int64_t *sum) {
    ops_begin(o, "HGETALL"), ops_keys(o, &o->shards[0], "floor");
    redisReply *r = ops_ask_for(o, &o->shards[0], REDIS_REPLY_ARRAY);
    if (!r) return -1;
    for (size_t i = 1; i < r->elements; i += 2) *sum += strtoll(r->element[i]->str, NULL, 10);
    freeReplyObject(r);
    return 0;
}

static int waiting_now(struct ops *o, const struct ops_lane *l, void *ctx) {
    (void)o;
    *(int64_t *)ctx += l->n > 0 ? l->n : 0;
    return 0;
}

/* Holds the counts of one reading. A rate is computed from the difference of two readings. */
struct counts {
    int64_t at_ms, committed;
    int64_t produced; /* number of records that Kafka received; -1: Kafka does not answer */
};

static int count(struct ops *o, struct ops_log *log, struct counts *c) {
    *c = (struct counts){.produced = -1};
    if (floors(o, &c->committed)) return -1;
    if (log && ops_log_ends(log, &c->produced)) c->produced = -1;
    c->at_ms = lw_boot_ms();
    return 0;
}

/* Computes the rates `in` (records that Kafka received), `out` (records that were committed), and
 * `change` (growth of the waiting lists). If Kafka does not answer, only `in` is unknown. */
static int rates(struct ops *o, struct stats *s) {
    struct counts before, after;
    struct lw_err redis = o->err;
    int64_t walked_ms = lw_boot_ms();
    struct ops_log *log = ops_log_open(o, o->c->kafka.topics, o->c->kafka.n_topics, LOG_MS);
    int bad = count(o, log, &before);
    int64_t over_ms = o->args.watch_s ? o->args.watch_s * 1000 : o->args.over_ms;
    if (!bad) lw_sleep_ms(over_ms ? over_ms : RATE_MS);
    if (!bad) bad = count(o, log, &after);
    int64_t waiting = 0;
    if (!bad) bad = ops_each_lane(o, waiting_now, &waiting) < 0;
    /* `walked` is the time in seconds between the two counts of the waiting messages: the one in
     * s->waiting, which ended before this function was called, and the one in `waiting`. */
    double walked = (double)(lw_boot_ms() - walked_ms) / 1000;
    ops_log_close(log);
    if (bad) return -1;
    o->err = redis; /* failures of Kafka are not fatal, so the earlier error text is restored */
    double seconds = (double)(after.at_ms - before.at_ms) / 1000;
    s->knows_in = before.produced >= 0 && after.produced >= 0;
    s->in = (double)(after.produced - before.produced) / seconds;
    s->out = (double)(after.committed - before.committed) / seconds;
    s->change = (double)(waiting - s->waiting) / walked;
    return 0;
}

static void put_text(struct ops_table *t, const json_t *v) {
    bool is = json_is_string(v);
    ops_cell_bytes(t, is ? lw_bytes_of(json_string_value(v)) : lw_bytes_of("?"), 40);
}

static void put_number(struct ops_table *t, const json_t *v) {
    if (json_is_number(v))
        ops_cell(t, "%.0f", json_number_value(v));
    else
        ops_cell(t, "?");
}

static void print_supervisors(const json_t *fleet) {
    static const struct ops_column columns[] = {
        {"HOST", false}, {"PROCESS", true},    {"STATE", false},
        {"READY", true}, {"WORKERS", true},    {"PARTITIONS", true},
        {"LAG", true},   {"FINISHED/S", true}, {"VERSION", false},
    };
    static const char *const figures[] = {"ready", "workers", "partitions", "lag", "per_second"};
    struct ops_table t = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(fleet, "supervisors"), i, row) {
        const char *state = json_string_value(json_object_get(row, "state"));
        json_int_t ago = json_integer_value(json_object_get(row, "heard_ms_ago"));
        char age[16];
        put_text(&t, json_object_get(row, "host"));
        put_number(&t, json_object_get(row, "pid"));
        if (strcmp(state, "silent") == 0)
            ops_cell(&t, "silent for %s", ops_age(ago, age));
        else
            ops_cell(&t, "%s", state);
        for (size_t k = 0; k < sizeof figures / sizeof *figures; k++)
            put_number(&t, json_object_get(row, figures[k]));
        put_text(&t, json_object_get(row, "version"));
    }
    puts("\nsupervisors of the fleet");
    ops_table_print(&t);
}

static json_int_t sum_of(const json_t *fleet, const char *name) {
    return json_integer_value(json_object_get(json_object_get(fleet, "sums"), name));
}

/* Prints the line about supervisors. None of them is not the same as unknown. */
static void print_fleet(const struct stats *s) {
    static const char *const states[] = {"silent", "unknown"};
    if (!s->fleet) {
        printf("fleet      unknown: %s\n", s->no_fleet.text);
        return;
    }
    int64_t all = sum_of(s->fleet, "supervisors");
    printf("fleet      %" PRId64 " supervisor%s, %" PRId64 " up", all, all == 1 ? "" : "s",
           (int64_t)sum_of(s->fleet, "up"));
    for (int i = 0; i < 2; i++) {
        json_int_t n = sum_of(s->fleet, states[i]);
        if (n) printf(", %" PRId64 " %s", (int64_t)n, states[i]);
    }
    puts("");
}

static void print(const struct stats *s) {
    char age[16];
    int64_t old = s->oldest_ms ? lw_wall_ms() - s->oldest_ms : -1;
    struct lw_buf text = {0};
    printf("lanes      %" PRId64 " with waiters: %" PRId64 " held, %" PRId64 " in backoff; %" PRId64
           " paused\n",
           s->lanes, s->held, s->backoff, s->paused);
    if (s->broken)
        printf("broken     %" PRId64 " whose Redis name holds another type\n", s->broken);
    printf("waiting    %" PRId64 ", the oldest for %s; %+.0f per second\n", s->waiting,
           ops_age(old, age), s->change);
    if (s->knows_in)
        printf("in         %.0f per second, produced to the topics\n", s->in);
    else
        puts("in         unknown: Kafka does not answer");
    printf("out        %.0f per second, committed\n", s->out);
    print_fleet(s);
    printf("workers    %" PRId64 "\n", s->workers);
    printf("dead       %" PRId64 "\n", s->dead);
    if (s->fleet && sum_of(s->fleet, "supervisors")) print_supervisors(s->fleet);
    if (s->n_top) puts("\ntop keys, by waiting messages");
    for (size_t i = 0; i < s->n_top; i++) {
        text.n = 0;
        ops_text(&text, s->top[i].name, 80);
        printf("%8" PRId64 "  %.*s\n", s->top[i].n, (int)text.n, text.p ? text.p : "");
    }
    if (s->reasons)
        printf("\ntop reasons of dead letters%s\n",
               s->dead_looked < s->dead ? ", of the newest 10,000 per shard" : "");
    size_t i = 0;
    for (const struct reason *r = s->reasons; r && i < s->most; r = r->hh.next, i++) {
        text.n = 0;
        ops_text(&text, lw_bytes(r->text, r->len), REASON_BYTES);
        printf("%8" PRId64 "  %.*s\n", r->n, (int)text.n, text.p ? text.p : "");
    }
    lw_buf_free(&text);
}

static void print_json(const struct stats *s) {
    json_t *keys = json_array(), *reasons = json_array();
    for (size_t i = 0; i < s->n_top; i++) {
        json_t *j = json_object();
        ops_set_bytes(j, "key", s->top[i].name);
        json_object_set_new(j, "waiting", json_integer(s->top[i].n));
        json_array_append_new(keys, j);
    }
    size_t i = 0;
    for (const struct reason *r = s->reasons; r && i < s->most; r = r->hh.next, i++) {
        json_t *j = json_object();
        ops_set_bytes(j, "reason", lw_bytes(r->text, r->len));
        json_object_set_new(j, "dead", json_integer(r->n));
        json_array_append_new(reasons, j);
    }
    ops_put_json(json_pack(
        "{sI sI sI sI sI sI sI sI sI so sf sf so so sO?}", "lanes", (json_int_t)s->lanes, "held",
        (json_int_t)s->held, "backoff", (json_int_t)s->backoff, "paused", (json_int_t)s->paused,
        "broken", (json_int_t)s->broken, "waiting", (json_int_t)s->waiting, "oldest_age_ms",
        (json_int_t)(s->oldest_ms ? lw_wall_ms() - s->oldest_ms : -1), "workers",
        (json_int_t)s->workers, "dead", (json_int_t)s->dead, "in_per_second",
        s->knows_in ? json_real(s->in) : json_null(), "out_per_second", s->out,
        "waiting_change_per_second", s->change, "top_keys", keys, "top_reasons", reasons, "fleet",
        s->fleet));
}

static int count_workers(struct ops *o, struct stats *s) {
    long long n;
    ops_begin(o, "ZCOUNT"), ops_keys(o, &o->shards[0], "workers");
    lw_arg_i64(&o->cmd, lw_wall_ms() - 2 * o->c->lock.ttl_ms), lw_arg_text(&o->cmd, "+inf");
    if (ops_ask_int(o, &o->shards[0], &n)) return -1;
    s->workers = n;
    return 0;
}

/* Reads the heartbeats of the supervisors. If that fails, only they are unknown. */
static void read_fleet(struct ops *o, struct stats *s) {
    struct lw_bytes none = lw_bytes("", 0);
    char host[OPS_FLEET_NAME + 1];
    struct ops_fleet_reader by = {.id = "", .host = host};
    struct lw_err before = o->err;
    ops_fleet_host(host);
    ops_script(o, &lw_op_fleet, 1), ops_keys(o, &o->shards[0], "fleet");
    ops_fleet_args(&o->cmd, "", none, OPS_FLEET_BEATS, none);
    redisReply *r = ops_ask(o, &o->shards[0]);
    if (r && ops_fleet_now(r, &o->err) >= 0) s->fleet = ops_fleet_json(r, &by);
    if (!s->fleet) s->no_fleet = o->err;
    o->err = before;
    freeReplyObject(r);
}

static int look(struct ops *o, struct stats *s) {
    s->most = o->args.limit > 0 ? (size_t)o->args.limit : TOP;
    if (s->most > TOP_MAX) s->most = TOP_MAX;
    int bad = ops_each_lane(o, add_lane, s) < 0;
    if (!bad) bad = rates(o, s) || count_workers(o, s);
    for (int i = 0; !bad && i < o->c->redis.shards; i++)
        bad = look_at_dead(o, &o->shards[i], s) != 0;
    if (!bad) read_fleet(o, s);
    HASH_SORT(s->reasons, by_count);
    return bad;
}

static void forget(struct stats *s) {
    struct reason *r, *tmp;
    HASH_ITER(hh, s->reasons, r, tmp) {
        HASH_DEL(s->reasons, r);
        free(r);
    }
    while (s->n_top) free((void *)(uintptr_t)s->top[--s->n_top].name.p);
    json_decref(s->fleet);
    *s = (struct stats){0};
}

/* Prints a reading as a line below its heading, which stands above each screen of lines. */
static void print_line(const struct stats *s, int64_t line) {
    struct lw_buf key = {0};
    char age[16], in[16] = "?";
    if (line % SCREEN == 0)
        puts("  lanes    held backoff  paused   waiting change/s  oldest      in/s     out/s "
             "workers    dead  top key");
    if (s->knows_in) snprintf(in, sizeof in, "%.0f", s->in);
    if (s->n_top) ops_text(&key, s->top[0].name, 40);
    printf("%7" PRId64 " %7" PRId64 " %7" PRId64 " %7" PRId64 " %9" PRId64
           " %+8.0f %7s %9s %9.0f %7" PRId64 " %7" PRId64 "  %.*s\n",
           s->lanes, s->held, s->backoff, s->paused, s->waiting, s->change,
           ops_age(s->oldest_ms ? lw_wall_ms() - s->oldest_ms : -1, age), in, s->out, s->workers,
           s->dead, (int)key.n, key.p ? key.p : "");
    lw_buf_free(&key);
}

/* Reads again and again. While Redis does not answer, that is said instead of figures. */
static int watch(struct ops *o) {
    static struct stats s;
    for (int64_t line = 0; !ferror(stdout);) {
        if ((o->shards || ops_connect(o) == 0) && look(o, &s) == 0) {
            if (o->args.json)
                print_json(&s);
            else
                print_line(&s, line++);
        } else {
            fprintf(stderr, "latchwork queue stats: %s\n", o->err.text);
            o->err = (struct lw_err){0};
            ops_disconnect(o);
            lw_sleep_ms(o->args.watch_s * 1000);
        }
        forget(&s);
        fflush(stdout);
    }
    return OPS_FAILED;
}

int queue_stats(struct ops *o) {
    static struct stats s;
    if (o->args.watch_s) return watch(o);
    int bad = look(o, &s);
    if (!bad && o->args.json) print_json(&s);
    if (!bad && !o->args.json) print(&s);
    forget(&s);
    return bad ? OPS_FAILED : 0;
}
