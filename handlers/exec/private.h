/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the exec handler share. */
#ifndef LW_HANDLERS_EXEC_PRIVATE_H
#define LW_HANDLERS_EXEC_PRIVATE_H

#include "handlers/exec/line.h"
#include "handlers/exec/proc.h"
#include "handlers/exec/stderr_log.h"
#include "handlers/exec/trouble.h"
#include "handlers/exec/warden.h"
#include "handlers/trial.h"

/* --- suspects.c: which message kills processes? ----------------------------------------------- */

struct suspect;

struct suspects {
    struct suspect *table;
    int n;
};

enum { ANY_COMPANY = 1 << 30 };

/* Returns how many messages a process may have at most if this message is one of them. Returns
 * ANY_COMPANY if the message is no suspect. */
int suspects_limit(const struct suspects *s, const char *identity);
/* Makes a message a suspect after its process has died. `company` is the number of messages of the
 * process that may be at fault. */
void suspects_add(struct suspects *s, const char *identity, int company);
void suspects_drop(struct suspects *s, const char *identity);
void suspects_close(struct suspects *s);

/* --- the handler ------------------------------------------------------------------------------ */

struct lw_feed;

struct lw_handler {
    char **argv, **envp;
    /* `margin_ms` is how long before the end of a lease a process group must be killed, so that
     * the group is gone when the lease ends */
    int64_t margin_ms;
    int64_t timeout_ms;
    /* maximum number of requests per process (in_flight), and of messages per request (batch) */
    int in_flight, batch;
    struct lw_warden warden;
    struct lw_stderr_log *log;
    struct trouble trouble;
    struct suspects suspects;
    struct lw_trial trial;
    struct proc *procs;
    /* n_procs is the number of processes; only the first n_used of them may be started */
    int n_procs, n_used;

    /* The fields below belong to the thread that runs serve(). */
    /* `epoll` is an epoll set; `errands` is an eventfd that is written when a process has started
     * or ended */
    int epoll, errands;
    struct channel ch_feed, ch_errands;
    struct lw_feed *feed;
    struct lw_job_queue line; /* jobs that wait for a process */
    /* `apart` holds the suspects that wait for a process with few messages */
    struct lw_job_queue apart;
    /* `followers` lists requests whose jobs[0] is a follower. The follower goes to the process
     * that ran the job before it, if that process has room. */
    struct request *followers, **followers_end;
    /* `reserved` is the process that is reserved for suspects; NULL: none */
    struct proc *reserved;
    /* `dirty` lists the processes to which bytes must be sent */
    struct proc *dirty;
    struct request *free;
    struct lw_exec_said heard;
    int held; /* number of messages that processes have been given and have not answered yet */
    int64_t now_us, now_ms; /* time of this turn of the loop, in µs and in ms; boot clock */
    int64_t look_ms;        /* time of the next check of leases and timeouts; boot clock */
    /* `sweep_ms` is the time at which `line` and `apart` were last searched for jobs that can no
     * longer start; boot clock */
    int64_t sweep_ms;
    char *chunk; /* buffer for reading from processes */
};

enum { CANCEL_GRACE_MS = 500, EXEC_CHUNK = 1 << 16 };

/* The next functions are defined in loop.c, the event loop of serve(). */
void exec_serve(struct lw_handler *h, struct lw_feed *feed);
/* Puts the descriptors of a process that has started into the epoll set. */
int exec_watch(struct proc *p);
/* Continues a request whose message at jobs[at] is done: starts the follower or, if `follower` is
 * NULL, goes on to the next message of the request. */
void exec_go_on(struct request *r, struct lw_job *follower);

/* The next functions are defined in hear.c, which reads what processes write. */
enum heard { HEARD_NOTHING, HEARD_SOME, HEARD_END };
enum heard exec_hear(struct proc *p, enum channel_kind from);
/* Reads the pipe on which the process answers until the pipe is empty. */
enum heard exec_hear_all(struct proc *p);

/* The next functions are defined in fate.c, which decides what becomes of the messages of a process
 * that ends. */
/* Kills a process that broke the protocol. */
void exec_wrong(struct proc *p, struct request *blamed, const char *reason);
/* Takes note that a process has died or has closed the pipe of its answers, and ends what is left
 * of its group. */
void exec_died(struct proc *p);
/* Ends the process of a request that has timed out or whose lease is about to end. */
void exec_time_over(struct request *r);
/* Takes note that the command cannot work. A trial may take further messages first. */
void exec_unable(struct lw_handler *h, const char *why);
/* Sets the outcome of each message of a process that has ended. */
void exec_settle(struct proc *p);
/* Reports the message at jobs[at]. The outcome of the message must be set before. `took_us` is the
 * time that the message spent in the handler. */
void exec_ended(struct request *r, int64_t took_us);

#endif
