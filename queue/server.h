/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies the server by INFO. A Valkey reports redis_version 7.2.4, because some clients expect
 * a Redis, and gives its own version in valkey_version. Log lines and limits use its own
 * version. */
#ifndef LW_QUEUE_SERVER_H
#define LW_QUEUE_SERVER_H

#include <stdbool.h>

struct lw_server {
    char text[64]; /* for people: "Redis 8.0.2", "Valkey 8.1.1", "Redis of unknown version" */
    bool too_old;  /* below Redis 7.0, which the scripts need; every Valkey is newer */
};

/* `info` is the text of INFO with at least its section "server". */
void lw_server_read(struct lw_server *s, const char *info);

/* Returns true if the error is that of a server that can run no script. From 9.1 on, Valkey has
 * Lua in a module that may be absent. */
bool lw_server_lacks_lua(const char *error);

#endif
