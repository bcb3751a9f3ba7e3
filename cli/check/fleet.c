/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether the group's commits name a fleet that works with another Redis. Two fleets in
 * one group share its partitions, and neither sees the locks of the other
 * (consumer/worker/commit.c). A fleet is named by the epoch of shard 0, and each loss of Redis'
 * data begins a new epoch. So a foreign name alone proves nothing: it may be the former name of
 * this fleet. But if a commit advances while it names a foreign fleet, that fleet is alive. */
#include "base/clock.h"
#include "cli/check/servers.h"
#include "kafka/anchor.h"

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_AGAIN_MS = 2000 };

struct found {
    /* the first commit that names another fleet than the fleet of this Redis; NULL: no commit
     * does */
    const rd_kafka_topic_partition_t *first;
    char fleet[LW_FLEET + 1];
    int n;
};

static bool fleet_of(const rd_kafka_topic_partition_t *p, char *out) {
    struct lw_anchor anchor;
    if (p->err || p->offset < 0 || !p->metadata_size) return false;
    lw_meta_decode(p->metadata, p->metadata_size, out, &anchor);
    return out[0];
}

static struct found look(const rd_kafka_topic_partition_list_t *list, const char *ours) {
    struct found f = {0};
    char fleet[LW_FLEET + 1];
    for (int i = 0; i < list->cnt; i++) {
        if (!fleet_of(&list->elems[i], fleet) || !strcmp(fleet, ours)) continue;
        if (!f.n++) {
            f.first = &list->elems[i];
            memcpy(f.fleet, fleet, sizeof fleet);
        }
    }
    return f;
}

/* Compares the group's commits before and after a wait. Returns a partition whose commit names the
 * same foreign fleet in `before` and in `after`, and has a higher offset in `after`. Returns NULL
 * if there is no such partition. */
static const rd_kafka_topic_partition_t *moved(const rd_kafka_topic_partition_list_t *before,
                                               const rd_kafka_topic_partition_list_t *after,
                                               const char *ours) {
    char was[LW_FLEET + 1], is[LW_FLEET + 1];
    for (int i = 0; i < before->cnt && i < after->cnt; i++) {
        const rd_kafka_topic_partition_t *a = &before->elems[i], *b = &after->elems[i];
        if (fleet_of(a, was) && fleet_of(b, is) && strcmp(is, ours) && !strcmp(was, is) &&
            b->offset > a->offset)
            return b;
    }
    return NULL;
}

static void tell(const struct lw_config *c, const struct found *f,
                 const rd_kafka_topic_partition_t *living, struct lw_check_report *r) {
    char ours[80] = "knows no fleet of this name";
    if (r->fleet[0]) snprintf(ours, sizeof ours, "knows fleet %s", r->fleet);
    if (living)
        lw_problem(&r->problems,
                   "kafka: group %s: another fleet (%s) is at work with another Redis: its commit "
                   "of %s:%" PRId32 " moved on to offset %" PRId64
                   " within %d ms, and the Redis of this configuration %s. Two handlers of one key "
                   "may run at once. "
                   "Use the Redis of that fleet, or give this application another name and "
                   "group.id; if this Redis was wiped in the "
                   "last %lld ms, check again",
                   c->kafka.group_id, f->fleet, living->topic, living->partition, living->offset,
                   LOOK_AGAIN_MS, ours, (long long)c->lock.ttl_ms);
    else
        lw_problem_warn(&r->problems,
                        "kafka: group %s: the commits of %d partitions (%s:%" PRId32
                        " at offset %" PRId64
                        ") are by another fleet (%s), and the Redis of this configuration %s. If "
                        "it was wiped or replaced since, this is "
                        "expected and ends with the next commits. If not, a fleet with another "
                        "Redis has worked in this group: use "
                        "that Redis, or another name and group.id",
                        c->kafka.group_id, f->n, f->first->topic, f->first->partition,
                        f->first->offset, f->fleet, ours);
}

static rd_kafka_topic_partition_list_t *
commits(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *of, int wait_ms) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_copy(of);
    if (!rd_kafka_committed(rk, list, wait_ms)) return list;
    rd_kafka_topic_partition_list_destroy(list);
    return NULL;
}

void lw_check_fleet(const struct lw_config *c, void *consumer, const void *partitions,
                    struct lw_check_report *r) {
    rd_kafka_topic_partition_list_t *before = r->fleet_known
                                                  ? commits(consumer, partitions, r->wait_ms)
                                                  : NULL,
                                    *after = NULL;
    struct found f = before ? look(before, r->fleet) : (struct found){0};
    if (f.n) {
        lw_sleep_ms(LOOK_AGAIN_MS);
        after = commits(consumer, partitions, r->wait_ms);
        const rd_kafka_topic_partition_t *living = after ? moved(before, after, r->fleet) : NULL;
        if (living) fleet_of(living, f.fleet);
        tell(c, &f, living, r);
    }
    if (before) rd_kafka_topic_partition_list_destroy(before);
    if (after) rd_kafka_topic_partition_list_destroy(after);
}
