/* SPDX-License-Identifier: Apache-2.0 */
/* hints: lanes that may be runnable. */
#ifndef LW_CONSUMER_WORKER_HINTS_H
#define LW_CONSUMER_WORKER_HINTS_H

#include "base/bytes.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct lw_worker;
struct shard;

struct hints {             /* hints.c: lanes that may be runnable */
    struct lw_bytes *ring; /* owned copies */
    size_t head, n, cap;
    size_t taken; /* popped from `claimed` and not told yet */
    bool on;      /* the blocking pop is wanted */
    bool more;    /* `ready` may hold more */
};

bool hints_known(const struct shard *sh);    /* some lane may be runnable */
struct lw_bytes hints_pop(struct shard *sh); /* the caller's to free */
void hints_told(struct shard *sh);           /* Redis was told which were popped */
void hints_forget(struct shard *sh);
void hints_free(struct shard *sh);
void hints_want(struct lw_worker *w, struct shard *sh, bool want);
void hints_build(struct lw_worker *w, struct shard *sh, size_t most);
void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

#endif
