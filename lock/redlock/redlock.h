/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock: sends one question to all servers at once.
 *
 * A *bundle* has one connection to every server. A *round* (struct lw_ask) sends one question to
 * all servers and reads their answers. A round uses one bundle, so at most `connections` rounds run
 * at the same time. No server blocks a round: the sockets are non-blocking, the question is written
 * to all of them, and one poll() waits for the answers, for node_ms at most. Most rounds are over
 * as soon as enough servers have answered, but a round that releases a lock waits for every server
 * that has answered in time recently. The late answer of a slow server is read and discarded when
 * its bundle is next used, so each server gets the questions of a bundle in order. A connection
 * with an answer missing for too long is closed and opened again.
 *
 * A new connection begins with a greeting: AUTH, SELECT, SCRIPT LOAD, INFO server. The fields
 * run_id and uptime of INFO show whether the server was started a short time ago. Such a server may
 * have lost its locks, so the client does not ask it for locks until the leases of all lost locks
 * must have ended. */
#ifndef LW_LOCK_REDLOCK_REDLOCK_H
#define LW_LOCK_REDLOCK_REDLOCK_H

#include "lock/hold.h"

enum { LW_RUN_ID_MAX = 64 };

enum lw_vote {
    LW_VOTE_OPEN, /* the server has not answered yet */
    LW_VOTE_YES,
    LW_VOTE_NO,
    LW_VOTE_NONE, /* the server answered with an error, or got no question */
};

/* One connection of a bundle. */
struct lw_link {
    struct lw_redis *redis; /* connection to the server; NULL: not connected */
    /* Number of greeting commands that the server has not answered yet. */
    int greetings;
    int owed; /* number of missing answers to questions of earlier rounds */
    /* The time (boot clock) from which the server's silence is counted. It is set when the
     * connection is opened, when a first answer is missing, and when a missing answer comes. */
    int64_t since_ms;
    bool fresh; /* true if the connection was opened in this round */
    bool asked; /* true if this round's question was sent and not answered */
    /* True if the question contained the script's text. Then the answer cannot be NOSCRIPT. */
    bool whole;
    struct lw_buf out; /* bytes that are waiting to be written to the socket */
};

struct lw_bundle {
    bool busy;
    struct lw_link link[LATCHWORK_MAX_NODES];
};

struct lw_node {
    /* A client that only provides the server's address and login. Its connection pool is not
     * used. */
    struct latchwork_client *client;
    char run_id[LW_RUN_ID_MAX + 1];
    /* Latest time, on the boot clock, at which the server can have been started. INT64_MIN:
     * unknown. */
    int64_t started_ms;
    /* Time on the boot clock until which no round waits for an answer of this server. */
    int64_t silent_ms;
};

struct latchwork_redlock {
    int n, majority;
    struct lw_node node[LATCHWORK_MAX_NODES];
    int64_t node_ms, retry_min_ms, retry_max_ms, restart_ms;
    int drift_per_mille;
    atomic_bool interrupted;

    /* This mutex guards the field `busy` of the bundles, and the run_id and the times of the
     * servers. */
    pthread_mutex_t mutex;
    pthread_cond_t freed;  /* signalled when a bundle becomes free */
    pthread_cond_t roused; /* signalled when the caller interrupts all waits */
    /* Number of bundles, not counting the one that is reserved for renewals. */
    int bundles;
    struct lw_bundle *bundle;

    pthread_mutex_t start; /* guards the start of the renewer */
    _Atomic(struct lw_hold_renewer *) renewer;
};

struct lw_ask {
    struct latchwork_redlock *redlock;
    int bundle; /* index of the bundle to use if it is free; -1: any bundle */
    struct lw_call *call;
    /* `taking` is true if the question asks for the lock. Then servers that were started recently
     * have no vote, and each grant contains a fence. */
    bool taking;
    /* `dropping` is true if the question releases the lock. Then the round waits for every server,
     * except those that did not answer in time recently (silent_ms). If the question was sent to a
     * server twice, the server's "no" does not count, because the first question may have released
     * the lock. */
    bool dropping;
    /* `keeping` is true if the question renews a hold. Then the round uses the bundle that is
     * reserved for renewals. */
    bool keeping;
    /* Time in ms for which a server has no vote after its start. Used only if `taking` is true. */
    int64_t restart_ms;

    enum lw_vote vote[LATCHWORK_MAX_NODES];
    /* True for each server whose first answer was lost, because the connection broke after the
     * question was sent. */
    bool in_doubt[LATCHWORK_MAX_NODES];
    int yes, no, open;
    uint64_t fence;             /* the largest fence that a server granted in this round */
    bool no_ttl;                /* true if a server refused because the lock has no TTL */
    struct latchwork_error why; /* the first error of any server in this round */
};

/* Sends the question to all servers and collects their votes. Returns false with *error if no
 * bundle is free, or if this process is a child, by fork(), of the process that opened the
 * Redlock. */
bool lw_redlock_ask(struct lw_ask *a, struct latchwork_error *error);
/* Waits until `cond` is signalled, or until the time until_ms on the boot clock. The caller holds
 * the mutex of the Redlock. Like pthread_cond_wait(), may also return earlier. */
void lw_redlock_wait(struct latchwork_redlock *r, pthread_cond_t *cond, int64_t until_ms);
void lw_redlock_hang_up(struct latchwork_redlock *r); /* closes and frees all bundles */

#endif
