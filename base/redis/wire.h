/* SPDX-License-Identifier: Apache-2.0 */
/* A wire is one connection to Redis that never blocks and reconnects when it breaks.
 *
 *     WAITING --retry_ms--> FINDING --> CONNECTING --> LOGIN (login.h) --> UP
 *     UP --error, timeout, lw_wire_connect()--> WAITING
 *
 * In FINDING, if there is a finder, the wire asks it for the shard's server before each attempt to
 * connect (base/redis/finder.h). If that server later answers that it no longer serves the shard
 * (READONLY, MOVED and similar errors), the wire closes the connection and asks the finder again.
 * While it is up, it asks Sentinels once a second, and leaves a server that they no longer name. No
 * part of a pipeline is ever sent twice.
 *
 * The owner polls lw_wire_poll() until lw_wire_due_ms() at the latest, and then calls
 * lw_wire_serve(), which alone calls the event functions `up`, `reply` and `down`. `up` is called
 * when a connection is ready; so far only the login has been sent on this connection. From then on
 * lw_wire_send() sends pipelines, and `reply` is called for each reply in order. After `down`, no
 * reply of that connection is reported any more. The wire closes the connection if a pipeline is
 * unanswered and there is no progress (neither a reply nor bytes that the server accepts) for
 * answer_ms.
 *
 * A new attempt to connect follows at once if the last connection was up for long enough, or if it
 * was closed by lw_wire_connect() and this function had closed no connection shortly before.
 * Otherwise the attempt follows after a backoff with jitter, which doubles from 50 ms to
 * backoff_max_ms. Only the resolution of a configured host name can block, so configure addresses
 * if the resolver is slow.
 * The names of servers that the finder finds are resolved in the finder's thread.
 *
 * Writing and streams (base/redis/stream.h) are our own code, because redisBufferWrite() of hiredis
 * moves the whole rest of a big pipeline after each write. hiredis parses the replies. */
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
    /* server to connect to, which must outlive the wire; NULL if `finder` finds the server */
    const struct lw_redis_url *url;
    /* finder that the wire asks for the server of `shard`; the finder must outlive the wire */
    struct lw_finder *finder;
    int shard;
    /* if true, an error which says that the shard's slot is elsewhere is passed to `reply`, and the
     * connection stays up */
    bool hands_on_moved;
    /* name of the connection in the log, such as "shard 0" or "shard 0, hints"; lw_wire_open()
     * copies this name and `owner` */
    const char *name;
    const char *owner;      /* name of the connection in CLIENT LIST; NULL for none */
    int64_t connect_ms;     /* time limit for connecting and login together; 0 means 2 s */
    int64_t answer_ms;      /* time limit for an answer; 0 means 5 s */
    int64_t backoff_max_ms; /* maximum wait between two attempts to connect; 0 means 2 s */
    void (*up)(void *ctx);
    /* called for each reply, which the wire frees afterwards */
    void (*reply)(void *ctx, const redisReply *reply);
    /* called when a connection that was up is lost; the next attempt is already scheduled */
    void (*down)(void *ctx, const char *why);
    void *ctx;
};

/* Opens a wire. The first lw_wire_serve() makes the first attempt to connect. */
struct lw_wire *lw_wire_open(const struct lw_wire_setup *setup);
/* Closes a wire without calling an event function. An event function must not call
 * lw_wire_close(). */
void lw_wire_close(struct lw_wire *w);

/* Closes the connection, if there is one, without calling `down`, and schedules a new attempt.
 * Calls no event function. */
void lw_wire_connect(struct lw_wire *w);
/* Sends one pipeline, whose arguments are copied. May be called only while the connection is up.
 * Calls no event function. */
void lw_wire_send(struct lw_wire *w, const struct lw_commands *c);
bool lw_wire_is_up(const struct lw_wire *w);
/* Returns the reason why the last attempt to connect failed, or NULL if no attempt has failed since
 * the wire was last up. */
const char *lw_wire_trouble(const struct lw_wire *w);

/* Returns the descriptor and the events to poll. The descriptor is -1 between attempts to
 * connect. */
struct pollfd lw_wire_poll(const struct lw_wire *w);
/* Returns the time on the boot clock at which lw_wire_serve() must be called even without an event,
 * or INT64_MAX if there is no such time. */
int64_t lw_wire_due_ms(const struct lw_wire *w);
/* Handles events and timeouts. A call with nothing to handle is cheap. */
void lw_wire_serve(struct lw_wire *w, short revents);

#endif
