/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the fake Redis share. Values are reference-counted and never
 * change while they are shared, so that copies of a store are cheap. */
#ifndef LW_SIM_STORE_INTERNAL_H
#define LW_SIM_STORE_INTERNAL_H

#include <strings.h>
#include <xxhash.h>

#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = (unsigned)XXH3_64bits((keyptr), (keylen)))
#include <uthash.h>

#include "tests/sim/redis/store.h"

struct slice {
    const char *p;
    size_t n;
};

struct blob {
    uint32_t refs;
    uint32_t len;
    char data[];
};

/* An entry of a hash, a set or a zset. Only a hash uses `value`, and only a zset uses `score`. */
struct member {
    UT_hash_handle hh;
    struct blob *name;
    struct blob *value;
    double score;
};

/* A list in a ring buffer: element i from the left is at[(head + i) & (cap - 1)]. */
struct list {
    struct blob **at;
    size_t cap, head, count;
};

struct zset {
    struct member *dict;
    struct member **sorted; /* members in order of score, then of name */
    size_t count, cap;
};

struct stream_id {
    uint64_t ms, seq;
};

struct stream_entry {
    struct stream_id id;
    struct blob **fields;
    size_t count;
};

struct stream {
    struct stream_entry *at;
    size_t cap, count;
    struct stream_id last;
};

struct entry {
    UT_hash_handle hh;
    struct blob *key;
    int64_t expire_ms; /* when the key expires, in ms; -1: never */
    enum store_type type;
    union {
        struct blob *str;
        struct list list;
        struct member *dict;
        struct zset zset;
        struct stream stream;
    };
};

struct script_env;
struct script_set;

struct store {
    struct entry *keys;
    int64_t now_us;
    bool oom;
    int fail_call; /* which redis.call of the next script fails, counted from 1; 0: none */
    const char *fail_text;
    const char *policy, *role;
    /* replid2 is the replication id before the last promotion. It consists of zeros if there was
     * none. */
    char run_id[41], replid[41], replid2[41];
    long long repl_input; /* the field total_net_repl_input_bytes of INFO */
    uint32_t calls_to_sweep;
    bool cluster;
    int64_t began_us;
    enum store_slot slot;
    struct script_env *env;
    struct script_set *scripts;
};

typedef redisReply *store_fn(struct store *s, int argc, const struct slice *argv);
struct command {
    struct store_command pub;
    store_fn *fn;
    size_t index;
};

/* --- store.c ---------------------------------------------------------------------------------- */
const struct command *store_find_command(struct slice name);
redisReply *store_run(struct store *s, const struct command *cmd, int argc,
                      const struct slice *argv);
/* Returns NULL if this cluster node may run the command. Otherwise returns the error reply, which
 * differs between commands of clients and commands in scripts (in_script). */
redisReply *store_redirect(struct store *s, const struct command *cmd, int argc,
                           const struct slice *argv, bool in_script);
bool store_arity_ok(const struct command *cmd, int argc);
int64_t store_now_ms(const struct store *s);

/* --- store_value.c ---------------------------------------------------------------------------- */
void *store_alloc(size_t size); /* returns zeroed memory; ends the program if memory runs out */
void *store_realloc(void *p, size_t size);
struct blob *blob_new(const char *p, size_t n);
struct blob *blob_ref(struct blob *b);
void blob_unref(struct blob *b);
/* Returns a string of at least `len` bytes that the caller may modify. This is b itself if b is
 * long enough and nothing else refers to it, and otherwise a copy of b, filled up with zeros. Takes
 * over the caller's reference to b. */
struct blob *blob_writable(struct blob *b, size_t len);
struct slice blob_slice(const struct blob *b);
bool slice_is(struct slice a, const char *word); /* true if `a` is `word`, ignoring case */

/* Finds the entry of a key. If the key has expired, deletes the entry and returns NULL. */
struct entry *entry_find(struct store *s, struct slice key);
const struct entry *entry_peek(const struct store *s, const char *key, size_t key_len);
bool entry_expired(const struct store *s, const struct entry *e);
struct entry *entry_add(struct store *s, struct slice key, enum store_type type);
void entry_delete(struct store *s, struct entry *e);
void entry_clear(struct entry *e); /* frees the value and keeps the key */
void entry_drop_empty(struct store *s, struct entry *e);
struct entry *entry_copy(const struct entry *e);

void list_push(struct list *l, bool left, struct blob *b);
struct blob *list_pop(struct list *l, bool left);
struct blob **list_at(const struct list *l, size_t i);
void list_remove(struct list *l, size_t i);

struct member *member_find(struct member *dict, struct slice name);
struct member *member_add(struct member **dict, struct slice name);
void member_delete(struct member **dict, struct member *m);

void zset_set(struct zset *z, struct slice name, double score);
void zset_remove(struct zset *z, struct member *m);
size_t zset_rank(const struct zset *z, const struct member *m);

/* --- store_reply.c ---------------------------------------------------------------------------- */
redisReply *reply_int(long long v);
redisReply *reply_bytes(const char *p, size_t n);
redisReply *reply_blob(const struct blob *b);
redisReply *reply_double(double d);
redisReply *reply_nil(void);
redisReply *reply_status(const char *text);
redisReply *reply_status_n(const char *p, size_t n);
redisReply *reply_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
redisReply *reply_error_n(const char *p, size_t n);
redisReply *reply_array(size_t n); /* the caller fills in the n elements */
redisReply *reply_wrong_type(void);
redisReply *reply_syntax(void);
redisReply *reply_not_integer(void);
redisReply *reply_arity(const char *command);

/* --- how Redis reads numbers ------------------------------------------------------------------ */
bool parse_int(struct slice a, long long *v);
bool parse_double(struct slice a, double *v);

/* --- store_lua.c ------------------------------------------------------------------------------ */
struct script_env *script_env_new(uint64_t seed);
struct script_env *script_env_ref(struct script_env *env);
void script_env_unref(struct script_env *env);
/* Draws a random number. All copies of a store share one generator, so that no two of them get the
 * same ids. */
uint64_t script_env_random(struct script_env *env);
void script_set_free(struct script_set **set);
struct script_set *script_set_copy(const struct script_set *set);

/* --- store_sha1.c ----------------------------------------------------------------------------- */
void sha1_hex(const void *data, size_t len, char out[41]);

#endif
