/* SPDX-License-Identifier: Apache-2.0 */
/* A stream: bytes to and from a Redis, over TCP, a unix socket or TLS.
 *
 *     lw_stream_start() → CONNECTING → HANDSHAKE (only TLS) → READY → lw_stream_close()
 *                              lw_stream_go_on()
 *
 * hiredis' own sockets leak into processes that other threads start meanwhile (no SOCK_CLOEXEC in
 * 0.14), and abort when memory runs out, so the stream makes its socket itself. The socket does not
 * block until lw_stream_block() is called. One thread uses a stream at a time. Nothing raises
 * SIGPIPE. */
#ifndef LW_BASE_REDIS_STREAM_H
#define LW_BASE_REDIS_STREAM_H

#include "base/err.h"
#include "base/redis/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* at least a TLS record, so that no decrypted bytes stay in OpenSSL, unseen by poll() */
enum { LW_STREAM_READ_SIZE = 64 << 10 };

struct lw_stream {
    int fd;             /* the socket; -1: closed */
    struct ssl_st *ssl; /* OpenSSL's connection; NULL without TLS */
    enum { LW_STREAM_CLOSED, LW_STREAM_CONNECTING, LW_STREAM_HANDSHAKE, LW_STREAM_READY } state;
    bool blocks;
    /* poll() event for which the handshake waits; once READY, an event that OpenSSL needs beside
     * the usual one */
    short wants;
};

/* Begins to connect to one address of the server, the one with number `attempt` modulo the number
 * of addresses. If `addresses` is not NULL, *addresses gets their number. IPv4 addresses come
 * first, because "localhost" is 127.0.0.1, where Redis listens by default. Only resolving a host's
 * name can block, and nothing is resolved if at->address is set. Returns -1 with *err and a closed
 * stream. */
int lw_stream_start(struct lw_stream *s, const struct lw_redis_url *at, unsigned attempt,
                    unsigned *addresses, struct lw_err *err);
/* Resolves the host's name, and sets at->address to the address that lw_stream_start() would
 * choose. May block. A thread that must not block can call lw_stream_start() afterwards, which then
 * resolves no name. Does nothing if `at` has a path or an address already. Returns -1 with *err. */
int lw_stream_resolve(struct lw_redis_url *at, unsigned attempt, struct lw_err *err);
/* Goes on with connecting as far as possible without waiting. Returns 1 if the stream is READY, 0
 * if the caller must wait for lw_stream_events(), -1 with *err and a closed stream. */
int lw_stream_go_on(struct lw_stream *s, const struct lw_redis_url *at, struct lw_err *err);
/* Connects to the first address that answers, within timeout_ms for all of them. The stream is
 * READY and does not block. Returns -1 with *err. */
int lw_stream_open(struct lw_stream *s, const struct lw_redis_url *at, int64_t timeout_ms,
                   struct lw_err *err);
/* Makes reading and writing wait from now on, for timeout_ms at most. May be called again with
 * another limit. */
int lw_stream_block(struct lw_stream *s, int64_t timeout_ms, struct lw_err *err);

/* Returns the events to poll for. `writing` says whether there is something to write. */
short lw_stream_events(const struct lw_stream *s, bool writing);
/* These functions return the number of bytes read or written; 0 if there are none now (or none in
 * time, if the stream blocks); -1 with *err if the stream is broken and must be closed. */
ssize_t lw_stream_read(struct lw_stream *s, void *p, size_t n, struct lw_err *err);
ssize_t lw_stream_write(struct lw_stream *s, const void *p, size_t n, struct lw_err *err);

/* closes without a TLS shutdown; may be called for a closed stream */
void lw_stream_close(struct lw_stream *s);

#endif
