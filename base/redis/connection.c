/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/connection.h"

#include "base/redis/login.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void lw_redis_break(struct lw_redis *c, enum lw_redis_error err, const char *why) {
    if (c->err) return;
    c->err = err;
    snprintf(c->why, sizeof c->why, "%.255s", why);
}

static void break_as(struct lw_redis *c, const struct lw_err *why) {
    lw_redis_break(c, why->memory ? LW_REDIS_MEMORY : LW_REDIS_BROKEN, why->text);
}

/* --- opening ---------------------------------------------------------------------------------- */

static struct lw_redis *new_connection(struct lw_err *err) {
    struct lw_redis *c = calloc(1, sizeof *c);
    if (c) c->stream.fd = -1;
    if (c) c->reader = redisReaderCreate();
    if (c && c->reader) {
        /* 0 keeps hiredis from replacing a large read buffer by a smaller one; if the allocation of
         * the smaller buffer failed, hiredis would abort the process */
        c->reader->maxbuf = 0;
        return c;
    }
    free(c);
    lw_fail_memory(err);
    return NULL;
}

void lw_redis_close(struct lw_redis *c) {
    if (!c) return;
    lw_stream_close(&c->stream);
    redisReaderFree(c->reader);
    lw_buf_free(&c->out);
    free(c);
}

struct lw_redis *lw_redis_start(const struct lw_redis_url *at, struct lw_err *err) {
    struct lw_redis *c = new_connection(err);
    if (!c || !lw_stream_start(&c->stream, at, 0, NULL, err)) return c;
    lw_redis_close(c);
    return NULL;
}

static int log_in(struct lw_redis *c, const struct lw_redis_url *at, const char *client_name,
                  struct lw_err *err) {
    struct lw_redis_login login;
    lw_redis_login(at, client_name, &login);
    for (size_t i = 0; i < login.n; i++)
        lw_redis_append_argv(c, login.command[i].n, (const char **)login.command[i].word, NULL);
    for (size_t i = 0; i < login.n; i++) {
        redisReply *r = lw_redis_reply(c);
        if (err && c->err == LW_REDIS_LATE) err->late = true;
        if (!r)
            return c->err == LW_REDIS_MEMORY ? lw_fail_memory(err)
                                             : lw_redis_login_broken(at, c->why, err);
        int failed = lw_redis_login_answer(&login, i, r, err);
        freeReplyObject(r);
        if (failed) return -1;
    }
    return 0;
}

struct lw_redis *lw_redis_open(const struct lw_redis_url *at, const char *client_name,
                               int64_t connect_ms, int64_t answer_ms, struct lw_err *err) {
    struct lw_redis *c = new_connection(err);
    if (!c) return NULL;
    if (!lw_stream_open(&c->stream, at, connect_ms, err) &&
        !lw_stream_block(&c->stream, connect_ms, err) && !log_in(c, at, client_name, err) &&
        !lw_stream_block(&c->stream, answer_ms, err))
        return c;
    lw_redis_close(c);
    return NULL;
}

bool lw_redis_usable(const struct lw_redis *c) {
    struct pollfd idle = {.fd = c->stream.fd, .events = POLLIN};
    /* the server sends nothing unasked, so if the socket is readable, the stream has ended */
    return !c->err && poll(&idle, 1, 0) == 0;
}

void lw_redis_set_answer_ms(struct lw_redis *c, int64_t answer_ms) {
    struct lw_err why = {0};
    if (!c->err && lw_stream_block(&c->stream, answer_ms, &why)) break_as(c, &why);
}

/* --- writing ---------------------------------------------------------------------------------- */

void lw_redis_send(struct lw_redis *c, const char *p, size_t n) {
    struct lw_err why = {0};
    while (n && !c->err) {
        ssize_t sent = lw_stream_write(&c->stream, p, n, &why);
        if (sent < 0) break_as(c, &why);
        if (sent == 0) lw_redis_break(c, LW_REDIS_LATE, "it takes no more bytes");
        if (sent <= 0) return;
        p += sent;
        n -= (size_t)sent;
    }
}

static void flush(struct lw_redis *c) {
    if (c->out.failed) lw_redis_break(c, LW_REDIS_MEMORY, "out of memory");
    lw_redis_send(c, c->out.p, c->out.n);
    c->out.n = 0;
}

/* Appends a command that hiredis formatted into n bytes. A negative n means that hiredis failed. */
static void append(struct lw_redis *c, char *bytes, int n) {
    if (n < 0) lw_redis_break(c, LW_REDIS_MEMORY, "out of memory");
    lw_buf_try(&c->out, bytes, n < 0 ? 0 : (size_t)n);
    free(bytes);
}

static void append_format(struct lw_redis *c, const char *format, va_list ap) {
    char *bytes = NULL;
    int n = redisvFormatCommand(&bytes, format, ap);
    append(c, bytes, n);
}

void lw_redis_append(struct lw_redis *c, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    append_format(c, format, ap);
    va_end(ap);
}

void lw_redis_append_argv(struct lw_redis *c, int argc, const char **argv, const size_t *len) {
    char *bytes = NULL;
    int n = redisFormatCommandArgv(&bytes, argc, argv, len);
    append(c, bytes, n);
}

/* --- reading ---------------------------------------------------------------------------------- */

redisReply *lw_redis_parsed(struct lw_redis *c) {
    void *reply = NULL;
    if (c->err || redisReaderGetReply(c->reader, &reply) == REDIS_OK) return reply;
    lw_redis_break(c, c->reader->err == REDIS_ERR_OOM ? LW_REDIS_MEMORY : LW_REDIS_BROKEN,
                   c->reader->errstr);
    return NULL;
}

bool lw_redis_read(struct lw_redis *c) {
    char in[LW_STREAM_READ_SIZE];
    struct lw_err why = {0};
    ssize_t n = c->err ? -1 : lw_stream_read(&c->stream, in, sizeof in, &why);
    if (n < 0) break_as(c, &why);
    if (n > 0 && redisReaderFeed(c->reader, in, (size_t)n) != REDIS_OK)
        lw_redis_break(c, c->reader->err == REDIS_ERR_OOM ? LW_REDIS_MEMORY : LW_REDIS_BROKEN,
                       c->reader->errstr);
    return n > 0 && !c->err;
}

redisReply *lw_redis_reply(struct lw_redis *c) {
    flush(c);
    for (;;) {
        redisReply *r = lw_redis_parsed(c);
        if (r || c->err) return r;
        if (!lw_redis_read(c)) return lw_redis_break(c, LW_REDIS_LATE, "no answer in time"), NULL;
    }
}

redisReply *lw_redis_ask(struct lw_redis *c, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    append_format(c, format, ap);
    va_end(ap);
    return lw_redis_reply(c);
}

redisReply *lw_redis_ask_argv(struct lw_redis *c, int argc, const char **argv, const size_t *len) {
    lw_redis_append_argv(c, argc, argv, len);
    return lw_redis_reply(c);
}
