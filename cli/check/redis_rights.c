/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the commands that a Redis user of Latchwork needs, and words in the code that only look
 * like commands. scripts/redis-rights.sh finds these commands in the code. tests/cli/test_rights.py
 * fails if this table lacks a command that the script finds, has a command that the script does not
 * find, or gives a command other roles than the script. */
#include "cli/check/redis_rights.h"

#include <stddef.h>

const struct lw_redis_right lw_redis_rights[] = {
    {"ASKING", LW_RIGHT_OPERATOR | LW_RIGHT_LOCK, ""},
    {"AUTH", LW_RIGHT_LANES | LW_RIGHT_LOCK, "u p"},
    {"BLMOVE", 0, ""}, /* BLMOVE is called only on a server without BRPOPLPUSH */
    {"BRPOPLPUSH", LW_RIGHT_WORKER, "K K 1"},
    {"CLIENT", LW_RIGHT_LANES | LW_RIGHT_LOCK, "SETNAME x"},
    {"CLUSTER", LW_RIGHT_LANES | LW_RIGHT_LOCK, "SLOTS"},
    {"DEL", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K"},
    {"EVAL", LW_RIGHT_LANES | LW_RIGHT_LOCK, "x 1 K"},
    {"EVALSHA", LW_RIGHT_LANES | LW_RIGHT_LOCK, "x 1 K"},
    {"EXEC", LW_RIGHT_LOCK, ""},
    {"EXISTS", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K"},
    {"EXPIRE", LW_RIGHT_LANES, "K 1"},
    {"GET", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K"},
    {"GETRANGE", LW_RIGHT_LANES, "K 0 1"},
    {"HDEL", LW_RIGHT_LANES, "K f"},
    {"HGET", LW_RIGHT_LANES, "K f"},
    {"HGETALL", LW_RIGHT_LANES, "K"},
    {"HKEYS", LW_RIGHT_LANES, "K"},
    {"HMGET", LW_RIGHT_LANES, "K f"},
    {"HSET", LW_RIGHT_LANES, "K f v"},
    {"INFO", LW_RIGHT_LANES | LW_RIGHT_LOCK, ""},
    {"LINDEX", LW_RIGHT_LANES, "K 0"},
    {"LLEN", LW_RIGHT_LANES, "K"},
    {"LPUSH", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K v"},
    {"LRANGE", LW_RIGHT_LANES, "K 0 1"},
    {"LTRIM", LW_RIGHT_LANES, "K 0 1"},
    {"MGET", LW_RIGHT_WORKER | LW_RIGHT_LOCK, "K"},
    {"MULTI", LW_RIGHT_LOCK, ""},
    {"PEXPIRE", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K 1"},
    {"PING", LW_RIGHT_OPERATOR | LW_RIGHT_LOCK, ""},
    {"PTTL", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K"},
    {"PUBLISH", LW_RIGHT_LOCK, "c m"},
    /* Latchwork never sends this command. The code contains its name only because some error
     * replies begin with the same word. */
    {"READONLY", 0, ""},
    {"ROLE", LW_RIGHT_LANES | LW_RIGHT_LOCK, ""},
    {"RPOPLPUSH", LW_RIGHT_LANES, "K K"},
    {"RPUSH", LW_RIGHT_WORKER, "K v"},
    {"SADD", LW_RIGHT_OPERATOR, "K m"},
    {"SCAN", LW_RIGHT_OPERATOR | LW_RIGHT_LOCK, "0"},
    {"SCARD", LW_RIGHT_WORKER, "K"},
    {"SCRIPT", LW_RIGHT_LANES | LW_RIGHT_LOCK, "LOAD x"},
    {"SELECT", LW_RIGHT_LANES | LW_RIGHT_LOCK, "0"},
    {"SET", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K v"},
    {"SETRANGE", LW_RIGHT_LANES, "K 0 v"},
    {"SISMEMBER", LW_RIGHT_LANES, "K m"},
    {"SREM", LW_RIGHT_OPERATOR, "K m"},
    {"SSCAN", LW_RIGHT_OPERATOR, "K 0"},
    {"SUBSCRIBE", LW_RIGHT_LOCK, "c"},
    {"TIME", LW_RIGHT_LANES | LW_RIGHT_LOCK, ""},
    {"TTL", LW_RIGHT_OPERATOR, "K"},
    {"UNWATCH", LW_RIGHT_LOCK, ""},
    {"WATCH", LW_RIGHT_LOCK, "K"},
    {"XADD", LW_RIGHT_LANES, "K * f v"},
    {"XDEL", LW_RIGHT_OPERATOR, "K 1-1"},
    {"XLEN", LW_RIGHT_LANES, "K"},
    {"XRANGE", LW_RIGHT_LANES, "K - +"},
    {"XREVRANGE", LW_RIGHT_OPERATOR, "K + -"},
    {"ZADD", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K 1 m"},
    {"ZCARD", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K"},
    {"ZCOUNT", LW_RIGHT_OPERATOR | LW_RIGHT_LOCK, "K 0 1"},
    {"ZMSCORE", LW_RIGHT_LANES, "K m"},
    /* ZPOPMIN serves clients that wait for a lock of the library; lanes have no such clients */
    {"ZPOPMIN", LW_RIGHT_LOCK, "K"},
    {"ZRANGE", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K 0 1"},
    {"ZRANGEBYSCORE", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K 0 1"},
    {"ZREM", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K m"},
    {"ZREMRANGEBYRANK", LW_RIGHT_OPERATOR, "K 0 1"},
    {"ZREMRANGEBYSCORE", LW_RIGHT_LANES | LW_RIGHT_LOCK, "K 0 1"},
    {"ZSCAN", LW_RIGHT_OPERATOR, "K 0"},
    {"ZSCORE", LW_RIGHT_OPERATOR | LW_RIGHT_LOCK, "K m"},
};
const size_t lw_n_redis_rights = sizeof lw_redis_rights / sizeof *lw_redis_rights;

/* Lists the names of the keys of lanes without the prefix "lw:{NAME.SHARD}:". If an entry ends with
 * ':', the names continue after it. doc/reference/redis-keys.md describes the keys. */
const char *const lw_redis_names[] = {"lock:",   "run:",     "epoch",   "wait:",    "lanes",
                                      "ready",   "claimed:", "state:",  "tries:",   "floor",
                                      "fence",   "dead",     "dedup:",  "paused",   "audit",
                                      "job",     "job:",     "replays", "vanished", "sweep",
                                      "workers", "taken",    "fleet",   "fleet:",   "limit",
                                      "limit:",  "limits",   "limited", "group",    "groups",
                                      "ready:",  NULL};
