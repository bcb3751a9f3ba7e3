/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one thread that drives all handler processes of this worker. A turn of the loop:
 *
 *     wait for events
 *     read answers, and take note of processes that have ended
 *     check leases and timeouts
 *     give jobs to processes with room
 *     write to the processes
 *     publish the ended jobs
 *
 * Each turn writes to a process at most once, and publishes all jobs that ended in the turn
 * together. */
#include "handlers/exec/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "handlers/feed.h"
#include "handlers/reason.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    /* A process with more unsent bytes than UNSENT_MAX gets no further requests. */
    UNSENT_MAX = 1 << 18,
};

static void look_by(struct lw_handler *h, int64_t ms) { h->look_ms = lw_earlier(h->look_ms, ms); }

/* --- jobs in line ----------------------------------------------------------------------------- */

/* Returns true if the job may start: its lease is not cancelled, and enough of the lease is left.
 * Otherwise the caller must give the job back. */
static bool startable(const struct lw_handler *h, struct lw_job *job) {
    return lw_feed_startable(job, h->now_ms, h->margin_ms);
}

/* --- requests --------------------------------------------------------------------------------- */

static void has_to_send(struct proc *p) {
    if (p->dirty) return;
    p->dirty = true;
    p->next_dirty = p->h->dirty;
    p->h->dirty = p;
}

/* Returns how many messages, from jobs[at] on, go into one line. `limit` is the maximum number of
 * messages that the process may have. A suspect always begins a new line, because a process that
 * gets a suspect has a lower limit, which the messages before the suspect could exceed. */
static int count_together(const struct request *r, int limit) {
    const struct suspects *s = &r->p->h->suspects;
    int n = 1, most = limit - r->p->n_messages;
    while (r->at + n < r->n && n < most &&
           suspects_limit(s, r->jobs[r->at + n]->identity) == ANY_COMPANY)
        n++;
    return n;
}

static void begin_message(struct request *r) {
    struct lw_handler *h = r->p->h;
    struct lw_job *job = r->jobs[r->at];
    lw_feed_started(h->feed, job, h->now_ms);
    look_by(h, lw_earlier(lw_feed_lease_end(job, h->margin_ms), job->give_up_ms));
}

/* Sends a line with the message at jobs[at] and the messages after it that may go into the same
 * line. */
static void send_request(struct request *r) {
    struct proc *p = r->p;
    int limit = suspects_limit(&p->h->suspects, r->jobs[r->at]->identity);
    if (limit < p->limit) p->limit = limit;
    int n = count_together(r, p->limit);
    r->upto = r->at + n;
    r->begun_us = p->h->now_us;
    r->place = p->sent + (p->out.n - p->out_at);
    p->n_messages += n;
    p->h->held += n;
    lw_exec_request(&p->out, r->jobs + r->at, (size_t)n,
                    p->h->timeout_ms > 0 ? lw_wall_ms() + p->h->timeout_ms : 0);
    has_to_send(p);
    begin_message(r);
}

/* Returns false if a process without requests has died, or has written a line although it was asked
 * nothing. Such a process is ended. Without this check, its next message would be blamed for the
 * earlier fault. */
static bool is_sound(struct proc *p) {
    if (p->n_requests || !p->sent) return true;
    enum heard heard = exec_hear_all(p);
    if (p->state != PROC_UP) return false;
    if (heard != HEARD_END && !lw_child_ended(&p->child, NULL, 0)) return true;
    exec_died(p);
    return false;
}

static void begin(struct proc *p, struct lw_job *job, int64_t chain_ms) {
    struct lw_handler *h = p->h;
    if (!startable(h, job)) {
        lw_feed_give_back(h->feed, job);
    } else if (!is_sound(p)) {
        lw_jobs_push_front(&h->line, job);
    } else {
        /* Forget the last line of stderr, so that later trouble is not explained by an old line.
         * Before the first request the line stays, because it may say why the process cannot
         * start. */
        if (!p->n_requests && p->sent) lw_last_words_clear(p->words);
        struct request *r = request_new(p, job);
        r->chain_ms = chain_ms;
        r->n = (int)lw_job_gather(r->jobs, (size_t)h->batch);
        send_request(r);
    }
}

static bool takes(const struct proc *p, int limit) {
    struct lw_handler *h = p->h;
    /* A trial gives each process one message, so that it is known of which message one died. */
    if (atomic_load(&h->trouble.unable) && (p->n_requests || h->held >= h->trial.size))
        return false;
    if (p->state != PROC_UP || p->n_requests >= p->h->in_flight ||
        p->out.n - p->out_at > UNSENT_MAX || (p->deaf && p->n_requests))
        return false;
    if (limit == ANY_COMPANY && p->limit == ANY_COMPANY) return p != p->h->reserved;
    return p == p->h->reserved && p->n_messages < (limit < p->limit ? limit : p->limit);
}

/* Appends the job to the list of followers, which start after all answers of this turn have been
 * taken. */
static void follow(struct request *r, struct lw_job *job) {
    struct lw_handler *h = r->p->h;
    request_leave(r);
    r->jobs[0] = job;
    *h->followers_end = r;
    h->followers_end = &r->next;
}

/* Starts each follower in the process that ran the job before it, or puts it at the front of the
 * queue if that process has no room. A follower goes to the end of the queue instead if its chain
 * has run for LW_FEED_CHAIN_MS and other jobs wait. */
static void start_followers(struct lw_handler *h) {
    struct request *all = h->followers;
    h->followers = NULL;
    h->followers_end = &h->followers;
    for (struct request *r = all, *next; r; r = next) {
        struct lw_job *job = r->jobs[0];
        int64_t chain_ms = r->chain_ms;
        struct proc *p = r->p;
        next = r->next;
        request_free(h, r);
        if (h->now_ms - chain_ms >= LW_FEED_CHAIN_MS && lw_feed_first(h->feed, &h->line))
            lw_jobs_append(&h->line, job);
        else if (takes(p, suspects_limit(&h->suspects, job->identity)))
            begin(p, job, chain_ms);
        else
            lw_jobs_push_front(&h->line, job);
    }
}

/* Sends the next line of a request, after all messages of the previous line have been answered. If
 * the lease of the next message is about to end, or the process is being ended, gives that message
 * back instead. */
static void send_rest(struct request *r) {
    struct lw_job *job = r->jobs[r->at];
    struct lw_handler *h = r->p->h;
    r->grace_ms = 0;
    r->late = false;
    if (startable(h, job) && r->p->state == PROC_UP) {
        send_request(r);
        return;
    }
    lw_feed_give_back(h->feed, job);
    request_leave(r);
    request_free(h, r);
}

void exec_go_on(struct request *r, struct lw_job *follower) {
    if (follower) {
        follow(r, follower);
        return;
    }
    request_move(r, r->at + 1);
    if (r->at == r->upto)
        send_rest(r);
    else
        begin_message(r);
}

/* --- giving jobs to processes ----------------------------------------------------------------- */

static struct proc *least_loaded(struct lw_handler *h, int limit) {
    struct proc *best = NULL;
    for (int i = 0; i < h->n_used; i++) {
        struct proc *p = &h->procs[i];
        if (!takes(p, limit) || (best && best->n_requests <= p->n_requests)) continue;
        best = p;
        if (!p->n_requests) break;
    }
    return best;
}

/* Reserves a running process for suspects, unless one is reserved already. Chooses the process with
 * the fewest messages. */
static void reserve(struct lw_handler *h) {
    if (h->reserved && h->reserved->state == PROC_UP) return;
    h->reserved = NULL;
    for (int i = 0; i < h->n_used; i++) {
        struct proc *p = &h->procs[i];
        if (p->state == PROC_UP && (!h->reserved || p->n_messages < h->reserved->n_messages))
            h->reserved = p;
    }
}

static void start_suspects(struct lw_handler *h) {
    while (h->apart.head) {
        reserve(h);
        struct lw_job *job = h->apart.head;
        if (!h->reserved || !takes(h->reserved, suspects_limit(&h->suspects, job->identity)))
            return;
        begin(h->reserved, lw_jobs_pop(&h->apart), h->now_ms);
    }
    h->reserved = NULL;
}

static void start_jobs(struct lw_handler *h) {
    struct lw_job *job;
    while (lw_feed_first(h->feed, &h->line)) {
        if (atomic_load(&h->trouble.unable)) lw_trial_prefer(&h->trial, &h->line);
        job = h->line.head;
        int limit = suspects_limit(&h->suspects, job->identity);
        struct proc *p = limit == ANY_COMPANY ? least_loaded(h, limit) : NULL;
        if (limit != ANY_COMPANY)
            lw_jobs_append(&h->apart, lw_jobs_pop(&h->line));
        else if (p)
            begin(p, lw_jobs_pop(&h->line), h->now_ms);
        else
            return;
    }
}

/* Starts processes. While the command is known to be at fault (`unable` in trouble.h), starts only
 * as many as the trial has messages. */
static void start_processes(struct lw_handler *h) {
    int there = 0, most = atomic_load(&h->trouble.unable) ? h->trial.size : h->n_used;
    for (int i = 0; i < h->n_used; i++) there += h->procs[i].state != PROC_NONE;
    for (int i = 0; i < h->n_used && there < most; i++) {
        struct proc *p = &h->procs[i];
        if (p->state != PROC_NONE || h->now_ms < p->start_ms) continue;
        proc_start(p);
        there++;
    }
}

static void dispatch(struct lw_handler *h) {
    start_followers(h);
    if (!lw_feed_first(h->feed, &h->line) && !h->apart.head) return;
    bool pauses = trouble_pauses(&h->trouble, h->now_ms);
    if (!pauses) {
        start_processes(h);
        start_jobs(h);
        start_suspects(h);
    }
    if (h->now_ms - h->sweep_ms < LW_FEED_LOOK_MS && !pauses) return;
    h->sweep_ms = h->now_ms;
    lw_feed_sweep(h->feed, &h->line, h->now_ms, h->margin_ms, pauses);
    lw_feed_sweep(h->feed, &h->apart, h->now_ms, h->margin_ms, pauses);
}

/* --- leases and times ------------------------------------------------------------------------- */

static void tell_cancelled(struct request *r, bool late) {
    lw_exec_cancel(&r->p->out, r->jobs[r->at]);
    has_to_send(r->p);
    r->grace_ms = r->p->h->now_ms + CANCEL_GRACE_MS;
    r->late = late;
}

/* Checks the lease and the timeout of a request. Returns false if the process had to be ended. If
 * the lease was cancelled, or if a message times out while the process has other requests, the
 * process is first asked to cancel the message. It is killed if it does not answer in time, or when
 * the lease is about to end. */
static bool look_at_request(struct request *r) {
    struct lw_handler *h = r->p->h;
    const struct lw_job *job = r->jobs[r->at];
    int64_t lease = lw_feed_lease_end(job, h->margin_ms), now = h->now_ms;
    bool late = now >= job->give_up_ms;
    if (now >= lease || (r->grace_ms && now >= r->grace_ms) ||
        (late && !r->grace_ms && r->p->n_requests == 1)) {
        exec_time_over(r);
        return false;
    }
    if (!r->grace_ms && atomic_load(&job->lease->cancelled))
        tell_cancelled(r, false);
    else if (!r->grace_ms && late)
        tell_cancelled(r, true);
    look_by(h, lw_earlier(lease, r->grace_ms ? r->grace_ms : job->give_up_ms));
    return true;
}

static void look_at(struct proc *p) {
    if (p->state != PROC_UP || !p->n_requests) return;
    /* The end of stdout is not enough to notice the process's exit, because a grandchild may hold
     * stdout open. */
    bool ended = lw_child_ended(&p->child, NULL, 0);
    if (ended && (exec_hear_all(p), p->state == PROC_UP)) exec_died(p);
    for (struct request *r = p->first; r && p->state == PROC_UP && look_at_request(r);
         r = r->next) {}
}

static void look(struct lw_handler *h) {
    if (h->now_ms < h->look_ms) return;
    h->look_ms = h->now_ms + LW_FEED_LOOK_MS;
    for (int i = 0; i < h->n_used; i++) look_at(&h->procs[i]);
}

/* --- descriptors ------------------------------------------------------------------------------ */

static int watch_fd(struct proc *p, int fd, enum channel_kind kind, uint32_t events) {
    struct channel *c = &p->channels[kind];
    *c = (struct channel){p, kind};
    struct epoll_event ev = {.events = events, .data.ptr = c};
    return epoll_ctl(p->h->epoll, EPOLL_CTL_ADD, fd, &ev);
}

int exec_watch(struct proc *p) {
    p->state = PROC_UP;
    p->limit = ANY_COMPANY;
    return watch_fd(p, p->child.out, CH_STDOUT, EPOLLIN) ||
                   watch_fd(p, p->child.side, CH_SIDE, EPOLLIN)
               ? -1
               : 0;
}

/* If `wanted` is true, adds the stdin of a process to the epoll set, so that epoll reports when the
 * pipe has room again. Otherwise removes stdin from the set. */
static void poll_stdin(struct proc *p, bool wanted) {
    if (wanted == p->polled || p->child.in < 0) return;
    if (wanted)
        watch_fd(p, p->child.in, CH_STDIN, EPOLLOUT);
    else
        epoll_ctl(p->h->epoll, EPOLL_CTL_DEL, p->child.in, NULL);
    p->polled = wanted;
}

static void send_some(struct proc *p) {
    bool full = false;
    while (p->out_at < p->out.n && !p->deaf && !full) {
        ssize_t n = write(p->child.in, p->out.p + p->out_at, p->out.n - p->out_at);
        if (n > 0)
            p->out_at += (size_t)n, p->sent += (uint64_t)n;
        else if (n < 0 && errno == EAGAIN)
            full = true;
        else if (n >= 0 || errno != EINTR)
            p->deaf = true;
    }
    if (p->out_at == p->out.n) {
        lw_buf_clear(&p->out);
        p->out_at = 0;
    }
    poll_stdin(p, full);
}

static void send_all(struct lw_handler *h) {
    while (h->dirty) {
        struct proc *p = h->dirty;
        h->dirty = p->next_dirty;
        p->dirty = false;
        if (p->state == PROC_UP) send_some(p);
    }
}

static void on_stdout(struct proc *p) {
    if (exec_hear(p, CH_STDOUT) == HEARD_END && !p->hello) exec_died(p);
}

static void on_side(struct proc *p) {
    if (exec_hear(p, CH_SIDE) != HEARD_END) return;
    if (p->hello) exec_died(p);
    /* no hello can come after descriptor 4 is closed, so this process answers on its stdout */
    else
        epoll_ctl(p->h->epoll, EPOLL_CTL_DEL, p->child.side, NULL);
}

static void on_start(struct proc *p) {
    p->state = PROC_NONE;
    if (p->child.pid > 0)
        exec_watch(p);
    else
        exec_unable(p->h, p->failed.text);
}

static void on_errands(struct lw_handler *h) {
    uint64_t n;
    if (read(h->errands, &n, sizeof n) < 0) return;
    for (int i = 0; i < h->n_used; i++) {
        struct proc *p = &h->procs[i];
        if (!proc_errand_over(p)) continue;
        if (p->state == PROC_STARTING)
            on_start(p);
        else
            exec_settle(p);
    }
}

static void on_event(struct lw_handler *h, const struct channel *c) {
    struct proc *p = c->p;
    if (c->kind == CH_ERRANDS) {
        on_errands(h);
    } else if (p && p->state == PROC_UP) {
        if (c->kind == CH_STDOUT) on_stdout(p);
        if (c->kind == CH_SIDE) on_side(p);
        if (c->kind == CH_STDIN) send_some(p);
    }
}

/* --- the loop --------------------------------------------------------------------------------- */

static int wait_ms(struct lw_handler *h) {
    bool idle = !h->line.head && !h->apart.head;
    if (idle && !lw_feed_sleep(h->feed)) return 0;
    if (idle && !h->held) return -1;
    int64_t left = h->look_ms - lw_boot_ms();
    return left > LW_FEED_LOOK_MS ? LW_FEED_LOOK_MS : left > 0 ? (int)left : 0;
}

static void turn(struct lw_handler *h) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(h->epoll, events, EVENTS, wait_ms(h));
    bool fed = false;
    for (int i = 0; i < n; i++) fed |= ((struct channel *)events[i].data.ptr)->kind == CH_FEED;
    lw_feed_awake(h->feed, fed);
    h->now_us = lw_boot_us();
    h->now_ms = h->now_us / 1000;
    for (int i = 0; i < n; i++) on_event(h, events[i].data.ptr);
    look(h);
    dispatch(h);
    send_all(h);
    lw_feed_publish(h->feed);
}

static bool is_over(struct lw_handler *h) {
    enum lw_feed_stop stop = lw_feed_stopped(h->feed);
    if (stop == LW_FEED_GOES_ON || h->held) return false;
    return stop == LW_FEED_DROP || (!lw_feed_first(h->feed, &h->line) && !h->apart.head);
}

static void clear(struct lw_handler *h) {
    lw_jobs_clear(&h->line);
    lw_jobs_clear(&h->apart);
    h->followers = NULL;
    h->followers_end = &h->followers;
}

void exec_serve(struct lw_handler *h, struct lw_feed *feed) {
    clear(h);
    h->feed = feed;
    h->ch_feed = (struct channel){NULL, CH_FEED};
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &h->ch_feed};
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, lw_feed_fd(feed), &ev))
        lw_error("exec: can't watch for new messages: epoll: %s", strerror(errno));
    do turn(h);
    while (!is_over(h));
    epoll_ctl(h->epoll, EPOLL_CTL_DEL, lw_feed_fd(feed), NULL);
    clear(h); /* jobs that were not started belong to the submitter again */
    h->feed = NULL;
}
