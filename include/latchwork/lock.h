/* SPDX-License-Identifier: Apache-2.0 */
/* Latchwork locks: mutual exclusion between threads, processes and machines, by means of Redis.
 *
 *     #include <latchwork/lock.h>
 *
 *     struct latchwork_error error;
 *     struct latchwork_client *client = latchwork_client_open("redis://127.0.0.1:6379/0", NULL,
 *     &error); struct latchwork_lock *lock = latchwork_lock_open(client, "stock:42", NULL, &error);
 *     struct latchwork_hold *hold; if (latchwork_lock_acquire(lock, 5000, &hold, &error) ==
 *     LATCHWORK_LOCK_OK) {
 *         store(latchwork_hold_fence(hold), ...);        // a store that refuses a fence smaller
 *                                                        than one it has seen
 *         latchwork_hold_release(hold, &error);
 *     }
 *     latchwork_lock_close(lock);
 *     latchwork_client_close(client);
 *
 * Build with `cc $(pkg-config --cflags latchwork) my.c $(pkg-config --libs latchwork)`.
 *
 * Words. A *client* is a bounded pool of connections to one Redis, to the master that Sentinels
 * name, or to each node of a cluster. A *lock* is a name with options: what to lock, for how long,
 * and how. A *hold* is one acquisition of a lock. Any number of threads may share clients and
 * locks: each acquire gives a hold of its own. `latchwork_redlock_*` makes locks that live on
 * several independent Redis servers, `latchwork_rows_*` locks for rows of tables. Acquire, renew,
 * release and all other functions are the same for every kind.
 *
 * A hold is a lease. Redis ends it `ttl_ms` after the last renewal, so the lock of a holder that
 * was killed becomes free. The holder counts the end from *before* it sent the request, on a clock
 * that goes on through suspend (CLOCK_BOOTTIME), so for the holder the lease never ends later than
 * for Redis. A program that is paused for longer than the TTL (a debugger, swapping, SIGSTOP, a
 * stalled virtual machine) can wake up without the lock and run some instructions before it
 * notices. No lock with a timeout can prevent that, but the fence can: it grows with every
 * acquisition of a name, so a store that remembers the largest fence it has seen, and refuses
 * smaller ones, is safe even then. The fence is the larger of the last one + 1 and Redis' time in
 * microseconds, so it grows across expiry, release, FLUSHALL and a failover to a replica that
 * missed writes. (The counter of a name is kept for a week after its last use. Fences stop growing
 * only if Redis' clock goes back by more than that.) See Martin Kleppmann, "How to do distributed
 * locking", 2016.
 *
 * Results. Functions that talk to Redis return a latchwork_result, and fill *error unless the
 * result is OK; `error` may be NULL.
 *   OK     the call did what was asked.
 *   BUSY   others hold the lock, and the time to wait is over. error->code is LATCHWORK_E_BUSY, or
 *          says more (LATCHWORK_E_NO_TTL, ...).
 *   LOST   the lock is not, or no longer, ours, and nothing was changed. A release also returns
 *          LOST if its first answer was lost with the connection and the second try finds the lock
 *          gone, since the first try may have freed it. Do not assume that you were alone until
 *          this call.
 *   ERROR  Redis could not be asked, or refused, or the call was wrong: error->code and error->text
 *          say what happened and what to do.
 * Functions that open something return NULL, and fill *error, when others would return ERROR.
 *
 * Codes. Each function lists the codes that it may set, without their prefix LATCHWORK_E_. *Any of
 * Redis* stands for the codes of every exchange with Redis: MEMORY, FORK, CONNECT, TIMEOUT, POOL,
 * DENIED, TYPE, FULL, READONLY, NO_SCRIPTS, REPLY. Later versions may add codes: treat one that you
 * do not know by its result.
 *
 * Names. Each prefix belongs to one thing: LATCHWORK_LOCK_ are results, LATCHWORK_E_ codes,
 * LATCHWORK_KIND_ kinds of locks, LATCHWORK_FLAG_ flags (each has a bit of its own, so that a flag
 * in the wrong place is refused), LATCHWORK_LOSS_ why a hold ended, LATCHWORK_DEFAULT_ what a 0 in
 * an option means, LATCHWORK_MIN_ and LATCHWORK_MAX_ limits. A name that ends in _INIT begins a
 * structure of options. <latchwork/handler.h> uses none of these prefixes, and both headers may be
 * included together.
 *
 * Threads. Clients, locks and Redlocks may be used by any number of threads at the same time, until
 * the one call that closes them. The same goes for a hold: all its functions except release and
 * forget may run at the same time, on any thread, and during its renewal. If your own renewals of
 * one hold overlap, its deadline becomes the earliest that any of them asked for, since Redis may
 * have executed them in any order. A renewal by RENEW never shortens a lease that you have
 * extended. latchwork_hold_release() and latchwork_hold_forget() end the hold. One thread calls one
 * of them, once (for a reentrant lock as often as it was acquired), while no other call on this
 * hold runs, and no call may follow. No function may be called from a signal handler.
 *
 * Waiting. A release wakes a waiter: the script that frees the lock tells one waiting client by
 * PUBLISH, over one subscribed connection that all waiters of a client share, and the others sleep
 * on. Normally nothing polls. But a client that was told and then died must not hold up the others,
 * so the first waiter of each client also looks when the holder's lease must have ended, and every
 * 5 s (1 s for fair and read/write locks), with jitter. If the client cannot subscribe (ACL without
 * channels), and for names that other programs share (PLAIN, custom names without `wait`), the
 * first waiter of each client looks every 10 to 100 ms instead. In a cluster there is one
 * subscribed connection to each node that owns the slot of a lock which is waited for, and the
 * messages are sharded (SPUBLISH to lwl:wake:{NAME}:ID), so that they stay at that node. If the
 * user lacks the right to SSUBSCRIBE, PUBLISH is used.
 *
 * Clusters. All keys of a lock are in one slot, and calls go to the node that owns it. If the slot
 * has moved (MOVED) or is being moved (ASK, TRYAGAIN), or its node is down for a moment
 * (CLUSTERDOWN, READONLY), a call looks for the owner again and is repeated, for about command_ms;
 * then the result is ERROR with READONLY, and a wait goes on. Moving a slot keeps its locks: holds
 * are renewed while it is on its way, but a free lock of that slot may be refused until all of its
 * keys have arrived. (With NO_SCRIPTS a hold may be lost if the move takes longer than a third of
 * its TTL.)
 *
 * Failover. A replica that becomes master, in a cluster or behind Sentinels, may lack the last
 * writes of the old one, since replication is asynchronous. So a lock may be lost, and another
 * holder may get it while the first one still has time left by its own clock. The same happens if a
 * server is restarted without its data: the first holder learns it from its next renewal, check or
 * release (LOST, NOT_OWNER), and until then only the fence protects the resource. The fence of the
 * second holder is larger even if the counter was lost as well, because it is at least the new
 * master's time in microseconds. Keep the clocks of all nodes synchronized: the second fence is
 * sure to be larger only if the clocks differ by less than the time between two acquisitions.
 *
 * Forks. A child must not use its parent's clients, locks or holds: calls fail with
 * LATCHWORK_E_FORK. It may close the client (which frees memory and touches nothing else) and open
 * one of its own.
 *
 * Memory. Each object is freed by its close or release. A failed allocation is an error,
 * LATCHWORK_E_MEMORY, and never ends the program: objects opened before go on working, and the call
 * may be made again. After an acquire that failed in this way the lock may be taken in Redis until
 * its TTL ends, as after any ERROR. Close and release need no memory.
 *
 * Interface. It only grows: structures that you fill carry their size, and members are added at
 * their ends. Fill them in like `struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms =
 * 5000};` or zero them and set `size` yourself. Zero always means the default. Times are in ms; -1
 * means endless if the option allows that. */
#ifndef LATCHWORK_LOCK_H
#define LATCHWORK_LOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATCHWORK_API __attribute__((visibility("default")))

/* --- version ---------------------------------------------------------------------------------- */

/* The version of this header. MAJOR changes if programs must be compiled again or changed; the
 * soname carries it. */
#define LATCHWORK_VERSION_MAJOR 0
#define LATCHWORK_VERSION_MINOR 1
#define LATCHWORK_VERSION_PATCH 0
#define LATCHWORK_VERSION "0.1.0"
/* The version as one number, so that versions can be compared: 1.2.3 is 10203. */
#define LATCHWORK_VERSION_NUMBER \
    (LATCHWORK_VERSION_MAJOR * 10000 + LATCHWORK_VERSION_MINOR * 100 + LATCHWORK_VERSION_PATCH)

/* Returns the version of the loaded library; LATCHWORK_VERSION is that of the header. Codes:
 * none. */
LATCHWORK_API const char *latchwork_version(void);
LATCHWORK_API int latchwork_version_number(void);

/* --- results and codes ------------------------------------------------------------------------ */

enum latchwork_result {
    LATCHWORK_LOCK_OK = 0,
    LATCHWORK_LOCK_BUSY = 1,
    LATCHWORK_LOCK_LOST = 2,
    LATCHWORK_LOCK_ERROR = 3,
};

/* The reason of a result, in error->code. The numbers are stable. */
enum latchwork_code {
    LATCHWORK_E_NONE = 0,
    LATCHWORK_E_BUSY = 1, /* others hold the lock */
    /* the lock is held without a TTL and never ends by itself; see latchwork_lock_give_ttl() and
     * `give_ttl_ms` */
    LATCHWORK_E_NO_TTL = 2,
    /* Redis has another token or none: the lock was broken, wiped, or expired and perhaps taken by
     * another */
    LATCHWORK_E_NOT_OWNER = 3,
    /* the lease has ended by our own clock, or max_hold_ms was reached */
    LATCHWORK_E_EXPIRED = 4,
    LATCHWORK_E_UNKNOWN = 5,  /* the lock is gone, and an earlier answer was lost: see LOST */
    LATCHWORK_E_ARGUMENT = 6, /* the arguments of the call are wrong */
    LATCHWORK_E_FORK = 7,     /* the client belongs to the parent process */
    LATCHWORK_E_CLOSED = 8,   /* the client is being closed, or was interrupted */
    /* there is no connection, or it broke and could not be made again in time */
    LATCHWORK_E_CONNECT = 9,
    LATCHWORK_E_TIMEOUT = 10,  /* no answer came within command_ms */
    LATCHWORK_E_POOL = 11,     /* all connections of the pool were in use for the whole time */
    LATCHWORK_E_DENIED = 12,   /* Redis answered NOAUTH, WRONGPASS or NOPERM */
    LATCHWORK_E_TYPE = 13,     /* the key in Redis is not a lock of this kind */
    LATCHWORK_E_FULL = 14,     /* Redis is at maxmemory and cannot take a new lock */
    LATCHWORK_E_READONLY = 15, /* the server is a replica, or is loading its data */
    /* this kind of lock needs scripts, which the client or the server forbids */
    LATCHWORK_E_NO_SCRIPTS = 16,
    LATCHWORK_E_REPLY = 17,       /* the reply is another error, or is malformed */
    LATCHWORK_E_MAJORITY = 18,    /* Redlock: too few servers answered */
    LATCHWORK_E_UNSUPPORTED = 19, /* this kind of lock does not support the call */
    /* nobody holds the lock that is to be shown, broken or given a TTL */
    LATCHWORK_E_NOT_HELD = 20,
    LATCHWORK_E_HAS_TTL = 21, /* the lock has a TTL already */
    LATCHWORK_E_MEMORY = 22,  /* an allocation failed */
    LATCHWORK_E_SYSTEM = 23,  /* the system gives no thread, no descriptor or no random bytes */
};

struct latchwork_error {
    int code; /* a value of enum latchwork_code */
    /* for people: what went wrong, with which server, and what to do; never contains a password */
    char text[508];
};

/* Returns "ok", "busy", "lost" or "error", and "unknown" for any other number. */
LATCHWORK_API const char *latchwork_result_name(enum latchwork_result result);
/* Returns the name of a latchwork_code in small letters, for example "not_owner", and "other" for
 * any other number. */
LATCHWORK_API const char *latchwork_code_name(int code);

/* --- client: connections to one Redis --------------------------------------------------------- */

struct latchwork_client;

/* Flags. Each option or call names those that it takes. */
enum latchwork_flag {
    /* For locks: a thread of the client extends the hold at each third of its TTL, until the hold
     * is released or lost, or max_hold_ms is reached. The thread never acquires a lock again. */
    LATCHWORK_FLAG_RENEW = 1,
    /* For locks: uses the same commands and values as other Redis clients, so that all exclude each
     * other: `SET name token NX PX ttl` with 32 hex digits as token, and compare-and-delete as
     * release. `name` is exactly the Redis key. The fence is kept beside it (lwl:{name}:fence). The
     * fence does not count acquisitions by other programs, but still grows across them as long as
     * Redis' clock does. Mutex and reentrant only. */
    LATCHWORK_FLAG_PLAIN = 2,
    /* For clients: uses WATCH, MULTI and EXEC instead of scripts, with two round trips per call.
     * Mutex and reentrant only. */
    LATCHWORK_FLAG_NO_SCRIPTS = 4,
    /* For latchwork_lock_list(): the glob is for whole Redis keys, which are plain locks or locks
     * with custom names (strings; keys of other types are skipped). Without this flag the glob is
     * for names of the library's own locks. */
    LATCHWORK_FLAG_KEYS = 8,
    /* For clients and Sentinels: accepts any certificate of a server, so whoever is in between can
     * read and change everything. */
    LATCHWORK_FLAG_NO_VERIFY = 16,
    /* For clients and Sentinels: speaks TLS, as rediss:// does. */
    LATCHWORK_FLAG_TLS = 32,
};

enum {
    LATCHWORK_DEFAULT_CONNECTIONS = 8,
    LATCHWORK_DEFAULT_CONNECT_MS = 2000,
    LATCHWORK_DEFAULT_COMMAND_MS = 1000,
    LATCHWORK_MAX_CONNECTIONS = 1024,
    /* limit for each option that bounds a wait: connect_ms, command_ms, node_ms, retry_max_ms */
    LATCHWORK_MAX_WAIT_MS = 600000,
    LATCHWORK_MAX_LABEL = 64, /* maximum length of a label in bytes */
    /* number of cluster nodes or Sentinels in the options; the client learns all others from
     * them */
    LATCHWORK_MAX_ADDRESSES = 64,
    LATCHWORK_DEFAULT_PORT = 6379,
    LATCHWORK_DEFAULT_SENTINEL_PORT = 26379,
};

/* Sentinels, which name the master to use. They have a login and TLS settings of their own; the
 * members mean the same as in latchwork_client_options. */
struct latchwork_sentinels {
    uint32_t size;
    unsigned flags; /* any of LATCHWORK_FLAG_TLS, LATCHWORK_FLAG_NO_VERIFY */
    /* 1 to LATCHWORK_MAX_ADDRESSES, as host[:port]; the default port is
     * LATCHWORK_DEFAULT_SENTINEL_PORT */
    const char *const *addresses;
    size_t n_addresses;
    const char *master; /* name of the master in the Sentinels, as in "sentinel monitor NAME" */
    const char *user, *password;
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
};
#define LATCHWORK_SENTINELS_INIT .size = sizeof(struct latchwork_sentinels)

struct latchwork_client_options {
    uint32_t size;
    /* any of LATCHWORK_FLAG_NO_SCRIPTS, LATCHWORK_FLAG_NO_VERIFY, LATCHWORK_FLAG_TLS */
    unsigned flags;
    /* Maximum number of connections for commands, which are made when needed (default
     * LATCHWORK_DEFAULT_CONNECTIONS, at most LATCHWORK_MAX_CONNECTIONS); in a cluster, to each
     * node. If there are more threads, they take turns. Waiting and renewal use one more connection
     * each; in a cluster, one to each node that has a lock which is waited for or renewed. */
    int connections;
    int64_t connect_ms; /* limit for connecting; default LATCHWORK_DEFAULT_CONNECT_MS */
    /* Limit for each answer; default LATCHWORK_DEFAULT_COMMAND_MS. A call is sent again at most
     * once, on a new connection. */
    int64_t command_ms;
    /* Tells people who holds a lock; the label is part of the lock's value. At most
     * LATCHWORK_MAX_LABEL bytes of letters, digits, '.', '_' and '-'. NULL: host.pid. */
    const char *label;
    /* For a server that asks for a login, if the URL has none. NULL user: the default user. A user
     * needs a password. */
    const char *user, *password;
    /* PEM files for rediss://, read again for each connection. tls_ca has the CAs that are trusted;
     * NULL: those of the system. tls_cert and tls_key are the client's; NULL: none, or the key is
     * in tls_cert. tls_name is the name that the server's certificate must have; NULL: the host of
     * the URL. The certificate is verified unless LATCHWORK_FLAG_NO_VERIFY is set. */
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
    /* For a Redis Cluster or Valkey Cluster: addresses of some of its nodes, at most
     * LATCHWORK_MAX_ADDRESSES, as host[:port], which are copied. The client asks these nodes for
     * the others. All nodes get the same login and TLS settings: those of the options, and of the
     * URL, whose host is one more node. With TLS, the certificate of a node must carry the address
     * or name that the cluster announces for it, or tls_name. n_cluster 0: no cluster. */
    const char *const *cluster;
    size_t n_cluster;
    /* For a master behind Sentinels: the settings are copied, and the Sentinels are asked for the
     * master before each connection. NULL: no Sentinels. */
    const struct latchwork_sentinels *sentinels;
    int db; /* database on the master that Sentinels name; a URL contains its own */
};
#define LATCHWORK_CLIENT_INIT .size = sizeof(struct latchwork_client_options)

/* Makes a client, and connects to nothing yet. url: redis://[user:password@]host[:port][/db],
 * rediss:// for TLS, or unix://[user:password@]/path[?db=N]; NULL if the options name Sentinels,
 * and perhaps if they name cluster nodes. options may be NULL.
 * Codes: ARGUMENT, MEMORY, SYSTEM. */
LATCHWORK_API struct latchwork_client *
latchwork_client_open(const char *url, const struct latchwork_client_options *options,
                      struct latchwork_error *error);
/* Sends PING on a connection of the pool; in a cluster, to one of its masters. Codes: ARGUMENT, any
 * of Redis. */
LATCHWORK_API enum latchwork_result latchwork_client_ping(struct latchwork_client *client,
                                                          struct latchwork_error *error);
/* Ends every call that waits for a lock, now or later, with ERROR and LATCHWORK_E_CLOSED. Releases
 * still work. A program that shuts down gets its waiting threads back in this way. Any thread may
 * call it, but no signal handler. NULL is ignored. */
LATCHWORK_API void latchwork_client_interrupt(struct latchwork_client *client);
/* Ends the client's threads and connections. All holds must be released or forgotten, and all locks
 * closed, before this call. NULL is ignored. */
LATCHWORK_API void latchwork_client_close(struct latchwork_client *client);

/* --- lock: what to lock, and how -------------------------------------------------------------- */

struct latchwork_lock;
struct latchwork_hold;

/* Kinds of locks. Use one kind for a name: mutex, reentrant and fair locks of a name exclude each
 * other, but not locks of other kinds. */
enum latchwork_kind {
    LATCHWORK_KIND_MUTEX = 0,
    /* A mutex that its owner may take again. Nested acquires give the same hold and are counted,
     * without a round trip. The lock is free after the same number of releases, and is lost as a
     * whole. The owner is the calling thread, or the one that latchwork_lock_acquire_as() names.
     * Owners of different lock objects differ. */
    LATCHWORK_KIND_REENTRANT = 1,
    /* A mutex whose waiters, in all processes, get it in the order in which they came. A waiter
     * whose process is dead is passed over: at once if its connection is closed, otherwise (frozen,
     * cut off) after 3 s without a sign of life. If it comes back to life, it has its place back
     * from the next hand-over on. So a waiter is overtaken only by those that came before it, or
     * while it cannot be reached. */
    LATCHWORK_KIND_FAIR = 2,
    /* Read/write locks: any number of READ holds of a name, or one WRITE hold. Open a lock of each
     * kind with the same name. While a live writer waits, no new reader gets in. When a writer
     * releases the lock, all waiting readers are woken together. Do not ask for a READ hold while
     * you have one of the same name: a writer between the two would wait for you, and you for
     * it. */
    LATCHWORK_KIND_READ = 3,
    LATCHWORK_KIND_WRITE = 4,
    /* A semaphore: at most `permits` holds at once, each with a lease of its own. All users of a
     * name must give the same number. */
    LATCHWORK_KIND_SEMAPHORE = 5,
    /* The locks of latchwork_rows_open() and latchwork_redlock_lock_open(). latchwork_lock_open()
     * does not take these kinds. */
    LATCHWORK_KIND_ROWS = 6,
    LATCHWORK_KIND_REDLOCK = 7,
};

enum {
    LATCHWORK_DEFAULT_TTL_MS = 10000,
    LATCHWORK_DEFAULT_MAX_HOLD_MS = 3600000,
    LATCHWORK_MIN_TTL_MS = 10,
    LATCHWORK_MAX_TTL_MS = 86400000,
    LATCHWORK_MAX_PERMITS = 1000000,
    LATCHWORK_MAX_NAME = 512, /* maximum length of a name in bytes */
};

/* The reason why a hold was lost, that is, ended without being released. */
enum latchwork_loss {
    LATCHWORK_LOSS_NOT_OWNER = 1, /* Redis says that the lock is no longer ours */
    /* the hold was not renewed within two thirds of its TTL: the lease may last for up to a third
     * more, so stop now */
    LATCHWORK_LOSS_UNCONFIRMED = 2,
    LATCHWORK_LOSS_MAX_HOLD = 3, /* max_hold_ms was reached, so the hold is not renewed any more */
};

/* Names of the lock's keys in Redis, for a lock that must use names of another scheme. The lock's
 * value is a string TOKEN:FENCE. All names must be in one Cluster slot. They are not
 * NUL-terminated, since their sizes are given. */
struct latchwork_name {
    const char *p;
    size_t n;
};
struct latchwork_lock_names {
    uint32_t size;
    struct latchwork_name lock; /* the lock: a string with the token */
    /* counter of fences; several locks may share it; it never expires */
    struct latchwork_name fence;
    /* zset of waiting clients; p NULL: nobody is woken, and waiters look by themselves */
    struct latchwork_name wait;
    /* Lets a release tell others: if the zset `hint_if` has the member `hint`, the release pushes
     * `hint` on the left of the list `hint_to`. hint.p NULL: nothing is pushed. In this way `lock
     * exec -c` tells the workers that a lane is free again: hint_if is …:lanes, hint_to is …:ready,
     * and the hint is the key. */
    struct latchwork_name hint_if, hint_to, hint;
};
#define LATCHWORK_NAMES_INIT .size = sizeof(struct latchwork_lock_names)

struct latchwork_lock_options {
    uint32_t size;
    enum latchwork_kind kind;
    unsigned flags; /* any of LATCHWORK_FLAG_RENEW, LATCHWORK_FLAG_PLAIN */
    int permits;    /* for a semaphore: 1 to LATCHWORK_MAX_PERMITS */
    /* length of the lease; default LATCHWORK_DEFAULT_TTL_MS; LATCHWORK_MIN_TTL_MS to
     * LATCHWORK_MAX_TTL_MS */
    int64_t ttl_ms;
    /* With RENEW: the lease ends at the latest this long after its acquisition, however often it is
     * renewed. Default LATCHWORK_DEFAULT_MAX_HOLD_MS; -1: no limit. */
    int64_t max_hold_ms;
    /* TTL that a waiter gives to a lock that has none (because a client did SETNX and died before
     * EXPIRE). 0: it gives none, and acquire answers BUSY with LATCHWORK_E_NO_TTL once its time is
     * over. */
    int64_t give_ttl_ms;
    /* Called once for a hold that is lost, by the renewing thread or by the thread whose call
     * noticed it. Without RENEW only a call can notice. The hold must still be released, but later
     * and elsewhere. The callback should only notify others, because all other renewals wait for
     * it. */
    void (*lost)(void *ctx, struct latchwork_hold *hold, enum latchwork_loss why);
    void *lost_ctx;
    /* custom names, which are copied; the lock's own name is then only for people. Mutex and
     * reentrant only */
    const struct latchwork_lock_names *names;
    size_t name_len; /* length of `name`, which may contain any bytes; 0: up to its NUL */
};
#define LATCHWORK_LOCK_INIT .size = sizeof(struct latchwork_lock_options)

/* Makes a lock object; nothing is acquired. name: 1 to LATCHWORK_MAX_NAME bytes that do not begin
 * with '}'; copied. All keys of the lock begin with lwl:{name}: and are in one Cluster slot.
 * options may be NULL. Codes: ARGUMENT, FORK, NO_SCRIPTS, MEMORY. */
LATCHWORK_API struct latchwork_lock *
latchwork_lock_open(struct latchwork_client *client, const char *name,
                    const struct latchwork_lock_options *options, struct latchwork_error *error);
/* Frees the object, but not its holds, which must be released or forgotten before this call. NULL
 * is ignored. */
LATCHWORK_API void latchwork_lock_close(struct latchwork_lock *lock);

/* Attempts once, without waiting. Returns OK with *hold, BUSY, or ERROR; *hold is NULL unless it
 * returns OK. Codes: those of latchwork_lock_acquire(). */
LATCHWORK_API enum latchwork_result latchwork_lock_try(struct latchwork_lock *lock,
                                                       struct latchwork_hold **hold,
                                                       struct latchwork_error *error);
/* Waits up to wait_ms (0: as try; -1: for ever). If Redis cannot be reached, the call tries again,
 * with pauses, until the time is over, and then returns ERROR. The call may take longer than
 * wait_ms by one exchange (connect_ms + 2 × command_ms); in a cluster, where the owner may have to
 * be searched for twice, by 4 × connect_ms + 2 × command_ms. The call returns LOST if this owner
 * has a hold of a reentrant lock that was lost: release the hold as often as it was acquired, and
 * start again. Codes: BUSY and NO_TTL with BUSY; EXPIRED with LOST; ARGUMENT, CLOSED, SYSTEM,
 * MAJORITY (Redlock), any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_acquire(struct latchwork_lock *lock,
                                                           int64_t wait_ms,
                                                           struct latchwork_hold **hold,
                                                           struct latchwork_error *error);
/* Acquires a reentrant lock for an owner other than the calling thread: any number that names a
 * task of your program. Codes: those of latchwork_lock_acquire(). */
LATCHWORK_API enum latchwork_result latchwork_lock_acquire_as(struct latchwork_lock *lock,
                                                              uint64_t owner, int64_t wait_ms,
                                                              struct latchwork_hold **hold,
                                                              struct latchwork_error *error);

/* --- hold: one acquisition -------------------------------------------------------------------- */

/* Frees the lock if it is still ours, and wakes a waiter; otherwise returns LOST and changes
 * nothing. The hold is gone after this call, whatever it returns, for a reentrant lock after the
 * last release. After ERROR the lock expires by itself. Codes: NOT_OWNER, UNKNOWN and EXPIRED with
 * LOST; ARGUMENT, MAJORITY (Redlock), any of Redis. After FORK the hold still exists. */
LATCHWORK_API enum latchwork_result latchwork_hold_release(struct latchwork_hold *hold,
                                                           struct latchwork_error *error);
/* Frees the object and leaves the lock in Redis to expire, for a program that must end at once.
 * NULL is ignored. */
LATCHWORK_API void latchwork_hold_forget(struct latchwork_hold *hold);
/* Extends the lease to ttl_ms (0: the lock's TTL) from now if it is still ours; never acquires.
 * LOST is final, also if only our own clock says that the lease has ended. With RENEW the lease can
 * become longer than usual, but not shorter. After ERROR the lease may have the old or the new end,
 * and the deadline is the earlier one. Codes: EXPIRED and NOT_OWNER with LOST; ARGUMENT, MAJORITY
 * (Redlock), any of Redis. */
LATCHWORK_API enum latchwork_result
latchwork_hold_renew(struct latchwork_hold *hold, int64_t ttl_ms, struct latchwork_error *error);
/* Asks Redis whether the lock is still ours: OK or LOST. The answer is true only for that moment,
 * so rely on the fence. Codes: NOT_OWNER with LOST; ARGUMENT, MAJORITY (Redlock), any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_hold_check(struct latchwork_hold *hold,
                                                         struct latchwork_error *error);

/* These functions do not ask Redis, are cheap, and may be called by any thread. A NULL hold has
 * fence 0, is lost, has 0 ms left and the token "". */
LATCHWORK_API uint64_t latchwork_hold_fence(const struct latchwork_hold *hold);
/* Returns the fence of the i-th row of a row lock. Today all rows of a hold have one fence,
 * latchwork_hold_fence(). */
LATCHWORK_API uint64_t latchwork_hold_fence_at(const struct latchwork_hold *hold, size_t i);
/* Returns non-zero if the hold is known to be lost, or its lease has ended by our own clock. */
LATCHWORK_API int latchwork_hold_lost(const struct latchwork_hold *hold);
/* end of the lease, CLOCK_BOOTTIME; later after each renewal */
LATCHWORK_API int64_t latchwork_hold_deadline_ms(const struct latchwork_hold *hold);
/* ms until the deadline; 0 if it has passed or the hold is lost */
LATCHWORK_API int64_t latchwork_hold_left_ms(const struct latchwork_hold *hold);
/* the token in Redis; lives as long as the hold */
LATCHWORK_API const char *latchwork_hold_token(const struct latchwork_hold *hold);

/* --- looking, and breaking -------------------------------------------------------------------- */

/* A lock that somebody holds. For a semaphore or a read lock there is one per hold. Lent for the
 * call. */
struct latchwork_lock_info {
    uint32_t size;
    /* mutex, reentrant and fair locks look alike and are shown as MUTEX */
    enum latchwork_kind kind;
    const char *name; /* the name given to open; for plain and custom locks the Redis key */
    size_t name_len;
    const char *token; /* the lock's value without its fence */
    size_t token_len;
    const char *label; /* the holder's label; NULL: unknown */
    size_t label_len;
    uint64_t fence; /* the fence of the hold; 0: unknown */
    /* time of the acquisition, ms since 1970 on Redis' clock, derived from the fence; 0: unknown */
    int64_t since_ms;
    /* ms until the lease ends; -1: there is no TTL, and the lock never ends by itself */
    int64_t left_ms;
    int64_t waiting; /* number of waiting clients; for a fair lock number of waiters */
};
/* A function that gets one lock. Returns 0 to go on, anything else to stop. The function may use
 * the client if the client has a free connection. */
typedef int latchwork_lock_seen(void *ctx, const struct latchwork_lock_info *info);

/* Tells who holds this lock: calls seen() for each hold. Returns BUSY if nobody holds it. Codes:
 * NOT_HELD with BUSY; ARGUMENT, UNSUPPORTED, any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_show(struct latchwork_lock *lock,
                                                        latchwork_lock_seen *seen, void *ctx,
                                                        struct latchwork_error *error);
/* Ends the lock, whoever holds it, wakes a waiter, and returns a larger fence in *fence (which may
 * be NULL). A store that is told this fence refuses what the old holder may still write. Holds of
 * this name learn that they are lost when they next ask. Returns BUSY if nobody held it. Codes:
 * NOT_HELD and UNKNOWN with BUSY; ARGUMENT, UNSUPPORTED, any of Redis. */
LATCHWORK_API enum latchwork_result
latchwork_lock_break(struct latchwork_lock *lock, uint64_t *fence, struct latchwork_error *error);
/* Gives a TTL to a lock that has none. Returns OK if the lock got the TTL, BUSY if nobody holds the
 * lock or the lock has a TTL already.
 * Codes: NOT_HELD and HAS_TTL with BUSY; ARGUMENT, UNSUPPORTED, any of Redis. */
LATCHWORK_API enum latchwork_result
latchwork_lock_give_ttl(struct latchwork_lock *lock, int64_t ttl_ms, struct latchwork_error *error);

/* Calls seen() for every held lock whose name matches glob (as in SCAN of Redis; NULL: all). Since
 * it uses SCAN, Redis is never blocked for long, but a lock may be seen twice, and one that comes
 * or goes meanwhile may be missed. flags: LATCHWORK_FLAG_KEYS. Codes: ARGUMENT, any of Redis. */
LATCHWORK_API enum latchwork_result latchwork_lock_list(struct latchwork_client *client,
                                                        const char *glob, unsigned flags,
                                                        latchwork_lock_seen *seen, void *ctx,
                                                        struct latchwork_error *error);

/* --- rows: (table, id) ------------------------------------------------------------------------ */

/* A row. Arrays contain this structure itself, so its members will not change in this MAJOR
 * version. */
struct latchwork_row {
    const char *table; /* 1 to LATCHWORK_MAX_TABLE bytes without ':' */
    const char *id;    /* 1 to LATCHWORK_MAX_ID bytes */
};
enum { LATCHWORK_MAX_ROWS = 256, LATCHWORK_MAX_TABLE = 128, LATCHWORK_MAX_ID = 256 };

/* Opens a lock on 1 to LATCHWORK_MAX_ROWS rows at once, which are copied. Each row is a mutex named
 * PREFIX TABLE ":" ID, where PREFIX is `prefix` (NULL: "row:"). So a lock on one row, a lock on
 * several rows, and a mutex of that name exclude each other. All options apply but kind and names.
 * Row locks need scripts.
 *
 * Acquire takes all rows or none. It takes the rows in the order of their bytes (of table, then of
 * id), whatever the order given; duplicates count once. While it waits for a row, it holds and
 * renews only smaller rows, so waiters never form a circle. A row whose holder died or whose lease
 * expired is taken over by one SET NX, never by GET and SET. The rows have one hold. The fence of
 * the hold is the same for all rows, and larger than any earlier fence of these rows. The hold is
 * lost if one row is lost; release then frees the other rows and returns LOST. Up to 11 free rows
 * are taken in one round trip. In a Redis Cluster all rows must be in one slot, otherwise opening
 * the lock is an error. A prefix with a hash tag, such as "{stock}:", puts all rows with this
 * prefix into one slot.
 *
 * With PLAIN the Redis keys are exactly PREFIX TABLE ":" ID, as other programs may use them. Rows
 * without a TTL are reported (LATCHWORK_E_NO_TTL, and the text names the key); `give_ttl_ms` or
 * latchwork_lock_give_ttl() gives one to each of them. latchwork_lock_show() and
 * latchwork_lock_break() go through the rows; the values of all rows begin with
 * latchwork_hold_token(). With RENEW, more than 26 rows are renewed over the client's pool, so
 * leave a connection free. Codes: ARGUMENT, FORK, NO_SCRIPTS, MEMORY. */
LATCHWORK_API struct latchwork_lock *
latchwork_rows_open(struct latchwork_client *client, const char *prefix,
                    const struct latchwork_row *rows, size_t n,
                    const struct latchwork_lock_options *options, struct latchwork_error *error);

/* --- Redlock: several independent Redis servers ----------------------------------------------- */

/* The algorithm of https://redis.io/docs/latest/develop/use/patterns/distributed-locks/: the same
 * key and random value is set on all of N masters that know nothing of each other, and each of them
 * is asked for a short time only. The lock is held if a majority gave it and validity = ttl - time
 * taken - drift is positive. Otherwise, and at the end, the lock is released on all servers, also
 * on those that answered with an error or not at all. A lease is extended if a majority extends it.
 * Acquire tries again after a random pause, since nobody is woken.
 *
 * The lock survives the loss of a minority of the servers. But it depends on clocks and pauses as
 * much as a lock on one Redis does. A holder that is paused past its lease (SIGSTOP, swapping, a
 * suspended machine) goes on without the lock until it looks. A second holder gets in if the wall
 * clocks of a majority jump ahead, or if one server is restarted without its data and counts again
 * before the locks that it lost have ended. So servers started less than a TTL ago are left out
 * (restart_ms). They are recognized by a new run_id or, on the first connection, by
 * uptime_in_seconds, which comes from that server's clock; a user without the right to INFO cannot
 * see either. If all servers were just started, they give the first lock after a TTL. (Persistence
 * with appendfsync everysec loses locks as well.)
 *
 * So the fence is what protects the resource, as with every lock. The fence is the largest that the
 * majority gave, and a majority is told of it before you get the hold. So the fence grows with
 * every acquisition, whichever majority comes next. Check the fence in the store where the effect
 * happens. If you have no store that can refuse a fence, five servers gain you little over one.
 *
 * The calling thread asks all servers at the same time and goes on when a majority has answered, so
 * a slow or dead minority costs nothing. Only a release waits for the slow servers, up to node_ms,
 * once a second. An acquire takes two round trips, everything else one. Only resolving a host name
 * blocks, so give addresses if the resolver may be slow. show, break and give_ttl are
 * UNSUPPORTED. */
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
    unsigned flags; /* no flags exist yet; scripts are needed */
    /* Number of connections per server, which is the maximum number of calls at the same time;
     * default LATCHWORK_DEFAULT_CONNECTIONS. One more connection is for renewals. */
    int connections;
    /* limit for each server's answer, and for connecting; keep it far below the TTL; default
     * LATCHWORK_DEFAULT_NODE_MS */
    int64_t node_ms;
    /* Bounds of the random pause between attempts of an acquire that waits; defaults
     * LATCHWORK_DEFAULT_RETRY_MIN_MS and LATCHWORK_DEFAULT_RETRY_MAX_MS. */
    int64_t retry_min_ms, retry_max_ms;
    /* Part of the TTL, in thousandths, that allows for clocks of different speeds; default
     * LATCHWORK_DEFAULT_DRIFT_PER_MILLE. 2 ms are added. */
    int drift_per_mille;
    const char *label;
    /* A server that was started less than restart_ms ago is asked for no lock, since it may have
     * lost the locks it had. 0: the lock's TTL; -1: the servers lose nothing (appendfsync
     * always). */
    int64_t restart_ms;
};
#define LATCHWORK_REDLOCK_INIT .size = sizeof(struct latchwork_redlock_options)

/* Makes the object, and connects to nothing yet. n: the number of URLs, 1 to LATCHWORK_MAX_NODES;
 * an odd number is best. Codes: ARGUMENT, MEMORY, SYSTEM. */
LATCHWORK_API struct latchwork_redlock *
latchwork_redlock_open(const char *const *urls, size_t n,
                       const struct latchwork_redlock_options *options,
                       struct latchwork_error *error);
/* Opens a lock of kind MUTEX or REENTRANT, without custom names. Codes: ARGUMENT, FORK, MEMORY. */
LATCHWORK_API struct latchwork_lock *
latchwork_redlock_lock_open(struct latchwork_redlock *redlock, const char *name,
                            const struct latchwork_lock_options *options,
                            struct latchwork_error *error);
/* Does for a Redlock what latchwork_client_interrupt() does for a client. */
LATCHWORK_API void latchwork_redlock_interrupt(struct latchwork_redlock *redlock);
LATCHWORK_API void latchwork_redlock_close(struct latchwork_redlock *redlock);

#ifdef __cplusplus
}
#endif

#endif
