/* SPDX-License-Identifier: Apache-2.0 */
/* rival: the part of the worker that notices another fleet that has the name and consumer group of
 * this fleet, but uses another Redis. */
#ifndef LW_CONSUMER_WORKER_RIVAL_H
#define LW_CONSUMER_WORKER_RIVAL_H

#include <stdbool.h>
#include <stdint.h>

struct lw_worker;

enum { FLEETS = 8 };

/* Describes another fleet in this fleet's consumer group. `first_ms` and `last_ms` are the times at
 * which this worker first and last saw that the other fleet's commits had advanced. */
struct rival {
    /* `fleet` is the name of the other fleet, and `part` is the partition in which its last commit
     * was seen */
    char fleet[17], part[320];
    int n; /* number of times that the other fleet's commits were seen to have advanced */
    int64_t first_ms, last_ms, said_ms;
};

/* Makes the fleet's name from the id of shard 0's epoch, when this worker has joined that epoch. */
void rival_epoch(struct lw_worker *w, const char *epoch);

#endif
