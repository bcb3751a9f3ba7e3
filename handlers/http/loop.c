/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one thread that drives all requests of this worker. A turn of the loop:
 *
 *     wait for events
 *     let libcurl handle its sockets and its timer
 *     end the requests that are over
 *     check leases and timeouts
 *     give jobs to free calls
 *     let libcurl start the new requests
 *     publish the ended jobs
 *
 * libcurl says which sockets and which timer to wait for, and is called only for sockets that are
 * ready and when its timer has expired. */
#include "base/clock.h"
#include "base/log.h"
#include "handlers/feed.h"
#include "handlers/http/private.h"
#include "handlers/reason.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

enum {
    EVENTS = 64,
    SHARED = 256, /* number of TLS requests after which a connection is closed */
};

/* --- what libcurl waits for ------------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known) {
    struct lw_handler *h = ctx;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        /* EPOLL_CTL_DEL fails if the socket is already closed, which does no harm. */
        epoll_ctl(h->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    struct epoll_event ev = {.events = (what & CURL_POLL_IN ? EPOLLIN : 0) |
                                       (what & CURL_POLL_OUT ? EPOLLOUT : 0),
                             .data.u64 = (uint64_t)fd};
    if (epoll_ctl(h->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) &&
        epoll_ctl(h->epoll, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &ev))
        lw_error("handler: can't watch a connection: epoll: %s", strerror(errno));
    /* After curl_multi_assign(), later calls of on_socket() for this socket get h as `known`. */
    if (!known) curl_multi_assign(h->multi, fd, h);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *ctx) {
    struct lw_handler *h = ctx;
    (void)multi;
    h->timer_ms = ms < 0 ? INT64_MAX : lw_boot_ms() + ms;
    return 0;
}

/* Calls libcurl when its timer has expired. Adding a request makes the timer expire at once, so
 * this function also starts new requests. */
static void run_timer(struct lw_handler *h) {
    int running;
    for (int i = 0; i < 4 && h->timer_ms <= lw_boot_ms(); i++) {
        h->timer_ms = INT64_MAX;
        curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

static void run_socket(struct lw_handler *h, const struct epoll_event *ev) {
    int running, what = 0;
    if (ev->events & (EPOLLIN | EPOLLHUP)) what |= CURL_CSELECT_IN;
    if (ev->events & EPOLLOUT) what |= CURL_CSELECT_OUT;
    if (ev->events & EPOLLERR) what |= CURL_CSELECT_ERR;
    curl_multi_socket_action(h->multi, (curl_socket_t)ev->data.u64, what, &running);
}

static void run_event(struct lw_handler *h, const struct epoll_event *ev) {
    if (ev->data.u64 != (uint64_t)lw_feed_fd(h->feed)) run_socket(h, ev);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void enter(struct call *c) {
    struct lw_handler *h = c->h;
    DL_APPEND(h->first, c);
    h->n_calls++;
}

void http_leave(struct call *c) {
    struct lw_handler *h = c->h;
    /* An answer may come to a request that is given up. */
    h->sockets.cut = true;
    curl_multi_remove_handle(h->multi, c->easy);
    h->sockets.cut = false;
    struct http_socket *socket = http_socket_at(&h->sockets, c->port);
    /* libcurl may have given the connection to the next request already */
    if (socket && socket->more_came == &c->begun) socket->more_came = NULL;
    DL_DELETE(h->first, c);
    h->n_calls--;
    assert(h->n_calls >= 0);
}

static struct call *take_free(struct lw_handler *h) {
    struct call *c = h->free;
    if (!c) return call_new(h, &h->set, h->batch);
    h->free = c->next;
    return c;
}

void http_release(struct call *c) {
    call_clear(c);
    c->next = c->h->free;
    c->h->free = c;
}

/* --- starting jobs ---------------------------------------------------------------------------- */

static bool startable(const struct lw_handler *h, struct lw_job *job) {
    return lw_feed_startable(job, h->now_ms, h->margin_ms);
}

/* Decides whether the request may use a connection that is kept, and whether its own is kept. With
 * HTTP/2, libcurl 7.88 resets each stream after its response, and after too many resets a server
 * may close a connection on which other requests are under way. (Node.js allows 1,000 resets at
 * first, and 33 more per second.) So every SHARED-th TLS request is the last one of its
 * connection. */
static void limit_sharing(struct call *c) {
    struct lw_handler *h = c->h;
    bool fresh = h->now_ms < h->fresh_ms, last = h->set.tls.on && ++h->n_shared >= SHARED;
    if (last) h->n_shared = 0;
    curl_easy_setopt(c->easy, CURLOPT_FRESH_CONNECT, fresh ? 1L : 0L);
    curl_easy_setopt(c->easy, CURLOPT_FORBID_REUSE, fresh || last ? 1L : 0L);
}

void http_suspect(struct lw_handler *h, const char *what) {
    h->fresh_ms = lw_boot_ms() + HTTP_FRESH_MS;
    lw_warn_some(1,
                 "handler: %s sent %s: each request gets a connection of its own for %d s, because "
                 "an answer might be taken for that of another request",
                 h->set.service, what, HTTP_FRESH_MS / 1000);
}

void http_send(struct call *c) {
    struct lw_handler *h = c->h;
    struct lw_job *job = c->jobs[c->at];
    if (!startable(h, job)) {
        lw_feed_give_back(h->feed, job);
        http_release(c);
        return;
    }
    c->upto = c->singly ? c->at + 1 : c->n;
    c->begun_us = h->now_us;
    c->trial = breaker_state(&h->breaker, h->now_ms) != LW_HTTP_CLOSED;
    lw_feed_started(h->feed, job, h->now_ms);
    call_prepare(c, &h->set, h->now_ms, h->wall_ms);
    http_sockets_look(&h->sockets);
    limit_sharing(c);
    enter(c);
    /* adding a handle fails only if memory runs out */
    if (curl_multi_add_handle(h->multi, c->easy) != CURLM_OK) lw_or_abort(NULL);
    h->look_ms =
        lw_earlier(h->look_ms, lw_earlier(lw_feed_lease_end(job, h->margin_ms), job->give_up_ms));
}

static void begin(struct call *c, struct lw_job *job, int64_t chain_ms) {
    c->jobs[0] = job;
    c->at = 0;
    c->chain_ms = chain_ms;
    c->singly = false;
    c->n = (int)lw_job_gather(c->jobs, (size_t)c->h->batch);
    http_send(c);
}

/* Returns true if a request may start now: in_flight allows one more, and the breaker lets it
 * pass. */
static bool may_start(const struct lw_handler *h) {
    enum lw_http_breaker state = breaker_state(&h->breaker, h->now_ms);
    return h->n_calls < h->in_flight &&
           (state == LW_HTTP_CLOSED || (state == LW_HTTP_HALF_OPEN && h->n_calls < h->trial.size));
}

void http_follow(struct call *c, struct lw_job *follower) {
    struct lw_handler *h = c->h;
    bool long_chain =
        h->now_ms - c->chain_ms >= LW_FEED_CHAIN_MS && lw_feed_first(h->feed, &h->line);
    if (!long_chain && may_start(h) && startable(h, follower)) {
        begin(c, follower, c->chain_ms);
        return;
    }
    http_release(c);
    if (long_chain)
        lw_jobs_append(&h->line, follower);
    else
        lw_jobs_push_front(&h->line, follower);
}

static void dispatch(struct lw_handler *h) {
    struct lw_job *job;
    while (lw_feed_first(h->feed, &h->line) && may_start(h)) {
        if (breaker_state(&h->breaker, h->now_ms) != LW_HTTP_CLOSED)
            lw_trial_prefer(&h->trial, &h->line);
        job = lw_jobs_pop(&h->line);
        if (startable(h, job))
            begin(take_free(h), job, h->now_ms);
        else
            lw_feed_give_back(h->feed, job);
    }
    if (h->line.head && breaker_state(&h->breaker, h->now_ms) == LW_HTTP_OPEN)
        lw_feed_sweep(h->feed, &h->line, h->now_ms, h->margin_ms, true);
}

/* --- requests that are over, leases and times ------------------------------------------------- */

static void take_ended(struct lw_handler *h) {
    const CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(h->multi, &left))) {
        struct call *c = NULL;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
        if (m->msg == CURLMSG_DONE) http_settle(c, code);
    }
}

static void look_at(struct call *c) {
    struct lw_handler *h = c->h;
    const struct lw_job *job = c->jobs[c->at];
    int64_t lease = lw_feed_lease_end(job, h->margin_ms);
    if (atomic_load(&job->lease->cancelled) || h->now_ms >= lease)
        http_cancel(c);
    else if (h->now_ms >= job->give_up_ms)
        http_late(c);
    else
        h->look_ms = lw_earlier(h->look_ms, lw_earlier(lease, job->give_up_ms));
}

static void look(struct lw_handler *h) {
    if (h->now_ms < h->look_ms) return;
    h->look_ms = h->now_ms + LW_FEED_LOOK_MS;
    for (struct call *c = h->first, *next; c; c = next) {
        next = c->next;
        look_at(c);
    }
    lw_feed_sweep(h->feed, &h->line, h->now_ms, h->margin_ms, false);
}

/* --- the loop --------------------------------------------------------------------------------- */

static int wait_ms(struct lw_handler *h) {
    if (!h->line.head && !lw_feed_sleep(h->feed)) return 0;
    int64_t until = lw_earlier(h->timer_ms, h->line.head || h->n_calls ? h->look_ms : INT64_MAX);
    if (until == INT64_MAX) return -1;
    int64_t left = until - lw_boot_ms();
    return left <= 0                              ? 0
           : left > LW_FEED_LOOK_MS && h->n_calls ? LW_FEED_LOOK_MS
           : left > INT32_MAX                     ? INT32_MAX
                                                  : (int)left;
}

static void read_clocks(struct lw_handler *h) {
    h->now_us = lw_boot_us();
    h->now_ms = h->now_us / 1000;
    h->wall_ms = lw_wall_ms();
}

static void show_breaker(const struct lw_handler *h) {
    if (h->counts)
        atomic_store_explicit(&h->counts->breaker, (uint32_t)breaker_state(&h->breaker, h->now_ms),
                              memory_order_relaxed);
}

static void suspect(void *ctx, const char *what) { http_suspect(ctx, what); }

static void turn(struct lw_handler *h) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(h->epoll, events, EVENTS, wait_ms(h));
    bool fed = false;
    for (int i = 0; i < n; i++) fed |= events[i].data.u64 == (uint64_t)lw_feed_fd(h->feed);
    lw_feed_awake(h->feed, fed);
    read_clocks(h);
    for (int i = 0; i < n; i++) run_event(h, &events[i]);
    run_timer(h);
    take_ended(h);
    h->sockets.cut = false;
    look(h);
    dispatch(h);
    run_timer(h);
    take_ended(h);
    show_breaker(h);
    lw_feed_publish(h->feed);
}

static bool is_over(struct lw_handler *h) {
    enum lw_feed_stop stop = lw_feed_stopped(h->feed);
    if (stop == LW_FEED_GOES_ON || h->n_calls) return false;
    return stop == LW_FEED_DROP || !lw_feed_first(h->feed, &h->line);
}

void http_serve(struct lw_handler *h, struct lw_feed *feed) {
    lw_jobs_clear(&h->line);
    h->feed = feed;
    h->counts = h->breaker.counts = lw_feed_http(feed);
    read_clocks(h);
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)lw_feed_fd(feed)};
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, lw_feed_fd(feed), &ev))
        lw_error("handler: can't watch for new messages: epoll: %s", strerror(errno));
    do turn(h);
    while (!is_over(h));
    epoll_ctl(h->epoll, EPOLL_CTL_DEL, lw_feed_fd(feed), NULL);
    lw_jobs_clear(&h->line); /* jobs that were not started belong to the submitter again */
    h->counts = h->breaker.counts = NULL;
    h->feed = NULL;
}

int http_loop_open(struct lw_handler *h, struct lw_err *err) {
    h->timer_ms = INT64_MAX;
    h->resend_us = HTTP_RESEND_MS * INT64_C(1000);
    h->life_s = HTTP_LIFE_S;
    h->sockets = (struct http_sockets){.tls = h->set.tls.on, .suspect = suspect, .ctx = h};
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0) return lw_fail(err, "http: epoll: %s", strerror(errno));
    h->multi = curl_multi_init();
    if (!h->multi) return lw_fail(err, "http: libcurl cannot be initialised");
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)h->in_flight);
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)h->in_flight);
    return 0;
}

void http_loop_close(struct lw_handler *h) {
    h->sockets.cut = true; /* nothing is sent any more */
    if (h->multi) curl_multi_cleanup(h->multi);
    for (struct call *c = h->free, *next; c; c = next) next = c->next, call_free(c);
    http_sockets_free(&h->sockets);
    if (h->epoll >= 0) close(h->epoll);
}
