/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LW_CONSUMER_WORKER_CONNECTION_H
#define LW_CONSUMER_WORKER_CONNECTION_H

#include "consumer/worker/pipe.h"
#include "queue/life.h"
#include "queue/server.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct shard;

struct connection {
    bool loaded; /* true: the scripts are loaded on the server */
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

struct tend {
    int64_t at_ms;
    /* `due_ms` is the time at which tend must check the lanes, because the first of the backoffs
     * that this worker has set ends then; 0: there is no such backoff */
    int64_t due_ms;
};

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now);
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void tend_now(struct shard *sh, int64_t now);
/* Makes tend check the lanes at this time at the latest, for example because a short backoff ends
 * at this time. */
void tend_by(struct shard *sh, int64_t due_ms);

struct refusal {
    enum call_kind kind;
    bool allowed; /* true: a call of this `kind` has succeeded since the refusal */
    /* `since_ms` and `last_ms` are the times of the first and of the last refused call of the
     * present refusal. `last_ms` is 0 if there is no refusal now. */
    int64_t since_ms, last_ms;
    int64_t said_ms;
    char text[240];
};

/* Handles an error reply to a call of the kind `kind`. Returns false if the error denies no right.
 * Otherwise remembers the refusal, and logs it from time to time. */
bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error);
/* Call this function when a call of this kind has succeeded. If there is a refusal of the same
 * kind, the function notes the success in it. */
void refusal_allowed(struct shard *sh, enum call_kind kind);
/* Ends the refusal by Redis after enough time has passed without a refused call. Call this function
 * once per turn. */
void refusal_look(struct lw_worker *w, struct shard *sh, int64_t now);
/* Returns true while nothing may be admitted because of a refusal. */
bool refusal_holds(const struct shard *sh, int64_t now);
/* Returns a text that describes the refusal, or NULL if there is no refusal. */
const char *refusal_text(const struct shard *sh);

#endif
