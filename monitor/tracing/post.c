/* SPDX-License-Identifier: Apache-2.0 */
/* Posts OTLP requests to tracing.endpoint, one at a time, and interprets the responses. */
#include "monitor/tracing/private.h"

#include "base/curl.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { ANSWER_MAX = 64 << 10, TOLD_MAX = 120 };

struct lw_post {
    const struct lw_config *c;
    CURL *easy;
    struct curl_slist *headers;
    struct lw_buf answer;
    char error[CURL_ERROR_SIZE];
};

/* --- the request ------------------------------------------------------------------------------ */

/* Stores the beginning of the response, and discards the rest. */
static size_t on_body(char *bytes, size_t size, size_t n, void *ctx) {
    struct lw_post *p = ctx;
    size_t room = ANSWER_MAX - p->answer.n, keep = size * n < room ? size * n : room;
    if (keep) lw_buf_add(&p->answer, bytes, keep);
    return size * n;
}

static void add_header(struct lw_post *p, const char *name, const char *value) {
    struct lw_buf line = {0};
    lw_buf_addf(&line, *value ? "%s: %s" : "%s;", name, value);
    lw_buf_add(&line, "", 1);
    p->headers = lw_or_abort(curl_slist_append(p->headers, line.p));
    lw_buf_free(&line);
}

static void set_headers(struct lw_post *p) {
    add_header(p, "Content-Type", "application/json");
    /* without an empty Expect header, libcurl waits for "100 Continue" before it sends a long
     * body */
    p->headers = lw_or_abort(curl_slist_append(p->headers, "Expect:"));
    for (size_t i = 0; i < p->c->tracing.n_headers; i++)
        add_header(p, p->c->tracing.headers[i].name, p->c->tracing.headers[i].value);
    curl_easy_setopt(p->easy, CURLOPT_HTTPHEADER, p->headers);
}

static void set_options(struct lw_post *p) {
    curl_easy_setopt(p->easy, CURLOPT_URL, p->c->tracing.endpoint);
    lw_curl_direct(p->easy);
    curl_easy_setopt(p->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(p->easy, CURLOPT_USERAGENT, "OTel-OTLP-Exporter-Latchwork/" LW_VERSION);
    curl_easy_setopt(p->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(p->easy, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(p->easy, CURLOPT_ERRORBUFFER, p->error);
    lw_curl_tls(p->easy, &p->c->tracing.tls);
    set_headers(p);
}

struct lw_post *lw_post_open(const struct lw_config *c, struct lw_err *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        lw_fail(err, "libcurl cannot be initialised");
        return NULL;
    }
    struct lw_post *p = lw_alloc(sizeof *p);
    p->c = c;
    p->easy = lw_or_abort(curl_easy_init());
    set_options(p);
    return p;
}

void lw_post_close(struct lw_post *p) {
    curl_easy_cleanup(p->easy);
    curl_slist_free_all(p->headers);
    lw_buf_free(&p->answer);
    free(p);
    curl_global_cleanup();
}

/* --- the answer ------------------------------------------------------------------------------- */

static bool may_succeed_later(long status) {
    return status == 429 || (status >= 502 && status <= 504);
}

/* Writes the beginning of a response with an error status, as one line of printable characters. */
static void tell_status(const struct lw_post *p, long status, struct lw_post_answer *out) {
    char body[TOLD_MAX + 1] = "";
    size_t n = p->answer.n < TOLD_MAX ? p->answer.n : TOLD_MAX;
    for (size_t i = 0; i < n; i++)
        body[i] = isprint((unsigned char)p->answer.p[i]) ? p->answer.p[i] : ' ';
    snprintf(out->why, sizeof out->why, "status %ld%s%s", status, n ? ": " : "", body);
}

/* Reads an integer, which the JSON of protocol buffers may write as a string. */
static int64_t number_of(const json_t *v) {
    if (json_is_string(v)) return strtoll(json_string_value(v), NULL, 10);
    return json_integer_value(v);
}

/* Reads how many spans a collector has rejected although it accepted the request:
 * {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "…"}}. */
static void read_partial(const struct lw_post *p, struct lw_post_answer *out) {
    json_t *root = json_loadb(p->answer.p ? p->answer.p : "", p->answer.n, 0, NULL);
    const json_t *partial = json_object_get(root, "partialSuccess");
    const char *message = json_string_value(json_object_get(partial, "errorMessage"));
    out->rejected = number_of(json_object_get(partial, "rejectedSpans"));
    if (out->rejected < 0) out->rejected = 0;
    if (out->rejected)
        snprintf(out->why, sizeof out->why, "%" PRId64 " spans rejected: %.*s", out->rejected,
                 (int)TOLD_MAX, message ? message : "");
    json_decref(root);
}

static void take_answer(struct lw_post *p, struct lw_post_answer *out) {
    long status = 0;
    curl_off_t seconds = 0;
    curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(p->easy, CURLINFO_RETRY_AFTER, &seconds);
    if (status >= 200 && status < 300) {
        out->end = LW_POST_TAKEN;
        read_partial(p, out);
        return;
    }
    out->end = may_succeed_later(status) ? LW_POST_LATER : LW_POST_REFUSED;
    if (seconds > 0 && seconds < 86400) out->retry_after_ms = 1000 * (int64_t)seconds;
    tell_status(p, status, out);
}

void lw_post_send(struct lw_post *p, const char *text, int64_t timeout_ms,
                  struct lw_post_answer *out) {
    *out = (struct lw_post_answer){.end = LW_POST_LATER};
    p->answer.n = 0;
    p->error[0] = '\0';
    curl_easy_setopt(p->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(p->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(text));
    curl_easy_setopt(p->easy, CURLOPT_POSTFIELDS, text);
    CURLcode code = curl_easy_perform(p->easy);
    if (code == CURLE_OK)
        take_answer(p, out);
    else
        snprintf(out->why, sizeof out->why, "%s",
                 p->error[0] ? p->error : curl_easy_strerror(code));
}
