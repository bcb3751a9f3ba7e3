/* SPDX-License-Identifier: Apache-2.0 */
/* move: a shard whose slot goes from one node of a Redis Cluster to another (the rule "moved whole" in
 * doc/explanation/protocol.md). */
#ifndef LW_CONSUMER_WORKER_MOVE_H
#define LW_CONSUMER_WORKER_MOVE_H

#include "base/bytes.h"
#include "queue/life.h"
#include "queue/nodes.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct shard;

struct move {             /* move.c */
    bool cluster;         /* the server is a node of a cluster */
    bool fresh;           /* nothing was entered on this connection yet */
    bool left;            /* the owner, in the life that we know, said that the slot is no longer its own */
    struct lw_node node;  /* who answered CLUSTER NODES last */
    struct lw_node owner; /* where the epoch was joined last */
    struct lw_buf text;   /* what `node` answered; */
    int64_t text_ms;      /* it was asked no earlier than this */
    struct lw_buf seen;   /* what `owner` answered when all keys of the slot were there */
    int64_t whole_ms;     /* it was asked for that no earlier than this; 0: never */
    int64_t owned_ms;     /* when it was last known to own the slot */
    int64_t started_ms;   /* when the process that answered INFO last was running already */
    int64_t rest_ms;      /* send nothing before this time */
    int64_t pause_ms;     /* the length of that rest; 0: no call was refused lately */
    int64_t unsure_ms;    /* since when we wait for another worker to vouch; 0: we do not */
};

void move_connected(struct shard *sh);
void move_info(struct lw_worker *w, struct shard *sh, const char *info);
void move_build(struct shard *sh); /* adds CLUSTER NODES to the pipeline if the server is a node of a cluster */
void nodes_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Whether this error says that the slot, or a key of it, is elsewhere. Then the node is asked before anything else is sent. */
bool move_refused(struct lw_worker *w, struct shard *sh, const char *text);
bool move_rests(const struct shard *sh, int64_t now);
bool move_unasked(const struct shard *sh);                  /* it turned out to be a node of a cluster, and must say whose the slot is */
bool move_elsewhere(struct lw_worker *w, struct shard *sh); /* this node does not own the slot */
bool move_joins(const struct shard *sh);                    /* the epoch may go on, if enter finds it in the data */
/* The life of the server that had the slot before and handed it over whole, as far as this worker knows; or an empty one. */
struct lw_life move_from(struct lw_worker *w, const struct shard *sh);
bool move_patient(struct lw_worker *w, const struct shard *sh);        /* another worker may know more: let it enter first */
void move_unsure(struct lw_worker *w, struct shard *sh);               /* enter has answered that it needs to know more */
void move_joined(struct lw_worker *w, struct shard *sh, bool another); /* the epoch goes on here; `another`: in another life */
void move_free(struct shard *sh);

#endif
