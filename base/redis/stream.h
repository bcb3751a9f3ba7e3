/* SPDX-License-Identifier: Apache-2.0 */
/* A stream: bytes to and from a Redis, over TCP, a unix socket or TLS.
 *
 *     lw_stream_start() → CONNECTING → HANDSHAKE (only TLS) → READY → lw_stream_close()
 *                              lw_stream_go_on()
 *
 * The socket is our own, because hiredis' leak into processes that other threads start meanwhile (no SOCK_CLOEXEC in 0.14) and abort when
 * memory runs out. It does not block until lw_stream_block(). One thread uses a stream at a time. Nothing raises SIGPIPE. */
#ifndef LW_BASE_REDIS_STREAM_H
#define LW_BASE_REDIS_STREAM_H

#include "base/err.h"
#include "base/redis/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { LW_STREAM_READ_SIZE = 64 << 10 }; /* read so much at once: then TLS holds nothing back that poll() does not show */

struct lw_stream {
    int fd;             /* -1: closed */
    struct ssl_st *ssl; /* NULL without TLS */
    enum { LW_STREAM_CLOSED, LW_STREAM_CONNECTING, LW_STREAM_HANDSHAKE, LW_STREAM_READY } state;
    bool blocks;
    short wants; /* what the handshake waits for; once READY: an event that reading or writing waits for beside its own */
};

/* Begins to connect to one of the addresses of the server: number `attempt` modulo their number, which goes to *addresses unless that is
 * NULL. IPv4 addresses come first: "localhost" is 127.0.0.1, where Redis listens by default. Only resolving a host's name can block. -1
 * with *err; then the stream is closed. */
int lw_stream_start(struct lw_stream *s, const struct lw_redis_url *at, unsigned attempt, unsigned *addresses, struct lw_err *err);
/* Goes on with connecting as far as that is possible without waiting. 1: READY, 0: wait for lw_stream_events(), -1 with *err: it failed,
 * and is closed. */
int lw_stream_go_on(struct lw_stream *s, const struct lw_redis_url *at, struct lw_err *err);
/* Connects, within timeout_ms in all, to the first address that answers. The stream is READY and does not block. -1 with *err. */
int lw_stream_open(struct lw_stream *s, const struct lw_redis_url *at, int64_t timeout_ms, struct lw_err *err);
/* From now on reading and writing wait, for timeout_ms at most. May be called again with another limit. */
int lw_stream_block(struct lw_stream *s, int64_t timeout_ms, struct lw_err *err);

/* The events to poll for; writing: whether there is something to write. */
short lw_stream_events(const struct lw_stream *s, bool writing);
/* Bytes read or written; 0: none now (or none in time, if it blocks); -1 with *err: the stream is broken, to be closed. */
ssize_t lw_stream_read(struct lw_stream *s, void *p, size_t n, struct lw_err *err);
ssize_t lw_stream_write(struct lw_stream *s, const void *p, size_t n, struct lw_err *err);

void lw_stream_close(struct lw_stream *s); /* says no farewell; a closed one, too */

#endif
