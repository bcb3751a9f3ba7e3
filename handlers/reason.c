/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/reason.h"

void lw_reason_copy(char out[LW_REASON_MAX], const char *text) {
    size_t n = lw_bytes_fit(lw_bytes_of(text), LW_REASON_MAX - 1);
    memmove(out, text, n);
    out[n] = '\0';
}

void lw_job_answer(struct lw_job *job, enum lw_outcome outcome, const char *reason) {
    job->outcome = outcome;
    lw_reason_copy(job->reason, reason);
}
