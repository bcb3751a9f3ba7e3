/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a client: a bounded pool of connections to each of its servers (peers.h), and calls
 * that are sent on them.
 *
 *     lw_call_script() → lw_call_key() → lw_call_add()… → lw_client_call() → freeReplyObject()
 *
 * A call uses an idle connection or opens one. If that connection breaks or stays silent, the
 * client also closes all idle connections to that server, since they are likely dead as well, and
 * sends the call once more on a new connection. So every call may be sent twice. Sending a call
 * twice is safe, because each call names its token.
 *
 * In a cluster, a call goes to the owner of the slot of its first key. If that node refuses the
 * call because the slot is elsewhere or is being moved, nothing was executed, and the call is sent
 * to the node that the refusal names (MOVED, ASK), or to the same one after a pause (TRYAGAIN,
 * CLUSTERDOWN, READONLY), for command_ms at most. A script that stops in the middle for such a
 * reason may have taken effect, as if its answer had been lost. */
#ifndef LW_LOCK_CLIENT_H
#define LW_LOCK_CLIENT_H

#include "base/bytes.h"
#include "base/text.h"
#include "base/redis/connection.h"
#include "base/redis/servers.h"
#include "include/latchwork/lock.h"
#include "lock/peers.h"
#include "lock/scripts.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LW_CALL_ARGS = 32, LW_CALL_NUMBERS = 8, LW_CLIENT_ID = 16 };

struct lw_keeper;
struct lw_waking;

struct latchwork_client {
    struct lw_redis_url url; /* the server; in a cluster the login for all nodes */
    /* Servers of an application, owned, which are asked for the address of `shard` before each
     * connection; NULL: the server is at `url`. */
    struct lw_redis_servers *servers;
    int shard;
    char *where; /* the URL without its password, for errors */
    unsigned flags;
    int connections;
    int64_t connect_ms, command_ms;
    char label[LATCHWORK_MAX_LABEL + 1];
    char name[LATCHWORK_MAX_LABEL + 32]; /* name of the connections in CLIENT LIST */
    /* the client's random id: the client is woken through the channel lwl:wake:ID */
    char id[LW_CLIENT_ID + 1];
    /* 's' and id: the client's name in the scripts if it is woken through sharded channels */
    char sharded_id[LW_CLIENT_ID + 2];
    /* lw_forks() when the client was opened, to notice a child process */
    unsigned forks;
    atomic_bool interrupted;

    pthread_mutex_t mutex; /* guards the peers and the table */
    pthread_cond_t freed;  /* signalled when a connection of any peer becomes free */
    struct lw_peer **peer; /* array of peers; unused places are NULL */
    size_t n_peers;
    uint64_t peer_ids; /* number of peers made so far */
    /* owners of all slots; NULL: there is one server, which is peer[0] */
    struct lw_slot_table *table;
    /* in a cluster, the slot whose owner gets the calls that name no key; LW_ANY_SLOT: any node
     * gets them */
    int slot;

    /* guards the start of the threads, which are started when first needed */
    pthread_mutex_t start;
    _Atomic(struct lw_keeper *) keeper;
    _Atomic(struct lw_waking *) waking;
};

struct lw_call {
    const struct lw_script *script; /* the script to call; NULL: arg[] is a whole command */
    int n;
    const char *arg[LW_CALL_ARGS]; /* the arguments, borrowed; valid until the call has ended */
    size_t size[LW_CALL_ARGS];
    int slot; /* slot of the first key; LW_ANY_SLOT: the call names no key */
    int n_numbers;
    char number[LW_CALL_NUMBERS][24];
    int again;       /* index of the argument that becomes "1" if the call is sent again; 0: none */
    bool sent_again; /* the call was sent again because an answer was lost */
    int64_t sent_ms; /* boot clock, shortly before the call was last sent */
};

/* Fills *error (which may be NULL) and returns `result`. */
enum latchwork_result lw_lock_fail(struct latchwork_error *error, enum latchwork_result result,
                                   int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Reports a mistake of the caller with the code ARGUMENT. */
#define lw_lock_wrong(error, ...) \
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_ARGUMENT, __VA_ARGS__)
/* Reports a failed allocation with the code MEMORY. */
enum latchwork_result lw_lock_no_memory(struct latchwork_error *error);
/* Returns the error code for a broken connection: MEMORY if an allocation failed, otherwise
 * CONNECT. */
int lw_broken_code(enum lw_redis_error error);

/* Does what latchwork_client_open() does, for a server whose address must be found anew before each
 * connection. Takes over *servers, even after a failure, and leaves *servers empty. `where` is the
 * server's name in errors. */
struct latchwork_client *lw_client_open_servers(struct lw_redis_servers *servers, int shard,
                                                const char *where, struct latchwork_error *error);
/* Returns false, with the error, if this process is a child of the one that opened the client. */
bool lw_client_ok(const struct latchwork_client *c, struct latchwork_error *error);
/* number of forks between this process and the one that first used the library */
unsigned lw_forks(void);
/* Writes random hex digits and a NUL. `size` is odd. Returns false, with *error, if the system
 * gives no random bytes. */
bool lw_random_hex(char *out, size_t size, struct latchwork_error *error);
uint64_t lw_random(uint64_t below); /* a random number less than `below`; not for secrets */

void lw_call_script(struct lw_call *call, const struct lw_script *script, int n_keys);
void lw_call_add(struct lw_call *call, const char *p, size_t n);
/* appends a key; the first one determines the slot */
void lw_call_key(struct lw_call *call, struct lw_bytes key);
void lw_call_text(struct lw_call *call, const char *s);
void lw_call_number(struct lw_call *call, int64_t n);

/* Makes a call. Returns a reply that is not an error, or NULL with *error. */
redisReply *lw_client_call(struct latchwork_client *c, struct lw_call *call,
                           struct latchwork_error *error);

/* Returns a connection to the slot's owner, from the pool, for several commands in a row. */
struct lw_redis *lw_client_get(struct latchwork_client *c, int slot, struct latchwork_error *error);
/* Returns a connection to a peer, from the peer's pool. */
struct lw_redis *lw_client_get_at(struct latchwork_client *c, uint64_t peer,
                                  struct latchwork_error *error);
/* Gives a connection back to its pool. If the connection is broken, closes it, and the idle
 * connections to the same server as well. */
void lw_client_put(struct latchwork_client *c, struct lw_redis *redis);
/* Opens a connection to a peer, outside of the peer's pool, for a thread that needs a connection of
 * its own. */
struct lw_redis *lw_client_connect(struct latchwork_client *c, uint64_t peer, int64_t connect_ms,
                                   int64_t command_ms, struct latchwork_error *error);
/* Begins to connect with lw_redis_start(), and does not wait. */
struct lw_redis *lw_client_dial(struct latchwork_client *c, struct latchwork_error *error);
/* The next two functions send several calls at once: lw_redis_send() takes what lw_call_encode()
 * wrote, and lw_next_reply() returns one reply after the other, or NULL with *error if the
 * connection broke. */
void lw_call_encode(struct lw_call *call, struct lw_text *out);
redisReply *lw_next_reply(struct latchwork_client *c, struct lw_redis *redis,
                          struct latchwork_error *error);
/* Makes a call on the given connection. Sends the script's text if the server does not know it.
 * Returns NULL with *error if the connection broke. */
redisReply *lw_call_on(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call,
                       struct latchwork_error *error);
/* Makes the same call at the node that a refusal with ASK named: the slot is being moved to that
 * node. */
redisReply *lw_call_asking(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call,
                           struct latchwork_error *error);
bool lw_is_no_script(const redisReply *reply);
/* Returns the reply unchanged. If the reply is an error, frees it and returns NULL with *error. */
redisReply *lw_take_reply(struct latchwork_client *c, redisReply *reply,
                          struct latchwork_error *error);
/* Fills *error for a server at `where` that cannot be reached because of `why`. */
void lw_client_failed(const char *where, const struct lw_err *why, struct latchwork_error *error);
/* Returns true if the error may be temporary, so that another attempt makes sense. */
bool lw_may_pass(const struct latchwork_error *error);

#endif
