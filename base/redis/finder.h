/* SPDX-License-Identifier: Apache-2.0 */
/* A finder: the thread that asks Sentinels or cluster nodes for the wires of a process, because a wire never blocks.
 *
 *     lw_finding_open() → [ lw_finding_ask() → poll lw_finding_fd() → lw_finding_take() ]… → lw_finding_close()
 *
 * Each wire has a finding, and asks before each attempt to connect. One search answers all who had asked for the same server when it
 * began; a question that comes later waits for the next search, so that no answer is older than its question. The thread sleeps while
 * nobody asks: how often that is, is up to the wires' backoff. Servers that are known from a list need no thread. */
#ifndef LW_BASE_REDIS_FINDER_H
#define LW_BASE_REDIS_FINDER_H

#include "base/redis/servers.h"

struct lw_finder;
struct lw_finding;

/* Takes over *servers, also if it fails, and leaves it empty. NULL with *err. */
struct lw_finder *lw_finder_open(struct lw_redis_servers *servers, struct lw_err *err);
/* After all of its findings. Waits for the thread, at most 2 s: a search that lasts longer is left behind. NULL, too. */
void lw_finder_close(struct lw_finder *f);
size_t lw_finder_count(const struct lw_finder *f); /* lw_redis_servers_count() */

/* None of these blocks. A finding belongs to one thread. */
struct lw_finding *lw_finding_open(struct lw_finder *f, int shard);
void lw_finding_close(struct lw_finding *q);   /* NULL, too */
void lw_finding_ask(struct lw_finding *q);     /* again, if it was asked already: then only the newer answer counts */
int lw_finding_fd(const struct lw_finding *q); /* readable when there is an answer; -1 for a list, which answers at once */
/* 1: *out, which the caller frees; 0: no answer yet; -1 with *err: the search failed. Once per answer. */
int lw_finding_take(struct lw_finding *q, struct lw_redis_url *out, struct lw_err *err);
void lw_finding_doubt(struct lw_finding *q); /* lw_redis_servers_doubt() */

#endif
