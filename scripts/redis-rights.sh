#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the Redis commands that the code uses, one per line, sorted: "worker NAME", "operator NAME"
# or "lock NAME".
#
# Searches the C files and Lua scripts of a role for quoted words in capitals that are names of
# Redis commands, such as "ZADD", 'ZADD' or "LLEN %swait". The script finds every command that is
# used, but also words that only look like a command. Such a word has a row in
# cli/check/redis_rights.c which says so. tests/cli/test_rights.py compares that table with the
# output of this script. The role "worker" means consumer/, monitor/ and the scripts that they call;
# the role "operator" means ops/ and cli/ (queue, dead, lock -c, ledger, top); the role "lock" means
# the lock library and `lock --redis`.
set -eu
cd "$(dirname "$0")/.."
commands="
ACL APPEND ASKING AUTH BGREWRITEAOF BGSAVE BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS BLMOVE BLMPOP
BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT CLUSTER COMMAND CONFIG COPY DBSIZE DEBUG DECR
DECRBY DEL DISCARD DUMP ECHO EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC EXISTS EXPIRE EXPIREAT EXPIRETIME
FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS
GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GEOSEARCHSTORE GET GETBIT GETDEL GETEX
GETRANGE GETSET HDEL HELLO HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET
HRANDFIELD HSCAN HSET HSETNX HSTRLEN HVALS INCR INCRBY INCRBYFLOAT INFO KEYS LASTSAVE LATENCY LCS
LINDEX LINSERT LLEN LMOVE LMPOP LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MEMORY MGET
MIGRATE MODULE MONITOR MOVE MSET MSETNX MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD
PFCOUNT PFDEBUG PFMERGE PFSELFTEST PING PSETEX PSUBSCRIBE PSYNC PTTL PUBLISH PUBSUB PUNSUBSCRIBE
QUIT RANDOMKEY READONLY READWRITE RENAME RENAMENX REPLCONF REPLICAOF RESET RESTORE RESTORE-ASKING
ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCARD SCRIPT SDIFF SDIFFSTORE SELECT SET SETBIT
SETEX SETNX SETRANGE SHUTDOWN SINTER SINTERCARD SINTERSTORE SISMEMBER SLAVEOF SLOWLOG SMEMBERS
SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN SSUBSCRIBE STRLEN SUBSCRIBE
SUBSTR SUNION SUNIONSTORE SUNSUBSCRIBE SWAPDB SYNC TIME TOUCH TTL TYPE UNLINK UNSUBSCRIBE UNWATCH
WAIT WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP
XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE
ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE
ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE
ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE"
commands=" $(echo "$commands" | tr -s "\n " "  ") "

words() { # usage: words ROLE FILE...; prints "ROLE NAME" for each command found in the files
    role=$1
    shift
    grep -ohE "['\"][A-Z]{3,}[ '\"]" "$@" | tr -d "'\" " | sort -u | while read -r word; do
        case $commands in *" $word "*) echo "$role $word" ;; esac
    done
}

# shellcheck disable=SC2046,SC2010 # no file name here has a space
words worker consumer/*.c consumer/*/*.c monitor/*.c ops/lua/heads.lua ops/lua/fleet.lua \
    base/redis/*.c lock/lua/renew.lua \
    $(ls queue/lua/*.lua queue/lua/parts/*.lua | grep -v -e /hold.lua -e /break.lua -e /taken.lua)
# shellcheck disable=SC2046,SC2010
words operator ops/*.c ops/*/*.c api/*.c \
    $(ls cli/*.c cli/*/*.c | grep -v -e ^cli/dev/ -e ^cli/check/) base/redis/*.c \
    lock/call.c lock/client.c lock/inspect.c lock/one.c lock/lua/lib/mutex_drop.lua \
    lock/lua/lib/string_keep.lua \
    queue/lua/hold.lua queue/lua/break.lua queue/lua/enter.lua queue/lua/parts/*.lua ops/lua/*.lua
words lock lock/*.c lock/redlock/*.c lock/lua/lib/*.lua lock/lua/parts/*.lua base/redis/*.c
