/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the source share: source.c (opening, polling and closing),
 * assign.c (rebalances), commit.c, check.c, look.c and state.c. */
#ifndef LW_KAFKA_PRIVATE_H
#define LW_KAFKA_PRIVATE_H

#include "kafka/anchor.h"
#include "kafka/source.h"

/* A partition that is assigned to this worker. */
struct lw_part {
    uint32_t gen;
    char *topic;
    int32_t partition;
    /* the partition's own fetch queue, which is not forwarded to the consumer queue */
    rd_kafka_queue_t *queue;
    /* The next offset to deliver. Records below it are discarded, because they were already
     * delivered, or lie before the offset at which reading began or to which the last seek went. */
    int64_t next;
    bool paused;
    bool moved;  /* true if a seek in this partition has succeeded */
    bool broken; /* true if a seek failed half-way; no more records are delivered then */
    int64_t begin;
    /* descriptions of two records that were read; the candidate replaces the anchor after the next
     * check, unless that check finds a recreated topic */
    struct lw_anchor anchor, candidate;
    int64_t candidate_ms;
};

/* The state of the Kafka connection according to errors, rebalances and the latest statistics
 * (kafka/state.c). */
struct lw_kafka_look {
    bool assigned;    /* true if the last rebalance gave an assignment that was accepted */
    int64_t since_ms; /* time on the boot clock at which `assigned` last changed */
    /* time on the boot clock at which the latest statistics came; 0 if none have come yet */
    int64_t stats_ms;
    char group[32], join[32];
    int brokers_up;
    /* time on the boot clock since which no broker has been up; 0 if at least one broker is up */
    int64_t down_ms;
    /* longest time for which a broker has not answered; `silent` has the name of this broker */
    int64_t silent_ms;
    /* longest time for which a leader of the assigned partitions has been down; `leader` has the
     * name of this broker */
    int64_t leader_down_ms;
    char silent[128], leader[128], trouble[256];
    /* array with an element per configured topic: true if the broker does not know the topic */
    bool *missing;
};

struct lw_source {
    rd_kafka_t *rk;
    /* queue of rebalances and errors; records come through the queues of the partitions */
    rd_kafka_queue_t *consumer_queue;
    rd_kafka_queue_t *commit_queue; /* queue of answers to commits */
    struct lw_looker *looker;       /* the thread of kafka/look.c; NULL if it was never started */
    bool looking;                   /* true while a request for the group's commits is in flight */
    const struct lw_config *config;
    struct lw_source_events ev;
    void *ctx;
    int fd;
    char *member_id; /* group.instance.id of a static member; NULL or "" for a dynamic member */
    bool keep_place, declining, fenced, refused;
    bool dead;              /* true once `fatal` was called; then nothing more is delivered */
    struct lw_part **parts; /* the assigned partitions, sorted by generation */
    size_t n_parts, cap_parts, turn;
    /* the partitions whose revocation waits for the callback `revoke`; NULL: none waits */
    rd_kafka_topic_partition_list_t *revoked;
    /* time on the boot clock of the last read of all queues, including those that looked empty */
    int64_t swept_ms;
    struct lw_sent *sent; /* list of unanswered commits */
    bool commit_busy;     /* true while a call of lw_source_commit() is unanswered */
    /* time on the boot clock of the first failed authentication since the last success; 0 if none
     * has failed */
    int64_t auth_since_ms;
    /* code of the last problem that was logged; trouble_ms is the time of its log line */
    rd_kafka_resp_err_t trouble;
    int64_t trouble_ms;
    struct lw_kafka_look look;
    /* With auto.offset.reset "latest": how many partitions each topic had when the worker began,
     * so that a partition that was added later is read from its first record. */
    struct lw_topic_count {
        char *topic;
        int partitions;
    } * counts;
    size_t n_counts;
    bool counted;
    /* thread that checks the anchors; NULL until it is first needed */
    struct lw_inspector *inspector;
    /* times on the boot clock of the last poll and of the last check; checked_ms is 0 if a check is
     * due at once */
    int64_t polled_ms, checked_ms;
    /* true if the broker refused a commit's metadata as too large; then commits have none */
    bool no_metadata;
};

/* Counts the partitions of all topics, once. Until that has succeeded, no partition counts as added
 * later. Waits for the answer, at most until this time on the boot clock. */
rd_kafka_resp_err_t lw_source_count(struct lw_source *s, int64_t until_ms);
/* Frees what is known of the numbers of partitions (kafka/assign.c). */
void lw_source_forget_counts(struct lw_source *s);
/* The functions lw_source_saw() to lw_source_metadata() are in kafka/check.c, which detects
 * recreated and truncated topics. */
/* Remembers a delivered record, which may become a candidate for the next anchor. */
void lw_source_saw(struct lw_source *s, struct lw_part *p, const rd_kafka_message_t *m);
void lw_source_check(struct lw_source *s);
/* Returns the metadata of a commit, which the caller frees, or NULL if it has none. */
char *lw_source_metadata(const struct lw_source *s, const struct lw_part *p, const char *fleet);

/* Returns the partition with this generation, or NULL if the partition is no longer assigned. */
struct lw_part *lw_source_part(const struct lw_source *s, uint32_t gen);
struct lw_part *lw_source_part_of(const struct lw_source *s, const char *topic, int32_t partition);
void lw_source_fatal(struct lw_source *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void lw_source_wake(struct lw_source *s); /* makes the source's fd readable */
int lw_source_seek_part(struct lw_source *s, struct lw_part *p, int64_t offset, struct lw_err *err);

/* The callback that librdkafka calls for a rebalance, within lw_source_poll() and
 * lw_source_close(). */
void lw_source_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code,
                         rd_kafka_topic_partition_list_t *list, void *source);
/* Asks the callback `revoke` whether the partitions of s->revoked may go now. Lets them go then. */
void lw_source_revoke(struct lw_source *s);
/* If the source closes before the group has revoked its partitions, reports all of them as lost (by
 * the callback `revoke`) and forgets them. */
void lw_source_lose_all(struct lw_source *s);
/* Frees commits that can no longer be answered. */
void lw_source_forget_commits(struct lw_source *s);
void lw_source_serve_look(struct lw_source *s);
/* Ends the thread of kafka/look.c. Abandons a request for the group's commits that is in flight.
 * Returns false if the thread is left waiting for the answer: then the source's client must
 * stay. */
bool lw_source_end_look(struct lw_source *s);
void lw_source_serve_commits(struct lw_source *s, int timeout_ms);

/* The functions below are in kafka/state.c, which finds out the state of the connection to
 * Kafka. */
/* value of the property statistics.interval.ms */
enum { LW_SOURCE_STATS_MS = 2000 };
/* The callback that librdkafka calls with new statistics. */
int lw_source_stats(rd_kafka_t *rk, char *text, size_t n, void *source);
void lw_source_note(struct lw_source *s, rd_kafka_resp_err_t code, const char *text);
/* Records a new assignment. Must be called after `list` was passed to librdkafka. */
void lw_source_assigned(struct lw_source *s, const rd_kafka_topic_partition_list_t *list);
void lw_source_unassigned(struct lw_source *s);

#endif
