/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of waiters, and the thread that listens for releases on one server, over one connection
 * that is subscribed to the client's channel lwl:wake:CLIENT. While there is no subscription, and
 * always in a cluster, the first waiter of a line tries every 10 to 100 ms instead. */
#include "lock/waking.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

enum {
    BUCKETS = 1024,
    SLEEP_MAX_MS = 60000,
    /* Time in ms for which a connection may be silent before it is tested with PING. */
    SILENT_MS = 15000,
    BACKOFF_MS = 50,
    BACKOFF_MAX_MS = 2000
};

struct lw_line {
    struct lw_line *next; /* next line in the same bucket of the hash table */
    struct lw_waiter *first;
    /* Time on the boot clock at which the first waiter in line tries to take the lock without a
     * message about a release. 0: at once. */
    int64_t look_ms;
    bool failed; /* true if the line's last attempt failed; `failure` says why */
    struct latchwork_error failure;
    size_t n_name;
    char name[];
};

struct lw_waking {
    struct latchwork_client *client;
    bool listens; /* true if there is a listening thread: not in a cluster */
    pthread_t thread;
    int rouse_fd;          /* eventfd that ends the listening thread */
    atomic_bool up;        /* true while the subscription works */
    pthread_mutex_t mutex; /* guards the lines in `bucket` */
    struct lw_line *bucket[BUCKETS];
};

/* --- lines; the mutex is held ----------------------------------------------------------------- */

static struct lw_line **find(struct lw_waking *k, const char *name, size_t n) {
    uint64_t hash = 14695981039346656037U; /* initial value of the 64-bit FNV-1a hash */
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)name[i]) * 1099511628211U;
    struct lw_line **at = &k->bucket[hash % BUCKETS];
    while (*at && ((*at)->n_name != n || memcmp((*at)->name, name, n))) at = &(*at)->next;
    return at;
}

static void wake(struct lw_line *line) {
    if (!line || !line->first) return;
    line->first->woken = true;
    pthread_cond_signal(&line->first->changed);
}

/* Puts a waiter in line behind those with smaller tickets. Tickets mostly grow, so its place is
 * looked for from the end. */
static void insert(struct lw_line *line, struct lw_waiter *w) {
    struct lw_waiter *after = line->first ? line->first->prev : NULL; /* the last one */
    while (after && after->ticket > w->ticket) after = after == line->first ? NULL : after->prev;
    DL_APPEND_ELEM(line->first, after, w);
}

/* --- the waiters' side ------------------------------------------------------------------------ */

bool lw_waking_is_up(struct lw_waking *k) { return atomic_load(&k->up); }

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name) {
    pthread_mutex_lock(&k->mutex);
    const struct lw_line *line = *find(k, name.p, name.n);
    bool has = line && line->first;
    pthread_mutex_unlock(&k->mutex);
    return has;
}

static struct lw_line *new_line(struct lw_bytes name) {
    struct lw_line *line = calloc(1, sizeof *line + name.n);
    if (!line) return NULL;
    line->n_name = name.n;
    memcpy(line->name, name.p, name.n);
    return line;
}

bool lw_wait_join(struct lw_waking *k, struct lw_waiter *w, struct lw_bytes name) {
    *w = (struct lw_waiter){.ticket = 1e300};
    pthread_mutex_lock(&k->mutex);
    struct lw_line **at = find(k, name.p, name.n);
    if (!*at) *at = new_line(name);
    w->line = *at;
    if (w->line) {
        lw_cond_init(&w->changed);
        DL_APPEND(w->line->first, w);
    }
    pthread_mutex_unlock(&k->mutex);
    return w->line != NULL;
}

void lw_wait_place(struct lw_waking *k, struct lw_waiter *w, double ticket) {
    pthread_mutex_lock(&k->mutex);
    struct lw_line *line = w->line;
    struct lw_waiter *was_first = line->first;
    DL_DELETE(line->first, w);
    w->ticket = ticket;
    insert(line, w);
    if (line->first != was_first) {
        /* The waiter with the smaller ticket is now first in line. If the previous first waiter was
         * woken but has not tried yet, the new first waiter must try instead. */
        if (was_first && was_first->woken) line->first->woken = true;
        pthread_cond_signal(&line->first->changed);
    }
    pthread_mutex_unlock(&k->mutex);
}

static void sleep_until(struct lw_waking *k, struct lw_waiter *w, int64_t left_ms) {
    if (left_ms > SLEEP_MAX_MS) left_ms = SLEEP_MAX_MS;
    lw_cond_wait_ms(&w->changed, &k->mutex, left_ms);
}

bool lw_wait_sleep(struct lw_waking *k, struct lw_waiter *w, int64_t until_ms, bool *more) {
    bool turn = false;
    pthread_mutex_lock(&k->mutex);
    while (!atomic_load(&k->client->interrupted)) {
        int64_t now = lw_boot_ms();
        if (now >= until_ms) break;
        bool first = w->line->first == w;
        if (first && (w->woken || now >= w->line->look_ms)) {
            w->woken = false;
            *more = w->next != NULL;
            turn = true;
            break;
        }
        int64_t till = first && w->line->look_ms < until_ms ? w->line->look_ms : until_ms;
        sleep_until(k, w, till - now);
    }
    pthread_mutex_unlock(&k->mutex);
    return turn;
}

void lw_wait_look_at(struct lw_waking *k, struct lw_waiter *w, int64_t look_ms,
                     const struct latchwork_error *failure) {
    pthread_mutex_lock(&k->mutex);
    w->line->look_ms = look_ms;
    w->line->failed = failure != NULL;
    if (failure) w->line->failure = *failure;
    pthread_mutex_unlock(&k->mutex);
}

bool lw_wait_failed(struct lw_waking *k, struct lw_waiter *w, struct latchwork_error *error) {
    pthread_mutex_lock(&k->mutex);
    bool failed = w->line->failed;
    if (failed && error) *error = w->line->failure;
    pthread_mutex_unlock(&k->mutex);
    return failed;
}

bool lw_wait_leave(struct lw_waking *k, struct lw_waiter *w, bool won, int64_t look_ms) {
    pthread_mutex_lock(&k->mutex);
    struct lw_line *line = w->line;
    bool was_first = line->first == w;
    DL_DELETE(line->first, w);
    if (won) line->look_ms = look_ms;
    if (line->first && was_first) {
        if (w->woken && !won) line->first->woken = true;
        pthread_cond_signal(&line->first->changed);
    }
    bool empty = !line->first;
    if (empty) {
        *find(k, line->name, line->n_name) = line->next;
        free(line);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_unlock(&k->mutex);
    return empty;
}

void lw_waking_rouse(struct lw_waking *k) {
    pthread_mutex_lock(&k->mutex);
    for (int i = 0; i < BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i]; line; line = line->next)
            for (struct lw_waiter *w = line->first; w; w = w->next)
                pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&k->mutex);
}

/* --- the listening thread ------------------------------------------------------------------- */

/* Waits until the connection is readable. Returns 1 if it is, 0 after `ms` milliseconds, and -1 if
 * the thread must stop. */
static int readable(struct lw_waking *k, int fd, int64_t ms) {
    struct pollfd p[2] = {{.fd = k->rouse_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int n = poll(p, fd < 0 ? 1 : 2, (int)ms);
    if (p[0].revents) return -1;
    return n > 0 && p[1].revents;
}

static struct lw_redis *subscribe(struct lw_waking *k) {
    struct latchwork_error error;
    struct latchwork_client *c = k->client;
    struct lw_redis *redis = lw_client_connect(c, 0, c->connect_ms, c->command_ms, &error);
    if (!redis) return NULL;
    char channel[sizeof "lwl:wake:" + LW_CLIENT_ID];
    snprintf(channel, sizeof channel, "lwl:wake:%s", c->id);
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_add(&call, "SUBSCRIBE", 9);
    lw_call_text(&call, channel);
    redisReply *reply = lw_call_on(c, redis, &call, &error);
    bool good = reply && reply->type == REDIS_REPLY_ARRAY;
    if (reply) freeReplyObject(reply);
    if (good) return redis;
    lw_redis_close(redis);
    return NULL;
}

static void take_message(struct lw_waking *k, const redisReply *r) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 ||
        r->element[0]->type != REDIS_REPLY_STRING || r->element[2]->type != REDIS_REPLY_STRING ||
        strcmp(r->element[0]->str, "message"))
        return; /* this reply is the answer to PING */
    pthread_mutex_lock(&k->mutex);
    wake(*find(k, r->element[2]->str, (size_t)r->element[2]->len));
    pthread_mutex_unlock(&k->mutex);
}

static bool take_messages(struct lw_waking *k, struct lw_redis *redis) {
    lw_redis_read(redis);
    for (redisReply *reply; (reply = lw_redis_parsed(redis));) {
        take_message(k, reply);
        freeReplyObject(reply);
    }
    return !redis->err;
}

/* Listens until the connection breaks. If the connection is silent for SILENT_MS, sends PING; if
 * the silence lasts, treats the connection as broken. Returns false if the thread must stop. */
static bool listen_on(struct lw_waking *k, struct lw_redis *redis) {
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    bool asked = false;
    for (;;) {
        int got = readable(k, redis->stream.fd, SILENT_MS);
        if (got < 0) return false;
        if (got == 0 && asked) return true;
        if (got == 0) lw_redis_send(redis, ping, sizeof ping - 1);
        asked = got == 0;
        if (redis->err || (got && !take_messages(k, redis))) return true;
    }
}

static void everybody_looks(struct lw_waking *k, bool up) {
    atomic_store(&k->up, up);
    pthread_mutex_lock(&k->mutex);
    /* Wake the first waiter of each line. When the subscription begins, earlier messages may have
     * been missed; when it ends, no further messages will come. */
    for (int i = 0; i < BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i]; line; line = line->next) wake(line);
    pthread_mutex_unlock(&k->mutex);
}

static void *listen_for_releases(void *arg) {
    struct lw_waking *k = arg;
    int64_t backoff_ms = BACKOFF_MS;
    for (;;) {
        struct lw_redis *redis = subscribe(k);
        bool go_on = true;
        if (redis) {
            backoff_ms = BACKOFF_MS;
            everybody_looks(k, true);
            go_on = listen_on(k, redis);
            lw_redis_close(redis);
            everybody_looks(k, false);
        }
        if (!go_on ||
            readable(k, -1, backoff_ms / 2 + (int64_t)lw_random((uint64_t)backoff_ms)) < 0)
            return NULL;
        backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
    }
}

/* --- opening and closing ---------------------------------------------------------------------- */

struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error) {
    struct lw_waking *k = calloc(1, sizeof *k);
    if (!k) return lw_lock_no_memory(error), NULL;
    k->client = client;
    k->rouse_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&k->mutex, NULL);
    k->listens = !client->table;
    int failed = k->rouse_fd < 0 ? errno : 0;
    if (!failed && k->listens) failed = lw_thread_start(&k->thread, listen_for_releases, k);
    if (!failed) return k;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_SYSTEM,
                 "cannot start the thread for waiting: %s", strerror(failed));
    if (k->rouse_fd >= 0) close(k->rouse_fd);
    pthread_mutex_destroy(&k->mutex);
    free(k);
    return NULL;
}

static void free_lines(struct lw_waking *k) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i], *next; line; line = next) {
            next = line->next;
            free(line);
        }
}

void lw_waking_close(struct lw_waking *k) {
    if (!k) return;
    while (write(k->rouse_fd, &(uint64_t){1}, 8) < 0 && errno == EINTR) continue;
    if (k->listens) pthread_join(k->thread, NULL);
    close(k->rouse_fd);
    free_lines(k);
    pthread_mutex_destroy(&k->mutex);
    free(k);
}
