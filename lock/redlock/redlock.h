/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock: asks all servers one question at once.
 *
 * A *bundle* has a connection to every server. A *round* (struct lw_ask) sends one question to all
 * servers and takes their answers. A round uses one bundle, so at most `connections` rounds run at
 * the same time. No server blocks a round: the sockets are non-blocking, the question is written to
 * all of them, and one poll() waits for the answers, for node_ms at most. A round is over as soon
 * as enough servers have answered. The late answer of a slow server is read and thrown away when
 * its bundle is next used, so each server gets the questions of a bundle in order. A connection
 * that owes an answer for too long is closed and opened again.
 *
 * A new connection begins with a greeting: AUTH, SELECT, SCRIPT LOAD, INFO server. INFO's run_id
 * and uptime tell whether the server was started a short time ago. Such a server may have lost its
 * locks, so it is asked for none until every lost lease must have ended. */
#ifndef LW_LOCK_REDLOCK_REDLOCK_H
#define LW_LOCK_REDLOCK_REDLOCK_H

#include "lock/hold.h"

enum { LW_RUN_ID_MAX = 64 };

enum lw_vote {
    LW_VOTE_OPEN, /* the server has not answered yet */
    LW_VOTE_YES,
    LW_VOTE_NO,
    LW_VOTE_NONE, /* the server answered with an error, or was not asked */
};

/* One connection of a bundle. */
struct lw_link {
    struct lw_redis *redis; /* connection to the server; NULL: not connected */
    /* number of answers to the greeting that must come before the server may be asked */
    int greetings;
    int owed;         /* number of answers to earlier rounds that have not come */
    int64_t since_ms; /* boot clock; since when answers are owed */
    bool fresh;       /* the connection was made during this round */
    bool asked;       /* the question of this round was sent */
    /* the question carried the script's text, so its answer cannot be NOSCRIPT */
    bool whole;
    struct lw_text out; /* bytes that the socket has not accepted yet */
};

struct lw_bundle {
    bool busy;
    struct lw_link link[LATCHWORK_MAX_NODES];
};

struct lw_node {
    /* used for the server's address and login; its pool is not used */
    struct latchwork_client *client;
    char run_id[LW_RUN_ID_MAX + 1];
    /* boot clock; latest time at which the server can have been started; INT64_MIN: unknown */
    int64_t started_ms;
    /* boot clock; before this time no round waits for an answer of this server */
    int64_t silent_ms;
};

struct latchwork_redlock {
    int n, majority;
    struct lw_node node[LATCHWORK_MAX_NODES];
    int64_t node_ms, retry_min_ms, retry_max_ms, restart_ms;
    int drift_per_mille;
    atomic_bool interrupted;

    /* guards `busy` of the bundles, and the times and the run_id of the servers */
    pthread_mutex_t mutex;
    pthread_cond_t freed;  /* signalled when a bundle becomes free */
    pthread_cond_t roused; /* signalled by an interruption */
    int bundles;           /* number of bundles, without the one that is reserved for renewals */
    struct lw_bundle *bundle;

    pthread_mutex_t start; /* guards the start of the keeper */
    _Atomic(struct lw_keeper *) keeper;
};

struct lw_ask {
    struct latchwork_redlock *redlock;
    int bundle; /* number of the bundle to use if it is free; -1: any */
    struct lw_call *call;
    /* the lock is asked for: recently started servers are left out, and each grant carries a
     * fence */
    bool taking;
    /* the lock is released: every server that is not silent is waited for, and a no does not count
     * if an answer was lost */
    bool dropping;
    bool keeping; /* a hold is renewed: use the bundle that is reserved for renewals */
    /* if `taking` is true: time after a server's start for which the server is left out */
    int64_t restart_ms;

    enum lw_vote vote[LATCHWORK_MAX_NODES];
    /* the question was sent twice, since the first answer was lost */
    bool in_doubt[LATCHWORK_MAX_NODES];
    int yes, no, open;
    uint64_t fence;             /* the largest fence that a server granted */
    bool no_ttl;                /* the lock has no TTL on a server that refused it */
    struct latchwork_error why; /* the first error of any server */
};

/* Asks all servers. Returns false, with *error, if no bundle is free or this process is a child of
 * the client's. */
bool lw_redlock_ask(struct lw_ask *a, struct latchwork_error *error);
/* Waits on cond, with the mutex held, until it is signalled or until_ms has come; may also return
 * without reason. */
void lw_redlock_wait(struct latchwork_redlock *r, pthread_cond_t *cond, int64_t until_ms);
void lw_redlock_hang_up(struct latchwork_redlock *r); /* closes and frees all bundles */

#endif
