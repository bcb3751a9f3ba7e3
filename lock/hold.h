/* SPDX-License-Identifier: Apache-2.0 */
/* What locks and holds are inside, and what a kind of lock has to bring.
 *
 * A lock has a table of functions, its kind. The kinds that live on one Redis share theirs (one.c), with a shape for each: which names,
 * which scripts. Rows and Redlock bring their own functions and may keep what they need in `more` of lock and hold. The rest is the
 * same for all: counting reentrant holds, renewal (keeper.h), loss, the public functions. */
#ifndef LW_LOCK_HOLD_H
#define LW_LOCK_HOLD_H

#include "lock/client.h"

enum {
    LW_LOCK_TOKEN_MAX = LATCHWORK_MAX_LABEL + 1 + 32, /* LABEL/HEX */
    LW_LOCK_VALUE_MAX = LW_LOCK_TOKEN_MAX + 24,       /* TOKEN:FENCE */
    LW_LOCK_KEYS = 6,
    LW_FENCE_KEEP_MS =
        7 * 24 * 3600 * 1000, /* a fence counter unused for this long is forgotten; Redis' clock must not go back by more than that */
};

struct lw_lock_ops {
    /* Tries until deadline_ms (0: once; INT64_MAX: for ever). On OK the hold's token, value, fence
     * and lease are set. */
    enum latchwork_result (*acquire)(struct latchwork_lock *lock, struct latchwork_hold *hold, int64_t deadline_ms,
                                     struct latchwork_error *error);
    enum latchwork_result (*release)(struct latchwork_hold *hold, struct latchwork_error *error);
    /* Extends the lease; ttl_ms 0 only looks. On OK it calls lw_hold_leased(). */
    enum latchwork_result (*keep)(struct latchwork_hold *hold, int64_t ttl_ms, struct latchwork_error *error);
    /* `keep` as a call, for renewing many holds in one pipeline; its reply is the integer 1 or 0.
     * NULL: keep is called. */
    void (*keep_call)(struct latchwork_hold *hold, int64_t ttl_ms, struct lw_call *call);
    uint64_t (*fence_at)(const struct latchwork_hold *hold, size_t i); /* NULL: the kind has one fence */
    void (*hold_fini)(struct latchwork_hold *hold);                    /* frees hold->more; may be NULL */
    void (*lock_fini)(struct latchwork_lock *lock);                    /* frees lock->more; may be NULL */
    /* May be NULL; then the result is UNSUPPORTED. */
    enum latchwork_result (*show)(struct latchwork_lock *lock, latchwork_lock_seen *seen, void *ctx, struct latchwork_error *error);
    enum latchwork_result (*end)(struct latchwork_lock *lock, uint64_t *fence, struct latchwork_error *error);
    enum latchwork_result (*give_ttl)(struct latchwork_lock *lock, int64_t ttl_ms, struct latchwork_error *error);
};

struct lw_shape; /* see one.c */

struct latchwork_lock {
    atomic_int refs;
    const struct lw_lock_ops *ops;
    struct latchwork_client *client; /* for Redlock, that of the first server, which notices forks */
    /* The keeper of the client, or of a lock that brings its own. */
    struct lw_keeper *(*keeper)(struct latchwork_lock *lock, struct latchwork_error *error);
    struct latchwork_lock_options o; /* a copy of the options; names is NULL */
    char *name;
    size_t n_name;
    char label[LATCHWORK_MAX_LABEL + 1];

    const struct lw_shape *shape;
    struct lw_bytes key[LW_LOCK_KEYS]; /* owned; in the order that the shape gives */
    struct lw_bytes hint_if, hint_to, hint;
    int64_t fence_keep_ms;
    _Atomic uint64_t seen; /* the largest fence seen so far */

    pthread_mutex_t mutex;        /* guards `owned`, and the leases of holds */
    struct latchwork_hold *owned; /* reentrant: one hold per owner */
    void *more;
};

struct latchwork_hold {
    atomic_int refs;
    struct latchwork_lock *lock;
    char token[LW_LOCK_TOKEN_MAX + 1];
    char value[LW_LOCK_VALUE_MAX + 1];
    uint64_t fence;
    atomic_int loss; /* enum latchwork_loss */
    _Atomic int64_t deadline_ms, ttl_ms;
    int64_t end_ms; /* set by max_hold_ms; INT64_MAX: no limit */
    /* Guarded by the lock's mutex. */
    int renewals;     /* renewals sent and not answered */
    int64_t least_ms; /* the earliest deadline that any of those renewals may have set */
    /* Guarded by the keeper's mutex. */
    bool kept;
    int64_t renew_ms; /* when to renew it next */
    /* For reentrant locks. */
    uint64_t owner;
    bool owner_is_thread;
    int count;
    struct latchwork_hold *next;
    void *more;
};

/* For functions that open a lock: checks and copies what all kinds share. Returns NULL with *error
 * on failure. */
struct latchwork_lock *lw_lock_new(const struct lw_lock_ops *ops, const char *name, const struct latchwork_lock_options *options,
                                   const char *label, struct latchwork_error *error);
void lw_lock_unref(struct latchwork_lock *lock);
/* For lock->keeper. Returns NULL with *error if it cannot be started. */
struct lw_keeper *lw_client_keeper(struct latchwork_lock *lock, struct latchwork_error *error);

/* A hold of `lock` with one reference. Returns NULL with *error if an allocation failed. */
struct latchwork_hold *lw_hold_new(struct latchwork_lock *lock, struct latchwork_error *error);
/* Gives the hold a new random token. Returns false, with *error, if the system gives no random
 * bytes. */
bool lw_hold_token(struct latchwork_hold *hold, struct latchwork_error *error);
void lw_hold_ref(struct latchwork_hold *hold);
void lw_hold_unref(struct latchwork_hold *hold);
/* Sets the lease to ttl_ms from sent_ms, a time before the request was sent; or to less, while
 * other renewals are under way. */
void lw_hold_leased(struct latchwork_hold *hold, int64_t sent_ms, int64_t ttl_ms);
/* Call these around each request that may change the lease. Redis may execute overlapping requests
 * in any order, and may execute one whose answer is lost. So the deadline is never later than the
 * earliest that any of them set. */
void lw_hold_renew_begin(struct latchwork_hold *hold, int64_t now_ms, int64_t ttl_ms);
void lw_hold_renew_end(struct latchwork_hold *hold);
/* Marks the hold as lost and calls its callback, both at most once. */
void lw_hold_lose(struct latchwork_hold *hold, enum latchwork_loss why);
/* Says LOST in *error and loses the hold. */
enum latchwork_result lw_hold_not_ours(struct latchwork_hold *hold, bool sent_again, struct latchwork_error *error);
uint64_t lw_lock_saw(struct latchwork_lock *lock, uint64_t fence);                      /* remembers the largest fence; returns `fence` */
int64_t lw_lock_ttl(const struct latchwork_hold *hold, int64_t ttl_ms, int64_t now_ms); /* ttl_ms, shortened to what max_hold_ms leaves */

#endif
