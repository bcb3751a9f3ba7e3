/* SPDX-License-Identifier: Apache-2.0 */
/* What a client is inside: a bounded pool of connections, and a call of Redis on one of them.
 *
 *     lw_call_script() → lw_call_add()… → lw_client_call() → freeReplyObject()
 *
 * A call goes out on a free connection, or on a new one. Where the connection breaks or stays silent, all idle ones are dropped too (they
 * are likely as dead) and the call is sent once more on a new one: every call may be sent twice, because each names its token. */
#ifndef LW_LOCK_CLIENT_H
#define LW_LOCK_CLIENT_H

#include "base/bytes.h"
#include "base/text.h"
#include "base/redis/connection.h"
#include "base/redis/servers.h"
#include "include/latchwork/lock.h"
#include "lock/scripts.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LW_CALL_ARGS = 32, LW_CALL_NUMBERS = 8, LW_CLIENT_ID = 16 };

struct lw_keeper;
struct lw_waking;

struct latchwork_client {
    struct lw_redis_url url;
    struct lw_redis_servers *servers; /* asked where `shard` is, before each connection; NULL: it is at `url`. Owned */
    int shard;
    char *where; /* the URL without its password, for errors */
    unsigned flags;
    int connections;
    int64_t connect_ms, command_ms;
    char label[LATCHWORK_MAX_LABEL + 1];
    char name[LATCHWORK_MAX_LABEL + 32]; /* as CLIENT LIST shows it */
    char id[LW_CLIENT_ID + 1];           /* random: its channel is lwl:wake:ID */
    unsigned forks;                      /* of this process when it was opened */
    atomic_bool interrupted;

    pthread_mutex_t mutex;
    pthread_cond_t freed;
    struct lw_redis **idle; /* a stack */
    int n_idle, n_open;

    pthread_mutex_t start; /* guards the start of threads, which happens when they are first needed */
    _Atomic(struct lw_keeper *) keeper;
    _Atomic(struct lw_waking *) waking;
};

struct lw_call {
    const struct lw_script *script; /* NULL: arg is a complete command */
    int n;
    const char *arg[LW_CALL_ARGS]; /* borrowed until the call has ended */
    size_t size[LW_CALL_ARGS];
    int n_numbers;
    char number[LW_CALL_NUMBERS][24];
    int again;       /* index of the argument that becomes "1" if the call is sent again; 0: none */
    bool sent_again; /* the call was sent again because an answer was lost */
    int64_t sent_ms; /* a time before it was last sent */
};

/* Fills *error (which may be NULL) and returns `result`. */
enum latchwork_result lw_lock_fail(struct latchwork_error *error, enum latchwork_result result, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Reports a mistake of the caller: ERROR with ARGUMENT. */
#define lw_lock_wrong(error, ...) lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_ARGUMENT, __VA_ARGS__)
/* Reports a failed allocation: ERROR with MEMORY. */
enum latchwork_result lw_lock_no_memory(struct latchwork_error *error);
/* The reason why a connection broke: MEMORY when an allocation failed, else CONNECT. */
int lw_broken_code(enum lw_redis_error error);

/* As latchwork_client_open(), for a server that is found anew before each connection. Takes over *servers, also if it fails, and leaves it
 * empty. where: how messages call the server. */
struct latchwork_client *lw_client_open_servers(struct lw_redis_servers *servers, int shard, const char *where,
                                                struct latchwork_error *error);
/* lw_client_ok() returns false, with the error, in a child of the process that opened the
 * client. */
bool lw_client_ok(const struct latchwork_client *c, struct latchwork_error *error);
unsigned lw_forks(void); /* number of forks between this process and the one that first used the library */
/* Writes random bytes as hex with a NUL; size is odd. Returns false, with *error, if the system
 * gives none. */
bool lw_random_hex(char *out, size_t size, struct latchwork_error *error);
uint64_t lw_random(uint64_t below); /* a random number below `below`; not for secrets */

void lw_call_script(struct lw_call *call, const struct lw_script *script, int n_keys);
void lw_call_add(struct lw_call *call, const char *p, size_t n);
void lw_call_text(struct lw_call *call, const char *s);
void lw_call_number(struct lw_call *call, int64_t n);

/* Makes a call. Returns a reply that is not an error, or NULL with *error. */
redisReply *lw_client_call(struct latchwork_client *c, struct lw_call *call, struct latchwork_error *error);

/* A connection for several commands in a row, or for a thread that needs its own. */
struct lw_redis *lw_client_get(struct latchwork_client *c, struct latchwork_error *error);
void lw_client_put(struct latchwork_client *c, struct lw_redis *redis); /* a broken one is dropped, with all that are idle */
struct lw_redis *lw_client_connect(struct latchwork_client *c, int64_t connect_ms, int64_t command_ms, struct latchwork_error *error);
/* Only begins to connect: lw_redis_start(). */
struct lw_redis *lw_client_dial(struct latchwork_client *c, struct latchwork_error *error);
/* What is wanted of several calls, for lw_redis_send(); each reply is fetched by lw_next_reply(), NULL with *error where the connection
 * broke. */
void lw_call_encode(struct lw_call *call, struct lw_text *out);
redisReply *lw_next_reply(struct latchwork_client *c, struct lw_redis *redis, struct latchwork_error *error);
/* Makes a call on a connection; sends the script's text if the server does not know it. Returns
 * NULL with *error if the connection broke. */
redisReply *lw_call_on(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call, struct latchwork_error *error);
bool lw_is_no_script(const redisReply *reply);
/* Returns the reply as it is, or frees it and returns NULL with *error if it is an error. */
redisReply *lw_take_reply(struct latchwork_client *c, redisReply *reply, struct latchwork_error *error);
/* Whether the error may be temporary, so that another attempt makes sense. */
bool lw_may_pass(const struct latchwork_error *error);

#endif
