/* SPDX-License-Identifier: Apache-2.0 */
/* Rebalances: which partitions are assigned to this worker, at which offset reading begins, and the
 * fetch queue of each partition.
 *
 * In an eager rebalance all partitions are revoked, then all are assigned. In a cooperative
 * rebalance (only if configured) some partitions are revoked or assigned, and librdkafka pauses the
 * other partitions of this worker until the rebalance is handled. A pause discards fetched
 * records, and reading may then continue after the discarded records. Therefore a seek resets each
 * partition that this worker keeps to its next offset. */
#include "kafka/private.h"

#include "base/clock.h"
#include "base/log.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ASSIGN_MS is the time limit of all requests of a rebalance together, for all partitions. The
 * limit is needed because the main loop blocks during these requests, and the supervisor kills a
 * worker whose main loop has blocked for more than 90 s. */
enum { ASK_MS = 10000, ASSIGN_MS = 45000, ASK_PAUSE_MS = 200 };

/* --- asking where to begin -------------------------------------------------------------------- */

static rd_kafka_resp_err_t first_error(const rd_kafka_topic_partition_list_t *list) {
    for (int i = 0; i < list->cnt; i++)
        if (list->elems[i].err) return list->elems[i].err;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static int time_left(int64_t until_ms, int most_ms) {
    return (int)lw_earlier(lw_ms_until(until_ms), most_ms);
}

/* Waits after a failed request. Returns true if there is time for another attempt. Returns false if
 * the assignment is lost. If until_ms has passed, reports a fatal error and returns false. */
static bool may_ask_again(struct lw_source *s, const char *what, rd_kafka_resp_err_t code, int try,
                          int64_t until_ms) {
    lw_warn("kafka: can't read %s: %s (attempt %d); retrying for %d s more", what,
            rd_kafka_err2str(code), try, time_left(until_ms, ASSIGN_MS) / 1000);
    if (rd_kafka_assignment_lost(s->rk)) return false;
    lw_sleep_ms(time_left(until_ms, ASK_PAUSE_MS * try));
    if (lw_boot_ms() < until_ms) return true;
    lw_source_fatal(s, "kafka: could not read %s within %d s after a rebalance of group %s: %s",
                    what, ASSIGN_MS / 1000, s->config->kafka.group_id, rd_kafka_err2str(code));
    return false;
}

/* Fills in the offset and metadata of each partition from the group's commits. A negative offset
 * means that the partition has no commit. */
static int ask_committed(struct lw_source *s, rd_kafka_topic_partition_list_t *list,
                         int64_t until_ms) {
    for (int try = 1;; try++) {
        rd_kafka_resp_err_t code = rd_kafka_committed(s->rk, list, time_left(until_ms, ASK_MS));
        if (!code) code = first_error(list);
        if (!code) return 0;
        if (!may_ask_again(s, "committed offsets", code, try, until_ms)) return -1;
    }
}

static int ask_watermarks(struct lw_source *s, const rd_kafka_topic_partition_t *tp, int64_t *low,
                          int64_t *high, int64_t until_ms) {
    char what[300];
    snprintf(what, sizeof what, "the ends of %s/%d", tp->topic, (int)tp->partition);
    for (int try = 1;; try++) {
        rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
            s->rk, tp->topic, tp->partition, low, high, time_left(until_ms, ASK_MS));
        if (!code) return 0;
        if (!may_ask_again(s, what, code, try, until_ms)) return -1;
    }
}

rd_kafka_resp_err_t lw_source_count(struct lw_source *s, int64_t until_ms) {
    const struct rd_kafka_metadata *m = NULL;
    if (s->counted || !s->config->kafka.reset_latest) return RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_resp_err_t code = rd_kafka_metadata(s->rk, 1, NULL, &m, time_left(until_ms, ASK_MS));
    if (code) return code;
    s->counts = lw_alloc((size_t)(m->topic_cnt + 1) * sizeof *s->counts);
    for (int i = 0; i < m->topic_cnt; i++)
        s->counts[s->n_counts++] =
            (struct lw_topic_count){lw_strdup(m->topics[i].topic), m->topics[i].partition_cnt};
    s->counted = true;
    rd_kafka_metadata_destroy(m);
    return code;
}

void lw_source_forget_counts(struct lw_source *s) {
    for (size_t i = 0; i < s->n_counts; i++) free(s->counts[i].topic);
    free(s->counts);
}

/* Returns true if the partition was added while this worker ran, or its topic was made then. */
static bool added_later(const struct lw_source *s, const char *topic, int32_t partition) {
    if (!s->counted) return false;
    for (size_t i = 0; i < s->n_counts; i++)
        if (!strcmp(s->counts[i].topic, topic)) return partition >= s->counts[i].partitions;
    return true;
}

/* Finds the offset at which reading begins. The configured reset applies only to a partition
 * without a commit that was there when the worker began: what was written to a new one before it
 * was noticed would be lost. A commit outside of the log ends the process with an error. */
static int find_begin(struct lw_source *s, struct lw_assigned *a) {
    if (a->committed < 0) {
        bool from_end = s->config->kafka.reset_latest && !added_later(s, a->topic, a->partition);
        a->begin = from_end ? a->log_end : a->log_begin;
        return 0;
    }
    a->begin = a->committed;
    if (a->committed >= a->log_begin && a->committed <= a->log_end) return 0;
    s->refused = true;
    if (a->committed < a->log_begin)
        lw_source_fatal(s,
                        "%s/%d: the committed offset %lld is no longer in the log, which begins at "
                        "%lld: records were deleted before they "
                        "were handled. To go on without them, move the group's offset to %lld",
                        a->topic, (int)a->partition, (long long)a->committed,
                        (long long)a->log_begin, (long long)a->log_begin);
    else
        lw_source_fatal(s,
                        "%s/%d: the committed offset %lld is past the end of the log, which is "
                        "%lld: the topic was truncated or recreated. "
                        "To go on, use a new group (and `name`), or move the group's offset",
                        a->topic, (int)a->partition, (long long)a->committed,
                        (long long)a->log_end);
    return -1;
}

/* For each partition of `list`, fills in one element of `found` (the group's commit, the bounds of
 * the log, and the offset at which reading begins) and one element of `anchors` (the anchor of the
 * commit). Sets the offsets in `list` to those at which reading begins. */
static int find_begins(struct lw_source *s, rd_kafka_topic_partition_list_t *list,
                       struct lw_assigned *found, struct lw_anchor *anchors) {
    int64_t until_ms = lw_boot_ms() + ASSIGN_MS;
    rd_kafka_resp_err_t code = lw_source_count(s, until_ms);
    if (code)
        lw_warn("kafka: can't count the partitions of the topics: %s; one that is added later is "
                "read from its end, as auto.offset.reset says",
                rd_kafka_err2str(code));
    if (ask_committed(s, list, until_ms)) return -1;
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *tp = &list->elems[i];
        struct lw_assigned *a = &found[i];
        *a = (struct lw_assigned){.topic = tp->topic,
                                  .partition = tp->partition,
                                  .committed = tp->offset < 0 ? -1 : tp->offset};
        char fleet[LW_FLEET + 1];
        lw_meta_decode(tp->metadata, tp->metadata_size, fleet, &anchors[i]);
        if (ask_watermarks(s, tp, &a->log_begin, &a->log_end, until_ms) || find_begin(s, a))
            return -1;
        tp->offset = a->begin;
    }
    return 0;
}

/* --- partitions come and go ------------------------------------------------------------------- */

static struct lw_part *add_part(struct lw_source *s, const struct lw_assigned *a,
                                const struct lw_anchor *anchor) {
    static _Atomic uint32_t last_gen;
    struct lw_part *p = lw_alloc(sizeof *p);
    *p = (struct lw_part){.gen = atomic_fetch_add(&last_gen, 1) + 1,
                          .topic = lw_strdup(a->topic),
                          .partition = a->partition,
                          .next = a->begin,
                          .begin = a->begin};
    p->anchor = *anchor;
    p->candidate.offset = -1;
    s->checked_ms = 0;
    p->queue = rd_kafka_queue_get_partition(s->rk, a->topic, a->partition);
    /* switch off the forwarding of the partition's queue to the consumer's queue before
     * rd_kafka_assign(), so that no record comes through another queue (kafka/source.c) */
    if (p->queue) {
        uint64_t one = 1;
        rd_kafka_queue_forward(p->queue, NULL);
        rd_kafka_queue_io_event_enable(p->queue, s->fd, &one, sizeof one);
    }
    s->parts = lw_more(s->parts, s->n_parts, &s->cap_parts, sizeof(struct lw_part *));
    s->parts[s->n_parts++] = p;
    return p;
}

static void drop_part(struct lw_source *s, uint32_t gen) {
    for (size_t i = 0; i < s->n_parts; i++) {
        struct lw_part *p = s->parts[i];
        if (p->gen != gen) continue;
        if (p->queue) {
            rd_kafka_queue_io_event_enable(p->queue, -1, NULL, 0);
            rd_kafka_queue_destroy(p->queue);
        }
        free(p->topic);
        free(p);
        memmove(&s->parts[i], &s->parts[i + 1], (--s->n_parts - i) * sizeof(struct lw_part *));
        return;
    }
}

static void forget_revoked(struct lw_source *s) {
    if (s->revoked) rd_kafka_topic_partition_list_destroy(s->revoked);
    s->revoked = NULL;
}

void lw_source_lose_all(struct lw_source *s) {
    size_t n = s->n_parts;
    uint32_t *gens = lw_alloc((n + 1) * sizeof *gens);
    for (size_t i = 0; i < n; i++) gens[i] = s->parts[i]->gen;
    if (n) s->ev.revoke(s->ctx, gens, n, true);
    for (size_t i = 0; i < n; i++) drop_part(s, gens[i]);
    free(gens);
    forget_revoked(s);
}

/* --- the callback ----------------------------------------------------------------------------- */

/* Asks librdkafka which protocol the group uses. Must be called before the assignment is passed to
 * librdkafka. While the consumer closes, librdkafka may leave the group as soon as it has no
 * partitions, and in librdkafka 2.0.2 rd_kafka_rebalance_protocol() then waits forever. */
static bool cooperative(rd_kafka_t *rk) {
    const char *protocol = rd_kafka_rebalance_protocol(rk);
    return protocol && !strcmp(protocol, "COOPERATIVE");
}

/* Passes an assignment to librdkafka, or a revocation if `assign` is false. `list` is NULL for an
 * assignment without partitions. `in_parts` is true in a cooperative rebalance, which adds or
 * removes only the partitions of `list`. */
static rd_kafka_resp_err_t hand_over(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list,
                                     bool assign, bool in_parts) {
    if (!in_parts || !list) return rd_kafka_assign(rk, assign ? list : NULL);
    rd_kafka_error_t *error =
        assign ? rd_kafka_incremental_assign(rk, list) : rd_kafka_incremental_unassign(rk, list);
    rd_kafka_resp_err_t code = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
    if (error) rd_kafka_error_destroy(error);
    return code;
}

/* Seeks to the next offset in each partition that this worker had before a cooperative rebalance
 * and still has. The generations of these partitions are at most `last_gen`. */
static void put_back(struct lw_source *s, uint32_t last_gen) {
    for (size_t i = 0; i < s->n_parts && s->parts[i]->gen <= last_gen; i++) {
        struct lw_err err = {0};
        if (!s->parts[i]->broken && lw_source_seek_part(s, s->parts[i], s->parts[i]->next, &err))
            lw_source_fatal(s, "kafka: %s", err.text);
    }
}

/* Rejects an assignment that arrives while the worker is ending. Accepting it would cost requests
 * for its offsets and have no use. */
static void turn_down(struct lw_source *s, const rd_kafka_topic_partition_list_t *list) {
    lw_debug("kafka: the worker is ending; %d partitions rejected", list->cnt);
    rd_kafka_topic_partition_list_t *none = rd_kafka_topic_partition_list_new(0);
    rd_kafka_resp_err_t code = hand_over(s->rk, none, true, cooperative(s->rk));
    rd_kafka_topic_partition_list_destroy(none);
    /* the rejection fails if the Kafka client is closing */
    if (code) lw_debug("kafka: can't reject the assignment: %s", rd_kafka_err2str(code));
}

static void assign(struct lw_source *s, rd_kafka_topic_partition_list_t *list) {
    struct lw_assigned *found = lw_alloc((size_t)(list->cnt + 1) * sizeof *found);
    struct lw_anchor *anchors = lw_alloc((size_t)(list->cnt + 1) * sizeof *anchors);
    uint32_t last_gen = s->n_parts ? s->parts[s->n_parts - 1]->gen : 0;
    size_t kept = s->n_parts;
    bool in_parts = cooperative(s->rk), ok = !s->dead && !find_begins(s, list, found, anchors);
    for (int i = 0; ok && i < list->cnt; i++) {
        const struct lw_part *p = add_part(s, &found[i], &anchors[i]);
        found[i].gen = p->gen;
        if (p->queue) continue;
        lw_source_fatal(s, "%s/%d: no fetch queue", p->topic, (int)p->partition);
        ok = false;
    }
    rd_kafka_resp_err_t code = hand_over(s->rk, ok ? list : NULL, true, in_parts);
    if (code && ok)
        lw_source_fatal(s, "kafka: can't take the assignment: %s", rd_kafka_err2str(code));
    if (code || !ok) {
        while (s->n_parts > kept) drop_part(s, s->parts[s->n_parts - 1]->gen);
    } else {
        s->auth_since_ms = 0;
        if (in_parts) put_back(s, last_gen);
        for (int i = 0; i < list->cnt; i++) s->ev.assign(s->ctx, &found[i]);
        lw_source_wake(s);
    }
    free(found);
    free(anchors);
}

/* librdkafka waits until it is told that the partitions go: within its callback, or later. */
void lw_source_revoke(struct lw_source *s) {
    const rd_kafka_topic_partition_list_t *list = s->revoked;
    uint32_t *gens = lw_alloc((size_t)(list->cnt + 1) * sizeof *gens);
    size_t n = 0;
    for (int i = 0; i < list->cnt; i++) {
        const struct lw_part *p =
            lw_source_part_of(s, list->elems[i].topic, list->elems[i].partition);
        if (p) gens[n++] = p->gen;
    }
    bool gone = !n || s->ev.revoke(s->ctx, gens, n, rd_kafka_assignment_lost(s->rk));
    if (gone) {
        bool in_parts = cooperative(s->rk);
        for (size_t i = 0; i < n; i++) drop_part(s, gens[i]);
        rd_kafka_resp_err_t code = hand_over(s->rk, list, false, in_parts);
        forget_revoked(s);
        if (code) lw_source_fatal(s, "kafka: can't let partitions go: %s", rd_kafka_err2str(code));
        if (in_parts && !s->dead) put_back(s, UINT32_MAX);
        lw_source_wake(s);
    }
    free(gens);
}

bool lw_source_revoking(const struct lw_source *s) { return s->revoked; }

void lw_source_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code,
                         rd_kafka_topic_partition_list_t *list, void *source) {
    struct lw_source *s = source;
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        lw_debug("kafka: %d partitions assigned", list->cnt);
        if (s->declining) {
            turn_down(s, list);
        } else {
            assign(s, list);
            lw_source_assigned(s, list);
        }
    } else if (code == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
        bool lost = rd_kafka_assignment_lost(rk);
        lw_debug("kafka: %d partitions %s", list->cnt, lost ? "lost" : "revoked");
        lw_source_unassigned(s);
        forget_revoked(s);
        s->revoked = rd_kafka_topic_partition_list_copy(list);
        lw_source_revoke(s);
    } else {
        lw_error("kafka: rebalance failed: %s; giving up all partitions until the next one",
                 rd_kafka_err2str(code));
        lw_source_unassigned(s);
        lw_source_lose_all(s);
        rd_kafka_assign(rk, NULL);
    }
}
