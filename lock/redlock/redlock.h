/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock: one question to all servers at once.
 *
 * A *bundle* is a connection to every server; a call takes a bundle, so at most `connections` ask at the same time. Nothing blocks on one
 * server: all sockets are non-blocking, the question is written to all, and one poll waits for what comes back, for node_ms at most. An
 * ask is over as soon as enough have answered. What a slow server answers later is read and thrown away when its bundle is next used; so
 * it gets the questions of a bundle in their order. One that owes an answer for too long is connected to anew.
 *
 * A new connection begins with a greeting: AUTH, SELECT, SCRIPT LOAD, INFO server. The run_id and uptime in it tell of a server that was
 * started a short time ago: it may have lost what it held, so it is asked for no lock until all that it can have lost must have expired. */
#ifndef LW_LOCK_REDLOCK_REDLOCK_H
#define LW_LOCK_REDLOCK_REDLOCK_H

#include "lock/hold.h"

enum { LW_RUN_ID_MAX = 64 };

enum lw_vote {
    LW_VOTE_OPEN, /* no answer yet */
    LW_VOTE_YES,
    LW_VOTE_NO,
    LW_VOTE_NONE, /* an error, or not asked */
};

/* One connection of a bundle. */
struct lw_link {
    redisContext *redis; /* NULL: not connected */
    int greetings;       /* answers to come before it may be asked */
    int owed;            /* answers to questions of earlier asks */
    int64_t since_ms;    /* that the first of those was expected */
    bool fresh;          /* made during this ask */
    bool asked;          /* the question of this ask has been sent */
    bool whole;          /* with the script's text: its answer is not NOSCRIPT again */
    struct lw_text out;  /* what the socket did not take yet */
};

struct lw_bundle {
    bool busy;
    struct lw_link link[LATCHWORK_MAX_NODES];
};

struct lw_node {
    struct latchwork_client *client; /* where it is, and as whom; its pool is not used */
    char run_id[LW_RUN_ID_MAX + 1];
    int64_t started_ms; /* not started later than this, by our clock; INT64_MIN unknown */
    int64_t silent_ms;  /* until then nobody waits for it if that can be avoided */
};

struct latchwork_redlock {
    int n, majority;
    struct lw_node node[LATCHWORK_MAX_NODES];
    int64_t node_ms, retry_min_ms, retry_max_ms, restart_ms;
    int drift_per_mille;
    atomic_bool interrupted;

    pthread_mutex_t mutex; /* of bundles' busy, nodes' times and run_id */
    pthread_cond_t freed;  /* a bundle */
    pthread_cond_t roused; /* interrupted */
    int bundles;           /* and one more, for keeping holds */
    struct lw_bundle *bundle;

    pthread_mutex_t start; /* of the keeper */
    _Atomic(struct lw_keeper *) keeper;
};

struct lw_ask {
    struct latchwork_redlock *redlock;
    int bundle; /* in: the one that is preferred; -1 any */
    struct lw_call *call;
    bool taking;        /* not those that started a short time ago; the answer yes is a fence */
    bool dropping;      /* wait for all that are not silent, not only until it is decided; a no after a lost answer is none */
    bool keeping;       /* by the bundle for it */
    int64_t restart_ms; /* taking: how long a server that was started is left out */

    enum lw_vote vote[LATCHWORK_MAX_NODES];
    bool in_doubt[LATCHWORK_MAX_NODES]; /* sent twice */
    int yes, no, open;
    uint64_t fence;             /* the largest */
    bool no_ttl;                /* one of those who said no holds a lock without TTL */
    struct latchwork_error why; /* the first error */
};

/* False, with *error: no bundle, or the wrong process. */
bool lw_redlock_ask(struct lw_ask *a, struct latchwork_error *error);
/* Sleeps with the mutex held until cond is signalled, or until_ms, or for no reason. */
void lw_redlock_wait(struct latchwork_redlock *r, pthread_cond_t *cond, int64_t until_ms);
void lw_redlock_hang_up(struct latchwork_redlock *r); /* all bundles; frees them */

#endif
