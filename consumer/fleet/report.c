/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/fleet/table.h"

#include "base/log.h"
#include "queue/key.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { LOG_EVERY_MS = 10000, HANDLERS_SHOWN = 32 };

struct lw_sup_totals lw_sup_totals(const struct lw_board *b) {
    struct lw_sup_totals t = {0};
    for (int i = 0; i < b->n_workers; i++) {
        const struct lw_counts *c = &b->workers[i].counts;
        t.done += atomic_load(&c->done);
        t.dead += atomic_load(&c->dead);
        t.dropped += atomic_load(&c->dropped);
        t.skipped += atomic_load(&c->skipped);
        t.waiting += atomic_load(&b->workers[i].waiting);
        t.parked += atomic_load(&c->parked);
        t.drained += atomic_load(&c->drained);
        t.retried += atomic_load(&c->retried);
    }
    t.finished = t.done + t.dead + t.dropped + t.skipped;
    return t;
}

void lw_sup_report_init(struct lw_sup_report *r, int64_t now_ms) {
    *r = (struct lw_sup_report){.started_ms = now_ms,
                                .idle_until_ms = now_ms,
                                .moved_ms = now_ms,
                                .last_line_ms = now_ms,
                                .last_log_ms = now_ms,
                                .last_tick_ms = now_ms};
}

/* Returns how many records lie between the commits and the end offsets; -1 while the commit of a
 * partition is unknown. */
static int64_t remaining(const struct lw_board *b) {
    int64_t sum = 0;
    for (int32_t i = 0; i < b->n_drain; i++) {
        int64_t at = atomic_load(&b->drain[i].committed), end = b->drain[i].end;
        if (end > 0 && at < 0) return -1;
        if (at < end) sum += end - at;
    }
    return sum;
}

static void compose(char *out, size_t size, const struct lw_sup *s, uint64_t per_s) {
    struct lw_sup_totals t = lw_sup_totals(s->board);
    int n = snprintf(out, size,
                     "%" PRIu64 " msg/s, done %" PRIu64 ", dead %" PRIu64 ", waiting %" PRIu64,
                     per_s, t.done, t.dead, t.waiting);
    int64_t left = s->o->drain ? remaining(s->board) : -1;
    if (left >= 0 && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, ", uncommitted %" PRId64, left);
}

static uint64_t rate(uint64_t count, int64_t ms) {
    return ms > 0 ? (uint64_t)((double)count * 1000 / (double)ms) : 0;
}

/* Writes the live line to the terminal, and moves the cursor back to the left edge, so that the
 * next log line overwrites the live line. */
static void live_line(const char *text) { fprintf(stderr, "\r%s\033[K\r", text); }

void lw_sup_report_tick(struct lw_sup_report *r, const struct lw_sup *s, int64_t now_ms) {
    struct lw_sup_totals t = lw_sup_totals(s->board);
    uint64_t moves = t.finished + t.parked + t.drained;
    if (!t.finished) r->idle_until_ms = now_ms;
    if (moves != r->last_moves) r->moved_ms = now_ms;
    r->last_moves = moves;
    char text[256];
    if (s->o->progress) {
        compose(text, sizeof text, s,
                rate(t.finished - r->last_finished, now_ms - r->last_line_ms));
        live_line(text);
    } else if (s->o->drain && now_ms - r->last_log_ms >= LOG_EVERY_MS) {
        compose(text, sizeof text, s, rate(t.finished - r->last_finished, now_ms - r->last_log_ms));
        lw_info("%s", text);
    } else {
        return;
    }
    r->last_finished = t.finished;
    r->last_line_ms = r->last_log_ms = now_ms;
}

static void print_text(const struct lw_sup_totals *t, double s, uint64_t per_s, char *out,
                       size_t size) {
    snprintf(out, size,
             "done %" PRIu64 " dead %" PRIu64 " dropped %" PRIu64 " skipped %" PRIu64
             " parked %" PRIu64 " drained %" PRIu64 " retried %" PRIu64 "  in %.1f s  (%" PRIu64
             " msg/s)",
             t->done, t->dead, t->dropped, t->skipped, t->parked, t->drained, t->retried, s, per_s);
}

static void print_json(const struct lw_sup_totals *t, double s, uint64_t per_s) {
    printf("{\"done\":%" PRIu64 ",\"dead\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"skipped\":%" PRIu64
           ",\"parked\":%" PRIu64 ",\"drained\":%" PRIu64 ",\"retried\":%" PRIu64
           ",\"seconds\":%.3f,\"messages_per_second\":%" PRIu64 "}\n",
           t->done, t->dead, t->dropped, t->skipped, t->parked, t->drained, t->retried, s, per_s);
}

/* After `run --drain` the summary goes to stdout, so that programs can read it. Otherwise the
 * summary is a line of the log. */
void lw_sup_report_summary(const struct lw_sup_report *r, const struct lw_sup *s, int64_t now_ms) {
    struct lw_sup_totals t = lw_sup_totals(s->board);
    int64_t ms = now_ms - r->started_ms;
    uint64_t per_s = rate(t.finished, now_ms - r->idle_until_ms);
    char text[512];
    print_text(&t, (double)ms / 1000, per_s, text, sizeof text);
    if (s->o->progress) live_line("");
    if (!s->o->drain)
        lw_info("%s", text);
    else if (s->o->json)
        print_json(&t, (double)ms / 1000, per_s);
    else
        puts(text);
    fflush(stdout);
}

/* Logs the message that a seat of the board names. The worker may write to the seat while this
 * function reads it, so the line may mix two consecutive messages. */
static void tell_seat(const struct lw_sup *s, int worker, const struct lw_seat *seat) {
    char identity[LW_IDENTITY_MAX], key[LW_KEY_TEXT];
    uint32_t n = seat->n_key < LW_SEAT_KEY ? seat->n_key : LW_SEAT_KEY;
    struct lw_log_field f[3];
    int fields = 0;
    snprintf(identity, sizeof identity, "%.*s", (int)sizeof identity - 1, seat->identity);
    f[fields++] = (struct lw_log_field){"id", identity, 0};
    fields += lw_key_field(s->c->log.keys, lw_bytes(seat->key, n), seat->key_hash, key, &f[fields]);
    int64_t since_ms = atomic_load(&seat->since_ms);
    f[fields++] = (struct lw_log_field){"handler_ms", NULL, (long long)(s->now() - since_ms)};
    lw_log_with(LW_LOG_WARN, f, fields, "worker %d: message in its handler: %s", worker, identity);
}

void lw_sup_report_handlers(const struct lw_sup *s, int worker) {
    int shown = 0, more = 0;
    for (int i = 0; i < LW_BOARD_SEATS; i++) {
        const struct lw_seat *seat = &s->board->workers[worker].seats[i];
        if (!atomic_load_explicit(&seat->busy, memory_order_acquire)) continue;
        if (shown < HANDLERS_SHOWN)
            tell_seat(s, worker, seat), shown++;
        else
            more++;
    }
    if (more) lw_warn("worker %d: and %d more messages are in its handlers", worker, more);
    if (!shown) lw_warn("worker %d: no message is in its handlers", worker);
}
