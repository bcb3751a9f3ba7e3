/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/call.h"

#include "base/clock.h"
#include "base/curl.h"
#include "handlers/http/private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* --- what the service sends ------------------------------------------------------------------- */

/* Returns the value of a header line without white space around it. */
static struct lw_bytes value_of(struct lw_bytes line, const char *name) {
    struct lw_bytes v = lw_bytes(line.p + strlen(name), line.n - strlen(name));
    while (v.n && strchr(" \t", *v.p)) v.p++, v.n--;
    while (v.n && strchr(" \t\r\n", v.p[v.n - 1])) v.n--;
    return v;
}

static void take_retry_after(struct http_received *a, struct lw_bytes value) {
    if (value.n >= sizeof a->retry_after) return;
    memcpy(a->retry_after, value.p, value.n);
    a->retry_after[value.n] = '\0';
}

/* Notes on the connection that a response has begun. */
static void note_answer(const struct call *c, struct lw_bytes line) {
    struct http_socket *socket = http_socket_at(&c->h->sockets, c->port);
    if (!socket) return;
    socket->answered = true;
    socket->multiplexed = event_begins(line, "HTTP/2");
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx) {
    struct call *c = ctx;
    struct http_received *a = &c->received;
    a->too_long = a->body.n + size * n > RECEIVED_BODY_MAX;
    if (a->too_long) c->h->sockets.cut = true;
    if (!a->too_long) lw_buf_add(&a->body, p, size * n);
    return a->too_long ? 0 : size * n;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    static const char retry_after[] = "retry-after:", type[] = "content-type:";
    struct call *c = ctx;
    struct http_received *a = &c->received;
    struct lw_bytes line = lw_bytes(p, size * n);
    a->head_bytes += line.n;
    if (a->head_bytes > RECEIVED_HEAD_MAX) {
        a->too_long = c->h->sockets.cut = true;
        return 0;
    }
    if (event_begins(line, "HTTP/")) {
        /* ignore the headers of an informational (1xx) response */
        a->retry_after[0] = '\0';
        a->json = a->head_over = false;
        note_answer(c, line);
    }
    a->head_over = line.n <= 2 && (line.n == 0 || strchr("\r\n", *line.p));
    if (event_begins(line, retry_after)) take_retry_after(a, value_of(line, retry_after));
    if (event_begins(line, type)) a->json = event_json_type(value_of(line, type));
    return line.n;
}

/* libcurl tells only in its log that bytes followed the end of an answer. */
static int on_log(CURL *easy, curl_infotype type, char *p, size_t n, void *ctx) {
    static const char *const texts[] = {"Excess found", "Leftovers after chunking"};
    struct call *c = ctx;
    for (size_t i = 0; type == CURLINFO_TEXT && i < sizeof texts / sizeof *texts; i++) {
        if (!event_begins(lw_bytes(p, n), texts[i])) continue;
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
        http_suspect(c->h, "more bytes than its answer has");
    }
    return 0;
}

/* Called when libcurl has chosen a connection and is about to send the request. */
static int on_send(void *ctx, char *peer, char *local, int peer_port, int local_port) {
    struct call *c = ctx;
    struct http_socket *socket = http_socket_at(&c->h->sockets, local_port);
    (void)peer, (void)local, (void)peer_port;
    bool late = lw_boot_us() - c->begun_us > c->h->resend_us;
    if (c->sends++ && (late || c->begun || c->received.head_bytes)) return CURL_PREREQFUNC_ABORT;
    c->port = local_port;
    c->unsent = socket && !http_socket_clean(&c->h->sockets, socket);
    if (socket && !c->unsent) http_socket_watch(socket, socket->multiplexed ? NULL : &c->begun);
    return c->unsent ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
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
    curl_easy_setopt(c->easy, CURLOPT_PREREQFUNCTION, on_send);
    curl_easy_setopt(c->easy, CURLOPT_PREREQDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_DEBUGFUNCTION, on_log);
    curl_easy_setopt(c->easy, CURLOPT_DEBUGDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_VERBOSE, 1L);
    http_sockets_use(&c->h->sockets, c->easy);
}

struct call *call_new(struct lw_handler *h, const struct http_settings *s, int batch) {
    struct call *c = lw_alloc(sizeof *c + (size_t)batch * sizeof(struct lw_job *));
    c->h = h;
    c->easy = lw_or_abort(curl_easy_init());
    set_target(c, s);
    set_callbacks(c);
    curl_easy_setopt(c->easy, CURLOPT_MAXLIFETIME_CONN, h->life_s);
    return c;
}

void call_free(struct call *c) {
    curl_easy_cleanup(c->easy);
    head_free(&c->head);
    lw_buf_free(&c->body);
    lw_buf_free(&c->received.body);
    free(c);
}

/* --- the request ------------------------------------------------------------------------------ */

void call_clear(struct call *c) {
    lw_buf_clear(&c->body);
    lw_buf_clear(&c->received.body);
    head_clear(&c->head);
}

static void prepare_batch(struct call *c, const struct http_settings *s) {
    for (int i = c->at; i < c->upto; i++) {
        lw_buf_add(&c->body, i == c->at ? "[" : ",", 1);
        event_json(&c->body, c->jobs[i], s->content_type, &s->passed);
    }
    lw_buf_add(&c->body, "]", 1);
    head_add_text(&c->head, "content-type", "application/cloudevents-batch+json; charset=utf-8");
}

static void prepare_message(struct call *c, const struct http_settings *s, int64_t deadline_ms) {
    const struct lw_job *job = c->jobs[c->at];
    if (s->mode == HTTP_BINARY) {
        event_head(&c->head, job, s->content_type, deadline_ms);
    } else {
        event_json(&c->body, job, s->content_type, NULL);
        head_add_text(&c->head, "content-type", "application/cloudevents+json; charset=utf-8");
        event_head_own(&c->head, job, deadline_ms);
    }
    event_head_record(&c->head, job, &s->fixed, &s->passed);
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

void call_prepare(struct call *c, const struct http_settings *s, int64_t now_ms, int64_t wall_ms) {
    const struct lw_job *job = c->jobs[c->at];
    int64_t deadline_ms = job->give_up_ms == INT64_MAX ? 0 : wall_ms + job->give_up_ms - now_ms;
    call_clear(c);
    c->received = (struct http_received){.body = c->received.body};
    c->sends = c->port = 0;
    c->unsent = c->begun = false;
    c->error[0] = '\0';
    for (size_t i = 0; i < s->fixed.n; i++) head_add_line(&c->head, s->fixed.lines[i]);
    if (s->host_line) head_add_line(&c->head, s->host_line);
    prepare_content(c, s, deadline_ms);
    sign(c, s, c->content, wall_ms / 1000);
    set_request(c);
}

/* --- the end ---------------------------------------------------------------------------------- */

static enum call_end kind_of(const struct call *c, CURLcode code) {
    switch (code) {
    /* libcurl takes headers that end with the connection for whole */
    case CURLE_OK: return c->received.head_over ? CALL_ANSWERED : CALL_BROKEN;
    case CURLE_ABORTED_BY_CALLBACK: return c->unsent ? CALL_UNSENT : CALL_BROKEN;
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
    if (end == CALL_ANSWERED || end == CALL_UNSENT) return end;
    if (code == CURLE_ABORTED_BY_CALLBACK)
        snprintf(c->error, sizeof c->error, "the service closed a connection that it had kept, %s",
                 c->begun ? "within an answer" : "after it may have read the request");
    if (code == CURLE_OK) snprintf(c->error, sizeof c->error, "it ended within the headers");
    curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &os);
    tell_why(end, s,
             os && code == CURLE_COULDNT_CONNECT ? strerror((int)os)
             : c->error[0]                       ? c->error
                                                 : curl_easy_strerror(code),
             why, size);
    return end;
}

struct http_answer call_answer(const struct call *c) {
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return (struct http_answer){.status = (int)status,
                                .body = lw_bytes(c->received.body.p, c->received.body.n),
                                .json = c->received.json,
                                .batch = c->h->set.mode == HTTP_BATCH,
                                .retry_after = c->received.retry_after};
}
