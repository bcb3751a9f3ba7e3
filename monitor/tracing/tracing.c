/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/tracing/tracing.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "consumer/spans.h"
#include "monitor/tracing/private.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    BATCH = 512, /* maximum number of spans in a request */
    LOOK_MS = 50,
    LINGER_MS = 1000,
    BACKOFF_MS = 1000,
    BACKOFF_MAX_MS = 30000,
    GIVE_UP_MS = 60000,
    LAST_MS = 1500,
    TELL_MS = 60000, /* minimum time between two log lines about failures */
    NICENESS = 10,   /* nice value of the process, so that workers get the CPU first */
};

/* Says which spans are in a request: the oldest of[i] spans of each ring i, `n` spans in all. */
struct batch {
    size_t n, of[LW_BOARD_WORKERS];
};

struct tracing {
    const struct lw_config *c;
    struct lw_board *board;
    struct lw_post *post;
    struct lw_tracing_times times;
    char host[LW_HOST_MAX], instance[LW_HOST_MAX + 16];
    /* `pending_ms` is the time since which spans have been waiting; 0: no span was waiting at the
     * last check */
    int64_t pending_ms;
    /* `told_ms` is the time of the last log line about failures; 0: no failure since the last
     * success */
    int64_t told_ms;
    uint64_t lost; /* number of spans given up since the failures began */
};

static volatile sig_atomic_t stopping;

static void on_term(int sig) {
    (void)sig;
    stopping = 1;
}

/* Waits until this time (boot clock). Returns earlier, within LOOK_MS, after SIGTERM. */
static void pause_until(int64_t until_ms) {
    while (!stopping && lw_boot_ms() < until_ms)
        lw_sleep_ms(lw_earlier(LOOK_MS, until_ms - lw_boot_ms() + 1));
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Returns how many spans wait in the rings. */
static size_t pending(const struct tracing *t) {
    size_t n = 0;
    for (int i = 0; i < atomic_load(&t->board->n_workers); i++)
        n += lw_span_count(&t->board->spans[i]);
    return n;
}

/* Chooses the oldest spans of each ring for one request. Each ring may fill at most an equal share
 * of the request. Workers add spans while this function runs, so the spans of each ring are counted
 * only once. If they were counted again, the counts could add up to more spans than fit into the
 * request. */
static struct batch collect(const struct tracing *t) {
    struct batch b = {0};
    size_t rings = 0;
    int workers = atomic_load(&t->board->n_workers);
    for (int i = 0; i < workers; i++) {
        b.of[i] = lw_span_count(&t->board->spans[i]);
        rings += b.of[i] > 0;
    }
    for (int i = 0; i < workers && rings; i++) {
        if (b.of[i] > BATCH / rings) b.of[i] = BATCH / rings;
        b.n += b.of[i];
    }
    assert(b.n <= BATCH);
    return b;
}

static char *encode(const struct tracing *t, const struct batch *b) {
    struct lw_otlp *o = lw_otlp_open(t->c, t->host, t->instance);
    for (int i = 0; i < LW_BOARD_WORKERS; i++)
        for (size_t k = 0; k < b->of[i]; k++) lw_otlp_add(o, i, lw_span_at(&t->board->spans[i], k));
    return lw_otlp_close(o);
}

static void release(const struct tracing *t, const struct batch *b) {
    for (int i = 0; i < LW_BOARD_WORKERS; i++)
        if (b->of[i]) lw_span_release(&t->board->spans[i], b->of[i]);
}

/* --- what became of a request ----------------------------------------------------------------- */

static void count_lost(struct tracing *t, enum lw_span_loss why, uint64_t n) {
    atomic_fetch_add(&t->board->spans_lost[why], n);
    t->lost += n;
}

/* Returns true if a failure may be logged now, and notes the time of that log line. One line is
 * allowed per TELL_MS. */
static bool tells(struct tracing *t) {
    int64_t now = lw_boot_ms();
    if (t->told_ms && now - t->told_ms < TELL_MS) return false;
    t->told_ms = now;
    return true;
}

static void tell_away(struct tracing *t, const char *why, bool last, int64_t wait_ms) {
    char next[48] = "these are given up";
    if (!tells(t)) return;
    if (!last) snprintf(next, sizeof next, "retrying in %" PRId64 " ms", wait_ms < 0 ? 0 : wait_ms);
    lw_warn("spans can't be sent to %s: %s; %s; %" PRIu64
            " spans given up so far; no message waits for this",
            t->c->tracing.endpoint, why, next, t->lost);
}

static void tell_refused(struct tracing *t, const char *why) {
    if (!tells(t)) return;
    lw_warn("spans were refused by %s: %s; %" PRIu64
            " spans given up so far; no message waits for this",
            t->c->tracing.endpoint, why, t->lost);
}

static void tell_well(struct tracing *t) {
    if (t->told_ms)
        lw_info("%s takes spans again; %" PRIu64 " spans were given up", t->c->tracing.endpoint,
                t->lost);
    t->told_ms = 0;
    t->lost = 0;
}

static void taken(struct tracing *t, const struct batch *b, const struct lw_post_answer *a) {
    uint64_t rejected = (uint64_t)a->rejected < b->n ? (uint64_t)a->rejected : b->n;
    atomic_fetch_add(&t->board->spans_sent, b->n - rejected);
    count_lost(t, LW_SPAN_REJECTED, rejected);
    if (rejected)
        tell_refused(t, a->why);
    else
        tell_well(t);
}

/* Returns the time in ms to wait before the next post. This is the time for which the endpoint has
 * asked. If it has asked for none, the time is backoff_ms plus or minus a random part of at most an
 * eighth, so that many supervisors do not post at the same time. */
static int64_t wait_of(const struct lw_post_answer *a, int64_t backoff_ms) {
    if (a->retry_after_ms) return a->retry_after_ms;
    return backoff_ms - backoff_ms / 8 + lw_boot_us() % (backoff_ms / 4);
}

/* Posts a request until the endpoint accepts or refuses it, or until the next post would come more
 * than give_up_ms after the first. After SIGTERM posts the request only once more. Returns false if
 * the request was neither accepted nor refused. */
static bool deliver(struct tracing *t, const struct batch *b, const char *text) {
    struct lw_post_answer a;
    int64_t first_ms = lw_boot_ms(), backoff_ms = t->times.backoff_ms;
    for (bool last = stopping;; last = stopping) {
        int64_t timeout_ms = t->c->tracing.timeout_ms;
        lw_post_send(t->post, text,
                     stopping ? lw_earlier(timeout_ms, t->times.last_ms) : timeout_ms, &a);
        if (a.end != LW_POST_LATER) break;
        int64_t until_ms = lw_boot_ms() + wait_of(&a, backoff_ms);
        last |= until_ms > first_ms + t->times.give_up_ms || (stopping && a.retry_after_ms);
        if (last) count_lost(t, LW_SPAN_UNREACHABLE, b->n), release(t, b);
        tell_away(t, a.why, last, until_ms - lw_boot_ms());
        pause_until(until_ms);
        if (last) return false;
        backoff_ms = lw_earlier(2 * backoff_ms, t->times.backoff_max_ms);
    }
    if (a.end == LW_POST_TAKEN) {
        taken(t, b, &a);
    } else {
        count_lost(t, LW_SPAN_REFUSED, b->n);
        tell_refused(t, a.why);
    }
    release(t, b);
    return true;
}

static bool send_batch(struct tracing *t) {
    struct batch b = collect(t);
    char *text = encode(t, &b);
    bool settled = deliver(t, &b, text);
    free(text);
    return settled;
}

/* --- the process ------------------------------------------------------------------------------ */

/* Returns true if a request is due. */
static bool is_due(struct tracing *t) {
    size_t n = pending(t);
    int64_t now = lw_boot_ms();
    if (!n) t->pending_ms = 0;
    if (n && !t->pending_ms) t->pending_ms = now;
    return n >= BATCH || (n && now - t->pending_ms >= t->times.linger_ms);
}

static void run(struct tracing *t) {
    while (!stopping) {
        if (is_due(t)) {
            t->pending_ms = 0;
            send_batch(t);
        } else {
            pause_until(lw_boot_ms() + LOOK_MS);
        }
    }
    while (pending(t) && send_batch(t)) continue;
}

static void name_self(struct tracing *t) {
    lw_host(t->host);
    t->host[strcspn(t->host, "/")] = '\0';
    snprintf(t->instance, sizeof t->instance, "%s:%d", t->host, (int)getppid());
}

static void watch_signals(void) {
    struct sigaction act = {.sa_handler = on_term};
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigaction(SIGTERM, &act, NULL);
    /* The handler of SIGTERM is installed now. The parent may have blocked the signal, so that it
     * does not arrive earlier. */
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

static int64_t either(int64_t set, int64_t dflt) { return set ? set : dflt; }

static struct lw_tracing_times with_defaults(const struct lw_tracing_times *t) {
    return (struct lw_tracing_times){.linger_ms = either(t->linger_ms, LINGER_MS),
                                     .backoff_ms = either(t->backoff_ms, BACKOFF_MS),
                                     .backoff_max_ms = either(t->backoff_max_ms, BACKOFF_MAX_MS),
                                     .give_up_ms = either(t->give_up_ms, GIVE_UP_MS),
                                     .last_ms = either(t->last_ms, LAST_MS)};
}

int lw_tracing_run(const struct lw_config *c, struct lw_board *board,
                   const struct lw_tracing_times *times) {
    struct tracing t = {.c = c, .board = board, .times = with_defaults(times)};
    struct lw_err err = {0};
    watch_signals();
    setpriority(PRIO_PROCESS, 0, NICENESS);
    name_self(&t);
    t.post = lw_post_open(c, &err);
    if (!t.post) {
        lw_error("spans can't be sent: %s; this process ends", err.text);
        return LW_EXIT_FAILED;
    }
    lw_info("spans go to %s", c->tracing.endpoint);
    run(&t);
    lw_post_close(t.post);
    return LW_EXIT_OK;
}

int lw_tracing_main(const struct lw_config *c, struct lw_board *board) {
    return lw_tracing_run(c, board, &(struct lw_tracing_times){0});
}
