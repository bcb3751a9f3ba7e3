/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies a server by its INFO. A Valkey server reports redis_version 7.2.4, because some
 * clients expect a Redis, and reports its own version in valkey_version. For a Valkey server, log
 * lines and limits use valkey_version. */
#ifndef LW_QUEUE_SERVER_H
#define LW_QUEUE_SERVER_H

#include <stdbool.h>

struct lw_redis_server {
    /* name and version for people, such as "Redis 8.0.2", "Valkey 8.1.1", "Redis of unknown
     * version" */
    char text[64];
    /* true for a Redis of unknown version or below 7.0, because the scripts need Redis 7.0; false
     * for every Valkey */
    bool too_old;
};

/* Fills in *s. `info` is the text of INFO with at least the section "server". */
void lw_redis_server_read(struct lw_redis_server *s, const char *info);

/* Returns true if the error shows that the server cannot run any script. From version 9.1 on,
 * Valkey has Lua in a module, which may be missing. */
bool lw_redis_lacks_lua(const char *error);

#endif
