/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/metrics.h"
#include "kafka/source.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const struct lw_hist_bounds lw_bounds_handler = {18,
                                                 {100, 250, 500, 1000, 2500, 5000, 10000, 25000,
                                                  50000, 100000, 250000, 500000, 1000000, 2500000,
                                                  5000000, 10000000, 30000000, 60000000}};
const struct lw_hist_bounds lw_bounds_end_to_end = {
    18,
    {1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000,
     10000000, 30000000, 60000000, 300000000, 900000000, 3600000000}};
const struct lw_hist_bounds lw_bounds_redis = {16,
                                               {50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000,
                                                50000, 100000, 250000, 500000, 1000000, 2500000,
                                                5000000}};

/* --- how a row becomes lines ------------------------------------------------------------------ */

struct metric;
struct writing {
    const struct lw_metrics_source *m;
    struct lw_buf *out;
    const struct metric *row;
};

struct series {
    /* `value` is the value of the row's label; NULL: end of the list, or a metric without labels */
    const char *value;
    size_t at; /* offset of the counter in struct lw_counts */
};

struct metric {
    /* `name` is the metric's name without the prefix "latchwork_"; `type` is one of Prometheus's
     * types */
    const char *name, *type;
    /* `labels` has the names of the labels, separated by commas; NULL: no labels */
    const char *labels;
    const char *help;
    /* `series` has the counters that are summed over the workers; unused if `bounds` or `write` is
     * set */
    struct series series[5];
    size_t hist; /* offset of the histogram in struct lw_counts */
    /* `bounds` are the bounds of the histogram; NULL: the metric is not a histogram */
    const struct lw_hist_bounds *bounds;
    /* `write` is the function that writes the rows of the metric; NULL: `series` or `hist` defines
     * them */
    void (*write)(const struct writing *w);
};

/* Escapes backslash, quote and newline in a label's value, as the text format of Prometheus
 * requires. */
static void add_escaped(struct lw_buf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') lw_buf_add(out, "\\", 1);
        if (*s == '\n')
            lw_buf_add(out, "\\n", 2);
        else
            lw_buf_add(out, s, 1);
    }
}

static void begin(const struct writing *w, const char *suffix) {
    lw_buf_addf(w->out, "latchwork_%s%s", w->row->name, suffix);
}

static void sample(const struct writing *w, const char *label, const char *value, uint64_t n) {
    begin(w, "");
    if (label) {
        lw_buf_addf(w->out, "{%s=\"", label);
        add_escaped(w->out, value);
        lw_buf_addf(w->out, "\"}");
    }
    lw_buf_addf(w->out, " %" PRIu64 "\n", n);
}

static uint64_t sum(const struct lw_board *b, size_t at) {
    uint64_t n = 0;
    for (int i = 0; i < b->n_workers; i++)
        n += atomic_load_explicit(
            (_Atomic uint64_t *)(void *)((char *)(uintptr_t)&b->workers[i].counts + at),
            memory_order_relaxed);
    return n;
}

static void write_series(const struct writing *w) {
    const struct metric *row = w->row;
    for (int i = 0; i == 0 || (row->labels && row->series[i].value); i++)
        sample(w, row->labels, row->series[i].value, sum(w->m->board, row->series[i].at));
}

static void write_hist(const struct writing *w) {
    const struct lw_hist_bounds *b = w->row->bounds;
    uint64_t n = 0, us = sum(w->m->board, w->row->hist + offsetof(struct lw_hist, sum_us));
    for (int i = 0; i <= b->n; i++) {
        n += sum(w->m->board, w->row->hist + offsetof(struct lw_hist, bucket) +
                                  (size_t)i * sizeof(_Atomic uint64_t));
        begin(w, "_bucket");
        if (i < b->n)
            lw_buf_addf(w->out, "{le=\"%g\"} %" PRIu64 "\n", (double)b->us[i] / 1e6, n);
        else
            lw_buf_addf(w->out, "{le=\"+Inf\"} %" PRIu64 "\n", n);
    }
    begin(w, "_sum"),
        lw_buf_addf(w->out, " %" PRIu64 ".%06" PRIu64 "\n", us / 1000000, us % 1000000);
    begin(w, "_count"), lw_buf_addf(w->out, " %" PRIu64 "\n", n);
}

/* --- gauges ----------------------------------------------------------------------------------- */

static void write_waiting(const struct writing *w) {
    uint64_t n = 0;
    for (int i = 0; i < w->m->board->n_workers; i++)
        n += atomic_load(&w->m->board->workers[i].waiting);
    sample(w, NULL, NULL, n);
}

static void write_workers(const struct writing *w) {
    uint64_t ready = 0, starting = 0, down = 0;
    for (int i = 0; i < w->m->board->n_wanted; i++) {
        const struct lw_board_worker *k = &w->m->board->workers[i];
        if (!atomic_load(&k->pid))
            down++;
        else if (atomic_load(&k->ready))
            ready++;
        else
            starting++;
    }
    sample(w, "state", "ready", ready), sample(w, "state", "starting", starting),
        sample(w, "state", "down", down);
}

static void write_kafka(const struct writing *w) {
    for (uint32_t state = 0; state < LW_KAFKA_STATES; state++) {
        uint64_t n = 0;
        for (int i = 0; i < w->m->board->n_workers; i++) {
            const struct lw_board_worker *k = &w->m->board->workers[i];
            n += atomic_load(&k->pid) && atomic_load(&k->kafka) == state + 1;
        }
        sample(w, "state", lw_kafka_state_name[state], n);
    }
}

static void write_starts(const struct writing *w) {
    uint64_t n = 0;
    for (int i = 0; i < w->m->board->n_workers; i++)
        n += atomic_load(&w->m->board->workers[i].starts);
    sample(w, NULL, NULL, n);
}

static uint64_t in_handlers(const struct lw_board *b) {
    uint64_t n = 0;
    for (int i = 0; i < b->n_workers; i++) n += atomic_load(&b->workers[i].in_handler);
    return n;
}

static void write_in_handler(const struct writing *w) {
    sample(w, NULL, NULL, in_handlers(w->m->board));
}

static void write_handlers(const struct writing *w) {
    sample(w, NULL, NULL,
           (uint64_t)w->m->board->n_wanted * (uint64_t)lw_config_at_once(w->m->config));
}

/* Returns how many messages of a worker have been granted and wait for a free handler. A worker
 * grants more messages than its handlers can run, so that handlers need not wait for Redis.
 * Messages that wait for a handler at the same time have different keys. */
static uint64_t runnable_lanes(const struct lw_board_worker *k, uint64_t at_once) {
    uint64_t n = atomic_load(&k->in_handler);
    return n > at_once ? n - at_once : 0;
}

static void write_runnable(const struct writing *w) {
    uint64_t n = 0;
    for (int i = 0; i < w->m->board->n_workers; i++)
        n += runnable_lanes(&w->m->board->workers[i], (uint64_t)lw_config_at_once(w->m->config));
    sample(w, NULL, NULL, n);
}

/* Returns true if there is work to do: records to read, or unfinished messages. */
static bool has_work(const struct lw_board *b) {
    const struct lw_board_partition *p;
    for (int at = 0; (p = lw_board_next(b, &at));)
        if (atomic_load(&p->unfinished) > 0 ||
            atomic_load(&p->log_end) > atomic_load(&p->committed))
            return true;
    return false;
}

/* Writes how many workers are needed to run all runnable keys at once. A hot key counts once,
 * regardless of the number of its waiting messages, because more workers cannot speed up a key
 * whose messages run one after the other. */
static void write_wanted(const struct writing *w) {
    uint64_t n = in_handlers(w->m->board), at_once = (uint64_t)lw_config_at_once(w->m->config);
    uint64_t workers = at_once ? (n + at_once - 1) / at_once : 0;
    sample(w, NULL, NULL, workers ? workers : has_work(w->m->board));
}

static void write_loads(const struct writing *w) {
    for (int i = 0; i < w->m->board->n_workers; i++) {
        const struct lw_board_worker *k = &w->m->board->workers[i];
        uint32_t n = atomic_load(&k->pid) ? atomic_load(&k->n_loads) : 0;
        for (uint32_t p = 0; p < n && p < LW_BOARD_SEATS; p++) {
            begin(w, "");
            lw_buf_addf(w->out, "{worker=\"%d\",process=\"%" PRIu32 "\"} %" PRIu32 "\n", i, p,
                        atomic_load(&k->loads[p]));
        }
    }
}

static bool is_http(const struct writing *w) {
    const char *type = w->m->config->handler.type;
    return type && strcmp(type, "http") == 0;
}

static void write_http_requests(const struct writing *w) {
    for (size_t i = 0; i < LW_HTTP_CODES && is_http(w); i++)
        sample(w, "code", lw_http_code_name[i],
               sum(w->m->board,
                   offsetof(struct lw_counts, http.requests) + i * sizeof(_Atomic uint64_t)));
}

static void write_http_breaker(const struct writing *w) {
    for (uint32_t state = 0; state < LW_HTTP_BREAKERS && is_http(w); state++) {
        uint64_t n = 0;
        for (int i = 0; i < w->m->board->n_workers; i++) {
            const struct lw_board_worker *k = &w->m->board->workers[i];
            n += atomic_load(&k->pid) && atomic_load(&k->counts.http.breaker) == state;
        }
        sample(w, "state", lw_http_breaker_name[state], n);
    }
}

static void write_http_count(const struct writing *w, size_t at) {
    if (is_http(w)) sample(w, NULL, NULL, sum(w->m->board, at));
}
static void write_http_connections(const struct writing *w) {
    write_http_count(w, offsetof(struct lw_counts, http.connections));
}
static void write_http_openings(const struct writing *w) {
    write_http_count(w, offsetof(struct lw_counts, http.openings));
}

static void write_suspects(const struct writing *w) {
    int32_t n = atomic_load(&w->m->board->n_suspects);
    sample(w, NULL, NULL, n > 0 ? (uint64_t)n : 0);
}

static void write_build(const struct writing *w) { sample(w, "version", LW_VERSION, 1); }

static void write_start_time(const struct writing *w) {
    int64_t ms = atomic_load(&w->m->board->started_wall_ms);
    begin(w, ""), lw_buf_addf(w->out, " %" PRId64 ".%03" PRId64 "\n", ms / 1000, ms % 1000);
}

/* Writes a row for each partition that a worker of this supervisor owns. `fn` computes the value.
 * If `is_ms` is true, `fn` returns ms, and the row has seconds. */
static void write_partitions(const struct writing *w,
                             int64_t (*fn)(const struct lw_board_partition *p, int64_t now_ms),
                             bool is_ms) {
    const struct lw_board_partition *p;
    for (int at = 0; (p = lw_board_next(w->m->board, &at));) {
        int64_t v = fn(p, w->m->now_ms);
        begin(w, ""), lw_buf_addf(w->out, "{topic=\""), add_escaped(w->out, p->topic);
        lw_buf_addf(w->out, "\",partition=\"%" PRId32 "\"} ", p->partition);
        if (is_ms)
            lw_buf_addf(w->out, "%" PRId64 ".%03" PRId64 "\n", v / 1000, v % 1000);
        else
            lw_buf_addf(w->out, "%" PRId64 "\n", v);
    }
}

static int64_t lag(const struct lw_board_partition *p, int64_t now_ms) {
    (void)now_ms;
    int64_t n = atomic_load(&p->log_end) - atomic_load(&p->committed);
    return n > 0 ? n : 0;
}

static int64_t blocked(const struct lw_board_partition *p, int64_t now_ms) {
    int64_t ms = now_ms - atomic_load(&p->moved_ms);
    return atomic_load(&p->unfinished) && ms > 0 ? ms : 0;
}

static int64_t records(const struct lw_board_partition *p, int64_t now_ms) {
    (void)now_ms;
    return atomic_load(&p->records);
}

static void write_records(const struct writing *w) { write_partitions(w, records, false); }
static void write_lag(const struct writing *w) { write_partitions(w, lag, false); }
static void write_blocked(const struct writing *w) { write_partitions(w, blocked, true); }

/* Writes a row per shard. A shard that does not answer appears only in redis_up, because an old
 * number would look like a current one. */
static void write_shards(const struct writing *w, size_t at) {
    for (int s = 0; s < w->m->config->redis.shards; s++) {
        const struct lw_shard_look *k = &w->m->shards[s];
        char label[16];
        int64_t v;
        snprintf(label, sizeof label, "%d", s);
        memcpy(&v, (const char *)k + at, sizeof v);
        if (k->up) sample(w, "shard", label, v > 0 ? (uint64_t)v : 0);
    }
}

static void write_lanes(const struct writing *w) {
    write_shards(w, offsetof(struct lw_shard_look, lanes));
}
static void write_hints(const struct writing *w) {
    write_shards(w, offsetof(struct lw_shard_look, ready));
}
static void write_dead(const struct writing *w) {
    write_shards(w, offsetof(struct lw_shard_look, dead));
}
static void write_paused(const struct writing *w) {
    write_shards(w, offsetof(struct lw_shard_look, paused));
}

static void write_age(const struct writing *w) {
    int64_t now = lw_wall_ms();
    for (int s = 0; s < w->m->config->redis.shards; s++) {
        const struct lw_shard_look *k = &w->m->shards[s];
        int64_t ms = k->oldest_ms && now > k->oldest_ms ? now - k->oldest_ms : 0;
        if (!k->up) continue;
        begin(w, ""), lw_buf_addf(w->out, "{shard=\"%d\"} %" PRId64 ".%03" PRId64 "\n", s,
                                  ms / 1000, ms % 1000);
    }
}

static void write_up(const struct writing *w) {
    for (int s = 0; s < w->m->config->redis.shards; s++) {
        char label[16];
        snprintf(label, sizeof label, "%d", s);
        sample(w, "shard", label, w->m->shards[s].up);
    }
}

static void write_spans_dropped(const struct writing *w) {
    static const char *const reason[LW_SPAN_LOSSES] = {[LW_SPAN_UNREACHABLE] = "unreachable",
                                                       [LW_SPAN_REFUSED] = "refused",
                                                       [LW_SPAN_REJECTED] = "rejected"};
    sample(w, "reason", "full", sum(w->m->board, offsetof(struct lw_counts, spans_dropped)));
    for (int i = 0; i < LW_SPAN_LOSSES; i++)
        sample(w, "reason", reason[i], atomic_load(&w->m->board->spans_lost[i]));
}

static void write_spans_sent(const struct writing *w) {
    sample(w, NULL, NULL, atomic_load(&w->m->board->spans_sent));
}

/* --- the table -------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct lw_counts, field)
#define ONE(field)          \
    {                       \
        { NULL, AT(field) } \
    }

static const struct metric metrics[] = {
    {.name = "messages_total",
     .type = "counter",
     .labels = "outcome",
     .series = {{"done", AT(done)},
                {"dead", AT(dead)},
                {"dropped", AT(dropped)},
                {"skipped", AT(skipped)}},
     .help =
         "Messages that ended here: handled, dead letters, dropped (by dedup or for a newer "
         "one), skipped (no key). After a crash short by what was unsettled; `ledger` is exact."},
    {.name = "records_received_total",
     .type = "counter",
     .series = ONE(received),
     .help = "Records taken from Kafka, redelivered ones too."},
    {.name = "redeliveries_skipped_total",
     .type = "counter",
     .series = ONE(redelivered),
     .help = "Records that came again and were known to be finished: not run again."},
    {.name = "parked_total",
     .type = "counter",
     .series = ONE(parked),
     .help =
         "Messages that went to a waiting list, since their key was busy or to be tried again."},
    {.name = "drained_total",
     .type = "counter",
     .series = ONE(drained),
     .help = "Messages that came from a waiting list and ended as done or dead."},
    {.name = "retries_total",
     .type = "counter",
     .series = ONE(retried),
     .help = "Attempts that failed and are to be tried again."},
    {.name = "stale_total",
     .type = "counter",
     .series = ONE(stale),
     .help = "Runs whose outcome was not recorded, because the lease had gone to another."},
    {.name = "group_changed_total",
     .type = "counter",
     .series = ONE(group_changed),
     .help = "Messages that name another group (`group.from`) than the one that their key waits "
             "under: it waits under the group of its first message."},
    {.name = "limited_total",
     .type = "counter",
     .series = ONE(limited),
     .help = "Times that a worker got less than it wanted, because a limit of the fleet or of a "
             "group (`limits`) holds messages up."},
    {.name = "wait_seconds",
     .type = "histogram",
     .hist = AT(waited),
     .bounds = &lw_bounds_end_to_end,
     .help = "From a message's arrival until a handler was given it (its key, the lock, other "
             "messages); of each attempt."},
    {.name = "handler_duration_seconds",
     .type = "histogram",
     .hist = AT(handler),
     .bounds = &lw_bounds_handler,
     .help = "Time of a message in its handler; of a batch, each message's share."},
    {.name = "end_to_end_seconds",
     .type = "histogram",
     .hist = AT(end_to_end),
     .bounds = &lw_bounds_end_to_end,
     .help = "From a record's time-stamp until its end was recorded. It compares the clocks of two "
             "machines."},
    {.name = "redis_round_trip_seconds",
     .type = "histogram",
     .hist = AT(redis),
     .bounds = &lw_bounds_redis,
     .help = "From sending a pipeline until its last answer was read."},
    {.name = "redis_commands_total",
     .type = "counter",
     .series = ONE(redis_commands),
     .help = "Commands in those pipelines; a batch of messages is one."},
    {.name = "lock_acquire_total",
     .type = "counter",
     .labels = "result",
     .series = {{"granted", AT(locks_granted)}, {"busy", AT(locks_busy)}},
     .help = "Attempts to take a lane, by result (busy: another holds it, or others wait there)."},
    {.name = "leases_lost_total",
     .type = "counter",
     .series = ONE(leases_lost),
     .help = "Leases that could not be renewed in time: their handlers were cancelled."},
    {.name = "epochs_lost_total",
     .type = "counter",
     .series = ONE(epochs_lost),
     .help = "A shard's Redis lost its data, became another or its clock jumped, as each worker "
             "saw it."},
    {.name = "waiting_lost_total",
     .type = "counter",
     .series = ONE(unparked),
     .help = "Messages whose waiting list was deleted or evicted, and that were read from Kafka "
             "again."},
    {.name = "dead_letters_kept_total",
     .type = "counter",
     .series = ONE(letters_kept),
     .help = "Dead letters that their topic rejects for good (too large, or invalid there), stored "
             "in Redis instead."},
    {.name = "commits_total",
     .type = "counter",
     .series = ONE(commits),
     .help = "Offsets that Kafka accepted, a partition each."},
    {.name = "waiting_messages",
     .type = "gauge",
     .write = write_waiting,
     .help =
         "Messages of this fleet's partitions that wait in Redis, or came out of there and run."},
    {.name = "waiting_age_seconds",
     .type = "gauge",
     .labels = "shard",
     .write = write_age,
     .help = "How long the oldest head of a waiting list has waited, of those looked at: a part of "
             "the lanes every few seconds, in turn, "
             "and the "
             "oldest of before."},
    {.name = "lanes",
     .type = "gauge",
     .labels = "shard",
     .write = write_lanes,
     .help = "Keys that have waiters, of the whole application."},
    {.name = "paused_lanes",
     .type = "gauge",
     .labels = "shard",
     .write = write_paused,
     .help = "Lanes that an operator paused."},
    {.name = "ready_hints",
     .type = "gauge",
     .labels = "shard",
     .write = write_hints,
     .help = "Hints that no worker has taken yet."},
    {.name = "dead_letters",
     .type = "gauge",
     .labels = "shard",
     .write = write_dead,
     .help = "Dead letters kept in Redis. With dead.to topic:NAME, those in the topic are not "
             "counted."},
    {.name = "redis_up",
     .type = "gauge",
     .labels = "shard",
     .write = write_up,
     .help = "1: the shard's Redis answers this supervisor."},
    {.name = "kafka_lag",
     .type = "gauge",
     .labels = "topic,partition",
     .write = write_lag,
     .help = "From the committed offset to the end of the log, as of the last fetch, of the "
             "partitions that this fleet has."},
    {.name = "commit_watermark_blocked_seconds",
     .type = "gauge",
     .labels = "topic,partition",
     .write = write_blocked,
     .help = "How long the watermark has stood still while messages above it are unfinished."},
    {.name = "commit_watermark_records",
     .type = "gauge",
     .labels = "topic,partition",
     .write = write_records,
     .help = "Records from the watermark on that the worker tracks, at 16 bytes per record. "
             "Reading pauses at 4,194,304 divided by the "
             "worker's partitions (at least 65,536, at most 1,048,576)."},
    {.name = "workers",
     .type = "gauge",
     .labels = "state",
     .write = write_workers,
     .help = "Worker processes: ready (connected to every shard, in the consumer group, and "
             "reading its partitions), starting "
             "(running but not ready), down (waiting for a restart)."},
    {.name = "kafka_workers",
     .type = "gauge",
     .labels = "state",
     .write = write_kafka,
     .help = "Worker processes by the state of their Kafka connection: joined (in the group and "
             "reading), joining (or in a rebalance), "
             "unreachable (no broker, coordinator or leader), silent (a broker does not answer), "
             "refused (authentication or "
             "authorization failed), no_topic (a configured topic does not exist)."},
    {.name = "worker_starts_total",
     .type = "counter",
     .write = write_starts,
     .help = "Worker processes started; more than there are workers: restarts."},
    {.name = "handlers",
     .type = "gauge",
     .write = write_handlers,
     .help = "How many messages this supervisor's workers can run at once."},
    {.name = "in_handler_messages",
     .type = "gauge",
     .write = write_in_handler,
     .help = "Messages given to handlers and not answered yet."},
    {.name = "runnable_lanes",
     .type = "gauge",
     .write = write_runnable,
     .help = "Keys whose lock a worker here has and that wait for a free handler: work that more "
             "workers would help with. 0 if only "
             "a few hot keys have messages, however many."},
    {.name = "wanted_workers",
     .type = "gauge",
     .write = write_wanted,
     .help = "Workers that could run all keys at once that can run now; 1 if there is only little "
             "or unstarted work, 0 if there is none. "
             "Sum it over the supervisors to scale a fleet."},
    {.name = "handler_process_requests",
     .type = "gauge",
     .labels = "worker,process",
     .write = write_loads,
     .help = "Requests that each handler process of `exec` has now; at most `handler.in_flight`. "
             "Written twice a second."},
    {.name = "handler_http_requests_total",
     .type = "counter",
     .labels = "code",
     .write = write_http_requests,
     .help = "Requests of the handler `http` by the status of the answer. Rare statuses are "
             "counted by their class (2xx, 4xx, …). Without "
             "an answer: unreached (no connection), tls, timeout, broken (the connection broke), "
             "cancelled (the lease was lost)."},
    {.name = "handler_http_connections_total",
     .type = "counter",
     .write = write_http_connections,
     .help = "Connections that the handler `http` has made. Far fewer than requests, unless the "
             "service closes them."},
    {.name = "handler_http_breaker_workers",
     .type = "gauge",
     .labels = "state",
     .write = write_http_breaker,
     .help = "Workers by the state of the circuit breaker of the handler `http`: closed (requests "
             "are sent), open (none is: the service "
             "is down), half_open (one message at a time tests it)."},
    {.name = "handler_http_breaker_openings_total",
     .type = "counter",
     .write = write_http_openings,
     .help = "How often a circuit breaker of the handler `http` has opened."},
    {.name = "suspects",
     .type = "gauge",
     .write = write_suspects,
     .help =
         "Messages that were in a handler when a worker died: each is run in a process of its own."},
    {.name = "spans_sent_total",
     .type = "counter",
     .write = write_spans_sent,
     .help = "Spans that `tracing.endpoint` has taken."},
    {.name = "spans_dropped_total",
     .type = "counter",
     .labels = "reason",
     .write = write_spans_dropped,
     .help = "Spans that were lost: full (they came faster than they could be sent, or the "
             "endpoint was away for long), unreachable (given "
             "up after 60 s of retries), refused (the endpoint answered with an error that a retry "
             "does not change), rejected (the "
             "endpoint took the request without them). No message is lost or held up with them."},
    {.name = "build_info",
     .type = "gauge",
     .labels = "version",
     .write = write_build,
     .help = "Always 1."},
    {.name = "start_time_seconds",
     .type = "gauge",
     .write = write_start_time,
     .help = "When this supervisor started, since 1970."},
};
enum { METRICS = sizeof metrics / sizeof *metrics };

void lw_metrics_text(const struct lw_metrics_source *m, struct lw_buf *out) {
    for (int i = 0; i < METRICS; i++) {
        const struct metric *row = &metrics[i];
        struct writing w = {m, out, row};
        lw_buf_addf(out, "# HELP latchwork_%s %s\n# TYPE latchwork_%s %s\n", row->name, row->help,
                    row->name, row->type);
        if (row->write)
            row->write(&w);
        else if (row->bounds)
            write_hist(&w);
        else
            write_series(&w);
    }
}

void lw_metrics_names(struct lw_buf *out) {
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    for (int i = 0; i < METRICS; i++) {
        if (!metrics[i].bounds) lw_buf_addf(out, "latchwork_%s\n", metrics[i].name);
        for (int k = 0; metrics[i].bounds && k < 3; k++)
            lw_buf_addf(out, "latchwork_%s%s\n", metrics[i].name, suffixes[k]);
    }
}

static void reference_row(const struct metric *row, struct lw_buf *out) {
    lw_buf_addf(out, "| `latchwork_%s` | %s | ", row->name, row->type);
    if (row->labels) lw_buf_addf(out, "`%s`", row->labels);
    for (int i = 0; row->labels && row->series[i].value; i++)
        lw_buf_addf(out, "%s%s", i ? ", " : ": ", row->series[i].value);
    lw_buf_addf(out, " | %s |\n", row->help);
}

static void reference_buckets(const struct metric *row, struct lw_buf *out) {
    lw_buf_addf(out, "- `latchwork_%s`:", row->name);
    for (int i = 0; i < row->bounds->n; i++)
        lw_buf_addf(out, " %g", (double)row->bounds->us[i] / 1e6);
    lw_buf_addf(out, "\n");
}

void lw_metrics_reference(struct lw_buf *out) {
    lw_buf_addf(
        out,
        "# Metrics\n\n"
        "<!-- made by `latchwork check --reference-metrics` from the table in monitor/metrics.c "
        "-->\n\n"
        "`run` serves `/metrics` (Prometheus text) on `http.listen`, for all its workers. Counters "
        "go on when a worker dies; "
        "they begin at 0 "
        "with the supervisor. Each supervisor tells of its own workers, so sum over the machines; "
        "what has the label `shard` "
        "is asked of Redis "
        "every few seconds and is the same on each: take the maximum. Labels never hold keys.\n\n"
        "| name | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for (int i = 0; i < METRICS; i++) reference_row(&metrics[i], out);
    lw_buf_addf(out, "\n## Buckets of the histograms, in seconds\n\n");
    for (int i = 0; i < METRICS; i++)
        if (metrics[i].bounds) reference_buckets(&metrics[i], out);
    lw_buf_addf(out, "\n## Beside them\n\n"
                     "| path | says |\n| --- | --- |\n"
                     "| `/healthz` | 200 while the supervisor and the main loop of each running "
                     "worker turn; else 503 and which does not |\n"
                     "| `/readyz` | 200 if every worker is connected to all shards, is in the "
                     "consumer group and can read its partitions; "
                     "otherwise 503, naming each worker that is not ready and why |\n"
                     "| `/version` | the version |\n"
                     "| `/api/v1/workers` | JSON: each worker, its process, its counts |\n"
                     "| `/api/v1/partitions` | JSON: each partition of this fleet: owner, "
                     "watermark, committed offset, end of the log |\n"
                     "| `/api/v1/counters` | JSON: the sums of all workers |\n\n"
                     "All is read-only. The `Host` header of a request must name an address, "
                     "`localhost` or this machine, so that no web page "
                     "can read it "
                     "through a name of its own (DNS rebinding).\n");
}
