/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that live on one Redis: their names, their scripts, and one attempt to take them. Waiting
 * is in acquire.c. */
#ifndef LW_LOCK_ONE_H
#define LW_LOCK_ONE_H

#include "lock/hold.h"

/* Indexes into lock->key. Which keys exist depends on the kind. */
enum { LW_KEY_LOCK, LW_KEY_FENCE, LW_KEY_WAIT, LW_KEY_ALIVE, LW_KEY_READERS, LW_KEY_READ_WAIT };
enum { LW_WAITER_MAX = LW_CLIENT_ID + 24, LW_LIVE_MS = 3000 };

enum lw_took { LW_TAKEN, LW_HELD, LW_FAILED };

/* One acquisition, as a sequence of attempts with one token. */
struct lw_take {
    struct latchwork_lock *lock;
    struct latchwork_hold *hold;
    const char *client; /* the client's name in the scripts, while it waits */
    /* wait: have Redis tell this client of releases; more: other threads of this client wait as
     * well */
    bool wait, more;
    /* an answer was lost, so an earlier attempt may have taken the lock */
    bool uncertain;
    char waiter[LW_WAITER_MAX + 1]; /* the waiter's name in a queue, CLIENT:NUMBER */
    /* the waiter's place in the queue; "": the waiter has none yet */
    char ticket[24];
    /* ms until the present lease ends; -1: the lock has no TTL; 0: it is not this waiter's turn */
    int64_t left_ms;
};

/* true for fair, read and write locks, whose waiters have tickets */
bool lw_one_queues(const struct latchwork_lock *l);
/* true if all who use the name announce their releases */
bool lw_one_tells(const struct latchwork_lock *l);
struct lw_bytes lw_one_wait_name(const struct latchwork_lock *l);

enum lw_took lw_one_take(struct lw_take *t, struct latchwork_error *error);
/* Removes the waiter of t from its queue. For a kind of lock without queues, removes the client
 * from the list of waiting clients. */
void lw_one_leave(struct lw_take *t);
enum latchwork_result lw_one_release(struct latchwork_hold *hold, struct latchwork_error *error);

enum latchwork_result lw_one_acquire(struct latchwork_lock *l, struct latchwork_hold *h,
                                     int64_t deadline_ms, struct latchwork_error *error);

/* Takes a mutex or reentrant lock by WATCH, MULTI and EXEC, for servers on which scripts are
 * forbidden. */
enum lw_took lw_watch_take(struct lw_take *t, struct latchwork_error *error);
/* These functions release or extend the lock. They return 1 on success, 0 if the lock is not ours,
 * and -1 with *error. With ttl_ms 0 lw_watch_keep() only checks whether the lock is held. */
int lw_watch_drop(struct latchwork_hold *hold, bool *sent_again, struct latchwork_error *error);
int lw_watch_keep(struct latchwork_hold *hold, int64_t ttl_ms, int64_t *sent_ms,
                  struct latchwork_error *error);
/* Turns Redis' answer to PTTL for a held lock into the ms that are left: at least 1, because 0
 * means "not this waiter's turn". */
int64_t lw_one_left_ms(int64_t pttl);
/* Fills in the hold after a grant: token, value, fence and lease. */
void lw_one_granted(struct lw_take *t, const char *fence, int64_t sent_ms);

enum latchwork_result lw_one_show(struct latchwork_lock *l, latchwork_lock_seen *seen, void *ctx,
                                  struct latchwork_error *error);
enum latchwork_result lw_one_end(struct latchwork_lock *l, uint64_t *fence,
                                 struct latchwork_error *error);
/* Counts the keys that have the name of a lock but are of another Redis type. latchwork_lock_list()
 * skips them. */
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
