/* What subprocesses write on stderr goes to the log, line by line, read by one thread so that no subprocess ever blocks on it.
 * A long line is logged in pieces; what stays without a newline is logged after a moment. */
#ifndef LW_HANDLERS_STDERR_LOG_H
#define LW_HANDLERS_STDERR_LOG_H

#include "base/err.h"

struct lw_stderr_log;

struct lw_stderr_log *lw_stderr_log_open(struct lw_err *err);
/* Takes over fd (non-blocking); `label` (copied) stands before each line. Any thread. */
void lw_stderr_log_add(struct lw_stderr_log *l, int fd, const char *label);
void lw_stderr_log_close(struct lw_stderr_log *l); /* logs what is there to be read, then ends */

#endif
