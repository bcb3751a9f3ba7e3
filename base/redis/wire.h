/* SPDX-License-Identifier: Apache-2.0 */
/* A wire: one connection to a Redis that never blocks and comes back by itself.
 *
 *     WAITING --retry_ms--> FINDING --> CONNECTING --> LOGIN (login.h) --> UP --error, timeout, lw_wire_connect()--> WAITING
 *
 * FINDING, if a finder is given, asks it where the shard is, anew for each attempt (base/redis/finder.h). A server that was found by
 * Sentinels or in a cluster and answers that it does not serve the shard any more (READONLY, MOVED and the like) is dropped, and searched
 * for again. Nothing of a pipeline is ever sent twice.
 *
 * The owner polls lw_wire_poll() until lw_wire_due_ms() at the latest and then calls lw_wire_serve(), from which all events come. `up`
 * is told once a connection is ready: nothing but the login was sent on it. From then on lw_wire_send() sends pipelines, each reply
 * comes in order, until `down`, after which nothing of that connection is told any more. Pipelines are answered within answer_ms since the
 * last progress (a reply, or bytes taken by the server), or the connection is given up.
 *
 * New attempts follow at once where the last connection was steady or lw_wire_connect() is asked for only now and then, else after a
 * backoff with jitter, doubling from 50 ms to backoff_max_ms. Resolving a host's name is the one thing that can block: give addresses where
 * the resolver is slow.
 *
 * Streams (base/redis/stream.h) and writing are our own, because hiredis' redisBufferWrite() moves the whole rest of a big pipeline after
 * each write; replies are parsed by hiredis. */
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
    const struct lw_redis_url *url; /* where to connect, borrowed for the wire's life; or: */
    struct lw_finder *finder;       /* whom to ask where `shard` is; borrowed for the wire's life */
    int shard;
    const char *name;       /* copied, as owner is; for the log: "shard 0", "shard 0, hints" */
    const char *owner;      /* who connects, for CLIENT LIST; NULL: the connection has no name */
    int64_t connect_ms;     /* limit for connecting and login; 0: 2 s */
    int64_t answer_ms;      /* limit for an answer; 0: 5 s */
    int64_t backoff_max_ms; /* longest pause between attempts; 0: 2 s */
    void (*up)(void *ctx);
    void (*reply)(void *ctx, const redisReply *reply); /* borrowed */
    void (*down)(void *ctx, const char *why);          /* the connection was up and is lost; a new attempt is already under way */
    void *ctx;
};

struct lw_wire *lw_wire_open(const struct lw_wire_setup *setup); /* the first attempt is made by the first serve */
void lw_wire_close(struct lw_wire *w);                           /* calls no event function; must not be called from one */

/* Drops the connection, if there is one, without calling `down`, and starts a new one. Calls no
 * event function. */
void lw_wire_connect(struct lw_wire *w);
/* Sends one pipeline; only while the connection is up. Copies the arguments. Calls no event
 * function. */
void lw_wire_send(struct lw_wire *w, const struct lw_commands *c);
bool lw_wire_is_up(const struct lw_wire *w);
const char *lw_wire_trouble(const struct lw_wire *w); /* why the last attempt to connect failed; NULL: it is up, or was until now */

struct pollfd lw_wire_poll(const struct lw_wire *w);  /* for poll(); its fd is -1 between attempts */
int64_t lw_wire_due_ms(const struct lw_wire *w);      /* when to serve even without an event, on the boot clock; INT64_MAX: never */
void lw_wire_serve(struct lw_wire *w, short revents); /* cheap if there is nothing to do */

#endif
