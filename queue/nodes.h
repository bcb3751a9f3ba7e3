/* SPDX-License-Identifier: Apache-2.0 */
/* What a node of a Redis Cluster answers to CLUSTER NODES, as far as a shard asks: whose its slot is, and who is a master.
 *
 * Of the slots that are on their way from or to another node, a node knows only its own: so the answer counts for the node that gave it. */
#ifndef LW_QUEUE_NODES_H
#define LW_QUEUE_NODES_H

#include <stdbool.h>

enum { LW_NODE_ID = 41 };

enum lw_slot_at {
    LW_SLOT_ELSEWHERE, /* another node's, or nobody's */
    LW_SLOT_LEAVING,   /* this node's, and keys of it may have left for another node already */
    LW_SLOT_WHOLE      /* this node's, with all its keys */
};

struct lw_node {
    char id[LW_NODE_ID];
    bool master;
    char config_epoch[24]; /* grows when the node takes a slot over */
    enum lw_slot_at slot;
};

/* The node that gave this answer. Returns false if the text is not such an answer. */
bool lw_nodes_self(const char *nodes, int slot, struct lw_node *out);
/* Whether the answer lists this node as a master. */
bool lw_nodes_master(const char *nodes, const char *id);

#endif
