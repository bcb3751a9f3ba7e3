/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/fleet/drain.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/conf.h"

enum { EVERY_MS = 1000, ANSWER_MS = 10000 };

static rd_kafka_topic_partition_list_t *partitions(const struct lw_board *b) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(b->n_drain);
    for (int32_t i = 0; i < b->n_drain; i++)
        rd_kafka_topic_partition_list_add(list, b->drain[i].topic, b->drain[i].partition);
    return list;
}

static void ask(rd_kafka_t *rk, struct lw_board *b) {
    rd_kafka_topic_partition_list_t *list = partitions(b);
    rd_kafka_resp_err_t code = rd_kafka_committed(rk, list, ANSWER_MS);
    if (code)
        lw_warn("--drain: can't read the group's commits: %s; retrying in %d ms",
                rd_kafka_err2str(code), EVERY_MS);
    else
        for (int i = 0; i < list->cnt; i++) {
            const rd_kafka_topic_partition_t *tp = &list->elems[i];
            if (!tp->err && tp->offset >= 0)
                lw_board_committed(b, tp->topic, tp->partition, tp->offset);
        }
    rd_kafka_topic_partition_list_destroy(list);
}

int lw_drain_follow(const struct lw_config *c, struct lw_board *board) {
    struct lw_err err = {0};
    rd_kafka_t *rk = lw_kafka_open_reader(c, &err);
    if (!rk) {
        lw_error("--drain: %s", err.text);
        return LW_EXIT_FAILED;
    }
    for (;; lw_sleep_ms(EVERY_MS)) ask(rk, board);
}
