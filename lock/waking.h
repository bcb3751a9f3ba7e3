/* SPDX-License-Identifier: Apache-2.0 */
/* Waking: how the threads of a client that wait for locks are notified of releases, over one
 * connection.
 *
 * Waiters for the same name stand in a line, and only the first waiter of a line sends attempts to
 * Redis. Waiters of fair and read/write locks are an exception: each of them makes one attempt when
 * it joins the line, to get its ticket. If an attempt finds the lock held, the script stores the
 * client in Redis' list of waiting clients, and the next release sends a message to the client's
 * channel lwl:wake:ID. The message contains the name of the line and wakes its first waiter. When
 * the first waiter has the lock, or stops waiting, the next waiter becomes first. So a release
 * usually costs one message and one attempt, regardless of the number of waiters. In a cluster
 * there are no messages: the first waiter of each line tries every 10 to 100 ms.
 *
 *     lw_wait_join → [lw_wait_sleep → attempt → lw_wait_look_at]… → lw_wait_leave */
#ifndef LW_LOCK_WAKING_H
#define LW_LOCK_WAKING_H

#include "lock/client.h"

struct lw_waking;
struct lw_line;

struct lw_waiter {
    struct lw_line *line;
    struct lw_waiter *prev, *next;
    pthread_cond_t changed;
    bool woken;    /* true if the waiter was notified and should try at once */
    double ticket; /* determines the waiter's place in the line: smaller tickets come first */
};

/* Starts the listening thread. Returns NULL with *error if there is no memory, no thread or no file
 * descriptor. */
struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_waking_close(struct lw_waking *k); /* does nothing if k is NULL */
/* Wakes every waiter, so that it notices that the client is interrupted. */
void lw_waking_rouse(struct lw_waking *k);
/* Returns true while the client's subscription works, and the client receives the messages about
 * releases. */
bool lw_waking_is_up(struct lw_waking *k);

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name);
/* Appends the waiter to the line of `name`. Returns false if an allocation failed; the waiter is
 * then in no line. */
bool lw_wait_join(struct lw_waking *k, struct lw_waiter *w, struct lw_bytes name);
/* Moves the waiter to its place in the line, which is in the order of tickets. */
void lw_wait_place(struct lw_waking *k, struct lw_waiter *w, double ticket);
/* Sleeps until the waiter is first in line, and then until it is notified or the line's next
 * attempt is due. Then returns true, and sets *more to true if other waiters stand behind this
 * waiter. Returns false if until_ms has passed or the client is interrupted. */
bool lw_wait_sleep(struct lw_waking *k, struct lw_waiter *w, int64_t until_ms, bool *more);
/* Records an attempt of a waiter that did not take the lock. The next attempt of the waiter's line
 * is due at look_ms, or earlier if a notification comes. `failure` is the error with which the
 * attempt failed, or NULL if others hold the lock. */
void lw_wait_look_at(struct lw_waking *k, struct lw_waiter *w, int64_t look_ms,
                     const struct latchwork_error *failure);
/* Returns true if the line's last attempt failed with an error, and copies that error to *error. A
 * waiter behind the first one usually sends nothing to Redis, so it learns from this function that
 * Redis cannot be reached. */
bool lw_wait_failed(struct lw_waking *k, struct lw_waiter *w, struct latchwork_error *error);
/* Removes the waiter from its line. `won` says whether the waiter has taken the lock. If the waiter
 * was first, the next waiter becomes first. If `won` is true, the next waiter tries at look_ms.
 * Otherwise the time of the line's next attempt stays as it is, and the next waiter inherits a
 * notification that the leaving waiter has not used. Returns true if the line is now empty. */
bool lw_wait_leave(struct lw_waking *k, struct lw_waiter *w, bool won, int64_t look_ms);

#endif
