/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the source share: source.c (opens, polls and closes), assign.c (rebalances),
 * commit.c, check.c, look.c and state.c. */
#ifndef LW_KAFKA_PRIVATE_H
#define LW_KAFKA_PRIVATE_H

#include "kafka/anchor.h"
#include "kafka/source.h"

/* A partition while it is assigned to us. */
struct lw_part {
    uint32_t gen;
    char *topic;
    int32_t partition;
    /* the partition's own fetch queue, which is not forwarded to the consumer queue */
    rd_kafka_queue_t *queue;
    /* next offset to deliver; a record below it was delivered, or lies before the start or the last
     * seek */
    int64_t next;
    bool held;
    bool moved;  /* a seek of this partition has succeeded */
    bool broken; /* a seek failed half-way, so nothing more is delivered */
    int64_t begin;
    /* records that we read; the candidate replaces the anchor if the next check finds the same
     * log */
    struct lw_anchor anchor, candidate;
    int64_t candidate_ms;
};

/* The state of the connection, as errors, rebalances and the last statistics tell it
 * (kafka/state.c). */
struct lw_kafka_look {
    bool assigned;    /* the last rebalance gave us an assignment, and we accepted it */
    int64_t since_ms; /* boot clock; when `assigned` last changed */
    int64_t stats_ms; /* boot clock; when the last statistics came; 0: none yet */
    char group[24], join[24];
    int brokers_up;
    int64_t down_ms; /* boot clock; when the last broker went down; 0: at least one is up */
    /* longest time for which a broker has not answered; its name is in `silent` */
    int64_t silent_ms;
    /* longest time for which a leader of our partitions has been down; its name is in `leader` */
    int64_t leader_down_ms;
    char silent[128], leader[128], trouble[256];
    bool *missing; /* per configured topic: true if the broker does not know the topic */
};

struct lw_source {
    rd_kafka_t *rk;
    rd_kafka_queue_t *consumer_queue; /* queue of rebalances and errors; records do not come here */
    rd_kafka_queue_t *commit_queue;   /* queue of answers to commits */
    struct lw_looker *looker;         /* the thread of kafka/look.c; NULL: never started */
    bool looking;                     /* a request for the group's commits is in flight */
    const struct lw_config *config;
    struct lw_source_events ev;
    void *ctx;
    int fd;
    char *member_id; /* group.instance.id of a static member; NULL or "": a dynamic one */
    bool keep_place, declining, fenced, refused;
    bool dead;              /* `fatal` was called, so nothing more is delivered */
    struct lw_part **parts; /* the assigned partitions, sorted by generation */
    size_t n_parts, cap_parts, turn;
    /* boot clock; last time at which even queues that looked empty were read */
    int64_t swept_ms;
    struct lw_sent *sent; /* list of unanswered commits */
    bool commit_busy;     /* a call of lw_source_commit() is unanswered */
    /* boot clock; first failed authentication since the last success; 0: none */
    int64_t auth_since_ms;
    /* code of the last problem that was logged; trouble_ms is the time of that line */
    rd_kafka_resp_err_t trouble;
    int64_t trouble_ms;
    struct lw_kafka_look look;
    struct lw_inspector *inspector; /* NULL until it is first needed */
    /* boot clock; times of the last poll and the last check; checked_ms 0: check at once */
    int64_t polled_ms, checked_ms;
    /* the broker's limit for metadata is small, so metadata has no anchor, only finished offsets */
    bool no_anchors;
};

/* The next functions are in kafka/check.c, which checks that each log is still the one that we
 * read. */
/* notes a delivered record, which may become a candidate */
void lw_source_saw(struct lw_source *s, struct lw_part *p, const rd_kafka_message_t *m);
void lw_source_check(struct lw_source *s);
/* Appends the partition's anchor to commit metadata (NULL: none). The caller frees the result. */
char *lw_source_with_anchor(const struct lw_source *s, const struct lw_part *p,
                            const char *metadata);

/* Returns NULL if the partition with this generation is no longer assigned. */
struct lw_part *lw_source_part(const struct lw_source *s, uint32_t gen);
struct lw_part *lw_source_part_of(const struct lw_source *s, const char *topic, int32_t partition);
void lw_source_fatal(struct lw_source *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void lw_source_wake(struct lw_source *s); /* makes the source's fd readable */
int lw_source_seek_part(struct lw_source *s, struct lw_part *p, int64_t offset, struct lw_err *err);

/* Serves as librdkafka's rebalance callback; runs inside lw_source_poll() and lw_source_close(). */
void lw_source_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code,
                         rd_kafka_topic_partition_list_t *list, void *source);
/* Reports all partitions as lost and forgets them, if the source closes before the group has
 * revoked them. */
void lw_source_lose_all(struct lw_source *s);
/* forgets commits that nobody can answer any more */
void lw_source_forget_commits(struct lw_source *s);
void lw_source_serve_look(struct lw_source *s);
/* abandons the request for the group's commits that is in flight */
void lw_source_end_look(struct lw_source *s);
void lw_source_serve_commits(struct lw_source *s, int timeout_ms);

/* The next functions are in kafka/state.c, which tells the state of the connection to Kafka. */
/* value of statistics.interval.ms */
enum { LW_SOURCE_STATS_MS = 2000 };
/* is librdkafka's callback for statistics */
int lw_source_stats(rd_kafka_t *rk, char *text, size_t n, void *source);
void lw_source_note(struct lw_source *s, rd_kafka_resp_err_t code, const char *text);
/* must be called after `list` is assigned */
void lw_source_assigned(struct lw_source *s, const rd_kafka_topic_partition_list_t *list);
void lw_source_unassigned(struct lw_source *s);

#endif
