/* SPDX-License-Identifier: Apache-2.0 */
/* pipe: the part of the worker that builds one pipeline per turn and shard, and reads its
 * replies. */
#ifndef LW_CONSUMER_WORKER_PIPE_H
#define LW_CONSUMER_WORKER_PIPE_H

#include "base/redis/command.h"
#include "base/redis/script.h"
#include "queue/calls.h"

#include <assert.h>
#include <hiredis/hiredis.h>

struct lw_worker;
struct shard;

/* PIPE_CALLS is the maximum number of calls per pipeline. KEPT_CALLS is the maximum number of calls
 * that are sent again after a lost reply. Only settle, gate and claim are sent again. */
enum { PIPE_CALLS = 32, KEPT_CALLS = 3 };

enum call_kind {
    CALL_LOAD,
    CALL_INFO,
    CALL_TIME,
    CALL_OWNER,
    CALL_ENTER,
    CALL_REPAIR,
    CALL_WATCH,
    CALL_SETTLE,
    CALL_GATE,
    CALL_CLAIM,
    CALL_HINTS,
    CALL_TEND,
    CALL_FLOOR,
    CALL_VANISHED,
    CALL_UNPARK,
    CALL_LIFT,
    CALL_ALIVE
};

struct call {
    enum call_kind kind;
    bool again; /* true: the call did not execute, so it is sent again unchanged */
};

struct pipeline { /* only pipe.c changes this struct */
    struct lw_commands commands;
    struct call calls[PIPE_CALLS];
    int n, answered;
    bool open; /* true: a pipeline is in flight */
    /* `kept` lists the calls that are sent again before anything else; they are built once more
     * from the lanes that they name */
    enum call_kind kept[KEPT_CALLS];
    int n_kept;
    /* `cut` is true if a call that is sent again may have executed, because its reply was lost or
     * its script failed in the middle */
    bool cut;
    int64_t sent_ms;
};

/* Returns true while the answers to the last pipeline are incomplete. */
bool pipe_in_flight(const struct shard *sh);
/* Returns true if there are calls to send again, before anything else. */
bool pipe_sends_again(const struct shard *sh);
/* Returns the time at which the last pipeline was sent. */
int64_t pipe_sent_ms(const struct shard *sh);
void pipe_begin(struct lw_worker *w, struct shard *sh);
/* Begins a call whose command the caller appends to the pipeline by the functions of queue/calls.h
 * (gate, settle and claim). */
void pipe_call(struct shard *sh, enum call_kind kind);
/* pipe_command() begins a Redis command. pipe_script() begins a call of a script that has n_keys
 * keys and is not gate, settle or claim. The functions below append the keys and arguments. Texts
 * must stay valid until the pipeline is sent, except those that pipe_copy() and pipe_key() copy. */
void pipe_command(struct shard *sh, enum call_kind kind, const char *name);
void pipe_script(struct shard *sh, enum call_kind kind, const struct lw_script *script, int n_keys);
void pipe_text(struct shard *sh, const char *text);
void pipe_copy(struct shard *sh, const char *text);
void pipe_number(struct shard *sh, int64_t v);
/* Appends the name of a key of the shard. `name` is the part after the shard's prefix. */
void pipe_key(struct shard *sh, const char *name);
/* Appends three arguments to the current call: a partition's name and two of its offsets. */
void pipe_offsets(struct shard *sh, const char *partition, int64_t a, int64_t b);
void pipe_send(struct lw_worker *w, struct shard *sh);
/* Keeps the unanswered calls of a lost connection, so that they can be sent again. */
void pipe_broken(struct lw_worker *w, struct shard *sh);
void pipe_free(struct shard *sh);
void pipe_forget(struct lw_worker *w, struct shard *sh);
/* Ends the connection because the reply that is being handled is malformed; `why` is the text of
 * lw_malformed(). The call may have executed, so it counts as unanswered: gate, settle and claim
 * are sent again on the next connection. The caller must return at once. */
void pipe_malformed(struct lw_worker *w, struct shard *sh, const char *why);
bool pipe_urgent(struct lw_worker *w, struct shard *sh);
const char *script_sha(const struct lw_script *s);
/* Returns the arguments that gate, settle and claim have in common, in the form that queue/calls.h
 * takes. */
struct lw_lane_call pipe_lane_call(struct lw_worker *w, struct shard *sh,
                                   const struct lw_script *script);
struct lw_call_bounds pipe_bounds(const struct lw_worker *w);
/* Returns a number that this worker has never used before. */
uint64_t token_new(struct lw_worker *w);

static inline void check_pipe(const struct pipeline *p) {
    assert(p->n >= 0 && p->n <= PIPE_CALLS);
    assert(p->answered >= 0 && p->answered <= p->n);
    assert(p->n_kept >= 0 && p->n_kept <= KEPT_CALLS);
    assert(!p->open || p->n > 0);
}

#endif
