/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's view of Kafka: one member of the consumer group.
 *
 * Every function is called on the worker's main thread, and every callback comes from within
 * lw_source_poll(), lw_source_commit_sync() or lw_source_close(). Each assignment of a partition
 * has a generation, which is unique in this process. Answers carry the generation, so that answers
 * to an earlier assignment of the same partition are recognized.
 *
 * Each partition's fetch queue is read by itself (its forwarding to the consumer queue is switched
 * off), so a partition is held back by not reading its queue. rd_kafka_pause_partitions() would
 * discard fetched records, and sets wrong offsets in librdkafka 2.0.2 (doc/design/traps.md).
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
    const char *topic; /* name of the topic, borrowed for the call */
    int32_t partition;
    uint32_t gen;
    int64_t committed; /* the group's committed offset; -1: none */
    /* offset at which reading begins: `committed`, or the begin or end of the log, as
     * auto.offset.reset says */
    int64_t begin;
    /* first offset and end of the log, as the broker told them at assignment */
    int64_t log_begin, log_end;
    const char *metadata; /* metadata of the commit, borrowed; NULL: none */
    size_t metadata_len;
};

/* The group's commit for a partition. The pointers are borrowed. */
struct lw_group_offset {
    const char *topic;
    int32_t partition;
    int64_t offset;
    const char *metadata;
    size_t metadata_len;
};

struct lw_source_events {
    void (*assign)(void *ctx, const struct lw_assigned *a);
    /* Partitions go to other members. The callee finishes its work, commits (lw_source_commit_sync)
     * and forgets the partitions before it returns. `lost`: the partitions are gone already, and
     * nothing can be committed. All partitions of a rebalance come in one call, so that they drain
     * together. */
    void (*revoke)(void *ctx, const uint32_t *gens, size_t n, bool lost);
    /* Delivers a record. The callee owns `m` and must call rd_kafka_message_destroy(), on any
     * thread. */
    void (*record)(void *ctx, uint32_t gen, rd_kafka_message_t *m);
    /* reading has reached the end of the partition */
    void (*end)(void *ctx, uint32_t gen, int64_t offset);
    /* Reports the answer to an asynchronous commit. ok: the broker accepted the commit. stale: the
     * broker refused it, since we are no longer a member or the owner. */
    void (*committed)(void *ctx, uint32_t gen, int64_t offset, bool ok, bool stale);
    /* Reports the commit of one partition, as lw_source_look() requested it. May be NULL. */
    void (*looked)(void *ctx, const struct lw_group_offset *o);
    /* Reports the number of the group's commits after lw_source_look(s, true), or that it is not
     * known. May be NULL. */
    void (*listed)(void *ctx, bool known, size_t commits);
    /* reports that the broker refused a commit's metadata; comes before `committed`; may be NULL */
    void (*too_large)(void *ctx);
    /* the process cannot go on and must end for this reason */
    void (*fatal)(void *ctx, const char *reason);
};

/* Opens the source. member_id is the group.instance.id of a static member; NULL: as
 * kafka.properties say; "": a dynamic member in any case. */
struct lw_source *lw_source_open(const struct lw_config *c, const char *member_id,
                                 const struct lw_source_events *ev, void *ctx, struct lw_err *err);
/* Serves rebalances, commit answers and errors, then delivers at most `max` records, in turn from
 * the partitions that are not held back. Does not block, but a rebalance takes as long as its
 * callbacks. Returns how many records were delivered. Call it at least once a second. */
int lw_source_poll(struct lw_source *s, int max);
/* returns an eventfd, readable when there may be something to poll; the caller empties it */
int lw_source_fd(struct lw_source *s);
void lw_source_hold(struct lw_source *s, uint32_t gen, bool hold);
/* Goes on reading at `offset`; nothing fetched before is delivered afterwards. Returns -1 if the
 * seek did not succeed in time; the partition must then be treated as lost. */
int lw_source_seek(struct lw_source *s, uint32_t gen, int64_t offset, struct lw_err *err);

/* Returns the end of the partition's log as of the last fetch, without a request, or -1 if the end
 * is not known yet. The end may be outdated if the partition has been held back for long. */
int64_t lw_source_log_end(const struct lw_source *s, uint32_t gen);

/* The state of this worker's Kafka connection. Records come only while it is LW_KAFKA_JOINED. */
enum lw_kafka_state {
    LW_KAFKA_JOINED,  /* a member of the group whose partitions, if any, can be read */
    LW_KAFKA_JOINING, /* connected, but not a member yet, or in a rebalance */
    /* no broker or no coordinator is up, or a leader of our partitions is down */
    LW_KAFKA_UNREACHABLE,
    LW_KAFKA_SILENT,   /* a connected broker does not answer */
    LW_KAFKA_REFUSED,  /* authentication or authorization failed */
    LW_KAFKA_NO_TOPIC, /* a configured topic does not exist */
    LW_KAFKA_STATES
};
extern const char *const lw_kafka_state_name[LW_KAFKA_STATES];
/* Returns the state, which may be a few seconds old. If the state is not LW_KAFKA_JOINED, `why`
 * gets the reason, otherwise "" or a remark. */
enum lw_kafka_state lw_source_state(const struct lw_source *s, char *why, size_t size);

struct lw_commit {
    uint32_t gen;
    int64_t offset;
    const char *metadata; /* text to store beside the offset, NUL-terminated; "": none */
};
/* Sends commits with metadata; `committed` reports the answer to each. Only one call may be
 * unanswered: see lw_source_commit_busy(). */
int lw_source_commit(struct lw_source *s, const struct lw_commit *c, size_t n, struct lw_err *err);
bool lw_source_commit_busy(const struct lw_source *s);
/* Commits and waits at most timeout_ms. ok[i] (`ok` may be NULL) tells which commits were accepted,
 * and `committed` reports them as well. Returns 0, also if the coordinator refused because a
 * partition is no longer ours. Returns -1 if the result is unknown or another attempt may help. */
int lw_source_commit_sync(struct lw_source *s, const struct lw_commit *c, size_t n, bool *ok,
                          int64_t timeout_ms, struct lw_err *err);
/* Asks the coordinator for the group's commit of a partition, whoever owns it. *offset is -1 if
 * there is none. Blocks for at most 3 s. */
int lw_source_committed(struct lw_source *s, const char *topic, int32_t partition, int64_t *offset,
                        struct lw_err *err);
/* Makes the source reject assignments from now on, without asking the broker for their offsets,
 * because the worker is about to end. */
void lw_source_decline(struct lw_source *s);
/* Makes lw_source_close() keep a static member's place in the group: a process that joins with the
 * same id within session.timeout.ms gets the partitions back without a rebalance. */
void lw_source_keep_place(struct lw_source *s);
/* These functions tell why `fatal` was called. lw_source_fenced(): another member joined with our
 * member_id. lw_source_refused(): a restart would fail in the same way. */
bool lw_source_fenced(const struct lw_source *s);
bool lw_source_refused(const struct lw_source *s);
/* Requests the commits of the group without waiting: those for the configured topics or, if `all`
 * is true, for all topics of the cluster. lw_source_poll() reports each by `looked` and, if `all`
 * is true, their number by `listed`. Returns false if the previous request is still in flight. */
bool lw_source_look(struct lw_source *s, bool all);
/* Revokes all partitions (with callbacks) and leaves the group, within timeout_ms. The limit is
 * needed because close can hang in librdkafka 2.0.2. */
void lw_source_close(struct lw_source *s, int64_t timeout_ms);

/* Calls fn for each partition of the configured topics, with its end offset, for --drain. Blocks at
 * most timeout_ms. */
int lw_source_ends(const struct lw_config *c, int64_t timeout_ms,
                   void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                   void *ctx, struct lw_err *err);
/* Gets the id of the Kafka cluster, for the schema; "" if the broker does not tell it. */
int lw_source_cluster_id(const struct lw_config *c, int64_t timeout_ms, char *out, size_t size,
                         struct lw_err *err);

/* Sends dead letters to a topic, by an idempotent producer that never creates topics. */
struct lw_sink;
struct lw_sink *lw_sink_open(const struct lw_config *c, struct lw_err *err);
/* What happened to a dead letter. LATER: its topic is missing, rejects our credentials or does not
 * answer; retry. NEVER: it is too large for its topic or invalid there, so every retry would
 * fail. */
enum lw_letter_end { LW_SENT, LW_SENT_LATER, LW_SENT_NEVER };
/* Sends a dead letter. lw_sink_poll() calls `done(ctx, how, reason)` on the same thread, within
 * message.timeout.ms (30 s), or twice that if the letter is sent again alone. Returns 0 if it is in
 * flight, -1 if the producer cannot take it now, 1 if it never can. */
int lw_sink_send(struct lw_sink *k, const char *topic, struct lw_bytes key, struct lw_bytes payload,
                 const struct lw_header *headers, size_t n_headers,
                 void (*done)(void *ctx, enum lw_letter_end how, const char *reason), void *ctx,
                 struct lw_err *err);
void lw_sink_poll(struct lw_sink *k);
/* Polls until at most `most` letters are not answered yet, for limit_ms at most. Returns how many
 * are left. */
size_t lw_sink_wait(struct lw_sink *k, size_t most, int64_t limit_ms);
void lw_sink_close(struct lw_sink *k, int64_t timeout_ms);

#endif
