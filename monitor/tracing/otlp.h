/* SPDX-License-Identifier: Apache-2.0 */
/* Writes spans as the body of an OTLP/HTTP request in JSON (ExportTraceServiceRequest). Ids are in
 * hex and times are strings, as OTLP prescribes; the usual JSON of protocol buffers would have
 * base64 for ids. Attributes have the names of OpenTelemetry's semantic conventions for messaging.
 * Names that begin with "latchwork." are Latchwork's own. */
#ifndef LW_MONITOR_TRACING_OTLP_H
#define LW_MONITOR_TRACING_OTLP_H

#include "config/config.h"
#include "consumer/spans.h"

#include <jansson.h>

struct lw_otlp; /* a request that is being written */

/* Begins a request for spans of this application. `host` is the name of this machine, and
 * `instance` names this supervisor. */
struct lw_otlp *lw_otlp_open(const struct lw_config *c, const char *host, const char *instance);
void lw_otlp_add(struct lw_otlp *o, int worker, const struct lw_span_record *s);
/* Ends the request and returns its text, which the caller must free. */
char *lw_otlp_close(struct lw_otlp *o);

#endif
