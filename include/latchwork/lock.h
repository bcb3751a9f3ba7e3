/* SPDX-License-Identifier: Apache-2.0 */
/* Latchwork locks: mutual exclusion between threads, processes and machines by way of Redis.
 *
 *     #include <latchwork/lock.h>
 *
 *     struct latchwork_error error;
 *     struct latchwork_client *client = latchwork_client_open("redis://127.0.0.1:6379/0", NULL, &error);
 *     struct latchwork_lock *lock = latchwork_lock_open(client, "stock:42", NULL, &error);
 *     struct latchwork_hold *hold;
 *     if (latchwork_lock_acquire(lock, 5000, &hold, &error) == LATCHWORK_LOCK_OK) {
 *         store(latchwork_hold_fence(hold), ...);        // a store that refuses smaller fences than it has seen
 *         latchwork_hold_release(hold, &error);
 *     }
 *     latchwork_lock_close(lock);
 *     latchwork_client_close(client);
 *
 * Build with `cc $(pkg-config --cflags latchwork) my.c $(pkg-config --libs latchwork)`.
 *
 * Words. A *client* is a bounded pool of connections to one Redis. A *lock* is a name with options: what is to be locked, for how long, in
 * which manner. A *hold* is one acquisition of it. Clients and locks are shared by as many threads as you like: each acquire gives a
 * hold of its own. `latchwork_redlock_*` makes locks that live on several independent Redis servers, `latchwork_rows_*` locks for rows of
 * tables; acquire, renew, release and all the rest are the same functions for every kind.
 *
 * What a hold is: a lease. Redis ends it `ttl_ms` after it was given unless it was renewed; a holder that was killed frees its lock so.
 * The holder counts the end from *before* it sent the request, on a clock that goes on through suspend (CLOCK_BOOTTIME), so that its own
 * idea of the end is never later than that of Redis. Whoever may be paused for longer than the TTL (a debugger, swapping, SIGSTOP, a
 * stalled virtual machine) can wake up without the lock and not know it for some instructions: no lock with a timeout can help there.
 * The fence does: it grows with every acquisition of a name, so a store that remembers the largest fence it has seen, and refuses smaller
 * ones, is safe even then. The fence is the larger of the last one + 1 and Redis' time in microseconds: it grows across expiry, release,
 * FLUSHALL and a fail-over to a replica that missed writes. (A name's counter is
 * remembered for a week after its last use; only a clock of Redis that went back by more than that could undo it.) (Martin Kleppmann, "How
 * to do distributed locking", 2016.)
 *
 * Results. Functions that talk to Redis return a latchwork_result, and fill *error on any result other than OK; `error` may be NULL.
 *   OK     as asked.
 *   BUSY   others hold the lock, and the time to wait is over. error->code is LATCHWORK_E_BUSY, or says more (LATCHWORK_E_NO_TTL, ...).
 *   LOST   the lock is not (any more) ours, and nothing was changed. Also: a release whose answer was lost with the connection, when the
 *          lock is found gone at the second try; it may have been freed by the first. Do not trust that you were alone until this call.
 *   ERROR  Redis could not be asked, or refused, or the call was wrong: error->code and error->text say what and what to do.
 * Functions that open something return NULL, and fill *error, where others return ERROR.
 *
 * Codes. Each function lists the codes that it gives, without their LATCHWORK_E_. *Any of Redis* stands for what every exchange with
 * Redis can end in: MEMORY, FORK, CONNECT, TIMEOUT, POOL, DENIED, TYPE, FULL, READONLY, NO_SCRIPTS, REPLY. Later versions may add
 * codes: treat one that you do not know by its result.
 *
 * Names. Each prefix belongs to one thing: LATCHWORK_LOCK_ are results, LATCHWORK_E_ codes, LATCHWORK_KIND_ kinds of locks,
 * LATCHWORK_FLAG_ flags (each has a bit of its own, so that one in the wrong place is refused), LATCHWORK_LOSS_ why a hold ended,
 * LATCHWORK_DEFAULT_ what a 0 in an option means, LATCHWORK_MIN_ and LATCHWORK_MAX_ limits. What ends in _INIT begins a structure of
 * options. <latchwork/handler.h> uses none of these prefixes, and both headers may be included together.
 *
 * Threads. Clients, locks and Redlocks may be used by any number of threads at the same time, until the one call that closes them. So
 * may one hold: all functions of a hold but release and forget may run side by side, on any thread, whichever thread acquired it, and
 * beside its renewal. Where renewals of one hold overlap, its deadline becomes the earliest of those that they asked for, since Redis may
 * have taken them in any order. latchwork_hold_release() and latchwork_hold_forget() end the hold: one thread calls one of them, once (for
 * a reentrant lock as often as it was acquired), when no other call on this hold runs, and none follows. No function may be called from a
 * signal handler.
 *
 * Waiting. Who waits for a lock is woken by its release: the script that frees it tells one waiting client by PUBLISH, over one subscribed
 * connection that all the waiters of a client share; the rest sleep on. There is no polling by sleeping; what is woken and dies must not
 * hold up the others, so the first waiter of each client also looks by itself when the holder's lease must have ended, and every 5 s
 * (1 s for fair and read/write locks), with jitter. Where the subscription can't be had (ACL without channels), and for names that other
 * programs share (PLAIN, custom names without `wait`), the first waiter of each client looks every 10 to 100 ms instead.
 *
 * Forks. A child must not use its parent's clients, locks or holds: calls say LATCHWORK_E_FORK. It may close the client (which frees memory
 * and touches nothing else) and open one of its own.
 *
 * Memory. What a call hands out is freed by its close or release. An allocation that fails is an error, LATCHWORK_E_MEMORY, and never
 * ends the program: what was opened before goes on working, and the call may be made again. After an acquire that failed so, the lock
 * may be taken in Redis until its TTL ends, as after any ERROR. Closing and releasing free what they free also without memory.
 *
 * Interface. It only grows: structures that you fill carry their size, and members are added at their ends. Fill them as
 * `struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 5000};` or zero them and set `size` yourself.
 * Zero always means the default. Times are in ms, and -1 where they may be endless. */
#ifndef LATCHWORK_LOCK_H
#define LATCHWORK_LOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATCHWORK_API __attribute__((visibility("default")))

/* --- version ----------------------------------------------------------------------------------------------------------------------- */

/* The version of this header. MAJOR changes when a program has to be compiled anew or changed; the soname carries it. */
#define LATCHWORK_VERSION_MAJOR 0
#define LATCHWORK_VERSION_MINOR 1
#define LATCHWORK_VERSION_PATCH 0
#define LATCHWORK_VERSION "0.1.0"
/* For comparing: 1.2.3 is 10203. */
#define LATCHWORK_VERSION_NUMBER (LATCHWORK_VERSION_MAJOR * 10000 + LATCHWORK_VERSION_MINOR * 100 + LATCHWORK_VERSION_PATCH)

/* The version of the library that is loaded, as LATCHWORK_VERSION is that of the header. Codes: none. */
LATCHWORK_API const char *latchwork_version(void);
LATCHWORK_API int latchwork_version_number(void);

/* --- results and codes --------------------------------------------------------------------------------------------------------------- */

enum latchwork_result {
    LATCHWORK_LOCK_OK = 0,
    LATCHWORK_LOCK_BUSY = 1,
    LATCHWORK_LOCK_LOST = 2,
    LATCHWORK_LOCK_ERROR = 3,
};

/* Why, in error->code. Numbers are stable. */
enum latchwork_code {
    LATCHWORK_E_NONE = 0,
    LATCHWORK_E_BUSY = 1,         /* held by others */
    LATCHWORK_E_NO_TTL = 2,       /* held by a lock without TTL, which never ends by itself: latchwork_lock_give_ttl(), `give_ttl_ms` */
    LATCHWORK_E_NOT_OWNER = 3,    /* it holds another token, or is gone: broken, wiped, or expired and perhaps taken by another */
    LATCHWORK_E_EXPIRED = 4,      /* our own clock says that the lease has ended; or max_hold_ms is reached */
    LATCHWORK_E_UNKNOWN = 5,      /* the lock is gone, and a first answer was lost: see LOST */
    LATCHWORK_E_ARGUMENT = 6,     /* a call that can't be right */
    LATCHWORK_E_FORK = 7,         /* the client belongs to the parent process */
    LATCHWORK_E_CLOSED = 8,       /* the client is being closed, or was interrupted */
    LATCHWORK_E_CONNECT = 9,      /* no connection, or it broke and could not be made anew in time */
    LATCHWORK_E_TIMEOUT = 10,     /* no answer within command_ms */
    LATCHWORK_E_POOL = 11,        /* all connections of the pool were in use for the whole time */
    LATCHWORK_E_DENIED = 12,      /* NOAUTH, WRONGPASS, NOPERM */
    LATCHWORK_E_TYPE = 13,        /* the name holds something that is no lock of this kind */
    LATCHWORK_E_FULL = 14,        /* Redis is at maxmemory and can't take a new lock */
    LATCHWORK_E_READONLY = 15,    /* a replica, or a server that is loading */
    LATCHWORK_E_NO_SCRIPTS = 16,  /* this kind of lock needs scripts, which the client or the server forbids */
    LATCHWORK_E_REPLY = 17,       /* any other error reply, or one that makes no sense */
    LATCHWORK_E_MAJORITY = 18,    /* Redlock: too few servers answered */
    LATCHWORK_E_UNSUPPORTED = 19, /* not for this kind of lock */
    LATCHWORK_E_NOT_HELD = 20,    /* nobody holds the lock that is to be shown, broken or given a TTL */
    LATCHWORK_E_HAS_TTL = 21,     /* the lock that is to be given a TTL has one */
    LATCHWORK_E_MEMORY = 22,      /* an allocation failed */
    LATCHWORK_E_SYSTEM = 23,      /* the system gives no thread, no descriptor or no random bytes */
};

struct latchwork_error {
    int code;       /* latchwork_code */
    char text[508]; /* for people: what went wrong, where, what to do; never holds a password */
};

/* "ok", "busy", "lost", "error"; "unknown" for any other number. */
LATCHWORK_API const char *latchwork_result_name(enum latchwork_result result);
/* The name of a latchwork_code in small letters, as "not_owner"; "other" for any other number. */
LATCHWORK_API const char *latchwork_code_name(int code);

/* --- client: connections to one Redis ------------------------------------------------------------------------------------------- */

struct latchwork_client;

/* Flags: which options or calls take one is said with it. */
enum latchwork_flag {
    /* Locks: a thread of the client extends the hold at a third of its TTL, until released, lost, or max_hold_ms. It never acquires
     * again. */
    LATCHWORK_FLAG_RENEW = 1,
    /* Locks: the lock of common clients, byte for byte: `SET name token NX PX ttl` with 32 hex digits as token, compare-and-delete to
     * release. name is exactly the Redis key. The fence is kept beside it (lwl:{name}:fence) and takes no notice of other programs'
     * acquisitions, but still grows across them as long as Redis' clock does. Mutex and reentrant only. */
    LATCHWORK_FLAG_PLAIN = 2,
    /* Clients: never EVAL, but WATCH, MULTI and EXEC, at two round trips a call. Mutex and reentrant only. */
    LATCHWORK_FLAG_NO_SCRIPTS = 4,
    /* latchwork_lock_list(): glob is one of whole Redis keys, which are plain locks or locks with custom names (strings; others are
     * passed over). Without: of names in the library's own namespace. */
    LATCHWORK_FLAG_KEYS = 8,
    /* Of a client: any certificate of a server is taken, so whoever is in between can read and change everything. */
    LATCHWORK_FLAG_NO_VERIFY = 16,
};

enum {
    LATCHWORK_DEFAULT_CONNECTIONS = 8,
    LATCHWORK_DEFAULT_CONNECT_MS = 2000,
    LATCHWORK_DEFAULT_COMMAND_MS = 1000,
    LATCHWORK_MAX_CONNECTIONS = 1024,
    LATCHWORK_MAX_WAIT_MS = 600000, /* of every option that bounds a wait: connect_ms, command_ms, node_ms, retry_max_ms */
    LATCHWORK_MAX_LABEL = 64,       /* bytes */
};

struct latchwork_client_options {
    uint32_t size;
    unsigned flags; /* LATCHWORK_FLAG_NO_SCRIPTS, LATCHWORK_FLAG_NO_VERIFY */
    /* At most this many at once for commands (LATCHWORK_DEFAULT_CONNECTIONS, at most LATCHWORK_MAX_CONNECTIONS), made when needed. One
     * more for waking, if anything ever waits, and one for renewal, if anything is renewed. More threads than connections take turns. */
    int connections;
    int64_t connect_ms; /* LATCHWORK_DEFAULT_CONNECT_MS */
    /* LATCHWORK_DEFAULT_COMMAND_MS: for a single answer. A call sends again at most once, on a new connection. */
    int64_t command_ms;
    /* Who holds, for people who look: part of each lock's value. NULL: host.pid. At most LATCHWORK_MAX_LABEL bytes of letters, digits
     * and ._- */
    const char *label;
    /* As whom, if the url names no user and password. NULL: nobody. A user needs a password. */
    const char *user, *password;
    /* For rediss://, in PEM, read anew for each connection. tls_ca: the CAs that are trusted; NULL: the system's. tls_cert and tls_key: of
     * the client; NULL: none, and the key stands in tls_cert. tls_name: what the server's certificate must be for; NULL: the host of
     * the url. It is verified unless LATCHWORK_FLAG_NO_VERIFY is set. */
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
};
#define LATCHWORK_CLIENT_INIT .size = sizeof(struct latchwork_client_options)

/* url: redis://[user:password@]host[:port][/db], rediss:// for TLS, or unix://[user:password@]/path[?db=N]; options may be NULL. Connects
 * to nothing yet. Codes: ARGUMENT, MEMORY, SYSTEM. */
LATCHWORK_API struct latchwork_client *latchwork_client_open(const char *url, const struct latchwork_client_options *options,
                                                             struct latchwork_error *error);
/* PING on a connection of the pool. Codes: ARGUMENT, any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_client_ping(struct latchwork_client *client, struct latchwork_error *error);
/* Every call that waits for a lock, now or later, ends with ERROR and LATCHWORK_E_CLOSED; releases still work. Any thread (not signal
 * handlers): how a program that shuts down gets its waiting threads back. NULL is ignored. */
LATCHWORK_API void latchwork_client_interrupt(struct latchwork_client *client);
/* Ends its threads and connections. All holds must be released or forgotten and all locks closed first. NULL is ignored. */
LATCHWORK_API void latchwork_client_close(struct latchwork_client *client);

/* --- lock: what to lock, and how -------------------------------------------------------------------------------------------------- */

struct latchwork_lock;
struct latchwork_hold;

/* Use one kind for a name. (Mutex, reentrant and fair exclude each other; the others live beside them and do not.) */
enum latchwork_kind {
    LATCHWORK_KIND_MUTEX = 0,
    /* A mutex that its owner may take again: nested acquires give the same hold, cost no round trip, and are counted; it is free after as
     * many releases, and lost as a whole. Owner is the calling thread, or what latchwork_lock_acquire_as() says; owners of different
     * lock objects differ. */
    LATCHWORK_KIND_REENTRANT = 1,
    /* A mutex whose waiters, of all processes, get it in the order in which they came. A waiter whose process is dead is passed over at
     * once where its connection is closed, and else (frozen, cut off) when it was not heard of for 3 s; one that comes to life later has
     * its place back from the next hand-over on. So a waiter is overtaken only by those that came before it, and while it can't be reached.
     */
    LATCHWORK_KIND_FAIR = 2,
    /* Read/write: any number of READ holds of a name, or one WRITE hold. Open a lock of each kind with the same name. While a live
     * writer waits no new reader gets in; after a writer, the readers waiting then are woken together. Don't ask
     * for a READ hold while you have one of the same name: a writer between the two would wait for you, and you for it. */
    LATCHWORK_KIND_READ = 3,
    LATCHWORK_KIND_WRITE = 4,
    /* At most `permits` holds at once, each a lease of its own. All users of a name must say the same number. */
    LATCHWORK_KIND_SEMAPHORE = 5,
    /* Not for latchwork_lock_open(): what latchwork_lock_list() finds and the other openers make. */
    LATCHWORK_KIND_ROWS = 6,
    LATCHWORK_KIND_REDLOCK = 7,
};

enum {
    LATCHWORK_DEFAULT_TTL_MS = 10000,
    LATCHWORK_DEFAULT_MAX_HOLD_MS = 3600000,
    LATCHWORK_MIN_TTL_MS = 10,
    LATCHWORK_MAX_TTL_MS = 86400000,
    LATCHWORK_MAX_PERMITS = 1000000,
    LATCHWORK_MAX_NAME = 512, /* bytes */
};

/* Why a hold ended that nobody released. */
enum latchwork_loss {
    LATCHWORK_LOSS_NOT_OWNER = 1,   /* Redis says that it is not ours any more */
    LATCHWORK_LOSS_UNCONFIRMED = 2, /* it could not be renewed by two thirds of its TTL: it may hold still, for a third at most; stop now */
    LATCHWORK_LOSS_MAX_HOLD = 3,    /* max_hold_ms is reached: it is renewed no more */
};

/* The lock's names in Redis, where they must be those of another scheme. A string of this kind holds TOKEN:FENCE. All in one
 * Cluster slot. Not NUL-terminated: sizes are given. */
struct latchwork_name {
    const char *p;
    size_t n;
};
struct latchwork_lock_names {
    uint32_t size;
    struct latchwork_name lock;  /* the string with the token */
    struct latchwork_name fence; /* the counter; may be shared by several locks; never expires */
    struct latchwork_name wait;  /* zset of waiting clients; none (p NULL): nobody is woken, waiters look by themselves */
    /* Told of a release: where the zset `hint_if` has the member `hint`, `hint` is pushed on the left of the list `hint_to`. p NULL: none.
     * This is how a lane of the consumer learns that `lock exec -c` is done: hint_if …:lanes, hint_to …:ready, hint KEY. */
    struct latchwork_name hint_if, hint_to, hint;
};
#define LATCHWORK_NAMES_INIT .size = sizeof(struct latchwork_lock_names)

struct latchwork_lock_options {
    uint32_t size;
    enum latchwork_kind kind;
    unsigned flags; /* LATCHWORK_FLAG_RENEW, LATCHWORK_FLAG_PLAIN */
    int permits;    /* semaphore: 1 to LATCHWORK_MAX_PERMITS */
    int64_t ttl_ms; /* LATCHWORK_DEFAULT_TTL_MS; LATCHWORK_MIN_TTL_MS to LATCHWORK_MAX_TTL_MS */
    /* With RENEW: the lease never ends later than this after its acquisition, however long it is renewed.
     * LATCHWORK_DEFAULT_MAX_HOLD_MS; -1: no end. */
    int64_t max_hold_ms;
    /* A lock found without TTL (left by a client that did SETNX and died before EXPIRE) is given this much by whoever waits for it.
     * 0: never; acquire then answers BUSY with LATCHWORK_E_NO_TTL once its time is over. */
    int64_t give_ttl_ms;
    /* Called once for a hold that is lost, from the renewing thread or from the thread whose call found out; needs RENEW to be told
     * unasked. The hold must still be released, later and elsewhere: not in the callback, which should only set things in motion, because
     * other renewals wait meanwhile. */
    void (*lost)(void *ctx, struct latchwork_hold *hold, enum latchwork_loss why);
    void *lost_ctx;
    const struct latchwork_lock_names *names; /* custom names; the lock's own name is then only for people. Copied. Mutex, reentrant */
    size_t name_len;                          /* of `name`, which may hold any bytes. 0: up to its NUL */
};
#define LATCHWORK_LOCK_INIT .size = sizeof(struct latchwork_lock_options)

/* name: 1 to LATCHWORK_MAX_NAME bytes, not beginning with '}'; copied. Everything of the lock lives under lwl:{name}: (one Cluster
 * slot). options may be NULL. Codes: ARGUMENT, FORK, NO_SCRIPTS, MEMORY. */
LATCHWORK_API struct latchwork_lock *latchwork_lock_open(struct latchwork_client *client, const char *name,
                                                         const struct latchwork_lock_options *options, struct latchwork_error *error);
/* Frees the object, not what is held: holds must be released or forgotten first. NULL is ignored. */
LATCHWORK_API void latchwork_lock_close(struct latchwork_lock *lock);

/* Once, without waiting: OK with *hold, BUSY, or ERROR. *hold is NULL on anything but OK. Codes: as of acquire. */
LATCHWORK_API enum latchwork_result latchwork_lock_try(struct latchwork_lock *lock, struct latchwork_hold **hold,
                                                       struct latchwork_error *error);
/* Waits up to wait_ms (0: as try; -1: for ever). Failures to reach Redis are tried again, with pauses, as long as the time lasts;
 * then ERROR. The call may last longer than wait_ms by the time that one exchange takes (connect_ms + 2 × command_ms). LOST: a reentrant
 * lock that this owner holds but has lost: release it as often as it was acquired, and start anew. Codes: BUSY and NO_TTL with BUSY;
 * EXPIRED with LOST; ARGUMENT, CLOSED, SYSTEM, MAJORITY (Redlock), any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_acquire(struct latchwork_lock *lock, int64_t wait_ms, struct latchwork_hold **hold,
                                                           struct latchwork_error *error);
/* The same for a reentrant lock, by an owner other than the calling thread: any number that names a task of your program. Codes: as of
 * acquire. */
LATCHWORK_API enum latchwork_result latchwork_lock_acquire_as(struct latchwork_lock *lock, uint64_t owner, int64_t wait_ms,
                                                              struct latchwork_hold **hold, struct latchwork_error *error);

/* --- hold: one acquisition --------------------------------------------------------------------------------------------------------- */

/* Frees the lock if it is still ours, else LOST and nothing is changed. The hold is gone after this call whatever it returns (after ERROR
 * the lock expires by itself); for a reentrant lock, with the last release. Wakes a waiter. Codes: NOT_OWNER,
 * UNKNOWN and EXPIRED with LOST; ARGUMENT, MAJORITY (Redlock), any of Redis. After FORK the hold is still there. */
LATCHWORK_API enum latchwork_result latchwork_hold_release(struct latchwork_hold *hold, struct latchwork_error *error);
/* Frees the object and leaves the lock in Redis to expire: for who has to go at once. NULL is ignored. */
LATCHWORK_API void latchwork_hold_forget(struct latchwork_hold *hold);
/* Extends the lease to ttl_ms (0: the lock's TTL) from now if it is still ours; never acquires. LOST is for good: also where the lease has
 * ended by our own clock. With RENEW it can only be made longer than usual, not shorter. After ERROR the lease may have either end, and the
 * deadline is the earlier one. Codes: EXPIRED and NOT_OWNER with LOST; ARGUMENT, MAJORITY (Redlock), any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_hold_renew(struct latchwork_hold *hold, int64_t ttl_ms, struct latchwork_error *error);
/* Asks Redis whether it is still ours: OK or LOST. Only true at that moment: what protects is the fence. Codes: NOT_OWNER with
 * LOST; ARGUMENT, MAJORITY (Redlock), any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_hold_check(struct latchwork_hold *hold, struct latchwork_error *error);

/* Without asking Redis; any thread, cheap. A NULL hold has fence 0, is lost, has 0 ms left and the token "". */
LATCHWORK_API uint64_t latchwork_hold_fence(const struct latchwork_hold *hold);
/* Of the i-th row of a row lock: today all rows of a hold have one fence, latchwork_hold_fence(). */
LATCHWORK_API uint64_t latchwork_hold_fence_at(const struct latchwork_hold *hold, size_t i);
/* Non-zero once it is known to be lost or its lease has ended by our own clock. */
LATCHWORK_API int latchwork_hold_lost(const struct latchwork_hold *hold);
LATCHWORK_API int64_t latchwork_hold_deadline_ms(const struct latchwork_hold *hold); /* CLOCK_BOOTTIME; moves on with renewals */
LATCHWORK_API int64_t latchwork_hold_left_ms(const struct latchwork_hold *hold);     /* until then; 0 where it is past or lost */
LATCHWORK_API const char *latchwork_hold_token(const struct latchwork_hold *hold);   /* what Redis holds; lives as long as the hold */

/* --- looking, and breaking -------------------------------------------------------------------------------------------------------- */

/* A lock as somebody holds it. For a semaphore and for readers there is one for each hold. Lent for the call. */
struct latchwork_lock_info {
    uint32_t size;
    enum latchwork_kind kind; /* mutex, reentrant and fair look alike: MUTEX */
    const char *name;         /* as given to open; for plain and custom locks the Redis key */
    size_t name_len;
    const char *token; /* as far as it is text */
    size_t token_len;
    const char *label; /* of the holder; NULL unknown */
    size_t label_len;
    uint64_t fence;   /* 0 unknown */
    int64_t since_ms; /* ms since 1970, by Redis' clock (from the fence); 0 unknown */
    int64_t left_ms;  /* of the lease; -1: no TTL, it never ends by itself */
    int64_t waiting;  /* clients that wait; for a fair lock, waiters */
};
/* Returns 0 to go on, anything else to stop. It may use the client, if that has a connection free. */
typedef int latchwork_lock_seen(void *ctx, const struct latchwork_lock_info *info);

/* Who holds this lock: calls seen() for each hold there is. BUSY where nobody does. Codes: NOT_HELD with BUSY; ARGUMENT, UNSUPPORTED,
 * any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_show(struct latchwork_lock *lock, latchwork_lock_seen *seen, void *ctx,
                                                        struct latchwork_error *error);
/* Ends the lock whoever holds it, and raises the fence, which is returned in *fence (may be NULL): a store that is told of it refuses what
 * the old holder may still do. Holds of this name learn that they are lost when they ask next. Wakes a waiter. BUSY where nobody held it.
 * Codes: NOT_HELD and UNKNOWN with BUSY; ARGUMENT, UNSUPPORTED, any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_break(struct latchwork_lock *lock, uint64_t *fence, struct latchwork_error *error);
/* Gives a lock that has no TTL this much. OK: given; BUSY: there is no such lock, or it has a TTL. Codes: NOT_HELD and HAS_TTL
 * with BUSY; ARGUMENT, UNSUPPORTED, any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_give_ttl(struct latchwork_lock *lock, int64_t ttl_ms, struct latchwork_error *error);

/* Every lock held whose name matches glob (as in redis SCAN; NULL all), by SCAN: some may be told twice, and those that come or go
 * meanwhile once or not at all. Never blocks Redis for long. flags: LATCHWORK_FLAG_KEYS. Codes: ARGUMENT, any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_list(struct latchwork_client *client, const char *glob, unsigned flags,
                                                        latchwork_lock_seen *seen, void *ctx, struct latchwork_error *error);

/* --- rows: (table, id) -------------------------------------------------------------------------------------------------------------- */

/* An element of arrays: its members will not change in this MAJOR version. */
struct latchwork_row {
    const char *table; /* 1 to LATCHWORK_MAX_TABLE bytes without ':' */
    const char *id;    /* 1 to LATCHWORK_MAX_ID bytes */
};
enum { LATCHWORK_MAX_ROWS = 256, LATCHWORK_MAX_TABLE = 128, LATCHWORK_MAX_ID = 256 };

/* A lock on 1 to LATCHWORK_MAX_ROWS rows at once, each named PREFIX TABLE ":" ID, as a mutex (all of options but kind and names apply;
 * PREFIX is `prefix`, NULL: "row:"). One row, several rows, and a mutex of that name exclude each other. Needs scripts. Copied.
 *
 * Acquire has all of them or none. Rows are taken in one order whatever the order given (bytes of table, then id; doubles count once), and
 * only smaller ones are held, and renewed, while one is waited for: no circle of waiting can close, whoever wants which rows. A row whose
 * holder died or whose lease expired is taken over by one SET NX, never by GET and SET. The hold is one: its fence is the same for all
 * rows and larger than any of them has seen; it is lost where one row is lost, and release then frees the others and says LOST.
 * Up to 11 free rows are taken in one round trip. All must live on one server: no Redis Cluster, unless its slots are the same.
 *
 * With PLAIN the Redis keys are exactly PREFIX TABLE ":" ID, as other programs may use them; rows without TTL are told
 * (LATCHWORK_E_NO_TTL, text names the key) and given one by `give_ttl_ms` or latchwork_lock_give_ttl(), which gives it to those of the rows
 * that have none. latchwork_lock_show() and latchwork_lock_break() go through the rows; latchwork_hold_token() is what their values begin
 * with. With RENEW, more than 26 rows are renewed over the client's pool: leave a connection free for it.
 * Codes: ARGUMENT, FORK, NO_SCRIPTS, MEMORY. */
LATCHWORK_API struct latchwork_lock *latchwork_rows_open(struct latchwork_client *client, const char *prefix,
                                                         const struct latchwork_row *rows, size_t n,
                                                         const struct latchwork_lock_options *options, struct latchwork_error *error);

/* --- Redlock: several independent Redis servers -------------------------------------------------------------------------------------- */

/* The algorithm of https://redis.io/docs/latest/develop/use/patterns/distributed-locks/: the same key and random value on all of N
 * masters that know nothing of each other, each asked for a short time only; held where a majority gave it and
 * validity = ttl - time taken - drift is positive; else, and at the end, released on all, also those that answered with an error or not
 * at all; extended by a majority; tried again after a random pause (nobody is woken).
 *
 * What it gives: the lock survives the loss of a minority of servers. What it does not: it depends on clocks and pauses as much as one
 * Redis does. A holder paused past its lease (SIGSTOP, swapping, a suspended machine) goes on without the lock until it looks; a majority
 * of servers whose wall clocks jump ahead let a second one in at once; so does one server restarted without its data, if it counts again
 * before the locks that it lost have ended. Servers started less than a TTL ago are therefore left out (restart_ms): by a run_id other
 * than the one seen before, or, where none was, by uptime_in_seconds, which that server's clock tells; a user without INFO can't see it.
 * A whole set of servers just started gives its first lock after a TTL. (Persistence with appendfsync everysec loses locks as well.)
 *
 * So the fence is what protects the resource, here as elsewhere: the largest that the majority gave, told to a majority before the hold is
 * handed out, so that it grows with every acquisition, whichever majority comes next. Check it where the effect is. Whoever has no store
 * that can refuse a fence gains little from five servers over one.
 *
 * The servers are asked at the same time, by the calling thread; a call goes on when a majority has answered, so a slow or dead minority
 * costs nothing, but for a release, which waits for them up to node_ms once a second. An acquire is two round trips, the rest one. Give
 * addresses rather than host names where resolving may take time: that alone blocks. show, break and give_ttl are UNSUPPORTED. */
struct latchwork_redlock;

enum {
    LATCHWORK_DEFAULT_NODE_MS = 50,
    LATCHWORK_DEFAULT_RETRY_MIN_MS = 50,
    LATCHWORK_DEFAULT_RETRY_MAX_MS = 250,
    LATCHWORK_DEFAULT_DRIFT_PER_MILLE = 10,
    LATCHWORK_MAX_DRIFT_PER_MILLE = 500,
    LATCHWORK_MAX_NODES = 15,
};

struct latchwork_redlock_options {
    uint32_t size;
    unsigned flags; /* none yet; scripts are needed */
    /* Per server, LATCHWORK_DEFAULT_CONNECTIONS, and one for extending: the most calls at the same time. */
    int connections;
    int64_t node_ms; /* for each server's answer, and for connecting; LATCHWORK_DEFAULT_NODE_MS. Small beside the TTL */
    /* Random pause between attempts of an acquire that waits: LATCHWORK_DEFAULT_RETRY_MIN_MS, LATCHWORK_DEFAULT_RETRY_MAX_MS. */
    int64_t retry_min_ms, retry_max_ms;
    /* Of the TTL, for clocks that run at different speeds; LATCHWORK_DEFAULT_DRIFT_PER_MILLE. 2 ms are added. */
    int drift_per_mille;
    const char *label;
    /* A server that was started less than this ago is asked for no lock, since it may have lost those it held. 0: the lock's TTL; -1: the
     * servers lose nothing (appendfsync always). */
    int64_t restart_ms;
};
#define LATCHWORK_REDLOCK_INIT .size = sizeof(struct latchwork_redlock_options)

/* n: 1 to LATCHWORK_MAX_NODES urls, an odd number is wise. Connects to nothing yet. Codes: ARGUMENT, MEMORY, SYSTEM. */
LATCHWORK_API struct latchwork_redlock *
latchwork_redlock_open(const char *const *urls, size_t n, const struct latchwork_redlock_options *options, struct latchwork_error *error);
/* kind MUTEX or REENTRANT, no custom names. Codes: ARGUMENT, FORK, MEMORY. */
LATCHWORK_API struct latchwork_lock *latchwork_redlock_lock_open(struct latchwork_redlock *redlock, const char *name,
                                                                 const struct latchwork_lock_options *options,
                                                                 struct latchwork_error *error);
/* As of the client. */
LATCHWORK_API void latchwork_redlock_interrupt(struct latchwork_redlock *redlock);
LATCHWORK_API void latchwork_redlock_close(struct latchwork_redlock *redlock);

#ifdef __cplusplus
}
#endif

#endif
