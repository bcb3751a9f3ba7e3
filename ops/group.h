/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork group` and the API do with the limits of the fleet and of its groups. */
#ifndef LW_OPS_GROUP_H
#define LW_OPS_GROUP_H

#include "ops/shares.h"

/* The fleet or a group: the limits in force, and what runs and waits. */
struct ops_group {
    struct lw_bytes name; /* of a group, as lw_lane_id() makes it; p is NULL for the fleet */
    struct lw_limit limit;
    int64_t running;    /* number of messages that run, as workers have stated */
    int64_t waiting;    /* number of lanes that wait in Redis for a permit of the group */
    int64_t limited_ms; /* since when a worker waits for a permit and has got none; 0: none waits */
    int64_t paused_ms;  /* since when it is paused; 0: it is not */
    int64_t now_ms;     /* time of the answer by Redis' clock */
    /* as supervisors have told within the last 15 s; -1: not known. `share` is the part of the
     * handler time of the whole fleet, from 0 to 1. */
    double per_second, share;
};

/* Each verb of `latchwork group` returns the exit status. group_change() is for the verbs set,
 * pause and resume. */
int group_ls(struct ops *o);
int group_show(struct ops *o);
int group_change(struct ops *o);

/* The fleet, and the groups that run, wait, are paused or have limits of their own. */
struct ops_groups {
    struct ops_group *at; /* the fleet, then groups, those with most waiting lanes first */
    size_t n, cap, shown; /* `shown` is how many of the n are asked for */
    bool complete;        /* false: there are more, which were not looked at */
    struct lw_limit each; /* limits in force of each group without limits of its own */
};
/* Reads all of them; at most `most` groups are shown. Returns 0, or -1 with o->err. Free *out in
 * both cases. */
int ops_groups(struct ops *o, size_t most, struct ops_groups *out);
void ops_groups_free(struct ops_groups *all);
/* Return JSON as doc/reference/http.md describes it. */
json_t *ops_group_json(const struct ops_group *fleet, const struct ops_group *g);
json_t *ops_limit_json(const struct lw_limit *l);
json_t *ops_each_json(const struct lw_limit *each);
/* Returns "file", "set", or NULL if nothing is limited. */
const char *ops_limit_from(const struct lw_limit *l);

/* Reads the limits in force. Returns 0, or -1 with o->err. *limits is empty if no worker has said
 * yet what its file limits. Free it with lw_limits_free(). */
int ops_limits(struct ops *o, struct lw_limits *limits);
/* Reads the fleet, which is out[0], and the n groups after it, whose names are set. Lanes that wait
 * are those of the shards that are connected. Returns 0, or -1 with o->err. */
int ops_groups_look(struct ops *o, const struct lw_limits *limits, struct ops_group *out, size_t n);
/* Says which limit holds up messages of the group, or of the fleet if `group` is NULL, in the words
 * of struct ops_why. Returns false if none does. */
bool ops_group_why(const struct ops_group *fleet, const struct ops_group *group,
                   struct ops_why *out);

#endif
