/* SPDX-License-Identifier: Apache-2.0 */
/* The inspector reads individual records again (kafka/anchor.h). Its own Kafka client is not a
 * member of the consumer group, so that it does not disturb fetching. */
#include "kafka/anchor.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "kafka/conf.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* maximum time, in ms, for reading the record of one partition; if the broker is slower, the
     * next check reads it again */
    READ_MS = 3000,
    ASK_MS = 3000,
    /* number of offsets before `begin` at which the inspector looks for a record that can be the
     * anchor; one offset would not suffice, because it may hold a transaction marker */
    LEARN_BEFORE = 16,
    DESTROY_MS = 1000,
};

struct lw_inspector {
    rd_kafka_t *rk;
    int fd;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    struct lw_looked *all; /* the mutex guards this field and the fields below */
    size_t n;
    bool answered, ending;
};

static bool ending(struct lw_inspector *i) {
    pthread_mutex_lock(&i->mutex);
    bool is = i->ending;
    pthread_mutex_unlock(&i->mutex);
    return is;
}

/* Compares a record with the anchor. If `learning` is true, compares nothing: the partition has no
 * anchor yet, and the record becomes the anchor if its offset is below `begin`. */
static void judge(struct lw_looked *k, const rd_kafka_message_t *m, bool learning) {
    struct lw_anchor is = lw_anchor_of(m);
    if (learning) {
        if (m->offset < k->begin) k->anchor = is, k->found = LW_LOOK_SAME;
    } else if (m->offset != k->anchor.offset) {
        k->found = LW_LOOK_GONE;
    } else if (is.timestamp_ms == k->anchor.timestamp_ms && is.hash == k->anchor.hash) {
        k->found = LW_LOOK_SAME;
    } else {
        k->found = LW_LOOK_ANOTHER;
        snprintf(k->why, sizeof k->why,
                 "offset %" PRId64 " now holds another record (timestamp %" PRId64 ", was %" PRId64
                 ")",
                 m->offset, is.timestamp_ms, k->anchor.timestamp_ms);
    }
}

/* Handles one record. Returns true if another record should be read. */
static bool take(struct lw_looked *k, const rd_kafka_message_t *m, bool learning) {
    /* no record came, because of the end of the log, an offset out of range, or an unknown topic;
     * judge_ends() finds out which */
    if (m->err) return false;
    judge(k, m, learning);
    return learning && m->offset + 1 < k->begin;
}

static void read_from(struct lw_inspector *i, struct lw_looked *k, int64_t from, bool learning) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(i->rk, k->topic, NULL);
    if (!rkt) return;
    int64_t until_ms = lw_boot_ms() + READ_MS;
    if (!rd_kafka_consume_start(rkt, k->partition, from)) {
        bool more = true;
        while (more && lw_boot_ms() < until_ms && !ending(i)) {
            rd_kafka_message_t *m = rd_kafka_consume(rkt, k->partition, 50);
            if (!m) continue;
            more = take(k, m, learning);
            rd_kafka_message_destroy(m);
        }
        rd_kafka_consume_stop(rkt, k->partition);
    }
    rd_kafka_topic_destroy(rkt);
}

static bool ask_ends(struct lw_inspector *i, const struct lw_looked *k, int64_t *low,
                     int64_t *high) {
    return !rd_kafka_query_watermark_offsets(i->rk, k->topic, k->partition, low, high, ASK_MS);
}

/* Finds out why Kafka sent no record from the offset of the anchor, and sets k->found if it knows
 * the reason. If the log now ends at or before that offset, the log was recreated or truncated. If
 * the log begins after that offset, the record was deleted. */
static void judge_ends(struct lw_inspector *i, struct lw_looked *k) {
    int64_t low, high;
    if (!ask_ends(i, k, &low, &high)) return;
    if (high <= k->anchor.offset) {
        k->found = LW_LOOK_ANOTHER;
        snprintf(k->why, sizeof k->why,
                 "the log now ends at %" PRId64 ", though offset %" PRId64 " was read", high,
                 k->anchor.offset);
    } else if (low > k->anchor.offset) {
        k->found = LW_LOOK_GONE;
    }
}

static void look(struct lw_inspector *i, struct lw_looked *k) {
    k->found = LW_LOOK_UNKNOWN;
    if (k->anchor.offset >= 0) {
        read_from(i, k, k->anchor.offset, false);
        if (k->found == LW_LOOK_UNKNOWN) judge_ends(i, k);
        return;
    }
    int64_t low, high, from = k->begin - LEARN_BEFORE;
    if (k->begin <= 0 || !ask_ends(i, k, &low, &high)) return;
    if (from < low) from = low;
    if (from < k->begin) read_from(i, k, from, true);
}

static void *inspect(void *arg) {
    struct lw_inspector *i = arg;
    pthread_mutex_lock(&i->mutex);
    while (!i->ending) {
        if (!i->all || i->answered) {
            pthread_cond_wait(&i->asked, &i->mutex);
            continue;
        }
        struct lw_looked *all = i->all;
        size_t n = i->n;
        pthread_mutex_unlock(&i->mutex);
        for (size_t k = 0; k < n && !ending(i); k++) look(i, &all[k]);
        uint64_t one = 1;
        pthread_mutex_lock(&i->mutex);
        i->answered = true;
        /* the write fails only if the eventfd's counter is full, and then the eventfd is readable
         * anyway */
        if (!i->ending && write(i->fd, &one, sizeof one) < 0) continue;
    }
    pthread_mutex_unlock(&i->mutex);
    return NULL;
}

static rd_kafka_t *open_client(const struct lw_config *c, struct lw_err *err) {
    static const char *const settings[][2] = {
        {"auto.offset.reset", "error"},       {"enable.partition.eof", "true"},
        {"fetch.message.max.bytes", "65536"}, {"queued.max.messages.kbytes", "1024"},
        {"queued.min.messages", "1"},         {"fetch.wait.max.ms", "50"},
        {"fetch.error.backoff.ms", "100"},
    };
    rd_kafka_conf_t *conf = lw_kafka_conf_client(c, err);
    if (!conf) return NULL;
    char why[512] = "";
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
        if (rd_kafka_conf_set(conf, settings[k][0], settings[k][1], why, sizeof why))
            lw_warn("kafka inspector: can't set %s: %s; its default stays", settings[k][0], why);
    return lw_kafka_new(c, RD_KAFKA_CONSUMER, conf, err);
}

struct lw_inspector *lw_inspector_open(const struct lw_config *c, int fd, struct lw_err *err) {
    rd_kafka_t *rk = open_client(c, err);
    if (!rk) return NULL;
    struct lw_inspector *i = lw_alloc(sizeof *i);
    *i = (struct lw_inspector){.rk = rk, .fd = fd};
    pthread_mutex_init(&i->mutex, NULL);
    pthread_cond_init(&i->asked, NULL);
    if (!pthread_create(&i->thread, NULL, inspect, i)) return i;
    lw_fail(err, "can't start the inspector's thread");
    lw_kafka_destroy(rk, DESTROY_MS);
    free(i);
    return NULL;
}

bool lw_inspector_busy(struct lw_inspector *i) {
    pthread_mutex_lock(&i->mutex);
    bool is = i->all;
    pthread_mutex_unlock(&i->mutex);
    return is;
}

void lw_inspector_ask(struct lw_inspector *i, struct lw_looked *all, size_t n) {
    pthread_mutex_lock(&i->mutex);
    i->all = all;
    i->n = n;
    i->answered = false;
    pthread_cond_signal(&i->asked);
    pthread_mutex_unlock(&i->mutex);
}

struct lw_looked *lw_inspector_answer(struct lw_inspector *i, size_t *n) {
    struct lw_looked *all = NULL;
    pthread_mutex_lock(&i->mutex);
    if (i->answered) {
        all = i->all;
        *n = i->n;
        i->all = NULL;
        i->answered = false;
    }
    pthread_mutex_unlock(&i->mutex);
    return all;
}

void lw_inspector_close(struct lw_inspector *i, int64_t timeout_ms) {
    if (!i) return;
    pthread_mutex_lock(&i->mutex);
    i->ending = true;
    pthread_cond_signal(&i->asked);
    pthread_mutex_unlock(&i->mutex);
    /* If the thread still waits for a broker that does not answer, leave the thread and its memory
     * alone, because the process ends soon. */
    if (!lw_join_within(i->thread, timeout_ms)) return;
    lw_kafka_destroy(i->rk, DESTROY_MS);
    pthread_mutex_destroy(&i->mutex);
    pthread_cond_destroy(&i->asked);
    free(i->all);
    free(i);
}
