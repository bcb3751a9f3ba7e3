/* SPDX-License-Identifier: Apache-2.0 */
/* Listening: the thread of a client that hears of releases, and the lines of waiters which it wakes
 * (waking.h).
 *
 * For one server there is one connection, subscribed to the channel lwl:wake:CLIENT (listen.c).
 *
 * In a cluster (listen_cluster.c) messages are sharded: they stay at the node that owns the lock's
 * slot. There is a connection, an *ear*, to each node that owns the slot of a line, and the channel
 * lwl:wake:{TAG}:CLIENT is in that slot, since TAG is the hash tag of the lock's keys. When the
 * slot moves, the node ends the subscription; the line then has an ear at the new owner. The
 * scripts see by the first letter of CLIENT, 's', that they must use SPUBLISH. If the servers have
 * no sharded channels, or the user has no right to them, every node gets a subscription to
 * lwl:wake:CLIENT, as one server would. While a line has no subscription, its first waiter tries to
 * take the lock every 10 to 100 ms. */
#ifndef LW_LOCK_LISTEN_H
#define LW_LOCK_LISTEN_H

#include "lock/client.h"
#include "lock/waking.h"

enum {
    LW_LINE_BUCKETS = 1024,
    LW_SILENT_MS = 15000 /* a connection that was silent for this time is tested with PING */
};

struct lw_ear;

struct lw_line {
    struct lw_line *next; /* next line in the same bucket of the hash table */
    struct lw_waiter *first, *last;
    /* boot clock; when the first in line tries to take the lock although nothing was announced; 0:
     * at once */
    int64_t look_ms;
    /* The next fields are for a cluster. Only the listening thread uses them, except `up` and
     * empty_ms. */
    int slot;
    bool up; /* the subscription works, so messages come */
    /* the ear on which the line is subscribed, or soon will be; NULL: none */
    struct lw_ear *ear;
    bool asked;                  /* SSUBSCRIBE was sent and is not answered */
    struct lw_line *asked_after; /* the next line whose SSUBSCRIBE was sent to the same ear */
    int64_t retry_ms;            /* boot clock; when to subscribe again after a refusal */
    int64_t empty_ms;            /* boot clock; when the last waiter left the line */
    size_t n_name;
    char name[];
};

struct lw_waking {
    struct latchwork_client *client;
    pthread_t thread;
    int rouse_fd; /* eventfd that wakes the thread */
    atomic_bool stopping;
    atomic_bool up;        /* one server: the subscription works */
    atomic_bool changed;   /* cluster: a line was added or became empty */
    atomic_bool moved;     /* cluster: slots have moved to other owners */
    atomic_bool plain;     /* cluster: channels are not sharded */
    pthread_mutex_t mutex; /* guards all fields below */
    struct lw_line *bucket[LW_LINE_BUCKETS];
};

/* The listening thread runs one of these functions; the argument is its struct lw_waking. */
void *lw_listen(void *arg);
void *lw_listen_in_cluster(void *arg);

/* The caller of the next functions holds the mutex. */
struct lw_line **lw_line_find(struct lw_waking *k, const char *name, size_t n);
void lw_line_wake(struct lw_line *line); /* wakes the first waiter of the line; ignores NULL */

#endif
