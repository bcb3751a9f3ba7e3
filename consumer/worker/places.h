/* SPDX-License-Identifier: Apache-2.0 */
/* places: how a call names messages: by segment and index. */
#ifndef LW_CONSUMER_WORKER_PLACES_H
#define LW_CONSUMER_WORKER_PLACES_H

#include "base/redis/command.h"
#include "consumer/worker/limits.h"

struct part;
struct shard;

enum { GROUPS_MAX = 250 }; /* maximum segments per call, because one byte names a segment */

struct places {
    int n; /* number of segments */
    struct group {
        struct part *part;
        int64_t segment;
        int lo, hi; /* first and last byte of its messages' states */
        int n;      /* number of its messages */
    } group[GROUPS_MAX];
    int n_bytes;
    unsigned char bytes[3 * 2 * BATCH];
};

bool places_fit(const struct places *p, int more);
void places_add(struct places *p, struct part *part, int64_t offset);
void places_keys(struct shard *sh, const struct places *p);
void places_args(struct lw_commands *c, const struct places *p);

#endif
