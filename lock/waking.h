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
    bool woken;    /* try now, whatever the time */
    double ticket; /* its place in the line */
};

/* Returns NULL with *error if there is no memory, or no thread or descriptor can be had. */
struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_waking_close(struct lw_waking *k); /* ignores NULL */
void lw_waking_rouse(struct lw_waking *k); /* wakes every waiter, because the client is interrupted */
bool lw_waking_is_up(struct lw_waking *k); /* true while the subscription is up and messages come */

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name);
/* Appends the waiter to the line. Returns false if an allocation failed; then it does not wait. */
bool lw_wait_join(struct lw_waking *k, struct lw_waiter *w, struct lw_bytes name);
void lw_wait_place(struct lw_waking *k, struct lw_waiter *w, double ticket); /* moves it to where its ticket belongs */
/* Sleeps until it is the waiter's turn to try: returns true if it is first in line and was woken or
 * its time to look has come. Returns false if until_ms is past, or the client is interrupted.
 * *more: others stand behind it. */
bool lw_wait_sleep(struct lw_waking *k, struct lw_waiter *w, int64_t until_ms, bool *more);
void lw_wait_look_at(struct lw_waking *k, struct lw_waiter *w, int64_t look_ms); /* sets when the first in line looks next */
/* Leaves the line; won: it has the lock. The next becomes first; if this one won, the next looks at
 * look_ms (0: at once). Returns true if the line is empty now.
 */
bool lw_wait_leave(struct lw_waking *k, struct lw_waiter *w, bool won, int64_t look_ms);

#endif
