/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/finder.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/redis/stream.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SEARCH_MS = 6000, CLOSE_MS = 2000 };

struct lw_finding {
    struct lw_finder *finder;
    int shard, fd;
    /* the numbers of three questions: the newest, the one that a search is working on, and the last
     * one answered */
    unsigned asked, searching, answered;
    bool taken;
    struct lw_redis_url found; /* the answer, if `err` is empty */
    struct lw_err err;
    struct lw_finding *next;
};

struct lw_finder {
    struct lw_redis_servers servers;
    /* guards the fields below, except `resolved` and `thread`, and guards the findings */
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    struct lw_finding *all;
    bool stopping, threaded;
    /* number of host names resolved so far, which only the finder's thread uses; this number
     * chooses one of a host's addresses, so that successive searches take different addresses */
    unsigned resolved;
    pthread_t thread;
};

/* --- the thread ------------------------------------------------------------------------------- */

static size_t place_of(const struct lw_finding *q) {
    return (size_t)q->shard % lw_redis_servers_count(&q->finder->servers);
}

static struct lw_finding *next_question(const struct lw_finder *f) {
    for (struct lw_finding *q = f->all; q; q = q->next)
        if (q->asked != q->answered) return q;
    return NULL;
}

static void rouse(const struct lw_finding *q) {
    uint64_t one = 1;
    if (write(q->fd, &one, sizeof one) != sizeof one)
        lw_error("finder: can't tell a connection its server: eventfd: %s", strerror(errno));
}

static void answer(struct lw_finding *q, const struct lw_redis_url *found,
                   const struct lw_err *err) {
    q->answered = q->searching;
    q->searching = 0;
    q->taken = false;
    lw_redis_url_free(&q->found);
    q->err = *err;
    if (!err->text[0] && lw_redis_url_copy(found, &q->found, NULL)) lw_fail_memory(&q->err);
    if (q->answered == q->asked) rouse(q);
}

/* Finds the server of a shard and resolves the name of its host here, in the finder's thread,
 * because resolving can block. */
static void find(struct lw_finder *f, int shard, struct lw_redis_url *out, struct lw_err *err) {
    struct lw_err why = {0};
    if (lw_redis_servers_find(&f->servers, shard, SEARCH_MS, out, err) ||
        !lw_stream_resolve(out, f->resolved++, &why))
        return;
    why.memory ? lw_fail_memory(err) : lw_fail(err, "%s: %s", out->host, why.text);
}

/* Searches for the server of one shard while the mutex is unlocked. The result answers every
 * question about that server that was asked before the search began. */
static void search(struct lw_finder *f, const struct lw_finding *first) {
    struct lw_redis_url found;
    struct lw_err err = {0};
    int shard = first->shard;
    size_t place = place_of(first);
    for (struct lw_finding *q = f->all; q; q = q->next)
        if (place_of(q) == place && q->asked != q->answered) q->searching = q->asked;
    pthread_mutex_unlock(&f->mutex);
    find(f, shard, &found, &err);
    pthread_mutex_lock(&f->mutex);
    for (struct lw_finding *q = f->all; q; q = q->next)
        if (q->searching && place_of(q) == place) answer(q, &found, &err);
    lw_redis_url_free(&found);
}

static void *thread_main(void *arg) {
    struct lw_finder *f = arg;
    pthread_mutex_lock(&f->mutex);
    while (!f->stopping) {
        const struct lw_finding *q = next_question(f);
        if (q)
            search(f, q);
        else
            pthread_cond_wait(&f->asked, &f->mutex);
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void free_finder(struct lw_finder *f) {
    lw_redis_servers_free(&f->servers);
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->asked);
    free(f);
}

struct lw_finder *lw_finder_open(struct lw_redis_servers *servers, struct lw_err *err) {
    struct lw_finder *f = lw_alloc(sizeof *f);
    f->servers = *servers;
    *servers = (struct lw_redis_servers){0};
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->asked, NULL);
    f->threaded = f->servers.kind != LW_REDIS_LIST;
    int e = f->threaded ? lw_thread_start(&f->thread, thread_main, f) : 0;
    if (!e) return f;
    lw_fail(err, "the thread that finds Redis can't be started: %s", strerror(e));
    free_finder(f);
    return NULL;
}

void lw_finder_close(struct lw_finder *f) {
    if (!f) return;
    pthread_mutex_lock(&f->mutex);
    f->stopping = true;
    pthread_cond_signal(&f->asked);
    pthread_mutex_unlock(&f->mutex);
    if (!f->threaded || lw_join_within(f->thread, CLOSE_MS)) free_finder(f);
}

struct lw_finding *lw_finding_open(struct lw_finder *f, int shard) {
    struct lw_finding *q = lw_alloc(sizeof *q);
    *q = (struct lw_finding){.finder = f, .shard = shard, .fd = -1, .taken = true};
    if (!f->threaded) return q;
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&f->mutex);
    q->next = f->all;
    f->all = q;
    pthread_mutex_unlock(&f->mutex);
    return q;
}

static void leave(struct lw_finding *q) {
    pthread_mutex_lock(&q->finder->mutex);
    struct lw_finding **at = &q->finder->all;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    pthread_mutex_unlock(&q->finder->mutex);
    if (q->fd >= 0) close(q->fd);
}

void lw_finding_close(struct lw_finding *q) {
    if (!q) return;
    if (q->finder->threaded) leave(q);
    lw_redis_url_free(&q->found);
    free(q);
}

/* --- asking ----------------------------------------------------------------------------------- */

int lw_finding_fd(const struct lw_finding *q) { return q->fd; }

void lw_finding_doubt(struct lw_finding *q) { lw_redis_servers_doubt(&q->finder->servers); }

bool lw_finding_lags(const struct lw_finding *q) {
    return q->finder->servers.kind == LW_REDIS_SENTINEL;
}

void lw_finding_ask(struct lw_finding *q) {
    if (!q->finder->threaded) return;
    pthread_mutex_lock(&q->finder->mutex);
    if (!++q->asked) q->asked = 1; /* skip 0, which means that no question was asked */
    pthread_cond_signal(&q->finder->asked);
    pthread_mutex_unlock(&q->finder->mutex);
}

static int take_answer(struct lw_finding *q, struct lw_redis_url *out, struct lw_err *err) {
    uint64_t n;
    /* empties the eventfd; the read fails with EAGAIN if there is nothing to read */
    ssize_t r = read(q->fd, &n, sizeof n);
    (void)r;
    if (q->asked != q->answered || q->taken) return 0;
    q->taken = true;
    *out = q->found;
    q->found = (struct lw_redis_url){0};
    return q->err.text[0] ? (*err = q->err, -1) : 1;
}

int lw_finding_take(struct lw_finding *q, struct lw_redis_url *out, struct lw_err *err) {
    *out = (struct lw_redis_url){0};
    if (!q->finder->threaded)
        return lw_redis_servers_find(&q->finder->servers, q->shard, 0, out, err) ? -1 : 1;
    pthread_mutex_lock(&q->finder->mutex);
    int taken = take_answer(q, out, err);
    pthread_mutex_unlock(&q->finder->mutex);
    return taken;
}
