/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/server.h"

#include "queue/life.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REDIS_MAJOR_FLOOR = 7 };

void lw_redis_server_read(struct lw_redis_server *s, const char *info) {
    assert(s && info);
    char version[32];
    s->too_old = false;
    if (lw_info_field(info, "valkey_version", version, sizeof version)) {
        snprintf(s->text, sizeof s->text, "Valkey %s", version);
        return;
    }
    bool known = lw_info_field(info, "redis_version", version, sizeof version);
    s->too_old = strtol(version, NULL, 10) < REDIS_MAJOR_FLOOR;
    assert(known || !version[0]);
    snprintf(s->text, sizeof s->text, "Redis %s%s", known ? "" : "of unknown version", version);
}

bool lw_redis_lacks_lua(const char *error) {
    assert(error);
    return strstr(error, "Could not find scripting engine");
}
