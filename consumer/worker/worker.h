/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the worker's logic: what one member of the fleet does, without any I/O of its own.
 *
 * A message goes poll → gate → run → settle → watch → commit; lw_worker_turn() names the steps.
 * Everything outside (Redis, Kafka, handler threads, clocks, random numbers) is called through
 * `struct lw_io` and answers through the functions below. So two drivers run the same code: the
 * program (consumer/process/process.c) and the deterministic simulation (tests/sim). All calls come
 * from one thread. The functions of lw_io must not call the worker. */
#ifndef LW_CONSUMER_WORKER_WORKER_H
#define LW_CONSUMER_WORKER_WORKER_H

#include "base/redis/command.h"
#include "config/config.h"
#include "consumer/board.h"
#include "lock/lane/lease.h"
#include "handlers/handler.h"
#include "kafka/source.h"
#include "queue/key.h"

#include <hiredis/hiredis.h>

struct lw_worker;

/* Describes a dead letter on its way to a topic. */
struct lw_dead_letter {
    const char *topic;
    struct lw_bytes key, payload;
    /* `headers` holds the message's headers, then its origin, reason and attempts */
    const struct lw_header *headers;
    size_t n_headers;
    void *run; /* value that is passed back to lw_worker_sent() */
};

/* Describes what happened to a message before it was granted, for the span of its run. */
struct lw_waited {
    int64_t arrived_ms; /* time at which the message first came to a worker, on the wall clock */
    /* `replay` is the number of the replay; 0: the message is a Kafka record itself, no replay */
    int64_t replay;
    bool parked; /* true: the message has waited in Redis */
};

struct lw_io {
    int64_t (*boot_ms)(void *ctx);
    int64_t (*wall_ms)(void *ctx);
    uint64_t (*random)(void *ctx);
    /* connect() closes the shard's connection to Redis, if there is one, and makes a new
     * connection, at once or after a wait. From then on nothing of the old connection reaches the
     * worker, and lw_worker_connected() is called for the new connection. send() sends one pipeline
     * on the present connection. The replies come in order through lw_worker_reply(). If the
     * connection breaks, lw_worker_disconnected() is called instead. */
    void (*connect)(void *ctx, int shard);
    void (*send)(void *ctx, int shard, const struct lw_commands *c);
    /* Says whether the worker wants hints. While it does, a blocking pop moves hints from `ready`
     * to `claimed` on a connection of its own. */
    void (*hints)(void *ctx, int shard, const char *ready, const char *claimed, bool want);
    /* Gives jobs to the handlers. Each job comes back through lw_worker_finished(). */
    void (*run)(void *ctx, struct lw_job **jobs, size_t n);
    /* `trace` is called for each job when it is made, and may give the job a span and headers. The
     * span is one block of memory, which is freed by free() with the job's run. If `trace` is NULL,
     * nothing is traced. */
    void (*trace)(void *ctx, struct lw_job *job, const struct lw_waited *waited);
    /* Sends a dead letter to its topic. lw_worker_sent() reports the result. If the producer does
     * not accept the letter, *err says why, and the function returns -1 if the producer may accept
     * the letter later, and 1 if it never will. */
    int (*letter)(void *ctx, const struct lw_dead_letter *l, struct lw_err *err);
    /* The following functions call Kafka, as described in kafka/source.h. */
    void (*pause)(void *ctx, uint32_t gen, bool pause);
    int (*seek)(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err);
    int (*commit)(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err);
    bool (*commit_busy)(void *ctx);
    int (*commit_sync)(void *ctx, const struct lw_commit *c, size_t n, bool *ok,
                       struct lw_err *err);
    /* Reads the group's present commit of a partition, even if another worker owns the partition.
     * *offset is -1 if there is no commit. */
    int (*committed)(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                     struct lw_err *err);
    /* Asks for all commits of the group without waiting. The answer comes through
     * lw_worker_listed(). Returns false if the request cannot be sent now. `look` is NULL if it can
     * never be sent. */
    bool (*look)(void *ctx);
    void (*release)(void *ctx, void *origin); /* releases a record that is not needed any more */
    /* `passed` is called with the watermark of each accepted commit, and passes the watermark on to
     * the handler. */
    void (*passed)(void *ctx, const char *topic, int32_t partition, int64_t watermark);
    /* Makes this process end with an exit status (LW_EXIT_…), because the worker cannot go on. */
    void (*stop)(void *ctx, int status, const char *reason);
};

/* Holds limits in bytes. A single message may exceed any of them, because messages are not split. A
 * value of 0 stands for the default. */
struct lw_byte_bounds {
    /* `call` is the maximum total size of the envelopes that one call to Redis carries; the same
     * limit applies to the elements of waiting lists that the call reads */
    size_t call;
    size_t lane; /* maximum total size of the heads that are granted at once in one lane */
    /* `heads` is the maximum total size of the heads in memory; when it is reached, no more heads
     * are claimed */
    size_t heads;
    /* `held` is the maximum total size of all messages in memory; when it is reached, no more
     * records are read */
    size_t held;
};

struct lw_worker_setup {
    const struct lw_config *config;
    /* `board` may be NULL. Then there is no supervisor, and no message is ever a suspect. */
    struct lw_board *board;
    struct lw_counts *counts;
    int index; /* index of this worker on the board */
    /* `id` identifies this worker. No other worker of the fleet ever has the same id. The format is
     * host-pid-random. */
    const char *id;
    const char *host;            /* name of the host whose wall clock is read */
    const char *cluster_id;      /* id of the Kafka cluster; "": unknown */
    struct lw_byte_bounds bytes; /* limits in bytes; tests with small messages set smaller limits */
    /* `part_records` is the maximum number of tracked records above the watermark of a partition;
     * 0: as many as fit into the partition's share of 64 MiB */
    size_t part_records;
    /* `repair_batch` is the maximum number of ranges per repair call; 0: the default. The
     * simulation sets a small number, so that several calls are needed. */
    int repair_batch;
    const struct lw_io *io;
    void *ctx;
};

struct lw_worker *lw_worker_open(const struct lw_worker_setup *setup);
void lw_worker_free(struct lw_worker *w); /* frees the worker and all that it owns; sends nothing */

/* Takes one turn: sends the next pipeline to every shard whose last pipeline is answered, then
 * commits. The pipeline settles finished messages, claims the lanes that hints name, and asks gate
 * about messages that have arrived. */
void lw_worker_turn(struct lw_worker *w);
/* Returns how long the caller of lw_worker_turn() may sleep if nothing happens, in ms. */
int64_t lw_worker_wait_ms(struct lw_worker *w);
struct lw_leases *lw_worker_leases(struct lw_worker *w);
/* Copies the id of a shard's epoch, for the renewer. Returns false while the shard has no epoch.
 * This function is thread-safe. */
bool lw_worker_epoch(struct lw_worker *w, int shard, char *epoch, size_t size);
/* Returns the prefix of the shard's names in Redis, "lw:{NAME.SHARD}:". */
const char *lw_worker_prefix(const struct lw_worker *w, int shard);

/* Limits new grants while the handler cannot work. LW_GRANT_NONE allows no new grant. LW_GRANT_FEW
 * allows five times as many messages as the handler has places, from which it chooses those for a
 * trial.
 * Running messages continue. */
enum lw_grant_limit { LW_GRANT_ALL, LW_GRANT_FEW, LW_GRANT_NONE };
void lw_worker_limit(struct lw_worker *w, enum lw_grant_limit limit);

/* Call these functions when a connection to Redis is made, breaks, or brings a reply. The reply is
 * borrowed. */
void lw_worker_connected(struct lw_worker *w, int shard);
void lw_worker_disconnected(struct lw_worker *w, int shard, const char *why);
void lw_worker_reply(struct lw_worker *w, int shard, const redisReply *reply);
/* Call this function when a hint was moved from the Redis list `ready` to this worker's list
 * `claimed`. */
void lw_worker_hint(struct lw_worker *w, int shard, struct lw_bytes lane);

/* Call lw_worker_finished() when a handler has answered, and lw_worker_sent() when a dead letter
 * was sent or refused. */
void lw_worker_finished(struct lw_worker *w, struct lw_job *job);
void lw_worker_sent(struct lw_worker *w, void *run, enum lw_letter_end how, const char *reason);

/* Describes a record that Kafka has delivered. */
struct lw_arrival {
    struct lw_record record; /* the record's bytes stay valid until io->release(origin) */
    int64_t offset, timestamp_ms;
    void *origin;
};
void lw_worker_assign(struct lw_worker *w, const struct lw_assigned *a);
/* Gives partitions up. From the first call on, no more of their messages start. Returns false while
 * messages that have started are not settled, for at most shutdown.revoke_ms: call it again after
 * the next turn. Then commits, forgets the partitions, and returns true. If `lost` is true, neither
 * waits nor commits. */
bool lw_worker_revoke(struct lw_worker *w, const uint32_t *gens, size_t n, bool lost);
void lw_worker_arrived(struct lw_worker *w, uint32_t gen, const struct lw_arrival *a);
void lw_worker_end(struct lw_worker *w, uint32_t gen, int64_t offset);
void lw_worker_committed(struct lw_worker *w, uint32_t gen, int64_t offset, bool ok);
/* Tells the worker which offset the group has committed in one partition, which another worker may
 * own. Call this function periodically. By these offsets the worker notices another fleet in its
 * consumer group (commit.c). */
void lw_worker_looked(struct lw_worker *w, const struct lw_group_offset *o);
/* Answers lw_io.look with the number of commits that the group has in all partitions. `known` is
 * false if the request failed. */
void lw_worker_listed(struct lw_worker *w, bool known, size_t commits);
/* Returns the number of records that the worker can take now. */
size_t lw_worker_wants(const struct lw_worker *w);

/* Begins the shutdown: nothing new starts. When lw_worker_busy() returns false, everything is
 * settled. Then call lw_worker_commit_all(), and leave the group. */
void lw_worker_stop(struct lw_worker *w);
bool lw_worker_busy(const struct lw_worker *w);
void lw_worker_commit_all(struct lw_worker *w);
/* Writes the worker's partitions to the board, where the exporter reads them for the metrics
 * (tell.c). `log_end` returns the end of a partition's log, or -1 if that is unknown. `log_end`
 * may be NULL. */
void lw_worker_observe(struct lw_worker *w, int64_t (*log_end)(void *ctx, uint32_t gen), void *ctx);
/* Logs the state in the worker's memory, in a bounded number of lines. */
void lw_worker_dump(struct lw_worker *w);
/* Returns how many messages of the worker's partitions wait in Redis. */
uint64_t lw_worker_waiting(const struct lw_worker *w);
/* Returns how many messages were given to the worker's handlers and have not come back. */
uint64_t lw_worker_in_handler(const struct lw_worker *w);
/* Describes what keeps the worker from making progress. Returns false if nothing does. */
bool lw_worker_why(struct lw_worker *w, char *out, size_t size);
/* Returns true if every shard is READY and refuses no command. */
bool lw_worker_ready(const struct lw_worker *w);

#endif
