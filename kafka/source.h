/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's view of Kafka: one member of the consumer group.
 *
 * Every function is called on the worker's main thread, and every callback is called within
 * lw_source_poll(), lw_source_commit_sync() or lw_source_close(). Each assignment of a partition
 * has a generation, which is unique in this process. Answers contain the generation, so that an
 * answer to an earlier assignment of the same partition is recognized.
 *
 * Each partition's fetch queue is read separately (its forwarding to the consumer queue is switched
 * off), so not reading its queue holds the partition back. rd_kafka_pause_partitions() is not used,
 * because it would discard fetched records, and because it sets wrong offsets in librdkafka 2.0.2
 * (doc/design/traps.md). No record should come through the consumer queue; if one does, it is
 * delivered before the records of the fetch queues. */
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
    const char *topic; /* name of the topic, valid during the call */
    int32_t partition;
    uint32_t gen;
    int64_t committed; /* the group's committed offset; -1 if there is none */
    /* offset at which reading begins: `committed` or, without a commit, the beginning or end of the
     * log, depending on auto.offset.reset */
    int64_t begin;
    /* first offset and end of the log, as the broker reported them at the assignment */
    int64_t log_begin, log_end;
};

/* The group's commit for a partition. The pointers are valid only during the call of `looked`
 * (below). */
struct lw_group_offset {
    const char *topic;
    int32_t partition;
    int64_t offset;
    const char *fleet; /* name of the fleet that made the commit; "" if it is not known */
};

struct lw_source_events {
    void (*assign)(void *ctx, const struct lw_assigned *a);
    /* Called when partitions go to other members. The callee returns false for "not yet", while it
     * finishes its work; the next polls then call again with the same partitions, and the other
     * members wait. When the work is finished, the callee commits (lw_source_commit_sync()),
     * forgets the partitions and returns true. If `lost` is true, the partitions already belong to
     * other members, nothing can be committed, and the callee must return true, as it must within
     * lw_source_close(). One call names all partitions of a rebalance, so that the callee can wait
     * for the work of all of them at the same time. */
    bool (*revoke)(void *ctx, const uint32_t *gens, size_t n, bool lost);
    /* Called for each record. The callee owns `m` and must call rd_kafka_message_destroy(), on any
     * thread. */
    void (*record)(void *ctx, uint32_t gen, rd_kafka_message_t *m);
    /* Called when reading has reached the end of a partition. */
    void (*end)(void *ctx, uint32_t gen, int64_t offset);
    /* Called with the answer to a commit. `ok` is true if the broker accepted the commit. */
    void (*committed)(void *ctx, uint32_t gen, int64_t offset, bool ok);
    /* Called for each partition whose commit has metadata, after a request by
     * lw_source_look(s, false). May be NULL. */
    void (*looked)(void *ctx, const struct lw_group_offset *o);
    /* Called after a request by lw_source_look(s, true), with the number of the group's commits.
     * `known` is false if the number is not known. May be NULL. */
    void (*listed)(void *ctx, bool known, size_t commits);
    /* Called with the reason when the process cannot continue. The process must then end. */
    void (*fatal)(void *ctx, const char *reason);
};

/* Opens the source. member_id is the group.instance.id of a static member. NULL means the id in
 * kafka.properties, if any. "" means a dynamic member in any case. Returns NULL with *err on
 * failure. */
struct lw_source *lw_source_open(const struct lw_config *c, const char *member_id,
                                 const struct lw_source_events *ev, void *ctx, struct lw_err *err);
/* Handles rebalances, commit answers and errors, then delivers at most `max` records, in turn from
 * the partitions that are not held back, but none while a revocation waits. Does not block, but a
 * rebalance takes as long as its callbacks. Returns the number of delivered records. Call this
 * function at least once a second. */
int lw_source_poll(struct lw_source *s, int max);
/* Returns true while a revocation waits for the callback `revoke`. Poll often then. */
bool lw_source_revoking(const struct lw_source *s);
/* Returns an eventfd that is readable when there may be something to poll. The caller empties
 * it. */
int lw_source_fd(struct lw_source *s);
void lw_source_pause(struct lw_source *s, uint32_t gen, bool pause);
/* Continues reading at `offset`. Records that were fetched before are not delivered afterwards.
 * Returns -1 if the seek did not succeed in time; the partition must then be treated as lost. */
int lw_source_seek(struct lw_source *s, uint32_t gen, int64_t offset, struct lw_err *err);

/* Returns the end of the partition's log as of the last fetch, without a request, or -1 if the end
 * is not known yet. The end may be outdated if the partition has been held back for long. */
int64_t lw_source_log_end(const struct lw_source *s, uint32_t gen);

/* The state of this worker's Kafka connection. Records come only while it is LW_KAFKA_JOINED. */
enum lw_kafka_state {
    LW_KAFKA_JOINED,  /* a member of the group that can read its partitions, if it has any */
    LW_KAFKA_JOINING, /* connected, but not a member yet, or in a rebalance */
    /* no broker or no coordinator is up, or the leader of an assigned partition is down */
    LW_KAFKA_UNREACHABLE,
    LW_KAFKA_SILENT,   /* a connected broker does not answer */
    LW_KAFKA_REFUSED,  /* authentication or authorization failed */
    LW_KAFKA_NO_TOPIC, /* a configured topic does not exist */
    LW_KAFKA_STATES
};
extern const char *const lw_kafka_state_name[LW_KAFKA_STATES];
/* Returns the state of the Kafka connection, which may be a few seconds old. If the state is not
 * LW_KAFKA_JOINED, `why` gets the reason; otherwise `why` gets "", or says that the worker has no
 * partition. */
enum lw_kafka_state lw_source_state(const struct lw_source *s, char *why, size_t size);

struct lw_commit {
    uint32_t gen;
    int64_t offset;
    const char *fleet; /* name of the fleet that makes it (queue/epoch.h); "" if it is not known */
};
/* Sends commits with metadata. The callback `committed` gets the answer to each commit. Returns -1
 * with *err if nothing was sent, for example because the commits of an earlier call are not yet
 * answered (lw_source_commit_busy()). */
int lw_source_commit(struct lw_source *s, const struct lw_commit *c, size_t n, struct lw_err *err);
bool lw_source_commit_busy(const struct lw_source *s);
/* Commits and waits at most timeout_ms for the answer. The callback `committed` gets the answer to
 * each commit. Returns 0 if all commits were accepted. Returns -1 with *err if the coordinator
 * refused a commit or if the answer did not come in time. If `ok` is not NULL, ok[i] says whether
 * commit i was accepted, and the function also returns 0 if the coordinator refused the commits
 * only because this process is no longer the member that owns the partitions. */
int lw_source_commit_sync(struct lw_source *s, const struct lw_commit *c, size_t n, bool *ok,
                          int64_t timeout_ms, struct lw_err *err);
/* Asks the coordinator for the group's commit of a partition, regardless of the partition's owner.
 * *offset becomes -1 if there is no commit. Blocks for at most 3 s. Returns -1 with *err on
 * failure. */
int lw_source_committed(struct lw_source *s, const char *topic, int32_t partition, int64_t *offset,
                        struct lw_err *err);
/* Makes the source reject assignments from now on, without asking the broker for their offsets,
 * because the worker is about to end. */
void lw_source_decline(struct lw_source *s);
/* Makes lw_source_close() keep a static member's place in the group: a process that joins with the
 * same id within session.timeout.ms gets the partitions back without a rebalance. */
void lw_source_keep_place(struct lw_source *s);
/* lw_source_fenced() and lw_source_refused() say why the callback `fatal` was called.
 * lw_source_fenced() returns true if another member joined with our member_id. lw_source_refused()
 * returns true if a restart would fail in the same way. */
bool lw_source_fenced(const struct lw_source *s);
bool lw_source_refused(const struct lw_source *s);
/* Requests the commits of the group without waiting: those for the configured topics or, if `all`
 * is true, for all topics of the cluster. Later lw_source_poll() passes each commit that has
 * metadata to the callback `looked` or, if `all` is true, only the number of commits to the
 * callback `listed`. Returns false if the previous request is still in flight. */
bool lw_source_look(struct lw_source *s, bool all);
/* Revokes all partitions (with callbacks) and leaves the group, within timeout_ms. The limit is
 * needed because closing a consumer can hang in librdkafka 2.0.2. */
void lw_source_close(struct lw_source *s, int64_t timeout_ms);

/* Calls fn for each partition of the configured topics, with its end offset. Used for `run
 * --drain`. Blocks for at most timeout_ms. Returns -1 with *err on failure. */
int lw_source_ends(const struct lw_config *c, int64_t timeout_ms,
                   void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                   void *ctx, struct lw_err *err);
/* Writes the id of the Kafka cluster, which is part of the schema, to `out`, or "" if the broker
 * does not report the id. Returns -1 with *err on failure. */
int lw_source_cluster_id(const struct lw_config *c, int64_t timeout_ms, char *out, size_t size,
                         struct lw_err *err);

/* A sink sends dead letters to a topic. Its producers are idempotent and never create topics. */
struct lw_sink;
struct lw_sink *lw_sink_open(const struct lw_config *c, struct lw_err *err);
/* The result of sending a dead letter. LW_SENT_NEVER: the letter is too large or invalid for its
 * topic, so every retry would fail. LW_SENT_LATER: sending failed for any other reason, for example
 * because the topic is missing, so a retry may succeed. */
enum lw_letter_end { LW_SENT, LW_SENT_LATER, LW_SENT_NEVER };
/* Sends a dead letter. lw_sink_poll() calls `done(ctx, how, reason)` on the same thread, within
 * message.timeout.ms (30 s), or within twice that time if the letter is sent again alone. Returns 0
 * if the letter is in flight, -1 if the producer cannot take the letter now, or 1 if the letter can
 * never be sent, for example because it is too large. */
int lw_sink_send(struct lw_sink *k, const char *topic, struct lw_bytes key, struct lw_bytes payload,
                 const struct lw_header *headers, size_t n_headers,
                 void (*done)(void *ctx, enum lw_letter_end how, const char *reason), void *ctx,
                 struct lw_err *err);
void lw_sink_poll(struct lw_sink *k);
/* Polls until at most `most` letters are unanswered, but no longer than limit_ms. Returns the
 * number of unanswered letters. */
size_t lw_sink_wait(struct lw_sink *k, size_t most, int64_t limit_ms);
void lw_sink_close(struct lw_sink *k, int64_t timeout_ms);

#endif
