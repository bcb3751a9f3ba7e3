/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker process share: process.c (set-up, loop, shutdown), consumer/process/io.c (what the logic reaches outside).
 */
#ifndef LW_CONSUMER_PROCESS_PRIVATE_H
#define LW_CONSUMER_PROCESS_PRIVATE_H

#include "base/host.h"
#include "base/redis/wire.h"
#include "consumer/process/hints.h"
#include "consumer/process/pool.h"
#include "consumer/process/renewer.h"
#include "consumer/worker/worker.h"

/* A shard's connections on the main thread. */
struct link {
    struct process *process;
    int shard;
    struct lw_wire *wire;
    struct lw_hints *hints;
    int64_t sent_us; /* the pipeline that is out, and how many of its commands are not answered */
    int unanswered;
};

/* What consumer/process/state.c last logged about this worker. */
struct process_state {
    int64_t looked_ms, since_ms, told_ms, moved_ms; /* since_ms: when the present reason began */
    uint64_t moves;
    bool told;
};

enum fixed_fd { FD_SIGNALS, FD_HANDLERS, FD_KAFKA, FD_LINKS }; /* then two a link */

struct process {
    const struct lw_config *c;
    struct lw_board *board;
    struct lw_board_worker *self;
    int index;
    char id[128], host[LW_HOST_MAX], cluster_id[128];
    uint64_t random;

    const struct lw_handler_type *type;
    struct lw_handler *handler;
    struct lw_pool *pool;
    struct lw_redis_url *urls; /* c->redis.n_urls */
    struct link *links;        /* c->redis.shards */
    struct lw_worker *logic;
    struct lw_renewer *renewer;
    struct lw_source *source;
    struct lw_sink *sink; /* NULL where dead letters stay in Redis */

    int signal_fd, notify_fd;
    struct pollfd *fds;
    struct lw_header *headers; /* of the record that arrives */
    size_t cap_headers;
    int64_t polled_ms, observed_ms;
    int64_t looked_ms; /* Kafka, last; the partitions were last put on the board */
    int64_t commit_ms; /* timeout of a synchronous commit */

    bool pumping;                         /* within a revoke */
    bool asked_to_stop, stopping, fenced; /* by a signal; the logic knows; what is left in handlers was cancelled */
    bool leaving;                         /* the last commit is made: a revoke waits for nothing any more */
    int64_t grace_until_ms;
    bool ended; /* can't go on: with this status */
    int status;
    struct process_state state;
};

/* Ends the loop; the first reason counts. */
void process_end(struct process *p, int status, const char *reason);
/* Redis, handlers, signals: waits at most max_ms (with Kafka's descriptor or without), serves what there is, then one turn of the logic. */
void process_serve(struct process *p, int64_t max_ms, bool kafka);

/* consumer/process/state.c: checks every 500 ms whether this worker is ready, and writes the reason to the board
 * and the log if it is not. */
void process_look(struct process *p);
void process_limit(struct process *p); /* limits grants while the handler is not healthy */

/* consumer/process/io.c: the end of a partition's log as far as it is known, for lw_worker_observe() */
int64_t process_log_end(void *process, uint32_t gen);
/* consumer/process/io.c; ctx is the process */
extern const struct lw_io process_io;
extern const struct lw_source_events process_kafka;
void process_up(void *link);
void process_reply(void *link, const redisReply *reply);
void process_down(void *link, const char *why);
void process_hint(void *process, int shard, struct lw_bytes lane);

#endif
