/* SPDX-License-Identifier: Apache-2.0 */
/* Listening: the thread of a client that receives messages about releases, and the lines of waiters
 * which it wakes (waking.h).
 *
 * If the client has only one server, there is one connection, which is subscribed to the channel
 * lwl:wake:CLIENT (listen.c).
 *
 * In a cluster (listen_cluster.c) the channels are sharded, so that a message stays at the node
 * that owns the lock's slot. The client has one connection, an *ear*, to each node that owns the
 * slot of a line. The channel lwl:wake:{TAG}:CLIENT is in that slot, since TAG is the hash tag of
 * the lock's keys. When the slot moves to another node, the old node ends the subscription, and the
 * line then uses an ear at the new owner. If CLIENT begins with the letter 's', the scripts publish
 * with SPUBLISH. If the servers have no sharded channels, or the user has no right to use them, the
 * client subscribes to lwl:wake:CLIENT at every node, as it does if it has only one server. While a
 * line has no subscription, its first waiter tries to take the lock every 10 to 100 ms. */
#ifndef LW_LOCK_LISTEN_H
#define LW_LOCK_LISTEN_H

#include "lock/client.h"
#include "lock/waking.h"

enum {
    LW_LINE_BUCKETS = 1024,
    /* Time in ms for which a connection may be silent before it is tested with PING. */
    LW_SILENT_MS = 15000
};

struct lw_ear;

struct lw_line {
    struct lw_line *next; /* next line in the same bucket of the hash table */
    struct lw_waiter *first, *last;
    /* Time on the boot clock at which the first waiter in line tries to take the lock without a
     * message about a release. 0: at once. */
    int64_t look_ms;
    bool failed; /* true if the line's last attempt failed; `failure` says why */
    struct latchwork_error failure;
    /* The fields from `slot` to `empty_ms` are for a cluster. Other threads set `slot` and
     * `empty_ms`, and read `up`. Only the listening thread uses the fields between `up` and
     * `empty_ms`. */
    int slot;
    bool up; /* true while the line's subscription works */
    /* The ear to whose node the line's SSUBSCRIBE was or will be sent. NULL: the line has no
     * ear. */
    struct lw_ear *ear;
    bool asked; /* true while the line's SSUBSCRIBE is in flight */
    /* The next line in the list of lines whose SSUBSCRIBE is in flight at the same ear. */
    struct lw_line *asked_after;
    int64_t retry_ms; /* earliest time (boot clock) at which the line may get an ear */
    int64_t empty_ms; /* time (boot clock) at which the last waiter left */
    size_t n_name;
    char name[];
};

struct lw_waking {
    struct latchwork_client *client;
    pthread_t thread;
    int rouse_fd; /* eventfd that wakes the listening thread */
    atomic_bool stopping;
    atomic_bool up;        /* for one server: true while the subscription works */
    atomic_bool changed;   /* in a cluster: true if a line was added or became empty */
    atomic_bool moved;     /* in a cluster: true if slots have moved to other nodes */
    atomic_bool plain;     /* in a cluster: true if sharded channels cannot be used */
    pthread_mutex_t mutex; /* guards the lines in `bucket` */
    struct lw_line *bucket[LW_LINE_BUCKETS];
};

/* The main functions of the listening thread, for one server and for a cluster. The argument is a
 * struct lw_waking. */
void *lw_listen(void *arg);
void *lw_listen_in_cluster(void *arg);

/* The caller of the next functions must hold the mutex of the struct lw_waking. */
struct lw_line **lw_line_find(struct lw_waking *k, const char *name, size_t n);
/* wakes the first waiter of the line; does nothing if `line` is NULL */
void lw_line_wake(struct lw_line *line);

#endif
