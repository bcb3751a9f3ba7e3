/* SPDX-License-Identifier: Apache-2.0 */
/* trouble: can the command work at all?
 *
 * When a process dies with a message, the message is normally at fault and the death costs an
 * attempt. But a command that cannot start (a missing module, a bad path) would turn every message
 * into a dead letter. So a process that never answered anything gives its messages back without an
 * attempt if it has read no request, or if no process of this command has answered recently. The
 * handler is then "unable" for a pause that doubles up to 30 s. After the pause, a few messages
 * test the command, each in a process of its own (handlers/trial.h). */
#ifndef LW_HANDLERS_EXEC_TROUBLE_H
#define LW_HANDLERS_EXEC_TROUBLE_H

#include "handlers/handler.h"

#include <pthread.h>

struct trouble {
    /* Each process that ends without an answer adds 1 to `doubt`, and each answer sets `doubt` to
     * 0. While the command has not been seen to work, `doubt` is at least UNPROVEN (trouble.c). */
    int doubt;
    /* `doubt_max` is the number of processes in a row whose end without an answer is blamed on a
     * message. The ends of further processes are blamed on the command. */
    int doubt_max;
    /* `unable` becomes true when the command is found to be at fault, and false when a process
     * answers. All changes of `unable` and of the fields below it need the mutex. */
    atomic_bool unable;
    _Atomic int64_t until_ms;
    pthread_mutex_t lock;
    int64_t pause_ms; /* length of the current pause */
    /* `pause_max_ms` is the length of the longest pause, set by the owner after trouble_open() */
    int64_t pause_max_ms;
    char why[LW_REASON_MAX];
};

void trouble_open(struct trouble *t, int doubt_max);
void trouble_close(struct trouble *t);
/* Takes note that a process ended without an answer; `has_read` says whether it had read a request.
 * Returns true if the command is at fault and not a message. */
bool trouble_innocent(struct trouble *t, bool has_read);
/* Starts a pause, in which the handler gets no messages. A pause that is under way is not
 * extended. */
void trouble_unable(struct trouble *t, const char *why);
/* Takes note that a process has answered, which shows that the command works. */
void trouble_answered(struct trouble *t);
bool trouble_pauses(struct trouble *t, int64_t now_ms);
/* Returns true if the handler was unable, its pause is over, and no process has answered yet. */
bool trouble_on_trial(struct trouble *t, int64_t now_ms);
/* Returns whether the handler can work. Any thread may call it. */
enum lw_health trouble_health(struct trouble *t, char *why, size_t size);

#endif
