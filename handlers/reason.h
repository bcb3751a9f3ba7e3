/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons: why a job is tried again or dead, within the room that a job has for it. */
#ifndef LW_HANDLERS_REASON_H
#define LW_HANDLERS_REASON_H

#include "handlers/handler.h"

/* Copies a text, cut (never within a UTF-8 character) to LW_REASON_MAX - 1 bytes. */
void lw_reason_copy(char out[LW_REASON_MAX], const char *text);
/* Sets the job's outcome and its reason; "" for none. */
void lw_job_answer(struct lw_job *job, enum lw_outcome outcome, const char *reason);

#endif
