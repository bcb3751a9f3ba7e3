/* SPDX-License-Identifier: Apache-2.0 */
/* EVAL, EVALSHA and SCRIPT of the fake Redis. This file compiles scripts, converts values between
 * Lua and replies, and refuses scripts at maxmemory. The globals of scripts are in store_lua_lib.c.
 *
 * All copies of a store share one Lua state (script_env) and its compiled scripts, but each server
 * has its own list of scripts that it knows. A script cannot keep anything in Lua between runs,
 * because globals are protected. */
#include "tests/sim/redis/store_lua.h"

#include "base/random.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

store_fn store_cmd_eval, store_cmd_evalsha, store_cmd_script;

enum { ALLOW_OOM = 1, NO_WRITES = 2, HAS_SHEBANG = 4 };

struct script {
    UT_hash_handle hh;
    char sha[41];
    int ref; /* index of the compiled function in Lua's registry */
    unsigned flags;
};

/* Remembers the SHA-1 of a script's text. Each worker loads every script on each connection, and
 * computing the SHA-1 each time took half of the simulation's CPU time. */
struct digest {
    UT_hash_handle hh;
    XXH128_hash_t text; /* hash of the script's text, the key of the hash table */
    char sha[41];
};

/* One of the scripts that a server has loaded. */
struct script_set {
    UT_hash_handle hh;
    struct script *script;
};

/* --- the environment -------------------------------------------------------------------------- */

struct script_env *script_env_new(uint64_t seed) {
    struct script_env *env = store_alloc(sizeof *env);
    env->refs = 1;
    env->random = seed;
    env->lua = luaL_newstate();
    if (!env->lua) abort();
    script_lib_open(env);
    return env;
}

struct script_env *script_env_ref(struct script_env *env) {
    env->refs++;
    return env;
}

void script_env_unref(struct script_env *env) {
    if (--env->refs > 0) return;
    struct script *script, *next;
    HASH_ITER(hh, env->compiled, script, next) {
        HASH_DEL(env->compiled, script);
        free(script);
    }
    struct digest *digest, *next_digest;
    HASH_ITER(hh, env->digests, digest, next_digest) {
        HASH_DEL(env->digests, digest);
        free(digest);
    }
    lua_close(env->lua);
    free(env);
}

uint64_t script_env_random(struct script_env *env) { return lw_random_next(&env->random); }

void script_set_free(struct script_set **set) {
    struct script_set *known, *next;
    HASH_ITER(hh, *set, known, next) {
        HASH_DEL(*set, known);
        free(known);
    }
}

static void script_set_add(struct script_set **set, struct script *script) {
    struct script_set *known = store_alloc(sizeof *known);
    known->script = script;
    HASH_ADD_KEYPTR(hh, *set, script->sha, 40, known);
}

struct script_set *script_set_copy(const struct script_set *set) {
    struct script_set *copy = NULL;
    for (const struct script_set *known = set; known; known = known->hh.next)
        script_set_add(&copy, known->script);
    return copy;
}

static struct script *known_script(const struct store *s, struct slice sha) {
    char lower[40];
    struct script_set *known;
    if (sha.n != sizeof lower) return NULL;
    for (size_t i = 0; i < sha.n; i++)
        lower[i] = sha.p[i] >= 'A' && sha.p[i] <= 'Z' ? (char)(sha.p[i] + 32) : sha.p[i];
    HASH_FIND(hh, s->scripts, lower, sizeof lower, known);
    return known ? known->script : NULL;
}

/* --- compiling -------------------------------------------------------------------------------- */

static redisReply *parse_flag(struct slice word, unsigned *flags) {
    if (slice_is(word, "allow-oom"))
        *flags |= ALLOW_OOM;
    else if (slice_is(word, "no-writes"))
        *flags |= NO_WRITES;
    else if (!slice_is(word, "allow-stale") && !slice_is(word, "no-cluster") &&
             !slice_is(word, "allow-cross-slot-keys"))
        return reply_error("ERR Unexpected flag in script shebang: %.*s", (int)word.n, word.p);
    return NULL;
}

static redisReply *parse_flags(struct slice list, unsigned *flags) {
    while (list.n > 0) {
        const char *comma = memchr(list.p, ',', list.n);
        struct slice word = {list.p, comma ? (size_t)(comma - list.p) : list.n};
        redisReply *bad = parse_flag(word, flags);
        if (bad) return bad;
        size_t used = comma ? word.n + 1 : word.n;
        list.p += used, list.n -= used;
    }
    return NULL;
}

/* Moves *body past the shebang of a script, but not past the newline after it, so that the line
 * numbers in error messages stay right. Adds the flags of the shebang to *flags. Returns NULL, or
 * an error reply if the shebang is invalid. */
static redisReply *parse_shebang(struct slice *body, unsigned *flags) {
    if (body->n < 2 || memcmp(body->p, "#!", 2) != 0) return NULL;
    const char *end = memchr(body->p, '\n', body->n);
    if (!end) return reply_error("ERR Invalid script shebang");
    *flags |= HAS_SHEBANG;
    const char *p = body->p + 2;
    for (bool first = true; p < end; first = false) {
        const char *space = memchr(p, ' ', (size_t)(end - p));
        struct slice word = {p, (size_t)((space ? space : end) - p)};
        p = space ? space + 1 : end;
        if (first) {
            if (!slice_is(word, "lua"))
                return reply_error("ERR Unexpected engine in script shebang: %.*s", (int)word.n,
                                   word.p);
        } else if (word.n > 6 && memcmp(word.p, "flags=", 6) == 0) {
            redisReply *bad = parse_flags((struct slice){word.p + 6, word.n - 6}, flags);
            if (bad) return bad;
        } else if (word.n > 0)
            return reply_error("ERR Unknown lua shebang option: %.*s", (int)word.n, word.p);
    }
    body->n -= (size_t)(end - body->p);
    body->p = end;
    return NULL;
}

static redisReply *compile(struct script_env *env, struct slice text, const char *sha,
                           struct script **out) {
    unsigned flags = 0;
    redisReply *bad = parse_shebang(&text, &flags);
    if (bad) return bad;
    lua_State *lua = env->lua;
    if (luaL_loadbuffer(lua, text.p, text.n, "@user_script") != 0) {
        bad = reply_error("ERR Error compiling script (new function): %s", lua_tostring(lua, -1));
        lua_pop(lua, 1);
        return bad;
    }
    lua_rawgeti(lua, LUA_REGISTRYINDEX, env->globals_ref);
    lua_setfenv(lua, -2);
    struct script *script = store_alloc(sizeof *script);
    memcpy(script->sha, sha, sizeof script->sha);
    script->ref = luaL_ref(lua, LUA_REGISTRYINDEX);
    script->flags = flags;
    HASH_ADD(hh, env->compiled, sha, 40, script);
    *out = script;
    return NULL;
}

static const char *sha_of(struct script_env *env, struct slice text) {
    XXH128_hash_t key = XXH3_128bits(text.p, text.n);
    struct digest *digest;
    HASH_FIND(hh, env->digests, &key, sizeof key, digest);
    if (!digest) {
        digest = store_alloc(sizeof *digest);
        digest->text = key;
        sha1_hex(text.p, text.n, digest->sha);
        HASH_ADD(hh, env->digests, text, sizeof key, digest);
    }
    return digest->sha;
}

/* Sets *script to the compiled form of a script, and compiles the script if no server has done so
 * before. Afterwards this server knows the script. Returns NULL, or an error reply if the script
 * does not compile. */
static redisReply *learn(struct store *s, struct slice text, struct script **script) {
    const char *sha = sha_of(s->env, text);
    *script = known_script(s, (struct slice){sha, 40});
    if (*script) return NULL;
    HASH_FIND(hh, s->env->compiled, sha, 40, *script);
    redisReply *bad = *script ? NULL : compile(s->env, text, sha, script);
    if (!bad) script_set_add(&s->scripts, *script);
    return bad;
}

/* --- values from Lua -------------------------------------------------------------------------- */

static redisReply *flat_text(lua_State *lua, bool error) {
    size_t n;
    const char *p = lua_tolstring(lua, -1, &n);
    redisReply *r = error ? reply_error_n(p, n) : reply_status_n(p, n);
    for (size_t i = 0; i < r->len; i++) {
        if (r->str[i] == '\r' || r->str[i] == '\n') r->str[i] = ' ';
    }
    return r;
}

static redisReply *field_reply(lua_State *lua, const char *field) {
    lua_pushstring(lua, field);
    lua_rawget(lua, -2);
    redisReply *r = lua_type(lua, -1) == LUA_TSTRING ? flat_text(lua, field[0] == 'e') : NULL;
    lua_pop(lua, 1);
    return r;
}

static redisReply *from_lua(lua_State *lua);

static redisReply *from_array(lua_State *lua) {
    size_t cap = lua_objlen(lua, -1) + 1, n = 0;
    redisReply *r = reply_array(cap);
    for (;; n++) {
        lua_rawgeti(lua, -1, (int)n + 1);
        if (lua_isnil(lua, -1)) break;
        if (n == cap) {
            cap *= 2;
            r->element = store_realloc(r->element, cap * sizeof *r->element);
        }
        r->element[n] = from_lua(lua);
    }
    lua_pop(lua, 1);
    r->elements = n;
    return r;
}

static redisReply *from_table(lua_State *lua) {
    if (!lua_checkstack(lua, 8)) return reply_error("ERR reached lua stack limit");
    redisReply *r = field_reply(lua, "err");
    if (!r) r = field_reply(lua, "ok");
    if (!r) r = from_array(lua);
    return r;
}

/* Redis truncates a Lua number to an integer. A number outside the range of integers becomes the
 * lowest integer, as on x86-64. */
static long long integer_of(lua_Number n) {
    return n >= -0x1p63 && n < 0x1p63 ? (long long)n : LLONG_MIN;
}

/* Converts the value on top of Lua's stack into a reply, and pops the value. */
static redisReply *from_lua(lua_State *lua) {
    redisReply *r;
    size_t n;
    const char *p;
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        p = lua_tolstring(lua, -1, &n);
        r = reply_bytes(p, n);
        break;
    case LUA_TNUMBER: r = reply_int(integer_of(lua_tonumber(lua, -1))); break;
    case LUA_TBOOLEAN: r = lua_toboolean(lua, -1) ? reply_int(1) : reply_nil(); break;
    case LUA_TTABLE: r = from_table(lua); break;
    default: r = reply_nil(); break;
    }
    lua_pop(lua, 1);
    return r;
}

/* --- running ---------------------------------------------------------------------------------- */

static void set_array(lua_State *lua, const char *name, int count, const struct slice *argv) {
    lua_pushstring(lua, name);
    lua_createtable(lua, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushlstring(lua, argv[i].p, argv[i].n);
        lua_rawseti(lua, -2, i + 1);
    }
    lua_rawset(lua, -3);
}

static redisReply *script_failure(lua_State *lua, const struct script *script) {
    const char *text = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : NULL;
    const char *prefix = "ERR ";
    if (lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        text = lua_tostring(lua, -1);
        if (text) prefix = "";
    }
    redisReply *r = reply_error("%s%s script: %s, on @user_script.", prefix,
                                text ? text : "unknown error", script->sha);
    for (size_t i = 0; i < r->len; i++) {
        if (r->str[i] == '\r' || r->str[i] == '\n') r->str[i] = ' ';
    }
    lua_settop(lua, 0);
    return r;
}

static redisReply *run_script(struct store *s, const struct script *script, int keys, int argc,
                              const struct slice *argv) {
    bool tolerates = script->flags & (ALLOW_OOM | NO_WRITES);
    if (s->oom && script->flags & HAS_SHEBANG && !tolerates)
        return reply_error("OOM command not allowed when used memory > 'maxmemory'.");
    struct script_env *env = s->env;
    lua_State *lua = env->lua;
    env->run = (struct script_run){.store = s,
                                   .refuse_growth = s->oom && !tolerates,
                                   .no_writes = (script->flags & NO_WRITES) != 0};
    lua_rawgeti(lua, LUA_REGISTRYINDEX, env->real_globals_ref);
    set_array(lua, "KEYS", keys, argv);
    set_array(lua, "ARGV", argc - keys, argv + keys);
    lua_pop(lua, 1);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->ref);
    int failed = lua_pcall(lua, 0, 1, 0);
    env->run.store = NULL;
    return failed ? script_failure(lua, script) : from_lua(lua);
}

static redisReply *count_keys(int argc, const struct slice *argv, int *keys) {
    long long n;
    if (!parse_int(argv[2], &n)) return reply_not_integer();
    if (n > argc - 3) return reply_error("ERR Number of keys can't be greater than number of args");
    if (n < 0) return reply_error("ERR Number of keys can't be negative");
    *keys = (int)n;
    return NULL;
}

redisReply *store_cmd_eval(struct store *s, int argc, const struct slice *argv) {
    int keys = 0;
    struct script *script;
    redisReply *bad = count_keys(argc, argv, &keys);
    if (!bad) bad = learn(s, argv[1], &script);
    return bad ? bad : run_script(s, script, keys, argc - 3, argv + 3);
}

redisReply *store_cmd_evalsha(struct store *s, int argc, const struct slice *argv) {
    int keys = 0;
    struct script *script = known_script(s, argv[1]);
    redisReply *bad = argv[1].n == 40 ? count_keys(argc, argv, &keys) : NULL;
    if (bad) return bad;
    if (!script) return reply_error("NOSCRIPT No matching script. Please use EVAL.");
    return run_script(s, script, keys, argc - 3, argv + 3);
}

redisReply *store_cmd_script(struct store *s, int argc, const struct slice *argv) {
    if (slice_is(argv[1], "load") && argc == 3) {
        struct script *script;
        redisReply *bad = learn(s, argv[2], &script);
        return bad ? bad : reply_bytes(script->sha, 40);
    }
    if (slice_is(argv[1], "exists") && argc >= 3) {
        redisReply *r = reply_array((size_t)argc - 2);
        for (int i = 2; i < argc; i++)
            r->element[i - 2] = reply_int(known_script(s, argv[i]) != NULL);
        return r;
    }
    if (slice_is(argv[1], "flush") && argc <= 3) {
        if (argc == 3 && !slice_is(argv[2], "sync") && !slice_is(argv[2], "async"))
            return reply_error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        store_forget_scripts(s);
        return reply_status("OK");
    }
    return reply_error("ERR unknown subcommand or wrong number of arguments for 'script' (the fake "
                       "has LOAD, EXISTS and FLUSH)");
}
