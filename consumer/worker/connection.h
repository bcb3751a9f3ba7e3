/* SPDX-License-Identifier: Apache-2.0 */
/* connection: checks which life the server is in, what its clock says, and whether it has our
 * scripts. */
#ifndef LW_CONSUMER_WORKER_CONNECTION_H
#define LW_CONSUMER_WORKER_CONNECTION_H

#include "queue/life.h"
#include "queue/server.h"

#include <hiredis/hiredis.h>

struct lw_worker;
struct shard;

struct connection { /* only connection.c changes it */
    bool loaded;    /* the server has our scripts */
    bool checking;  /* the server's life and clock must be checked before anything else is sent */
    struct lw_life life, new_life;
    struct lw_server program;         /* the kind and version of the server that answered last */
    char jumped[40];                  /* id of the epoch in which the server's clock jumped; "": none */
    int64_t offset_ms, new_offset_ms; /* Redis time minus the boot clock */
    int64_t wall_offset_ms;           /* Redis time minus the wall clock */
};

void connection_check(struct shard *sh); /* makes the next pipeline check the server's life and clock before anything else */
void connection_scripts(struct shard *sh, bool loaded);
bool connection_unsure(const struct shard *sh); /* true if the life, the clock or the scripts are to be checked first */
void connection_restart(struct lw_worker *w, struct shard *sh);
/* Drops the connection and its pipeline. The unanswered calls are sent again. */
void connection_drop(struct lw_worker *w, struct shard *sh);
const struct lw_life *connection_life(struct shard *sh); /* returns the life in which the epoch is entered */
bool connection_entered(struct shard *sh); /* stores the life of connection_life(); returns whether it is another than before */
void connection_rejoined(struct lw_worker *w, struct shard *sh); /* continues the epoch, which enter has found again */
void hello_build(struct lw_worker *w, struct shard *sh, bool with_scripts);
void hello_done(struct lw_worker *w, struct shard *sh);
void life_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void time_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

#endif
