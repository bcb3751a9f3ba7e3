/* SPDX-License-Identifier: Apache-2.0 */
/* The span of a job: the trace of one attempt of a message, from its grant to its end. The worker
 * creates the span if the message is sampled (consumer/process/tracer.h), and the code that runs
 * the job notes the times. */
#ifndef LW_HANDLERS_SPAN_H
#define LW_HANDLERS_SPAN_H

#include "base/trace_context.h"
#include "handlers/handler.h"

struct lw_job_span {
    struct lw_trace_context context; /* trace id, id of this span, and flags */
    uint8_t parent_id[LW_SPAN_ID];   /* all zero if the span has no parent */
    /* `begun_us` and `ended_us` are the start and the end of the run, boot clock, set when the
     * job has run; 0: the job has not run */
    int64_t begun_us, ended_us;
    int64_t arrived_ms; /* time at which the message first came to a worker; wall clock */
    int64_t replay;     /* number of the replay; 0: the record itself */
    bool parked;        /* the message has waited in Redis */
    char traceparent[LW_TRACEPARENT + 1];
    /* `headers` are the message's headers as the handler gets them, with this span as the parent */
    struct lw_header headers[];
};

#endif
