/* SPDX-License-Identifier: Apache-2.0 */
/* A wire is one connection to Redis that never blocks and reconnects by itself.
 *
 *     WAITING --retry_ms--> FINDING --> CONNECTING --> LOGIN (login.h) --> UP
 *     UP --error, timeout, lw_wire_connect()--> WAITING
 *
 * In FINDING, if there is a finder, the wire asks it for the shard's server, before each attempt
 * (base/redis/finder.h). If a server that was found answers that it does not serve the shard any
 * more (READONLY, MOVED and the like), the wire closes the connection and asks again. Nothing of a
 * pipeline is ever sent twice.
 *
 * The owner polls lw_wire_poll() until lw_wire_due_ms() at the latest, and then calls
 * lw_wire_serve(), from which all events come. `up` is called when a connection is ready; only the
 * login was sent on it so far. Then lw_wire_send() sends pipelines, and each reply comes in order
 * until `down`, after which nothing more of that connection is reported. If there is no progress (a
 * reply, or bytes that the server took) for answer_ms while a pipeline is unanswered, the wire
 * closes the connection.
 *
 * A new attempt follows at once if the last connection was steady, or if lw_wire_connect() is
 * called only now and then. Otherwise it follows after a backoff with jitter, which doubles from 50
 * ms to backoff_max_ms. Only resolving the host's name of a URL can block, so give addresses if the
 * resolver is slow. The finder's thread resolves the names of servers that it finds.
 *
 * Streams (base/redis/stream.h) and writing are our own, because hiredis' redisBufferWrite() moves
 * the whole rest of a big pipeline after each write. hiredis parses the replies. */
#ifndef LW_BASE_REDIS_WIRE_H
#define LW_BASE_REDIS_WIRE_H

#include "base/redis/command.h"
#include "base/redis/finder.h"
#include "base/redis/url.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_wire;

struct lw_wire_setup {
    /* server to connect to, which must outlive the wire; NULL: `finder` finds it */
    const struct lw_redis_url *url;
    /* finder to ask for the server of `shard`; must outlive the wire */
    struct lw_finder *finder;
    int shard;
    /* true: a reply which says that the shard's slot is elsewhere is passed to `reply`, and the
     * connection stays up */
    bool hands_on_moved;
    /* name of the connection in the log: "shard 0", "shard 0, hints"; copied, as is `owner` */
    const char *name;
    const char *owner;      /* name of the connection in CLIENT LIST; NULL: none */
    int64_t connect_ms;     /* limit for connecting and for the login; 0: 2 s */
    int64_t answer_ms;      /* limit for an answer; 0: 5 s */
    int64_t backoff_max_ms; /* longest pause between attempts; 0: 2 s */
    void (*up)(void *ctx);
    /* called for each reply, which is borrowed */
    void (*reply)(void *ctx, const redisReply *reply);
    /* called when a connection that was up is lost; the next attempt is already under way */
    void (*down)(void *ctx, const char *why);
    void *ctx;
};

/* opens a wire; the first lw_wire_serve() makes the first attempt */
struct lw_wire *lw_wire_open(const struct lw_wire_setup *setup);
/* calls no event function; no event function may call it */
void lw_wire_close(struct lw_wire *w);

/* Closes the connection, if there is one, without calling `down`, and starts a new one. Calls no
 * event function. */
void lw_wire_connect(struct lw_wire *w);
/* Sends one pipeline, and copies its arguments. May be called only while the connection is up.
 * Calls no event function. */
void lw_wire_send(struct lw_wire *w, const struct lw_commands *c);
bool lw_wire_is_up(const struct lw_wire *w);
/* why the last attempt failed; NULL: the wire is up, or was up until just now */
const char *lw_wire_trouble(const struct lw_wire *w);

/* what to poll; the fd is -1 between attempts */
struct pollfd lw_wire_poll(const struct lw_wire *w);
/* boot clock; time of the next serve even without an event; INT64_MAX: none */
int64_t lw_wire_due_ms(const struct lw_wire *w);
/* handles events and timeouts; cheap if there are none */
void lw_wire_serve(struct lw_wire *w, short revents);

#endif
