/* SPDX-License-Identifier: Apache-2.0 */
/* Writes spans as the body of an OTLP request over HTTP with JSON (ExportTraceServiceRequest). Ids
 * are hex and times are strings, as OTLP asks, although JSON of protocol buffers has base64 for
 * bytes. Attributes have the names of OpenTelemetry's semantic conventions for messaging; those
 * that begin with "latchwork." are ours. */
#ifndef LW_MONITOR_TRACING_OTLP_H
#define LW_MONITOR_TRACING_OTLP_H

#include "config/config.h"
#include "consumer/spans.h"

#include <jansson.h>

struct lw_otlp; /* a request that is being written */

/* Begins a request for spans of this application. `host` names this machine, `instance` this
 * supervisor. */
struct lw_otlp *lw_otlp_open(const struct lw_config *c, const char *host, const char *instance);
void lw_otlp_add(struct lw_otlp *o, int worker, const struct lw_span_record *s);
/* Returns the text of the request, which the caller frees, and ends it. */
char *lw_otlp_close(struct lw_otlp *o);

#endif
