/* SPDX-License-Identifier: Apache-2.0 */
/* Waking: the threads of a client that wait for locks, and the one connection over which they are told of releases.
 *
 * Waiters for one name stand in a line. Only the first of a line talks to Redis: it tries, and where the lock is still held its client
 * is remembered there (the script that says BUSY does that), to be told of the next release through the channel lwl:wake:ID. Such a
 * message names the line, and wakes its first. When the first has what it wanted, or gives up, the next becomes first. So a release
 * costs one message and one try, however many wait.
 *
 *     lw_wait_join → [lw_wait_sleep → try → lw_wait_look_at]… → lw_wait_leave */
#ifndef LW_LOCK_WAKING_H
#define LW_LOCK_WAKING_H

#include "lock/client.h"

struct lw_waking;
struct lw_line;

struct lw_waiter {
    struct lw_line *line;
    struct lw_waiter *prev, *next;
    pthread_cond_t changed;
    bool woken;    /* try, whatever the time */
    double ticket; /* place in the line */
};

/* NULL with *error: no memory, or the system gives no thread or descriptor. */
struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_waking_close(struct lw_waking *k); /* NULL is ignored */
void lw_waking_rouse(struct lw_waking *k); /* everybody looks around: the client is interrupted */
bool lw_waking_is_up(struct lw_waking *k); /* subscribed: messages come */

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name);
/* Stands at the end of the line. False when an allocation failed: then it does not wait. */
bool lw_wait_join(struct lw_waking *k, struct lw_waiter *w, struct lw_bytes name);
void lw_wait_place(struct lw_waking *k, struct lw_waiter *w, double ticket); /* where its ticket belongs */
/* True where it is the waiter's turn to try: it is first, and was woken or the time to look has come. False: until_ms is past, or the
 * client is interrupted. *more: others stand behind it. */
bool lw_wait_sleep(struct lw_waking *k, struct lw_waiter *w, int64_t until_ms, bool *more);
void lw_wait_look_at(struct lw_waking *k, struct lw_waiter *w, int64_t look_ms); /* when the first of the line is to look next */
/* won: it has the lock. The next becomes first; it looks at look_ms (0: at once) where this one won. Returns whether the line is empty now.
 */
bool lw_wait_leave(struct lw_waking *k, struct lw_waiter *w, bool won, int64_t look_ms);

#endif
