/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command under a lock: the command is started in its own process group, watched, and ended
 * when the lock is lost.
 *
 *     lock_signals_begin() → lock_wait_begin() → acquire → lock_wait_end() → lock_run() → release
 *     → lock_signals_end()
 *
 *     running --command ended--> ended
 *        | lock lost: SIGTERM to the group
 *        v
 *     ending --command ended, kill_after_ms over, or lease ended: SIGKILL to the group--> ended
 *
 * Signals to this process are passed on to the group: INT, TERM, HUP, QUIT, USR1, USR2, WINCH,
 * TSTP, CONT. On a terminal the command is in the foreground. If the terminal stops the command
 * (Ctrl-Z), this process stops, too, as shells expect. A stopped process cannot renew the lease, so
 * the lock is lost if the stop is longer than the lease; this process notices the loss before the
 * command continues. If this process is killed, a warden kills the group at once. */
#ifndef LW_CLI_LOCK_RUN_H
#define LW_CLI_LOCK_RUN_H

#include "include/latchwork/lock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct lock_signals {
    sigset_t before;
    int fd;   /* a signalfd, which receives the signals to this process */
    int lost; /* an eventfd, to which lock_lost() writes */
    _Atomic int why;
    /* The members from `thread` on are used only between lock_wait_begin() and lock_wait_end(). */
    pthread_t thread;
    int stop;
    bool watching;
    struct latchwork_client *client;
    _Atomic int ended_by; /* the signal that ended the wait for the lock; 0: none */
};

/* Takes over the handling of the process's signals. Returns false with errno on failure. */
bool lock_signals_begin(struct lock_signals *s);
void lock_signals_end(struct lock_signals *s);
/* After this call and until lock_wait_end(), a signal that would end the program only interrupts
 * the wait for the lock. Returns false if the thread that watches for signals cannot be started. */
bool lock_wait_begin(struct lock_signals *s, struct latchwork_client *client);
int lock_wait_end(struct lock_signals *s); /* returns the signal that ended the wait, or 0 */
/* The lock library calls this function, as the callback options.lost, when the lock is lost. `ctx`
 * points to a struct lock_signals. */
void lock_lost(void *ctx, struct latchwork_hold *hold, enum latchwork_loss why);

struct lock_ran {
    int status;     /* argument for exit(): the command's exit status, 128 + signal, 126 or 127 */
    bool not_begun; /* true: the command could not be started, and the reason was printed */
    bool lost;      /* true: the lock was lost while the command ran */
};
/* Runs the command, and returns when the command has ended. */
struct lock_ran lock_run(struct lock_signals *s, struct latchwork_hold *hold, char *const *argv,
                         int64_t kill_after_ms);

#endif
