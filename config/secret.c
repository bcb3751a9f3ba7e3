/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which configuration values are secrets, and masks them. */
#include "base/bytes.h"
#include "base/redis/url.h"
#include "config/option.h"

#include <stdlib.h>
#include <string.h>

bool lw_secret_name(const char *name) {
    static const char *const parts[] = {
        "password", "passwd",        "secret",      "token",       "credential",         "api_key",
        "apikey",   "api-key",       "private_key", "ssl.key.pem", "oauthbearer.config", "jaas",
        "hmac",     "authorization", "cookie"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcasestr(name, parts[i])) return true;
    return false;
}

static json_t *masked_string(const struct lw_loader *l, json_t *v) {
    const struct lw_expanded *was = lw_was_expanded(l, v);
    char *safe = lw_or_abort(lw_url_redact(was ? was->raw : json_string_value(v)));
    json_t *out = json_string(strstr(safe, "://") ? safe : was ? was->raw : json_string_value(v));
    free(safe);
    return out;
}

json_t *lw_masked(const struct lw_loader *l, json_t *v) {
    const char *name;
    json_t *item, *out;
    size_t i;
    if (json_is_object(v)) {
        out = json_object();
        json_object_foreach(v, name, item) {
            bool hide = lw_secret_name(name) && !json_is_null(item);
            json_object_set_new(out, name, hide ? json_string("***") : lw_masked(l, item));
        }
        return out;
    }
    if (json_is_array(v)) {
        out = json_array();
        json_array_foreach(v, i, item) json_array_append_new(out, lw_masked(l, item));
        return out;
    }
    return json_is_string(v) ? masked_string(l, v) : json_incref(v);
}
