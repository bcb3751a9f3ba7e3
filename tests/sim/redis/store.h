/* SPDX-License-Identifier: Apache-2.0 */
/* The fake Redis of the simulation: one server's data and scripts in this process, under a clock
 * that the caller sets.
 *
 * The fake does what Redis 7.0 does for the commands of store_commands.h, and runs the real .lua
 * files in Lua 5.1. It refuses every other command and option with an error that names the
 * command or option. sim_store_diff compares the fake with a real redis-server.
 *
 * First open a store and call set_time_us, then call commands, and close the store at the end. A
 * store and all its copies belong to one thread, because they share values and compiled scripts.
 * The fake reads no clock and no random source: the same calls give the same replies. The fake
 * differs from Redis on purpose in four ways: an expired key is gone at once from everything
 * (DBSIZE, SCAN); a blocking pop never blocks; SCAN gives all keys in one reply; XADD MAXLEN ~
 * trims exactly. Hash fields and set members come in the order of insertion. */
#ifndef LW_SIM_STORE_H
#define LW_SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hiredis/hiredis.h>

struct store;
enum store_type {
    STORE_NONE,
    STORE_STRING,
    STORE_LIST,
    STORE_HASH,
    STORE_SET,
    STORE_ZSET,
    STORE_STREAM
};

/* Makes an empty store. The seed decides run_id and master_replid. The clock starts at 0. */
struct store *store_open(uint64_t seed);
void store_close(struct store *s);
/* Copies everything, with ids and scripts, as a replica's snapshot. For a failover call
 * store_promote(copy), which gives the copy ids that differ from those of the original and of
 * every other copy. */
struct store *store_copy(const struct store *s);

/* Deletes all data, and keeps ids and scripts. */
void store_flushall(struct store *s);
/* Does what Redis does when its first replica is attached: gives the server a new master_replid. */
void store_attach(struct store *s);
/* Makes the server a replica of `master` for a while and promotes it again. It then has the data
 * of `master`, a run_id of its own, a new master_replid, and a count of replicated bytes above
 * 0. */
void store_resync(struct store *s, const struct store *master);
/* Turns a replica into the master. The new master has a run_id of its own, a new master_replid,
 * the old one in master_replid2, no scripts, and a count of replicated bytes above 0. */
void store_promote(struct store *s);
/* Restarts the server: it gets a new run_id and a new master_replid, and forgets its scripts. With
 * keep_data the server loads its data again, as if from an RDB file. */
void store_restart(struct store *s, bool keep_data);
void store_forget_scripts(struct store *s);

/* Sets the server's wall clock, which may jump either way. The clock stands still within a call. */
void store_set_time_us(struct store *s, int64_t us);
int64_t store_time_us(const struct store *s);
/* Sets whether the server is at maxmemory with the policy noeviction. At maxmemory, commands
 * flagged denyoom are refused, and scripts are treated as their shebang says. */
void store_set_oom(struct store *s, bool oom);
/* Makes the call of redis.call with number `call` fail in the next script, with the error `text`,
 * if the script makes at least `call` calls. With 0, no call fails. What the script has written
 * before stays. */
void store_fail_script(struct store *s, int call, const char *text);
/* Sets whether this node of a cluster owns the one slot to which all names belong. With
 * STORE_LEAVING the node owns the slot, but some keys have already left. Then a command that
 * names a missing key fails, in scripts too. */
enum store_slot { STORE_OWNED, STORE_LEAVING, STORE_ELSEWHERE };
void store_set_slot(struct store *s, enum store_slot slot);
/* Makes the store a node of a cluster. began_us is the time at which the process of the node
 * began. */
void store_set_cluster(struct store *s, int64_t began_us);
/* Moves up to `most` keys that begin with `prefix` to another store, as MIGRATE does. Returns
 * how many keys were moved. */
size_t store_move(struct store *from, struct store *to, const char *prefix, size_t most);
/* store_set_policy() sets maxmemory_policy in the reply to INFO, which is "noeviction" at first.
 * store_set_role() sets the role, which is "master" at first. The text must outlive the store. */
void store_set_policy(struct store *s, const char *policy);
void store_set_role(struct store *s, const char *role);

/* Executes one command. len may be NULL if all arguments are C strings. Never returns NULL; the
 * caller frees the reply with freeReplyObject(). */
redisReply *store_call(struct store *s, int argc, const char *const *argv, const size_t *len);

/* The following functions are for oracles. They change nothing and see no expired key. Their
 * pointers are valid until the next call on the store. */
size_t store_dbsize(const struct store *s);
void store_each_key(const struct store *s,
                    void (*fn)(void *ctx, const char *key, size_t key_len, enum store_type type),
                    void *ctx);
enum store_type store_type(const struct store *s, const char *key, size_t key_len);
/* Returns the time of expiry in ms, or -1 if the key is missing or never expires. */
int64_t store_expires_ms(const struct store *s, const char *key, size_t key_len);
bool store_peek_string(const struct store *s, const char *key, size_t key_len, const char **value,
                       size_t *value_len);
/* Returns the number of elements of a list, hash, set, zset or stream, or of bytes of a string;
 * 0 if the key is missing. */
size_t store_length(const struct store *s, const char *key, size_t key_len);
/* Reads the element of a list at index `at`, which counts from the left end. */
bool store_peek_list(const struct store *s, const char *key, size_t key_len, size_t at,
                     const char **value, size_t *value_len);
bool store_peek_hash(const struct store *s, const char *key, size_t key_len, const char *field,
                     size_t field_len, const char **value, size_t *value_len);
/* Calls fn for each field of a hash, or, with an empty value, for each member of a set. */
void store_each_member(const struct store *s, const char *key, size_t key_len,
                       void (*fn)(void *ctx, const char *name, size_t name_len, const char *value,
                                  size_t value_len),
                       void *ctx);
/* Reads the member of a zset at index `rank`, which counts from the lowest score. */
bool store_peek_zset(const struct store *s, const char *key, size_t key_len, size_t rank,
                     const char **member, size_t *member_len, double *score);
bool store_peek_score(const struct store *s, const char *key, size_t key_len, const char *member,
                      size_t member_len, double *score);

/* The commands that the fake knows, for tests that try each of them. store_command() returns
 * NULL past the last one. */
struct store_command {
    const char *name;
    int arity; /* counted as in COMMAND INFO of Redis: includes the name, negative for "at least" */
    unsigned flags;
};
enum { STORE_WRITE = 1, STORE_DENYOOM = 2, STORE_NOSCRIPT = 4 };
const struct store_command *store_command(size_t i);
/* Returns how often all stores of this process have run command i, including calls by scripts. */
uint64_t store_command_runs(size_t i);
/* Returns how many bytes of lists scripts have read so far, in all stores of this thread. */
uint64_t store_list_bytes(void);

#endif
