/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the journal. If LATCHWORK_JOURNAL names a file, each run of a handler leaves two lines in
 * it. Tests read the file to check the promises from outside (no overlap, order, number of runs):
 *
 *     start <boot us> <pid> <identity> <key in hex, "-" for an empty one> <fence> <attempt>
 *     end   <boot us> <pid> <identity> <key> <fence> <attempt> <done|retry|dead|back>
 *
 * Each line is appended by one write(2), so that all workers can share a file. The line `start` is
 * written before the handler runs, and the line `end` afterwards, so that the interval in the file
 * encloses the true one. The functions are thread-safe. */
#ifndef LW_CONSUMER_PROCESS_JOURNAL_H
#define LW_CONSUMER_PROCESS_JOURNAL_H

#include "handlers/handler.h"

/* Opens the journal that the environment names; *fd is -1 if it names none. Returns -1 with *err if
 * the journal cannot be opened. */
int lw_journal_open(int *fd, struct lw_err *err);
void lw_journal_start(int fd, const struct lw_job *job);
void lw_journal_end(int fd, const struct lw_job *job);
void lw_journal_close(int fd);

#endif
