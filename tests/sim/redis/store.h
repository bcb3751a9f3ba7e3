/* SPDX-License-Identifier: Apache-2.0 */
/* The fake Redis of the simulation: one server's data and scripts in this process, under a clock that the caller sets.
 *
 * It does what Redis 7.0 does for the commands of store_commands.h, and runs the real .lua files in Lua 5.1. What it does not know it
 * refuses with an error that says so. sim_store_diff compares it with a real redis-server.
 *
 * Calling sequence: open, set_time_us, then call as often as wanted; close. A store and all its copies belong to one thread (they share
 * values and compiled scripts). Nothing here reads a clock or a random source: the same calls give the same replies.
 * What differs from Redis on purpose: an expired key is gone at once from everything (DBSIZE, SCAN); a blocking pop never blocks;
 * SCAN gives all in one reply; XADD MAXLEN ~ trims exactly; orders of hash and set members are those of insertion. */
#ifndef LW_SIM_STORE_H
#define LW_SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hiredis/hiredis.h>

struct store;
enum store_type { STORE_NONE, STORE_STRING, STORE_LIST, STORE_HASH, STORE_SET, STORE_ZSET, STORE_STREAM };

/* The seed makes run_id and master_replid. Time starts at 0. */
struct store *store_open(uint64_t seed);
void store_close(struct store *s);
/* Everything as it is now, ids and scripts too: a replica's snapshot. For a fail-over call store_promote(copy), which gives it ids that
 * differ from those of the original and of every other copy. */
struct store *store_copy(const struct store *s);

/* Data gone, scripts and ids kept. */
void store_flushall(struct store *s);
/* A first replica was attached: a new master_replid, nothing else. */
void store_attach(struct store *s);
/* The server was a replica of another, and is promoted again: that one's data, the same run_id, a new master_replid, bytes were read. */
void store_resync(struct store *s, const struct store *master);
/* A replica becomes the master: a run_id of its own, a new master_replid, the old one in master_replid2, scripts gone, bytes were read. */
void store_promote(struct store *s);
/* New run_id and master_replid, scripts gone; keep_data: as from an RDB file. */
void store_restart(struct store *s, bool keep_data);
void store_forget_scripts(struct store *s);

/* The server's wall clock, which may jump either way. It stands still within a call. */
void store_set_time_us(struct store *s, int64_t us);
int64_t store_time_us(const struct store *s);
/* At maxmemory under noeviction: commands flagged denyoom are refused, scripts as their shebang says. */
void store_set_oom(struct store *s, bool oom);
/* The call-th redis.call of the next script fails with this error, if it makes so many; 0: none. Nothing is rolled back. */
void store_fail_script(struct store *s, int call, const char *text);
/* Of a node of a cluster: whether it owns the slot of the names that come. STORE_LEAVING: it does, and keys of the slot have left
 * already, so a command that names a key which is not there fails, in scripts too. */
enum store_slot { STORE_OWNED, STORE_LEAVING, STORE_ELSEWHERE };
void store_set_slot(struct store *s, enum store_slot slot);
/* The store becomes one of a node of a cluster, whose process began at this time. */
void store_set_cluster(struct store *s, int64_t began_us);
/* Moves up to `most` keys that begin with this text to another store, as MIGRATE does. Returns how many. */
size_t store_move(struct store *from, struct store *to, const char *prefix, size_t most);
/* What INFO says in maxmemory_policy ("noeviction") and role ("master"). The text must outlive the store. */
void store_set_policy(struct store *s, const char *policy);
void store_set_role(struct store *s, const char *role);

/* One command. len may be NULL where all arguments are C strings. Never NULL; the caller frees it with freeReplyObject(). */
redisReply *store_call(struct store *s, int argc, const char *const *argv, const size_t *len);

/* --- looks for oracles: they change nothing and see no expired key. Pointers are valid until the next call on the store. */
size_t store_dbsize(const struct store *s);
void store_each_key(const struct store *s, void (*fn)(void *ctx, const char *key, size_t key_len, enum store_type type), void *ctx);
enum store_type store_type(const struct store *s, const char *key, size_t key_len);
/* -1: no such key or no expiry. */
int64_t store_expires_ms(const struct store *s, const char *key, size_t key_len);
bool store_peek_string(const struct store *s, const char *key, size_t key_len, const char **value, size_t *value_len);
/* Elements of a list, hash, set, zset or stream; bytes of a string; 0 for no such key. */
size_t store_length(const struct store *s, const char *key, size_t key_len);
/* at: from the left end. */
bool store_peek_list(const struct store *s, const char *key, size_t key_len, size_t at, const char **value, size_t *value_len);
bool store_peek_hash(const struct store *s, const char *key, size_t key_len, const char *field, size_t field_len, const char **value,
                     size_t *value_len);
/* Fields of a hash, or members of a set with an empty value. */
void store_each_member(const struct store *s, const char *key, size_t key_len,
                       void (*fn)(void *ctx, const char *name, size_t name_len, const char *value, size_t value_len), void *ctx);
/* rank: from the lowest score. */
bool store_peek_zset(const struct store *s, const char *key, size_t key_len, size_t rank, const char **member, size_t *member_len,
                     double *score);
bool store_peek_score(const struct store *s, const char *key, size_t key_len, const char *member, size_t member_len, double *score);

/* Commands there are, for tests that want to reach each. NULL past the last. */
struct store_command {
    const char *name;
    int arity; /* as Redis counts it: with the name, negative for "at least" */
    unsigned flags;
};
enum { STORE_WRITE = 1, STORE_DENYOOM = 2, STORE_NOSCRIPT = 4 };
const struct store_command *store_command(size_t i);
/* How often command i was run by any store of this process, in scripts too. */
uint64_t store_command_runs(size_t i);
/* Bytes that scripts read of lists, in all stores of this thread so far. */
uint64_t store_list_bytes(void);

#endif
