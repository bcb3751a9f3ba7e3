/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the section `tracing` of the configuration. */
#include "base/bytes.h"
#include "config/option.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { ENDPOINT_MAX = 2048, HEADERS_MAX = 16, HEADER_NAME_MAX = 64, HEADER_VALUE_MAX = 4096 };

/* path at which collectors accept spans, by the specification of OTLP over HTTP */
#define TRACES_PATH "/v1/traces"

/* --- the endpoint ----------------------------------------------------------------------------- */

static bool has_part(CURLU *u, CURLUPart what) {
    char *text = NULL;
    if (curl_url_get(u, what, &text, 0)) return false;
    curl_free(text);
    return true;
}

/* Adds the path of OTLP to a URL that has no path. */
static void complete_path(CURLU *u) {
    char *path = NULL;
    if (!curl_url_get(u, CURLUPART_PATH, &path, 0) && !strcmp(path, "/"))
        curl_url_set(u, CURLUPART_PATH, TRACES_PATH, 0);
    curl_free(path);
}

static const char *endpoint_problem(CURLU *u, const char *text) {
    if (strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0)
        return "must begin with http:// or https://, as http://127.0.0.1:4318";
    if (curl_url_set(u, CURLUPART_URL, text, 0))
        return "is no URL; write it as http://HOST:PORT, such as http://127.0.0.1:4318";
    if (has_part(u, CURLUPART_USER) || has_part(u, CURLUPART_PASSWORD))
        return "put user and password into tracing.headers, as \"authorization\"";
    if (has_part(u, CURLUPART_QUERY))
        return "the log shows the URL, so it takes no query (?…); put a key for the collector into "
               "tracing.headers";
    if (has_part(u, CURLUPART_FRAGMENT)) return "a fragment (#…) is never sent; remove it";
    return NULL;
}

void lw_take_tracing_endpoint(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX], *url = NULL;
    const char *text = lw_take_text(l, o->path, v, ENDPOINT_MAX), *why;
    if (!text) return;
    CURLU *u = lw_or_abort(curl_url());
    why = endpoint_problem(u, text);
    if (why)
        lw_problem(l->problems, "%s: %s: %s", o->path, lw_shown(l, v, buf), why);
    else
        complete_path(u);
    bool whole = !why && !curl_url_get(u, CURLUPART_URL, &url, 0);
    free(l->c->tracing.endpoint);
    l->c->tracing.endpoint = lw_strdup(whole ? url : text);
    curl_free(url);
    curl_url_cleanup(u);
}

/* --- the ratio -------------------------------------------------------------------------------- */

/* Returns true if the value is a number, or a string that became one when a variable was
 * expanded. */
static bool as_number(const struct lw_loader *l, json_t *v, double *out) {
    char *end;
    if (json_is_number(v)) return *out = json_number_value(v), true;
    if (!json_is_string(v) || !lw_was_expanded(l, v)) return false;
    const char *text = json_string_value(v);
    *out = strtod(text, &end);
    return *text && !*end && *text != ' ';
}

void lw_take_tracing_ratio(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    double ratio;
    if (lw_unusable(l, v)) return;
    if (as_number(l, v, &ratio) && ratio >= 0 && ratio <= 1)
        l->c->tracing.ratio = ratio;
    else
        lw_problem(l->problems,
                   "%s: must be a number from 0 (no new traces) to 1 (every message), is %s",
                   o->path, lw_shown(l, v, buf));
}

/* --- headers ---------------------------------------------------------------------------------- */

static bool name_ok(const char *name) {
    size_t n = strlen(name);
    return n && n <= HEADER_NAME_MAX && strspn(name, LW_PLAIN) == n;
}

static bool value_ok(const char *value, size_t n) {
    if (!value || n > HEADER_VALUE_MAX || strlen(value) != n) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < ' ' || value[i] == 0x7f) return false;
    return true;
}

/* Returns a text that says what is wrong with a header, or NULL. The text never shows the value,
 * which may be a secret. */
static const char *header_problem(const char *name, json_t *value) {
    static const char *const own[] = {"content-type", "content-length",    "content-encoding",
                                      "host",         "transfer-encoding", "user-agent"};
    if (!name_ok(name)) return "is no name of a header; use 1 to 64 of A-Z a-z 0-9 . _ -";
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcasecmp(name, own[i])) return "is set by Latchwork; remove it";
    if (value_ok(json_string_value(value), json_string_length(value))) return NULL;
    return "must be a string of at most 4096 bytes without control characters";
}

void lw_take_tracing_headers(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    struct lw_config *c = l->c;
    const char *name, *why;
    json_t *value;
    if (!json_is_object(v) || json_object_size(v) > HEADERS_MAX) {
        lw_problem(l->problems,
                   "%s: must be an object of at most %d headers, as {\"authorization\": \"Bearer "
                   "${file:PATH}\"}",
                   o->path, (int)HEADERS_MAX);
        return;
    }
    c->tracing.headers = lw_alloc((json_object_size(v) + 1) * sizeof *c->tracing.headers);
    json_object_foreach(v, name, value) {
        if (lw_unusable(l, value)) continue;
        if ((why = header_problem(name, value)))
            lw_problem(l->problems, "%s.%.64s: %s", o->path, name, why);
        else
            c->tracing.headers[c->tracing.n_headers++] =
                (struct lw_property){lw_strdup(name), lw_strdup(json_string_value(value)), true};
    }
}

/* --- what is shown ---------------------------------------------------------------------------- */

json_t *lw_show_tracing_endpoint(const struct lw_config *c) {
    return c->tracing.endpoint ? json_string(c->tracing.endpoint) : NULL;
}
json_t *lw_show_tracing_ratio(const struct lw_config *c) { return json_real(c->tracing.ratio); }

/* Every value of a header counts as a secret, because a service may use any name for the header
 * that contains its API key. */
json_t *lw_show_tracing_headers(const struct lw_config *c) {
    json_t *object = c->tracing.n_headers ? json_object() : NULL;
    for (size_t i = 0; i < c->tracing.n_headers; i++)
        json_object_set_new(object, c->tracing.headers[i].name, json_string("***"));
    return object;
}

/* --- checks of several keys ------------------------------------------------------------------- */

static void check_file(struct lw_loader *l, const char *path, const char *file) {
    if (file && access(file, R_OK))
        lw_problem(l->problems, "%s: %s can't be read: %s", path, file, strerror(errno));
}

static void check_headers(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (!c->tracing.n_headers || !strncasecmp(c->tracing.endpoint, "https://", 8)) return;
    if (strncasecmp(c->tracing.endpoint, "http://127.", 11) &&
        strncasecmp(c->tracing.endpoint, "http://localhost", 16))
        lw_problem_warn(l->problems, "tracing.headers: tracing.endpoint is not https://, so they "
                                     "can be read on the way; use https://");
}

void lw_finish_tracing(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    const struct lw_tls *tls = &c->tracing.tls;
    bool files = tls->ca_file || tls->cert_file || tls->key_file;
    check_file(l, "tracing.tls.ca_file", tls->ca_file);
    check_file(l, "tracing.tls.cert_file", tls->cert_file);
    check_file(l, "tracing.tls.key_file", tls->key_file);
    if (tls->key_file && !tls->cert_file)
        lw_problem(l->problems,
                   "tracing.tls.key_file: needs tracing.tls.cert_file; set it, or remove the key");
    if (!c->tracing.endpoint) {
        if (c->tracing.n_headers || files)
            lw_problem_warn(
                l->problems,
                "tracing: no effect without tracing.endpoint; set it, as http://127.0.0.1:4318");
        return;
    }
    if (files && strncasecmp(c->tracing.endpoint, "https://", 8) != 0)
        lw_problem_warn(l->problems,
                        "tracing.tls: no effect: tracing.endpoint begins with no https://");
    check_headers(l);
}
