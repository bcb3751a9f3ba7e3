/* SPDX-License-Identifier: Apache-2.0 */
/* move: the part of the worker that handles a shard whose slot goes from one node of a Redis
 * Cluster to another (the rule "moved whole" in doc/explanation/protocol.md). */
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

struct move {     /* only move.c changes this struct */
    bool cluster; /* the server is a node of a cluster */
    bool fresh;   /* no epoch was entered on this connection yet */
    /* the owner said that the slot is no longer its own, and was still in the life that this worker
     * knows */
    bool left;
    struct lw_node node;  /* the node that answered CLUSTER NODES last */
    struct lw_node owner; /* the node where the epoch was joined last */
    struct lw_buf text;   /* the answer of `node` to CLUSTER NODES */
    int64_t text_ms;      /* time when `text` was requested */
    /* the answer of `owner` to CLUSTER NODES when all keys of the slot were there */
    struct lw_buf seen;
    int64_t whole_ms; /* time when `seen` was requested; 0: `seen` proves nothing */
    int64_t owned_ms; /* time when `owner` was last known to own the slot */
    /* a time at which the process that answered INFO last was running already */
    int64_t started_ms;
    int64_t rest_ms;  /* nothing is sent before this time */
    int64_t pause_ms; /* length of the last pause after a refused call; 0: there was none */
    /* time since which this worker has waited for another worker to vouch; 0: this worker does not
     * wait */
    int64_t unsure_ms;
};

void move_connected(struct shard *sh);
void move_info(struct lw_worker *w, struct shard *sh, const char *info);
/* adds CLUSTER NODES to the pipeline if the server is a node of a cluster */
void move_build(struct shard *sh);
void nodes_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Returns whether this error says that the slot, or a key of it, is on another node. If so, the
 * server is asked about the slot before anything else is sent. */
bool move_refused(struct lw_worker *w, struct shard *sh, const char *text);
bool move_rests(const struct shard *sh, int64_t now);
/* true if the server is a node of a cluster and was not yet asked who owns the slot */
bool move_unasked(const struct shard *sh);
/* true if this node does not own the slot */
bool move_elsewhere(struct lw_worker *w, struct shard *sh);
/* true if enter has to decide whether the epoch goes on here */
bool move_joins(const struct shard *sh);
/* Returns the life of the server that had the slot before, if this worker knows that the server
 * handed over all data of the slot; otherwise an empty life. */
struct lw_life move_from(struct lw_worker *w, const struct shard *sh);
/* true if another worker may be able to vouch for the data, and should enter first */
bool move_patient(struct lw_worker *w, const struct shard *sh);
/* called when enter has answered UNVOUCHED; begins the wait for a worker that can vouch */
void move_unsure(struct lw_worker *w, struct shard *sh);
/* called when the epoch is joined; `another`: the server is in a new life */
void move_joined(struct lw_worker *w, struct shard *sh, bool another);
void move_free(struct shard *sh);

#endif
