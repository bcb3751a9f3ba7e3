/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the section `http` of the configuration. */
#include "base/bytes.h"
#include "config/option.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 32, TOKEN_NAME_MAX = 64, HOSTS_MAX = 16, MASK_MAX = 64, POINTER_MAX = 1024 };

/* --- http.listen ------------------------------------------------------------------------------ */

/* Splits a text of the form HOST:PORT; `host` must have room for 64 bytes. HOST must be
 * "localhost", or a numeric address, in brackets if it is IPv6. Returns true if the text is not
 * valid. */
static bool listen_problem(const char *text, char *host, int *port) {
    unsigned char address[16];
    bool v6 = *text == '[';
    const char *end = v6 ? strchr(text, ']') : strchr(text, ':'),
               *colon = end && v6 ? end + 1 : end;
    if (!end || *colon != ':' || end - text > 60) return true;
    snprintf(host, 64, "%.*s", (int)(end - text) - (v6 ? 1 : 0), text + (v6 ? 1 : 0));
    if (!v6 && !strcmp(host, "localhost")) snprintf(host, 64, "127.0.0.1");
    size_t digits = strspn(colon + 1, "0123456789");
    if (!digits || digits > 5 || colon[1 + digits]) return true;
    *port = atoi(colon + 1);
    return *port > 65535 || inet_pton(v6 ? AF_INET6 : AF_INET, host, address) != 1;
}

void lw_take_http_listen(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX], host[64];
    const char *text = lw_take_text(l, o->path, v, 64);
    if (!text) return;
    bool health = !strcmp(o->path, "http.health_listen"), off = !strcmp(text, "off");
    char **listen = health ? &l->c->http.health_listen : &l->c->http.listen;
    char **to_host = health ? &l->c->http.health_host : &l->c->http.host;
    int port = 0;
    if (!off && listen_problem(text, host, &port)) {
        lw_problem(l->problems,
                   "%s: must be \"address:port\" with a numeric address or localhost, "
                   "\"[address]:port\" or \"off\", is %s",
                   o->path, lw_shown(l, v, buf));
        return;
    }
    free(*listen), free(*to_host);
    *listen = lw_strdup(text);
    *to_host = off ? NULL : lw_strdup(host);
    *(health ? &l->c->http.health_port : &l->c->http.port) = port;
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* Returns the text of a token, or NULL after reporting a problem. No reported problem shows the
 * token, even if it is invalid. */
static const char *take_secret(struct lw_loader *l, const char *path, json_t *v) {
    if (lw_unusable(l, v)) return NULL;
    const char *text = json_string_value(v);
    size_t n = json_string_length(v);
    bool good = text && n >= 16 && n <= 256;
    for (size_t i = 0; good && i < n; i++) good = text[i] > ' ' && text[i] < 0x7f;
    if (good) return text;
    lw_problem(l->problems,
               "%s: must be a string of 16 to 256 printable characters without spaces; `openssl "
               "rand -hex 32` makes one",
               path);
    return NULL;
}

static void add_token(struct lw_loader *l, const char *name, const char *secret, bool write) {
    struct lw_config *c = l->c;
    c->http.tokens = lw_realloc(c->http.tokens, (c->http.n_tokens + 1) * sizeof *c->http.tokens);
    c->http.tokens[c->http.n_tokens++] =
        (struct lw_token){lw_strdup(name), lw_strdup(secret), write};
}

void lw_take_http_token(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    const char *secret = take_secret(l, o->path, v);
    if (secret) add_token(l, "token", secret, true);
}

/* The name of http.token is reserved. If another token had this name, the audit stream would not
 * show which of the two was sent. */
static bool name_problem(struct lw_loader *l, const char *section, const char *name) {
    size_t n = strlen(name);
    if (n && n <= TOKEN_NAME_MAX && strspn(name, LW_PLAIN) == n && strcmp(name, "token"))
        return false;
    lw_problem(l->problems,
               "%s: \"%.80s\" cannot name a token; use 1 to %d of A-Z a-z 0-9 . _ -, and not "
               "\"token\", the name of http.token",
               section, name, (int)TOKEN_NAME_MAX);
    return true;
}

static void take_tokens(struct lw_loader *l, const char *section, json_t *v, bool write) {
    const char *name, *secret;
    json_t *item;
    if (!json_is_object(v) || json_object_size(v) > TOKENS_MAX) {
        lw_problem(l->problems, "%s: must be an object of at most %d tokens, {\"NAME\": \"TOKEN\"}",
                   section, (int)TOKENS_MAX);
        return;
    }
    json_object_foreach(v, name, item) {
        char path[256];
        if (name_problem(l, section, name)) continue;
        snprintf(path, sizeof path, "%s.%s", section, name);
        if ((secret = take_secret(l, path, item))) add_token(l, name, secret, write);
    }
}

void lw_take_http_read_tokens(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    take_tokens(l, o->path, v, false);
}
void lw_take_http_write_tokens(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    take_tokens(l, o->path, v, true);
}

/* --- hosts and masks -------------------------------------------------------------------------- */

static bool list_problem(struct lw_loader *l, const char *path, json_t *v, size_t max,
                         const char *of) {
    char buf[LW_SHOWN_MAX];
    if (json_is_array(v) && json_array_size(v) <= max) return false;
    lw_problem(l->problems, "%s: must be a list of at most %zu %s, is %s", path, max, of,
               json_is_array(v) ? "longer" : lw_shown(l, v, buf));
    return true;
}

void lw_take_http_hosts(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char path[64], buf[LW_SHOWN_MAX];
    if (list_problem(l, o->path, v, HOSTS_MAX, "host names")) return;
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *item = json_array_get(v, i);
        snprintf(path, sizeof path, "%s[%zu]", o->path, i);
        const char *name = lw_take_text(l, path, item, 253);
        if (!name) continue;
        if (strspn(name, LW_PLAIN) == strlen(name))
            lw_add_text(&l->c->http.hosts, &l->c->http.n_hosts, name);
        else
            lw_problem(l->problems,
                       "%s: must be a host name without scheme and port, as "
                       "\"latchwork.example.com\", is %s",
                       path, lw_shown(l, item, buf));
    }
}

void lw_take_http_mask(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char path[64];
    if (list_problem(l, o->path, v, MASK_MAX, "JSON pointers")) return;
    for (size_t i = 0; i < json_array_size(v); i++) {
        snprintf(path, sizeof path, "%s[%zu]", o->path, i);
        const char *pointer = lw_take_text(l, path, json_array_get(v, i), POINTER_MAX);
        if (pointer && !lw_pointer_problem(l, path, pointer, "/order/id"))
            lw_add_text(&l->c->http.mask, &l->c->http.n_mask, pointer);
    }
}

/* --- checks of several keys ------------------------------------------------------------------- */

static void compare_tokens(struct lw_loader *l, const struct lw_token *a,
                           const struct lw_token *b) {
    if (!strcmp(a->name, b->name))
        lw_problem(l->problems,
                   "http: the name \"%s\" stands in read_tokens and in write_tokens; give each "
                   "token a name of its own",
                   a->name);
    else if (!strcmp(a->secret, b->secret))
        lw_problem(
            l->problems,
            "http: the tokens \"%s\" and \"%s\" have the same text; give each a text of its own",
            a->name, b->name);
}

static const char *key_of(const struct lw_token *t) {
    return !strcmp(t->name, "token") ? "http.token"
           : t->write                ? "http.write_tokens"
                                     : "http.read_tokens";
}

static bool is_open(const struct lw_config *c) {
    return c->http.host && strncmp(c->http.host, "127.", 4) && strcmp(c->http.host, "::1");
}

static bool has_read_token(const struct lw_config *c) {
    for (size_t i = 0; i < c->http.n_tokens; i++)
        if (!c->http.tokens[i].write) return true;
    return false;
}

void lw_default_payloads(struct lw_config *c) {
    if (is_open(c) && !has_read_token(c)) c->http.payloads = LW_PAYLOADS_HIDE;
}

static void finish_tokens(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (!c->http.n_tokens) return;
    const char *key = key_of(&c->http.tokens[0]);
    for (size_t i = 1; i < c->http.n_tokens; i++)
        for (size_t k = 0; k < i; k++) compare_tokens(l, &c->http.tokens[k], &c->http.tokens[i]);
    if (!c->http.listen) return; /* a problem was reported already */
    if (!c->http.host)
        lw_problem_warn(l->problems, "%s: no effect while http.listen is \"off\"", key);
    else if (is_open(c))
        lw_problem_warn(l->problems,
                        "%s: http.listen is not loopback and there is no TLS: the token can be "
                        "read on the way; put a proxy in front",
                        key);
}

void lw_finish_http(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    static const char *const see[] = {[LW_PAYLOADS_SHOW] = "payloads too",
                                      [LW_PAYLOADS_MASK] = "payloads without http.mask",
                                      [LW_PAYLOADS_HIDE] = "but no payloads"};
    finish_tokens(l);
    if (is_open(c) && !has_read_token(c))
        lw_problem_warn(l->problems,
                        "http.listen: not loopback, and without http.read_tokens everybody who "
                        "reaches it sees keys, headers and figures, %s (http.payloads)",
                        see[c->http.payloads]);
    if (c->http.health_host && c->http.listen && !c->http.host)
        lw_problem_warn(l->problems, "http.health_listen: no effect while http.listen is \"off\"");
    if (c->http.payloads == LW_PAYLOADS_MASK && !c->http.n_mask)
        lw_problem(l->problems, "http.mask: names no value, so http.payloads \"mask\" would show "
                                "everything; name pointers such as \"/card\", or use \"hide\"");
    if (c->http.payloads != LW_PAYLOADS_MASK && c->http.n_mask)
        lw_problem_warn(l->problems, "http.mask: no effect unless http.payloads is \"mask\"");
}
