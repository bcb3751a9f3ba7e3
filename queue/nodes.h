/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answer of a Redis Cluster node to CLUSTER NODES, as far as a shard needs it: whether
 * the node owns the shard's slot, and which nodes are masters.
 *
 * Of all slots that are being moved, a node knows only those that leave it or come to it. Therefore
 * the answer says nothing about slots that move between other nodes. */
#ifndef LW_QUEUE_NODES_H
#define LW_QUEUE_NODES_H

#include <stdbool.h>

enum { LW_NODE_ID = 41 };

enum lw_slot_at {
    LW_SLOT_ELSEWHERE, /* another node owns the slot, or no node does */
    /* the node owns the slot, but keys of the slot may already have moved to another node */
    LW_SLOT_LEAVING,
    LW_SLOT_WHOLE /* the node owns the slot and has all its keys */
};

struct lw_cluster_node {
    char id[LW_NODE_ID];
    bool master;
    /* the node's CONFIG-EPOCH, which grows when the node takes over a slot */
    char config_epoch[24];
    enum lw_slot_at slot;
};

/* Fills in *out for the node that gave this answer. out->slot says whether this node owns the slot.
 * Returns false if the text is not an answer to CLUSTER NODES. */
bool lw_nodes_self(const char *nodes, int slot, struct lw_cluster_node *out);
/* Returns true if the answer lists the node `id` as a master. */
bool lw_nodes_master(const char *nodes, const char *id);

#endif
