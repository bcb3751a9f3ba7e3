/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/breaker.h"

#include "base/log.h"
#include "handlers/reason.h"
#include "handlers/trial.h"

#include <inttypes.h>
#include <stdio.h>

void breaker_open(struct breaker *b, const char *service, int percent, int row_max,
                  int64_t pause_max_ms) {
    *b = (struct breaker){
        .percent = percent,
        .row_max = row_max,
        .refused_max = BREAKER_REFUSED,
        .service = service,
        .pause_max_ms = pause_max_ms < BREAKER_PAUSE_MAX_MS ? pause_max_ms : BREAKER_PAUSE_MAX_MS};
    pthread_mutex_init(&b->lock, NULL);
}

void breaker_close(struct breaker *b) { pthread_mutex_destroy(&b->lock); }

enum lw_http_breaker breaker_state(const struct breaker *b, int64_t now_ms) {
    if (!atomic_load(&b->open)) return LW_HTTP_CLOSED;
    return now_ms < atomic_load(&b->until_ms) ? LW_HTTP_OPEN : LW_HTTP_HALF_OPEN;
}

/* --- the window ------------------------------------------------------------------------------- */

static void count(struct breaker *b, int64_t now_ms, bool failed) {
    int64_t second = now_ms / 1000;
    struct breaker_second *s = &b->window[second % BREAKER_WINDOW_S];
    if (s->second != second) *s = (struct breaker_second){.second = second};
    s->requests++;
    s->failed += failed;
}

/* Returns true if too many of the requests within the last BREAKER_WINDOW_S seconds have failed.
 * `text` then receives the numbers. */
static bool rate_is_bad(const struct breaker *b, int64_t now_ms, char *text, size_t size) {
    uint64_t requests = 0, failed = 0;
    for (int i = 0; i < BREAKER_WINDOW_S; i++) {
        if (b->window[i].second <= now_ms / 1000 - BREAKER_WINDOW_S) continue;
        requests += b->window[i].requests;
        failed += b->window[i].failed;
    }
    if (!b->percent || requests < BREAKER_REQUESTS_MIN ||
        100 * failed < (uint64_t)b->percent * requests)
        return false;
    snprintf(text, size, "%" PRIu64 " of %" PRIu64 " requests failed within %d s", failed, requests,
             BREAKER_WINDOW_S);
    return true;
}

static void forget(struct breaker *b) {
    memset(b->window, 0, sizeof b->window);
    b->refused = b->row = 0;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void set_why(struct breaker *b, const char *why) {
    pthread_mutex_lock(&b->lock);
    lw_reason_copy(b->why, why);
    pthread_mutex_unlock(&b->lock);
}

static void pause_for(struct breaker *b, int64_t pause_ms, int64_t now_ms) {
    b->pause_ms = pause_ms < b->pause_max_ms ? pause_ms : b->pause_max_ms;
    atomic_store(&b->until_ms, now_ms + b->pause_ms);
    atomic_store(&b->open, true);
}

static void trip(struct breaker *b, int64_t now_ms, const char *what, const char *why) {
    set_why(b, why);
    pause_for(b, lw_trial_first_pause_ms(BREAKER_PAUSE_MS, b->pause_max_ms), now_ms);
    forget(b);
    if (b->counts) atomic_fetch_add(&b->counts->openings, 1);
    lw_warn("handler: %s: %s, the last one: %s; pausing for %" PRId64
            " ms, then a few messages test it",
            b->service, what, why, b->pause_ms);
}

static void trial_failed(struct breaker *b, int64_t now_ms, const char *why) {
    set_why(b, why);
    pause_for(b, 2 * b->pause_ms, now_ms);
    lw_warn("handler: %s: the test failed: %s; pausing for %" PRId64
            " ms, then a few messages test it",
            b->service, why, b->pause_ms);
}

void breaker_answered(struct breaker *b, int64_t now_ms) {
    if (!atomic_load(&b->open)) {
        b->refused = b->row = 0;
        count(b, now_ms, false);
    } else {
        forget(b);
        atomic_store(&b->open, false);
        lw_info("handler: %s answers; resuming", b->service);
    }
}

/* Counts a failure in `row`. If several requests were under way together, their failures count
 * once, because one broken connection may have carried all of them. */
static void count_in_row(struct breaker *b, int64_t begun_ms, int64_t now_ms) {
    if (b->row && begun_ms < b->failed_ms) return;
    b->row++;
    b->failed_ms = now_ms;
}

bool breaker_failed(struct breaker *b, const struct breaker_request *r, enum breaker_failure how,
                    int64_t now_ms, const char *why) {
    char what[96];
    if (atomic_load(&b->open)) {
        /* A failure of a request sent before the breaker opened does not extend the pause. */
        if (r->trial && breaker_state(b, now_ms) == LW_HTTP_HALF_OPEN) trial_failed(b, now_ms, why);
        return true;
    }
    count(b, now_ms, true);
    count_in_row(b, r->begun_ms, now_ms);
    b->refused = how == BREAKER_REFUSED_CONNECTION ? b->refused + 1 : 0;
    if (b->refused >= b->refused_max)
        snprintf(what, sizeof what, "%d connections in a row failed", b->refused);
    else if (b->row >= b->row_max)
        snprintf(what, sizeof what, "%d requests in a row failed", b->row);
    else if (!rate_is_bad(b, now_ms, what, sizeof what))
        return false;
    trip(b, now_ms, what, why);
    return true;
}

enum lw_health breaker_health(struct breaker *b, int64_t now_ms, char *why, size_t size) {
    static const enum lw_health health[] = {
        [LW_HTTP_CLOSED] = LW_WELL, [LW_HTTP_OPEN] = LW_UNABLE, [LW_HTTP_HALF_OPEN] = LW_ON_TRIAL};
    enum lw_http_breaker state = breaker_state(b, now_ms);
    if (why && state != LW_HTTP_CLOSED) {
        pthread_mutex_lock(&b->lock);
        snprintf(why, size, "handler: %s: %s", b->service, b->why);
        pthread_mutex_unlock(&b->lock);
    }
    return health[state];
}
