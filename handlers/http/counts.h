/* SPDX-License-Identifier: Apache-2.0 */
/* counts: what the handler counts for the metrics. The set of labels is fixed and does not depend
 * on the responses of a service. */
#ifndef LW_HANDLERS_HTTP_COUNTS_H
#define LW_HANDLERS_HTTP_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

enum { LW_HTTP_CODES = 27 };

/* Labels of requests that ended without a status. */
enum lw_http_code {
    LW_HTTP_UNREACHED, /* no connection could be made */
    LW_HTTP_TLS,       /* the TLS handshake failed, or the certificate is not valid */
    LW_HTTP_TIMEOUT,   /* no response within handler.timeout_ms */
    LW_HTTP_BROKEN,    /* the connection broke, or the response was malformed */
    LW_HTTP_CANCELLED, /* request aborted because a lease was lost */
    LW_HTTP_STATUS,    /* first of the labels for statuses */
};

enum lw_http_breaker { LW_HTTP_CLOSED, LW_HTTP_OPEN, LW_HTTP_HALF_OPEN, LW_HTTP_BREAKERS };

/* The counts of a worker, in shared memory. */
struct lw_http_counts {
    _Atomic uint64_t requests[LW_HTTP_CODES];
    _Atomic uint64_t connections; /* number of connections made */
    _Atomic uint64_t openings;    /* number of times that the breaker has opened */
    _Atomic uint32_t breaker;     /* state of the breaker, a value of enum lw_http_breaker */
};

extern const char *const lw_http_code_name[LW_HTTP_CODES];
extern const char *const lw_http_breaker_name[LW_HTTP_BREAKERS];

/* Returns an index into lw_http_code_name: the index of the status, such as "404", or, if the
 * status has no label of its own, the index of its class, such as "4xx". */
int lw_http_code_of(int status);

#endif
