/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/url.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URL_MAX = 4096, DB_MAX = 1000000, DEFAULT_PORT = 6379 };

/* Decodes the percent escapes in a part of the URL. `what` is the name of this part in errors, such
 * as "password". Returns NULL with *err if an escape is malformed or stands for a NUL. */
static char *percent_decode(const char *p, size_t n, const char *what, struct lw_err *err) {
    char *out = calloc(1, n + 1), *w = out;
    if (!out) return lw_fail_memory(err), NULL;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '%') {
            *w++ = p[i];
            continue;
        }
        int hi = n - i > 2 ? lw_hex_digit(p[i + 1]) : -1;
        int lo = n - i > 2 ? lw_hex_digit(p[i + 2]) : -1;
        if (hi < 0 || lo < 0 || hi + lo == 0) {
            free(out);
            return lw_fail(err, "the %s holds a broken %%XX escape (write %%25 for a percent sign)",
                           what),
                   NULL;
        }
        *w++ = (char)(hi * 16 + lo);
        i += 2;
    }
    return out;
}

static int take_number(const char *p, size_t n, int max, int *out) {
    if (n == 0 || n > 9) return -1;
    int v = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return -1;
        v = v * 10 + (p[i] - '0');
    }
    if (v > max) return -1;
    *out = v;
    return 0;
}

/* Reads "user:password@", which ends at the last '@' of the text, and returns the text after it.
 * Returns the whole text if it has no '@', or NULL with *err if this part is malformed. */
static const char *take_user(const char *p, struct lw_redis_url *u, struct lw_err *err) {
    const char *at = strrchr(p, '@');
    if (!at) return p;
    const char *colon = memchr(p, ':', (size_t)(at - p));
    size_t user_len = (size_t)((colon ? colon : at) - p);
    if (user_len) {
        u->user = percent_decode(p, user_len, "user", err);
        if (!u->user) return NULL;
    }
    if (colon) {
        u->password = percent_decode(colon + 1, (size_t)(at - colon - 1), "password", err);
        if (!u->password) return NULL;
    } else {
        return lw_fail(err, "a user without a password: write user:password@ or :password@"), NULL;
    }
    return at + 1;
}

static int take_port(const char *p, size_t n, struct lw_redis_url *u, struct lw_err *err) {
    if (take_number(p, n, 65535, &u->port) || u->port == 0)
        return lw_fail(err, "the port must be a number from 1 to 65535");
    return 0;
}

/* Reads an address of the form host[:port] or [v6][:port]. An empty host becomes 127.0.0.1. Returns
 * -1 with *err if the address is malformed. */
static int take_host(const char *p, size_t n, struct lw_redis_url *u, struct lw_err *err) {
    const char *end = p + n, *host = p, *host_end;
    if (n && *p == '[') {
        host = p + 1;
        host_end = memchr(p, ']', n);
        if (!host_end || host_end == host) return lw_fail(err, "an IPv6 host must look like [::1]");
        p = host_end + 1;
        if (p < end && *p != ':')
            return lw_fail(err, "an IPv6 host must look like [::1] or [::1]:6379");
    } else {
        host_end = memchr(p, ':', n);
        if (!host_end) host_end = end;
        p = host_end;
    }
    if (p < end && take_port(p + 1, (size_t)(end - p - 1), u, err)) return -1;
    u->host = host_end > host ? strndup(host, (size_t)(host_end - host)) : strdup("127.0.0.1");
    return u->host ? 0 : lw_fail_memory(err);
}

static int take_db(const char *p, struct lw_redis_url *u, struct lw_err *err) {
    if (take_number(p, strlen(p), DB_MAX, &u->db))
        return lw_fail(err, "the database must be a number from 0 to %d", (int)DB_MAX);
    return 0;
}

static int parse_tcp(const char *p, struct lw_redis_url *u, struct lw_err *err) {
    if (strpbrk(p, "?#"))
        return lw_fail(err, "redis:// and rediss:// take no ? or # part; the database is /N");
    size_t n = strcspn(p, "/");
    u->port = DEFAULT_PORT;
    if (take_host(p, n, u, err)) return -1;
    return p[n] && p[n + 1] ? take_db(p + n + 1, u, err) : 0;
}

static int parse_unix(const char *p, struct lw_redis_url *u, struct lw_err *err) {
    size_t n = strcspn(p, "?");
    if (*p != '/') return lw_fail(err, "unix:// needs an absolute path, as unix:///run/redis.sock");
    if (n > 107) return lw_fail(err, "the path of a socket holds at most 107 bytes");
    u->path = strndup(p, n);
    if (!u->path) return lw_fail_memory(err);
    if (!p[n]) return 0;
    if (strncmp(p + n, "?db=", 4)) return lw_fail(err, "the only parameter of unix:// is ?db=N");
    return take_db(p + n + 4, u, err);
}

static int parse(const char *text, struct lw_redis_url *u, struct lw_err *err) {
    if (strlen(text) > URL_MAX) return lw_fail(err, "longer than %d bytes", (int)URL_MAX);
    u->tls.on = !strncmp(text, "rediss://", 9);
    bool tcp = u->tls.on || !strncmp(text, "redis://", 8);
    if (!tcp && strncmp(text, "unix://", 7))
        return lw_fail(err, "must begin with redis://, rediss:// or unix://");
    const char *p = take_user(strstr(text, "://") + 3, u, err);
    if (!p) return -1;
    return tcp ? parse_tcp(p, u, err) : parse_unix(p, u, err);
}

int lw_redis_url_parse(const char *text, struct lw_redis_url *out, struct lw_err *err) {
    *out = (struct lw_redis_url){0};
    if (parse(text, out, err) == 0) return 0;
    lw_redis_url_free(out);
    return -1;
}

int lw_redis_address_parse(const char *text, int default_port, struct lw_redis_url *out,
                           struct lw_err *err) {
    *out = (struct lw_redis_url){.port = default_port};
    if (!*text || *text == ':' || strpbrk(text, "/@?# "))
        lw_fail(err, "must be a host and a port, as 10.0.0.7:%d", default_port);
    else if (!take_host(text, strlen(text), out, err))
        return 0;
    lw_redis_url_free(out);
    return -1;
}

void lw_redis_url_free(struct lw_redis_url *u) {
    free(u->host);
    free(u->address);
    free(u->path);
    free(u->user);
    free(u->password);
    lw_tls_free(&u->tls);
    *u = (struct lw_redis_url){0};
}

int lw_redis_url_copy(const struct lw_redis_url *from, struct lw_redis_url *out,
                      struct lw_err *err) {
    *out = (struct lw_redis_url){
        .port = from->port, .db = from->db, .only_master = from->only_master, .via = from->via};
    if (lw_text_copy(&out->host, from->host) && lw_text_copy(&out->address, from->address) &&
        lw_text_copy(&out->path, from->path) && lw_text_copy(&out->user, from->user) &&
        lw_text_copy(&out->password, from->password) && !lw_tls_copy(&from->tls, &out->tls, err))
        return 0;
    lw_redis_url_free(out);
    return lw_fail_memory(err);
}

const char *lw_redis_url_where(const struct lw_redis_url *u, char *out, size_t size) {
    if (u->path)
        snprintf(out, size, "%s", u->path);
    else
        snprintf(out, size, strchr(u->host, ':') ? "[%s]:%d" : "%s:%d", u->host, u->port);
    return out;
}

char *lw_url_redact(const char *text) {
    const char *at = strrchr(text, '@');
    if (!at) return strdup(text);
    const char *user = strstr(text, "://");
    user = user && user < at ? user + 3 : text;
    const char *colon = memchr(user, ':', (size_t)(at - user));
    struct lw_buf t = {0};
    lw_buf_try(&t, text, (size_t)((colon ? colon + 1 : user) - text));
    lw_buf_tryf(&t, "***%s", at);
    return lw_buf_take(&t);
}
