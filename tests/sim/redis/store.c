/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, copies and restarts a store, which is one fake Redis server of the simulation. This file
 * also has the table of Redis commands, and the functions through which oracles read a store. */
#include "tests/sim/redis/store_internal.h"
#include "tests/sim/redis/store_commands.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOTYPE(name, arity, flags) store_fn store_cmd_##name;
STORE_COMMANDS(PROTOTYPE)
#define ROW(name, arity, flags) {{#name, arity, flags}, store_cmd_##name, 0},
static struct command commands[] = {STORE_COMMANDS(ROW)};

enum {
    COMMANDS = sizeof commands / sizeof commands[0],
    SLOTS = 512,
    NAME_MAX_LEN = 20,
    CALLS_A_SWEEP = 100000,
    ARGS_ON_STACK = 64
};
static struct command *slots[SLOTS];
static uint64_t runs[COMMANDS];

/* --- the table of commands -------------------------------------------------------------------- */

static unsigned slot_of(const char *lower, size_t n) {
    return (unsigned)XXH3_64bits(lower, n) % SLOTS;
}

static void fill_slots(void) {
    for (size_t i = 0; i < COMMANDS; i++) {
        commands[i].index = i;
        unsigned at = slot_of(commands[i].pub.name, strlen(commands[i].pub.name));
        while (slots[at]) at = (at + 1) % SLOTS;
        slots[at] = &commands[i];
    }
}

const struct command *store_find_command(struct slice name) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_slots);
    char lower[NAME_MAX_LEN];
    if (name.n >= sizeof lower) return NULL;
    for (size_t i = 0; i < name.n; i++)
        lower[i] = name.p[i] >= 'A' && name.p[i] <= 'Z' ? (char)(name.p[i] + 32) : name.p[i];
    lower[name.n] = '\0';
    for (unsigned at = slot_of(lower, name.n); slots[at]; at = (at + 1) % SLOTS) {
        const char *found = slots[at]->pub.name;
        if (strlen(found) == name.n && memcmp(found, lower, name.n) == 0) return slots[at];
    }
    return NULL;
}

const struct store_command *store_command(size_t i) {
    return i < COMMANDS ? &commands[i].pub : NULL;
}
uint64_t store_command_runs(size_t i) {
    return i < COMMANDS ? __atomic_load_n(&runs[i], __ATOMIC_RELAXED) : 0;
}

bool store_arity_ok(const struct command *cmd, int argc) {
    return cmd->pub.arity < 0 ? argc >= -cmd->pub.arity : argc == cmd->pub.arity;
}

/* Returns the index in argv of the command's last key, or 0 if the command names no key. Sets
 * *first to the index of its first key. */
static int last_key(const char *name, int argc, const struct slice *argv, int *first) {
    static const char *const none[] = {"ping",     "time", "info",  "dbsize",
                                       "flushall", "scan", "script"};
    static const char *const all[] = {"del", "unlink", "exists", "mget"};
    static const char *const two[] = {"rpoplpush", "lmove", "brpoplpush"};
    long long n;
    *first = 1;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!strcmp(name, none[i])) return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i])) return argc - 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (!strcmp(name, two[i])) return 2;
    if (strncmp(name, "eval", 4) != 0) return 1;
    *first = 3;
    return parse_int(argv[2], &n) && n <= argc - 3 ? 2 + (int)n : 0;
}

redisReply *store_redirect(struct store *s, const struct command *cmd, int argc,
                           const struct slice *argv, bool in_script) {
    if (!s->cluster || s->slot == STORE_OWNED) return NULL;
    int first, last = last_key(cmd->pub.name, argc, argv, &first), missing = 0;
    if (last < first) return NULL;
    if (s->slot == STORE_ELSEWHERE) return in_script ? NULL : reply_error("MOVED 7 127.0.0.1:7");
    for (int i = first; i <= last; i++) missing += entry_find(s, argv[i]) == NULL;
    if (!missing) return NULL;
    if (in_script)
        return reply_error("ERR Script attempted to access a non local key in a cluster node");
    return missing == last - first + 1
               ? reply_error("ASK 7 127.0.0.1:7")
               : reply_error("TRYAGAIN Multiple keys request during rehashing of slot");
}

redisReply *store_run(struct store *s, const struct command *cmd, int argc,
                      const struct slice *argv) {
    __atomic_fetch_add(&runs[cmd->index], 1, __ATOMIC_RELAXED);
    return cmd->fn(s, argc, argv);
}

/* --- opening, copying and restarting ---------------------------------------------------------- */

static void fresh_id(struct script_env *env, char id[41]) {
    for (int i = 0; i < 40; i += 8) snprintf(id + i, 9, "%08x", (unsigned)script_env_random(env));
}

struct store *store_open(uint64_t seed) {
    struct store *s = store_alloc(sizeof *s);
    s->env = script_env_new(seed);
    s->policy = "noeviction";
    s->role = "master";
    fresh_id(s->env, s->run_id);
    fresh_id(s->env, s->replid);
    memset(s->replid2, '0', 40);
    return s;
}

void store_flushall(struct store *s) {
    struct entry *e, *next;
    HASH_ITER(hh, s->keys, e, next) entry_delete(s, e);
}

void store_close(struct store *s) {
    if (!s) return;
    store_flushall(s);
    script_set_free(&s->scripts);
    script_env_unref(s->env);
    free(s);
}

struct store *store_copy(const struct store *s) {
    struct store *c = store_alloc(sizeof *c);
    *c = *s;
    c->keys = NULL;
    c->env = script_env_ref(s->env);
    c->scripts = script_set_copy(s->scripts);
    for (const struct entry *e = s->keys; e; e = e->hh.next) {
        if (entry_expired(s, e)) continue;
        struct entry *n = entry_copy(e);
        HASH_ADD_KEYPTR(hh, c->keys, n->key->data, n->key->len, n);
    }
    return c;
}

void store_restart(struct store *s, bool keep_data) {
    if (!keep_data) store_flushall(s);
    store_forget_scripts(s);
    fresh_id(s->env, s->run_id);
    fresh_id(s->env, s->replid);
    memset(s->replid2, '0', 40);
    s->repl_input = 0;
    s->began_us = s->now_us;
}

void store_promote(struct store *s) {
    store_forget_scripts(s);
    memcpy(s->replid2, s->replid, sizeof s->replid2);
    fresh_id(s->env, s->run_id);
    fresh_id(s->env, s->replid);
    s->repl_input += 1000;
    s->began_us = s->now_us;
}

void store_attach(struct store *s) { fresh_id(s->env, s->replid); }

void store_resync(struct store *s, const struct store *master) {
    struct store kept = *s;
    store_flushall(s);
    struct store *c = store_copy(master);
    s->keys = c->keys;
    c->keys = NULL;
    store_close(c);
    s->repl_input = kept.repl_input + 1000;
    memcpy(s->replid2, kept.replid, sizeof s->replid2);
    fresh_id(s->env, s->replid);
}

void store_forget_scripts(struct store *s) { script_set_free(&s->scripts); }
void store_set_time_us(struct store *s, int64_t us) { s->now_us = us; }
int64_t store_time_us(const struct store *s) { return s->now_us; }
int64_t store_now_ms(const struct store *s) { return s->now_us / 1000; }
void store_set_oom(struct store *s, bool oom) { s->oom = oom; }
void store_fail_script(struct store *s, int call, const char *text) {
    s->fail_call = call, s->fail_text = text;
}
void store_set_policy(struct store *s, const char *policy) { s->policy = policy; }
void store_set_slot(struct store *s, enum store_slot slot) { s->slot = slot; }
void store_set_cluster(struct store *s, int64_t began_us) {
    s->cluster = true, s->began_us = began_us;
}

size_t store_move(struct store *from, struct store *to, const char *prefix, size_t most) {
    size_t n = 0, length = strlen(prefix);
    struct entry *e, *next;
    HASH_ITER(hh, from->keys, e, next) {
        if (n == most || entry_expired(from, e) || e->key->len < length ||
            memcmp(e->key->data, prefix, length) != 0)
            continue;
        struct entry *gone = entry_find(to, (struct slice){e->key->data, e->key->len});
        if (gone) entry_delete(to, gone);
        HASH_DEL(from->keys, e);
        /* MIGRATE sends a key's remaining time to live, so the time of expiry is converted to the
         * clock of the target. */
        if (e->expire_ms >= 0) e->expire_ms += store_now_ms(to) - store_now_ms(from);
        HASH_ADD_KEYPTR(hh, to->keys, e->key->data, e->key->len, e);
        n++;
    }
    return n;
}

void store_set_role(struct store *s, const char *role) { s->role = role; }

/* Deletes expired keys from time to time. Otherwise expired keys that no command names again would
 * pile up in a long run. */
static void sweep(struct store *s) {
    if (s->calls_to_sweep-- > 0) return;
    s->calls_to_sweep = CALLS_A_SWEEP;
    struct entry *e, *next;
    HASH_ITER(hh, s->keys, e, next) {
        if (entry_expired(s, e)) entry_delete(s, e);
    }
}

static redisReply *call_slices(struct store *s, int argc, const struct slice *argv) {
    const struct command *cmd = store_find_command(argv[0]);
    if (!cmd)
        return reply_error("ERR unknown command '%.*s' (the fake has what store_commands.h lists)",
                           (int)argv[0].n, argv[0].p);
    if (!store_arity_ok(cmd, argc)) return reply_arity(cmd->pub.name);
    if (s->oom && cmd->pub.flags & STORE_DENYOOM)
        return reply_error("OOM command not allowed when used memory > 'maxmemory'.");
    redisReply *redirected = store_redirect(s, cmd, argc, argv, false);
    return redirected ? redirected : store_run(s, cmd, argc, argv);
}

redisReply *store_call(struct store *s, int argc, const char *const *argv, const size_t *len) {
    if (argc < 1) return reply_error("ERR empty command");
    sweep(s);
    struct slice some[ARGS_ON_STACK], *args = some;
    if (argc > ARGS_ON_STACK) args = store_realloc(NULL, (size_t)argc * sizeof *args);
    for (int i = 0; i < argc; i++)
        args[i] = (struct slice){argv[i], len ? len[i] : strlen(argv[i])};
    redisReply *r = call_slices(s, argc, args);
    if (args != some) free(args);
    return r;
}

/* --- what oracles read ------------------------------------------------------------------------ */

size_t store_dbsize(const struct store *s) {
    size_t n = 0;
    for (const struct entry *e = s->keys; e; e = e->hh.next) n += !entry_expired(s, e);
    return n;
}

void store_each_key(const struct store *s,
                    void (*fn)(void *ctx, const char *key, size_t key_len, enum store_type type),
                    void *ctx) {
    for (const struct entry *e = s->keys; e; e = e->hh.next) {
        if (!entry_expired(s, e)) fn(ctx, e->key->data, e->key->len, e->type);
    }
}

static const struct entry *peek(const struct store *s, const char *key, size_t key_len,
                                enum store_type type) {
    const struct entry *e = entry_peek(s, key, key_len);
    return e && e->type == type ? e : NULL;
}

static bool show(const struct blob *b, const char **p, size_t *n) {
    *p = b ? b->data : "";
    *n = b ? b->len : 0;
    return true;
}

enum store_type store_type(const struct store *s, const char *key, size_t key_len) {
    const struct entry *e = entry_peek(s, key, key_len);
    return e ? e->type : STORE_NONE;
}

int64_t store_expires_ms(const struct store *s, const char *key, size_t key_len) {
    const struct entry *e = entry_peek(s, key, key_len);
    return e ? e->expire_ms : -1;
}

bool store_peek_string(const struct store *s, const char *key, size_t key_len, const char **value,
                       size_t *value_len) {
    const struct entry *e = peek(s, key, key_len, STORE_STRING);
    return e && show(e->str, value, value_len);
}

size_t store_length(const struct store *s, const char *key, size_t key_len) {
    const struct entry *e = entry_peek(s, key, key_len);
    switch (e ? e->type : STORE_NONE) {
    case STORE_STRING: return e->str->len;
    case STORE_LIST: return e->list.count;
    case STORE_HASH:
    case STORE_SET: return HASH_COUNT(e->dict);
    case STORE_ZSET: return e->zset.count;
    case STORE_STREAM: return e->stream.count;
    case STORE_NONE: break;
    }
    return 0;
}

bool store_peek_list(const struct store *s, const char *key, size_t key_len, size_t at,
                     const char **value, size_t *value_len) {
    const struct entry *e = peek(s, key, key_len, STORE_LIST);
    return e && at < e->list.count && show(*list_at(&e->list, at), value, value_len);
}

bool store_peek_hash(const struct store *s, const char *key, size_t key_len, const char *field,
                     size_t field_len, const char **value, size_t *value_len) {
    const struct entry *e = peek(s, key, key_len, STORE_HASH);
    const struct member *m = e ? member_find(e->dict, (struct slice){field, field_len}) : NULL;
    return m && show(m->value, value, value_len);
}

void store_each_member(const struct store *s, const char *key, size_t key_len,
                       void (*fn)(void *ctx, const char *name, size_t name_len, const char *value,
                                  size_t value_len),
                       void *ctx) {
    const struct entry *e = entry_peek(s, key, key_len);
    if (!e || (e->type != STORE_HASH && e->type != STORE_SET)) return;
    for (const struct member *m = e->dict; m; m = m->hh.next)
        fn(ctx, m->name->data, m->name->len, m->value ? m->value->data : "",
           m->value ? m->value->len : 0);
}

bool store_peek_zset(const struct store *s, const char *key, size_t key_len, size_t rank,
                     const char **member, size_t *member_len, double *score) {
    const struct entry *e = peek(s, key, key_len, STORE_ZSET);
    if (!e || rank >= e->zset.count) return false;
    *score = e->zset.sorted[rank]->score;
    return show(e->zset.sorted[rank]->name, member, member_len);
}

bool store_peek_score(const struct store *s, const char *key, size_t key_len, const char *member,
                      size_t member_len, double *score) {
    const struct entry *e = peek(s, key, key_len, STORE_ZSET);
    const struct member *m =
        e ? member_find(e->zset.dict, (struct slice){member, member_len}) : NULL;
    if (m) *score = m->score;
    return m != NULL;
}
