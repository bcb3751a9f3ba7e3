/* SPDX-License-Identifier: Apache-2.0 */
/* connection: checks which life the server is in, what its clock says, and whether it has the
 * scripts, and whether it still owns the shard's slot of a cluster. */
#ifndef LW_CONSUMER_WORKER_CONNECTION_H
#define LW_CONSUMER_WORKER_CONNECTION_H

#include "queue/life.h"
#include "queue/server.h"

#include <hiredis/hiredis.h>

struct lw_worker;
struct shard;

struct connection { /* only connection.c changes this struct */
    bool loaded;    /* true: the scripts are loaded on the server */
    /* `checking` is true if the server's life and clock must be checked before anything else is
     * sent */
    bool checking;
    struct lw_life life, new_life;
    struct lw_redis_server program; /* the kind and version of the server that answered last */
    /* `slow_trips` is the number of replies to TIME in a row that came too late to compare the
     * clocks */
    int slow_trips;
    int64_t trip_ms; /* round-trip time of the last reply to TIME that came too late */
    /* `jumped` is the id of the epoch that was lost because the server's clock jumped; "": none */
    char jumped[40];
    /* Both fields hold the clock of Redis minus the boot clock. `offset_ms` is the value in use.
     * `new_offset_ms` is the newest value. If the two differ too much, the clock of Redis has
     * jumped. */
    int64_t offset_ms, new_offset_ms;
    int64_t wall_offset_ms; /* clock of Redis minus wall clock */
    /* `elsewhere` is true if the server has said that another node of the cluster owns the shard's
     * slot */
    bool elsewhere;
    int64_t rest_ms;  /* time before which nothing is sent, because keys of the slot are moving */
    int64_t pause_ms; /* length of the last such pause; 0: there was none */
};

/* Makes the next pipeline check the server's life and clock before anything else. */
void connection_check(struct shard *sh);
void connection_scripts(struct shard *sh, bool loaded);
/* Returns true if the server's life, clock or scripts must be checked before anything else is
 * sent. */
bool connection_unsure(const struct shard *sh);
/* Returns true if this error says that the slot, or a key of it, is on another node of the cluster.
 * The server is then asked about the slot, after a pause, before anything else is sent. */
bool connection_moved(struct lw_worker *w, struct shard *sh, const char *text);
/* Returns true during such a pause. */
bool connection_rests(const struct shard *sh, int64_t now);
void connection_restart(struct lw_worker *w, struct shard *sh);
/* Closes the connection and gives up its pipeline. The unanswered calls are sent again on the next
 * connection. */
void connection_drop(struct lw_worker *w, struct shard *sh);
/* Returns true if the server has the scripts. */
bool connection_scripted(const struct shard *sh);
/* Returns the time on the clock of Redis. */
int64_t connection_redis_ms(struct lw_worker *w, const struct shard *sh);
/* Returns the clock of Redis minus the wall clock of this machine. */
int64_t connection_wall_offset_ms(const struct shard *sh);
/* Returns the id of the epoch that was lost because the server's clock jumped, or "". */
const char *connection_jumped(const struct shard *sh);
/* Returns the life of the server as it was when the epoch was joined or last confirmed. */
const struct lw_life *connection_old_life(const struct shard *sh);
/* Returns the life that the server has reported last. The worker sends this life with enter. */
const struct lw_life *connection_life(const struct shard *sh);
/* Stores the life that connection_life() returns, because the epoch is joined. */
void connection_entered(struct shard *sh);
/* Builds the call INFO, which reads the server's life, version and memory policy. */
void info_build(struct shard *sh);
void hello_build(struct lw_worker *w, struct shard *sh, bool with_scripts);
void hello_done(struct lw_worker *w, struct shard *sh);
/* Writes to `out` why the clock of the server cannot be compared with that of this machine, and
 * what the operator can do. Returns false if the clocks can be compared. */
bool connection_slow(const struct lw_worker *w, const struct shard *sh, char *out, size_t size);
void life_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void time_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

#endif
