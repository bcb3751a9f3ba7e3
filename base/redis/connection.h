/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a Redis on which a caller waits for each answer: for commands, for the exporter, and for the lock library. Workers have
 * connections that never block (base/redis/wire.h).
 *
 * Every wait has a limit. Once `err` is set the connection is of no use any more: close it and open another. An allocation that fails is an
 * error, never an abort: the lock library lives in other people's programs. hiredis formats commands and parses replies. */
#ifndef LW_BASE_REDIS_CONNECTION_H
#define LW_BASE_REDIS_CONNECTION_H

#include "base/err.h"
#include "base/redis/stream.h"
#include "base/text.h"

#include <hiredis/hiredis.h>
#include <stdint.h>

enum lw_redis_error {
    LW_REDIS_FINE,
    LW_REDIS_MEMORY, /* an allocation failed */
    LW_REDIS_LATE,   /* no answer in time */
    LW_REDIS_BROKEN,
};

struct lw_redis {
    struct lw_stream stream;
    redisReader *reader;
    struct lw_text out; /* appended, not sent yet */
    enum lw_redis_error err;
    char why[256]; /* "" while err is LW_REDIS_FINE */
};

/* Connects and logs in within connect_ms each; an answer may take answer_ms. client_name: as CLIENT LIST shows it, or NULL. NULL with *err,
 * which never holds the password and does not name the server. */
struct lw_redis *lw_redis_open(const struct lw_redis_url *at, const char *client_name, int64_t connect_ms, int64_t answer_ms,
                               struct lw_err *err);
/* Only begins to connect, does not block, and says nothing yet: lw_stream_go_on() first. */
struct lw_redis *lw_redis_start(const struct lw_redis_url *at, struct lw_err *err);
void lw_redis_close(struct lw_redis *c); /* NULL, too */
/* From the next wait on. */
void lw_redis_set_answer_ms(struct lw_redis *c, int64_t answer_ms);

/* The next reply, which the caller frees with freeReplyObject(); sends first what was appended. NULL with c->err. */
redisReply *lw_redis_reply(struct lw_redis *c);
/* Commands of a pipeline; replies come in order. The format is that of redisCommand(): %s, %b, %d … */
void lw_redis_append(struct lw_redis *c, const char *format, ...);
void lw_redis_append_argv(struct lw_redis *c, int argc, const char **argv, const size_t *len);
/* One command and its reply. */
redisReply *lw_redis_ask(struct lw_redis *c, const char *format, ...);
redisReply *lw_redis_ask_argv(struct lw_redis *c, int argc, const char **argv, const size_t *len);

/* For callers that poll: writes all of p, or sets c->err; reads once into the reader (false with c->err); the next whole reply that was
 * read, or NULL (with c->err if it is malformed). */
void lw_redis_send(struct lw_redis *c, const char *p, size_t n);
bool lw_redis_read(struct lw_redis *c);
redisReply *lw_redis_parsed(struct lw_redis *c);
/* Marks the connection as broken, unless it is already. */
void lw_redis_break(struct lw_redis *c, enum lw_redis_error err, const char *why);

#endif
