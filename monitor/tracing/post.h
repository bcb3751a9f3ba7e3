/* SPDX-License-Identifier: Apache-2.0 */
/* Posts requests of OTLP to tracing.endpoint, one at a time, and says what each answer means. */
#ifndef LW_MONITOR_TRACING_POST_H
#define LW_MONITOR_TRACING_POST_H

#include "config/config.h"

enum lw_post_end {
    LW_POST_TAKEN, /* the endpoint has the spans, except those that it rejected */
    /* no connection, no answer in time, or 429, 502, 503, 504: the same request may succeed
     * later */
    LW_POST_LATER,
    LW_POST_REFUSED, /* any other status: the same request would be refused again */
};

struct lw_post_answer {
    enum lw_post_end end;
    int64_t rejected; /* LW_POST_TAKEN: how many of the spans the endpoint did not take */
    /* LW_POST_LATER: how long the endpoint asks to wait; 0: it does not say */
    int64_t retry_after_ms;
    char why[256]; /* LW_POST_LATER, LW_POST_REFUSED, or rejected > 0: what happened */
};

struct lw_post;

/* Borrows the configuration. Returns NULL with *err if libcurl cannot be used. */
struct lw_post *lw_post_open(const struct lw_config *c, struct lw_err *err);
void lw_post_close(struct lw_post *p);
/* Posts the text, and waits at most timeout_ms for the answer. */
void lw_post_send(struct lw_post *p, const char *text, int64_t timeout_ms,
                  struct lw_post_answer *out);

#endif
