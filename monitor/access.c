/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/access.h"

static bool has_token(const struct lw_config *c, bool write) {
    for (size_t i = 0; i < c->http.n_tokens; i++)
        if (c->http.tokens[i].write == write) return true;
    return false;
}

/* Compares the token of the request with all tokens, even after a match, so that the time reveals
 * nothing about the position of a token. */
struct lw_access lw_access_of(const struct lw_config *c, const char *authorization) {
    struct lw_access access = {.read = !has_token(c, false)};
    for (size_t i = 0; i < c->http.n_tokens; i++) {
        const struct lw_token *t = &c->http.tokens[i];
        if (lw_http_bearer_ok(authorization, t->secret))
            access = (struct lw_access){t->name, true, t->write};
    }
    return access;
}

json_t *lw_access_session(const struct lw_config *c, const char *authorization) {
    static const char *const words[] = {
        [LW_PAYLOADS_SHOW] = "show", [LW_PAYLOADS_MASK] = "mask", [LW_PAYLOADS_HIDE] = "hide"};
    struct lw_access access = lw_access_of(c, authorization);
    return json_pack("{s:s?,s:b,s:b,s:b,s:s,s:s,s:s,s:s?}", "name", access.name, "read",
                     (int)access.read, "write", (int)access.write, "needs_token",
                     (int)!lw_access_of(c, NULL).read, "payloads", words[c->http.payloads],
                     "version", LW_VERSION, "application", c->name, "dead_topic",
                     access.read ? c->dead.topic : NULL);
}

bool lw_access_writable(const struct lw_config *c) { return has_token(c, true); }

bool lw_access_allowed(const struct lw_config *c, const struct lw_http_request *q, bool write,
                       struct lw_http_answer *a) {
    struct lw_access access = lw_access_of(c, q->authorization);
    if (write ? access.write : access.read) return true;
    if (write && !lw_access_writable(c))
        lw_http_error(
            a, 403,
            "read-only: the configuration has no write token; set http.token or http.write_tokens");
    else if (access.name)
        lw_http_error(a, 403, "the token \"%s\" may only read; this needs one of http.write_tokens",
                      access.name);
    else
        lw_http_error(
            a, 401,
            "%s; send the header Authorization: Bearer TOKEN with a token of the configuration",
            q->authorization ? "the token is unknown" : "this needs a token");
    return false;
}
