/* SPDX-License-Identifier: Apache-2.0 */
/* Kafka, seen from the worker: one member of the consumer group.
 *
 * Single-threaded: every function is called on the worker's main thread, and every callback comes from within lw_source_poll(),
 * lw_source_commit_sync() or lw_source_close(). A partition's assignment has a generation, unique in this process; answers carry it, so
 * that what belongs to an earlier assignment of the same partition can be told apart.
 *
 * Each partition's fetch queue is read by itself (its forwarding to the consumer queue is switched off), so that holding a partition back
 * is just not reading it: rd_kafka_pause_partitions() would purge what was fetched, and misplaces offsets in 2.0.2
 * (doc/design/traps.md).
 * Records that reached the consumer queue before the switch are delivered first. */
#ifndef LW_KAFKA_SOURCE_H
#define LW_KAFKA_SOURCE_H

#include "base/err.h"
#include "config/config.h"
#include "queue/key.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_source;

struct lw_assigned {
    const char *topic; /* borrowed for the call */
    int32_t partition;
    uint32_t gen;
    int64_t committed;          /* the group's committed offset; -1: none */
    int64_t begin;              /* where reading starts: committed, or the log's begin or end by auto.offset.reset */
    int64_t log_begin, log_end; /* low and high watermark of the log, as asked at assignment */
    const char *metadata;       /* of the commit, NULL: none; borrowed */
    size_t metadata_len;
};

/* A partition's commit in the group. The pointers are borrowed. */
struct lw_group_offset {
    const char *topic;
    int32_t partition;
    int64_t offset;
    const char *metadata;
    size_t metadata_len;
};

struct lw_source_events {
    void (*assign)(void *ctx, const struct lw_assigned *a);
    /* The partition goes to another member. The callee finishes its work, commits
     * (lw_source_commit_sync) and forgets the partition before it returns. `lost`: it is gone
     * already, and nothing can be committed. All partitions of a rebalance come in one call, so
     * that they drain together. */
    void (*revoke)(void *ctx, const uint32_t *gens, size_t n, bool lost);
    /* A record. The callee owns `m` and must call rd_kafka_message_destroy() (on any thread). */
    void (*record)(void *ctx, uint32_t gen, rd_kafka_message_t *m);
    void (*end)(void *ctx, uint32_t gen, int64_t offset); /* the end of the partition was reached */
    /* An asynchronous commit was answered. ok: the broker took it. stale: refused because we are no longer a member or the owner. */
    void (*committed)(void *ctx, uint32_t gen, int64_t offset, bool ok, bool stale);
    void (*looked)(void *ctx, const struct lw_group_offset *o); /* answers lw_source_look(), once per partition. May be NULL */
    /* Answers lw_source_look(s, true): how many commits the group has, or not known. May be NULL */
    void (*listed)(void *ctx, bool known, size_t commits);
    void (*too_large)(void *ctx);                 /* the broker refused a commit's metadata; precedes `committed`. May be NULL */
    void (*fatal)(void *ctx, const char *reason); /* the process cannot continue and must end with this reason */
};

/* member_id: the group.instance.id of a static member. NULL: as kafka.properties say. "": a dynamic
 * member in any case. */
struct lw_source *lw_source_open(const struct lw_config *c, const char *member_id, const struct lw_source_events *ev, void *ctx,
                                 struct lw_err *err);
/* Serves rebalances, commit answers and errors, then delivers at most `max` records, in turn from
 * the partitions that are not held. Does not block, but a rebalance takes as long as its callbacks.
 * Returns how many records were delivered. Call it at least once a second. */
int lw_source_poll(struct lw_source *s, int max);
int lw_source_fd(struct lw_source *s); /* becomes readable when there may be something to poll; the caller reads it empty */
void lw_source_hold(struct lw_source *s, uint32_t gen, bool hold);
/* Continues reading at `offset`; nothing fetched before is delivered afterwards. Returns -1 if that
 * failed in time; treat the partition as lost then. */
int lw_source_seek(struct lw_source *s, uint32_t gen, int64_t offset, struct lw_err *err);

/* The end of the partition's log as of the last fetch, without a request. -1: unknown (yet). It may
 * lag behind while a partition is held for long. */
int64_t lw_source_log_end(const struct lw_source *s, uint32_t gen);

/* The state of this worker's Kafka connection. It can read only while LW_KAFKA_JOINED. */
enum lw_kafka_state {
    LW_KAFKA_JOINED,      /* in the group, and its partitions (maybe none) can be read */
    LW_KAFKA_JOINING,     /* connected; not a member yet, or a rebalance is in progress */
    LW_KAFKA_UNREACHABLE, /* no broker, no coordinator, or a leader of our partitions is down */
    LW_KAFKA_SILENT,      /* a connected broker does not answer */
    LW_KAFKA_REFUSED,     /* authentication or authorization failed */
    LW_KAFKA_NO_TOPIC,    /* a configured topic does not exist */
    LW_KAFKA_STATES
};
extern const char *const lw_kafka_state_name[LW_KAFKA_STATES];
/* `why` gets the reason if the state is not LW_KAFKA_JOINED, else "" or a remark. The answer may be a
 * few seconds old. */
enum lw_kafka_state lw_source_state(const struct lw_source *s, char *why, size_t size);

struct lw_commit {
    uint32_t gen;
    int64_t offset;
    const char *metadata; /* NUL-terminated, "" for none */
};
/* Sends commits with metadata; each is answered by `committed`. At most one unanswered call is allowed: lw_source_commit_busy(). */
int lw_source_commit(struct lw_source *s, const struct lw_commit *c, size_t n, struct lw_err *err);
bool lw_source_commit_busy(const struct lw_source *s);
/* Commits and waits at most timeout_ms. ok[i] (may be NULL) tells which were accepted; `committed`
 * reports them too. Returns 0 also if the coordinator refused for good because a partition is no
 * longer ours; -1 if the result is unknown or another attempt may help. */
int lw_source_commit_sync(struct lw_source *s, const struct lw_commit *c, size_t n, bool *ok, int64_t timeout_ms, struct lw_err *err);
/* Asks the coordinator for the group's commit of a partition, whoever owns it. *offset -1: no commit.
 * Blocks for at most 3 s. */
int lw_source_committed(struct lw_source *s, const char *topic, int32_t partition, int64_t *offset, struct lw_err *err);
/* Rejects assignments from now on, without asking the broker for offsets, because the worker is
 * about to end. */
void lw_source_decline(struct lw_source *s);
/* Makes lw_source_close() keep a static member's place in the group: a process that joins under its id
 * within session.timeout.ms gets the partitions back without a rebalance. */
void lw_source_keep_place(struct lw_source *s);
/* Tell why `fatal` was called. fenced: another member joined with our member_id. refused: a restart would
 * fail in the same way. */
bool lw_source_fenced(const struct lw_source *s);
bool lw_source_refused(const struct lw_source *s);
/* Requests the commits of the group without waiting; lw_source_poll() calls `looked` with the answer, for
 * the configured topics. all: those of all topics of the cluster, and `listed` tells their number. Returns
 * false if the previous request is still in flight. */
bool lw_source_look(struct lw_source *s, bool all);
/* Leaves the group: revokes (with callbacks), closes, bounded by timeout_ms (close can hang in librdkafka 2.0.2). */
void lw_source_close(struct lw_source *s, int64_t timeout_ms);

/* The end offsets of all partitions of the configured topics, for --drain. Calls fn for each. Blocks at most timeout_ms. */
int lw_source_ends(const struct lw_config *c, int64_t timeout_ms, void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                   void *ctx, struct lw_err *err);
/* The id of the Kafka cluster, for the schema; "" if the broker does not tell. */
int lw_source_cluster_id(const struct lw_config *c, int64_t timeout_ms, char *out, size_t size, struct lw_err *err);

/* Dead letters to a topic: an idempotent producer with automatic topic creation off. */
struct lw_sink;
struct lw_sink *lw_sink_open(const struct lw_config *c, struct lw_err *err);
/* What happened to a dead letter. LATER: its topic is missing, rejects our credentials or does not
 * answer; retry. NEVER: it is too large for its topic or invalid there, so every retry would fail. */
enum lw_letter_end { LW_SENT, LW_SENT_LATER, LW_SENT_NEVER };
/* Sends a dead letter. lw_sink_poll() calls `done(ctx, how, reason)` on the same thread, within
 * message.timeout.ms (30 s), or twice that if the letter is sent again alone. Returns 0 if it is in
 * flight, -1 if the producer cannot take it now, 1 if it never can. */
int lw_sink_send(struct lw_sink *k, const char *topic, struct lw_bytes key, struct lw_bytes payload, const struct lw_header *headers,
                 size_t n_headers, void (*done)(void *ctx, enum lw_letter_end how, const char *reason), void *ctx, struct lw_err *err);
void lw_sink_poll(struct lw_sink *k);
void lw_sink_close(struct lw_sink *k, int64_t timeout_ms);

#endif
