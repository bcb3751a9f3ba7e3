/* SPDX-License-Identifier: Apache-2.0 */
/* A stream transfers bytes to and from a Redis server, over TCP, a unix socket or TLS.
 *
 *     lw_stream_start() → CONNECTING → HANDSHAKE (only TLS) → READY → lw_stream_close()
 *                              lw_stream_go_on()
 *
 * The stream creates its socket without hiredis for two reasons. The sockets of hiredis 0.14 lack
 * SOCK_CLOEXEC, so processes that other threads start may inherit them. And hiredis aborts when
 * memory runs out. The socket does not block until lw_stream_block() is called. Only one
 * thread at a time may use a stream. No function raises SIGPIPE. */
#ifndef LW_BASE_REDIS_STREAM_H
#define LW_BASE_REDIS_STREAM_H

#include "base/err.h"
#include "base/redis/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* number of bytes that a caller of lw_stream_read() should have room for: at least the size of a
 * TLS record, because poll() does not see decrypted bytes that stay in OpenSSL */
enum { LW_STREAM_READ_SIZE = 64 << 10 };

struct lw_stream {
    int fd;             /* the socket; -1 if it is closed */
    struct ssl_st *ssl; /* OpenSSL's connection; NULL without TLS */
    enum { LW_STREAM_CLOSED, LW_STREAM_CONNECTING, LW_STREAM_HANDSHAKE, LW_STREAM_READY } state;
    bool blocks;
    /* During the handshake, `wants` is the poll() event for which the handshake waits. In the state
     * READY, it is an event for which OpenSSL waits in addition to the usual event, or 0. */
    short wants;
};

/* Begins to connect to one of the server's addresses: address number `attempt`, modulo the number
 * of addresses. If `addresses` is not NULL, *addresses becomes the number of addresses. IPv4
 * addresses come first, because "localhost" is 127.0.0.1, where Redis listens by default. Only the
 * resolution of a host's name can block, and nothing is resolved if at->address is set. Returns 0,
 * or -1 with *err and a closed stream. */
int lw_stream_start(struct lw_stream *s, const struct lw_redis_url *at, unsigned attempt,
                    unsigned *addresses, struct lw_err *err);
/* Resolves the host's name, and sets at->address to the address that lw_stream_start() would
 * choose. May block. Afterwards, a thread that must not block can call lw_stream_start(), which
 * then resolves no name. Does nothing if `at` already has a path or an address. Returns 0, or -1
 * with *err. */
int lw_stream_resolve(struct lw_redis_url *at, unsigned attempt, struct lw_err *err);
/* Continues to connect as far as possible without waiting. Returns 1 if the stream is READY, 0 if
 * the caller must wait for lw_stream_events(), or -1 with *err and a closed stream. */
int lw_stream_go_on(struct lw_stream *s, const struct lw_redis_url *at, struct lw_err *err);
/* Connects to the first address that answers, within timeout_ms for all addresses. Afterwards the
 * stream is READY and does not block. Returns -1 with *err. */
int lw_stream_open(struct lw_stream *s, const struct lw_redis_url *at, int64_t timeout_ms,
                   struct lw_err *err);
/* Makes the socket blocking: from now on a read or write waits for at most timeout_ms. May be
 * called again with another limit. */
int lw_stream_block(struct lw_stream *s, int64_t timeout_ms, struct lw_err *err);

/* Returns the events for which to poll the socket. `writing` is true if there is something to
 * write. */
short lw_stream_events(const struct lw_stream *s, bool writing);
/* lw_stream_read() and lw_stream_write() return the number of bytes moved, or 0 if none can be
 * moved now (on a blocking stream: within the time limit). They return -1 with *err if the stream
 * is broken and must be closed. */
ssize_t lw_stream_read(struct lw_stream *s, void *p, size_t n, struct lw_err *err);
ssize_t lw_stream_write(struct lw_stream *s, const void *p, size_t n, struct lw_err *err);

/* Closes the socket without a TLS shutdown. May be called for a closed stream. */
void lw_stream_close(struct lw_stream *s);

#endif
