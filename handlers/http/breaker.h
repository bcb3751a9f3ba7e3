/* SPDX-License-Identifier: Apache-2.0 */
/* breaker: stops sending requests to a service that is down, so that its messages wait instead of
 * using up their attempts.
 *
 *               connections fail, or too many requests fail         pause over
 *     CLOSED ──────────────────────────────────────────────> OPEN ──────────────> HALF_OPEN
 *       ^                                                     ^                      |  |
 *       |                                                     '──────────────────────'  |
 *       |                                     the trial fails: the pause doubles        |
 *       '───────────────────────────────────────────────────────────────────────────────'
 *                                     any request is answered
 *
 * A request fails if it gets no response or a 5xx. The breaker opens
 *
 *     - when `refused_max` connections in a row could not be made,
 *     - when `row_max` requests in a row have failed, each sent after the failure of the one before
 *       it, or
 *     - when at least BREAKER_REQUESTS_MIN requests ended within BREAKER_WINDOW_S seconds, and the
 *       percentage of failed ones among them is `percent` or more.
 *
 * Any thread may call breaker_health() and breaker_state(). All other functions must be called by
 * one and the same thread. */
#ifndef LW_HANDLERS_HTTP_BREAKER_H
#define LW_HANDLERS_HTTP_BREAKER_H

#include "handlers/handler.h"
#include "handlers/http/counts.h"

#include <pthread.h>

enum {
    BREAKER_WINDOW_S = 10,
    BREAKER_REQUESTS_MIN = 20,
    BREAKER_PAUSE_MS = 500,
    BREAKER_PAUSE_MAX_MS = 30000,
    BREAKER_REFUSED = 3
};

struct breaker {
    /* `percent` is the percentage of failed requests that opens the breaker; 0: the percentage
     * does not matter */
    int percent;
    int row_max;     /* number of failed requests in a row that opens the breaker */
    int refused_max; /* number of failed connections in a row that opens the breaker */
    const char *service;
    /* `counts` holds the counts of the http handler, among them how often the breaker has opened;
     * NULL: nothing is counted */
    struct lw_http_counts *counts;
    /* number of connections (`refused`) and of requests (`row`) that have failed in a row */
    int refused, row;
    int64_t failed_ms; /* time of the last failure counted in `row`; boot clock */
    struct breaker_second {
        int64_t second;
        uint32_t requests, failed;
    } window[BREAKER_WINDOW_S];
    int64_t pause_ms, pause_max_ms; /* length of the current pause, and of the longest one */
    atomic_bool open;               /* true while OPEN or HALF_OPEN */
    _Atomic int64_t until_ms;
    pthread_mutex_t lock; /* guards `why` */
    char why[LW_REASON_MAX];
};

enum breaker_failure {
    /* BREAKER_REFUSED_CONNECTION: no connection could be made, so the request did not reach the
     * service */
    BREAKER_REFUSED_CONNECTION,
    BREAKER_FAILED, /* a 5xx, no response in time, or an incomplete response */
};

struct breaker_request {
    int64_t begun_ms; /* time when the request was sent; boot clock */
    bool trial;       /* the request was sent while the breaker was HALF_OPEN */
};

/* `pause_max_ms` is the longest pause; at most BREAKER_PAUSE_MAX_MS. */
void breaker_open(struct breaker *b, const char *service, int percent, int row_max,
                  int64_t pause_max_ms);
void breaker_close(struct breaker *b);

/* Takes note of a request that got a response with a status below 500. This closes the breaker. */
void breaker_answered(struct breaker *b, int64_t now_ms);
/* Takes note of a request that failed. Returns true if the breaker was already open or was opened
 * by this failure. Then the service is at fault, and the caller gives the message back without
 * counting an attempt. */
bool breaker_failed(struct breaker *b, const struct breaker_request *r, enum breaker_failure how,
                    int64_t now_ms, const char *why);
enum lw_http_breaker breaker_state(const struct breaker *b, int64_t now_ms);
enum lw_health breaker_health(struct breaker *b, int64_t now_ms, char *why, size_t size);

#endif
