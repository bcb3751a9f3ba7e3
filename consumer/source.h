/* Kafka, seen from the worker: one member of the consumer group.
 *
 * Single-threaded: every function is called on the worker's main thread, and every callback comes from within lw_source_poll(),
 * lw_source_commit_sync() or lw_source_close(). A partition's assignment has a generation, unique in this process; answers carry it, so
 * that what belongs to an earlier assignment of the same partition can be told apart.
 *
 * Each partition's fetch queue is read by itself (its forwarding to the consumer queue is switched off), so that holding a partition back
 * is just not reading it: rd_kafka_pause_partitions() would purge what was fetched, and misplaces offsets in 2.0.2 (TRAPS).
 * Records that reached the consumer queue before the switch are delivered first. */
#ifndef LW_CONSUMER_SOURCE_H
#define LW_CONSUMER_SOURCE_H

#include "base/err.h"
#include "config/config.h"
#include "consumer/key.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_source;

struct lw_assigned {
    const char *topic; /* lent for the call */
    int32_t partition;
    uint32_t gen;
    int64_t committed;          /* the group's committed offset; -1: none */
    int64_t begin;              /* where reading starts: committed, or the log's begin or end by auto.offset.reset */
    int64_t log_begin, log_end; /* low and high watermark of the log, as asked at assign */
    const char *metadata;       /* of the commit, NULL: none; lent */
    size_t metadata_len;
};

struct lw_source_events {
    void (*assign)(void *ctx, const struct lw_assigned *a);
    /* The partition goes to another member. The callee finishes, commits (lw_source_commit_sync) and forgets it before it returns. `lost`:
     * it is gone already, nothing can be committed. Called for all partitions of one rebalance in one call, so that they drain together. */
    void (*revoke)(void *ctx, const uint32_t *gens, size_t n, bool lost);
    /* A record; the callee owns `m` and ends with rd_kafka_message_destroy() (any thread). */
    void (*record)(void *ctx, uint32_t gen, rd_kafka_message_t *m);
    void (*end)(void *ctx, uint32_t gen, int64_t offset); /* end of partition reached */
    /* An asynchronous commit was answered. ok: the broker took it. stale: refused because we are no longer a member or the owner. */
    void (*committed)(void *ctx, uint32_t gen, int64_t offset, bool ok, bool stale);
    void (*fatal)(void *ctx, const char *reason); /* can't go on: the process must end with this reason */
};

struct lw_source *lw_source_open(const struct lw_config *c, const struct lw_source_events *ev, void *ctx, struct lw_err *err);
/* Serves rebalances, commit answers and errors, then at most `max` records round-robin from the partitions that are not held. Never blocks
 * (a rebalance may take as long as its callbacks). Returns how many records were delivered. Call at least once a second. */
int lw_source_poll(struct lw_source *s, int max);
int lw_source_fd(struct lw_source *s); /* becomes readable when there may be something to poll; the caller reads it empty */
void lw_source_hold(struct lw_source *s, uint32_t gen, bool hold);
/* Goes on reading at `offset`; nothing fetched before is delivered after it. -1 where it could not be done in time (the partition
 * must then be taken for lost). */
int lw_source_seek(struct lw_source *s, uint32_t gen, int64_t offset, struct lw_err *err);

/* The end of the partition's log as of the last fetch: no question to the broker. -1: not known (yet). While a partition is held for long
 * it may lag behind. */
int64_t lw_source_log_end(const struct lw_source *s, uint32_t gen);

struct lw_commit {
    uint32_t gen;
    int64_t offset;
    const char *metadata; /* NUL-terminated, "" for none */
};
/* Sends commits with metadata; each is answered by `committed`. At most one unanswered call is allowed: lw_source_commit_busy(). */
int lw_source_commit(struct lw_source *s, const struct lw_commit *c, size_t n, struct lw_err *err);
bool lw_source_commit_busy(const struct lw_source *s);
/* Commits and waits at most timeout_ms. ok[i] (may be NULL) tells which were accepted; answers `committed` too. 0 also where the
 * coordinator refused for good, since a partition is no longer ours; -1 where nothing is known or trying again may help. */
int lw_source_commit_sync(struct lw_source *s, const struct lw_commit *c, size_t n, bool *ok, int64_t timeout_ms, struct lw_err *err);
/* What the group has committed now, asked of the coordinator, whoever owns the partition; *offset -1: nothing. Blocks at most 5 s. */
int lw_source_committed(struct lw_source *s, const char *topic, int32_t partition, int64_t *offset, struct lw_err *err);
/* Leaves the group: revokes (with callbacks), closes, bounded by timeout_ms (close can hang in librdkafka 2.0.2). */
void lw_source_close(struct lw_source *s, int64_t timeout_ms);

/* The end offsets of all partitions of the configured topics, for --drain. Calls fn for each. Blocks at most timeout_ms. */
int lw_source_ends(const struct lw_config *c, int64_t timeout_ms, void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                   void *ctx, struct lw_err *err);
/* The id of the Kafka cluster, for the schema; "" where the broker does not tell. */
int lw_source_cluster_id(const struct lw_config *c, int64_t timeout_ms, char *out, size_t size, struct lw_err *err);

/* Dead letters to a topic: an idempotent producer with automatic topic creation off. */
struct lw_sink;
struct lw_sink *lw_sink_open(const struct lw_config *c, struct lw_err *err);
/* Sends; `done(ctx, ok, reason)` comes from lw_sink_poll() on the same thread, within message.timeout.ms (30 s). -1: not even queued. */
int lw_sink_send(struct lw_sink *k, const char *topic, struct lw_bytes key, struct lw_bytes payload, const struct lw_header *headers,
                 size_t n_headers, void (*done)(void *ctx, bool ok, const char *reason), void *ctx, struct lw_err *err);
void lw_sink_poll(struct lw_sink *k);
void lw_sink_close(struct lw_sink *k, int64_t timeout_ms);

#endif
