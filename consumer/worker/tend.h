/* SPDX-License-Identifier: Apache-2.0 */
/* tend: the step that calls the script tend for lanes whose time has come, writes the heartbeat of
 * this worker, and regularly checks the server's life and clock. */
#ifndef LW_CONSUMER_WORKER_TEND_H
#define LW_CONSUMER_WORKER_TEND_H

#include <hiredis/hiredis.h>
#include <stdint.h>

struct lw_worker;
struct shard;

struct tend { /* only tend.c changes this struct */
    int64_t at_ms;
    /* `due_ms` is the time at which tend must check the lanes, because the first of the backoffs
     * that this worker has set ends then; 0: there is no such backoff */
    int64_t due_ms;
};

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now);
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void tend_now(struct shard *sh, int64_t now);
/* Makes tend check the lanes at this time at the latest, for example because a short backoff ends
 * at this time. */
void tend_by(struct shard *sh, int64_t due_ms);

#endif
