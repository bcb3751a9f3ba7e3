/* What the files of the source share: source.c (open, poll, close), source_assign.c (rebalances), source_commit.c. */
#ifndef LW_CONSUMER_SOURCE_PRIVATE_H
#define LW_CONSUMER_SOURCE_PRIVATE_H

#include "consumer/source.h"

/* One partition while it is assigned to us. */
struct lw_part {
    uint32_t gen;
    char *topic;
    int32_t partition;
    rd_kafka_queue_t *queue; /* its fetch queue, not forwarded to the consumer queue */
    int64_t next;            /* records below were delivered, or lie before the start or the target of the last seek: dropped */
    bool held;
    bool broken; /* a seek failed half-way: nothing more is delivered */
};

struct lw_source {
    rd_kafka_t *rk;
    rd_kafka_queue_t *consumer_queue; /* rebalances and errors; no records */
    rd_kafka_queue_t *commit_queue;   /* answers to commits */
    const struct lw_config *config;
    struct lw_source_events ev;
    void *ctx;
    int fd;
    bool dead;              /* `fatal` was called: nothing more is delivered */
    struct lw_part **parts; /* in the order of gen */
    size_t n_parts, cap_parts, turn;
    int64_t swept_ms;            /* when the queues were last read whether or not they looked empty */
    struct lw_sent *sent;        /* commits that are not answered yet */
    bool commit_busy;            /* an lw_source_commit() is unanswered */
    int64_t auth_since_ms;       /* first refusal of who we are since something last worked; 0: none */
    rd_kafka_resp_err_t trouble; /* the last trouble that was logged, and when */
    int64_t trouble_ms;
};

struct lw_part *lw_source_part(const struct lw_source *s, uint32_t gen); /* NULL: no longer assigned */
struct lw_part *lw_source_part_of(const struct lw_source *s, const char *topic, int32_t partition);
void lw_source_fatal(struct lw_source *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lw_source_wake(struct lw_source *s); /* makes the fd readable */
int lw_source_seek_part(struct lw_source *s, struct lw_part *p, int64_t offset, struct lw_err *err);

/* librdkafka's rebalance callback; runs inside lw_source_poll() and lw_source_close(). */
void lw_source_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *list, void *source);
/* Tells the callee that everything is lost, and forgets it (close without the group's help). */
void lw_source_lose_all(struct lw_source *s);
void lw_source_forget_commits(struct lw_source *s); /* for good: nobody can answer any more */
void lw_source_serve_commits(struct lw_source *s, int timeout_ms);

#endif
