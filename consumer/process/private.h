/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of the worker process share: process.c (set-up, loop, shutdown), io.c
 * (the calls of the logic to Redis, Kafka, handlers and clocks) and state.c (readiness). */
#ifndef LW_CONSUMER_PROCESS_PRIVATE_H
#define LW_CONSUMER_PROCESS_PRIVATE_H

#include "base/host.h"
#include "base/redis/wire.h"
#include "consumer/process/hints.h"
#include "consumer/process/pool.h"
#include "lock/lane/renewer.h"
#include "consumer/process/server.h"
#include "consumer/process/tracer.h"
#include "consumer/worker/worker.h"

/* Holds what the main thread needs to talk to one shard. */
struct link {
    struct process *process;
    int shard;
    struct lw_wire *wire;
    struct lw_hints *hints;
    /* `sent_us` is the time at which the pipeline in flight was sent, in us. `unanswered` is the
     * number of its commands without a reply. */
    int64_t sent_us;
    int unanswered;
};

/* Remembers what consumer/process/state.c has last logged about this worker. */
struct process_state {
    /* `since_ms` is the time since which the worker has not been ready or has made no progress. It
     * is 0 if the worker is ready and makes progress. */
    int64_t looked_ms, since_ms, told_ms, moved_ms;
    uint64_t moves;
    bool told;
};

/* Lists the indexes of the fixed descriptors in `fds`, the array that the main loop polls. Two
 * descriptors per shard follow, from the index FD_LINKS on. */
enum fixed_fd { FD_SIGNALS, FD_HANDLERS, FD_KAFKA, FD_LINKS };

struct process {
    const struct lw_config *c;
    struct lw_board *board;
    struct lw_board_worker *self;
    int index;
    char id[128], host[LW_HOST_MAX], cluster_id[128];
    uint64_t random;

    const struct lw_handler_type *type;
    struct lw_handler *handler;
    struct lw_pool *pool;     /* the threads, if the handler has run(); NULL if it has serve() */
    struct lw_server *server; /* the server, if the handler has serve(); NULL if it has run() */
    struct lw_finder *finder; /* thread that finds the servers of the shards */
    struct link *links;       /* array of c->redis.shards links, one per shard */
    struct lw_io io;          /* copy of process_io; its `trace` is set if messages are traced */
    struct lw_tracer *tracer; /* tracer of messages; NULL: nothing is traced */
    struct lw_worker *logic;
    struct lw_renewer *renewer;
    struct lw_source *source;
    struct lw_sink *sink; /* sender of dead letters to a topic; NULL if they stay in Redis */

    int signal_fd, notify_fd;
    struct pollfd *fds;
    struct lw_header *headers; /* headers of the record that is arriving */
    size_t cap_headers;
    /* `polled_ms` is the time of the last poll of Kafka, and `observed_ms` that of the last update
     * of the partitions on the board */
    int64_t polled_ms, observed_ms;
    int64_t looked_ms; /* last time at which the commits of the whole group were read */
    int64_t commit_ms; /* timeout of a synchronous commit, ms */

    /* `asked_to_stop`: a signal to end has come. `stopping`: the worker's logic was told to stop.
     * `fenced`: handlers were cancelled. */
    bool asked_to_stop, stopping, fenced;
    bool leaving; /* true: the last commit was made, so a revocation no longer waits for handlers */
    int64_t grace_until_ms;
    bool ended; /* true: the process cannot go on and has to end with `status` */
    int status;
    struct process_state state;
};

/* Ends the main loop with an exit status and a reason. Only the first call has an effect. */
void process_end(struct process *p, int status, const char *reason);

/* Checks whether this worker is ready, at most every 500 ms. If it is not, writes the reason to the
 * board and the log. Call this function in each turn of the main loop. Defined in state.c. */
void process_look(struct process *p);
/* Limits new grants as long as the handler is not healthy. Defined in state.c. */
void process_limit(struct process *p);

/* Returns the end of a partition's log as far as this worker knows it, for lw_worker_observe(). */
int64_t process_log_end(void *process, uint32_t gen);
/* Holds the functions of struct lw_io, which io.c defines. The `ctx` of these functions is the
 * struct process. */
extern const struct lw_io process_io;
/* Implements lw_io.trace, which records the span of a run. Used only if messages are traced. */
void process_trace(void *process, struct lw_job *job, const struct lw_waited *waited);
extern const struct lw_source_events process_kafka;
void process_up(void *link);
void process_reply(void *link, const redisReply *reply);
void process_down(void *link, const char *why);
void process_hint(void *process, int shard, struct lw_bytes lane);

#endif
