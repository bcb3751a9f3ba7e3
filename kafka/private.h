/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the source share: source.c (open, poll, close), assign.c (rebalances),
 * commit.c. */
#ifndef LW_KAFKA_PRIVATE_H
#define LW_KAFKA_PRIVATE_H

#include "kafka/anchor.h"
#include "kafka/source.h"

/* One partition while it is assigned to us. */
struct lw_part {
    uint32_t gen;
    char *topic;
    int32_t partition;
    rd_kafka_queue_t *queue; /* its fetch queue, not forwarded to the consumer queue */
    int64_t next; /* next offset to deliver; records below were delivered, or lie before the start or the target of the last seek, and are
                     dropped */
    bool held;
    bool moved;  /* a seek succeeded */
    bool broken; /* a seek failed half-way, so nothing more is delivered */
    int64_t begin;
    struct lw_anchor anchor,
        candidate; /* compared with the log; candidate becomes the anchor after a check that finds it unchanged (kafka/check.c) */
    int64_t candidate_ms;
};

/* The state learned from errors, rebalances and the last statistics (kafka/state.c). */
struct lw_kafka_look {
    bool assigned;    /* the last rebalance gave us an assignment, and we accepted it */
    int64_t since_ms; /* when `assigned` last changed */
    int64_t stats_ms; /* when the last statistics came; 0: none yet */
    char group[24], join[24];
    int brokers_up;
    int64_t down_ms;        /* when the last broker went down; 0: at least one is up */
    int64_t silent_ms;      /* the longest time that a broker has not answered, and its name */
    int64_t leader_down_ms; /* the longest time that a leader of our partitions has been down, and its name */
    char silent[128], leader[128], trouble[256];
    bool *missing; /* one per configured topic: the broker does not know it */
};

struct lw_source {
    rd_kafka_t *rk;
    rd_kafka_queue_t *consumer_queue; /* queue of rebalances and errors; records do not come here */
    rd_kafka_queue_t *commit_queue;   /* queue of answers to commits */
    struct lw_looker *looker;         /* kafka/look.c; NULL: never asked */
    bool looking;                     /* a look is in flight */
    const struct lw_config *config;
    struct lw_source_events ev;
    void *ctx;
    int fd;
    char *member_id; /* of a static member; NULL or "": dynamic */
    bool keep_place, declining, fenced, refused;
    bool dead;              /* `fatal` was called, so nothing more is delivered */
    struct lw_part **parts; /* sorted by gen */
    size_t n_parts, cap_parts, turn;
    int64_t swept_ms;            /* when the queues were last read even if they looked empty */
    struct lw_sent *sent;        /* unanswered commits */
    bool commit_busy;            /* a call of lw_source_commit() is unanswered */
    int64_t auth_since_ms;       /* first failed authentication since something last worked; 0: none */
    rd_kafka_resp_err_t trouble; /* the last problem that was logged, and when */
    int64_t trouble_ms;
    struct lw_kafka_look look;
    struct lw_inspector *inspector; /* NULL until it is first needed */
    int64_t polled_ms, checked_ms;  /* when polled; when checked, 0: check at once */
    bool no_anchors;                /* the broker's metadata limit is small, so finished offsets get all of it */
};

/* kafka/check.c: checks that each log is still the one that we read */
void lw_source_saw(struct lw_source *s, struct lw_part *p, const rd_kafka_message_t *m); /* a delivered record */
void lw_source_check(struct lw_source *s);
/* Appends the partition's anchor to commit metadata (NULL: none). The caller frees it. */
char *lw_source_with_anchor(const struct lw_source *s, const struct lw_part *p, const char *metadata);

struct lw_part *lw_source_part(const struct lw_source *s, uint32_t gen); /* NULL: no longer assigned */
struct lw_part *lw_source_part_of(const struct lw_source *s, const char *topic, int32_t partition);
void lw_source_fatal(struct lw_source *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lw_source_wake(struct lw_source *s); /* makes the fd readable */
int lw_source_seek_part(struct lw_source *s, struct lw_part *p, int64_t offset, struct lw_err *err);

/* librdkafka's rebalance callback; runs inside lw_source_poll() and lw_source_close(). */
void lw_source_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *source);
/* Reports all partitions as lost and forgets them, when closing without the group's help. */
void lw_source_lose_all(struct lw_source *s);
void lw_source_forget_commits(struct lw_source *s); /* nobody can answer these commits any more */
void lw_source_serve_look(struct lw_source *s);
void lw_source_end_look(struct lw_source *s); /* abandons the request in flight */
void lw_source_serve_commits(struct lw_source *s, int timeout_ms);

/* kafka/state.c */
enum { LW_SOURCE_STATS_MS = 2000 };                                      /* statistics.interval.ms */
int lw_source_stats(rd_kafka_t *rk, char *text, size_t n, void *source); /* librdkafka's callback */
void lw_source_note(struct lw_source *s, rd_kafka_resp_err_t code, const char *text);
void lw_source_assigned(struct lw_source *s, const rd_kafka_topic_partition_list_t *list); /* called after `list` is assigned */
void lw_source_unassigned(struct lw_source *s);

#endif
