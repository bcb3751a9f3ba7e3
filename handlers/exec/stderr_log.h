/* SPDX-License-Identifier: Apache-2.0 */
/* One thread reads what subprocesses write to stderr and copies it to the log line by line, so that
 * no subprocess blocks on its stderr. A long line is logged in pieces. A line without a newline is
 * logged after a moment. */
#ifndef LW_HANDLERS_EXEC_STDERR_LOG_H
#define LW_HANDLERS_EXEC_STDERR_LOG_H

#include "base/err.h"

#include <stddef.h>

struct lw_stderr_log;
struct lw_last_words; /* the last line of a stream; outlives the stream */

struct lw_stderr_log *lw_stderr_log_open(struct lw_err *err);
/* Adds a stream, and takes ownership of its non-blocking descriptor fd. A copy of `label` precedes
 * each logged line. Returns the struct that keeps the stream's last line. The struct is valid until
 * the call of lw_last_words_drop(). Any thread may call this function. */
struct lw_last_words *lw_stderr_log_add(struct lw_stderr_log *l, int fd, const char *label);
/* Returns the last line that is not blank, or "" if there is none. If that line is Node's version,
 * which Node prints after an uncaught error, returns the first line of the error. Waits at most
 * wait_ms for the end of the stream. */
void lw_last_words_get(struct lw_last_words *w, int wait_ms, char *out, size_t size);
void lw_last_words_clear(struct lw_last_words *w); /* forgets the last line */
void lw_last_words_drop(struct lw_last_words *w);  /* releases `w`, which may be NULL */
/* Logs what can still be read, then ends the thread. */
void lw_stderr_log_close(struct lw_stderr_log *l);

#endif
