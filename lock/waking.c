/* SPDX-License-Identifier: Apache-2.0 */
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

enum { BUCKETS = 1024, BACKOFF_MS = 50, BACKOFF_MAX_MS = 2000, SILENT_MS = 15000, SLEEP_MAX_MS = 60000 };

struct lw_line {
    struct lw_line *next; /* next line in the same bucket of the hash table */
    struct lw_waiter *first, *last;
    int64_t look_ms; /* boot clock; when the first in line attempts although nothing was announced; 0: at once */
    size_t n_name;
    char name[];
};

struct lw_waking {
    struct latchwork_client *client;
    pthread_t thread;
    int stop_fd; /* eventfd that stops the thread */
    atomic_bool up;
    pthread_mutex_t mutex; /* guards all fields below */
    pthread_condattr_t monotonic;
    struct lw_line *bucket[BUCKETS];
};

/* --- lines; the mutex is held ----------------------------------------------------------------------------------------------------- */

static struct lw_line **find(struct lw_waking *k, const char *name, size_t n) {
    uint64_t hash = 14695981039346656037U; /* offset of the FNV-1a hash */
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)name[i]) * 1099511628211U;
    struct lw_line **at = &k->bucket[hash % BUCKETS];
    while (*at && ((*at)->n_name != n || memcmp((*at)->name, name, n))) at = &(*at)->next;
    return at;
}

static void wake(struct lw_waiter *w) {
    if (!w) return;
    w->woken = true;
    pthread_cond_signal(&w->changed);
}

static void append(struct lw_line *line, struct lw_waiter *w) {
    w->prev = line->last;
    w->next = NULL;
    if (line->last)
        line->last->next = w;
    else
        line->first = w;
    line->last = w;
}

static void take_out(struct lw_line *line, struct lw_waiter *w) {
    if (w->prev)
        w->prev->next = w->next;
    else
        line->first = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        line->last = w->prev;
}

static void wake_all_first(struct lw_waking *k) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i]; line; line = line->next) wake(line->first);
}

/* --- the waiters' side -------------------------------------------------------------------------------------------------------------- */

bool lw_waking_is_up(struct lw_waking *k) { return atomic_load(&k->up); }

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name) {
    pthread_mutex_lock(&k->mutex);
    bool has = *find(k, name.p, name.n) != NULL;
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
        pthread_cond_init(&w->changed, &k->monotonic);
        append(w->line, w);
    }
    pthread_mutex_unlock(&k->mutex);
    return w->line != NULL;
}

void lw_wait_place(struct lw_waking *k, struct lw_waiter *w, double ticket) {
    pthread_mutex_lock(&k->mutex);
    struct lw_line *line = w->line;
    struct lw_waiter *was_first = line->first;
    take_out(line, w);
    w->ticket = ticket;
    struct lw_waiter *after = line->last;
    while (after && after->ticket > ticket) after = after->prev;
    w->prev = after;
    w->next = after ? after->next : line->first;
    if (w->next)
        w->next->prev = w;
    else
        line->last = w;
    if (after)
        after->next = w;
    else
        line->first = w;
    if (line->first != was_first) { /* another waiter came before the first one, and takes over its wake-up */
        if (was_first && was_first->woken) line->first->woken = true;
        pthread_cond_signal(&line->first->changed);
    }
    pthread_mutex_unlock(&k->mutex);
}

static void sleep_until(struct lw_waking *k, struct lw_waiter *w, int64_t left_ms) {
    if (left_ms > SLEEP_MAX_MS) left_ms = SLEEP_MAX_MS;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += left_ms / 1000;
    t.tv_nsec += left_ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    pthread_cond_timedwait(&w->changed, &k->mutex, &t);
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

void lw_wait_look_at(struct lw_waking *k, struct lw_waiter *w, int64_t look_ms) {
    pthread_mutex_lock(&k->mutex);
    w->line->look_ms = look_ms;
    pthread_mutex_unlock(&k->mutex);
}

bool lw_wait_leave(struct lw_waking *k, struct lw_waiter *w, bool won, int64_t look_ms) {
    pthread_mutex_lock(&k->mutex);
    struct lw_line *line = w->line;
    bool was_first = line->first == w;
    take_out(line, w);
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
            for (struct lw_waiter *w = line->first; w; w = w->next) pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&k->mutex);
}

/* --- the connection's side ---------------------------------------------------------------------------------------------------------- */

/* Waits until the connection is readable. Returns 1 if it is, 0 if ms have passed, -1 if the thread has to
 * stop. */
static int readable(struct lw_waking *k, int fd, int64_t ms) {
    struct pollfd p[2] = {{.fd = k->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int n = poll(p, fd < 0 ? 1 : 2, (int)ms);
    if (p[0].revents) return -1;
    return n > 0 && p[1].revents;
}

static struct lw_redis *subscribe(struct lw_waking *k) {
    struct latchwork_error error;
    struct latchwork_client *c = k->client;
    struct lw_redis *redis = lw_client_connect(c, c->connect_ms, c->command_ms, &error);
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
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 || r->element[0]->type != REDIS_REPLY_STRING ||
        r->element[2]->type != REDIS_REPLY_STRING || strcmp(r->element[0]->str, "message"))
        return; /* it is the answer to PING */
    pthread_mutex_lock(&k->mutex);
    struct lw_line *line = *find(k, r->element[2]->str, (size_t)r->element[2]->len);
    if (line) wake(line->first);
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

/* Listens until the connection breaks. Returns false if the thread has to stop. Sends PING to a silent connection
 * and gives it up if no answer comes. */
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
    wake_all_first(k); /* wake all: a message may have been missed, or none will come any more */
    pthread_mutex_unlock(&k->mutex);
}

static void *listen_always(void *arg) {
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
        if (!go_on || readable(k, -1, backoff_ms / 2 + (int64_t)lw_random((uint64_t)backoff_ms)) < 0) return NULL;
        backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
    }
}

struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error) {
    struct lw_waking *k = calloc(1, sizeof *k);
    if (!k) return lw_lock_no_memory(error), NULL;
    k->client = client;
    k->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&k->mutex, NULL);
    pthread_condattr_init(&k->monotonic);
    pthread_condattr_setclock(&k->monotonic, CLOCK_MONOTONIC);
    int failed = k->stop_fd < 0 || lw_thread_start(&k->thread, listen_always, k);
    if (!failed) return k;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_SYSTEM, "the system gives no thread, or no descriptor, to wait with");
    if (k->stop_fd >= 0) close(k->stop_fd);
    pthread_condattr_destroy(&k->monotonic);
    pthread_mutex_destroy(&k->mutex);
    free(k);
    return NULL;
}

void lw_waking_close(struct lw_waking *k) {
    if (!k) return;
    while (write(k->stop_fd, &(uint64_t){1}, 8) < 0 && errno == EINTR) continue;
    pthread_join(k->thread, NULL);
    close(k->stop_fd);
    pthread_condattr_destroy(&k->monotonic);
    pthread_mutex_destroy(&k->mutex);
    free(k);
}
