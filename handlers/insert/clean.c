/* SPDX-License-Identifier: Apache-2.0 */
/* The cleaner keeps Latchwork's own tables small. It runs short transactions on its own thread
 * and its own connection, in rounds with a wait of ROUND_MS between them. */
#include "handlers/insert/insert.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

enum {
    ROUND_MS = 1000,
    /* SLICES_A_ROUND is the maximum number of slices per round. It is limited so that the
     * cleaner does not delay other writers for long. */
    SLICES_A_ROUND = 50,
};

struct passed {
    UT_hash_handle hh;
    int64_t watermark, cleaned;
    unsigned round; /* number of the last round in which the cleaner chose this partition */
    int32_t partition;
    char name[]; /* "PARTITION TOPIC", the key of the hash table */
};

struct lw_cleaner {
    const struct lw_store_kind *kind;
    pthread_t thread;
    pthread_mutex_t lock; /* guards `passed` and `stop` */
    pthread_cond_t wake;
    struct passed *passed;
    bool stop;
    /* Only the cleaner's thread uses the fields below. */
    struct lw_sweeper *sweeper;
    unsigned round;
};

/* Finds a partition that has identities to delete and has not been chosen in this round. Copies its
 * topic and watermark, because the main thread may change the table as soon as the mutex is
 * released. Returns false if there is no such partition. */
static bool next_passed(struct lw_cleaner *c, struct passed **which, char *topic, size_t size,
                        int64_t *watermark) {
    bool found = false;
    pthread_mutex_lock(&c->lock);
    for (struct passed *p = c->passed; p && !found; p = p->hh.next) {
        if (p->watermark <= p->cleaned || p->round == c->round) continue;
        found = true;
        p->round = c->round;
        /* *which stays valid, because entries are freed only when the cleaner closes */
        *which = p;
        *watermark = p->watermark;
        snprintf(topic, size, "%s", strchr(p->name, ' ') + 1);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Cleans all partitions. Returns false if some partitions were not cleaned to the end, because the
 * round has used up its slices or the database is busy or unreachable. */
static bool clean_partitions(struct lw_cleaner *c, bool closing) {
    struct passed *p;
    char topic[256];
    int64_t watermark;
    int slices = 0;
    c->round++;
    while (next_passed(c, &p, topic, sizeof topic, &watermark)) {
        struct lw_sweep what = {topic, p->cleaned, watermark, p->partition, closing};
        enum lw_swept swept = LW_SWEPT_SLICE;
        while (swept == LW_SWEPT_SLICE && slices++ < SLICES_A_ROUND)
            swept = c->kind->sweep_seen(c->sweeper, &what);
        if (swept != LW_SWEPT_ALL) return false;
        pthread_mutex_lock(&c->lock);
        p->cleaned = watermark;
        pthread_mutex_unlock(&c->lock);
    }
    return true;
}

/* Waits until the next round. Returns false if the thread must stop. */
static bool wait_round(struct lw_cleaner *c) {
    struct timespec until = lw_from_now(ROUND_MS);
    pthread_mutex_lock(&c->lock);
    while (!c->stop && pthread_cond_timedwait(&c->wake, &c->lock, &until) == 0) {}
    bool go_on = !c->stop;
    pthread_mutex_unlock(&c->lock);
    return go_on;
}

static void *run(void *arg) {
    struct lw_cleaner *c = arg;
    for (unsigned round = 0; wait_round(c); round++)
        if (clean_partitions(c, false)) c->kind->sweep_old(c->sweeper, round);
    clean_partitions(c, true);
    return NULL;
}

static void free_all(struct lw_cleaner *c) {
    c->kind->sweeper_close(c->sweeper);
    struct passed *p, *tmp;
    HASH_ITER(hh, c->passed, p, tmp) {
        HASH_DEL(c->passed, p);
        free(p);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->wake);
    free(c);
}

struct lw_cleaner *lw_cleaner_open(const struct lw_store_kind *kind, struct lw_sweeper *sweeper,
                                   struct lw_err *err) {
    struct lw_cleaner *c = lw_alloc(sizeof *c);
    c->kind = kind;
    c->sweeper = sweeper;
    pthread_mutex_init(&c->lock, NULL);
    lw_cond_init(&c->wake);
    if (lw_thread_start(&c->thread, run, c) == 0) return c;
    lw_fail(err, "insert: cannot start the cleaner's thread");
    free_all(c);
    return NULL;
}

void lw_cleaner_passed(struct lw_cleaner *c, const char *topic, int32_t partition,
                       int64_t watermark) {
    char name[288];
    int n = snprintf(name, sizeof name, "%d %s", (int)partition, topic);
    if (n < 0 || (size_t)n >= sizeof name) return; /* Kafka allows no topic name of this length */
    pthread_mutex_lock(&c->lock);
    struct passed *p;
    HASH_FIND(hh, c->passed, name, (size_t)n, p);
    if (!p) {
        p = lw_alloc(sizeof *p + (size_t)n + 1);
        memcpy(p->name, name, (size_t)n + 1);
        p->partition = partition;
        p->cleaned = -1;
        HASH_ADD(hh, c->passed, name, (size_t)n, p);
    }
    if (watermark > p->watermark) p->watermark = watermark;
    pthread_mutex_unlock(&c->lock);
}

void lw_cleaner_close(struct lw_cleaner *c) {
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    free_all(c);
}
