/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/call.h"

#include "base/redis/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { BUFFER_KEPT = 64 << 10 }; /* larger buffers are not kept for later requests */

/* --- what the service sends ------------------------------------------------------------------------------------------------------- */

static size_t on_body(char *p, size_t size, size_t n, void *ctx) {
    struct call *c = ctx;
    n *= size;
    if (c->answer.n + n > ANSWER_BODY_MAX) {
        c->too_long = true;
        return 0;
    }
    lw_buf_add(&c->answer, p, n);
    return n;
}

static void take_retry_after(struct call *c, const char *value, size_t n) {
    while (n && strchr(" \t", *value)) value++, n--;
    while (n && strchr("\r\n \t", value[n - 1])) n--;
    if (n >= sizeof c->retry_after) return;
    memcpy(c->retry_after, value, n);
    c->retry_after[n] = '\0';
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    static const char name[] = "retry-after:";
    struct call *c = ctx;
    n *= size;
    c->head_bytes += n;
    if (c->head_bytes > CALL_HEAD_MAX) {
        c->too_long = true;
        return 0;
    }
    if (n > 5 && memcmp(p, "HTTP/", 5) == 0) c->retry_after[0] = '\0'; /* ignore the Retry-After of an informational answer */
    if (n > sizeof name && strncasecmp(p, name, sizeof name - 1) == 0) take_retry_after(c, p + sizeof name - 1, n - sizeof name + 1);
    return n;
}

/* --- making a call ---------------------------------------------------------------------------------------------------------------- */

static void set_tls(CURL *easy, const struct lw_tls *t) {
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, t->no_verify ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, t->no_verify ? 0L : 2L);
    if (t->ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, t->ca_file);
    if (t->ca_file) curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    if (t->cert_file) curl_easy_setopt(easy, CURLOPT_SSLCERT, t->cert_file);
    if (t->cert_file) curl_easy_setopt(easy, CURLOPT_SSLKEY, t->key_file ? t->key_file : t->cert_file);
}

static void set_target(struct call *c, const struct http_settings *s) {
    curl_easy_setopt(c->easy, CURLOPT_URL, s->target_url);
    curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c->easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c->easy, CURLOPT_PROXY, ""); /* use no proxy, even if the environment names one */
    curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(c->easy, CURLOPT_PIPEWAIT, s->tls.on ? 1L : 0L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)s->connect_timeout_ms);
    curl_easy_setopt(c->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c->easy, CURLOPT_USERAGENT, "latchwork/" LW_VERSION);
    if (s->connect_to) curl_easy_setopt(c->easy, CURLOPT_CONNECT_TO, s->connect_to);
    if (s->tls.on) set_tls(c->easy, &s->tls);
}

static void set_callbacks(struct call *c) {
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_QUICK_EXIT, 1L); /* an aborted transfer does not wait for its name lookup */
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
    set_target(c, s);
    set_callbacks(c);
    return c;
}

void call_free(struct call *c) {
    curl_easy_cleanup(c->easy);
    head_free(&c->head);
    lw_buf_free(&c->body);
    lw_buf_free(&c->answer);
    free(c);
}

/* --- the request ------------------------------------------------------------------------------------------------------------------ */

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

static void sign(struct call *c, const struct http_settings *s, struct lw_bytes body, int64_t now_s) {
    struct lw_bytes id = lw_bytes_of(c->jobs[c->at]->identity);
    struct lw_buf text = {0};
    if (!s->signer.n) return;
    head_add(&c->head, lw_bytes_of("webhook-id"), id);
    head_add_number(&c->head, "webhook-timestamp", now_s);
    signer_add(&s->signer, &text, id, now_s, body);
    head_add(&c->head, lw_bytes_of("webhook-signature"), lw_bytes(text.p, text.n));
    lw_buf_free(&text);
}

void call_prepare(struct call *c, const struct http_settings *s, int64_t now_ms, int64_t wall_ms) {
    const struct lw_job *job = c->jobs[c->at];
    int64_t deadline_ms = job->give_up_ms == INT64_MAX ? 0 : wall_ms + job->give_up_ms - now_ms;
    reuse(&c->body);
    reuse(&c->answer);
    head_clear(&c->head);
    c->retry_after[0] = c->error[0] = '\0';
    c->head_bytes = 0;
    c->too_long = false;
    for (size_t i = 0; i < s->fixed.n; i++) head_add_line(&c->head, s->fixed.lines[i]);
    if (s->host_line) head_add_line(&c->head, s->host_line);
    if (s->mode == HTTP_BATCH)
        prepare_batch(c, s);
    else
        prepare_message(c, s, deadline_ms);
    struct lw_bytes body = s->mode == HTTP_BINARY ? job->payload : lw_bytes(c->body.p, c->body.n);
    sign(c, s, body, wall_ms / 1000);
    head_add_line(&c->head, "Expect:"); /* without this line libcurl asks the service before it sends a long body */
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, head_list(&c->head));
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, body.n ? body.p : "");
}

/* --- the end ---------------------------------------------------------------------------------------------------------------------- */

static enum call_end kind_of(const struct call *c, CURLcode code) {
    switch (code) {
    case CURLE_OK: return CALL_ANSWERED;
    case CURLE_WRITE_ERROR: return c->too_long ? CALL_TOO_LONG : CALL_BROKEN;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: return CALL_UNREACHED; /* no connection in time: we set libcurl a time limit only for connecting */
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

static void tell_why(const struct call *c, CURLcode code, enum call_end end, const struct http_settings *s, char *why, size_t size) {
    static const char *const what[] = {
        [CALL_UNREACHED] = "cannot connect to", [CALL_TLS] = "TLS failed with", [CALL_BROKEN] = "no answer from"};
    long os = 0;
    curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &os);
    const char *text = os && code == CURLE_COULDNT_CONNECT ? strerror((int)os) : c->error[0] ? c->error : curl_easy_strerror(code);
    if (end == CALL_TOO_LONG)
        snprintf(why, size, "the answer is longer than 1 MiB, or its headers than 64 KiB");
    else
        snprintf(why, size, "%s %s: %s", what[end], s->service, text);
}

enum call_end call_ended(struct call *c, CURLcode code, const struct http_settings *s, char *why, size_t size) {
    enum call_end end = kind_of(c, code);
    if (end != CALL_ANSWERED) tell_why(c, code, end, s, why, size);
    return end;
}

struct http_answer call_answer(const struct call *c) {
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return (struct http_answer){.status = (int)status, .body = lw_bytes(c->answer.p, c->answer.n), .retry_after = c->retry_after};
}
