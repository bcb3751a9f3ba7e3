/* SPDX-License-Identifier: Apache-2.0 */
/* Which server is this? INFO says it in several fields: a Valkey reports redis_version 7.2.4 for ever, for the sake of old clients, and its
 * own version in valkey_version. Messages and limits use the real one. */
#ifndef LW_QUEUE_SERVER_H
#define LW_QUEUE_SERVER_H

#include <stdbool.h>

struct lw_server {
    char text[64]; /* for messages: "Redis 8.0.2", "Valkey 8.1.1", "Redis of unknown version" */
    bool too_old;  /* below Redis 7.0, which the scripts need; every Valkey is newer */
};

/* info: the text of INFO with at least its section "server" */
void lw_server_read(struct lw_server *s, const char *info);

/* Is this the error reply of a server that can run no script? A Valkey from 9.1 on has Lua in a module that may be absent. */
bool lw_server_lacks_lua(const char *error);

#endif
