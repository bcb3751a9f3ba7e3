/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of a client: a bounded pool of connections to each of its servers (peers.h), and
 * calls that are sent over them.
 *
 *     lw_call_script() → lw_call_key() → lw_call_add()… → lw_client_call() → freeReplyObject()
 *
 * A call uses an idle connection or opens a new one. If that connection breaks or no answer comes
 * in time, the client closes all idle connections to the same server, since they are likely dead as
 * well, and sends the call once more on a new connection. So a call may be executed more than once.
 * This is safe, because each call contains the token of its acquisition.
 *
 * In a cluster, a call goes to the owner of the slot of its first key. If that node refuses the
 * call because the slot is elsewhere or is being moved, nothing was executed. The client then sends
 * the call to the node named by the refusal (MOVED, ASK), or to the same node after a pause
 * (TRYAGAIN, CLUSTERDOWN, READONLY). It repeats this for command_ms at most. A script that stops in
 * the middle because of such a refusal may have written something, so the client treats it like a
 * call whose answer was lost. */
#ifndef LW_LOCK_CLIENT_H
#define LW_LOCK_CLIENT_H

#include "base/bytes.h"
#include "base/redis/connection.h"
#include "base/redis/servers.h"
#include "include/latchwork/lock.h"
#include "lock/peers.h"
#include "lock/scripts.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LW_CALL_ARGS = 32, LW_CALL_NUMBERS = 8, LW_CLIENT_ID = 16 };

struct lw_hold_renewer;
struct lw_waking;

struct latchwork_client {
    /* URL of the server. In a cluster, only the user, password and TLS settings of the URL are
     * used, for all nodes. */
    struct lw_redis_url url;
    /* The Sentinels, or the servers of an application, from which the client learns the address of
     * `shard` before each connection. The client owns this structure. NULL: the server is at
     * `url`. */
    struct lw_redis_servers *servers;
    int shard;
    /* name of the server or servers in error texts, such as the URL without its password */
    char *where;
    unsigned flags;
    int connections;
    int64_t connect_ms, command_ms;
    char label[LATCHWORK_MAX_LABEL + 1];
    char name[LATCHWORK_MAX_LABEL + 32]; /* name of the client's connections in CLIENT LIST */
    /* The client's random id. Redis notifies the client of releases through the channel
     * lwl:wake:ID. In a cluster the id begins with 'p': the client polls, and nobody tells it. */
    char id[LW_CLIENT_ID + 1];
    /* The value of lw_forks() when the client was opened. A different value shows that this process
     * is a child of the one that opened the client. */
    unsigned forks;
    atomic_bool interrupted;

    pthread_mutex_t mutex; /* guards the array of peers and the slot table */
    pthread_cond_t freed;  /* signalled when a connection of any peer becomes free */
    struct lw_peer **peer; /* array of the client's servers; unused entries are NULL */
    size_t n_peers;
    uint64_t peer_ids; /* number of peers created so far */
    /* The owner of each slot of the cluster. NULL: the client has only one server, peer[0]. */
    struct lw_slot_table *table;
    /* In a cluster: calls without a key go to the owner of this slot. LW_ANY_SLOT: they go to any
     * node. */
    int slot;

    /* This mutex guards the start of the renewer's thread and of the listening thread. Each thread
     * is started when it is first needed. */
    pthread_mutex_t start;
    _Atomic(struct lw_hold_renewer *) renewer;
    _Atomic(struct lw_waking *) waking;
};

struct lw_call {
    const struct lw_script *script; /* the script to call; NULL: arg[] is a complete command */
    int n;
    /* the arguments, which the caller owns and keeps until the call has ended */
    const char *arg[LW_CALL_ARGS];
    size_t size[LW_CALL_ARGS];
    int slot; /* slot of the first key; LW_ANY_SLOT: the call has no key */
    int n_numbers;
    char number[LW_CALL_NUMBERS][24];
    /* Index of the argument that becomes "1" if the call is sent again. 0: the call has no such
     * argument. */
    int again;
    /* True if the call was sent again although a server may already have executed it. */
    bool sent_again;
    int64_t sent_ms; /* time on the boot clock just before the call was last sent */
};

/* Fills *error with `code` and the formatted text, unless `error` is NULL. Returns `result`. */
enum latchwork_result lw_lock_fail(struct latchwork_error *error, enum latchwork_result result,
                                   int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fills *error with the error code ARGUMENT, for wrong use of the library, and returns ERROR. */
#define lw_lock_wrong(error, ...) \
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_ARGUMENT, __VA_ARGS__)
/* Fills *error with the error code MEMORY, for a failed allocation, and returns ERROR. */
enum latchwork_result lw_lock_no_memory(struct latchwork_error *error);
/* Returns the error code for a broken connection: MEMORY if an allocation failed, otherwise
 * CONNECT. */
int lw_broken_code(enum lw_redis_error error);

/* Opens a client like latchwork_client_open(), but for a server whose address must be looked up
 * before each connection. Takes ownership of *servers, even after a failure, and leaves *servers
 * empty. `where` is the server's name in error texts. Returns NULL with *error on failure. */
struct latchwork_client *lw_client_open_servers(struct lw_redis_servers *servers, int shard,
                                                const char *where, struct latchwork_error *error);
/* Returns true if this process may use the client. Returns false with *error if the client is NULL,
 * or if this process is a child, by fork(), of the process that opened the client. */
bool lw_client_ok(const struct latchwork_client *c, struct latchwork_error *error);
/* Returns how many forks lie between this process and the process that first used the library. */
unsigned lw_forks(void);
/* Fills `out` with random hex digits and a NUL. `size` is odd. Returns false with *error if the
 * system provides no random bytes. */
bool lw_random_hex(char *out, size_t size, struct latchwork_error *error);

void lw_call_script(struct lw_call *call, const struct lw_script *script, int n_keys);
void lw_call_add(struct lw_call *call, const char *p, size_t n);
/* Appends a key to the call. The first key determines the slot of the call. */
void lw_call_key(struct lw_call *call, struct lw_bytes key);
void lw_call_text(struct lw_call *call, const char *s);
void lw_call_number(struct lw_call *call, int64_t n);

/* Sends a call to the right server and returns the reply. If the reply is an error, returns NULL
 * with *error. */
redisReply *lw_client_call(struct latchwork_client *c, struct lw_call *call,
                           struct latchwork_error *error);

/* Borrows a connection to the owner of `slot` from the owner's pool, for several commands that the
 * caller sends one after the other. Returns NULL with *error on failure. */
struct lw_redis *lw_client_get(struct latchwork_client *c, int slot, struct latchwork_error *error);
/* Borrows a connection to a peer from the peer's pool. Returns NULL with *error on failure. */
struct lw_redis *lw_client_get_at(struct latchwork_client *c, uint64_t peer,
                                  struct latchwork_error *error);
/* Returns a borrowed connection to its pool. If the connection is broken, closes it, and also the
 * idle connections to the same server. */
void lw_client_put(struct latchwork_client *c, struct lw_redis *redis);
/* Opens a connection to a peer outside of the peer's pool, for a thread that needs a connection for
 * itself alone. Returns NULL with *error on failure. */
struct lw_redis *lw_client_connect(struct latchwork_client *c, uint64_t peer, int64_t connect_ms,
                                   int64_t command_ms, struct latchwork_error *error);
/* Begins to connect to the server of a client that has only one, with lw_redis_start(), and returns
 * before the connection exists. Returns NULL with *error on failure. */
struct lw_redis *lw_client_dial(struct latchwork_client *c, struct latchwork_error *error);
/* Functions for sending several calls in one pipeline. lw_call_encode() appends a call to `out`,
 * which the caller sends with lw_redis_send(). lw_next_reply() returns the next reply, or NULL with
 * *error if the connection broke. */
void lw_call_encode(struct lw_call *call, struct lw_buf *out);
redisReply *lw_next_reply(struct latchwork_client *c, struct lw_redis *redis,
                          struct latchwork_error *error);
/* Makes a call on the given connection. If the server does not know the script, sends the script's
 * text. Returns the reply, which may be an error reply, or NULL with *error if the connection
 * broke. */
redisReply *lw_call_on(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call,
                       struct latchwork_error *error);
/* Works like lw_call_on(), but sends the command ASKING before the call. `redis` must be connected
 * to the node that an ASK reply has named, because the slot is being moved to that node. */
redisReply *lw_call_asking(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call,
                           struct latchwork_error *error);
bool lw_is_no_script(const redisReply *reply);
/* Returns the reply unchanged, unless it is an error. Frees an error reply and returns NULL with
 * *error. */
redisReply *lw_take_reply(struct latchwork_client *c, redisReply *reply,
                          struct latchwork_error *error);
/* Fills *error for a server named `where` that cannot be reached because of `why`. */
void lw_client_failed(const char *where, const struct lw_err *why, struct latchwork_error *error);
/* Returns true if the error may be temporary. Then another attempt may succeed. */
bool lw_may_pass(const struct latchwork_error *error);

#endif
