/* SPDX-License-Identifier: Apache-2.0 */
/* hints: the part of the worker that lists the lanes that hints name. Such lanes may be
 * runnable. */
#ifndef LW_CONSUMER_WORKER_HINTS_H
#define LW_CONSUMER_WORKER_HINTS_H

#include "base/bytes.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>

struct lw_worker;
struct shard;

struct hints {             /* the list of lanes that hints name */
    struct lw_bytes *ring; /* ids of the lanes; the list owns these bytes */
    size_t head, n, cap;
    size_t taken; /* number of hints that were taken and not yet reported to Redis */
    bool on;      /* true: the blocking pop should run */
    bool more;    /* true: the list `ready` in Redis may hold more hints */
};

/* Returns true if the list has a hint, or if the list `ready` in Redis may hold more hints. */
bool hints_known(const struct shard *sh);
/* Returns the number of hints in the list. */
size_t hints_listed(const struct shard *sh);
/* Returns the number of hints that were taken and not yet reported to Redis. */
size_t hints_taken(const struct shard *sh);
/* Takes a hint out of the list and returns it. The caller frees it. */
struct lw_bytes hints_pop(struct shard *sh);
/* Notes that the hints that were taken have been reported to Redis. */
void hints_told(struct shard *sh);
void hints_forget(struct shard *sh);
void hints_free(struct shard *sh);
void hints_want(struct lw_worker *w, struct shard *sh, bool want);
void hints_build(struct lw_worker *w, struct shard *sh, size_t most);
void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_hints(const struct hints *h) {
    assert(h->n <= h->cap);
    assert(h->ring ? h->head < h->cap : !h->cap);
}

#endif
