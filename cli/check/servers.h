/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the functions of which `check --connect` consists. Each function adds problems to
 * r->problems and other information to r->notes, one per line, and waits at most wait_ms for each
 * answer. */
#ifndef LW_CLI_CHECK_SERVERS_H
#define LW_CLI_CHECK_SERVERS_H

#include "config/config.h"
#include "queue/epoch.h"

enum { LW_CHECK_WAIT_MS = 5000 };

/* Holds what the functions of `check --connect` report. The caller initializes it with {.wait_ms =
 * LW_CHECK_WAIT_MS}. */
struct lw_check_report {
    struct lw_problems problems;
    struct lw_buf notes;
    int wait_ms;
    bool fleet_known; /* true: the epoch of shard 0 was read from Redis, so `fleet` is valid */
    /* name of the fleet that this Redis knows, in the form used in commit metadata; "" if Redis has
     * no fleet yet */
    char fleet[LW_FLEET + 1];
};

/* Checks Kafka. Call this function after lw_check_redis(), which finds out the fleet's name. */
void lw_check_kafka(const struct lw_config *c, struct lw_check_report *r);
void lw_check_redis(const struct lw_config *c, struct lw_check_report *r);
/* Does the part of lw_check_redis() that asks each Sentinel. Does nothing if redis.sentinel is not
 * set. */
void lw_check_sentinels(const struct lw_redis_servers *servers, struct lw_check_report *r);
/* Does the part of lw_check_redis() that checks the slots and the replicas of a cluster, and how
 * the shards are spread over its masters. Does nothing if redis.cluster is not set. */
void lw_check_cluster(const struct lw_redis_servers *servers, struct lw_check_report *r);
/* Does the part of lw_check_kafka() that looks for commits of another fleet. `consumer` is an
 * rd_kafka_t, `partitions` an rd_kafka_topic_partition_list_t. */
void lw_check_fleet(const struct lw_config *c, void *consumer, const void *partitions,
                    struct lw_check_report *r);
/* Warns if the program of an exec handler is not on this machine, where the workers may run. */
void lw_check_program(const struct lw_config *c, struct lw_problems *problems);
/* Opens the handler in a child process, so that a handler that hangs or crashes cannot stop the
 * check. Reports such a handler as a problem. Call this function before any thread is started. */
void lw_check_handler_opens(const struct lw_config *c, struct lw_check_report *r);

#endif
