/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of exec share. */
#ifndef LW_HANDLERS_EXEC_PRIVATE_H
#define LW_HANDLERS_EXEC_PRIVATE_H

#include "handlers/exec/line.h"
#include "handlers/exec/proc.h"
#include "handlers/exec/stderr_log.h"
#include "handlers/exec/suspects.h"
#include "handlers/exec/trouble.h"
#include "handlers/exec/warden.h"

struct lw_feed;

struct lw_handler {
    char **argv, **envp;
    int64_t margin_ms, timeout_ms;
    int in_flight, batch; /* requests of a process at a time; messages of a request */
    struct lw_warden warden;
    struct lw_stderr_log *log;
    struct trouble trouble;
    struct suspects suspects;
    struct proc *procs;
    int n_procs, n_used; /* n_used: the first ones, that may be started */

    /* of the thread of serve() */
    int epoll, errands; /* errands: an eventfd */
    struct channel ch_feed, ch_errands;
    struct lw_feed *feed;
    struct lw_job *line, **line_end;            /* jobs that wait for a place */
    struct lw_job *apart, **apart_end;          /* suspects that wait for a process with few messages */
    struct request *followers, **followers_end; /* jobs[0] follows what was done, in the same process if it can */
    struct proc *reserved;                      /* takes suspects only */
    struct proc *dirty;                         /* with something to send */
    struct request *free;
    struct lw_exec_said heard;
    int held;               /* messages that a process has */
    int64_t now_us, now_ms; /* of this turn of the loop */
    int64_t look_ms;        /* when the requests are looked at next */
    int64_t sweep_ms;       /* when the line was last swept */
    char *chunk;            /* what was just read */
};

enum { CANCEL_GRACE_MS = 500, EXEC_CHUNK = 1 << 16 };

/* loop.c: the thread of serve() */
void exec_serve(struct lw_handler *h, struct lw_feed *feed);
int exec_watch(struct proc *p); /* puts the descriptors of a process that has started into the epoll set */
/* The message after jobs[at] of its request, or its follower, is next: that one is done. */
void exec_go_on(struct request *r, struct lw_job *follower);
/* When the group has to be killed in order to be gone before the lease ends. Moves on while the lease is
 * renewed. */
int64_t exec_lease_end(const struct lw_handler *h, const struct lw_job *job);

/* hear.c: what processes say */
enum heard { HEARD_NOTHING, HEARD_SOME, HEARD_END };
enum heard exec_hear(struct proc *p, enum channel_kind from);
enum heard exec_hear_all(struct proc *p); /* what its answers come from, until nothing is left */

/* fate.c: what becomes of the messages of a process that ends */
void exec_wrong(struct proc *p, struct request *blamed, const char *reason); /* it broke the protocol */
void exec_died(struct proc *p);                                              /* it ended, or nothing more can come from it */
void exec_time_over(struct request *r);                                      /* a lease, or the time of a message */
void exec_settle(struct proc *p);                                            /* its errand is over: it is gone */
/* The message that is at jobs[at] has its outcome. `took_us`: its time in the handler. */
void exec_ended(struct request *r, int64_t took_us);

#endif
