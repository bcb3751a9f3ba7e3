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
    LW_VOTE_OPEN, /* not answered yet */
    LW_VOTE_YES,
    LW_VOTE_NO,
    LW_VOTE_NONE, /* answered with an error, or was not asked */
};

/* One connection of a bundle. */
struct lw_link {
    struct lw_redis *redis; /* NULL: not connected */
    int greetings;          /* answers to come before it may be asked */
    int owed;               /* answers to questions of earlier asks */
    int64_t since_ms;       /* when the first of those answers was expected */
    bool fresh;             /* the connection was made during this ask */
    bool asked;             /* the question of this ask has been sent */
    bool whole;             /* the question carried the script's text, so the answer can't be NOSCRIPT again */
    struct lw_text out;     /* bytes that the socket has not taken yet */
};

struct lw_bundle {
    bool busy;
    struct lw_link link[LATCHWORK_MAX_NODES];
};

struct lw_node {
    struct latchwork_client *client; /* its address and login; its pool is not used */
    char run_id[LW_RUN_ID_MAX + 1];
    int64_t started_ms; /* the server was started no later than this, on our clock; INT64_MIN: unknown */
    int64_t silent_ms;  /* until this time, asks avoid waiting for this server */
};

struct latchwork_redlock {
    int n, majority;
    struct lw_node node[LATCHWORK_MAX_NODES];
    int64_t node_ms, retry_min_ms, retry_max_ms, restart_ms;
    int drift_per_mille;
    atomic_bool interrupted;

    pthread_mutex_t mutex; /* guards the bundles' `busy`, and the servers' times and run_id */
    pthread_cond_t freed;  /* signalled when a bundle becomes free */
    pthread_cond_t roused; /* signalled by an interruption */
    int bundles;           /* plus one more, for keeping holds */
    struct lw_bundle *bundle;

    pthread_mutex_t start; /* guards the start of the keeper */
    _Atomic(struct lw_keeper *) keeper;
};

struct lw_ask {
    struct latchwork_redlock *redlock;
    int bundle; /* in: the preferred one; -1: any */
    struct lw_call *call;
    bool taking;   /* leave out servers that were started recently; a granted answer is a fence */
    bool dropping; /* wait for all servers that are not silent, even when the result is decided; a no after a lost answer does not count */
    bool keeping;  /* use the bundle that is reserved for keeping */
    int64_t restart_ms; /* taking: for this time after its start a server is left out */

    enum lw_vote vote[LATCHWORK_MAX_NODES];
    bool in_doubt[LATCHWORK_MAX_NODES]; /* the question was sent twice */
    int yes, no, open;
    uint64_t fence;             /* the largest fence answered */
    bool no_ttl;                /* a server that refused holds a lock without a TTL */
    struct latchwork_error why; /* the first error */
};

/* Returns false, with *error, if there is no bundle or the process is a fork. */
bool lw_redlock_ask(struct lw_ask *a, struct latchwork_error *error);
/* Waits on cond with the mutex held, until it is signalled or until_ms; may wake up without
 * reason. */
void lw_redlock_wait(struct latchwork_redlock *r, pthread_cond_t *cond, int64_t until_ms);
void lw_redlock_hang_up(struct latchwork_redlock *r); /* closes and frees all bundles */

#endif
