/* SPDX-License-Identifier: Apache-2.0 */
/* The fake Redis of the simulation: one server's data and scripts in this process, under a clock
 * that the caller sets.
 *
 * The fake does what Redis 7.0 does for the commands of store_commands.h, and runs the real .lua
 * files in Lua 5.1. It refuses every other command and option with an error that names the command
 * or option. sim_store_diff compares the fake with a real redis-server.
 *
 * After opening a store, call store_set_time_us() before the first command. A store and all its
 * copies belong to one thread, because they share values and compiled scripts. The fake reads no
 * clock and no random source: the same calls give the same replies. The fake differs from Redis on
 * purpose in five ways. No command, not even DBSIZE or SCAN, sees an expired key. A blocking pop
 * never blocks. SCAN gives all keys in one reply. XADD MAXLEN ~ trims exactly. Hash fields and set
 * members come in the order of insertion. */
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
/* Returns a copy of the data, the ids and the scripts, which stands for a replica. For a failover,
 * call store_promote(copy), which gives the copy ids that differ from the ids of the original and
 * of every other copy. */
struct store *store_copy(const struct store *s);

/* Deletes all data. The server keeps its run_id, its replication ids and its scripts. */
void store_flushall(struct store *s);
/* Gives the server a new master_replid, as Redis does when its first replica is attached. */
void store_attach(struct store *s);
/* Makes the server a replica of `master` for a while and then promotes it again. Afterwards the
 * server has the data of `master`, the same run_id as before, a new master_replid, and a count of
 * replicated bytes above 0. */
void store_resync(struct store *s, const struct store *master);
/* Promotes a replica. The new master gets a new run_id and a new master_replid, the old
 * master_replid becomes its master_replid2, its scripts are gone, and its count of replicated bytes
 * is above 0. */
void store_promote(struct store *s);
/* Restarts the server, which gets a new run_id and a new master_replid and loses its scripts. If
 * keep_data is true, the server loads its data again, as if from an RDB file. */
void store_restart(struct store *s, bool keep_data);
void store_forget_scripts(struct store *s);

/* Sets the server's wall clock, which may jump forward or back. Within one command the clock stands
 * still. */
void store_set_time_us(struct store *s, int64_t us);
int64_t store_time_us(const struct store *s);
/* Sets whether the server is at maxmemory with the policy noeviction. At maxmemory the server
 * refuses commands flagged denyoom, and the flags in a script's shebang decide whether the script
 * runs. */
void store_set_oom(struct store *s, bool oom);
/* Makes redis.call number `call` of the next script fail with the error `text`, if the script
 * makes that many calls. What the script wrote before the failure remains. If `call` is 0, no
 * call fails. */
void store_fail_script(struct store *s, int call, const char *text);
/* Sets whether this cluster node owns the slot. All names of the fake belong to one slot. With
 * STORE_LEAVING the node owns the slot, but some keys have already moved to another node. A command
 * that names a missing key then fails, in scripts too. */
enum store_slot { STORE_OWNED, STORE_LEAVING, STORE_ELSEWHERE };
void store_set_slot(struct store *s, enum store_slot slot);
/* Makes the store a node of a cluster. began_us is the time at which the node's process started. */
void store_set_cluster(struct store *s, int64_t began_us);
/* Moves up to `most` keys that begin with `prefix` to another store, as MIGRATE does. Returns
 * how many keys were moved. */
size_t store_move(struct store *from, struct store *to, const char *prefix, size_t most);
/* store_set_policy() sets the field maxmemory_policy of INFO, which is "noeviction" at first.
 * store_set_role() sets the field role, which is "master" at first. The text must outlive the
 * store. */
void store_set_policy(struct store *s, const char *policy);
void store_set_role(struct store *s, const char *role);

/* Executes one command. len may be NULL if all arguments are C strings. Never returns NULL; the
 * caller frees the reply with freeReplyObject(). */
redisReply *store_call(struct store *s, int argc, const char *const *argv, const size_t *len);

/* The following functions, up to store_peek_score(), are for oracles. They change nothing and
 * ignore expired keys. The pointers that they set are valid until the next call on the store. */
size_t store_dbsize(const struct store *s);
void store_each_key(const struct store *s,
                    void (*fn)(void *ctx, const char *key, size_t key_len, enum store_type type),
                    void *ctx);
enum store_type store_type(const struct store *s, const char *key, size_t key_len);
/* Returns the time at which the key expires, in ms, or -1 if the key is missing or never
 * expires. */
int64_t store_expires_ms(const struct store *s, const char *key, size_t key_len);
bool store_peek_string(const struct store *s, const char *key, size_t key_len, const char **value,
                       size_t *value_len);
/* Returns the number of elements of a list, hash, set, zset or stream, or the number of bytes of a
 * string. Returns 0 if the key is missing. */
size_t store_length(const struct store *s, const char *key, size_t key_len);
/* Reads the element of a list at the index `at`, which is 0 for the leftmost element. Returns false
 * if there is no such element. */
bool store_peek_list(const struct store *s, const char *key, size_t key_len, size_t at,
                     const char **value, size_t *value_len);
bool store_peek_hash(const struct store *s, const char *key, size_t key_len, const char *field,
                     size_t field_len, const char **value, size_t *value_len);
/* Calls fn for each field of a hash or each member of a set. For a set the value is empty. */
void store_each_member(const struct store *s, const char *key, size_t key_len,
                       void (*fn)(void *ctx, const char *name, size_t name_len, const char *value,
                                  size_t value_len),
                       void *ctx);
/* Reads the member of a zset that has the given rank. The member with the lowest score has rank 0.
 * Returns false if there is no such member. */
bool store_peek_zset(const struct store *s, const char *key, size_t key_len, size_t rank,
                     const char **member, size_t *member_len, double *score);
bool store_peek_score(const struct store *s, const char *key, size_t key_len, const char *member,
                      size_t member_len, double *score);

/* A command that the fake knows. Tests try each command: store_command(i) returns command number i,
 * counted from 0, or NULL if i is past the last command. */
struct store_command {
    const char *name;
    int arity; /* number of words as in COMMAND INFO; -n: at least n */
    unsigned flags;
};
enum { STORE_WRITE = 1, STORE_DENYOOM = 2, STORE_NOSCRIPT = 4 };
const struct store_command *store_command(size_t i);
/* Returns how often command number i has run, in all stores of this process, including calls by
 * scripts. */
uint64_t store_command_runs(size_t i);
/* Returns how many bytes of list elements scripts have read so far, in all stores of this
 * thread. */
uint64_t store_list_bytes(void);

#endif
