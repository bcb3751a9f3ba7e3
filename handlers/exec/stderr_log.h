/* SPDX-License-Identifier: Apache-2.0 */
/* One thread reads what subprocesses write on stderr, and writes it to the log line by line, so
 * that no subprocess ever blocks on its stderr. A long line is logged in pieces. A line that stays
 * without a newline is logged after a moment. */
#ifndef LW_HANDLERS_EXEC_STDERR_LOG_H
#define LW_HANDLERS_EXEC_STDERR_LOG_H

#include "base/err.h"

#include <stddef.h>

struct lw_stderr_log;
struct lw_last_words; /* the last line of one stream; it outlives the stream */

struct lw_stderr_log *lw_stderr_log_open(struct lw_err *err);
/* Takes ownership of fd (non-blocking). `label` (copied) precedes each line. Any thread may call
 * it. The last line is available until lw_last_words_drop(). */
struct lw_last_words *lw_stderr_log_add(struct lw_stderr_log *l, int fd, const char *label);
/* Returns the last line that is not blank, or "" if there is none. If that line is Node's version,
 * which Node prints after an uncaught error, returns the first line of the error. Waits at most
 * wait_ms for the end of the stream. */
void lw_last_words_get(struct lw_last_words *w, int wait_ms, char *out, size_t size);
void lw_last_words_clear(struct lw_last_words *w); /* forgets the last line */
void lw_last_words_drop(struct lw_last_words *w);  /* ignores NULL */
/* logs what can still be read, then ends the thread */
void lw_stderr_log_close(struct lw_stderr_log *l);

#endif
