/* SPDX-License-Identifier: Apache-2.0 */
/* proc: one handler process and its requests.
 *
 *             start                       errand over
 *   NONE ───────────────> STARTING ─────────────────────> UP
 *     ^                       | cannot be executed         | died, bad line, timeout
 *     '────── ENDING <────────'────────────────────────────'
 *                errand over: its group is gone, its messages have their outcomes
 *
 * Starting a process and ending one may take time, so both are errands on a separate thread.
 * Everything else belongs to the thread that runs serve(). */
#ifndef LW_HANDLERS_EXEC_PROC_H
#define LW_HANDLERS_EXEC_PROC_H

#include "handlers/exec/child.h"
#include "handlers/exec/stderr_log.h"
#include "handlers/handler.h"

#include <pthread.h>

struct proc;

/* A request: the messages that are sent to a process in one or more lines, one line at a time. */
struct request {
    struct proc *p;
    /* `next` and `prev` are the neighbours in the process's list of requests, oldest first;
     * `next` also links unused requests */
    struct request *next, *prev;
    struct request *same; /* next request in the same bucket of proc.table */
    /* `chain_ms` is the time at which the first message of this chain of followers started; boot
     * clock */
    int64_t chain_ms;
    int64_t begun_us; /* time at which the message at jobs[at] started; boot clock, µs */
    /* If the process was asked to cancel the message at jobs[at], `grace_ms` is the time (boot
     * clock) until which it may still answer. 0: it was not asked. */
    int64_t grace_ms;
    /* `late` is true if the message at jobs[at] has timed out. If a message was cancelled and is
     * not late, its lease was lost or about to be lost. */
    bool late;
    /* `place` is where the current line begins: its position in all bytes sent to the process
     * since the start of the process */
    uint64_t place;
    /* `n` is the number of jobs in the request. `at` is the index of the job to be answered next.
     * `upto` is the index after the last job in the current line. */
    int n, at, upto;
    struct lw_job *jobs[]; /* room for handler.batch jobs */
};

enum proc_state { PROC_NONE, PROC_STARTING, PROC_UP, PROC_ENDING };
enum channel_kind { CH_STDOUT, CH_SIDE, CH_STDIN, CH_FEED, CH_ERRANDS };

/* What a descriptor in the epoll set is for. */
struct channel {
    struct proc *p;
    enum channel_kind kind;
};

/* Bytes read from a process that do not make a complete line yet. */
struct said {
    struct lw_buf text;
    size_t scanned; /* the bytes below this index contain no newline */
};

/* Why a process is being ended. */
enum proc_end {
    END_DIED,  /* the process has exited, or has closed the pipe of its answers */
    END_WRONG, /* the process broke the protocol; `reason` says how */
    END_TIME,  /* a lease is about to end, or a message has timed out */
};

enum { PROC_ENDED = 1024 };

struct proc {
    struct lw_handler *h;
    int index;
    enum proc_state state;
    struct lw_child child;
    /* `words` holds the last stderr line of the process; NULL: no process has been started yet */
    struct lw_last_words *words;
    struct lw_last_words *out_words;
    struct channel channels[3];
    struct said said, side;
    /* `hello` is true after the process has said hello. The process then answers on its descriptor
     * 4, and its stdout goes to the log. */
    bool hello;
    bool answered;    /* the process has answered at least one request */
    bool deaf;        /* the process closed its stdin */
    bool dirty;       /* the process is in the list `dirty`: unsent bytes exist */
    bool polled;      /* the process's stdin is in the epoll set */
    int useless;      /* number of processes in a row that ended without an answer */
    int64_t start_ms; /* earliest time of the next start; boot clock */

    struct lw_buf out; /* bytes for the process, of which the first out_at are sent */
    size_t out_at;
    uint64_t sent; /* number of bytes sent to the process since it started */
    struct proc *next_dirty;

    /* the process's requests: a list from `first`, the oldest, and the hash table `table` by
     * identity */
    struct request *first, **table;
    int n_requests, n_messages;
    /* `limit` is the maximum number of messages that the process may have now. It becomes
     * smaller when the process gets a suspect, and is reset when the process has no messages
     * left. */
    int limit;
    /* hashes of the messages that ended last in this process, to know late answers by; a ring */
    uint64_t ended[PROC_ENDED];
    unsigned n_ended;
    _Atomic uint32_t load; /* copy of n_requests, for other threads */

    enum proc_end why;
    struct request *blamed; /* the request that is at fault; NULL: unknown */
    bool innocent;          /* the command is at fault, not a message */
    bool own_fault;         /* a message is known to be at fault, not the command */
    /* `has_read` is the number of bytes of requests that the process had read when it was ended */
    uint64_t has_read;
    /* `itself` is used only if `why` is END_DIED. It is true if the process has exited, and false
     * if the process has only closed the pipe of its answers. */
    bool itself;
    int64_t end_by_ms;
    char reason[LW_REASON_MAX], how[128], last_words[256];

    pthread_t errand;
    bool threaded; /* the errand has a thread, which must be joined */
    atomic_bool errand_over;
    struct lw_err failed; /* why the last start failed */
};

/* Starts the process on the calling thread. */
int proc_spawn(struct proc *p, struct lw_err *err);
/* proc_start() and proc_end() begin an errand. When the errand is over, lw_handler.errands becomes
 * readable, and proc_errand_over() returns true. */
void proc_start(struct proc *p);
void proc_end(struct proc *p, int64_t until_ms);
bool proc_errand_over(struct proc *p);
/* Waits until the process's errand is over, if there is one. */
void proc_await_errand(struct proc *p);
void proc_free(struct proc *p);

/* If p->last_words is not empty, appends ": " and p->last_words to `text`. */
void proc_add_last_words(const struct proc *p, char *text, size_t size);
/* Copies the last line that the process wrote on stderr to p->last_words. May block for 200 ms. */
void proc_read_last_words(struct proc *p);
/* Returns how many bytes of its requests the process has read. */
uint64_t proc_has_read(const struct proc *p);

/* Remembers that the process has nothing more to answer for a message. */
void proc_note_ended(struct proc *p, const struct lw_job *job);
/* Returns true if a message with this id was among the last PROC_ENDED that ended in this
 * process. */
bool proc_has_ended(const struct proc *p, struct lw_bytes id);

/* Returns the number of buckets of proc.table. */
size_t request_buckets(const struct lw_handler *h);
struct request *request_new(struct proc *p, struct lw_job *job);
/* Finds the request in which the message with this id is the next to be answered. Returns NULL if
 * there is none. */
struct request *request_find(const struct proc *p, struct lw_bytes id);
/* Makes jobs[at] the next message to be answered. */
void request_move(struct request *r, int at);
/* Removes the request from the list and the table of its process. */
void request_leave(struct request *r);
/* Keeps the request's memory for later requests. Call request_leave() before this function. */
void request_free(struct lw_handler *h, struct request *r);

#endif
