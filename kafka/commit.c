/* SPDX-License-Identifier: Apache-2.0 */
/* Sends commits, always with explicit offsets and metadata, because rd_kafka_offsets_store() loses
 * the metadata in versions of librdkafka before 2.2.0.
 *
 * The answers come through a separate queue, so that a rebalance callback can wait for a commit.
 * When a partition gets its next generation, every commit of its previous generation has been
 * answered, because librdkafka joins the group again only after all commits are answered. */
#include "kafka/private.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* A commit in flight. The callback of an asynchronous commit frees the structure. The caller of a
 * synchronous commit waits and uses the structure, too, so the structure is freed by the callback
 * or by the caller, whichever finishes later. lw_source_close() frees the structures of commits
 * that were never answered. */
struct lw_sent {
    struct lw_sent *next;
    struct lw_source *source;
    bool sync, answered, abandoned;
    /* array of n elements that says which commits were accepted; owned by the waiting caller; NULL
     * if no caller waits */
    bool *ok;
    size_t n;
    rd_kafka_resp_err_t code;
    uint32_t gens[];
};

static bool is_stale(rd_kafka_resp_err_t code) {
    return code == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION ||
           code == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID ||
           code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID ||
           code == RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST;
}

/* In the new group protocol, a broker answers with the code STALE_MEMBER_EPOCH if the member epoch
 * has changed since the last heartbeat reported it to librdkafka. The code does not mean that the
 * partition has another owner, and the same commit may succeed with the next epoch. Older headers
 * of librdkafka have no name for the code. */
enum { STALE_MEMBER_EPOCH = 113, ASK_AGAIN_MS = 100 };

/* Commits work without metadata, but their next reader learns neither their fleet nor an anchor. */
static void metadata_refused(struct lw_source *s) {
    if (!s->no_metadata)
        lw_warn("kafka: the broker refused a commit with up to %d bytes of metadata; going on "
                "without metadata, so a recreated topic or a second fleet may go unnoticed. Set "
                "the broker's offset.metadata.max.bytes to %d or more",
                LW_META_TEXT, LW_META_TEXT);
    s->no_metadata = true;
}

static void answer_one(struct lw_sent *k, const rd_kafka_topic_partition_t *tp,
                       rd_kafka_resp_err_t code) {
    struct lw_source *s = k->source;
    /* the opaque pointer of each partition holds its index in the arrays `gens` and `ok`, because
     * librdkafka sorts the list of partitions */
    size_t i = (size_t)(uintptr_t)tp->opaque;
    if (i >= k->n) return;
    if (k->ok && !k->abandoned) k->ok[i] = !code;
    if (code == RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE)
        metadata_refused(s);
    else if ((int)code == STALE_MEMBER_EPOCH)
        lw_debug("%s/%d: commit of %lld came with an old epoch; it is sent again", tp->topic,
                 (int)tp->partition, (long long)tp->offset);
    else if (code)
        lw_warn_some(20, "%s/%d: commit of %lld rejected: %s; %s", tp->topic, (int)tp->partition,
                     (long long)tp->offset, rd_kafka_err2str(code),
                     is_stale(code)
                         ? "the group has expelled this worker, and the next rebalance follows"
                         : "retrying while the partition is ours");
    else
        s->auth_since_ms = 0;
    if (lw_source_part(s, k->gens[i])) s->ev.committed(s->ctx, k->gens[i], tp->offset, !code);
}

static void forget(struct lw_sent *k) {
    LL_DELETE(k->source->sent, k);
    free(k);
}

void lw_source_forget_commits(struct lw_source *s) {
    while (s->sent) forget(s->sent);
}

static void on_answer(rd_kafka_t *rk, rd_kafka_resp_err_t code,
                      rd_kafka_topic_partition_list_t *list, void *opaque) {
    (void)rk;
    struct lw_sent *k = opaque;
    k->answered = true;
    k->code = code;
    if (!k->sync) k->source->commit_busy = false;
    for (int i = 0; list && i < list->cnt; i++) {
        rd_kafka_resp_err_t each = list->elems[i].err;
        /* an error for which is_stale() is false takes precedence, because it may be temporary */
        if (!k->code || (each && is_stale(k->code))) k->code = each ? each : k->code;
        answer_one(k, &list->elems[i], each ? each : code);
    }
    if (!k->sync || k->abandoned) forget(k);
}

static rd_kafka_topic_partition_list_t *
make_list(const struct lw_source *s, const struct lw_commit *c, size_t n, struct lw_err *err) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    for (size_t i = 0; i < n; i++) {
        const struct lw_part *p = lw_source_part(s, c[i].gen);
        if (!p || c[i].offset < 0) {
            if (!p)
                lw_fail(err, "can't commit: the partition is no longer assigned (generation %u)",
                        c[i].gen);
            else
                lw_fail(err, "%s/%d: can't commit offset %lld", p->topic, (int)p->partition,
                        (long long)c[i].offset);
            rd_kafka_topic_partition_list_destroy(list);
            return NULL;
        }
        rd_kafka_topic_partition_t *tp =
            rd_kafka_topic_partition_list_add(list, p->topic, p->partition);
        tp->offset = c[i].offset;
        tp->opaque = (void *)(uintptr_t)i;
        /* librdkafka frees the metadata text */
        tp->metadata = lw_source_metadata(s, p, c[i].fleet);
        tp->metadata_size = tp->metadata ? strlen(tp->metadata) : 0;
    }
    return list;
}

/* Sends a commit of n partitions. Returns the commit in flight, or NULL with *err if nothing was
 * sent. */
static struct lw_sent *send_commit(struct lw_source *s, const struct lw_commit *c, size_t n,
                                   bool sync, bool *ok, struct lw_err *err) {
    rd_kafka_topic_partition_list_t *list = make_list(s, c, n, err);
    if (!list) return NULL;
    struct lw_sent *k = lw_alloc(sizeof *k + n * sizeof k->gens[0]);
    *k = (struct lw_sent){.source = s, .sync = sync, .ok = ok, .n = n};
    for (size_t i = 0; i < n; i++) k->gens[i] = c[i].gen;
    rd_kafka_resp_err_t code = rd_kafka_commit_queue(s->rk, list, s->commit_queue, on_answer, k);
    rd_kafka_topic_partition_list_destroy(list);
    if (!code) {
        LL_PREPEND(s->sent, k);
        return k;
    }
    free(k);
    lw_fail(err, "can't commit: %s", rd_kafka_err2str(code));
    return NULL;
}

int lw_source_commit(struct lw_source *s, const struct lw_commit *c, size_t n, struct lw_err *err) {
    if (!n) return 0;
    if (s->commit_busy) return lw_fail(err, "can't commit: the commit before is unanswered");
    if (!send_commit(s, c, n, false, NULL, err)) return -1;
    s->commit_busy = true;
    return 0;
}

bool lw_source_commit_busy(const struct lw_source *s) { return s->commit_busy; }

static int commit_once(struct lw_source *s, const struct lw_commit *c, size_t n, bool *ok,
                       int64_t until_ms, bool *again, struct lw_err *err) {
    int64_t left_ms, timeout_ms = until_ms - lw_boot_ms();
    struct lw_sent *k = send_commit(s, c, n, true, ok, err);
    *again = false;
    if (!k) return -1;
    while (!k->answered && (left_ms = until_ms - lw_boot_ms()) > 0)
        lw_source_serve_commits(s, left_ms < 100 ? (int)left_ms : 100);
    if (!k->answered) {
        k->abandoned = true; /* on_answer() will free the commit */
        return lw_fail(err, "commit unanswered after %lld ms", (long long)timeout_ms);
    }
    rd_kafka_resp_err_t code = k->code;
    forget(k);
    *again = (int)code == STALE_MEMBER_EPOCH || code == RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE;
    /* is_stale(code) is true only if no commit was refused for another reason */
    if (ok && is_stale(code)) return 0;
    return code ? lw_fail(err, "commit refused: %s", rd_kafka_err2str(code)) : 0;
}

int lw_source_commit_sync(struct lw_source *s, const struct lw_commit *c, size_t n, bool *ok,
                          int64_t timeout_ms, struct lw_err *err) {
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    for (;;) {
        bool again;
        if (ok) memset(ok, 0, n * sizeof *ok);
        int rc = n ? commit_once(s, c, n, ok, until_ms, &again, err) : 0;
        if (!rc || !again || lw_boot_ms() + ASK_AGAIN_MS >= until_ms) return rc;
        lw_sleep_ms(ASK_AGAIN_MS);
    }
}

void lw_source_serve_commits(struct lw_source *s, int timeout_ms) {
    rd_kafka_queue_poll_callback(s->commit_queue, timeout_ms);
}

int lw_source_committed(struct lw_source *s, const char *topic, int32_t partition, int64_t *offset,
                        struct lw_err *err) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, topic, partition);
    rd_kafka_resp_err_t code = rd_kafka_committed(s->rk, list, 3000);
    if (!code) code = tp->err;
    *offset = tp->offset >= 0 ? tp->offset : -1;
    rd_kafka_topic_partition_list_destroy(list);
    return code ? lw_fail(err, "%s", rd_kafka_err2str(code)) : 0;
}
