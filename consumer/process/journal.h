/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: where LATCHWORK_JOURNAL names a file, each run of a handler leaves two lines in it, for tests that check the
 * promises from outside (overlaps, order, re-runs):
 *
 *     start <boot us> <pid> <identity> <key in hex, "-" for an empty one> <fence> <attempt>
 *     end   <boot us> <pid> <identity> <key> <fence> <attempt> <done|retry|dead|back>
 *
 * One write(2) a line, appended, so that all workers share a file. The start is written before, the end after the handler ran:
 * an interval on paper encloses the true one. Thread-safe. */
#ifndef LW_CONSUMER_PROCESS_JOURNAL_H
#define LW_CONSUMER_PROCESS_JOURNAL_H

#include "handlers/handler.h"

/* Opens the journal named in the environment. Returns its descriptor, or -1 if none is named; -1
 * with *err if it cannot be opened. */
int lw_journal_open(struct lw_err *err);
void lw_journal_start(int fd, const struct lw_job *job);
void lw_journal_end(int fd, const struct lw_job *job);
void lw_journal_close(int fd);

#endif
