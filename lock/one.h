/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that are stored on one Redis: their names, their scripts, and one attempt to take a lock.
 * acquire.c repeats the attempts. */
#ifndef LW_LOCK_ONE_H
#define LW_LOCK_ONE_H

#include "lock/hold.h"

/* Indexes into the array lock->key. Which of these keys exist depends on the kind of lock. */
enum { LW_KEY_LOCK, LW_KEY_FENCE, LW_KEY_WAIT, LW_KEY_ALIVE, LW_KEY_READERS, LW_KEY_READ_WAIT };
enum { LW_WAITER_MAX = LW_CLIENT_ID + 24, LW_LIVE_MS = 3000 };

enum lw_took { LW_TAKEN, LW_HELD, LW_FAILED };

/* A sequence of attempts to take a lock. All attempts use the same token, but if a grant arrives
 * after its lease has ended, the later attempts use a new token. */
struct lw_take {
    struct latchwork_lock *lock;
    struct latchwork_hold *hold;
    /* The client's name in the scripts, under which Redis notifies the client of releases. */
    const char *client;
    /* `wait` is true if Redis is to notify this client of releases. `more` is true if other threads
     * of this client wait for the same lock. */
    bool wait, more;
    /* True if an answer was lost, so an earlier attempt may have taken the lock. */
    bool uncertain;
    char waiter[LW_WAITER_MAX + 1]; /* name of the waiter in a queue, CLIENT:NUMBER */
    /* The ticket of the waiter, which determines its place in the queue. "": the waiter has none
     * yet. */
    char ticket[24];
    /* Time in ms until the present holder's lease ends. -1: the lock has no TTL; 0: the lock is
     * free, but other waiters are first. */
    int64_t left_ms;
};

/* Returns true for fair, read and write locks, whose waiters have tickets. */
bool lw_one_queues(const struct latchwork_lock *l);
/* Returns true if every program that uses the lock notifies the waiting clients of a release. */
bool lw_one_tells(const struct latchwork_lock *l);
struct lw_bytes lw_one_wait_name(const struct latchwork_lock *l);

enum lw_took lw_one_take(struct lw_take *t, struct latchwork_error *error);
/* Removes the waiter of `t` from its queue. If the kind of lock has no queues, removes the client
 * from the list of waiting clients instead. */
void lw_one_leave(struct lw_take *t);
enum latchwork_result lw_one_release(struct latchwork_hold *hold, struct latchwork_error *error);

enum latchwork_result lw_one_acquire(struct latchwork_lock *l, struct latchwork_hold *h,
                                     int64_t deadline_ms, struct latchwork_error *error);

/* Takes a mutex or reentrant lock with WATCH, MULTI and EXEC, for servers on which scripts are
 * forbidden. */
enum lw_took lw_watch_take(struct lw_take *t, struct latchwork_error *error);
/* lw_watch_drop() releases the lock without scripts, and lw_watch_keep() extends it. Both functions
 * return 1 on success, 0 if the lock is no longer held, and -1 with *error. If ttl_ms is 0,
 * lw_watch_keep() only checks whether the lock is held. */
int lw_watch_drop(struct latchwork_hold *hold, bool *sent_again, struct latchwork_error *error);
int lw_watch_keep(struct latchwork_hold *hold, int64_t ttl_ms, int64_t *sent_ms,
                  struct latchwork_error *error);
/* Converts Redis' answer to PTTL for a held lock to the ms until the lease ends. The result is -1
 * if the lock has no TTL. Otherwise the result is at least 1, because 0 means that the lock is free
 * but other waiters are first. */
int64_t lw_one_left_ms(int64_t pttl);
/* Sets the value, fence and lease of the hold after a grant. */
void lw_one_granted(struct lw_take *t, const char *fence, int64_t sent_ms);

enum latchwork_result lw_one_show(struct latchwork_lock *l, latchwork_lock_seen *seen, void *ctx,
                                  struct latchwork_error *error);
enum latchwork_result lw_one_end(struct latchwork_lock *l, uint64_t *fence,
                                 struct latchwork_error *error);
/* Keys that have the name of a lock but another Redis type: their number, and the name of the first
 * one. latchwork_lock_list() skips such keys. */
struct lw_foreign {
    int64_t n;
    char first[200];
};
enum latchwork_result lw_lock_list(struct latchwork_client *client, const char *glob,
                                   unsigned flags, latchwork_lock_seen *seen, void *ctx,
                                   struct lw_foreign *foreign, struct latchwork_error *error);
enum latchwork_result lw_one_give_ttl(struct latchwork_lock *l, int64_t ttl_ms,
                                      struct latchwork_error *error);

#endif
