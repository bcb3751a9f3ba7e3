/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the dead letters in a topic (dead.to: topic:NAME), where they stay whatever becomes of
 * them. Anybody may write to the topic, so nothing is expected of a record: one without a valid
 * header latchwork-origin is shown under its own place in the topic. */
#include "base/clock.h"
#include "ops/dead/dead.h"
#include "ops/kafka.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPEN_MS = 10000,
    /* a search without --from reads this number of records, the newest ones */
    LOOK = 10000,
    /* a page begins no step that is likely to end after PAGE_MS */
    PAGE_MS = 2500,
    /* A page reads `step` records at a time: more if few of them match, fewer if they are large. */
    STEP_FIRST = 32,
    STEP_MAX = 512,
    LIGHT_BYTES = 256 << 10,
    HEAVY_BYTES = 4 << 20,
    PARTITIONS_MAX = 190
};

struct letters {
    ops_message_fn *fn;
    void *ctx;
    int64_t matched;
    size_t bytes;
    bool whole; /* true: read the spans to their ends, even if fn wants no more */
    int stop;
};

/* --- a record as a dead letter ---------------------------------------------------------------- */

/* Returns the value of the last header of a name, or a null value. */
static struct lw_bytes header(const struct lw_envelope *e, const char *name) {
    for (size_t i = e->n_headers; i > 0; i--)
        if (lw_bytes_eq(e->headers[i - 1].name, lw_bytes_of(name))) return e->headers[i - 1].value;
    return lw_bytes(NULL, 0);
}

/* Reads a number in decimal digits. Returns 0 if the text is no such number. */
static int64_t digits(struct lw_bytes text) {
    int64_t n = 0;
    if (!text.n || text.n > 9) return 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9') return 0;
        n = 10 * n + (text.p[i] - '0');
    }
    return n;
}

/* Reads a big-endian time in ms (queue/dead_headers.h). Returns -1, for unknown, if it is none. */
static int64_t big_endian_ms(struct lw_bytes value) {
    uint64_t v = 0;
    if (!value.p || value.n != sizeof v) return -1;
    for (size_t i = 0; i < sizeof v; i++) v = v << 8 | (unsigned char)value.p[i];
    return v <= INT64_MAX ? (int64_t)v : -1;
}

bool dead_is_ours(const struct ops *o, const struct ops_message *m) {
    return !m->in_topic || ops_is_consumed(o->c, m->e.topic);
}

static int tell(struct ops *o, struct ops_message *m, void *ctx) {
    struct letters *l = ctx;
    char origin[256];
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane, reason = header(&m->e, "latchwork-reason");
    struct lw_err err = {0};
    for (size_t i = 0; i < m->e.n_headers; i++)
        l->bytes += m->e.headers[i].name.n + m->e.headers[i].value.n;
    l->bytes += m->e.key.n + m->e.payload.n;
    ops_identity(&m->e, m->id, sizeof m->id);
    m->in_topic = true;
    m->attempts = digits(header(&m->e, "latchwork-attempts"));
    m->last_ms = m->e.first_ms = m->e.timestamp_ms;
    int64_t ts = big_endian_ms(header(&m->e, "kafka_dlt-original-timestamp"));
    if (ops_take_origin(m, origin, &m->e.replay)) {
        m->reason = reason.p ? reason : lw_bytes("", 0);
        m->e.timestamp_ms = ts;
    } else {
        m->reason =
            lw_bytes_of("(no dead letter: its header latchwork-origin is missing or not valid)");
    }
    if (ops_lane_of(o, &m->e, &scratch, &key, &lane, &err) == 0) {
        m->e.key = key;
        m->lane = lane;
        m->shard = ops_shard_of(o, lane)->index;
    }
    int stop = 0;
    if (ops_message_matches(o, m)) {
        l->matched++;
        stop = l->fn(o, m, l->ctx);
    }
    lw_buf_free(&scratch);
    if (stop > 0 && l->whole) {
        l->stop = stop;
        return 0;
    }
    return stop;
}

/* --- the topic -------------------------------------------------------------------------------- */

/* Returns the topic, open for reading, with the ends of its partitions as of now, or NULL with
 * o->err on failure. */
static struct ops_log *open_topic(struct ops *o) {
    if (!o->letters) o->letters = ops_log_open(o, &o->c->dead.topic, 1, OPEN_MS);
    return o->letters;
}

/* After a failure, closes the topic, so that the next use begins with a new connection. */
static int ended(struct ops *o, int stop) {
    if (stop >= 0) return stop;
    ops_log_close(o->letters);
    o->letters = NULL;
    return -1;
}

bool dead_id_in_topic(const struct ops *o, const char *word, int32_t *partition, int64_t *offset) {
    char topic[256];
    int64_t replay;
    return o->c->dead.topic && !ops_identity_parse(word, topic, partition, offset, &replay) &&
           !replay && !strcmp(topic, o->c->dead.topic);
}

int dead_one_in_topic(struct ops *o, const char *word, ops_message_fn *fn, void *ctx) {
    struct letters l = {.fn = fn, .ctx = ctx};
    struct ops_log *log = open_topic(o);
    int32_t partition = 0;
    int64_t offset = 0;
    size_t n;
    if (!log || ops_log_limit(log)) return ended(o, -1);
    dead_id_in_topic(o, word, &partition, &offset);
    struct ops_span *s = ops_log_spans(log, &n);
    for (size_t i = 0; i < n; i++) {
        bool here = s[i].partition == partition && s[i].from <= offset && offset < s[i].to;
        s[i].from = here ? offset : 0;
        s[i].to = here ? offset + 1 : 0;
    }
    return ended(o, ops_log_read(log, tell, &l));
}

/* Without --from, limits the spans to about LOOK records, the newest ones. Each partition keeps the
 * same part of its records, because all letters of a key may be in one partition. Returns true if
 * something was left out. */
static bool cut_to_newest(const struct ops *o, struct ops_span *s, size_t n) {
    double all = 0;
    for (size_t i = 0; i < n; i++) all += (double)(s[i].to - s[i].from);
    if (o->args.from || all <= LOOK) return false;
    for (size_t i = 0; i < n; i++)
        s[i].from = s[i].to - (int64_t)ceil((double)(s[i].to - s[i].from) * (LOOK / all));
    return true;
}

int dead_each_in_topic(struct ops *o, ops_message_fn *fn, void *ctx) {
    struct letters l = {.fn = fn, .ctx = ctx};
    struct ops_log *log = open_topic(o);
    size_t n;
    if (!log || ops_log_limit(log)) return ended(o, -1);
    struct ops_span *s = ops_log_spans(log, &n);
    o->cut = cut_to_newest(o, s, n);
    for (size_t i = 0; i < n; i++)
        if (s[i].to > s[i].from) o->to_scan += s[i].to - s[i].from;
    int stop = ended(o, ops_log_read(log, tell, &l));
    if (stop == 0 && o->cut && !o->quiet)
        fprintf(stderr,
                "only about %d records of the topic %s were read, the newest ones; use --from to "
                "look at older ones\n",
                LOOK, o->c->dead.topic);
    return stop;
}

/* --- pages ------------------------------------------------------------------------------------ */

/* Limits the spans to what the pages before have left: `at` has an offset per partition, separated
 * by '-'. The topic may have got more partitions since, of which nothing was read yet. Returns
 * false if it has fewer, or if `at` is of another form. */
static bool take_place(struct ops_span *s, size_t n, bool newest, const char *at) {
    for (size_t i = 0; *at; i++) {
        char *end;
        int64_t offset = strtoll(at, &end, 10);
        if (i == n || end == at || offset < 0 || (*end && *end != '-') || !strcmp(end, "-"))
            return false;
        if (newest && offset < s[i].to) s[i].to = offset;
        if (!newest && offset > s[i].from) s[i].from = offset;
        at = *end ? end + 1 : end;
    }
    return true;
}

/* Reads the next `step` records of all partitions together. Sets *more to false if these were the
 * last ones. The limits of the spans become those of the next step. */
static int read_step(struct ops_log *log, bool newest, int64_t step, struct letters *l,
                     bool *more) {
    size_t n;
    struct ops_span *s = ops_log_spans(log, &n);
    int64_t each = step / (int64_t)n > 0 ? step / (int64_t)n : 1;
    int64_t *left = lw_alloc(n * sizeof *left);
    for (size_t i = 0; i < n; i++) {
        bool all = s[i].to - s[i].from <= each;
        left[i] = newest ? s[i].from : s[i].to;
        if (!all && newest) s[i].from = s[i].to - each;
        if (!all && !newest) s[i].to = s[i].from + each;
    }
    int stop = ops_log_read(log, tell, l);
    *more = false;
    for (size_t i = 0; i < n; i++) {
        if (newest)
            s[i].to = s[i].from, s[i].from = left[i];
        else
            s[i].from = s[i].to, s[i].to = left[i];
        *more = *more || s[i].from < s[i].to;
    }
    free(left);
    return stop;
}

/* `quick` says that there is time for more records at a time. */
static int64_t next_step(int64_t step, const struct letters *l, bool quick) {
    if (l->bytes > HEAVY_BYTES) return step / 4 > 0 ? step / 4 : 1;
    bool more = quick && l->bytes < LIGHT_BYTES && l->matched * 4 < step && step < STEP_MAX;
    return more ? step * 4 : step;
}

static void put_place(const struct ops_span *s, size_t n, bool newest, char at[DEAD_PLACE]) {
    int used = 0;
    for (size_t i = 0; i < n; i++)
        used += snprintf(at + used, DEAD_PLACE - (size_t)used, "%s%" PRId64, i ? "-" : "",
                         newest ? s[i].to : s[i].from);
}

int dead_page_in_topic(struct ops *o, bool newest, char at[DEAD_PLACE], bool *more,
                       ops_message_fn *fn, void *ctx) {
    int64_t until_ms = lw_boot_ms() + PAGE_MS, step = STEP_FIRST;
    struct ops_log *log = open_topic(o);
    int stop = 0;
    size_t n;
    if (!log || ops_log_limit(log)) return ended(o, -1);
    struct ops_span *s = ops_log_spans(log, &n);
    if (n > PARTITIONS_MAX)
        return lw_fail(&o->err,
                       "topic %s has %zu partitions; expected at most %d; use the command "
                       "`latchwork dead ls`",
                       o->c->dead.topic, n, PARTITIONS_MAX);
    if (!take_place(s, n, newest, at)) return DEAD_MISPLACED;
    *more = true;
    while (!stop && *more) {
        struct letters l = {.fn = fn, .ctx = ctx, .whole = true};
        int64_t begun_ms = lw_boot_ms();
        stop = read_step(log, newest, step, &l, more);
        int64_t took_ms = lw_boot_ms() - begun_ms, left_ms = until_ms - lw_boot_ms();
        /* A step that does not end in time would fail the page, with all that it has read. */
        if (!stop) stop = l.stop || took_ms > left_ms;
        step = next_step(step, &l, took_ms * 8 < left_ms);
    }
    put_place(s, n, newest, at);
    return ended(o, stop);
}

/* --- what was taken --------------------------------------------------------------------------- */

int dead_look_taken(struct ops *o, struct ops_message *m) {
    if (!m->in_topic) return 0;
    char identity[320];
    struct ops_shard *sh = &o->shards[m->shard];
    ops_identity(&m->e, identity, sizeof identity);
    ops_begin(o, "ZSCORE"), ops_keys(o, sh, "taken");
    lw_arg_text(&o->cmd, identity);
    redisReply *r = ops_ask(o, sh);
    if (!r) return -1;
    if (r->type == REDIS_REPLY_STRING) m->taken_ms = (int64_t)strtod(r->str, NULL);
    freeReplyObject(r);
    return 0;
}
