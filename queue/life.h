/* SPDX-License-Identifier: Apache-2.0 */
/* What a Redis server says of itself in INFO: which program it is, and which life its data has, by
 * the sections server, replication and stats. A new life begins when data may have been lost or
 * replaced.
 *
 * master_replid alone is not enough: it also changes when the first replica is attached to a
 * master, and some time after the last replica was detached, although no data is lost. However, a
 * server that was a replica between two samples of INFO, even briefly, may have another server's
 * data. A replica counts the bytes that it reads from its master (total_net_repl_input_bytes); a
 * server that was never a replica reads none. So two samples belong to the same life if
 * master_replid is the same, or if the same process (run_id) is a master in both samples and has
 * read no replication data between them. CONFIG RESETSTAT resets the count of bytes, and would hide
 * that a server was a replica for a moment. But a promotion also leaves the id of the old master in
 * master_replid2, while the changes of master_replid that lose no data clear it. So if
 * master_replid has changed, master_replid2 must be empty, too. (Not noticed: a server that becomes
 * a replica, is promoted, gets a replica of its own and is reset, all between two samples.)
 *
 * A promoted server also remembers the replication id of its old master (master_replid2), until its
 * replicas have been gone for a while. So a server that remembers no old master and has read no
 * bytes was never a replica since its process began, and no other server has continued with its
 * locks. */
#ifndef LW_QUEUE_LIFE_H
#define LW_QUEUE_LIFE_H

#include <stdbool.h>

struct lw_life {
    char id[128]; /* name of the life: run_id/master_replid */
    /* run_id and the number of bytes read as a replica, separated by '/'; "" if the server is a
     * replica now, or if INFO lacks the number */
    char history[96];
    bool promoted; /* true if the server remembers an old master, or is no master */
    /* true if the server is a master that, according to INFO, was never a replica since its process
     * began */
    bool never_replica;
};

void lw_life_read(struct lw_life *life, const char *info);
/* `a` is the earlier sample. */
bool lw_life_same(const struct lw_life *a, const struct lw_life *b);

/* Which program the server is. A Valkey server reports redis_version 7.2.4, because some clients
 * expect a Redis, and reports its own version in valkey_version. For a Valkey server, log lines and
 * limits use valkey_version. */
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
