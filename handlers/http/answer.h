/* SPDX-License-Identifier: Apache-2.0 */
/* answer: what a response of the service means for the messages of its request. The functions of
 * this file do no I/O.
 *
 *     status                    outcome
 *     2xx                       done
 *     409, 412                  back: the fence is stale
 *     408, 425, 429, 3xx, 5xx   retry
 *     any other 4xx             dead
 *
 * If the response has the header Retry-After, a message that is retried or given back waits for
 * that time. A JSON body with an "outcome" overrides the status, and its "after_ms" the header.
 *
 * A body that is meant to be an outcome and cannot be read is a retry, whatever the status: nobody
 * knows what the service did. A body is meant to be an outcome if it begins, after a byte order
 * mark and white space, with '{' or '[' and names "outcome" or "batch". A body whose Content-Type
 * is JSON must parse, too. */
#ifndef LW_HANDLERS_HTTP_ANSWER_H
#define LW_HANDLERS_HTTP_ANSWER_H

#include "handlers/handler.h"
#include "handlers/retry.h"

struct http_answer {
    int status;
    struct lw_bytes body;
    bool json;               /* the Content-Type of the response is JSON */
    bool batch;              /* the request was a batch, to which a list is the natural answer */
    const char *retry_after; /* value of the header; "" if it is absent */
};

struct http_verdict {
    enum lw_outcome outcome;
    struct lw_retry retry; /* for RETRY and BACK: when the message comes back */
    char reason[LW_REASON_MAX];
};

/* Chooses outcome and wait by the status and Retry-After alone. The reason quotes the beginning of
 * the body. now_s is in seconds since 1970. */
void answer_by_status(const struct http_answer *a, int64_t now_s, struct http_verdict *out);

/* Reads the body. Returns 0 and sets *out to the body as a JSON document, which the caller must
 * release, or to NULL if the body does not override the status. Returns -1 with *err if the body is
 * meant to be an outcome and cannot be read: then each message of the request is a retry. */
int answer_document(const struct http_answer *a, json_t **out, struct lw_err *err);
/* Decides the outcome of message number `at` (from 0) of a request with `n` messages. If it does
 * not say when the message comes back, out->retry is unchanged. */
void answer_by_document(const json_t *document, size_t at, size_t n, const char *identity,
                        struct http_verdict *out);

#endif
