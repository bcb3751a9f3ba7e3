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
    bool cluster; /* true: the server is a node of a cluster */
    bool fresh;   /* true: no epoch was entered on this connection yet */
    /* `left` is true if the node that owned the slot has said that it no longer owns the slot,
     * while it was still in the life that this worker knows */
    bool left;
    struct lw_cluster_node node;  /* the node that last answered CLUSTER NODES */
    struct lw_cluster_node owner; /* the node on which the epoch was last joined */
    struct lw_buf text;           /* the answer of `node` to CLUSTER NODES */
    int64_t text_ms;              /* time at which `text` was requested */
    /* `seen` is what `owner` answered to CLUSTER NODES when it last had all keys of the slot */
    struct lw_buf seen;
    int64_t whole_ms; /* time at which `seen` was requested; 0: `seen` is not usable */
    int64_t owned_ms; /* time at which `owner` was last known to own the slot */
    /* `started_ms` is computed from the uptime in the last reply to INFO. The server had certainly
     * started by this time. */
    int64_t started_ms;
    int64_t rest_ms;  /* time before which nothing is sent */
    int64_t pause_ms; /* length of the last pause after a refused call; 0: there was none */
    /* `unsure_ms` is the time at which this worker began to wait for another worker to vouch; 0:
     * this worker does not wait */
    int64_t unsure_ms;
};

void move_connected(struct shard *sh);
void move_info(struct lw_worker *w, struct shard *sh, const char *info);
/* Adds CLUSTER NODES to the pipeline if the server is a node of a cluster. */
void move_build(struct shard *sh);
void nodes_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Returns true if this error says that the slot, or a key of it, is on another node. The server is
 * then asked about the slot before anything else is sent. */
bool move_refused(struct lw_worker *w, struct shard *sh, const char *text);
/* Returns true if the server is a node of a cluster. */
bool move_in_cluster(const struct shard *sh);
bool move_rests(const struct shard *sh, int64_t now);
/* Returns true if the server is a node of a cluster and has not been asked yet who owns the
 * slot. */
bool move_unasked(const struct shard *sh);
/* Returns true if the server is a node of a cluster and has said that it does not own the slot. */
bool move_elsewhere(struct lw_worker *w, struct shard *sh);
/* Returns true if the server is a node of a cluster and the worker must call enter, because it has
 * not yet entered an epoch on this connection, or because the slot's node has changed since then.
 * The reply to enter decides whether the epoch goes on. */
bool move_joins(const struct shard *sh);
/* Returns the life of the server that had the slot before, if this worker knows that all data of
 * the slot was moved away from that server. Otherwise returns an empty life. */
struct lw_life move_from(struct lw_worker *w, const struct shard *sh);
/* Returns true if another worker may be able to vouch for the data. That worker should then enter
 * first. */
bool move_patient(struct lw_worker *w, const struct shard *sh);
/* Begins to wait for a worker that can vouch, because enter has answered UNVOUCHED. */
void move_unsure(struct lw_worker *w, struct shard *sh);
/* Notes that the epoch is joined. `another` is true if the server is in a new life. */
void move_joined(struct lw_worker *w, struct shard *sh, bool another);
void move_free(struct shard *sh);

#endif
