/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a request may do. A token in the header Authorization says who asks. There are no
 * cookies, so a browser sends no proof of identity on its own, and another site's page cannot act
 * in the name of the person who looks at it. */
#ifndef LW_MONITOR_ACCESS_H
#define LW_MONITOR_ACCESS_H

#include "config/config.h"
#include "monitor/http.h"

struct lw_access {
    /* name of the token that was sent, owned by the configuration; NULL: none, or an unknown one */
    const char *name;
    bool read, write;
};

/* Returns what may be done with this Authorization header (NULL: none). Anybody may read if there
 * is no read token. */
struct lw_access lw_access_of(const struct lw_config *c, const char *authorization);
/* Returns what the sender may do, as GET /api/v1/session tells it: a new reference. */
json_t *lw_access_session(const struct lw_config *c, const char *authorization);
/* Returns true if there is a write token. Nothing can be changed otherwise. */
bool lw_access_writable(const struct lw_config *c);
/* Refuses a request that may not read, or not write if `write`: fills *a with 401 or 403, and
 * returns false. */
bool lw_access_allowed(const struct lw_config *c, const struct lw_http_request *q, bool write,
                       struct lw_http_answer *a);

#endif
