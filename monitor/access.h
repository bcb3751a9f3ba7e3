/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a request may do. The sender is identified by a token in the header Authorization.
 * There are no cookies, so a browser sends no credentials on its own, and a page of another site
 * cannot act in the name of its visitor. */
#ifndef LW_MONITOR_ACCESS_H
#define LW_MONITOR_ACCESS_H

#include "config/config.h"
#include "monitor/http.h"

struct lw_access {
    /* `name` is the name of the token of the request, owned by the configuration; NULL: the token
     * is missing or unknown */
    const char *name;
    bool read, write;
};

/* Returns what a request with this Authorization header (NULL: none) may do. Without a read token
 * in the configuration, everybody may read. */
struct lw_access lw_access_of(const struct lw_config *c, const char *authorization);
/* Returns the body of the response to GET /api/v1/session, which says what the sender may do. The
 * caller gets a new reference. */
json_t *lw_access_session(const struct lw_config *c, const char *authorization);
/* Returns true if the configuration has a write token. Without a write token, nobody can change
 * anything through the API. */
bool lw_access_writable(const struct lw_config *c);
/* Returns true if the sender may read or, if `write` is true, write. Otherwise fills the response
 * *a with status 401 or 403, and returns false. */
bool lw_access_allowed(const struct lw_config *c, const struct lw_http_request *q, bool write,
                       struct lw_http_answer *a);

#endif
