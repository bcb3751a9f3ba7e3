/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the fake Redis, each as X(name, arity, flags). The flags R, W, G and N stand for
 * flags of COMMAND INFO. A command with R only reads. A command with W writes. A command with G
 * writes and may need more memory (denyoom). A command with N is not allowed in scripts
 * (noscript). */
#ifndef LW_SIM_STORE_COMMANDS_H
#define LW_SIM_STORE_COMMANDS_H

#define R 0
#define W STORE_WRITE
#define G (STORE_WRITE | STORE_DENYOOM)
#define N STORE_NOSCRIPT

#define STORE_COMMANDS(X)     \
    X(ping, -1, R)            \
    X(time, 1, R)             \
    X(info, -1, R)            \
    X(dbsize, 1, R)           \
    X(flushall, -1, W)        \
    X(scan, -2, R)            \
    X(eval, -3, N)            \
    X(evalsha, -3, N)         \
    X(script, -2, N)          \
    X(del, -2, W)             \
    X(unlink, -2, W)          \
    X(exists, -2, R)          \
    X(expire, -3, W)          \
    X(pexpire, -3, W)         \
    X(expireat, -3, W)        \
    X(pexpireat, -3, W)       \
    X(ttl, 2, R)              \
    X(pttl, 2, R)             \
    X(pexpiretime, 2, R)      \
    X(persist, 2, W)          \
    X(type, 2, R)             \
    X(get, 2, R)              \
    X(set, -3, G)             \
    X(setnx, 3, G)            \
    X(setex, 4, G)            \
    X(psetex, 4, G)           \
    X(mget, -2, R)            \
    X(getrange, 4, R)         \
    X(setrange, 4, G)         \
    X(append, 3, G)           \
    X(strlen, 2, R)           \
    X(incr, 2, G)             \
    X(decr, 2, G)             \
    X(incrby, 3, G)           \
    X(bitfield, -2, G)        \
    X(bitfield_ro, -2, R)     \
    X(setbit, 4, G)           \
    X(getbit, 3, R)           \
    X(hset, -4, G)            \
    X(hsetnx, 4, G)           \
    X(hget, 3, R)             \
    X(hmget, -3, R)           \
    X(hgetall, 2, R)          \
    X(hkeys, 2, R)            \
    X(hvals, 2, R)            \
    X(hdel, -3, W)            \
    X(hincrby, 4, G)          \
    X(hexists, 3, R)          \
    X(hlen, 2, R)             \
    X(sadd, -3, G)            \
    X(srem, -3, W)            \
    X(sismember, 3, R)        \
    X(smismember, -3, R)      \
    X(smembers, 2, R)         \
    X(scard, 2, R)            \
    X(lpush, -3, G)           \
    X(rpush, -3, G)           \
    X(lpushx, -3, G)          \
    X(rpushx, -3, G)          \
    X(lpop, -2, W)            \
    X(rpop, -2, W)            \
    X(llen, 2, R)             \
    X(lindex, 3, R)           \
    X(lrange, 4, R)           \
    X(lrem, 4, W)             \
    X(lset, 4, G)             \
    X(ltrim, 4, W)            \
    X(rpoplpush, 3, G)        \
    X(lmove, 5, G)            \
    X(brpoplpush, 4, G | N)   \
    X(zadd, -4, G)            \
    X(zincrby, 4, G)          \
    X(zrem, -3, W)            \
    X(zscore, 3, R)           \
    X(zmscore, -3, R)         \
    X(zcard, 2, R)            \
    X(zcount, 4, R)           \
    X(zrank, 3, R)            \
    X(zrange, -4, R)          \
    X(zrangebyscore, -4, R)   \
    X(zremrangebyscore, 4, W) \
    X(xadd, -5, G)            \
    X(xdel, -3, W)            \
    X(xlen, 2, R)             \
    X(xrange, -4, R)

#endif
