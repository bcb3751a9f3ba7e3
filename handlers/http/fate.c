/* SPDX-License-Identifier: Apache-2.0 */
/* fate: what becomes of the messages of a request that is over.
 *
 *     end of the request                      breaker closed       breaker open
 *     response                                as answer.h says     as answer.h says, but back for
 *                                                                  a 5xx without an outcome
 *     no connection, or a timeout before
 *       a byte was sent                       retry, no attempt    back
 *     timeout, or incomplete response         retry                back
 *     response longer than allowed            retry                retry
 *     lease lost                              back                 back
 *
 * "back" counts no attempt. If a batch is refused as a whole, its messages are sent again one by
 * one, so that only the bad message becomes a dead letter. */
#include "handlers/feed.h"
#include "handlers/http/private.h"
#include "handlers/reason.h"

#include <inttypes.h>
#include <stdio.h>

static void count_code(const struct lw_handler *h, int code) {
    if (h->counts) atomic_fetch_add_explicit(&h->counts->requests[code], 1, memory_order_relaxed);
}

/* Counts the connections that libcurl has made for this call. */
/* Returns the number of connections that were made for the call; 0: it used one that was kept. */
static long connections_of(const struct call *c) {
    long n = 0;
    curl_easy_getinfo(c->easy, CURLINFO_NUM_CONNECTS, &n);
    return n;
}

static void count_connections(const struct call *c) {
    long n = connections_of(c);
    if (n > 0 && c->h->counts)
        atomic_fetch_add_explicit(&c->h->counts->connections, (uint64_t)n, memory_order_relaxed);
}

/* --- outcomes of messages --------------------------------------------------------------------- */

/* Reports the outcome of the message at jobs[at]. Returns the follower of the message if the
 * message is done, is the last one of the call, and has a follower. Otherwise returns NULL. */
static struct lw_job *end_message(struct call *c, const struct http_verdict *v, int64_t took_us) {
    struct lw_job *job = c->jobs[c->at];
    lw_job_answer(job, v->outcome, v->reason);
    if (v->outcome == LW_RETRY || v->outcome == LW_BACK) job->wait_ms = v->retry.wait_ms;
    if (v->outcome == LW_RETRY) job->uncounted = v->retry.uncounted;
    struct lw_job *follower = c->at == c->n - 1 ? lw_job_end(job) : NULL;
    lw_feed_ended(c->h->feed, job, took_us > 0 ? took_us : 1);
    return follower;
}

/* Ends the call. The message at jobs[at] gets the outcome `outcome`. The later messages of the call
 * get no outcome, and belong again to the thread that reaps jobs. */
static void end_call(struct call *c, enum lw_outcome outcome, const char *reason,
                     struct lw_retry retry) {
    struct http_verdict v = {.outcome = outcome, .retry = retry};
    lw_reason_copy(v.reason, reason);
    end_message(c, &v, c->h->now_us - c->begun_us);
    http_release(c);
}

/* Ends a call that has failed. If `down` is true, the breaker is open, so the service is at fault,
 * and no attempt is counted. The message then rests for longer than the breaker's pause, so that
 * other messages come first in the next trial. A message of which no byte was sent counts no
 * attempt either; its wait of 1 ms becomes retry.backoff_ms. */
static void end_failed(struct call *c, bool down, const char *why) {
    c->jobs[c->at]->unsent = !c->sends;
    if (down)
        end_call(c, LW_BACK, "",
                 (struct lw_retry){.wait_ms = lw_trial_rest_ms(c->h->breaker.pause_ms)});
    else if (!c->sends)
        end_call(c, LW_RETRY, why, (struct lw_retry){.wait_ms = 1, .uncounted = true});
    else
        end_call(c, LW_RETRY, why, (struct lw_retry){0});
}

static struct breaker_request request(const struct call *c) {
    return (struct breaker_request){.begun_ms = c->begun_us / 1000, .trial = c->trial};
}

/* Takes note of a request that failed. Returns true if the service is at fault, and false if the
 * message may be. If no byte of it was sent, its failure says nothing about the message. */
static bool failed(const struct call *c, enum breaker_failure how, const char *why) {
    struct lw_handler *h = c->h;
    struct breaker_request r = request(c);
    if (c->sends && lw_trial_failed(&h->trial, c->jobs[c->at]->identity)) return false;
    bool trial = r.trial && breaker_state(&h->breaker, h->now_ms) == LW_HTTP_HALF_OPEN;
    return (trial && !lw_trial_over(&h->trial)) ||
           breaker_failed(&h->breaker, &r, how, h->now_ms, why);
}

static void answered(const struct call *c) {
    lw_trial_succeeded(&c->h->trial, c->jobs[c->at]->identity);
    breaker_answered(&c->h->breaker, c->h->now_ms);
}

/* Sets the outcomes of the request's messages, in order, from the response. The first message that
 * is not done is the last to get its outcome; the function then returns false. Returns true if all
 * messages are done. */
static bool take_outcomes(struct call *c, const struct http_verdict *by_status,
                          const json_t *document, struct lw_job **follower) {
    int n = c->upto - c->at;
    int64_t took_us = (c->h->now_us - c->begun_us) / n;
    for (int i = 0; i < n; i++, c->at++) {
        struct http_verdict v = *by_status;
        if (document)
            answer_by_document(document, (size_t)i, (size_t)n, c->jobs[c->at]->identity, &v);
        if (i) lw_feed_started(c->h->feed, c->jobs[c->at], c->h->now_ms);
        *follower = end_message(c, &v, took_us);
        if (v.outcome != LW_DONE) return false;
    }
    return true;
}

static void go_on(struct call *c, const struct http_verdict *by_status, const json_t *document) {
    struct lw_job *follower = NULL;
    bool all_done = take_outcomes(c, by_status, document, &follower);
    if (all_done && c->at < c->n)
        http_send(c);
    else if (all_done && follower)
        http_follow(c, follower);
    else
        http_release(c);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void take_answer(struct call *c) {
    struct lw_handler *h = c->h;
    struct http_answer answer = call_answer(c);
    struct http_verdict v;
    answer_by_status(&answer, h->wall_ms / 1000, &v);
    count_code(h, lw_http_code_of(answer.status));
    bool down = answer.status >= 500 && failed(c, BREAKER_FAILED, v.reason);
    if (answer.status < 500) answered(c);
    struct lw_err err = {0};
    json_t *document;
    bool unreadable = answer_document(&answer, &document, &err) != 0;
    if (unreadable) {
        v.outcome = LW_RETRY;
        lw_reason_copy(v.reason, err.text);
    }
    if (down && !document) {
        end_failed(c, true, "");
    } else if (v.outcome == LW_DEAD && !document && c->upto - c->at > 1) {
        c->singly = true;
        http_send(c);
    } else {
        go_on(c, &v, document);
    }
    json_decref(document);
}

static void take_failure(struct call *c, enum call_end end, const char *why) {
    static const enum lw_http_code codes[] = {[CALL_UNREACHED] = LW_HTTP_UNREACHED,
                                              [CALL_TLS] = LW_HTTP_TLS,
                                              [CALL_BROKEN] = LW_HTTP_BROKEN,
                                              [CALL_TOO_LONG] = LW_HTTP_BROKEN};
    struct lw_handler *h = c->h;
    bool refused = end == CALL_UNREACHED || end == CALL_TLS, down = false;
    count_code(h, codes[end]);
    if (end == CALL_TOO_LONG)
        answered(c);
    else
        down = failed(c, refused ? BREAKER_REFUSED_CONNECTION : BREAKER_FAILED, why);
    end_failed(c, down, why);
}

/* Returns true if the transfer used a connection that earlier requests had used, and what came on
 * it is no answer of HTTP. It may be the rest of an earlier answer. */
static bool met_a_rest(const struct call *c, CURLcode code) {
    return connections_of(c) == 0 &&
           (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY);
}

void http_settle(struct call *c, CURLcode code) {
    char why[LW_REASON_MAX];
    enum call_end end = call_ended(c, code, &c->h->set, why, sizeof why);
    if (met_a_rest(c, code)) http_suspect(c->h, "bytes that are no answer");
    count_connections(c);
    http_leave(c);
    if (end == CALL_ANSWERED)
        take_answer(c);
    else if (end == CALL_UNSENT)
        http_send(c);
    else
        take_failure(c, end, why);
}

/* --- aborted transfers ------------------------------------------------------------------------ */

void http_cancel(struct call *c) {
    count_connections(c);
    count_code(c->h, LW_HTTP_CANCELLED);
    http_leave(c);
    end_call(c, LW_BACK, "", (struct lw_retry){0});
}

void http_late(struct call *c) {
    char why[64];
    snprintf(why, sizeof why, "timed out after %" PRId64 " ms", c->h->timeout_ms);
    count_connections(c);
    count_code(c->h, LW_HTTP_TIMEOUT);
    http_leave(c);
    end_failed(c, failed(c, BREAKER_FAILED, why), why);
}
