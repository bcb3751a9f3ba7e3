/* SPDX-License-Identifier: Apache-2.0 */
/* Latchwork locks: mutual exclusion between threads, processes and machines, by means of Redis.
 *
 *     #include <latchwork/lock.h>
 *
 *     struct latchwork_error error;
 *     struct latchwork_client *client =
 *         latchwork_client_open("redis://127.0.0.1:6379/0", NULL, &error);
 *     struct latchwork_lock *lock = latchwork_lock_open(client, "stock:42", NULL, &error);
 *     struct latchwork_hold *hold;
 *     if (latchwork_lock_acquire(lock, 5000, &hold, &error) == LATCHWORK_LOCK_OK) {
 *         // store() must refuse a fence smaller than the largest that it has seen
 *         store(latchwork_hold_fence(hold), ...);
 *         latchwork_hold_release(hold, &error);
 *     }
 *     latchwork_lock_close(lock);
 *     latchwork_client_close(client);
 *
 * Build with `cc $(pkg-config --cflags latchwork) my.c $(pkg-config --libs latchwork)`.
 *
 * Words. A *client* is a limited pool of connections to one Redis, to the master that Sentinels
 * name, or to each node of a cluster. A *lock* is a name with options: what to lock, for how long,
 * and how. A *hold* is one acquisition of a lock. Any number of threads may share clients and
 * locks: each acquire returns a new hold, except a nested acquire of a reentrant lock.
 * `latchwork_redlock_*` makes locks that are stored on several independent Redis servers, and
 * `latchwork_rows_*` makes locks for rows of tables. Acquire, renew, release and all other
 * functions are the same for every kind of lock.
 *
 * A hold is a lease. Redis ends it `ttl_ms` after the last renewal, so the lock of a holder that
 * was killed becomes free. The holder counts this time from *before* it sent the request, on a
 * clock that keeps counting during suspend (CLOCK_BOOTTIME), so for the holder the lease does not
 * end later than for Redis, unless Redis' clock jumps ahead. A program that is paused for longer
 * than the TTL (by a debugger, swapping, SIGSTOP, or a stalled virtual machine) can wake up without
 * the lock and run some instructions before it notices. No lock with a timeout can prevent that,
 * but the fence makes it harmless. The fence grows with every acquisition of a name, so a store
 * that remembers the largest fence it has seen, and refuses smaller ones, is safe even then. Each
 * fence is larger than the last one of the name, which Redis keeps in a counter, and at least
 * Redis' time in microseconds. So it grows across expiry and release. If the counter is lost (by
 * FLUSHALL, by a failover to a replica that missed writes, or because the name was not used for a
 * week), the fence still grows as long as Redis' clock has not gone back. See Martin Kleppmann,
 * "How to do distributed locking", 2016.
 *
 * Results. Functions that talk to Redis return a latchwork_result, and fill in *error unless the
 * result is OK. `error` may be NULL.
 *   OK     The call did what was asked.
 *   BUSY   Others hold the lock, and the time to wait is over. error->code is LATCHWORK_E_BUSY, or
 *          a more specific code (LATCHWORK_E_NO_TTL, ...).
 *   LOST   This hold does not have the lock, or no longer has it. The lock of another holder was
 *          not changed. A release also returns LOST if its first answer was lost with the
 *          connection and its second attempt finds no lock, because the first attempt may have
 *          freed the lock. After LOST, do not assume that you held the lock until this call.
 *   ERROR  Redis could not be reached, Redis refused the request, or the arguments were wrong:
 *          error->code and error->text say what happened and what to do.
 * Functions that open something return NULL, and fill in *error, when other functions would return
 * ERROR.
 *
 * Codes. The description of each function lists the codes that it may set, without their prefix
 * LATCHWORK_E_. *The Redis codes* are those that every exchange with Redis may set: MEMORY, FORK,
 * CONNECT, TIMEOUT, POOL, DENIED, TYPE, FULL, READONLY, NO_SCRIPTS and REPLY. Later versions may
 * add codes: treat a code that you do not know by its result.
 *
 * Names. Each prefix belongs to one thing: LATCHWORK_LOCK_ to results, LATCHWORK_E_ to codes,
 * LATCHWORK_KIND_ to kinds of locks, LATCHWORK_FLAG_ to flags (each has a bit of its own, so that a
 * flag in the wrong place is refused), LATCHWORK_LOSS_ to the reasons why a hold ended,
 * LATCHWORK_DEFAULT_ to the meaning of a 0 in an option, LATCHWORK_MIN_ and LATCHWORK_MAX_ to
 * limits. A name that ends in _INIT begins a structure of options. <latchwork/handler.h> uses none
 * of these prefixes, and both headers may be included together.
 *
 * Threads. Any number of threads may use clients, locks and Redlocks at the same time, until the
 * one call that closes them. The same is true of a hold: all its functions except release and
 * forget may run at the same time, on any thread, and during its renewal. If your own renewals of
 * one hold overlap, its deadline becomes the earliest that any of them asked for, because Redis may
 * have executed them in any order. A renewal by LATCHWORK_FLAG_RENEW never shortens a lease that
 * you have extended. latchwork_hold_release() and latchwork_hold_forget() end the hold. One thread
 * calls one of them, once (for a reentrant lock as often as it was acquired), while no other call
 * on this hold runs, and no call may follow. No function may be called from a signal handler.
 *
 * Waiting. A release wakes a waiter (unless the lock is a Redlock): the script that frees the lock
 * notifies one waiting client by PUBLISH, over one subscribed connection that all waiters of a
 * client share, and the other waiters continue to sleep. Normally there is no polling. But a client
 * that was notified and then died must not delay the others, so the first waiter of each client
 * also checks the lock at the end of the holder's lease, and every 5 s (1 s for fair and read/write
 * locks), with jitter. There are cases in which the first waiter of each client polls every 10
 * to 100 ms instead: the client cannot subscribe (its ACL user has no channels), other programs
 * share the name (LATCHWORK_FLAG_PLAIN, or custom names without `wait`), or the servers are a
 * cluster.
 *
 * Clusters. All keys of a lock are in one slot, and calls go to the node that owns this slot. If
 * the slot has moved (MOVED) or is being moved (ASK, TRYAGAIN), or if its node is down for a moment
 * (CLUSTERDOWN, READONLY), a call searches for the owner again and is repeated, for about
 * command_ms. After that time the result is ERROR with READONLY, but a wait continues. Locks
 * survive the move of their slot: holds are renewed while the slot is being moved, but a free lock
 * of that slot may be refused until all of its keys have arrived. (With LATCHWORK_FLAG_NO_SCRIPTS a
 * hold may be lost if the move takes longer than a third of its TTL.)
 *
 * Failover. A replica that becomes master, in a cluster or behind Sentinels, may lack the last
 * writes of the old master, because replication is asynchronous. So a lock may be lost, and another
 * holder may get it while the first holder still has time left by its own clock. The same happens
 * if a server is restarted without its data. The first holder detects the loss at its next renewal,
 * check or release (LOST, NOT_OWNER), and until then only the fence protects the resource. The
 * fence of the second holder is larger even if the counter was lost as well, because it is at least
 * the new master's time in microseconds. Keep the clocks of all nodes synchronized: the second
 * fence is certain to be larger only if the clocks differ by less than the time between two
 * acquisitions.
 *
 * Forks. A child process must not use its parent's clients, locks or holds: such calls fail with
 * LATCHWORK_E_FORK. The child may close the client (which frees memory and has no other effect) and
 * open a new one.
 *
 * Memory. Each object is freed by its close or release. A failed allocation is an error,
 * LATCHWORK_E_MEMORY, and never ends the program: objects opened before continue to work, and the
 * call may be repeated. After an acquire that failed in this way, the lock may be taken in Redis
 * until its TTL ends, as after any ERROR. Close and release need no memory.
 *
 * Interface. The interface only grows: structures that you fill in contain their size, and members
 * are added at their ends. Fill them in like `struct latchwork_lock_options o =
 * {LATCHWORK_LOCK_INIT, .ttl_ms = 5000};`, or zero them and set `size` yourself, as C++ before
 * C++20 must: `latchwork_lock_options o{}; o.size = sizeof o; o.ttl_ms = 5000;`. Zero always means
 * the default. Times are in ms. If an option allows a time without limit, -1 stands for it. */
#ifndef LATCHWORK_LOCK_H
#define LATCHWORK_LOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATCHWORK_API __attribute__((visibility("default")))

/* --- version ---------------------------------------------------------------------------------- */

/* The version of this header. MAJOR changes if programs must be compiled again or changed; it is
 * also part of the library's soname. */
#define LATCHWORK_VERSION_MAJOR 0
#define LATCHWORK_VERSION_MINOR 1
#define LATCHWORK_VERSION_PATCH 0
#define LATCHWORK_VERSION "0.1.0"
/* The version as one number, so that versions can be compared: 1.2.3 is 10203. */
#define LATCHWORK_VERSION_NUMBER \
    (LATCHWORK_VERSION_MAJOR * 10000 + LATCHWORK_VERSION_MINOR * 100 + LATCHWORK_VERSION_PATCH)

/* These two functions return the version of the loaded library. It may differ from the version of
 * the header, LATCHWORK_VERSION. Codes: none. */
LATCHWORK_API const char *latchwork_version(void);
LATCHWORK_API int latchwork_version_number(void);

/* --- results and codes ------------------------------------------------------------------------ */

enum latchwork_result {
    LATCHWORK_LOCK_OK = 0,
    LATCHWORK_LOCK_BUSY = 1,
    LATCHWORK_LOCK_LOST = 2,
    LATCHWORK_LOCK_ERROR = 3,
};

/* The reason of a result, which is stored in error->code. The numbers never change. */
enum latchwork_code {
    LATCHWORK_E_NONE = 0,
    LATCHWORK_E_BUSY = 1, /* others hold the lock */
    /* the lock is held without a TTL and never ends by itself; see latchwork_lock_give_ttl() and
     * `give_ttl_ms` */
    LATCHWORK_E_NO_TTL = 2,
    /* Redis has another token or none: the lock was broken or deleted, or it expired, and another
     * client may have acquired it */
    LATCHWORK_E_NOT_OWNER = 3,
    /* the lease has ended by the clock of this machine, or max_hold_ms was reached */
    LATCHWORK_E_EXPIRED = 4,
    /* the lock is gone, and an earlier answer was lost: see "Results" at the top of this file */
    LATCHWORK_E_UNKNOWN = 5,
    LATCHWORK_E_ARGUMENT = 6, /* the arguments of the call are wrong */
    LATCHWORK_E_FORK = 7,     /* the client belongs to the parent process */
    LATCHWORK_E_CLOSED = 8,   /* the client is being closed, or was interrupted */
    /* there is no connection, or the connection broke and could not be restored in time */
    LATCHWORK_E_CONNECT = 9,
    LATCHWORK_E_TIMEOUT = 10,  /* no answer came within command_ms */
    LATCHWORK_E_POOL = 11,     /* all connections of the pool were in use until the time limit */
    LATCHWORK_E_DENIED = 12,   /* Redis answered NOAUTH, WRONGPASS or NOPERM */
    LATCHWORK_E_TYPE = 13,     /* the key in Redis has another type than a lock of this kind */
    LATCHWORK_E_FULL = 14,     /* Redis is at maxmemory and cannot store a new lock */
    LATCHWORK_E_READONLY = 15, /* the server is a replica, or is loading its data */
    /* this kind of lock needs scripts, which the client or the server forbids */
    LATCHWORK_E_NO_SCRIPTS = 16,
    LATCHWORK_E_REPLY = 17,       /* Redis answered with another error, or with a malformed reply */
    LATCHWORK_E_MAJORITY = 18,    /* for Redlock: too few servers answered */
    LATCHWORK_E_UNSUPPORTED = 19, /* this kind of lock does not support the call */
    /* the call needs a lock that is held (to show it, to break it or to set its TTL), but nobody
     * holds the lock */
    LATCHWORK_E_NOT_HELD = 20,
    LATCHWORK_E_HAS_TTL = 21, /* the lock already has a TTL */
    LATCHWORK_E_MEMORY = 22,  /* an allocation failed */
    LATCHWORK_E_SYSTEM = 23,  /* the system provides no thread, no descriptor or no random bytes */
};

/* Says why a call failed. The caller allocates this structure, so it will not change in this MAJOR
 * version. */
struct latchwork_error {
    int code; /* a value of enum latchwork_code */
    /* text for people: what went wrong, with which server, and what to do; it never contains a
     * password */
    char text[508];
};

/* Returns "ok", "busy", "lost" or "error", and "unknown" for any other number. */
LATCHWORK_API const char *latchwork_result_name(enum latchwork_result result);
/* Returns the name of a latchwork_code in lower case, for example "not_owner", or "other" for any
 * other number. */
LATCHWORK_API const char *latchwork_code_name(int code);

/* --- client: connections to one Redis --------------------------------------------------------- */

struct latchwork_client;

/* Flags. The description of each option or call lists the flags that it accepts. */
enum latchwork_flag {
    /* For locks: a thread of the client extends the lease after each third of its TTL, until the
     * hold is released or lost, or max_hold_ms is reached. The thread never acquires a lock
     * again. */
    LATCHWORK_FLAG_RENEW = 1,
    /* For locks: uses the same commands and values as other Redis clients, so that they and this
     * library exclude each other. A lock is set by `SET name token NX PX ttl` with 32 hex digits as
     * token, and released by compare-and-delete. `name` is exactly the Redis key. The fence is
     * stored in a second key (lwl:{name}:fence). Other programs do not change this key, so their
     * acquisitions get no fence. This library's next fence is still larger than all its earlier
     * fences, unless the clock of Redis has gone back. The flag works only for mutex and reentrant
     * locks. */
    LATCHWORK_FLAG_PLAIN = 2,
    /* For clients: uses WATCH, MULTI and EXEC instead of scripts, with two round trips per call.
     * Only mutex and reentrant locks work with this flag. */
    LATCHWORK_FLAG_NO_SCRIPTS = 4,
    /* For latchwork_lock_list(): compares the glob with whole Redis keys, and so finds plain locks
     * and locks with custom names. Keys that are not strings are skipped. Without this flag the
     * glob is compared with the names of the library's own locks. */
    LATCHWORK_FLAG_KEYS = 8,
    /* For the connections to Redis servers and to Sentinels: accepts any certificate of a server,
     * so anybody between the client and the server can read and change everything. */
    LATCHWORK_FLAG_NO_VERIFY = 16,
    /* For the connections to Redis servers and to Sentinels: uses TLS, as rediss:// does. */
    LATCHWORK_FLAG_TLS = 32,
};

enum {
    LATCHWORK_DEFAULT_CONNECTIONS = 8,
    LATCHWORK_DEFAULT_CONNECT_MS = 2000,
    LATCHWORK_DEFAULT_COMMAND_MS = 1000,
    LATCHWORK_MAX_CONNECTIONS = 1024,
    /* maximum of each option that limits a wait: connect_ms, command_ms, node_ms, retry_max_ms */
    LATCHWORK_MAX_WAIT_MS = 600000,
    LATCHWORK_MAX_LABEL = 64, /* maximum length of a label in bytes */
    /* maximum number of cluster nodes or Sentinels in the options; the client learns all others
     * from them */
    LATCHWORK_MAX_ADDRESSES = 64,
    LATCHWORK_DEFAULT_PORT = 6379,
    LATCHWORK_DEFAULT_SENTINEL_PORT = 26379,
};

/* Sentinels, which name the master to use. They have separate login and TLS settings, which mean
 * the same as in latchwork_client_options. */
struct latchwork_sentinels {
    uint32_t size;
    unsigned flags; /* any combination of LATCHWORK_FLAG_TLS and LATCHWORK_FLAG_NO_VERIFY */
    /* array of 1 to LATCHWORK_MAX_ADDRESSES addresses in the form host[:port]; the default port is
     * LATCHWORK_DEFAULT_SENTINEL_PORT */
    const char *const *addresses;
    size_t n_addresses;
    /* name by which the Sentinels know the master, as in "sentinel monitor NAME" */
    const char *master;
    const char *user, *password;
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
};
#define LATCHWORK_SENTINELS_INIT .size = sizeof(struct latchwork_sentinels)

struct latchwork_client_options {
    uint32_t size;
    /* any combination of LATCHWORK_FLAG_NO_SCRIPTS, LATCHWORK_FLAG_NO_VERIFY and
     * LATCHWORK_FLAG_TLS */
    unsigned flags;
    /* Maximum number of connections for commands, per node in a cluster. Connections are made when
     * they are needed. The default is LATCHWORK_DEFAULT_CONNECTIONS, the maximum
     * LATCHWORK_MAX_CONNECTIONS. If there are more threads than connections, the threads take
     * turns. Waiting uses one more connection, and renewal another one. In a cluster, waiting uses
     * one connection to each node with a lock that is waited for, and renewal one to each node with
     * a lock that is renewed. */
    int connections;
    int64_t connect_ms; /* time limit for connecting; default LATCHWORK_DEFAULT_CONNECT_MS */
    /* Time limit for each answer; default LATCHWORK_DEFAULT_COMMAND_MS. A call is sent again at
     * most once, on a new connection. */
    int64_t command_ms;
    /* Text in a lock's value that shows people who holds the lock. At most LATCHWORK_MAX_LABEL
     * bytes of letters, digits, '.', '_' and '-'. NULL stands for "HOST.PID". */
    const char *label;
    /* Login for a server, if the URL contains none. If `user` is NULL, the default user is meant. A
     * user needs a password. */
    const char *user, *password;
    /* PEM files for rediss://, which are read again for each connection. tls_ca contains the
     * trusted CAs; NULL stands for those of the system. tls_cert and tls_key are the client's
     * certificate and key; NULL means no certificate, or a key that is in tls_cert. tls_name is the
     * name that the server's certificate must have; NULL stands for the host of the URL. The
     * certificate is verified unless LATCHWORK_FLAG_NO_VERIFY is set. */
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
    /* For a Redis Cluster or Valkey Cluster: addresses of some of its nodes, at most
     * LATCHWORK_MAX_ADDRESSES, in the form host[:port]. The addresses are copied. The client asks
     * these nodes, and the host of the URL, for all other nodes. The login and TLS settings of the
     * options and of the URL are used for all nodes. With TLS, the certificate of a node must
     * contain tls_name, or the address or name that the cluster announces for the node. If
     * n_cluster is 0, there is no cluster. */
    const char *const *cluster;
    size_t n_cluster;
    /* For a master behind Sentinels: the Sentinels are asked for the master before each connection.
     * The settings are copied. NULL means that there are no Sentinels. */
    const struct latchwork_sentinels *sentinels;
    int db; /* number of the database on the master that Sentinels name; 0 without Sentinels */
};
#define LATCHWORK_CLIENT_INIT .size = sizeof(struct latchwork_client_options)

/* Creates a client, which does not connect yet. `url` is redis://[user:password@]host[:port][/db],
 * rediss:// for TLS, or unix://[user:password@]/path[?db=N]. It must be NULL if the options name
 * Sentinels, and may be NULL if they name cluster nodes. `options` may be NULL. Codes: ARGUMENT,
 * MEMORY, SYSTEM. */
LATCHWORK_API struct latchwork_client *
latchwork_client_open(const char *url, const struct latchwork_client_options *options,
                      struct latchwork_error *error);
/* Sends PING on a connection of the pool; in a cluster, to one of its masters. Codes: ARGUMENT, the
 * Redis codes. */
LATCHWORK_API enum latchwork_result latchwork_client_ping(struct latchwork_client *client,
                                                          struct latchwork_error *error);
/* Ends every call that waits for a lock, now or later, with ERROR and LATCHWORK_E_CLOSED. Releases
 * still work. In this way a program that shuts down can end its waiting threads. Any thread may
 * call this function, but no signal handler may. NULL is ignored. */
LATCHWORK_API void latchwork_client_interrupt(struct latchwork_client *client);
/* Ends the client's threads and connections. All holds must be released or forgotten, and all locks
 * closed, before this call. NULL is ignored. */
LATCHWORK_API void latchwork_client_close(struct latchwork_client *client);

/* --- lock: what to lock, and how -------------------------------------------------------------- */

struct latchwork_lock;
struct latchwork_hold;

/* Kinds of locks. Use only one kind for a name: mutex, reentrant and fair locks of a name exclude
 * each other, but they do not exclude locks of other kinds. */
enum latchwork_kind {
    LATCHWORK_KIND_MUTEX = 0,
    /* A mutex that its owner may acquire again. Nested acquires return the same hold and are
     * counted, without a round trip. The lock becomes free after the same number of releases. If
     * the hold is lost, it is lost for all nested acquires at once. The owner is the calling
     * thread, or the number given to latchwork_lock_acquire_as(). The same thread or number is a
     * different owner for each lock object. */
    LATCHWORK_KIND_REENTRANT = 1,
    /* A mutex that waiters, in all processes, get in the order of their arrival. A waiter that
     * cannot be reached is passed over: at once if its connection is closed, otherwise (if its
     * process is frozen or cut off) after 3 s without a sign of life. If the waiter shows a sign of
     * life again, it gets its place back at the next hand-over. So a waiter that can be reached is
     * overtaken only by waiters that came before it and could not be reached for a time. */
    LATCHWORK_KIND_FAIR = 2,
    /* Read/write locks: a name has any number of READ holds, or one WRITE hold. Open a lock of each
     * kind with the same name. While a live writer waits, no new reader gets a hold. When a writer
     * releases the lock, all waiting readers are woken together. Do not acquire a READ hold while
     * you have a READ hold of the same name: if a writer began to wait after your first acquire,
     * the writer would wait for your hold, and your second acquire for the writer. */
    LATCHWORK_KIND_READ = 3,
    LATCHWORK_KIND_WRITE = 4,
    /* A semaphore: at most `permits` holds at once, each with its own lease. All users of a name
     * must give the same number of permits. */
    LATCHWORK_KIND_SEMAPHORE = 5,
    /* The kinds of the locks that latchwork_rows_open() and latchwork_redlock_lock_open() return.
     * latchwork_lock_open() does not accept these kinds. */
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

/* The reason why a hold was lost, which means that it ended without being released. */
enum latchwork_loss {
    LATCHWORK_LOSS_NOT_OWNER = 1, /* according to Redis, this hold no longer has the lock */
    /* the hold was not renewed within two thirds of its TTL; the lease may last for up to one more
     * third, so stop now */
    LATCHWORK_LOSS_UNCONFIRMED = 2,
    LATCHWORK_LOSS_MAX_HOLD = 3, /* max_hold_ms was reached, so the hold is not renewed any more */
};

/* Names of the lock's keys in Redis, for a lock that must use the names of another scheme. The
 * value of the lock is a string TOKEN:FENCE. All names must be in the same slot of a cluster. They
 * need no NUL at the end, because their sizes are given. struct latchwork_name is a member of other
 * structures, so it will not change in this MAJOR version. */
struct latchwork_name {
    const char *p;
    size_t n;
};
struct latchwork_lock_names {
    uint32_t size;
    struct latchwork_name lock; /* name of the key that contains the token and the fence */
    /* name of the counter of fences; the counter never expires, and several locks may share it */
    struct latchwork_name fence;
    /* name of the sorted set of waiting clients; if its member `p` is NULL, releases wake nobody,
     * and waiters poll */
    struct latchwork_name wait;
    /* Lets a release notify other programs: if the sorted set `hint_if` has the member `hint`, the
     * release pushes `hint` on the left of the list `hint_to`. If hint.p is NULL, nothing is
     * pushed. In this way `lock exec -c` notifies the workers that a lane is free again: hint_if is
     * …:lanes, hint_to is …:ready, and `hint` is the key of the lane. */
    struct latchwork_name hint_if, hint_to, hint;
};
#define LATCHWORK_NAMES_INIT .size = sizeof(struct latchwork_lock_names)

struct latchwork_lock_options {
    uint32_t size;
    enum latchwork_kind kind;
    unsigned flags; /* any combination of LATCHWORK_FLAG_RENEW and LATCHWORK_FLAG_PLAIN */
    int permits;    /* maximum number of holds of a semaphore, 1 to LATCHWORK_MAX_PERMITS */
    /* length of the lease, LATCHWORK_MIN_TTL_MS to LATCHWORK_MAX_TTL_MS; default
     * LATCHWORK_DEFAULT_TTL_MS */
    int64_t ttl_ms;
    /* With LATCHWORK_FLAG_RENEW: the lease ends at the latest this long after its acquisition, no
     * matter how often it is renewed. Default LATCHWORK_DEFAULT_MAX_HOLD_MS; -1 means no limit. */
    int64_t max_hold_ms;
    /* TTL that a waiter gives to a lock without a TTL (for example of a client that called SETNX
     * and died before EXPIRE). If this is 0, the waiter gives no TTL, and an acquire returns BUSY
     * with LATCHWORK_E_NO_TTL at the end of its wait. */
    int64_t give_ttl_ms;
    /* Called once for a hold that is lost, by the renewing thread or by the thread whose call
     * detected the loss. Without LATCHWORK_FLAG_RENEW only a call can detect a loss. The callback
     * should only notify other threads, because all other renewals wait for it. The hold must still
     * be released, but not within the callback. */
    void (*lost)(void *ctx, struct latchwork_hold *hold, enum latchwork_loss why);
    void *lost_ctx;
    /* Custom names, which are copied. The name given to latchwork_lock_open() is then only shown
     * to people. Only mutex and reentrant locks can have custom names. */
    const struct latchwork_lock_names *names;
    /* length of `name`, which may contain any bytes; if this is 0, the name ends at its first
     * NUL */
    size_t name_len;
};
#define LATCHWORK_LOCK_INIT .size = sizeof(struct latchwork_lock_options)

/* Creates a lock object, without acquiring the lock. `name` has 1 to LATCHWORK_MAX_NAME bytes,
 * which do not begin with '}', and is copied. All keys of the lock begin with lwl:{name}: and are
 * in the same slot of a cluster. `options` may be NULL. Codes: ARGUMENT, FORK, NO_SCRIPTS,
 * MEMORY. */
LATCHWORK_API struct latchwork_lock *
latchwork_lock_open(struct latchwork_client *client, const char *name,
                    const struct latchwork_lock_options *options, struct latchwork_error *error);
/* Frees the lock object, but not its holds, which must be released or forgotten before this call.
 * NULL is ignored. */
LATCHWORK_API void latchwork_lock_close(struct latchwork_lock *lock);

/* Attempts once to acquire the lock, without waiting. Returns OK with *hold, BUSY, LOST (only for a
 * reentrant lock), or ERROR. *hold is NULL unless the result is OK. Codes: those of
 * latchwork_lock_acquire(). */
LATCHWORK_API enum latchwork_result latchwork_lock_try(struct latchwork_lock *lock,
                                                       struct latchwork_hold **hold,
                                                       struct latchwork_error *error);
/* Acquires the lock, and waits for it up to wait_ms. 0 means a single attempt, as in
 * latchwork_lock_try(); -1 means that the wait has no limit. If Redis cannot be reached, the call
 * tries again, with pauses, until the time is over, and then returns ERROR. The call may take
 * longer than wait_ms by one exchange (connect_ms + 2 × command_ms); in a cluster, where the owner
 * may have to be searched for twice, by 4 × connect_ms + 2 × command_ms. The call returns LOST if
 * this owner has a hold of a reentrant lock that was lost: release the hold as often as it was
 * acquired, and start again. Codes: BUSY and NO_TTL with result BUSY; EXPIRED with LOST; otherwise
 * ARGUMENT, CLOSED, SYSTEM, MAJORITY (Redlock), the Redis codes. */
LATCHWORK_API enum latchwork_result latchwork_lock_acquire(struct latchwork_lock *lock,
                                                           int64_t wait_ms,
                                                           struct latchwork_hold **hold,
                                                           struct latchwork_error *error);
/* Acquires a reentrant lock for an owner other than the calling thread. `owner` is any number that
 * stands for a task of your program. Codes: those of latchwork_lock_acquire(). */
LATCHWORK_API enum latchwork_result latchwork_lock_acquire_as(struct latchwork_lock *lock,
                                                              uint64_t owner, int64_t wait_ms,
                                                              struct latchwork_hold **hold,
                                                              struct latchwork_error *error);

/* --- hold: one acquisition -------------------------------------------------------------------- */

/* Frees the lock if this hold still has it, and wakes a waiter (unless the lock is a Redlock).
 * Otherwise returns LOST, and does not change a lock of another holder. After this call the hold no
 * longer exists, whatever the result is, with two exceptions. After ERROR with FORK the hold still
 * exists. For a reentrant lock, only the last release frees the lock and ends the hold. After ERROR
 * the lock expires at the end of its TTL at the latest. Codes: NOT_OWNER, UNKNOWN and EXPIRED with
 * result LOST; otherwise ARGUMENT, MAJORITY (Redlock), the Redis codes. */
LATCHWORK_API enum latchwork_result latchwork_hold_release(struct latchwork_hold *hold,
                                                           struct latchwork_error *error);
/* Frees the hold object, and leaves the lock in Redis to expire. This is for a program that must
 * end at once. NULL is ignored. In a child of fork() it does nothing to a hold of the parent. */
LATCHWORK_API void latchwork_hold_forget(struct latchwork_hold *hold);
/* Extends the lease to ttl_ms from now (0 stands for the TTL of the lock) if this hold still has
 * the lock. Never acquires the lock again. LOST is final, even if only the clock of this machine
 * says that the lease has ended. With LATCHWORK_FLAG_RENEW, ttl_ms must not be smaller than the TTL
 * of the lock. After ERROR the lease may have the old or the new end, and the deadline is the
 * earlier of the two. Codes: EXPIRED and NOT_OWNER with result LOST; otherwise ARGUMENT, MAJORITY
 * (Redlock), the Redis codes. */
LATCHWORK_API enum latchwork_result
latchwork_hold_renew(struct latchwork_hold *hold, int64_t ttl_ms, struct latchwork_error *error);
/* Asks Redis whether this hold still has the lock, and changes nothing in Redis. Returns OK if the
 * hold has the lock, LOST if it does not, or ERROR. OK is true only for the moment of the answer,
 * so rely on the fence. Codes: NOT_OWNER with result LOST; otherwise ARGUMENT, MAJORITY (Redlock),
 * the Redis codes. */
LATCHWORK_API enum latchwork_result latchwork_hold_check(struct latchwork_hold *hold,
                                                         struct latchwork_error *error);

/* latchwork_hold_fence() returns the fence of a hold. This function and those below it, up to
 * latchwork_hold_token(), do not ask Redis, are cheap, and may be called by any thread. They treat
 * a NULL hold as a lost hold with fence 0, 0 ms left and the token "". */
LATCHWORK_API uint64_t latchwork_hold_fence(const struct latchwork_hold *hold);
/* Returns the fence of row number i of a row lock. In this version all rows of a hold have the same
 * fence, latchwork_hold_fence(). */
LATCHWORK_API uint64_t latchwork_hold_fence_at(const struct latchwork_hold *hold, size_t i);
/* Returns non-zero if the hold is known to be lost, or if its lease has ended by the clock of this
 * machine. */
LATCHWORK_API int latchwork_hold_lost(const struct latchwork_hold *hold);
/* Returns the end of the lease in ms of CLOCK_BOOTTIME. Each renewal moves the end. */
LATCHWORK_API int64_t latchwork_hold_deadline_ms(const struct latchwork_hold *hold);
/* Returns the number of ms until the deadline, or 0 if the deadline has passed or the hold is
 * lost. */
LATCHWORK_API int64_t latchwork_hold_left_ms(const struct latchwork_hold *hold);
/* Returns the token in Redis, a text that is valid as long as the hold exists. */
LATCHWORK_API const char *latchwork_hold_token(const struct latchwork_hold *hold);

/* --- looking, and breaking -------------------------------------------------------------------- */

/* A held lock. A semaphore or a read lock has one such structure per hold. The structure is valid
 * only during the call of seen(). */
struct latchwork_lock_info {
    uint32_t size;
    /* kind of the lock; mutex, reentrant and fair locks look alike in Redis and are all shown as
     * MUTEX */
    enum latchwork_kind kind;
    /* name given to latchwork_lock_open(); the Redis key if latchwork_lock_list() was called with
     * LATCHWORK_FLAG_KEYS */
    const char *name;
    size_t name_len;
    const char *token; /* value of the lock without its fence */
    size_t token_len;
    const char *label; /* label of the holder; NULL if it is unknown */
    size_t label_len;
    uint64_t fence; /* fence of the hold; 0 if it is unknown */
    /* time of the acquisition in ms since 1970 on the clock of Redis, computed from the fence; 0 if
     * it is unknown */
    int64_t since_ms;
    /* number of ms until the lease ends; -1 if the lock has no TTL and never ends by itself */
    int64_t left_ms;
    int64_t waiting; /* number of waiting clients; for a fair lock, number of waiters */
};
/* A function that receives one held lock. It returns 0 to continue, or any other number to stop. It
 * may use the client if the client has a free connection. */
typedef int latchwork_lock_seen(void *ctx, const struct latchwork_lock_info *info);

/* Calls seen() for each hold of this lock. Returns BUSY if nobody holds the lock. Codes: NOT_HELD
 * with result BUSY; otherwise ARGUMENT, UNSUPPORTED, the Redis codes. */
LATCHWORK_API enum latchwork_result latchwork_lock_show(struct latchwork_lock *lock,
                                                        latchwork_lock_seen *seen, void *ctx,
                                                        struct latchwork_error *error);
/* Ends the lock, no matter who holds it, wakes a waiter, and returns a larger fence in *fence
 * (`fence` may be NULL). A store that is given this fence refuses later writes of the old holders.
 * The old holders detect the loss at their next call to Redis. Returns BUSY if nobody held the
 * lock. If an answer was lost and nobody holds the lock now, this call may have broken the lock.
 * Codes: NOT_HELD, or UNKNOWN after a lost answer, with result BUSY; otherwise ARGUMENT,
 * UNSUPPORTED, the Redis codes. */
LATCHWORK_API enum latchwork_result
latchwork_lock_break(struct latchwork_lock *lock, uint64_t *fence, struct latchwork_error *error);
/* Gives a TTL to a lock that has none. Returns OK if the lock got the TTL, or BUSY if nobody holds
 * the lock or the lock already has a TTL. Codes: NOT_HELD and HAS_TTL with result BUSY; otherwise
 * ARGUMENT, UNSUPPORTED, the Redis codes. */
LATCHWORK_API enum latchwork_result
latchwork_lock_give_ttl(struct latchwork_lock *lock, int64_t ttl_ms, struct latchwork_error *error);

/* Calls seen() for every held lock whose name matches `glob` (a pattern as in SCAN of Redis; NULL
 * matches all names). The function uses SCAN, so it never blocks Redis for long, but it may show a
 * lock twice, or miss a lock that is acquired or released during the call. `flags` is 0 or
 * LATCHWORK_FLAG_KEYS. Codes: ARGUMENT, the Redis codes. */
LATCHWORK_API enum latchwork_result latchwork_lock_list(struct latchwork_client *client,
                                                        const char *glob, unsigned flags,
                                                        latchwork_lock_seen *seen, void *ctx,
                                                        struct latchwork_error *error);

/* --- rows: (table, id) ------------------------------------------------------------------------ */

/* A row of a table. Callers pass arrays of these structures, so their members will not change in
 * this MAJOR version: a new member would move the other elements. */
struct latchwork_row {
    const char *table; /* name of the table: 1 to LATCHWORK_MAX_TABLE bytes without ':' */
    const char *id;    /* id of the row: 1 to LATCHWORK_MAX_ID bytes */
};
enum { LATCHWORK_MAX_ROWS = 256, LATCHWORK_MAX_TABLE = 128, LATCHWORK_MAX_ID = 256 };

/* Opens a lock on 1 to LATCHWORK_MAX_ROWS rows at once. The rows are copied. Each row is a mutex
 * with the name PREFIX TABLE ":" ID. PREFIX is `prefix`, or "row:" if `prefix` is NULL. So a lock
 * on one row, a lock on several rows, and a mutex of that name exclude each other. All options
 * apply except `kind` and `names`. Row locks need scripts.
 *
 * An acquire takes all rows or none. It takes the rows in the order of the bytes of their table and
 * then of their id, regardless of the given order. Duplicates count once. While it waits for a row,
 * it holds and renews only rows that come before this row in the order, so waiters never wait for
 * each other in a circle. A row whose holder died or whose lease expired is taken over by a single
 * SET NX, never by GET and SET. All rows belong to one hold. The fence of the hold is the same for
 * all rows, and larger than any earlier fence of these rows. The hold is lost if one row is lost; a
 * release then frees the other rows and returns LOST. Up to 11 free rows are taken in one round
 * trip. In a Redis Cluster all rows must be in one slot; otherwise opening the lock is an error. A
 * prefix with a hash tag, such as "{stock}:", puts all rows with this prefix into one slot.
 *
 * With LATCHWORK_FLAG_PLAIN the Redis keys are exactly PREFIX TABLE ":" ID, as other programs may
 * use them. Rows without a TTL are reported (by LATCHWORK_E_NO_TTL and a text that names the key).
 * `give_ttl_ms` or latchwork_lock_give_ttl() gives a TTL to each of them. latchwork_lock_show() and
 * latchwork_lock_break() handle the rows one after the other. The values of all rows begin with
 * latchwork_hold_token(). With LATCHWORK_FLAG_RENEW, a lock of more than 26 rows is renewed over a
 * connection of the client's pool, so leave one free. `prefix` and `options` may be NULL. Codes:
 * ARGUMENT, FORK, NO_SCRIPTS, MEMORY. */
LATCHWORK_API struct latchwork_lock *
latchwork_rows_open(struct latchwork_client *client, const char *prefix,
                    const struct latchwork_row *rows, size_t n,
                    const struct latchwork_lock_options *options, struct latchwork_error *error);

/* --- Redlock: several independent Redis servers ----------------------------------------------- */

/* A Redlock, by the algorithm of
 * https://redis.io/docs/latest/develop/use/patterns/distributed-locks/: the same key is set to the
 * same random value on all of N independent masters, and each of them gets only a short time to
 * answer. An acquire succeeds if a majority granted the lock and the validity, which is the TTL
 * minus the time taken and the drift, is positive. After a failed attempt, and at a release, the
 * key is deleted on all servers, even on those that answered with an error or not at all. A lease
 * is extended if a majority extends it. An acquire tries again after a random pause, because a
 * release wakes no waiter.
 *
 * The lock survives the loss of a minority of the servers. But it depends on clocks and pauses as
 * much as a lock on a single Redis does. A holder that is paused past its lease (by SIGSTOP,
 * swapping, or a suspended machine) continues without the lock until it checks. A second holder can
 * get the lock if the wall clocks of a majority jump ahead, or if one server is restarted without
 * its data and takes part again before the lost locks would have ended. Therefore servers that were
 * started less than a TTL ago are left out (restart_ms). They are recognized by a new run_id or, on
 * the first connection, by uptime_in_seconds, which comes from the server's clock. If the user
 * lacks the right to INFO, a restart is not noticed. If all servers were just started, they grant
 * no lock until a TTL has passed. (Persistence with appendfsync everysec can lose locks as well.)
 *
 * So the fence is what protects the resource, as with every lock. The fence is the largest that the
 * majority returned, and a majority stores it before the acquire returns the hold. So the fence
 * grows with every acquisition, whichever servers form the next majority. Check the fence in the
 * store where the effect happens. If you have no store that can refuse a fence, five servers give
 * you little more safety than one.
 *
 * The calling thread asks all servers at the same time and continues when a majority has answered,
 * so a slow or dead minority costs no time. Only a release waits for the slow servers, up to
 * node_ms, at most once a second. An acquire takes two round trips, every other call one. Only the
 * resolution of a host name can block, so give addresses if the resolver may be slow.
 * latchwork_lock_show(), latchwork_lock_break() and latchwork_lock_give_ttl() return ERROR with
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
    unsigned flags; /* must be 0, because no flags exist yet */
    /* Number of connections per server, which is the maximum number of calls at the same time. The
     * default is LATCHWORK_DEFAULT_CONNECTIONS. One more connection is for renewals. */
    int connections;
    /* time limit for connecting to a server and for each of its answers; keep it far below the TTL;
     * default LATCHWORK_DEFAULT_NODE_MS */
    int64_t node_ms;
    /* Minimum and maximum of the random pause between the attempts of an acquire that waits. The
     * defaults are LATCHWORK_DEFAULT_RETRY_MIN_MS and LATCHWORK_DEFAULT_RETRY_MAX_MS. */
    int64_t retry_min_ms, retry_max_ms;
    /* Part of the TTL, in thousandths, by which the validity is reduced because clocks differ in
     * speed. The default is LATCHWORK_DEFAULT_DRIFT_PER_MILLE. The validity is reduced by 2 ms
     * more. */
    int drift_per_mille;
    const char *label;
    /* No lock is requested from a server that was started less than restart_ms ago, because it may
     * have lost locks. 0 stands for the TTL of the lock. -1 means that the servers never lose locks
     * (appendfsync always). */
    int64_t restart_ms;
};
#define LATCHWORK_REDLOCK_INIT .size = sizeof(struct latchwork_redlock_options)

/* Creates a Redlock object, which does not connect yet. `n` is the number of URLs, 1 to
 * LATCHWORK_MAX_NODES; an odd number is best. `options` may be NULL. Codes: ARGUMENT, MEMORY,
 * SYSTEM. */
LATCHWORK_API struct latchwork_redlock *
latchwork_redlock_open(const char *const *urls, size_t n,
                       const struct latchwork_redlock_options *options,
                       struct latchwork_error *error);
/* Opens a lock of kind MUTEX or REENTRANT, without custom names. `options` may be NULL. Codes:
 * ARGUMENT, FORK, MEMORY. */
LATCHWORK_API struct latchwork_lock *
latchwork_redlock_lock_open(struct latchwork_redlock *redlock, const char *name,
                            const struct latchwork_lock_options *options,
                            struct latchwork_error *error);
/* Ends every call that waits for a lock of this Redlock, as latchwork_client_interrupt() does for a
 * client. */
LATCHWORK_API void latchwork_redlock_interrupt(struct latchwork_redlock *redlock);
LATCHWORK_API void latchwork_redlock_close(struct latchwork_redlock *redlock);

#ifdef __cplusplus
}
#endif

#endif
