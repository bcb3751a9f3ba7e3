/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to Redis on which the caller waits for each answer. The commands of the program
 * `latchwork`, the exporter and the lock library use such connections. Workers use connections that
 * never block (base/redis/wire.h).
 *
 * Every wait has a limit. Once `err` is set, the connection is useless: close it and open another.
 * A failed allocation is an error and never an abort, because the lock library is part of other
 * people's programs. hiredis formats commands and parses replies. */
#ifndef LW_BASE_REDIS_CONNECTION_H
#define LW_BASE_REDIS_CONNECTION_H

#include "base/err.h"
#include "base/redis/stream.h"
#include "base/bytes.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

enum lw_redis_error {
    LW_REDIS_FINE,
    LW_REDIS_MEMORY, /* an allocation failed */
    LW_REDIS_LATE,   /* an answer did not come in time */
    LW_REDIS_BROKEN,
};

struct lw_redis {
    struct lw_stream stream;
    redisReader *reader;
    struct lw_buf out; /* bytes that were appended and not sent yet */
    void *owner;       /* any pointer of the caller; the functions below never use it */
    enum lw_redis_error err;
    char why[256]; /* text of the error; "" while err is LW_REDIS_FINE */
};

/* Connects, which may take connect_ms, and logs in. Each answer to the login may take connect_ms,
 * and each later answer may take answer_ms. client_name is the name shown in CLIENT LIST, or NULL.
 * Returns NULL with *err, which never contains the password and does not name the server. */
struct lw_redis *lw_redis_open(const struct lw_redis_url *at, const char *client_name,
                               int64_t connect_ms, int64_t answer_ms, struct lw_err *err);
/* Begins to connect, without blocking. Nothing can be sent before lw_stream_go_on() has made the
 * stream READY. */
struct lw_redis *lw_redis_start(const struct lw_redis_url *at, struct lw_err *err);
void lw_redis_close(struct lw_redis *c); /* ignores NULL */
/* Returns true if a connection can be used again: it has not failed, and the server has not closed
 * it since the last reply. Every request on the connection must have been answered. */
bool lw_redis_usable(const struct lw_redis *c);
/* Sets the time limit for answers, beginning with the next wait. */
void lw_redis_set_answer_ms(struct lw_redis *c, int64_t answer_ms);

/* Sends the appended commands, and returns the next reply, or NULL with c->err. The caller frees
 * the reply with freeReplyObject(). */
redisReply *lw_redis_reply(struct lw_redis *c);
/* Appends a command to the connection's pipeline. The replies come in the order of the commands.
 * `format` is a format of redisCommand(): %s, %b, %d … */
void lw_redis_append(struct lw_redis *c, const char *format, ...);
void lw_redis_append_argv(struct lw_redis *c, int argc, const char **argv, const size_t *len);
/* Sends one command and returns its reply, or NULL with c->err. */
redisReply *lw_redis_ask(struct lw_redis *c, const char *format, ...);
redisReply *lw_redis_ask_argv(struct lw_redis *c, int argc, const char **argv, const size_t *len);

/* These three functions are for callers that poll. lw_redis_send() writes all n bytes at p, or sets
 * c->err. lw_redis_read() reads once, and returns false if no bytes came in time or if c->err is
 * set. lw_redis_parsed() returns the next complete reply, or NULL if there is none yet; if the
 * bytes are malformed, it also sets c->err. */
void lw_redis_send(struct lw_redis *c, const char *p, size_t n);
bool lw_redis_read(struct lw_redis *c);
redisReply *lw_redis_parsed(struct lw_redis *c);
/* Marks the connection as broken, unless another error is already set. */
void lw_redis_break(struct lw_redis *c, enum lw_redis_error err, const char *why);

#endif
