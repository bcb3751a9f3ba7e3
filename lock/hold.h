/* SPDX-License-Identifier: Apache-2.0 */
/* Locks and holds inside the library, and the functions that each kind of lock must provide.
 *
 * Each kind of lock has a table of functions (struct lw_lock_ops). The kinds that are stored on one
 * Redis share one table (one.c) and differ in their shape: the names of their keys, and their
 * scripts. Row locks and Redlock have tables of their own, and may store additional data in the
 * field `more` of the lock and of the hold. All kinds share the count of reentrant holds, renewal
 * (renewer.h), the handling of lost holds, and the public functions. */
#ifndef LW_LOCK_HOLD_H
#define LW_LOCK_HOLD_H

#include "lock/client.h"

enum {
    LW_LOCK_TOKEN_MAX = LATCHWORK_MAX_LABEL + 1 + 32, /* the longest token has the form LABEL/HEX */
    /* the longest value of a lock has the form TOKEN:FENCE */
    LW_LOCK_VALUE_MAX = LW_LOCK_TOKEN_MAX + 24,
    LW_LOCK_KEYS = 6,
    /* Time in ms after which Redis deletes a fence counter that was not used. The next fence is
     * then taken from Redis' clock. This fence is larger than all earlier fences unless the clock
     * was set back by more than LW_FENCE_KEEP_MS. */
    LW_FENCE_KEEP_MS = 7 * 24 * 3600 * 1000,
};

struct lw_lock_ops {
    /* Tries to take the lock until deadline_ms on the boot clock. If deadline_ms is 0, tries once;
     * if it is INT64_MAX, tries without a time limit. The function must set the hold's token,
     * value, fence and lease before it returns OK. */
    enum latchwork_result (*acquire)(struct latchwork_lock *lock, struct latchwork_hold *hold,
                                     int64_t deadline_ms, struct latchwork_error *error);
    enum latchwork_result (*release)(struct latchwork_hold *hold, struct latchwork_error *error);
    /* Extends the lease to ttl_ms from now. If ttl_ms is 0, only checks whether the lock is still
     * held. The function must call lw_hold_leased() after it has extended the lease. */
    enum latchwork_result (*keep)(struct latchwork_hold *hold, int64_t ttl_ms,
                                  struct latchwork_error *error);
    /* Builds a call that extends the lease. Redis answers 1, or 0 if the lock is no longer held.
     * The renewer sends such calls for many holds in one pipeline. If `keep_call` is NULL, the
     * renewer calls `keep` for each hold instead. */
    void (*keep_call)(struct latchwork_hold *hold, int64_t ttl_ms, struct lw_call *call);
    /* Returns the fence of the i-th name of a lock with several names. The pointer `fence_at` is
     * NULL if all names share one fence. */
    uint64_t (*fence_at)(const struct latchwork_hold *hold, size_t i);
    /* Frees hold->more. The pointer `hold_fini` is NULL if there is nothing to free. */
    void (*hold_fini)(struct latchwork_hold *hold);
    /* Frees lock->more. The pointer `lock_fini` is NULL if there is nothing to free. */
    void (*lock_fini)(struct latchwork_lock *lock);
    /* Each of the next three functions may be NULL. The corresponding public function then returns
     * the error UNSUPPORTED. */
    enum latchwork_result (*show)(struct latchwork_lock *lock, latchwork_lock_seen *seen, void *ctx,
                                  struct latchwork_error *error);
    enum latchwork_result (*end)(struct latchwork_lock *lock, uint64_t *fence,
                                 struct latchwork_error *error);
    enum latchwork_result (*give_ttl)(struct latchwork_lock *lock, int64_t ttl_ms,
                                      struct latchwork_error *error);
};

struct lw_shape; /* the names and scripts of one kind of lock, defined in one.c */

struct latchwork_lock {
    atomic_int refs;
    const struct lw_lock_ops *ops;
    /* The client of the lock. In a Redlock, this is the client of its first server, and is used
     * only to detect that the process was forked. */
    struct latchwork_client *client;
    /* Returns the renewer that renews the lock's holds: its client's renewer, or a renewer for this
     * lock alone. */
    struct lw_hold_renewer *(*renewer)(struct latchwork_lock *lock, struct latchwork_error *error);
    struct latchwork_lock_options o; /* a copy of the caller's options, in which `names` is NULL */
    char *name;
    size_t n_name;
    char label[LATCHWORK_MAX_LABEL + 1];

    const struct lw_shape *shape;
    /* Names of the lock's keys in Redis, owned by the lock. The indexes are LW_KEY_LOCK and the
     * constants after it. */
    struct lw_bytes key[LW_LOCK_KEYS];
    struct lw_bytes hint_if, hint_to, hint;
    int slot; /* cluster slot of all keys of the lock; LW_ANY_SLOT in a Redlock */
    int64_t fence_keep_ms;
    _Atomic uint64_t seen; /* the largest fence that this client has seen for the lock */

    pthread_mutex_t mutex;        /* guards `owned`, and the leases of all holds of this lock */
    pthread_cond_t renewed;       /* signalled when a hold has no renewal in flight any more */
    struct latchwork_hold *owned; /* reentrant locks only: list of the holds, one per owner */
    void *more;
};

struct latchwork_hold {
    atomic_int refs;
    struct latchwork_lock *lock;
    char token[LW_LOCK_TOKEN_MAX + 1];
    char value[LW_LOCK_VALUE_MAX + 1];
    uint64_t fence;
    atomic_int loss; /* why the hold is lost: a value of enum latchwork_loss */
    _Atomic int64_t deadline_ms, ttl_ms;
    /* Time on the boot clock at which max_hold_ms ends the hold. INT64_MAX: no limit. */
    int64_t end_ms;
    /* The lock's mutex guards the fields `renewals`, `overlap` and `least_ms`. */
    int renewals;     /* number of renewals in flight */
    bool overlap;     /* true if the last renewal began while another was in flight */
    int64_t least_ms; /* the earliest deadline that any renewal in flight may have set */
    /* The renewer's mutex guards the fields `kept` and `renew_ms`. */
    bool kept;
    int64_t renew_ms; /* time on the boot clock of the next automatic renewal */
    /* The fields `owner`, `owner_is_thread` and `count` are used for reentrant locks only. */
    uint64_t owner;
    bool owner_is_thread;
    int count;
    struct latchwork_hold *next;
    void *more;
};

/* Creates a lock of any kind. The functions that open the different kinds of locks call this
 * function first. Checks and copies the options that all kinds share. Returns NULL with *error on
 * failure. */
struct latchwork_lock *lw_lock_new(const struct lw_lock_ops *ops, const char *name,
                                   const struct latchwork_lock_options *options, const char *label,
                                   struct latchwork_error *error);
void lw_lock_unref(struct latchwork_lock *lock);
/* Returns the renewer (renewer.h) of the lock's client, and starts it if necessary. Returns
 * NULL with *error if the renewer cannot be started. lock->renewer points to this function, unless
 * the lock has a renewer for itself alone. */
struct lw_hold_renewer *lw_client_renewer(struct latchwork_lock *lock,
                                          struct latchwork_error *error);

/* Creates a hold of `lock` with one reference. Returns NULL with *error if an allocation failed. */
struct latchwork_hold *lw_hold_new(struct latchwork_lock *lock, struct latchwork_error *error);
/* Gives the hold a new random token. Returns false with *error if the system provides no random
 * bytes. */
bool lw_hold_token(struct latchwork_hold *hold, struct latchwork_error *error);
void lw_hold_ref(struct latchwork_hold *hold);
void lw_hold_unref(struct latchwork_hold *hold);
/* Records that the lease ends ttl_ms after sent_ms, which must be a time before the request was
 * sent. Records an earlier end if another renewal in flight may have set an earlier end. */
void lw_hold_leased(struct latchwork_hold *hold, int64_t sent_ms, int64_t ttl_ms);
/* Call lw_hold_renew_begin() before and lw_hold_renew_end() after each request that may change the
 * lease. Redis may execute overlapping requests in any order, and may execute a request whose
 * answer is lost. So the hold's deadline is never later than the earliest deadline that any of
 * these requests set. */
void lw_hold_renew_begin(struct latchwork_hold *hold, int64_t now_ms, int64_t ttl_ms);
/* Returns true if another renewal of the same hold overlapped with this renewal. */
bool lw_hold_renew_end(struct latchwork_hold *hold);
/* Returns the TTL that an automatic renewal requests at now_ms. This is the lock's TTL, or the
 * remaining time of the lease if the lease was extended by hand and lasts longer than that TTL. If
 * max_hold_ms ends the hold earlier, the returned TTL is shorter. */
int64_t lw_hold_keep_ttl(const struct latchwork_hold *hold, int64_t now_ms);
/* Marks the hold as lost and calls the callback of the hold, each at most once. */
void lw_hold_lose(struct latchwork_hold *hold, enum latchwork_loss why);
/* Marks the hold as lost, fills *error, and returns LOST. If `sent_again` is true, the error says
 * that this call may have released the lock itself when it was sent for the first time. */
enum latchwork_result lw_hold_not_ours(struct latchwork_hold *hold, bool sent_again,
                                       struct latchwork_error *error);
/* Sets lock->seen to `fence` unless lock->seen is larger already. Returns `fence`. */
uint64_t lw_lock_saw(struct latchwork_lock *lock, uint64_t fence);

#endif
