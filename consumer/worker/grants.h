/* SPDX-License-Identifier: Apache-2.0 */
/* grants: the part of the worker that finds the granted messages in a reply. For each of these
 * messages it reads the fence, the number of attempts, and the envelope, in this order. */
#ifndef LW_CONSUMER_WORKER_GRANTS_H
#define LW_CONSUMER_WORKER_GRANTS_H

#include <hiredis/hiredis.h>
#include <stdint.h>

struct hold;
struct lane;
struct lw_worker;
struct msg;
struct shard;

/* Holds the position in a reply whose grants are read one after the other. */
struct grants {
    uint64_t fence;
    const redisReply *tries, *heads;
    size_t n, at_tries, at_heads;
};

int grants_tries(struct grants *g); /* returns how many attempts the next granted message has had */
/* Returns the next head as a message, or NULL if its envelope is malformed. */
struct msg *grants_head(struct lw_worker *w, struct grants *g);
void take_heads(struct lw_worker *w, struct shard *sh, struct lane *l, struct hold *h,
                struct grants *g, size_t n, uint64_t token);

#endif
