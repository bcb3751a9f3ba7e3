/* SPDX-License-Identifier: Apache-2.0 */
/* The trace context of W3C, which a message carries in its headers `traceparent` and `tracestate`.
 *
 *     00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 *     version, trace id, id of the parent span, flags
 *
 * All functions are pure and thread-safe. */
#ifndef LW_BASE_TRACE_CONTEXT_H
#define LW_BASE_TRACE_CONTEXT_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum { LW_TRACE_ID = 16, LW_SPAN_ID = 8, LW_TRACEPARENT = 55 };
enum { LW_TRACE_SAMPLED = 1, LW_TRACE_RANDOM = 2 }; /* the flags that version 00 defines */

struct lw_trace_context {
    uint8_t trace_id[LW_TRACE_ID], span_id[LW_SPAN_ID];
    uint8_t flags;
};

/* Reads a traceparent. Returns false if it is malformed; then *out is undefined, and the message
 * counts as a message without a trace. In a traceparent of a version later than 00, everything
 * after the known fields is ignored, as the standard says. */
bool lw_traceparent_read(struct lw_bytes text, struct lw_trace_context *out);
/* Writes a traceparent of version 00, NUL-terminated. */
void lw_traceparent_write(const struct lw_trace_context *c, char out[LW_TRACEPARENT + 1]);
/* Decides from the trace id alone whether a new trace is sampled, so that all programs decide in
 * the same way. The ratio is from 0 (none) to 1 (all). The rule is that of OpenTelemetry: the last
 * 56 bits of the id count as a random number. */
bool lw_trace_ratio(const uint8_t trace_id[LW_TRACE_ID], double ratio);

#endif
