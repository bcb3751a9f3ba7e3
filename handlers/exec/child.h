/* SPDX-License-Identifier: Apache-2.0 */
/* One subprocess in a process group of its own, with pipes on stdin, stdout and stderr. Its
 * descriptor 3 is a copy of stdin, and descriptor 4 is one more pipe to the parent (LW_CHILD_FDS).
 * A handler that leaves stdin and stdout to other code can use these two.
 *
 * The parent's ends of the pipes never block. lw_child_end() kills every process of the group, and
 * returns when all are gone, or after a time limit if the kernel takes longer. A process that made
 * a session or group of its own (setsid) is no longer in the group, and is not killed. */
#ifndef LW_HANDLERS_EXEC_CHILD_H
#define LW_HANDLERS_EXEC_CHILD_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LW_CHILD_GONE_MS = 200 };

struct lw_child {
    pid_t pid; /* pid of the child, and number of its group; 0: there is no child */
    /* the parent writes `in`, and reads `out` and `err`; code that takes over a descriptor sets the
     * field to -1 */
    int in, out, err;
    int side;              /* the parent's end of the child's descriptor 4 */
    _Atomic pid_t *listed; /* the child's entry in the warden's table */
};

#define LW_CHILD_FDS "3,4"

/* Starts argv[0] (found through PATH) with the environment `envp`, default signal handlers and no
 * other descriptor. *listed is the number of the process group while the group lives. Returns -1
 * with the reason if argv[0] cannot be executed. */
int lw_child_spawn(struct lw_child *c, char *const *argv, char *const *envp, _Atomic pid_t *listed,
                   struct lw_err *err);
/* Returns true if the child itself has ended, and describes how in `text` ("exited with status 3",
 * "was killed by signal 11 (Segmentation fault)"). Does not reap the child. */
bool lw_child_ended(const struct lw_child *c, char *text, size_t size);
/* Closes stdin, gives the child until `until_ms` (boot clock) to end, then kills the group, waits
 * for the group's end and closes the pipes. `text` (may be NULL) then says how the child ended.
 * Does nothing if there is no child. */
void lw_child_end(struct lw_child *c, int64_t until_ms, char *text, size_t size);

#endif
