/* SPDX-License-Identifier: Apache-2.0 */
/* A finder is a thread that asks Sentinels or cluster nodes for the servers of shards. It asks on
 * behalf of all wires of a process, because a wire must never block.
 *
 *     lw_finding_open() → [ lw_finding_ask() → poll lw_finding_fd() → lw_finding_take() ]…
 *     → lw_finding_close()
 *
 * Each wire has a finding, and asks before each attempt to connect. One search answers all findings
 * that asked for the same server before the search began. A later question waits for the next
 * search, so no answer is older than its question. The thread sleeps while there is no question;
 * the backoff of the wires limits how often they ask, and a wire that is up asks Sentinels once a
 * second. If the configuration lists the servers, no thread is started. */
#ifndef LW_BASE_REDIS_FINDER_H
#define LW_BASE_REDIS_FINDER_H

#include "base/redis/servers.h"

struct lw_finder;
struct lw_finding;

/* Starts a finder. Returns NULL with *err if the start fails. In both cases, takes ownership of the
 * content of *servers and leaves *servers empty. */
struct lw_finder *lw_finder_open(struct lw_redis_servers *servers, struct lw_err *err);
/* Ends the finder, whose findings must all be closed. Waits at most 2 s for the thread. If a search
 * takes longer, the thread is detached and ends after the search. Ignores NULL. */
void lw_finder_close(struct lw_finder *f);

/* None of the functions below blocks. Only one thread may use a finding. */
struct lw_finding *lw_finding_open(struct lw_finder *f, int shard);
void lw_finding_close(struct lw_finding *q); /* ignores NULL */
/* Asks the finder for the server of the finding's shard. Replaces an earlier question that has no
 * answer yet. */
void lw_finding_ask(struct lw_finding *q);
/* Returns a descriptor that is readable when there is an answer. If the configuration lists the
 * servers, returns -1, and each question is answered at once. */
int lw_finding_fd(const struct lw_finding *q);
/* Takes the answer to the last question. Returns 1 and stores the server in *out, which the caller
 * frees with lw_redis_url_free(). Returns -1 with *err if the search failed. Returns 0 if there is
 * no answer yet or if it was already taken. */
int lw_finding_take(struct lw_finding *q, struct lw_redis_url *out, struct lw_err *err);
/* Returns true if the old server may go on serving its clients after the finding's server has
 * changed. Sentinels make an old master a replica about ten seconds after a planned failover. */
bool lw_finding_lags(const struct lw_finding *q);
/* Makes the next search begin with another Sentinel or node, by lw_redis_servers_doubt(). Call this
 * function if the server that was found last could not be used. */
void lw_finding_doubt(struct lw_finding *q);

#endif
