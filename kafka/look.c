/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all commits of the group, including those for partitions of other members. The source's own
 * client asks, in a thread, because a request may take seconds.
 *
 * ListConsumerGroupOffsets would need no thread. But in librdkafka 2.0.2 that request fails an
 * assertion and ends the process if the group coordinator disappears during the request
 * (rd_kafka_enq_once_del_source_return). tests/live/test_kafka.py:broker_killed has shown this
 * failure. */
#include "kafka/private.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { ASK_MS = 3000, CLOSE_MS = 500, PARTITIONS_MAX = 50000 };

struct lw_looker {
    rd_kafka_t *rk; /* the client of the source */
    const struct lw_config *config;
    int fd; /* eventfd that becomes readable when there is an answer */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    bool wanted, answered, ending; /* guarded by the mutex, like `list` */
    /* true if the request covers all topics of the cluster; false if it covers only the configured
     * topics */
    bool all;
    rd_kafka_topic_partition_list_t *list; /* the answer; NULL if the broker gave none */
};

static bool add_topic(const struct rd_kafka_metadata_topic *t,
                      rd_kafka_topic_partition_list_t *list) {
    for (int i = 0; i < t->partition_cnt && list->cnt < PARTITIONS_MAX; i++)
        rd_kafka_topic_partition_list_add(list, t->topic, t->partitions[i].id);
    return !t->err && list->cnt < PARTITIONS_MAX;
}

/* Adds every partition of a topic, or of all topics if `topic` is NULL, to `list`. Returns false if
 * the broker did not list the partitions, or if `list` reaches its limit of PARTITIONS_MAX. */
static bool add_partitions(rd_kafka_t *rk, const char *topic,
                           rd_kafka_topic_partition_list_t *list) {
    const struct rd_kafka_metadata *m = NULL;
    rd_kafka_topic_t *t = topic ? rd_kafka_topic_new(rk, topic, NULL) : NULL;
    bool told = (t || !topic) && !rd_kafka_metadata(rk, !topic, t, &m, ASK_MS) &&
                (!topic || m->topic_cnt == 1);
    for (int i = 0; told && i < m->topic_cnt; i++) told = add_topic(&m->topics[i], list);
    if (m) rd_kafka_metadata_destroy(m);
    if (t) rd_kafka_topic_destroy(t);
    return told;
}

static rd_kafka_topic_partition_list_t *read_commits(struct lw_looker *l) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
    bool told = !l->all || add_partitions(l->rk, NULL, list);
    for (size_t i = 0; told && !l->all && i < l->config->kafka.n_topics; i++)
        told = add_partitions(l->rk, l->config->kafka.topics[i], list);
    if (told && !rd_kafka_committed(l->rk, list, ASK_MS)) return list;
    rd_kafka_topic_partition_list_destroy(list);
    return NULL;
}

static void *look(void *arg) {
    struct lw_looker *l = arg;
    pthread_mutex_lock(&l->mutex);
    while (!l->ending) {
        if (!l->wanted) {
            pthread_cond_wait(&l->asked, &l->mutex);
            continue;
        }
        pthread_mutex_unlock(&l->mutex);
        rd_kafka_topic_partition_list_t *list = read_commits(l);
        uint64_t one = 1;
        pthread_mutex_lock(&l->mutex);
        l->list = list;
        l->wanted = false;
        l->answered = true;
        /* the write fails only if the eventfd's counter is full, and then the eventfd is readable
         * anyway */
        if (!l->ending && write(l->fd, &one, sizeof one) < 0) continue;
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static struct lw_looker *open_looker(const struct lw_source *s, struct lw_err *err) {
    struct lw_looker *l = lw_alloc(sizeof *l);
    *l = (struct lw_looker){.rk = s->rk, .config = s->config, .fd = s->fd};
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->asked, NULL);
    if (!pthread_create(&l->thread, NULL, look, l)) return l;
    lw_fail(err, "can't start a thread that looks at the group's commits");
    pthread_mutex_destroy(&l->mutex);
    pthread_cond_destroy(&l->asked);
    free(l);
    return NULL;
}

bool lw_source_look(struct lw_source *s, bool all) {
    struct lw_err err = {0};
    if (s->looking || s->dead) return false;
    if (!s->looker) s->looker = open_looker(s, &err);
    if (!s->looker) {
        lw_warn("kafka: can't look at the commits of group \"%s\": %s; retrying later",
                s->config->kafka.group_id, err.text);
        return false;
    }
    pthread_mutex_lock(&s->looker->mutex);
    s->looker->wanted = true;
    s->looker->all = all;
    pthread_cond_signal(&s->looker->asked);
    pthread_mutex_unlock(&s->looker->mutex);
    s->looking = true;
    return true;
}

static void tell(struct lw_source *s, const rd_kafka_topic_partition_list_t *list) {
    for (int i = 0; list && i < list->cnt && !s->dead; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        if (tp->err || tp->offset < 0 || !tp->metadata_size) continue;
        struct lw_anchor anchor; /* only the partition's owner uses it */
        char fleet[LW_FLEET + 1];
        lw_meta_decode(tp->metadata, tp->metadata_size, fleet, &anchor);
        struct lw_group_offset o = {tp->topic, tp->partition, tp->offset, fleet};
        s->ev.looked(s->ctx, &o);
    }
}

/* Reports the number of the group's commits by the callback `listed`. The number is unknown if the
 * broker gave no answer, or an error for a partition, because that partition may have a commit. */
static void tell_number(struct lw_source *s, const rd_kafka_topic_partition_list_t *list) {
    bool known = list;
    size_t n = 0;
    for (int i = 0; list && i < list->cnt; i++) {
        known &= !list->elems[i].err;
        n += list->elems[i].offset >= 0;
    }
    if (s->ev.listed) s->ev.listed(s->ctx, known, n);
}

void lw_source_serve_look(struct lw_source *s) {
    if (!s->looking) return;
    pthread_mutex_lock(&s->looker->mutex);
    bool answered = s->looker->answered, all = s->looker->all;
    rd_kafka_topic_partition_list_t *list = s->looker->list;
    s->looker->answered = false;
    s->looker->list = NULL;
    pthread_mutex_unlock(&s->looker->mutex);
    if (!answered) return;
    s->looking = false;
    if (!list) lw_debug("kafka: can't read the commits of group \"%s\"", s->config->kafka.group_id);
    all ? tell_number(s, list) : tell(s, list);
    if (list) rd_kafka_topic_partition_list_destroy(list);
    /* an answer about all topics is rarely needed again, so the thread can end after this answer */
    if (all && list) lw_source_end_look(s);
}

bool lw_source_end_look(struct lw_source *s) {
    struct lw_looker *l = s->looker;
    s->looker = NULL;
    s->looking = false;
    if (!l) return true;
    pthread_mutex_lock(&l->mutex);
    l->ending = true;
    pthread_cond_signal(&l->asked);
    pthread_mutex_unlock(&l->mutex);
    /* If the thread still waits for a broker that does not answer, leave the thread, its memory and
     * the client alone, because the process ends soon. */
    if (!lw_join_within(l->thread, CLOSE_MS)) return false;
    if (l->list) rd_kafka_topic_partition_list_destroy(l->list);
    pthread_mutex_destroy(&l->mutex);
    pthread_cond_destroy(&l->asked);
    free(l);
    return true;
}
