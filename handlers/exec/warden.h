/* SPDX-License-Identifier: Apache-2.0 */
/* The warden: a small process that outlives the worker by a moment, to kill the processes that the
 * worker started.
 *
 * A worker that dies of SIGKILL cannot end its subprocesses. The warden waits on a pipe whose other
 * end only the worker holds. When the worker's end closes, for any reason, the warden kills each
 * process group in its table and exits. The table is in shared memory. A subprocess writes the
 * number of its group into the table before its exec, so every running program is listed. The
 * worker removes a group before it reaps the group's leader, so the table never has a number that
 * the system has given to another process. PR_SET_PDEATHSIG would not suffice: its signal is sent
 * when the thread that forked ends, and does not reach grandchildren. */
#ifndef LW_HANDLERS_EXEC_WARDEN_H
#define LW_HANDLERS_EXEC_WARDEN_H

#include "base/err.h"

#include <stdatomic.h>
#include <sys/types.h>

struct lw_warden {
    pid_t pid;
    int pipe; /* the worker's end of the pipe on which the warden waits */
    /* array in shared memory with the ids of the process groups of the handler processes; 0: no
     * group */
    _Atomic pid_t *groups;
    int n;
};

int lw_warden_open(struct lw_warden *w, int seats, struct lw_err *err);
/* Kills the groups that are still listed, and waits until the warden has exited. */
void lw_warden_close(struct lw_warden *w);

#endif
