/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that live on one Redis: their names, their scripts, and one try to take them. acquire.c makes a wait of tries. */
#ifndef LW_LOCK_ONE_H
#define LW_LOCK_ONE_H

#include "lock/hold.h"

/* Places in lock->key. Which are there depends on the kind. */
enum { LW_KEY_LOCK, LW_KEY_FENCE, LW_KEY_WAIT, LW_KEY_ALIVE, LW_KEY_READERS, LW_KEY_READ_WAIT };
enum { LW_WAITER_MAX = LW_CLIENT_ID + 24, LW_LIVE_MS = 3000 };

enum lw_took { LW_TAKEN, LW_HELD, LW_FAILED };

/* One acquire, as a sequence of tries with one token. */
struct lw_take {
    struct latchwork_lock *lock;
    struct latchwork_hold *hold;
    bool wait, more;                /* to be told of releases; others of this client wait behind */
    bool uncertain;                 /* an answer was lost: an earlier try may have taken it */
    char waiter[LW_WAITER_MAX + 1]; /* CLIENT:NUMBER in a queue */
    char ticket[24];                /* "" none yet */
    int64_t left_ms;                /* where it is held: of the lease; -1 no TTL; 0 not our turn */
};

bool lw_one_queues(const struct latchwork_lock *l); /* fair, read, write: waiters have tickets */
bool lw_one_tells(const struct latchwork_lock *l);  /* releases by all who use the name are told */
struct lw_bytes lw_one_wait_name(const struct latchwork_lock *l);

enum lw_took lw_one_take(struct lw_take *t, struct latchwork_error *error);
/* The waiter of t, or the whole client, waits no more. */
void lw_one_leave(struct lw_take *t);
enum latchwork_result lw_one_release(struct latchwork_hold *hold, struct latchwork_error *error);

enum latchwork_result lw_one_acquire(struct latchwork_lock *l, struct latchwork_hold *h, int64_t deadline_ms,
                                     struct latchwork_error *error);

/* By WATCH, MULTI and EXEC: mutex and reentrant, where scripts are forbidden. */
enum lw_took lw_watch_take(struct lw_take *t, struct latchwork_error *error);
/* 1 done, 0 not ours, -1 with *error. ttl_ms of keep: 0 look only. */
int lw_watch_drop(struct latchwork_hold *hold, bool *sent_again, struct latchwork_error *error);
int lw_watch_keep(struct latchwork_hold *hold, int64_t ttl_ms, int64_t *sent_ms, struct latchwork_error *error);
/* What PTTL says of a lock that is held, or was a moment ago: a lease in its last millisecond is not "not our turn". */
int64_t lw_one_left_ms(int64_t pttl);
/* The hold has it: token, value, fence and lease are set. */
void lw_one_granted(struct lw_take *t, const char *fence, int64_t sent_ms);

enum latchwork_result lw_one_show(struct latchwork_lock *l, latchwork_lock_seen *seen, void *ctx, struct latchwork_error *error);
enum latchwork_result lw_one_end(struct latchwork_lock *l, uint64_t *fence, struct latchwork_error *error);
/* Like latchwork_lock_list(). foreign (may be NULL) counts the skipped keys: those with the name of a lock
 * but of another Redis type. */
struct lw_foreign {
    int64_t n;
    char first[200];
};
enum latchwork_result lw_lock_list(struct latchwork_client *client, const char *glob, unsigned flags, latchwork_lock_seen *seen, void *ctx,
                                   struct lw_foreign *foreign, struct latchwork_error *error);
enum latchwork_result lw_one_give_ttl(struct latchwork_lock *l, int64_t ttl_ms, struct latchwork_error *error);

#endif
