/* SPDX-License-Identifier: Apache-2.0 */
/* proc: one handler process and the requests that it has.
 *
 *             start                       errand over
 *   NONE ───────────────> STARTING ─────────────────────> UP
 *     ^                       | cannot be executed         | died, bad line, time over
 *     '────── ENDING <────────'────────────────────────────'
 *                errand over: its group is gone, its messages have their outcomes
 *
 * Starting a process and ending one may take a while, so both are errands on a thread of their own. All else
 * belongs to the thread of serve(). */
#ifndef LW_HANDLERS_EXEC_PROC_H
#define LW_HANDLERS_EXEC_PROC_H

#include "handlers/exec/child.h"
#include "handlers/exec/stderr_log.h"
#include "handlers/handler.h"

#include <pthread.h>

struct proc;

/* One line that a process was sent, or is being sent, and its messages. */
struct request {
    struct proc *p;
    struct request *next, *prev; /* of its process, oldest first; `next` also links free ones */
    struct request *same;        /* next one in the bucket of the id of jobs[at] */
    int64_t chain_ms;            /* when the first message of this row of followers started */
    int64_t begun_us;            /* start of jobs[at] */
    int64_t grace_ms;            /* the process was told to stop, and may answer until then; 0: it was not told */
    bool late;                   /* it was told because the time of the message is over, not its lease */
    uint64_t place;              /* of its line in the stream of requests */
    int n, at, upto;             /* jobs gathered; the one that is to be answered next; end of those in the line */
    struct lw_job *jobs[];       /* handler.batch at most */
};

enum proc_state { PROC_NONE, PROC_STARTING, PROC_UP, PROC_ENDING };
enum channel_kind { CH_STDOUT, CH_SIDE, CH_STDIN, CH_FEED, CH_ERRANDS };

/* What a descriptor in the epoll set is. */
struct channel {
    struct proc *p;
    enum channel_kind kind;
};

/* Bytes that were read and make no line yet. */
struct said {
    struct lw_buf text;
    size_t scanned; /* no newline before this place */
};

/* Why a process is being ended. */
enum proc_end {
    END_DIED,  /* it ended by itself, or closed its answers */
    END_WRONG, /* it broke the protocol; `reason` says how */
    END_TIME,  /* a lease or the time of a message is over */
};

struct proc {
    struct lw_handler *h;
    int index;
    enum proc_state state;
    struct lw_child child;
    struct lw_last_words *words; /* last stderr line of the process; NULL: none was started yet */
    struct lw_last_words *out_words;
    struct channel channels[3];
    struct said said, side;
    bool hello;       /* it speaks on its descriptor 4, and stdout goes to the log */
    bool answered;    /* it has answered at least one request */
    bool deaf;        /* it closed its stdin */
    bool dirty;       /* it is in the list of those with something to send */
    bool polled;      /* EPOLLOUT is on */
    int useless;      /* processes in a row that ended without an answer */
    int64_t start_ms; /* earliest time of the next start */

    struct lw_buf out; /* lines to send, from out_at on */
    size_t out_at;
    uint64_t sent; /* bytes since its start */
    struct proc *next_dirty;

    struct request *first, *last, **table; /* its requests, in order and by id */
    int n_requests, n_messages;
    int limit;             /* how many messages it may have, for the sake of the suspects among them */
    _Atomic uint32_t load; /* n_requests, for other threads */

    enum proc_end why;
    struct request *blamed; /* the request that is at fault; NULL: unknown */
    bool innocent;          /* the command is at fault, and no message */
    uint64_t has_read;      /* bytes of requests that it read before its end */
    bool itself;            /* END_DIED: it had ended before we did anything */
    int64_t end_by_ms;
    char reason[LW_REASON_MAX], how[128], last_words[256];

    pthread_t errand;
    bool threaded; /* the errand runs on a thread */
    atomic_bool errand_over;
    struct lw_err failed; /* of a start */
};

/* Starts the process on this thread. */
int proc_spawn(struct proc *p, struct lw_err *err);
/* Errands: lw_handler.errands becomes readable when one is over; then proc_errand_over() says whose. */
void proc_start(struct proc *p);
void proc_end(struct proc *p, int64_t until_ms);
bool proc_errand_over(struct proc *p);
void proc_await_errand(struct proc *p); /* waits for the end of its errand, if it has one */
void proc_free(struct proc *p);

/* Appends ": " and the last line that the process wrote on stderr, if there is one. */
void proc_add_last_words(const struct proc *p, char *text, size_t size);
void proc_read_last_words(struct proc *p); /* may wait for 200 ms; an errand does it itself */
/* How many bytes of its requests the process has read. */
uint64_t proc_has_read(const struct proc *p);

size_t request_buckets(const struct lw_handler *h); /* size of proc.table */
struct request *request_new(struct proc *p, struct lw_job *job);
/* Finds the request that waits for the answer to this message; NULL if there is none. */
struct request *request_find(const struct proc *p, struct lw_bytes id);
/* Makes jobs[at] the one that is answered next. */
void request_move(struct request *r, int at);
/* Takes it out of its process. */
void request_leave(struct request *r);
void request_free(struct lw_handler *h, struct request *r); /* which has left */

#endif
