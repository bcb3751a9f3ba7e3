/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/settings.h"

#include "handlers/json_text.h"
#include "handlers/section.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum { CONNECT_TIMEOUT_MS = 5000, BREAKER_PERCENT = 50 };

static const char *const modes[] = {"binary", "structured", "batch", NULL};

/* Returns the string of a key, or NULL if the key is absent or its value is not valid. Reports a
 * problem if the value is not a non-empty string that head_value_ok() accepts, if it contains a
 * NUL, or if a `required` key is absent. */
static const char *clean_string(const json_t *section, const char *key, bool required,
                                struct lw_problems *problems) {
    const char *text = lw_section_string(section, key, required, problems);
    if (!text || (head_value_ok(lw_bytes_of(text)) &&
                  strlen(text) == json_string_length(json_object_get(section, key))))
        return text;
    lw_problem(problems, "handler.%s: must have at most 8 KiB and no control characters", key);
    return NULL;
}

/* --- the URL ---------------------------------------------------------------------------------- */

/* Returns a copy of one part of the URL, or NULL if the URL has no such part. */
static char *part(CURLU *u, CURLUPart what, unsigned flags) {
    char *text = NULL, *copy;
    if (curl_url_get(u, what, &text, flags)) return NULL;
    copy = lw_strdup(text);
    curl_free(text);
    return copy;
}

static bool has(CURLU *u, CURLUPart what) {
    char *text = part(u, what, 0);
    free(text);
    return text != NULL;
}

static void take_parts(struct http_settings *s, CURLU *u) {
    struct lw_buf text = {0};
    char *scheme = part(u, CURLUPART_SCHEME, 0), *host = part(u, CURLUPART_HOST, 0);
    s->port = part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT);
    lw_buf_addf(&text, "%s://%s:%s", scheme, host, s->port);
    s->service = lw_memdup(text.p, text.n);
    s->host = host[0] == '[' ? lw_memdup(host + 1, strlen(host) - 2) : lw_strdup(host);
    s->tls.on = strcmp(scheme, "https") == 0;
    lw_buf_free(&text);
    free(scheme);
    free(host);
}

static const char *url_problem(CURLU *u, const char *url) {
    CURLUcode bad = curl_url_set(u, CURLUPART_URL, url, 0);
    if (bad) return curl_url_strerror(bad);
    if (has(u, CURLUPART_USER) || has(u, CURLUPART_PASSWORD))
        return "put user and password into handler.headers, as \"authorization\"";
    if (has(u, CURLUPART_FRAGMENT)) return "a fragment (#…) is never sent; remove it";
    return NULL;
}

static void read_url(const json_t *section, struct http_settings *s, struct lw_problems *problems) {
    const char *url = clean_string(section, "url", true, problems), *why;
    if (!url) return;
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) {
        lw_problem(
            problems,
            "handler.url: must begin with http:// or https://, as http://127.0.0.1:8080/orders");
        return;
    }
    CURLU *u = lw_or_abort(curl_url());
    if (strlen(url) > HTTP_URL_MAX)
        lw_problem(problems, "handler.url: must be at most %d bytes long", HTTP_URL_MAX);
    else if ((why = url_problem(u, url)))
        lw_problem(problems, "handler.url: %s", why);
    else {
        s->url = lw_strdup(url);
        take_parts(s, u);
    }
    curl_url_cleanup(u);
}

/* --- words, numbers and headers --------------------------------------------------------------- */

static void read_mode(const json_t *section, struct http_settings *s,
                      struct lw_problems *problems) {
    const char *mode = lw_section_string(section, "mode", false, problems);
    int i = 0;
    if (!mode) return;
    while (modes[i] && strcmp(modes[i], mode) != 0) i++;
    if (modes[i])
        s->mode = (enum http_mode)i;
    else
        lw_problem(problems, "handler.mode: \"%.64s\": must be binary, structured or batch", mode);
}

static int64_t number(const json_t *section, const char *key, int64_t min, int64_t max,
                      int64_t dflt, struct lw_problems *problems) {
    const json_t *v = json_object_get(section, key);
    if (!v) return dflt;
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max)
        return json_integer_value(v);
    lw_problem(problems, "handler.%s: must be a number from %lld to %lld", key, (long long)min,
               (long long)max);
    return dflt;
}

static const char *header_problem(const char *name, const json_t *value) {
    if (!head_name_ok(lw_bytes_of(name))) return "is no name of a header";
    if (strcasecmp(name, "content-type") == 0) return "use handler.content_type instead";
    if (event_reserved(lw_bytes_of(name))) return "is set by Latchwork or by HTTP itself";
    if (!json_is_string(value)) return "must be a string";
    struct lw_bytes text = lw_bytes(json_string_value(value), json_string_length(value));
    return head_value_ok(text) ? NULL : "must have at most 8 KiB and no control characters";
}

static void add_header(struct http_settings *s, const char *name, const char *value) {
    struct lw_buf line = {0};
    lw_buf_addf(&line, *value ? "%s: %s" : "%s;", name, value);
    s->fixed.lines[s->fixed.n++] = lw_memdup(line.p, line.n);
    lw_buf_free(&line);
}

static void read_headers(const json_t *section, struct http_settings *s,
                         struct lw_problems *problems) {
    json_t *headers = json_object_get(section, "headers"), *value;
    const char *name, *why;
    if (!headers) return;
    if (!json_is_object(headers) || json_object_size(headers) > HTTP_HEADERS_MAX) {
        lw_problem(problems,
                   "handler.headers: must be an object of at most %d headers, as "
                   "{\"authorization\": \"Bearer ${TOKEN}\"}",
                   HTTP_HEADERS_MAX);
        return;
    }
    s->fixed.lines = lw_alloc(HTTP_HEADERS_MAX * sizeof *s->fixed.lines);
    json_object_foreach(headers, name, value) {
        if ((why = header_problem(name, value)))
            lw_problem(problems, "handler.headers.%.64s: %s", name, why);
        else
            add_header(s, name, json_string_value(value));
    }
}

static const char *passed_problem(const char *name) {
    size_t n = strlen(name);
    bool all = n && name[n - 1] == '*';
    struct lw_bytes plain = lw_bytes(name, all ? n - 1 : n);
    if (plain.n ? !head_name_ok(plain) : !all) return "is no name of a header";
    if (event_trusted(plain))
        return "services trust this header, so a record must not set it; set it in "
               "handler.headers, or send it under another name";
    if (!all && strcasecmp(name, "content-type") == 0) return "is passed on in any case";
    if (!all && event_reserved(plain)) return "is set by Latchwork or by HTTP itself";
    return NULL;
}

static void read_passed(const json_t *section, struct http_settings *s,
                        struct lw_problems *problems) {
    const json_t *list = json_object_get(section, "record_headers"), *v;
    const char *why;
    size_t i;
    s->passed = event_passed_usual;
    if (!list) return;
    if (!json_is_array(list) || json_array_size(list) > HTTP_PASSED_MAX) {
        lw_problem(problems,
                   "handler.record_headers: must be a list of at most %d names, as "
                   "[\"traceparent\", \"x-shop-*\"]",
                   HTTP_PASSED_MAX);
        return;
    }
    s->passed_names = lw_alloc(HTTP_PASSED_MAX * sizeof *s->passed_names);
    s->passed = (struct event_passed){s->passed_names, json_array_size(list)};
    json_array_foreach(list, i, v) {
        s->passed_names[i] = json_is_string(v) ? json_string_value(v) : "";
        why = json_is_string(v) ? passed_problem(s->passed_names[i]) : "must be a string";
        if (why) lw_problem(problems, "handler.record_headers[%zu]: %s", i, why);
    }
}

/* --- secrets and TLS -------------------------------------------------------------------------- */

static void read_key(const json_t *key, struct http_settings *s, struct lw_problems *problems) {
    if (json_is_string(key) && s->signer.n < SIGN_KEYS_MAX &&
        sign_key_read(json_string_value(key), &s->signer.keys[s->signer.n])) {
        s->signer.n++;
        return;
    }
    lw_problem(problems,
               "handler.hmac_key: must be \"whsec_\" and %d to %d bytes in base64 (make one with "
               "openssl rand -base64 32), or a list of at "
               "most %d of them",
               SIGN_KEY_MIN, SIGN_KEY_MAX, SIGN_KEYS_MAX);
}

static void read_keys(const json_t *section, struct http_settings *s,
                      struct lw_problems *problems) {
    const json_t *keys = json_object_get(section, "hmac_key"), *key;
    size_t i;
    if (!keys) return;
    if (!json_is_array(keys) || !json_array_size(keys)) {
        read_key(keys, s, problems);
        return;
    }
    json_array_foreach(keys, i, key) {
        if (i <= SIGN_KEYS_MAX) read_key(key, s, problems);
    }
}

static void read_file(const json_t *tls, const char *key, char **out,
                      struct lw_problems *problems) {
    const json_t *v = json_object_get(tls, key);
    if (!v) return;
    if (!json_is_string(v) || !json_string_length(v))
        lw_problem(problems, "handler.tls.%s: must be a non-empty string", key);
    else if (access(json_string_value(v), R_OK))
        lw_problem(problems, "handler.tls.%s: %s can't be read: %s", key, json_string_value(v),
                   strerror(errno));
    else
        *out = lw_strdup(json_string_value(v));
}

static void read_server_name(const json_t *tls, struct http_settings *s,
                             struct lw_problems *problems) {
    const json_t *v = json_object_get(tls, "server_name");
    const char *name = json_string_value(v);
    if (!v) return;
    if (!name || !*name || strlen(name) > 255 || strspn(name, LW_PLAIN) != strlen(name))
        lw_problem(problems, "handler.tls.server_name: must be a host's name");
    else
        s->tls.server_name = lw_strdup(name);
}

static void check_tls(const struct http_settings *s, struct lw_problems *problems) {
    if (s->tls.key_file && !s->tls.cert_file)
        lw_problem(problems, "handler.tls.key_file: needs handler.tls.cert_file");
    if (s->url && !s->tls.on)
        lw_problem_warn(problems, "handler.tls: no effect: handler.url begins with no https://");
    if (s->tls.no_verify && s->tls.on)
        lw_problem_warn(problems, "handler.tls.verify: with false, any server is taken for the "
                                  "service; set handler.tls.ca_file instead");
}

static void read_tls(const json_t *section, struct http_settings *s, struct lw_problems *problems) {
    static const char *const known[] = {"ca_file",     "cert_file", "key_file",
                                        "server_name", "verify",    NULL};
    json_t *tls = json_object_get(section, "tls"), *v;
    const char *key;
    if (!tls) return;
    if (!json_is_object(tls)) {
        lw_problem(problems,
                   "handler.tls: must be an object, as {\"ca_file\": \"/etc/ssl/service-ca.pem\"}");
        return;
    }
    json_object_foreach(tls, key, v) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) k++;
        if (!*k)
            lw_problem(problems,
                       "handler.tls.%.64s: unknown key; there are ca_file, cert_file, key_file, "
                       "server_name, verify",
                       key);
    }
    read_file(tls, "ca_file", &s->tls.ca_file, problems);
    read_file(tls, "cert_file", &s->tls.cert_file, problems);
    read_file(tls, "key_file", &s->tls.key_file, problems);
    read_server_name(tls, s, problems);
    const json_t *verify = json_object_get(tls, "verify");
    if (verify && !json_is_boolean(verify))
        lw_problem(problems, "handler.tls.verify: must be true or false");
    s->tls.no_verify = json_is_false(verify);
    check_tls(s, problems);
}

/* --- all of it -------------------------------------------------------------------------------- */

static bool is_given(const struct http_settings *s, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < s->fixed.n; i++)
        if (strncasecmp(s->fixed.lines[i], name, n) == 0 && strchr(":;", s->fixed.lines[i][n]))
            return true;
    return false;
}

/* If tls.server_name is set, libcurl gets a URL with that name, and is told to connect to the host
 * of handler.url. */
static void set_target(struct http_settings *s) {
    if (!s->url) return;
    if (!s->tls.server_name || !s->tls.on) {
        s->target_url = lw_strdup(s->url);
        return;
    }
    CURLU *u = lw_or_abort(curl_url());
    struct lw_buf text = {0};
    curl_url_set(u, CURLUPART_URL, s->url, 0);
    char *host = part(u, CURLUPART_HOST, 0);
    lw_buf_addf(&text, "::%s:%s", host, s->port);
    lw_buf_add(&text, "", 1);
    s->connect_to = lw_or_abort(curl_slist_append(NULL, text.p));
    text.n = 0;
    lw_buf_addf(&text, "Host: %s:%s", host, s->port);
    if (!is_given(s, "host")) s->host_line = lw_memdup(text.p, text.n);
    curl_url_set(u, CURLUPART_HOST, s->tls.server_name, 0);
    s->target_url = part(u, CURLUPART_URL, 0);
    lw_buf_free(&text);
    free(host);
    curl_url_cleanup(u);
}

static void check_batch(const struct lw_config *c, const struct http_settings *s,
                        struct lw_problems *problems) {
    const json_t *batch = json_object_get(c->handler.json, "batch");
    if (s->mode != HTTP_BATCH && batch && json_integer_value(batch) > 1)
        lw_problem(problems,
                   "handler.batch: only \"mode\": \"batch\" puts many messages into one request");
}

void http_settings_read(const struct lw_config *c, struct http_settings *out,
                        struct lw_problems *problems) {
    static const char *const known[] = {"type",
                                        "url",
                                        "mode",
                                        "in_flight",
                                        "batch",
                                        "timeout_ms",
                                        "connect_timeout_ms",
                                        "content_type",
                                        "headers",
                                        "record_headers",
                                        "tls",
                                        "hmac_key",
                                        "breaker_percent",
                                        NULL};
    json_t *section = c->handler.json;
    *out = (struct http_settings){0};
    lw_section_known(section, known, problems);
    read_url(section, out, problems);
    read_mode(section, out, problems);
    read_headers(section, out, problems);
    read_passed(section, out, problems);
    read_keys(section, out, problems);
    read_tls(section, out, problems);
    const char *type = clean_string(section, "content_type", false, problems);
    out->content_type = lw_strdup(type ? type : "application/json");
    out->connect_timeout_ms =
        number(section, "connect_timeout_ms", 1, 3600000, CONNECT_TIMEOUT_MS, problems);
    out->breaker_percent =
        (int)number(section, "breaker_percent", 0, 100, BREAKER_PERCENT, problems);
    check_batch(c, out, problems);
    set_target(out);
}

void http_settings_free(struct http_settings *s) {
    for (size_t i = 0; i < s->fixed.n; i++) free(s->fixed.lines[i]);
    free(s->fixed.lines);
    free(s->passed_names);
    free(s->url), free(s->service), free(s->host), free(s->port), free(s->target_url),
        free(s->host_line), free(s->content_type);
    curl_slist_free_all(s->connect_to);
    lw_tls_free(&s->tls);
    signer_close(&s->signer);
    *s = (struct http_settings){0};
}
