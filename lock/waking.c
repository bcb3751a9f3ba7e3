/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/waking.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/thread.h"
#include "lock/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_MAX_MS = 60000 };

static void rouse(struct lw_waking *k) {
    while (write(k->rouse_fd, &(uint64_t){1}, 8) < 0 && errno == EINTR) continue;
}

/* --- lines; the mutex is held ----------------------------------------------------------------- */

struct lw_line **lw_line_find(struct lw_waking *k, const char *name, size_t n) {
    uint64_t hash = 14695981039346656037U; /* initial value of the 64-bit FNV-1a hash */
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)name[i]) * 1099511628211U;
    struct lw_line **at = &k->bucket[hash % LW_LINE_BUCKETS];
    while (*at && ((*at)->n_name != n || memcmp((*at)->name, name, n))) at = &(*at)->next;
    return at;
}

void lw_line_wake(struct lw_line *line) {
    if (!line || !line->first) return;
    line->first->woken = true;
    pthread_cond_signal(&line->first->changed);
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

/* --- the waiters' side ------------------------------------------------------------------------ */

void lw_waking_moved(struct lw_waking *k) {
    atomic_store(&k->moved, true);
    rouse(k);
}

bool lw_waking_is_up(struct lw_waking *k, const struct lw_waiter *w) {
    if (!k->client->table) return atomic_load(&k->up);
    pthread_mutex_lock(&k->mutex);
    bool up = w->line->up;
    pthread_mutex_unlock(&k->mutex);
    return up;
}

const char *lw_waking_client(struct lw_waking *k) {
    return k->client->table && !atomic_load(&k->plain) ? k->client->sharded_id : k->client->id;
}

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name) {
    pthread_mutex_lock(&k->mutex);
    const struct lw_line *line = *lw_line_find(k, name.p, name.n);
    bool has = line && line->first;
    pthread_mutex_unlock(&k->mutex);
    return has;
}

static struct lw_line *new_line(struct lw_bytes name) {
    struct lw_line *line = calloc(1, sizeof *line + name.n);
    if (!line) return NULL;
    line->n_name = name.n;
    line->slot = lw_slot(name.p, name.n);
    memcpy(line->name, name.p, name.n);
    return line;
}

bool lw_wait_join(struct lw_waking *k, struct lw_waiter *w, struct lw_bytes name) {
    *w = (struct lw_waiter){.ticket = 1e300};
    pthread_mutex_lock(&k->mutex);
    struct lw_line **at = lw_line_find(k, name.p, name.n);
    bool first = !*at;
    if (first) *at = new_line(name);
    w->line = *at;
    if (w->line) {
        lw_cond_init(&w->changed);
        append(w->line, w);
    }
    pthread_mutex_unlock(&k->mutex);
    if (first && k->client->table) {
        atomic_store(&k->changed, true);
        rouse(k);
    }
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
    take_out(line, w);
    if (won) line->look_ms = look_ms;
    if (line->first && was_first) {
        if (w->woken && !won) line->first->woken = true;
        pthread_cond_signal(&line->first->changed);
    }
    bool empty = !line->first;
    if (empty && k->client->table) {
        line->empty_ms = lw_boot_ms();
        line->look_ms = 0;
        /* The listening thread will end the subscription and free the line. */
        atomic_store(&k->changed, true);
    } else if (empty) {
        *lw_line_find(k, line->name, line->n_name) = line->next;
        free(line);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_unlock(&k->mutex);
    return empty;
}

void lw_waking_rouse(struct lw_waking *k) {
    pthread_mutex_lock(&k->mutex);
    for (int i = 0; i < LW_LINE_BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i]; line; line = line->next)
            for (struct lw_waiter *w = line->first; w; w = w->next)
                pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&k->mutex);
}

/* --- opening and closing ---------------------------------------------------------------------- */

struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error) {
    struct lw_waking *k = calloc(1, sizeof *k);
    if (!k) return lw_lock_no_memory(error), NULL;
    k->client = client;
    k->rouse_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&k->mutex, NULL);
    int failed =
        k->rouse_fd < 0
            ? errno
            : lw_thread_start(&k->thread, client->table ? lw_listen_in_cluster : lw_listen, k);
    if (!failed) return k;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_SYSTEM,
                 "cannot start the thread for waiting: %s", strerror(failed));
    if (k->rouse_fd >= 0) close(k->rouse_fd);
    pthread_mutex_destroy(&k->mutex);
    free(k);
    return NULL;
}

static void free_lines(struct lw_waking *k) {
    for (int i = 0; i < LW_LINE_BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i], *next; line; line = next) {
            next = line->next;
            free(line);
        }
}

void lw_waking_close(struct lw_waking *k) {
    if (!k) return;
    atomic_store(&k->stopping, true);
    rouse(k);
    pthread_join(k->thread, NULL);
    close(k->rouse_fd);
    free_lines(k);
    pthread_mutex_destroy(&k->mutex);
    free(k);
}
