/* SPDX-License-Identifier: Apache-2.0 */
/* Locks and holds inside the library, and the functions that a kind of lock must provide.
 *
 * Each kind of lock has a table of functions. The kinds that live on one Redis share one table
 * (one.c) and differ in their shape: the names of their keys, and their scripts. Rows and Redlock
 * have tables of their own, and may keep data in `more` of the lock and of the hold. Everything
 * else is common: the count of reentrant holds, renewal (keeper.h), loss, and the public
 * functions. */
#ifndef LW_LOCK_HOLD_H
#define LW_LOCK_HOLD_H

#include "lock/client.h"

enum {
    LW_LOCK_TOKEN_MAX = LATCHWORK_MAX_LABEL + 1 + 32, /* a token is LABEL/HEX */
    LW_LOCK_VALUE_MAX = LW_LOCK_TOKEN_MAX + 24,       /* a value is TOKEN:FENCE */
    LW_LOCK_KEYS = 6,
    /* Redis forgets a fence counter that was not used for this time, and Redis' clock must not be
     * set back by more than this time. */
    LW_FENCE_KEEP_MS = 7 * 24 * 3600 * 1000,
};

struct lw_lock_ops {
    /* Tries to take the lock until deadline_ms (0: once; INT64_MAX: for ever). Must set the hold's
     * token, value, fence and lease before it returns OK. */
    enum latchwork_result (*acquire)(struct latchwork_lock *lock, struct latchwork_hold *hold,
                                     int64_t deadline_ms, struct latchwork_error *error);
    enum latchwork_result (*release)(struct latchwork_hold *hold, struct latchwork_error *error);
    /* Extends the lease or, if ttl_ms is 0, only checks whether the lock is held. Must call
     * lw_hold_leased() before it returns OK. */
    enum latchwork_result (*keep)(struct latchwork_hold *hold, int64_t ttl_ms,
                                  struct latchwork_error *error);
    /* Writes the call that extends a lease, so that many holds are renewed in one pipeline; the
     * reply is the integer 1 or 0. NULL: the kind has only `keep`. */
    void (*keep_call)(struct latchwork_hold *hold, int64_t ttl_ms, struct lw_call *call);
    /* fence of the i-th name; NULL: all names share one fence */
    uint64_t (*fence_at)(const struct latchwork_hold *hold, size_t i);
    /* frees hold->more; may be NULL */
    void (*hold_fini)(struct latchwork_hold *hold);
    /* frees lock->more; may be NULL */
    void (*lock_fini)(struct latchwork_lock *lock);
    /* Each of the next three functions may be NULL; the public function then returns
     * UNSUPPORTED. */
    enum latchwork_result (*show)(struct latchwork_lock *lock, latchwork_lock_seen *seen, void *ctx,
                                  struct latchwork_error *error);
    enum latchwork_result (*end)(struct latchwork_lock *lock, uint64_t *fence,
                                 struct latchwork_error *error);
    enum latchwork_result (*give_ttl)(struct latchwork_lock *lock, int64_t ttl_ms,
                                      struct latchwork_error *error);
};

struct lw_shape; /* defined in one.c */

struct latchwork_lock {
    atomic_int refs;
    const struct lw_lock_ops *ops;
    /* the lock's client; for Redlock the client of its first server, which serves only to notice a
     * fork */
    struct latchwork_client *client;
    /* Returns the keeper of the client, or the lock's own keeper if the lock has one. */
    struct lw_keeper *(*keeper)(struct latchwork_lock *lock, struct latchwork_error *error);
    struct latchwork_lock_options o; /* a copy of the options; names is NULL */
    char *name;
    size_t n_name;
    char label[LATCHWORK_MAX_LABEL + 1];

    const struct lw_shape *shape;
    /* names of the keys, owned; LW_KEY_LOCK and the constants after it are the indexes */
    struct lw_bytes key[LW_LOCK_KEYS];
    struct lw_bytes hint_if, hint_to, hint;
    int slot; /* slot of all keys of the lock; LW_ANY_SLOT for Redlock */
    int64_t fence_keep_ms;
    _Atomic uint64_t seen; /* the largest fence that this lock has seen */

    pthread_mutex_t mutex;        /* guards `owned`, and the leases of holds */
    pthread_cond_t renewed;       /* signalled when a hold has no renewal under way any more */
    struct latchwork_hold *owned; /* reentrant locks only: the holds, one per owner */
    void *more;
};

struct latchwork_hold {
    atomic_int refs;
    struct latchwork_lock *lock;
    char token[LW_LOCK_TOKEN_MAX + 1];
    char value[LW_LOCK_VALUE_MAX + 1];
    uint64_t fence;
    atomic_int loss; /* a value of enum latchwork_loss */
    _Atomic int64_t deadline_ms, ttl_ms;
    /* boot clock; end of the longest time that max_hold_ms allows; INT64_MAX: no limit */
    int64_t end_ms;
    /* The lock's mutex guards the next three fields. */
    int renewals;     /* number of renewals that were sent and are not answered */
    bool overlap;     /* the last renewal began while another was under way */
    int64_t least_ms; /* the earliest deadline that any renewal under way may have set */
    /* The keeper's mutex guards the next two fields. */
    bool kept;
    int64_t renew_ms; /* boot clock; time of the next renewal */
    /* The owner is set for reentrant locks only. */
    uint64_t owner;
    bool owner_is_thread;
    int count;
    struct latchwork_hold *next;
    void *more;
};

/* Checks and copies the options that all kinds share, for functions that open a lock. Returns NULL
 * with *error on failure. */
struct latchwork_lock *lw_lock_new(const struct lw_lock_ops *ops, const char *name,
                                   const struct latchwork_lock_options *options, const char *label,
                                   struct latchwork_error *error);
void lw_lock_unref(struct latchwork_lock *lock);
/* Returns the keeper (keeper.h) of the lock's client, and starts it if necessary. Returns NULL with
 * *error if the keeper cannot be started. lock->keeper points to this function, unless the lock has
 * a keeper of its own. */
struct lw_keeper *lw_client_keeper(struct latchwork_lock *lock, struct latchwork_error *error);

/* Makes a hold of `lock` with one reference. Returns NULL with *error if an allocation failed. */
struct latchwork_hold *lw_hold_new(struct latchwork_lock *lock, struct latchwork_error *error);
/* Gives the hold a new random token. Returns false, with *error, if the system gives no random
 * bytes. */
bool lw_hold_token(struct latchwork_hold *hold, struct latchwork_error *error);
void lw_hold_ref(struct latchwork_hold *hold);
void lw_hold_unref(struct latchwork_hold *hold);
/* Sets the lease to ttl_ms from sent_ms, a time before the request was sent, or to less if another
 * renewal under way may have set an earlier deadline. */
void lw_hold_leased(struct latchwork_hold *hold, int64_t sent_ms, int64_t ttl_ms);
/* Call the next two functions before and after each request that may change the lease. Redis may
 * execute overlapping requests in any order, and may execute one whose answer is lost. So the
 * hold's deadline is never later than the earliest deadline that any of these requests set. */
void lw_hold_renew_begin(struct latchwork_hold *hold, int64_t now_ms, int64_t ttl_ms);
/* returns whether another renewal overlapped with this one */
bool lw_hold_renew_end(struct latchwork_hold *hold);
/* Returns the TTL that an automatic renewal asks for at now_ms: the lock's TTL or, if the lease was
 * extended by hand and more than that is left, the rest of the lease. */
int64_t lw_hold_keep_ttl(const struct latchwork_hold *hold, int64_t now_ms);
/* Marks the hold as lost and calls its callback, both at most once. */
void lw_hold_lose(struct latchwork_hold *hold, enum latchwork_loss why);
/* Sets *error to LOST and marks the hold as lost. */
enum latchwork_result lw_hold_not_ours(struct latchwork_hold *hold, bool sent_again,
                                       struct latchwork_error *error);
/* remembers `fence` if it is the largest, and returns it */
uint64_t lw_lock_saw(struct latchwork_lock *lock, uint64_t fence);
int64_t lw_lock_ttl(const struct latchwork_hold *hold, int64_t ttl_ms,
                    int64_t now_ms); /* returns ttl_ms, or less if max_hold_ms leaves less */

#endif
