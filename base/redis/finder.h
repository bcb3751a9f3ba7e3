/* SPDX-License-Identifier: Apache-2.0 */
/* A finder is the thread that asks Sentinels or cluster nodes on behalf of a process's wires,
 * because a wire never blocks.
 *
 *     lw_finding_open() → [ lw_finding_ask() → poll lw_finding_fd() → lw_finding_take() ]…
 *     → lw_finding_close()
 *
 * Each wire has a finding, and asks before each attempt to connect. One search answers all findings
 * that asked for the same server before the search began. A later question waits for the next
 * search, so no answer is older than its question. The thread sleeps until somebody asks; the
 * backoff of the wires limits how often they ask. Servers from a list need no thread. */
#ifndef LW_BASE_REDIS_FINDER_H
#define LW_BASE_REDIS_FINDER_H

#include "base/redis/servers.h"

struct lw_finder;
struct lw_finding;

/* Starts a finder. Takes over *servers, even if the start fails, and leaves *servers empty. Returns
 * NULL with *err. */
struct lw_finder *lw_finder_open(struct lw_redis_servers *servers, struct lw_err *err);
/* Ends the finder, after all its findings are closed. Waits at most 2 s for the thread; a thread
 * that searches longer is left to end by itself. Ignores NULL. */
void lw_finder_close(struct lw_finder *f);
/* returns the number of servers (lw_redis_servers_count()) */
size_t lw_finder_count(const struct lw_finder *f);

/* None of the functions below blocks. A finding belongs to one thread. */
struct lw_finding *lw_finding_open(struct lw_finder *f, int shard);
void lw_finding_close(struct lw_finding *q); /* ignores NULL */
/* asks for the server; an earlier question that has no answer yet is dropped */
void lw_finding_ask(struct lw_finding *q);
/* readable when there is an answer; -1 if the servers are a list, which needs no wait */
int lw_finding_fd(const struct lw_finding *q);
/* Returns 1 with *out, which the caller frees, once per answer; 0 if there is no answer yet; -1
 * with *err if the search failed. */
int lw_finding_take(struct lw_finding *q, struct lw_redis_url *out, struct lw_err *err);
/* reports that the server was of no use: calls lw_redis_servers_doubt() */
void lw_finding_doubt(struct lw_finding *q);

#endif
