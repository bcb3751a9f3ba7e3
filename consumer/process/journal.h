/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the journal. If LATCHWORK_JOURNAL names a file, each run of a handler leaves two lines in
 * it, for tests that check the promises from outside (overlaps, order, re-runs):
 *
 *     start <boot us> <pid> <identity> <key in hex, "-" for an empty one> <fence> <attempt>
 *     end   <boot us> <pid> <identity> <key> <fence> <attempt> <done|retry|dead|back>
 *
 * Each line is appended by one write(2), so that all workers can share a file. The start is written
 * before the handler runs, the end after the handler has run, so that the interval in the file
 * encloses the true one. Thread-safe. */
#ifndef LW_CONSUMER_PROCESS_JOURNAL_H
#define LW_CONSUMER_PROCESS_JOURNAL_H

#include "handlers/handler.h"

/* Opens the journal that the environment names and returns its descriptor. Returns -1 if the
 * environment names no journal; returns -1 and fills *err if the journal cannot be opened. */
int lw_journal_open(struct lw_err *err);
void lw_journal_start(int fd, const struct lw_job *job);
void lw_journal_end(int fd, const struct lw_job *job);
void lw_journal_close(int fd);

#endif
