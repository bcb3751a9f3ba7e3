/* SPDX-License-Identifier: Apache-2.0 */
/* Waking: how threads of a client that wait for locks learn of releases, over one connection.
 *
 * Waiters for one name stand in a line, and only the first of a line talks to Redis. That waiter
 * attempts to take the lock. If the lock is still held, the script remembers the client in Redis,
 * and the next release sends a message to the client's channel lwl:wake:ID. The message names the
 * line and wakes its first waiter (listen.h tells of the channels in a cluster). When the first one
 * has the lock, or gives up, the next becomes first. So a release costs one message and one
 * attempt, however many wait.
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
    bool woken;    /* the waiter should try at once */
    double ticket; /* the waiter's place in the line; smaller goes first */
};

/* Starts the thread. Returns NULL with *error if there is no memory, or no thread or descriptor. */
struct lw_waking *lw_waking_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_waking_close(struct lw_waking *k); /* ignores NULL */
/* wakes every waiter, because the client is interrupted */
void lw_waking_rouse(struct lw_waking *k);
/* reports that slots have other owners; may be called with the client's mutex held */
void lw_waking_moved(struct lw_waking *k);
/* Returns true while the subscription of the waiter's line works, so that messages come. */
bool lw_waking_is_up(struct lw_waking *k, const struct lw_waiter *w);
/* Returns the client's name in the scripts. Its first letter tells sharded from plain channels. */
const char *lw_waking_client(struct lw_waking *k);

bool lw_wait_has_line(struct lw_waking *k, struct lw_bytes name);
/* Appends the waiter to the line. Returns false if an allocation failed; the waiter is then in no
 * line. */
bool lw_wait_join(struct lw_waking *k, struct lw_waiter *w, struct lw_bytes name);
/* moves the waiter to the place of its ticket */
void lw_wait_place(struct lw_waking *k, struct lw_waiter *w, double ticket);
/* Sleeps until it is the waiter's turn. Returns true if the waiter is first in line and was woken,
 * or if its time to try has come. Returns false if until_ms has passed or the client is
 * interrupted. *more tells whether others stand behind it. */
bool lw_wait_sleep(struct lw_waking *k, struct lw_waiter *w, int64_t until_ms, bool *more);
/* Sets when the waiter tries next, if it is first in line. */
void lw_wait_look_at(struct lw_waking *k, struct lw_waiter *w, int64_t look_ms);
/* Takes the waiter, which has the lock if `won` is true, out of the line. The next becomes first,
 * and tries at look_ms if `won` is true, otherwise at once. Returns true if the line is empty
 * now. */
bool lw_wait_leave(struct lw_waking *k, struct lw_waiter *w, bool won, int64_t look_ms);

#endif
