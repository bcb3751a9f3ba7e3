/* SPDX-License-Identifier: Apache-2.0 */
/* Returns the metrics as JSON for programs, and finds out whether workers are alive and ready. */
#include "monitor/metrics.h"

#include "base/clock.h"
#include "kafka/source.h"

#include <inttypes.h>
#include <stddef.h>

/* A worker whose main loop has not turned for STILL_MS is not alive. A worker that joins a consumer
 * group may stand still for a minute, so STILL_MS is longer than that. STILL_MS is shorter than the
 * time after which the supervisor kills a worker that stands still, which is at least 90 s. */
enum { STILL_MS = 75000, TICK_MS = 15000, SERVED_MS = 10000 };

/* A watermark that has stood still for BLOCKED_MS is told as a trouble. */
enum { BLOCKED_MS = 60000 };

static const struct {
    const char *name;
    size_t at;
} counters[] = {
#define ROW(field) {#field, offsetof(struct lw_counts, field)},
    LW_API_COUNTERS(ROW)
#undef ROW
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static json_int_t count_of(const struct lw_board_worker *w, size_t at) {
    const char *base = (const char *)&w->counts;
    return (json_int_t)atomic_load_explicit((_Atomic uint64_t *)(void *)(uintptr_t)(base + at),
                                            memory_order_relaxed);
}

json_t *lw_metrics_counters(const struct lw_metrics_source *m) {
    json_t *all = json_object();
    for (int k = 0; k < COUNTERS; k++) {
        json_int_t n = 0;
        for (int i = 0; i < m->board->n_workers; i++)
            n += count_of(&m->board->workers[i], counters[k].at);
        json_object_set_new(all, counters[k].name, json_integer(n));
    }
    return all;
}

static const char *state_of(const struct lw_board_worker *w) {
    return !atomic_load(&w->pid) ? "down" : atomic_load(&w->ready) ? "ready" : "starting";
}

static const char *kafka_of(const struct lw_board_worker *w) {
    uint32_t state = atomic_load(&w->kafka);
    return atomic_load(&w->pid) && state && state <= LW_KAFKA_STATES
               ? lw_kafka_state_name[state - 1]
               : NULL;
}

json_t *lw_metrics_workers(const struct lw_metrics_source *m) {
    json_t *list = json_array();
    for (int i = 0; i < m->board->n_workers; i++) {
        const struct lw_board_worker *w = &m->board->workers[i];
        int64_t beat = atomic_load(&w->heartbeat_ms);
        json_t *counts = json_object();
        char why[sizeof w->why.text];
        lw_note_get(&w->why, why, sizeof why);
        for (int k = 0; k < COUNTERS; k++)
            json_object_set_new(counts, counters[k].name,
                                json_integer(count_of(w, counters[k].at)));
        json_array_append_new(
            list, json_pack("{s:i,s:i,s:s,s:s?,s:s,s:I,s:o,s:I,s:I,s:o}", "worker", i, "pid",
                            (int)atomic_load(&w->pid), "state", state_of(w), "kafka", kafka_of(w),
                            "why", why, "starts", (json_int_t)atomic_load(&w->starts),
                            "turned_ms_ago", beat ? json_integer(m->now_ms - beat) : json_null(),
                            "waiting", (json_int_t)atomic_load(&w->waiting), "in_handler",
                            (json_int_t)atomic_load(&w->in_handler), "counts", counts));
    }
    return list;
}

/* Returns the identity of the message that holds the commit of a partition back: the watermark
 * stands before it. */
static json_t *blocker_of(const struct lw_board_partition *p) {
    return json_sprintf("%s/%d/%" PRId64, p->topic, (int)p->partition,
                        (int64_t)atomic_load(&p->watermark));
}

/* The parts of a partition's lag, which is unread + unfinished + behind. */
struct lag {
    int64_t all, unread;
    /* finished, but not committed: most of them stand behind an unfinished message */
    int64_t behind;
};

static struct lag lag_of(const struct lw_board_partition *p) {
    int64_t committed = atomic_load(&p->committed), watermark = atomic_load(&p->watermark);
    int64_t unfinished = atomic_load(&p->unfinished);
    struct lag l = {.all = atomic_load(&p->log_end) - committed};
    l.behind = atomic_load(&p->records) - unfinished + (watermark - committed);
    if (l.all < 0) l.all = 0;
    if (l.behind < 0) l.behind = 0;
    /* the numbers are read one after the other, while the worker changes them */
    if (l.behind > l.all - unfinished) l.behind = l.all > unfinished ? l.all - unfinished : 0;
    l.unread = l.all > unfinished + l.behind ? l.all - unfinished - l.behind : 0;
    return l;
}

json_t *lw_metrics_partitions(const struct lw_metrics_source *m) {
    json_t *list = json_array();
    const struct lw_board_partition *p;
    for (int at = 0; (p = lw_board_next(m->board, &at));) {
        int owner = atomic_load(&p->owner);
        /* the worker gave the partition up while this function read its entry */
        if (!owner) continue;
        bool stands = atomic_load(&p->unfinished) > 0;
        struct lag lag = lag_of(p);
        json_array_append_new(
            list, json_pack("{s:s,s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:I,s:I}", "topic", p->topic,
                            "partition", (int)p->partition, "worker", owner - 1, "committed",
                            (json_int_t)atomic_load(&p->committed), "watermark",
                            (json_int_t)atomic_load(&p->watermark), "log_end",
                            (json_int_t)atomic_load(&p->log_end), "unfinished",
                            (json_int_t)atomic_load(&p->unfinished), "waiting",
                            (json_int_t)atomic_load(&p->waiting), "blocked_ms",
                            (json_int_t)(stands ? m->now_ms - atomic_load(&p->moved_ms) : 0),
                            "blocked_by", stands ? blocker_of(p) : json_null(), "unread",
                            (json_int_t)lag.unread, "behind", (json_int_t)lag.behind));
    }
    return list;
}

struct sums {
    int64_t partitions, lag, unread, behind, unfinished, waiting, in_handler, ready;
};

static struct sums add_up(const struct lw_metrics_source *m) {
    struct sums s = {0};
    for (int i = 0; i < m->board->n_workers; i++) {
        const struct lw_board_worker *w = &m->board->workers[i];
        s.ready += atomic_load(&w->pid) && atomic_load(&w->ready);
        s.waiting += (int64_t)atomic_load(&w->waiting);
        s.in_handler += (int64_t)atomic_load(&w->in_handler);
    }
    const struct lw_board_partition *p;
    for (int at = 0; (p = lw_board_next(m->board, &at));) {
        struct lag lag = lag_of(p);
        s.partitions++;
        s.lag += lag.all, s.unread += lag.unread, s.behind += lag.behind;
        s.unfinished += atomic_load(&p->unfinished);
    }
    return s;
}

static json_t *shards_json(const struct lw_metrics_source *m) {
    json_t *list = json_array();
    for (int i = 0; i < m->config->redis.shards; i++) {
        const struct lw_shard_look *s = &m->shards[i];
        json_array_append_new(list, json_pack("{s:i,s:b,s:I,s:I,s:I,s:I,s:I}", "shard", i, "up",
                                              (int)s->up, "lanes", (json_int_t)s->lanes, "ready",
                                              (json_int_t)s->ready, "dead", (json_int_t)s->dead,
                                              "paused", (json_int_t)s->paused, "oldest_ms",
                                              (json_int_t)s->oldest_ms));
    }
    return list;
}

json_t *lw_metrics_stats(const struct lw_metrics_source *m) {
    struct sums s = add_up(m);
    return json_pack(
        "{s:s,s:s,s:I,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "name", m->config->name,
        "version", LW_VERSION, "started_ms", (json_int_t)atomic_load(&m->board->started_wall_ms),
        "workers", (int)m->board->n_wanted, "ready", (json_int_t)s.ready, "partitions",
        (json_int_t)s.partitions, "lag", (json_int_t)s.lag, "unread", (json_int_t)s.unread,
        "behind", (json_int_t)s.behind, "unfinished", (json_int_t)s.unfinished, "waiting",
        (json_int_t)s.waiting, "in_handler", (json_int_t)s.in_handler, "counters",
        lw_metrics_counters(m), "shards", shards_json(m));
}

bool lw_metrics_alive(const struct lw_metrics_source *m, struct lw_buf *why) {
    size_t before = why->n;
    int64_t tick = atomic_load(&m->board->ticked_ms);
    if (tick && m->now_ms - tick > TICK_MS)
        lw_buf_addf(why, "the supervisor stands still for %" PRId64 " ms\n", m->now_ms - tick);
    for (int i = 0; i < m->board->n_workers; i++) {
        const struct lw_board_worker *w = &m->board->workers[i];
        int64_t beat = atomic_load(&w->heartbeat_ms);
        if (atomic_load(&w->pid) && beat && m->now_ms - beat > STILL_MS)
            lw_buf_addf(why, "worker %d: its main loop stands still for %" PRId64 " ms\n", i,
                        m->now_ms - beat);
    }
    return why->n == before;
}

static void say_ago(struct lw_buf *out, int64_t ms) {
    if (ms < 120 * 1000)
        lw_buf_addf(out, "%" PRId64 " s", ms / 1000);
    else
        lw_buf_addf(out, "%" PRId64 " min", ms / 60000);
}

/* Writes that a shard does not answer, or nothing. */
static void say_down(const struct lw_metrics_source *m, int shard, struct lw_buf *why) {
    int64_t down_ms = m->shards[shard].down_ms;
    if (m->shards[shard].up || !down_ms) return;
    lw_buf_addf(why, "Redis shard %d does not answer for ", shard);
    say_ago(why, m->now_ms - down_ms);
}

/* Writes why a worker is not ready, or nothing. Checks the age of the worker's row on the board
 * first, because the row may be outdated: the worker writes it in each turn, and a rebalance or an
 * unreachable broker may delay the next turn. */
static void say_unready(const struct lw_metrics_source *m, int worker, struct lw_buf *why) {
    const struct lw_board_worker *w = &m->board->workers[worker];
    char text[sizeof w->why.text];
    int64_t beat = atomic_load(&w->heartbeat_ms);
    bool up = atomic_load(&w->pid), still = beat && m->now_ms - beat > SERVED_MS;
    if (up && !still && atomic_load(&w->ready)) return;
    if (up && still)
        lw_buf_addf(why,
                    "worker %d: no main-loop turn for %" PRId64
                    " ms: it waits for Kafka in a rebalance, or hangs",
                    worker, m->now_ms - beat);
    else if (up && lw_note_get(&w->why, text, sizeof text) && text[0])
        lw_buf_addf(why, "worker %d is not ready: %s", worker, text);
    else
        lw_buf_addf(why, "worker %d is %s", worker, state_of(w));
}

/* Ends a line, if something was written since `at`. */
static void end_line(struct lw_buf *out, size_t at) {
    if (out->n > at) lw_buf_addf(out, "\n");
}

bool lw_metrics_ready(const struct lw_metrics_source *m, struct lw_buf *why) {
    size_t before = why->n, at;
    for (int i = 0; i < m->board->n_wanted; i++) {
        at = why->n;
        say_unready(m, i, why);
        end_line(why, at);
    }
    bool ready = why->n == before;
    for (int i = 0; !ready && i < m->config->redis.shards; i++) {
        at = why->n;
        say_down(m, i, why);
        end_line(why, at);
    }
    return ready;
}

/* --- what is wrong ---------------------------------------------------------------------------- */

static json_t *add_trouble(json_t *list, struct lw_buf *text, const char *link) {
    json_t *one = NULL;
    if (text->n) {
        one = json_pack("{s:s%,s:s}", "text", text->p, text->n, "link", link);
        json_array_append_new(list, one);
    }
    lw_buf_free(text);
    return one;
}

/* Adds the partition whose watermark has stood still for longest, if that is long. */
static void add_blocked(const struct lw_metrics_source *m, json_t *list) {
    const struct lw_board_partition *p, *worst = NULL;
    int64_t most_ms = BLOCKED_MS;
    for (int at = 0; (p = lw_board_next(m->board, &at));) {
        int64_t ms = atomic_load(&p->unfinished) > 0 ? m->now_ms - atomic_load(&p->moved_ms) : 0;
        if (ms < most_ms) continue;
        most_ms = ms;
        worst = p;
    }
    if (!worst) return;
    struct lw_buf text = {0}, link = {0};
    lw_buf_addf(&text, "partition %s/%d is blocked for ", worst->topic, (int)worst->partition);
    say_ago(&text, most_ms);
    json_t *by = blocker_of(worst);
    /* the parts of an identity need no quoting but the slashes */
    lw_buf_addf(&link, "/message/%s%%2F%d%%2F%" PRId64, worst->topic, (int)worst->partition,
                atomic_load(&worst->watermark));
    lw_buf_add(&link, "", 1);
    json_object_set_new(add_trouble(list, &text, link.p), "identity", by);
    lw_buf_free(&link);
}

static bool has_state(const json_t *supervisor, const char *state) {
    return !strcmp(json_string_value(json_object_get(supervisor, "state")), state);
}

/* Returns true if a supervisor of the same host is up that has started since the last heartbeat of
 * the silent one: it was restarted, and is not wrong any more. */
static bool was_restarted(const json_t *supervisors, const json_t *silent) {
    const json_t *other, *host = json_object_get(silent, "host");
    json_int_t heard_ms =
        lw_wall_ms() - json_integer_value(json_object_get(silent, "heard_ms_ago"));
    size_t i;
    json_array_foreach(supervisors, i, other)
        if (json_is_string(host) && has_state(other, "up") &&
            json_equal(json_object_get(other, "host"), host) &&
            json_integer_value(json_object_get(other, "started_ms")) > heard_ms)
            return true;
    return false;
}

/* Adds the supervisors of the fleet that are silent. */
static void add_silent(const json_t *fleet, json_t *list) {
    const json_t *supervisors = json_object_get(fleet, "supervisors"), *s;
    struct lw_buf text = {0};
    size_t i;
    json_array_foreach(supervisors, i, s) {
        const json_t *host = json_object_get(s, "host"), *pid = json_object_get(s, "pid");
        if (!has_state(s, "silent") || was_restarted(supervisors, s)) continue;
        lw_buf_addf(&text, "supervisor");
        if (json_is_string(host)) lw_buf_addf(&text, " %s", json_string_value(host));
        if (json_is_integer(pid))
            lw_buf_addf(&text, " (process %" JSON_INTEGER_FORMAT ")", json_integer_value(pid));
        lw_buf_addf(&text, " is silent for ");
        say_ago(&text, json_integer_value(json_object_get(s, "heard_ms_ago")));
        add_trouble(list, &text, "/overview");
    }
}

json_t *lw_metrics_troubles(const struct lw_metrics_source *m, const json_t *fleet, int64_t died) {
    json_t *list = json_array();
    struct lw_buf text = {0};
    for (int i = 0; i < m->config->redis.shards; i++) {
        say_down(m, i, &text);
        add_trouble(list, &text, "/overview");
    }
    for (int i = 0; i < m->board->n_wanted; i++) {
        say_unready(m, i, &text);
        add_trouble(list, &text, "/workers");
    }
    add_blocked(m, list);
    add_silent(fleet, list);
    if (died > 0)
        lw_buf_addf(&text, "%" PRId64 " dead letter%s in the last minute", died,
                    died == 1 ? "" : "s");
    add_trouble(list, &text, "/dead?order=newest");
    return list;
}
