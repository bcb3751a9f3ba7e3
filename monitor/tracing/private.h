/* SPDX-License-Identifier: Apache-2.0 */
/* What tracing.c needs of otlp.c and post.c. */
#ifndef LW_MONITOR_TRACING_PRIVATE_H
#define LW_MONITOR_TRACING_PRIVATE_H

#include "config/config.h"
#include "consumer/spans.h"

struct lw_otlp; /* a request that is being written */

/* Begins a request for spans of this application. `host` is the name of this machine, and
 * `instance` names this supervisor. */
struct lw_otlp *lw_otlp_open(const struct lw_config *c, const char *host, const char *instance);
void lw_otlp_add(struct lw_otlp *o, int worker, const struct lw_span_record *s);
/* Ends the request and returns its text, which the caller must free. */
char *lw_otlp_close(struct lw_otlp *o);

enum lw_post_end {
    /* LW_POST_TAKEN: the endpoint has accepted the request, but may have rejected some of its
     * spans */
    LW_POST_TAKEN,
    /* LW_POST_LATER: no connection, no response in time, or status 429, 502, 503 or 504. The same
     * request may succeed later. */
    LW_POST_LATER,
    LW_POST_REFUSED, /* any other status: the same request would be refused again */
};

struct lw_post_answer {
    enum lw_post_end end;
    int64_t rejected; /* for LW_POST_TAKEN: number of rejected spans */
    /* `retry_after_ms` is used for LW_POST_LATER: the wait that the endpoint asks for; 0: none */
    int64_t retry_after_ms;
    char why[256]; /* text that says what happened, unless all spans were accepted */
};

struct lw_post;

/* Prepares the posting of requests, without connecting yet. Borrows the configuration until
 * lw_post_close(). Returns NULL with *err if libcurl cannot be initialized. */
struct lw_post *lw_post_open(const struct lw_config *c, struct lw_err *err);
void lw_post_close(struct lw_post *p);
/* Posts the text. Waits at most timeout_ms for the response. */
void lw_post_send(struct lw_post *p, const char *text, int64_t timeout_ms,
                  struct lw_post_answer *out);

#endif
