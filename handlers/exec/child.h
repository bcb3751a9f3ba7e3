/* SPDX-License-Identifier: Apache-2.0 */
/* One subprocess in a process group of its own, with pipes on stdin, stdout and stderr. Its
 * descriptor 3 is a copy of stdin, and its descriptor 4 is one more pipe to the parent
 * (LW_CHILD_FDS). A handler whose libraries read stdin or print to stdout uses descriptors 3 and 4
 * instead.
 *
 * The parent's ends of the pipes never block. lw_child_end() kills every process of the group. It
 * returns when all of them are gone, or after a time limit if the kernel takes longer. A process
 * that has moved to another session or group (setsid, setpgid) is not killed. */
#ifndef LW_HANDLERS_EXEC_CHILD_H
#define LW_HANDLERS_EXEC_CHILD_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LW_CHILD_GONE_MS = 200 };

struct lw_child {
    pid_t pid; /* process id of the child and number of its group; 0: no child */
    /* The parent writes to `in`, and reads from `out` and `err`. Code that takes ownership of one
     * of these descriptors sets the field to -1. */
    int in, out, err;
    int side;              /* the parent's end of the child's descriptor 4 */
    _Atomic pid_t *listed; /* the child's entry in the warden's table */
};

#define LW_CHILD_FDS "3,4"

/* Starts argv[0] (searched in PATH) with the environment `envp`, default signal handlers and no
 * other open descriptors. *listed holds the number of the process group while the group lives.
 * Returns 0. Returns -1 with *err if the process cannot be started, for example because argv[0]
 * cannot be executed. */
int lw_child_spawn(struct lw_child *c, char *const *argv, char *const *envp, _Atomic pid_t *listed,
                   struct lw_err *err);
/* Returns true if the child has ended, even if other processes of its group live on. `text` (may be
 * NULL) then receives how the child ended, such as "exited with status 3" or "was killed by signal
 * 11 (Segmentation fault)". Does not reap the child. */
bool lw_child_ended(const struct lw_child *c, char *text, size_t size);
/* Closes stdin, gives the child until `until_ms` (boot clock) to end, then kills the group, waits
 * until the group is gone, and closes the pipes. `text` (may be NULL) receives how the child ended.
 * Does nothing if there is no child. */
void lw_child_end(struct lw_child *c, int64_t until_ms, char *text, size_t size);

#endif
