/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that parse and check parts of a request. They need no running server, so unit tests can
 * call them. */
#include "monitor/http.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* --- the Host header -------------------------------------------------------------------------- */

static bool is_port(const char *s) {
    return !*s || (*s == ':' && s[1] && strspn(s + 1, "0123456789") == strlen(s + 1));
}

/* Returns true if `name` is the name of this machine. Either name may have a domain at its end. */
static bool is_machine(const char *name, size_t n, const char *machine) {
    size_t first = strcspn(machine, "."), whole = strlen(machine);
    if (!first) return false;
    return (n == first || n == whole) && strncasecmp(name, machine, n) == 0;
}

bool lw_http_host_ok(const char *host, const char *machine) {
    char name[256];
    unsigned char address[16];
    if (!host) return false; /* HTTP/1.1 requires a Host header */
    const char *end = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end) return false;
    bool v6 = *host == '[';
    size_t n = (size_t)(end - host) - (v6 ? 1 : 0);
    if (!n || n >= sizeof name || !is_port(v6 ? end + 1 : end)) return false;
    memcpy(name, host + (v6 ? 1 : 0), n);
    name[n] = 0;
    if (v6) return inet_pton(AF_INET6, name, address) == 1;
    return inet_pton(AF_INET, name, address) == 1 || strcasecmp(name, "localhost") == 0 ||
           is_machine(name, n, machine);
}

bool lw_http_host_named(const char *host, char *const *names, size_t n) {
    size_t len = host ? strcspn(host, ":") : 0;
    if (!len || !is_port(host + len)) return false;
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == len && !strncasecmp(host, names[i], len)) return true;
    return false;
}

bool lw_http_origin_ok(const char *origin, const char *host) {
    if (!origin) return true;
    const char *behind = strstr(origin, "://");
    return host && behind && !strcasecmp(behind + 3, host);
}

bool lw_http_fetch_site_ok(const char *site) {
    return !site || !strcasecmp(site, "same-origin") || !strcasecmp(site, "none");
}

/* --- Accept-Encoding -------------------------------------------------------------------------- */

/* Returns true if the parameters of a coding, such as ";q=0.0", say that the client does not accept
 * it. */
static bool is_refused(const char *params, size_t n) {
    const char *q = memchr(params, '=', n);
    return q && n > 1 && strtod(q + 1, NULL) <= 0;
}

bool lw_http_takes_gzip(const char *accept_encoding) {
    const char *at = accept_encoding ? accept_encoding : "";
    while (*at) {
        at += strspn(at, " \t,");
        size_t name = strcspn(at, " \t,;"), whole = strcspn(at, ",");
        if (name == 4 && !strncasecmp(at, "gzip", 4)) return !is_refused(at + name, whole - name);
        at += whole;
    }
    return false;
}

/* --- texts ------------------------------------------------------------------------------------ */

bool lw_http_decode(struct lw_bytes text, struct lw_buf *out) {
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '%') {
            int high = i + 2 < text.n ? lw_hex_digit(text.p[i + 1]) : -1,
                low = i + 2 < text.n ? lw_hex_digit(text.p[i + 2]) : -1;
            if (high < 0 || low < 0 || !(high | low)) return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        lw_buf_add(out, &c, 1);
    }
    return true;
}

bool lw_http_bearer_ok(const char *authorization, const char *token) {
    static const char scheme[] = "Bearer ";
    if (!token || !*token || !authorization ||
        strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *given = authorization + sizeof scheme - 1;
    size_t n = strlen(given), wanted = strlen(token);
    volatile unsigned char differs = n != wanted;
    for (size_t i = 0; i < n; i++) differs |= (unsigned char)(given[i] ^ token[i % wanted]);
    return !differs;
}

void lw_http_json(struct lw_http_answer *a, int status, json_t *v) {
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    a->body.n = 0;
    lw_buf_addf(&a->body, "%s\n", text ? text : "null");
    free(text);
    a->status = status;
    a->type = "application/json";
}

void lw_http_error(struct lw_http_answer *a, int status, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
            /* a '?' stands for this byte, because the text may have arbitrary bytes from Redis or a
             * client */
            *p = '?';
    lw_http_json(a, status, json_pack("{ss}", "error", text));
}
