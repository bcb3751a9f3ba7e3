/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/process/pool.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/log.h"
#include "consumer/process/journal.h"
#include "handlers/job_queue.h"
#include "handlers/span.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    HAND = 32,    /* maximum number of jobs that one thread takes at once */
    FAST_US = 50, /* if jobs take longer than this on average, a thread takes one job at a time */
    /* HANDFUL_US is the maximum total time of the jobs that a thread takes at once, estimated from
     * the average time of a job */
    HANDFUL_US = 1000,
    /* STUCK_US: if a thread is busy with one job or chain for this long, other threads steal the
     * jobs in its hand */
    STUCK_US = 1000,
    /* CHAIN_US is the time for which a thread runs followers before it checks whether other jobs
     * wait */
    CHAIN_US = 20000,
    /* LOOK_MS is the time between two checks of an idle thread for hands from which it can steal */
    LOOK_MS = 2,
};

/* Holds the jobs that a thread has taken and not started. `range` packs generation << 32 | next <<
 * 16 | end into one number, so that one compare-and-swap takes a job. The swap fails if the owner
 * has refilled its hand since `range` was read. */
struct hand {
    _Atomic uint64_t range;
    _Atomic(struct lw_job *) jobs[HAND];
};

struct worker_thread {
    struct lw_pool *pool;
    int index;
    pthread_t id;
    struct lw_slot *slot;
    /* `busy_since_us` is the time at which the job in the handler started; in a chain of followers,
     * the time at which the first job started */
    _Atomic int64_t busy_since_us;
    struct hand hand;
    /* The following arrays are used for handlers that take batches. Each has batch_max elements. */
    struct lw_job **heads; /* jobs of different keys, with which the next batch begins */
    /* `batch` holds the jobs of the batch: those of `heads`, each with as many of its followers as
     * fit */
    struct lw_job **batch;
    /* `lengths` holds, for each job of `heads`, the number of jobs of its key in the batch */
    size_t *lengths;
    /* The padding keeps other data off the cache line of the hand, which its owner writes often. */
    char pad[64];
};

struct lw_pool {
    const struct lw_handler_type *type;
    struct lw_handler *handler;
    int64_t timeout_ms;
    struct lw_seat *seats; /* the seats of the worker's threads; NULL: the worker has no seats */
    struct lw_counts *counts;
    int seats_a_thread;
    size_t batch_max, heads_max; /* maximum number of jobs, and of keys, in a batch */
    bool gathers;                /* true if a batch may have several jobs of one key */
    int notify_fd, journal;

    /* The mutex guards `queue`, `chains`, `idle`, `watchers`, `running`, and writes to `stop`. */
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    /* `chains` holds the jobs that came with followers, if each batch has jobs of one key only.
     * Otherwise it is empty. */
    struct lw_job_queue queue, chains;
    /* `chain_next` is true if the next job comes from `chains` when both `queue` and `chains` have
     * jobs */
    bool chain_next;
    size_t queued; /* number of jobs in `queue` and `chains` */
    /* `idle` is the number of sleeping threads. `watchers` says how many of these watch for hands
     * to steal from. */
    int idle, watchers;
    int running; /* number of threads that have not ended */
    /* Threads also read `stop` without the mutex, between the jobs of a chain. */
    atomic_bool stop;

    _Atomic int64_t average_ns;        /* average time of a job in its handler */
    _Atomic(struct lw_job *) finished; /* a stack of finished jobs, newest first */
    /* `reaping` is a list of the jobs that were taken from `finished`, oldest first; only the main
     * thread uses this list */
    struct lw_job *reaping;
    atomic_bool signalled;

    int n;
    struct worker_thread threads[];
};

/* --- hands ------------------------------------------------------------------------------------ */

static uint64_t pack(uint64_t generation, size_t next, size_t end) {
    return generation << 32 | next << 16 | end;
}
static size_t next_of(uint64_t r) { return r >> 16 & 0xffff; }
static size_t end_of(uint64_t r) { return r & 0xffff; }

/* Takes the next job out of a hand, which may be that of another thread. Returns NULL if the hand
 * is empty. */
static struct lw_job *take_from(struct hand *h) {
    uint64_t r = atomic_load(&h->range);
    while (next_of(r) < end_of(r)) {
        struct lw_job *job = atomic_load_explicit(&h->jobs[next_of(r)], memory_order_relaxed);
        if (atomic_compare_exchange_weak(&h->range, &r, r + (1U << 16))) return job;
    }
    return NULL;
}

static size_t left_in(const struct hand *h) {
    uint64_t r = atomic_load(&h->range);
    return next_of(r) < end_of(r) ? end_of(r) - next_of(r) : 0;
}

static bool any_hand(const struct lw_pool *p) {
    for (int i = 0; i < p->n; i++)
        if (left_in(&p->threads[i].hand)) return true;
    return false;
}

static bool held_up(struct worker_thread *t, int64_t now_us) {
    return left_in(&t->hand) && now_us - atomic_load(&t->busy_since_us) >= STUCK_US;
}

static struct lw_job *steal(struct lw_pool *p, int64_t now_us) {
    for (int i = 0; i < p->n; i++) {
        struct worker_thread *t = &p->threads[i];
        struct lw_job *job = held_up(t, now_us) ? take_from(&t->hand) : NULL;
        if (job) return job;
    }
    return NULL;
}

static bool any_held_up(struct lw_pool *p, int64_t now_us) {
    for (int i = 0; i < p->n; i++)
        if (held_up(&p->threads[i], now_us)) return true;
    return false;
}

/* --- the queues; all under the lock ----------------------------------------------------------- */

/* Appends the jobs of the list `jobs` to p->queue, and those of the list `chains` to p->chains. `n`
 * is the number of jobs in both lists. Wakes one thread. If that thread leaves jobs in the queue,
 * it wakes another thread. */
static void append(struct lw_pool *p, struct lw_job_queue *jobs, struct lw_job_queue *chains,
                   size_t n) {
    lw_jobs_move(&p->queue, jobs);
    lw_jobs_move(&p->chains, chains);
    p->queued += n;
    if (p->idle) pthread_cond_signal(&p->work);
}

static void append_one(struct lw_pool *p, struct lw_job *job) {
    struct lw_job_queue one, none;
    lw_jobs_clear(&one), lw_jobs_clear(&none);
    lw_jobs_append(&one, job);
    append(p, &one, &none, 1);
}

/* Takes the oldest job of `queue` or of `chains`. If both have jobs, they take turns. Batches of a
 * hot key can only run one after the other, while jobs of other keys can run side by side. So half
 * of the batches are given to keys with followers, even if many other jobs wait. */
static struct lw_job *pop(struct lw_pool *p) {
    if (!p->queued) return NULL;
    p->queued--;
    bool chain = p->chains.head && (p->chain_next || !p->queue.head);
    p->chain_next = !chain;
    return lw_jobs_pop(chain ? &p->chains : &p->queue);
}

/* Returns how many jobs a thread takes at once. If jobs are fast on average, this is the thread's
 * share of the queue, bounded by HANDFUL_US and HAND; otherwise it is one job. */
static size_t handful(const struct lw_pool *p) {
    int64_t average_us = atomic_load_explicit(&p->average_ns, memory_order_relaxed) / 1000;
    if (average_us >= FAST_US) return 1;
    size_t share = p->queued / (size_t)p->n + 1, bound = (size_t)(HANDFUL_US / (average_us + 1));
    if (share > bound) share = bound;
    return share < HAND ? share : HAND;
}

static bool fill_hand(struct lw_pool *p, struct worker_thread *t) {
    size_t want = handful(p), n = 0;
    struct lw_job *job;
    while (n < want && (job = pop(p)))
        atomic_store_explicit(&t->hand.jobs[n++], job, memory_order_relaxed);
    if (!n) return false;
    uint64_t r = atomic_load_explicit(&t->hand.range, memory_order_relaxed);
    atomic_store_explicit(&t->busy_since_us, lw_boot_us(), memory_order_relaxed);
    atomic_store(&t->hand.range, pack((r >> 32) + 1, 0, n));
    /* another thread is woken to take the jobs left in the queue, or to watch this hand */
    if (p->idle && (p->queued || (n > 1 && !p->watchers))) pthread_cond_signal(&p->work);
    return true;
}

static void sleep_idle(struct lw_pool *p) {
    p->idle++;
    if (any_hand(p) && !p->watchers) {
        p->watchers++;
        lw_cond_wait_ms(&p->work, &p->lock, LOOK_MS);
        p->watchers--;
    } else {
        pthread_cond_wait(&p->work, &p->lock);
    }
    p->idle--;
}

/* Waits for work. Returns false when the pool ends, otherwise true. If *stolen is NULL, the work is
 * in the thread's own hand, otherwise *stolen is a job from another thread's hand. */
static bool wait_work(struct lw_pool *p, struct worker_thread *t, struct lw_job **stolen) {
    *stolen = NULL;
    bool go_on = true;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        if (p->stop) {
            go_on = false;
            break;
        }
        /* stealing comes first, because a stolen job has waited longer than the jobs in the
         * queue */
        if ((*stolen = steal(p, lw_boot_us()))) {
            /* this thread no longer watches for hands to steal from, so another thread is woken to
             * watch */
            if (p->idle && (p->queued || !p->watchers)) pthread_cond_signal(&p->work);
            break;
        }
        if (fill_hand(p, t)) break;
        sleep_idle(p);
    }
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

/* Collects in t->heads the jobs with which the next batch begins, one per key. The first n elements
 * of t->heads already hold followers from the last batch. The function adds jobs from the queue.
 * Until the time *until_us, the followers have priority over these jobs. If *until_us is 0, the
 * function sets it. Returns the number of jobs in t->heads, or 0 when the pool ends. */
static size_t wait_heads(struct lw_pool *p, struct worker_thread *t, size_t n, int64_t *until_us) {
    int64_t now_us = n ? lw_boot_us() : 0;
    if (n && !*until_us) *until_us = now_us + CHAIN_US;
    pthread_mutex_lock(&p->lock);
    /* After *until_us, all followers go to the end of the queue if the batch has too little room
     * for them and all jobs in the queue. */
    if (n && now_us >= *until_us && p->queued > p->heads_max - n)
        for (size_t i = 0; n; i++, n--) append_one(p, t->heads[i]);
    if (!n) *until_us = 0;
    while (!p->stop && !p->queued && !n) {
        p->idle++;
        pthread_cond_wait(&p->work, &p->lock);
        p->idle--;
    }
    while (n < p->heads_max && p->queued && !(n && t->heads[n - 1]->suspect)) {
        struct lw_job *job = pop(p);
        if (job->suspect && n) { /* a suspect is a batch of its own */
            lw_jobs_push_front(&p->queue, job);
            p->queued++;
            break;
        }
        t->heads[n++] = job;
    }
    if (p->queued && p->idle) pthread_cond_signal(&p->work);
    if (p->stop) n = 0;
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* A thread calls this function when it has run a chain for a long time. `job` is the next job of
 * the chain. If other jobs wait in the queue, or in a hand that is held up (also the hand of this
 * thread), puts `job` at the end of the queue, and returns true. */
static bool give_way(struct lw_pool *p, struct lw_job *job, int64_t now_us) {
    pthread_mutex_lock(&p->lock);
    bool others = p->queued || any_held_up(p, now_us);
    if (others) append_one(p, job);
    pthread_mutex_unlock(&p->lock);
    return others;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Passes n jobs that have ended to the main thread, in their order and all at once. If the main
 * thread saw only a part of a batch, it would ask Redis for only as many followers as that part has
 * jobs, and the next batches would be as small as that part. */
static void finish(struct lw_pool *p, struct lw_job **jobs, size_t n) {
    for (size_t i = 1; i < n; i++) jobs[i]->next = jobs[i - 1];
    struct lw_job *top = atomic_load_explicit(&p->finished, memory_order_relaxed);
    do jobs[0]->next = top;
    while (!atomic_compare_exchange_weak(&p->finished, &top, jobs[n - 1]));
    if (atomic_load(&p->signalled) || atomic_exchange(&p->signalled, true)) return;
    if (write(p->notify_fd, &(uint64_t){1}, 8) < 0 && errno != EAGAIN)
        lw_error("pool: can't wake the main loop: eventfd: %s", strerror(errno));
}

/* Passes a job that has ended to the main thread. Returns the follower of the job, or NULL. */
static struct lw_job *end_job(struct lw_pool *p, struct lw_job *job) {
    /* the follower is read first, because from finish() on the main thread owns the job */
    struct lw_job *next = lw_job_end(job);
    finish(p, &job, 1);
    return next;
}

/* Returns true if a job may start: its lease is not cancelled, and the deadline of the lease has
 * not passed. Sets the outcome of the job to LW_BACK, which stays if the job does not start. */
static bool startable(struct lw_job *job, int64_t now_ms) {
    job->reason[0] = '\0';
    job->outcome = LW_BACK;
    return !lw_lease_over(job->lease, now_ms);
}

static struct lw_seat *seat(struct lw_pool *p, const struct worker_thread *t, size_t i) {
    return p->seats && i < (size_t)p->seats_a_thread
               ? &p->seats[(size_t)t->index * (size_t)p->seats_a_thread + i]
               : NULL;
}

/* Runs jobs in the handler. Writes to the board which job is in which seat, writes the journal, and
 * measures how long the jobs took. Returns the time at which they ended. */
static int64_t run_jobs(struct lw_pool *p, struct worker_thread *t, struct lw_job **jobs, size_t n,
                        int64_t now_us) {
    int64_t now_ms = now_us / 1000;
    for (size_t i = 0; i < n; i++) {
        jobs[i]->give_up_ms = p->timeout_ms > 0 ? now_ms + p->timeout_ms : INT64_MAX;
        atomic_store_explicit(&jobs[i]->started_ms, now_ms, memory_order_relaxed);
        struct lw_seat *s = seat(p, t, i);
        if (s) lw_seat_take(s, jobs[i]->identity, jobs[i]->key, now_ms);
        lw_journal_start(p->journal, jobs[i]);
    }
    p->type->run(p->handler, t->slot, jobs, n);
    /* the time of a batch is divided equally among its jobs */
    int64_t after_us = lw_boot_us(), took_us = (after_us - now_us) / (int64_t)n;
    /* a time of 0 would mean that the job was not run */
    if (took_us <= 0) took_us = 1;
    if (p->counts) lw_hist_add_n(&p->counts->handler, &lw_bounds_handler, took_us, n);
    for (size_t i = 0; i < n; i++) {
        jobs[i]->took_us = took_us;
        /* the span of each job covers the time of the whole batch */
        if (jobs[i]->span) jobs[i]->span->begun_us = now_us, jobs[i]->span->ended_us = after_us;
        lw_journal_end(p->journal, jobs[i]);
        struct lw_seat *s = seat(p, t, i);
        if (s) lw_seat_leave(s);
    }
    return after_us;
}

static void learn(struct lw_pool *p, int64_t took_us) {
    int64_t old = atomic_load_explicit(&p->average_ns, memory_order_relaxed);
    atomic_store_explicit(&p->average_ns, old + (took_us * 1000 - old) / 8, memory_order_relaxed);
}

/* Runs a job and then its followers, as long as the chain does not give way to other jobs. Returns
 * the time at which the last of them ended, which is the start of the thread's next job. */
static int64_t run_chain(struct lw_pool *p, struct worker_thread *t, struct lw_job *job,
                         int64_t now_us) {
    /* busy_since_us is set once per chain, because the other jobs in the hand wait for the whole
     * chain */
    atomic_store_explicit(&t->busy_since_us, now_us, memory_order_relaxed);
    int64_t look_us = INT64_MAX;
    for (;;) {
        if (startable(job, now_us / 1000)) {
            int64_t after_us = run_jobs(p, t, &job, 1, now_us);
            learn(p, after_us - now_us);
            now_us = after_us;
        }
        job = end_job(p, job);
        if (!job || atomic_load_explicit(&p->stop, memory_order_relaxed)) return now_us;
        if (look_us == INT64_MAX) {
            look_us = now_us + CHAIN_US;
        } else if (now_us >= look_us) {
            if (give_way(p, job, now_us)) return now_us;
            /* the thread checks for waiting jobs only every STUCK_US, because the check takes
             * longer than a fast job */
            look_us = now_us + STUCK_US;
        }
    }
}

static void run_singly(struct lw_pool *p, struct worker_thread *t) {
    struct lw_job *job;
    while (wait_work(p, t, &job)) {
        int64_t now_us = lw_boot_us();
        if (job) now_us = run_chain(p, t, job, now_us);
        while ((job = take_from(&t->hand))) now_us = run_chain(p, t, job, now_us);
    }
}

/* Keeps those of the n jobs in t->heads that may start, and passes the others to the main thread.
 * Returns the number of jobs that were kept. */
static size_t keep_startable(struct lw_pool *p, struct worker_thread *t, size_t n, int64_t now_ms) {
    size_t keep = 0;
    for (size_t i = 0; i < n; i++) {
        if (startable(t->heads[i], now_ms))
            t->heads[keep++] = t->heads[i];
        else
            end_job(p, t->heads[i]);
    }
    return keep;
}

/* Makes a batch of the n jobs in t->heads. Each of these jobs stands before its followers. A
 * follower is left out if the batch would have no room for all jobs of t->heads. Returns the number
 * of jobs in the batch. */
static size_t gather_batch(struct lw_pool *p, struct worker_thread *t, size_t n) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t others = n - 1 - i, room = p->gathers ? p->batch_max - total - others : 1;
        t->batch[total] = t->heads[i];
        t->lengths[i] = lw_job_gather(t->batch + total, room);
        total += t->lengths[i];
    }
    assert(total <= p->batch_max);
    return total;
}

/* Passes the n jobs of one key in a batch to the main thread. If a job is not done, only the jobs
 * up to and including the first such job are passed. Returns the follower of the last job. Returns
 * NULL if the last job has no follower, or if a job before the last one is not done. */
static struct lw_job *end_jobs(struct lw_pool *p, struct lw_job **jobs, size_t n) {
    size_t last = 0;
    while (last + 1 < n && jobs[last]->outcome == LW_DONE) last++;
    /* the jobs after the first job that is not done count as not run */
    for (size_t i = last + 1; i < n; i++) jobs[i]->took_us = 0;
    struct lw_job *next = last == n - 1 ? lw_job_end(jobs[last]) : NULL;
    finish(p, jobs, last + 1);
    return next;
}

static void run_batches(struct lw_pool *p, struct worker_thread *t) {
    size_t n = 0;
    int64_t until_us = 0;
    while ((n = wait_heads(p, t, n, &until_us))) {
        int64_t now_us = lw_boot_us();
        size_t keep = keep_startable(p, t, n, now_us / 1000), at = 0, follow = 0,
               total = gather_batch(p, t, keep);
        if (total) run_jobs(p, t, t->batch, total, now_us);
        for (size_t i = 0; i < keep; at += t->lengths[i++]) {
            struct lw_job *next = end_jobs(p, t->batch + at, t->lengths[i]);
            if (next) t->heads[follow++] = next;
        }
        n = follow;
    }
}

static void *thread_main(void *arg) {
    struct worker_thread *t = arg;
    struct lw_pool *p = t->pool;
    if (p->batch_max > 1)
        run_batches(p, t);
    else
        run_singly(p, t);
    pthread_mutex_lock(&p->lock);
    if (--p->running == 0) pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* --- the main thread's side ------------------------------------------------------------------- */

void lw_pool_submit(struct lw_pool *p, struct lw_job **jobs, size_t n) {
    if (!n) return;
    struct lw_job_queue single, chains;
    lw_jobs_clear(&single), lw_jobs_clear(&chains);
    bool sorts = p->gathers && p->heads_max == 1;
    for (size_t i = 0; i < n; i++)
        lw_jobs_append(sorts && atomic_load(&jobs[i]->then) ? &chains : &single, jobs[i]);
    pthread_mutex_lock(&p->lock);
    append(p, &single, &chains, n);
    pthread_mutex_unlock(&p->lock);
}

/* Reverses the list of finished jobs, because `finished` is a stack and the oldest job is reaped
 * first. */
static struct lw_job *reversed(struct lw_job *job) {
    struct lw_job *out = NULL;
    while (job) {
        struct lw_job *next = job->next;
        job->next = out;
        out = job;
        job = next;
    }
    return out;
}

size_t lw_pool_reap(struct lw_pool *p, struct lw_job **out, size_t max) {
    size_t n = 0;
    while (n < max) {
        if (!p->reaping) {
            /* the flag `signalled` is cleared before the list is read, so that a job that finishes
             * after that writes to the eventfd again */
            atomic_store(&p->signalled, false);
            p->reaping = reversed(atomic_exchange(&p->finished, NULL));
            if (!p->reaping) break;
        }
        out[n++] = p->reaping;
        p->reaping = p->reaping->next;
    }
    return n;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void init_sync(struct lw_pool *p) {
    pthread_mutex_init(&p->lock, NULL);
    lw_cond_init(&p->work);
    lw_cond_init(&p->ended);
}

static void free_pool(struct lw_pool *p) {
    for (int i = 0; i < p->n; i++) {
        if (p->threads[i].slot) p->type->slot_close(p->handler, p->threads[i].slot);
        free(p->threads[i].heads);
        free(p->threads[i].batch);
        free(p->threads[i].lengths);
    }
    lw_journal_close(p->journal);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ended);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Blocks all signals in a handler thread, except those that a fault raises in the thread itself.
 * The main thread handles the blocked signals. */
static void block_signals(sigset_t *old) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, old);
}

static int open_slots(struct lw_pool *p, struct lw_err *err) {
    for (int i = 0; i < p->n; i++) {
        struct worker_thread *t = &p->threads[i];
        t->pool = p;
        t->index = i;
        t->heads = lw_alloc(p->batch_max * sizeof(struct lw_job *));
        t->batch = lw_alloc(p->batch_max * sizeof(struct lw_job *));
        t->lengths = lw_alloc(p->batch_max * sizeof *t->lengths);
        t->slot = p->type->slot_open(p->handler, i, err);
        if (!t->slot) return lw_fail(err, "handler slot %d cannot be opened", i);
    }
    return 0;
}

static int start_threads(struct lw_pool *p, struct lw_err *err) {
    sigset_t old;
    block_signals(&old);
    int r = 0;
    for (int i = 0; i < p->n && !r; i++) {
        pthread_mutex_lock(&p->lock);
        r = pthread_create(&p->threads[i].id, NULL, thread_main, &p->threads[i]);
        if (!r) p->running++;
        pthread_mutex_unlock(&p->lock);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r ? lw_fail(err, "handler thread cannot be started: %s", strerror(r)) : 0;
}

/* Gives every job in a handler a seat on the board if there are enough seats, so that the
 * supervisor can name the jobs of a worker that hangs. If the handler type can crash the worker,
 * each job must have a seat of its own. A batch then has at most as many jobs as a thread has
 * seats. */
static void share_seats(struct lw_pool *p, struct lw_board_worker *seats) {
    if (seats) p->counts = &seats->counts;
    if (!seats || p->n > LW_BOARD_SEATS) return;
    p->seats = seats->seats;
    p->seats_a_thread = LW_BOARD_SEATS / p->n;
    if (p->type->runs_in_worker && p->batch_max > (size_t)p->seats_a_thread)
        p->batch_max = (size_t)p->seats_a_thread;
}

static bool wait_ended(struct lw_pool *p, int64_t grace_ms) {
    struct timespec until = lw_from_now(grace_ms);
    pthread_mutex_lock(&p->lock);
    int running = p->running;
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    while (p->running && pthread_cond_timedwait(&p->ended, &p->lock, &until) == 0) {}
    bool ended = p->running == 0;
    pthread_mutex_unlock(&p->lock);
    if (!ended) return false;
    /* the threads have left their loops, so pthread_join() returns at once */
    for (int i = 0; i < running; i++) pthread_join(p->threads[i].id, NULL);
    return true;
}

bool lw_pool_close(struct lw_pool *p, int64_t grace_ms) {
    if (!wait_ended(p, grace_ms)) return false;
    free_pool(p);
    return true;
}

struct lw_pool *lw_pool_open(const struct lw_handler_type *t, struct lw_handler *h, int threads,
                             int64_t timeout_ms, struct lw_board_worker *seats, int notify_fd,
                             struct lw_err *err) {
    int most = seats && t->runs_in_worker ? LW_BOARD_SEATS : LW_POOL_THREADS_MAX;
    if (threads < 1 || threads > most) {
        lw_fail(err, "handler threads: %d is not between 1 and %d", threads, most);
        return NULL;
    }
    struct lw_pool *p = lw_alloc(sizeof *p + (size_t)threads * sizeof(struct worker_thread));
    *p = (struct lw_pool){.type = t,
                          .handler = h,
                          .timeout_ms = timeout_ms,
                          .notify_fd = notify_fd,
                          .journal = -1,
                          .n = threads};
    lw_jobs_clear(&p->queue), lw_jobs_clear(&p->chains);
    /* while the average time of a job is not known, a thread takes one job at a time */
    p->average_ns = FAST_US * 1000;
    p->batch_max = t->batch_max(h);
    init_sync(p);
    share_seats(p, seats);
    enum lw_batch_of of = t->batch_of ? t->batch_of(h) : LW_BATCH_KEYS;
    p->gathers = of != LW_BATCH_KEYS;
    p->heads_max = of == LW_BATCH_ONE_KEY ? 1 : p->batch_max;
    int r = lw_journal_open(&p->journal, err) || open_slots(p, err);
    /* if a thread could not be started, no thread has a job yet, so all threads end at once */
    if (!r && (r = start_threads(p, err))) wait_ended(p, 1000);
    if (!r) return p;
    free_pool(p);
    return NULL;
}
