/* SPDX-License-Identifier: Apache-2.0 */
/* The worker process opens everything, runs its main loop, and ends in order:
 *
 *     open:  handler, pool → Redis connections → logic → renewer → Kafka
 *     loop:  wait → signals, Redis, handlers → Kafka → turn → heartbeat
 *     leave: finish and settle the messages in handlers (at most shutdown.grace_ms) → commit
 *            → leave the group → close
 *
 * One thread takes all these steps. Handlers and the renewer have threads of their own. In the loop
 * only some calls to Kafka block: rebalances, synchronous commits, and requests for an offset of
 * the group. */
#include "consumer/process/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "consumer/process/member.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    RECORDS = 512, /* maximum number of records taken from Kafka at once */
    /* KAFKA_EVERY_MS is the longest time between two polls of Kafka, even if no record is needed,
     * because rebalances and answers to commits also arrive with a poll. */
    KAFKA_EVERY_MS = 200,
    JOBS = 256, /* maximum number of jobs reaped at once */
    WAIT_MAX_MS = 200,
    REVOKE_WAIT_MS = 20, /* replaces both while a revocation waits, as do the other members */
    OBSERVE_MS = 500,
    RIVAL_MS = 2000, /* time between two reads of the group's commits, which show another fleet */
    CLUSTER_ID_MS = 5000,
    COMMIT_ANSWER_MS = 5000, /* limit of a synchronous commit; how often: worker/commit.c */
    ANSWER_MIN_MS = 2000,
    ANSWER_MAX_MS = 10000,
    /* The following times bound the end of the process. The supervisor kills a worker that has not
     * ended 5 s after shutdown.grace_ms. */
    /* CANCEL_MS is the time limit for cancelled handlers, counted from the end of
     * shutdown.grace_ms */
    CANCEL_MS = 1000,
    LAST_COMMIT_MS = 1500,
    LEAVE_MS = 5000,
    /* LEAVE_LATE_MS is the time limit for closing the sink of dead letters. It is also the time
     * limit for leaving the group if shutdown.grace_ms ended before everything was settled. */
    LEAVE_LATE_MS = 1000,
    POOL_MS = 500,
    QUICK_MS = 300,
};

void process_end(struct process *p, int status, const char *reason) {
    if (p->ended) return;
    lw_error("%s", reason);
    p->ended = true;
    p->status = status;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void name_self(struct process *p) {
    char host[LW_HOST_NAME];
    lw_host(p->host);
    uint64_t seed[2];
    if (getrandom(seed, sizeof seed, 0) != sizeof seed)
        seed[0] = (uint64_t)lw_wall_ms(), seed[1] = (uint64_t)lw_boot_us();
    p->random = seed[0];
    snprintf(p->id, sizeof p->id, "%s-%d-%08" PRIx32, lw_host_name(host), (int)getpid(),
             (uint32_t)seed[1]);
}

/* Opens the descriptor through which signals arrive. One of these signals is SIGHUP, which has no
 * effect, because it is meant for the supervisor. SIGPIPE is ignored, so that a write to a closed
 * pipe is an ordinary error. */
static int open_signals(struct process *p, struct lw_err *err) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM), sigaddset(&set, SIGINT), sigaddset(&set, SIGHUP),
        sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return p->signal_fd < 0 ? lw_fail(err, "signalfd: %s", strerror(errno)) : 0;
}

static int open_handler(struct process *p, struct lw_err *err) {
    p->type = lw_handler_find(p->c->handler.type, err);
    if (!p->type) return -1;
    p->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->notify_fd < 0) return lw_fail(err, "eventfd: %s", strerror(errno));
    p->handler = p->type->open(p->c, p->index, err);
    if (!p->handler) return -1;
    int n = p->c->handler.threads;
    int64_t timeout_ms = p->c->handler.timeout_ms;
    if (p->type->serve)
        p->server =
            lw_server_open(p->type, p->handler, n, timeout_ms, &p->self->counts, p->notify_fd, err);
    else
        p->pool = lw_pool_open(p->type, p->handler, n, timeout_ms, p->self, p->notify_fd, err);
    return p->server || p->pool ? 0 : -1;
}

static int find_servers(struct process *p, struct lw_err *err) {
    struct lw_redis_servers servers;
    if (lw_config_servers(p->c, &servers, err)) return -1;
    p->finder = lw_finder_open(&servers, err);
    return p->finder ? 0 : -1;
}

static void ask_cluster_id(struct process *p) {
    struct lw_err err = {0};
    if (!lw_source_cluster_id(p->c, CLUSTER_ID_MS, p->cluster_id, sizeof p->cluster_id, &err))
        return;
    p->cluster_id[0] = '\0';
    lw_warn("kafka: its cluster id is not known: %s; it is not compared with that of the other "
            "workers",
            err.text);
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

static void open_links(struct process *p) {
    int n = p->c->redis.shards;
    p->links = lw_alloc((size_t)n * sizeof *p->links);
    p->fds = lw_alloc((FD_LINKS + 2 * (size_t)n) * sizeof *p->fds);
    for (int s = 0; s < n; s++) {
        char name[24];
        snprintf(name, sizeof name, "shard %d", s);
        p->links[s] = (struct link){.process = p, .shard = s};
        struct lw_wire_setup setup = {
            .finder = p->finder,
            .shard = s,
            .hands_on_moved = true,
            .name = name,
            .owner = p->id,
            /* the maximum backoff is short, because the calls of repair must reach a restarted
             * server within one TTL */
            .backoff_max_ms = clamp(p->c->lock.ttl_ms / 8, 100, 2000),
            .answer_ms = clamp(p->c->lock.ttl_ms, ANSWER_MIN_MS, ANSWER_MAX_MS),
            .up = process_up,
            .reply = process_reply,
            .down = process_down,
            .ctx = &p->links[s],
        };
        p->links[s].wire = lw_wire_open(&setup);
    }
}

static bool epoch_of(void *process, int shard, char *epoch, size_t size) {
    return lw_worker_epoch(((struct process *)process)->logic, shard, epoch, size);
}

static const char *prefix_of(void *process, int shard) {
    return lw_worker_prefix(((struct process *)process)->logic, shard);
}

static void open_tracer(struct process *p) {
    p->io = process_io;
    p->tracer = lw_tracer_open(p->c, p->board, p->index, p->cluster_id, process_io.random(p));
    if (p->tracer) p->io.trace = process_trace;
}

static void open_logic(struct process *p) {
    struct lw_worker_setup setup = {
        .config = p->c,
        .board = p->board,
        .counts = &p->self->counts,
        .index = p->index,
        .id = p->id,
        .host = p->host,
        .cluster_id = p->cluster_id,
        .io = &p->io,
        .ctx = p,
    };
    p->logic = lw_worker_open(&setup);
    for (int s = 0; s < p->c->redis.shards; s++) {
        struct lw_hints_setup hints = {
            .finder = p->finder,
            .owner = p->id,
            .shard = s,
            .ttl_ms = p->c->lock.ttl_ms,
            .prefix = lw_worker_prefix(p->logic, s),
            .hint = process_hint,
            .epoch = epoch_of,
            .ctx = p,
        };
        p->links[s].hints = lw_hints_open(&hints);
    }
}

static int open_renewer(struct process *p, struct lw_err *err) {
    struct lw_renewer_setup setup = {
        .finder = p->finder,
        .shards = p->c->redis.shards,
        .ttl_ms = p->c->lock.ttl_ms,
        .worker_id = p->id,
        .leases = lw_worker_leases(p->logic),
        .lost = &p->self->counts.leases_lost,
        .epoch = epoch_of,
        .prefix = prefix_of,
        .ctx = p,
    };
    p->renewer = lw_renewer_open(&setup, err);
    return p->renewer ? 0 : -1;
}

static int open_kafka(struct process *p, struct lw_err *err) {
    if (p->c->dead.to == LW_DEAD_TOPIC && !(p->sink = lw_sink_open(p->c, err))) return -1;
    char member[LW_MEMBER_MAX];
    bool fenced = atomic_load(&p->self->fenced) != LW_FENCED_NO;
    if (fenced) atomic_store(&p->self->fenced, LW_FENCED_BEFORE);
    if (fenced || !lw_member_id(p->c, p->board->member_slot, p->index, member)) *member = 0;
    if (*member) lw_debug("kafka: group.instance.id %s", member);
    p->source = lw_source_open(p->c, member, &process_kafka, p, err);
    return p->source ? 0 : -1;
}

static int open_all(struct process *p, struct lw_err *err) {
    name_self(p);
    if (open_signals(p, err) || open_handler(p, err) || find_servers(p, err)) return -1;
    ask_cluster_id(p);
    open_links(p);
    open_tracer(p);
    open_logic(p);
    return open_renewer(p, err) || open_kafka(p, err) ? -1 : 0;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void drain_fd(int fd) {
    uint64_t n;
    /* the error EAGAIN means that the descriptor was empty, which is harmless */
    ssize_t r = read(fd, &n, sizeof n);
    (void)r;
}

static void take_signals(struct process *p) {
    struct signalfd_siginfo si;
    while (read(p->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        p->asked_to_stop |= si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT;
        if (si.ssi_signo == SIGUSR1) lw_worker_dump(p->logic);
    }
}

static void reap(struct process *p) {
    struct lw_job *jobs[JOBS];
    size_t n;
    drain_fd(p->notify_fd);
    do {
        n = p->server ? lw_server_reap(p->server, jobs, JOBS) : lw_pool_reap(p->pool, jobs, JOBS);
        for (size_t i = 0; i < n && p->tracer; i++) lw_tracer_end(p->tracer, jobs[i]);
        for (size_t i = 0; i < n; i++) lw_worker_finished(p->logic, jobs[i]);
    } while (n == JOBS);
}

static int64_t sleep_ms(struct process *p) {
    int64_t most = lw_source_revoking(p->source) ? REVOKE_WAIT_MS : WAIT_MAX_MS;
    int64_t wait = lw_worker_wait_ms(p->logic), due = INT64_MAX;
    if (wait > most) wait = most;
    for (int s = 0; s < p->c->redis.shards; s++) {
        int64_t wire = lw_wire_due_ms(p->links[s].wire), hints = lw_hints_due_ms(p->links[s].hints);
        if (wire < due) due = wire;
        if (hints < due) due = hints;
    }
    if (due == INT64_MAX) return wait;
    return clamp(due - lw_boot_ms(), 0, wait);
}

/* Waits for events. Kafka's descriptor is polled only while records are needed, because the
 * descriptor stays readable until all records are taken. */
static void wait_for_events(struct process *p) {
    int n = FD_LINKS;
    p->fds[FD_SIGNALS] = (struct pollfd){.fd = p->signal_fd, .events = POLLIN};
    p->fds[FD_HANDLERS] = (struct pollfd){.fd = p->notify_fd, .events = POLLIN};
    p->fds[FD_KAFKA] = (struct pollfd){
        .fd = lw_worker_wants(p->logic) ? lw_source_fd(p->source) : -1, .events = POLLIN};
    for (int s = 0; s < p->c->redis.shards; s++) {
        p->fds[n++] = lw_wire_poll(p->links[s].wire);
        p->fds[n++] = lw_hints_poll(p->links[s].hints);
    }
    if (poll(p->fds, (nfds_t)n, (int)sleep_ms(p)) >= 0) return;
    if (errno != EINTR) process_end(p, LW_EXIT_FAILED, "poll failed");
    for (int i = 0; i < n; i++) p->fds[i].revents = 0;
}

static void serve_links(struct process *p) {
    for (int s = 0; s < p->c->redis.shards; s++) {
        lw_wire_serve(p->links[s].wire, p->fds[FD_LINKS + 2 * s].revents);
        lw_hints_serve(p->links[s].hints, p->fds[FD_LINKS + 2 * s + 1].revents);
    }
}

/* Checks whether another fleet works in this fleet's consumer group (worker/commit.c). Only the
 * first worker of each supervisor does so. */
static void look_at_group(struct process *p, int64_t now) {
    if (p->index != 0 || now - p->looked_ms < RIVAL_MS) return;
    p->looked_ms = now;
    lw_source_look(p->source, false);
}

static void take_records(struct process *p) {
    int64_t now = lw_boot_ms();
    size_t wanted = lw_worker_wants(p->logic);
    int64_t every = lw_source_revoking(p->source) ? REVOKE_WAIT_MS : KAFKA_EVERY_MS;
    if (!p->fds[FD_KAFKA].revents && now - p->polled_ms < every) return;
    p->polled_ms = now;
    /* Kafka's descriptor is emptied before Kafka is polled, so that a record that comes later makes
     * the descriptor readable again */
    if (wanted) drain_fd(lw_source_fd(p->source));
    look_at_group(p, now);
    lw_source_poll(p->source, wanted < RECORDS ? (int)wanted : RECORDS);
}

/* Writes the number of unanswered requests of each handler process to the board, for metrics. */
static void write_loads(struct process *p) {
    uint32_t loads[LW_BOARD_SEATS];
    if (!p->type->loads) return;
    int n = p->type->loads(p->handler, loads, LW_BOARD_SEATS);
    for (int i = 0; i < n && i < LW_BOARD_SEATS; i++)
        atomic_store_explicit(&p->self->loads[i], loads[i], memory_order_relaxed);
    atomic_store_explicit(&p->self->n_loads, (uint32_t)n, memory_order_relaxed);
}

static void beat(struct process *p) {
    int64_t now = lw_boot_ms();
    atomic_store_explicit(&p->self->heartbeat_ms, now, memory_order_relaxed);
    if (now - p->observed_ms >= OBSERVE_MS) {
        p->observed_ms = now;
        write_loads(p);
        lw_worker_observe(p->logic, p->source ? process_log_end : NULL, p);
    }
    atomic_store_explicit(&p->self->waiting, lw_worker_waiting(p->logic), memory_order_relaxed);
    atomic_store_explicit(&p->self->in_handler, lw_worker_in_handler(p->logic),
                          memory_order_relaxed);
    process_look(p);
}

/* Waits for events of Redis, Kafka, handlers and signals, handles them, then runs one turn of the
 * logic. */
static void serve(struct process *p) {
    wait_for_events(p);
    if (p->fds[FD_SIGNALS].revents) take_signals(p);
    if (p->fds[FD_HANDLERS].revents) reap(p);
    serve_links(p);
    if (p->sink) lw_sink_poll(p->sink);
    take_records(p);
    process_limit(p);
    lw_worker_turn(p->logic);
    for (int s = 0; s < p->c->redis.shards; s++) lw_hints_step(p->links[s].hints);
    beat(p);
}

static void cancel_all(struct process *p) {
    for (int s = 0; s < p->c->redis.shards; s++)
        lw_leases_cancel_shard(lw_worker_leases(p->logic), s);
}

static void stop(struct process *p) {
    p->stopping = true;
    p->grace_until_ms = lw_boot_ms() + p->c->shutdown.grace_ms;
    lw_worker_stop(p->logic);
    lw_source_decline(p->source);
    lw_debug("stopping");
}

/* Returns true if the worker may leave: everything is settled, the worker must end at once, or the
 * time limit has passed. When shutdown.grace_ms is over, this function cancels the handlers, so
 * that other workers can soon run the messages that these handlers give back. */
static bool stopped(struct process *p) {
    if (!lw_worker_busy(p->logic) || atomic_load(&p->board->quick)) return true;
    int64_t now = lw_boot_ms();
    if (now < p->grace_until_ms) return false;
    if (!p->fenced) {
        lw_warn("shutdown.grace_ms is over (%" PRId64 " ms); cancelling what is still in a handler",
                p->c->shutdown.grace_ms);
        p->fenced = true;
        cancel_all(p);
    }
    return now >= p->grace_until_ms + CANCEL_MS;
}

static void loop(struct process *p) {
    while (!p->ended) {
        serve(p);
        if (p->asked_to_stop && !p->stopping) stop(p);
        if (p->stopping && stopped(p)) break;
    }
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* Returns true if a later process will rejoin the group under this worker's id. */
static bool keeps_place(const struct process *p) {
    int ending = atomic_load(&p->self->ending);
    if (p->ended && p->status == LW_EXIT_REFUSED) return false;
    return ending == LW_END_REPLACED || (ending == LW_END_STOPPED && p->c->kafka.stay);
}

static void leave_kafka(struct process *p) {
    bool quick = atomic_load(&p->board->quick);
    p->commit_ms = quick ? QUICK_MS : LAST_COMMIT_MS;
    if (!p->ended) lw_worker_commit_all(p->logic);
    p->leaving = true;
    if (keeps_place(p)) lw_source_keep_place(p->source);
    lw_source_close(p->source, quick ? QUICK_MS : p->fenced ? LEAVE_LATE_MS : LEAVE_MS);
    p->source = NULL;
    lw_sink_close(p->sink, quick ? QUICK_MS : LEAVE_LATE_MS);
    p->sink = NULL;
}

static void close_links(struct process *p) {
    for (int s = 0; p->links && s < p->c->redis.shards; s++) {
        lw_hints_close(p->links[s].hints);
        lw_wire_close(p->links[s].wire);
    }
    free(p->links);
    free(p->fds);
    lw_finder_close(p->finder);
    free(p->headers);
}

/* Closes the handler. Returns false if a thread is stuck in it. Nothing that the thread may use is
 * freed then, and the process has to end. */
static bool close_handler(struct process *p) {
    if (p->pool && !lw_pool_close(p->pool, POOL_MS)) return false;
    if (p->server && !lw_server_close(p->server, POOL_MS)) return false;
    if (p->handler) p->type->close(p->handler);
    if (p->notify_fd >= 0) close(p->notify_fd);
    return true;
}

static int leave(struct process *p) {
    atomic_store(&p->self->ready, false);
    bool settled = p->logic && !lw_worker_busy(p->logic);
    /* Jobs are cancelled before the worker leaves the group, because leaving may take seconds, and
     * waiting jobs would start in this time. */
    if (p->logic && !settled) cancel_all(p);
    if (p->source) leave_kafka(p);
    bool closed = close_handler(p);
    lw_renewer_close(p->renewer);
    if (!closed) {
        lw_warn("a handler has not returned within %d ms; the process exits without it", POOL_MS);
        return p->ended ? p->status : settled ? LW_EXIT_OK : LW_EXIT_FAILED;
    }
    if (p->logic) lw_worker_free(p->logic);
    lw_tracer_close(p->tracer);
    close_links(p);
    if (p->signal_fd >= 0) close(p->signal_fd);
    return p->ended ? p->status : LW_EXIT_OK;
}

int lw_worker_main(const struct lw_config *c, struct lw_board *board, int worker) {
#ifdef __GLIBC__
    /* Blocks of this size and more are given back as soon as they are freed. Otherwise glibc keeps
     * blocks up to the largest that was ever freed, in each arena. */
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
    struct process *p = lw_alloc(sizeof *p);
    *p = (struct process){.c = c,
                          .board = board,
                          .self = &board->workers[worker],
                          .index = worker,
                          .commit_ms = COMMIT_ANSWER_MS};
    p->signal_fd = p->notify_fd = -1;
    atomic_store(&p->self->kafka, 0);
    lw_note_set(&p->self->why, "opening the handler and asking Kafka for its cluster id");
    char who[32];
    snprintf(who, sizeof who, "worker %d", worker);
    lw_log_setup(c->log.level, c->log.json, who);
    struct lw_err err = {0};
    if (open_all(p, &err)) {
        process_end(p, err.permanent ? LW_EXIT_REFUSED : LW_EXIT_FAILED, err.text);
    } else {
        lw_info("started as %s: %s handler, %d at once", p->id, p->type->name,
                lw_config_at_once(c));
        loop(p);
    }
    int status = leave(p);
    lw_debug("ending with status %d", status);
    /* the struct process is not freed, because a thread that could not be stopped may still read
     * it */
    return status;
}
