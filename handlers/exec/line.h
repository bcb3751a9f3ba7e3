/* SPDX-License-Identifier: Apache-2.0 */
/* The lines between the worker and an exec handler: one JSON object each, as the user's manual
 * shows them. No I/O. */
#ifndef LW_HANDLERS_EXEC_LINE_H
#define LW_HANDLERS_EXEC_LINE_H

#include "handlers/handler.h"

/* Appends the request for a job, ended by a newline. */
void lw_exec_request(struct lw_buf *out, const struct lw_job *job);
/* Appends {"cancel":"id"} and a newline. */
void lw_exec_cancel(struct lw_buf *out, const struct lw_job *job);
/* Parses an answer (without its newline): fills outcome and reason. Returns -1 with the reason in
 * `err` if the line is not an answer to this job; then nothing else in it counts either. */
int lw_exec_answer(struct lw_bytes line, const char *identity, enum lw_outcome *outcome, char *reason, struct lw_err *err);

#endif
