/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of `latchwork dev --demo` reads the journal, in which each run of a handler has a start
 * line and an end line (consumer/process/journal.h), and checks whether Latchwork kept its
 * promises. Besides the journal, the audit gets only the ends of the partitions and the id of the
 * killed process, so it does not depend on how Latchwork works. It uses these words:
 *
 *     run        a start line and its end line: the handler ran a message of a key
 *     overlap    a run of a key begins before another run of that key has ended. A run that was
 *                given back (its lease ended; it wrote nothing) does not count. A run that the
 *                killed process left open ends at the kill
 *     misorder   of two messages of one (topic, partition, key), the one with the larger offset
 *                was done first
 *     unfinished an offset below the end of its partition without a run that ended as done
 *     open       a start line without an end line, although its process was not killed */
#ifndef LW_CLI_DEV_AUDIT_H
#define LW_CLI_DEV_AUDIT_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>

struct dev_killed {
    int pid; /* id of the process that the demo killed; 0: no process was killed */
    int64_t at_us;
};

struct dev_end {
    const char *topic;
    int32_t partition;
    int64_t end;
};

struct dev_audit {
    /* `runs` counts all runs, and `reruns` those whose message had an earlier run */
    int64_t runs, reruns;
    int64_t given_back; /* number of runs that ended as back */
    int64_t failed;     /* number of runs that ended as retry or dead */
    int64_t cut;        /* number of runs that the kill interrupted */
    int64_t overlaps, misordered, unfinished, open;
    struct lw_buf examples; /* descriptions of the first few errors, in words */
};

/* Reads and checks the journal. Returns -1 if the journal cannot be read or has a malformed line.
 * Call dev_audit_free() even after a failure. */
int dev_audit_read(struct dev_audit *a, const char *journal, struct dev_killed killed,
                   const struct dev_end *ends, int n_ends, struct lw_err *err);
void dev_audit_free(struct dev_audit *a);

#endif
