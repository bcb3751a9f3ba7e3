/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons: the texts that say why a job is retried or dead, cut to the size of a job's buffer. */
#ifndef LW_HANDLERS_REASON_H
#define LW_HANDLERS_REASON_H

#include "handlers/handler.h"

/* Copies a text and cuts it to LW_REASON_MAX - 1 bytes, but never inside a UTF-8 character. */
void lw_reason_copy(char out[LW_REASON_MAX], const char *text);
/* Sets a job's outcome and reason; "" means no reason. */
void lw_job_answer(struct lw_job *job, enum lw_outcome outcome, const char *reason);

#endif
