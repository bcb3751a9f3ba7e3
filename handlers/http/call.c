/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/call.h"

#include "base/curl.h"
#include "base/redis/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { BUFFER_KEPT = 64 << 10 }; /* size in bytes; a larger buffer is freed after its request */

/* --- what the service sends ------------------------------------------------------------------- */

static size_t on_body(char *p, size_t size, size_t n, void *ctx) {
    struct call *c = ctx;
    return received_body(&c->received, lw_bytes(p, size * n)) ? size * n : 0;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    struct call *c = ctx;
    return received_header(&c->received, lw_bytes(p, size * n)) ? size * n : 0;
}

/* --- making a call ---------------------------------------------------------------------------- */

static void set_target(struct call *c, const struct http_settings *s) {
    curl_easy_setopt(c->easy, CURLOPT_URL, s->target_url);
    lw_curl_direct(c->easy);
    curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(c->easy, CURLOPT_PIPEWAIT, s->tls.on ? 1L : 0L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)s->connect_timeout_ms);
    curl_easy_setopt(c->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c->easy, CURLOPT_USERAGENT, "latchwork/" LW_VERSION);
    if (s->connect_to) curl_easy_setopt(c->easy, CURLOPT_CONNECT_TO, s->connect_to);
    if (s->tls.on) lw_curl_tls(c->easy, &s->tls);
}

static void set_callbacks(struct call *c) {
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    /* do not let an aborted transfer wait until its name lookup ends */
    curl_easy_setopt(c->easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c->easy, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->error);
}

struct call *call_new(struct lw_handler *h, const struct http_settings *s, int batch) {
    struct call *c = lw_alloc(sizeof *c + (size_t)batch * sizeof(struct lw_job *));
    c->h = h;
    c->easy = lw_or_abort(curl_easy_init());
    c->head.raw = s->opening != NULL;
    set_target(c, s);
    set_callbacks(c);
    if (s->opening) curl_easy_setopt(c->easy, CURLOPT_CONNECT_ONLY, 1L);
    return c;
}

void call_free(struct call *c) {
    curl_easy_cleanup(c->easy);
    head_free(&c->head);
    lw_buf_free(&c->body);
    received_free(&c->received);
    reader_free(&c->reader);
    free(c);
}

/* --- the request ------------------------------------------------------------------------------ */

static void reuse(struct lw_buf *b) {
    b->n = 0;
    if (b->cap > BUFFER_KEPT) lw_buf_free(b);
}

static void prepare_batch(struct call *c, const struct http_settings *s) {
    for (int i = c->at; i < c->upto; i++) {
        lw_buf_add(&c->body, i == c->at ? "[" : ",", 1);
        event_json(&c->body, c->jobs[i], s->content_type, true);
    }
    lw_buf_add(&c->body, "]", 1);
    head_add_text(&c->head, "content-type", "application/cloudevents-batch+json; charset=utf-8");
}

static void prepare_message(struct call *c, const struct http_settings *s, int64_t deadline_ms) {
    const struct lw_job *job = c->jobs[c->at];
    if (s->mode == HTTP_BINARY) {
        event_head(&c->head, job, s->content_type, deadline_ms);
    } else {
        event_json(&c->body, job, s->content_type, false);
        head_add_text(&c->head, "content-type", "application/cloudevents+json; charset=utf-8");
        event_head_own(&c->head, job, deadline_ms);
    }
    event_head_record(&c->head, job, &s->fixed);
}

static void sign(struct call *c, const struct http_settings *s, struct lw_bytes body,
                 int64_t now_s) {
    struct lw_bytes id = lw_bytes_of(c->jobs[c->at]->identity);
    struct lw_buf text = {0};
    if (!s->signer.n) return;
    head_add(&c->head, lw_bytes_of("webhook-id"), id);
    head_add_number(&c->head, "webhook-timestamp", now_s);
    signer_add(&s->signer, &text, id, now_s, body);
    head_add(&c->head, lw_bytes_of("webhook-signature"), lw_bytes(text.p, text.n));
    lw_buf_free(&text);
}

static void prepare_content(struct call *c, const struct http_settings *s, int64_t deadline_ms) {
    if (s->mode == HTTP_BATCH)
        prepare_batch(c, s);
    else
        prepare_message(c, s, deadline_ms);
    c->content = s->mode == HTTP_BINARY ? c->jobs[c->at]->payload : lw_bytes(c->body.p, c->body.n);
}

static void set_request(struct call *c) {
    /* An empty Expect header keeps libcurl from waiting for "100 Continue" before it sends a long
     * body. */
    head_add_line(&c->head, "Expect:");
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, head_list(&c->head));
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->content.n);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, c->content.n ? c->content.p : "");
}

/* Returns true if a header of the record sets this header of the request. */
static bool record_names(const struct call *c, const struct http_settings *s, const char *name) {
    const struct lw_job *job = c->jobs[c->at];
    for (size_t i = 0; s->mode != HTTP_BATCH && i < job->n_headers; i++)
        if (job->headers[i].name.n == strlen(name) &&
            strncasecmp(job->headers[i].name.p, name, strlen(name)) == 0)
            return true;
    return false;
}

/* Appends the headers that libcurl would add to a request if it sent the request. */
static void end_head(struct call *c, const struct http_settings *s) {
    if (!s->names_agent && !record_names(c, s, "user-agent"))
        head_add_line(&c->head, "User-Agent: latchwork/" LW_VERSION);
    if (!s->names_types && !record_names(c, s, "accept")) head_add_line(&c->head, "Accept: */*");
    head_add_number(&c->head, "Content-Length", (int64_t)c->content.n);
    lw_buf_add(&c->head.text, "\r\n", 2);
    c->sent = 0;
    reader_begin(&c->reader, &c->received);
}

void call_prepare(struct call *c, const struct http_settings *s, int64_t now_ms, int64_t wall_ms) {
    const struct lw_job *job = c->jobs[c->at];
    int64_t deadline_ms = job->give_up_ms == INT64_MAX ? 0 : wall_ms + job->give_up_ms - now_ms;
    reuse(&c->body);
    received_clear(&c->received);
    head_clear(&c->head);
    c->error[0] = '\0';
    if (s->opening) lw_buf_add(&c->head.text, s->opening, strlen(s->opening));
    for (size_t i = 0; i < s->fixed.n; i++) head_add_line(&c->head, s->fixed.lines[i]);
    if (s->host_line) head_add_line(&c->head, s->host_line);
    prepare_content(c, s, deadline_ms);
    sign(c, s, c->content, wall_ms / 1000);
    if (s->opening)
        end_head(c, s);
    else
        set_request(c);
}

/* --- the end ---------------------------------------------------------------------------------- */

static enum call_end kind_of(const struct call *c, CURLcode code) {
    switch (code) {
    case CURLE_OK: return CALL_ANSWERED;
    case CURLE_WRITE_ERROR: return c->received.too_long ? CALL_TOO_LONG : CALL_BROKEN;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    /* The only time limit given to libcurl is that for making a connection, so
     * CURLE_OPERATION_TIMEDOUT means that no connection was made. */
    case CURLE_OPERATION_TIMEDOUT: return CALL_UNREACHED;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_USE_SSL_FAILED: return CALL_TLS;
    default: return CALL_BROKEN;
    }
}

/* Writes to `why` how the transfer ended. `detail` is the cause as libcurl or the system
 * describes it. */
static void tell_why(enum call_end end, const struct http_settings *s, const char *detail,
                     char *why, size_t size) {
    static const char *const what[] = {[CALL_UNREACHED] = "cannot connect to",
                                       [CALL_TLS] = "TLS failed with",
                                       [CALL_BROKEN] = "no answer from"};
    if (end == CALL_TOO_LONG)
        snprintf(why, size, "the answer is longer than 1 MiB, or its headers than 64 KiB");
    else
        snprintf(why, size, "%s %s: %s", what[end], s->service, detail);
}

enum call_end call_ended(struct call *c, CURLcode code, const struct http_settings *s, char *why,
                         size_t size) {
    enum call_end end = kind_of(c, code);
    long os = 0;
    if (end == CALL_ANSWERED) return end;
    curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &os);
    tell_why(end, s,
             os && code == CURLE_COULDNT_CONNECT ? strerror((int)os)
             : c->error[0]                       ? c->error
                                                 : curl_easy_strerror(code),
             why, size);
    return end;
}

enum call_end call_read(const struct call *c, const struct http_settings *s, char *why,
                        size_t size) {
    if (c->reader.state == READER_WHOLE) return CALL_ANSWERED;
    enum call_end end = c->reader.state == READER_TOO_LONG ? CALL_TOO_LONG : CALL_BROKEN;
    tell_why(end, s, c->reader.problem, why, size);
    return end;
}

struct http_answer call_answer(const struct call *c) {
    long status = c->reader.status;
    if (!c->head.raw) curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return (struct http_answer){.status = (int)status,
                                .body = lw_bytes(c->received.body.p, c->received.body.n),
                                .retry_after = c->received.retry_after};
}
