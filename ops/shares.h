/* SPDX-License-Identifier: Apache-2.0 */
/* What groups take of the handlers of the fleet (`group.from`). Each supervisor adds up what its
 * workers say (consumer/shares.h) and writes it to Redis with its heartbeat (ops/lua/fleet.lua),
 * and who wants to see it adds up what the supervisors have written. Nothing that is read is
 * trusted, as in ops/fleet.h. */
#ifndef LW_OPS_SHARES_H
#define LW_OPS_SHARES_H

#include "ops/ops.h"

enum { OPS_SHARES_BYTES = 8192 /* maximum length of the text of a supervisor */ };

struct ops_share {
    struct lw_bytes name;     /* of a group, as lw_lane_id() makes it; owned by the shares */
    int64_t running, busy_ms; /* messages in handlers, and time in handlers in the last minute */
    double per_second;        /* starts per second in the last 10 to 15 s */
};
struct ops_shares {
    struct ops_share all;  /* all messages, also those of groups that are not in the rows */
    struct ops_share *row; /* in any order until ops_shares_sum(), then by name */
    size_t n, cap;
    bool complete; /* true: a group that has no row takes nothing */
};

/* Adds the figures of `one`, whose name is copied. With `name.p` NULL they are those of all. */
void ops_shares_add(struct ops_shares *s, const struct ops_share *one);
/* Makes one row of all those of a group. */
void ops_shares_sum(struct ops_shares *s);
/* Returns NULL if the group has no row. */
const struct ops_share *ops_shares_find(const struct ops_shares *s, struct lw_bytes name);
void ops_shares_free(struct ops_shares *s);

/* Writes what a supervisor says of its workers: as many groups as fit, those that took most time
 * first. Changes the order of the rows. */
void ops_shares_text(struct lw_buf *out, struct ops_shares *s);
/* Adds what a supervisor has said. Returns false, and adds nothing, if it is malformed. */
bool ops_shares_take(struct ops_shares *s, struct lw_bytes text);
/* Reads what all supervisors say. Returns 0, or -1 with o->err. Free *out in both cases. */
int ops_shares_read(struct ops *o, struct ops_shares *out);

#endif
