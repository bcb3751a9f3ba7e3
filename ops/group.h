/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork group` and the API do with the limits of the fleet and of its groups. */
#ifndef LW_OPS_GROUP_H
#define LW_OPS_GROUP_H

#include "ops/ops.h"

/* The fleet or a group: the limits in force, and what runs and waits. */
struct ops_group {
    struct lw_bytes name; /* of a group, as lw_lane_id() makes it; p is NULL for the fleet */
    struct lw_limit limit;
    bool own;           /* true: a group with limits of its own, not those of limits.group */
    int64_t running;    /* number of messages that run, as workers have stated */
    int64_t waiting;    /* number of lanes that wait in Redis for a permit of the group */
    int64_t limited_ms; /* since when a worker waits for a permit and has got none; 0: none waits */
    int64_t paused_ms;  /* since when it is paused; 0: it is not */
    int64_t now_ms;     /* time of the answer by Redis' clock */
};

/* Each verb of `latchwork group` returns the exit status. group_change() is for the verbs set,
 * pause and resume. */
int group_ls(struct ops *o);
int group_show(struct ops *o);
int group_change(struct ops *o);

/* Reads the limits in force. Returns 0, or -1 with o->err. *limits is empty if no worker has said
 * yet what its file limits. Free it with lw_limits_free(). */
int ops_limits(struct ops *o, struct lw_limits *limits);
/* Reads the fleet, which is out[0], and the n groups after it, whose names are set. Lanes that wait
 * are those of the shards that are connected. Returns 0, or -1 with o->err. */
int ops_groups_look(struct ops *o, const struct lw_limits *limits, struct ops_group *out, size_t n);

#endif
