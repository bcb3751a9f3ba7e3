/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answer of a node of a Redis Cluster to CLUSTER NODES, as far as a shard needs it:
 * whether the node owns the shard's slot, and which nodes are masters.
 *
 * Of all slots that are being moved, a node knows only those that leave it or come to it, so the
 * answer counts only for that node. */
#ifndef LW_QUEUE_NODES_H
#define LW_QUEUE_NODES_H

#include <stdbool.h>

enum { LW_NODE_ID = 41 };

enum lw_slot_at {
    LW_SLOT_ELSEWHERE, /* the slot is another node's, or nobody's */
    /* the slot is this node's, but keys of it may have left for another node already */
    LW_SLOT_LEAVING,
    LW_SLOT_WHOLE /* the slot is this node's, with all its keys */
};

struct lw_node {
    char id[LW_NODE_ID];
    bool master;
    char config_epoch[24]; /* grows when the node takes a slot over */
    enum lw_slot_at slot;
};

/* Finds the node that gave this answer, and says where the slot is. Returns false if the text is
 * not such an answer. */
bool lw_nodes_self(const char *nodes, int slot, struct lw_node *out);
/* Returns whether the answer lists this node as a master. */
bool lw_nodes_master(const char *nodes, const char *id);

#endif
