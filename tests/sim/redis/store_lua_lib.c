/* SPDX-License-Identifier: Apache-2.0 */
/* The globals of scripts in the fake Redis: the libraries base, table, string, math and bit, and
 * the `redis` table. */
#include "tests/sim/redis/store_lua.h"

#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_ON_STACK = 64, NUMBER_SIZE = 32 };

static struct script_env *env_of(lua_State *lua) {
    return lua_touserdata(lua, lua_upvalueindex(1));
}

/* --- values to Lua ---------------------------------------------------------------------------- */

static void push_text_table(lua_State *lua, const char *field, const char *p, size_t n) {
    lua_createtable(lua, 0, 1);
    lua_pushlstring(lua, p, n);
    lua_setfield(lua, -2, field);
}

static void push_reply(lua_State *lua, const redisReply *r) {
    switch (r->type) {
    case REDIS_REPLY_INTEGER: lua_pushnumber(lua, (lua_Number)r->integer); break;
    case REDIS_REPLY_STRING: lua_pushlstring(lua, r->str, r->len); break;
    case REDIS_REPLY_STATUS: push_text_table(lua, "ok", r->str, r->len); break;
    case REDIS_REPLY_ERROR: push_text_table(lua, "err", r->str, r->len); break;
    case REDIS_REPLY_ARRAY:
        luaL_checkstack(lua, 4, "reply too deep");
        lua_createtable(lua, (int)r->elements, 0);
        for (size_t i = 0; i < r->elements; i++) {
            push_reply(lua, r->element[i]);
            lua_rawseti(lua, -2, (int)i + 1);
        }
        break;
    default: lua_pushboolean(lua, 0); break;
    }
}

/* --- redis.call ------------------------------------------------------------------------------- */

static redisReply *may_run(struct script_run *run, const struct command *cmd, int argc) {
    if (!cmd) return reply_error("ERR Unknown Redis command called from script");
    if (!store_arity_ok(cmd, argc))
        return reply_error("ERR Wrong number of args calling Redis command from script");
    unsigned flags = cmd->pub.flags;
    if (flags & STORE_NOSCRIPT)
        return reply_error("ERR This Redis command is not allowed from script");
    if (flags & STORE_WRITE && run->no_writes)
        return reply_error("ERR Write commands are not allowed from read-only scripts.");
    if (flags & STORE_DENYOOM && run->refuse_growth)
        return reply_error("OOM command not allowed when used memory > 'maxmemory'.");
    /* At maxmemory, Redis does not stop a script that has already written something. */
    if (flags & STORE_WRITE) run->refuse_growth = false;
    return NULL;
}

/* Reads the arguments of redis.call from Lua's stack. Numbers are converted to text as in Redis.
 * The array `numbers` has room for one text per argument. Returns false if an argument is neither a
 * number nor a string. */
static bool take_args(lua_State *lua, int argc, struct slice *args, char (*numbers)[NUMBER_SIZE]) {
    for (int i = 0; i < argc; i++) {
        int type = lua_type(lua, i + 1);
        if (type == LUA_TNUMBER) {
            int n = snprintf(numbers[i], NUMBER_SIZE, "%.17g", lua_tonumber(lua, i + 1));
            args[i] = (struct slice){numbers[i], (size_t)n};
        } else if (type == LUA_TSTRING) {
            args[i].p = lua_tolstring(lua, i + 1, &args[i].n);
        } else
            return false;
    }
    return true;
}

static redisReply *call_args(lua_State *lua, int argc, struct slice *args,
                             char (*numbers)[NUMBER_SIZE]) {
    struct script_run *run = &env_of(lua)->run;
    if (!take_args(lua, argc, args, numbers))
        return reply_error("ERR Lua redis lib command arguments must be strings or integers");
    const struct command *cmd = store_find_command(args[0]);
    redisReply *refusal = may_run(run, cmd, argc);
    if (!refusal) refusal = store_redirect(run->store, cmd, argc, args, true);
    return refusal ? refusal : store_run(run->store, cmd, argc, args);
}

static _Thread_local uint64_t list_bytes;
uint64_t store_list_bytes(void) { return list_bytes; }

static uint64_t bytes_of(const redisReply *r) {
    uint64_t n = r->str ? r->len : 0;
    for (size_t i = 0; i < r->elements; i++) n += bytes_of(r->element[i]);
    return n;
}

static redisReply *call_counted(lua_State *lua, int argc, struct slice *args,
                                char (*numbers)[NUMBER_SIZE]) {
    redisReply *r = call_args(lua, argc, args, numbers);
    /* The names of the commands that read lists begin with L or R. The bytes of their replies count
     * as bytes of lists that the script has read. */
    if (args[0].n && (args[0].p[0] == 'L' || args[0].p[0] == 'R')) list_bytes += bytes_of(r);
    return r;
}

/* Returns the error that store_fail_script() has set for this call of redis.call, or NULL. */
static redisReply *failing(lua_State *lua) {
    struct store *s = env_of(lua)->run.store;
    if (!s || s->fail_call <= 0 || --s->fail_call > 0) return NULL;
    return reply_error("%s", s->fail_text);
}

static redisReply *call(lua_State *lua) {
    int argc = lua_gettop(lua);
    struct slice some[ARGS_ON_STACK];
    char some_numbers[ARGS_ON_STACK][NUMBER_SIZE];
    if (argc == 0)
        return reply_error("ERR Please specify at least one argument for this redis.call() call");
    redisReply *bad = failing(lua);
    if (bad) return bad;
    if (argc <= ARGS_ON_STACK) return call_counted(lua, argc, some, some_numbers);
    struct slice *args = store_alloc((size_t)argc * sizeof *args);
    char(*numbers)[NUMBER_SIZE] = store_alloc((size_t)argc * sizeof *numbers);
    redisReply *r = call_counted(lua, argc, args, numbers);
    free(args);
    free(numbers);
    return r;
}

static int lib_pcall_redis(lua_State *lua) {
    redisReply *r = call(lua);
    push_reply(lua, r);
    freeReplyObject(r);
    return 1;
}

static int lib_call(lua_State *lua) {
    redisReply *r = call(lua);
    bool failed = r->type == REDIS_REPLY_ERROR;
    push_reply(lua, r);
    freeReplyObject(r);
    return failed ? lua_error(lua) : 1;
}

/* --- the rest of the redis table -------------------------------------------------------------- */

static bool one_string(lua_State *lua) {
    return lua_gettop(lua) == 1 && lua_type(lua, 1) == LUA_TSTRING;
}

static int wrong_arguments(lua_State *lua) {
    static const char text[] = "ERR wrong number or type of arguments";
    push_text_table(lua, "err", text, sizeof text - 1);
    return 1;
}

/* Implements redis.error_reply(). A text with a space in it stays as it is, and a single word gets
 * the code ERR in front of it. A leading '-' is removed. */
static int lib_error_reply(lua_State *lua) {
    if (!one_string(lua)) return wrong_arguments(lua);
    const char *text = lua_tostring(lua, 1);
    if (*text == '-') text++;
    lua_createtable(lua, 0, 1);
    if (strchr(text, ' '))
        lua_pushstring(lua, text);
    else
        lua_pushfstring(lua, "ERR %s", text);
    lua_setfield(lua, -2, "err");
    return 1;
}

static int lib_status_reply(lua_State *lua) {
    if (!one_string(lua)) return wrong_arguments(lua);
    lua_createtable(lua, 0, 1);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "ok");
    return 1;
}

static int lib_sha1hex(lua_State *lua) {
    size_t n;
    char sha[41];
    if (lua_gettop(lua) != 1) return luaL_error(lua, "wrong number of arguments");
    const char *p = lua_tolstring(lua, 1, &n);
    sha1_hex(p ? p : "", p ? n : 0, sha);
    lua_pushstring(lua, sha);
    return 1;
}

static int lib_log(lua_State *lua) {
    if (lua_gettop(lua) < 2) return luaL_error(lua, "redis.log() requires two arguments or more.");
    if (lua_type(lua, 1) != LUA_TNUMBER)
        return luaL_error(lua, "First argument must be a number (log level).");
    lua_Number level = lua_tonumber(lua, 1);
    if (level < 0 || level > 3) return luaL_error(lua, "Invalid log level.");
    return 0;
}

static int lib_true(lua_State *lua) {
    lua_pushboolean(lua, 1);
    return 1;
}

/* Implements pcall() as Redis does: if an error is a table with a field `err`, the script gets the
 * text of this field. */
static int lib_pcall(lua_State *lua) {
    luaL_checkany(lua, 1);
    int argc = lua_gettop(lua);
    if (lua_pcall(lua, argc - 1, LUA_MULTRET, 0) == 0) {
        lua_pushboolean(lua, 1);
        lua_insert(lua, 1);
        return lua_gettop(lua);
    }
    if (lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        if (lua_isstring(lua, -1))
            lua_replace(lua, -2);
        else
            lua_pop(lua, 1);
    }
    lua_pushboolean(lua, 0);
    lua_insert(lua, -2);
    return 2;
}

/* --- bit: works on 32 bits with signed results ------------------------------------------------ */

static uint32_t to_bits(lua_State *lua, int i) {
    return (uint32_t)(int64_t)luaL_checknumber(lua, i);
}

static int push_bits(lua_State *lua, uint32_t v) {
    lua_pushnumber(lua, (int32_t)v);
    return 1;
}

static int bit_tobit(lua_State *lua) { return push_bits(lua, to_bits(lua, 1)); }
static int bit_bnot(lua_State *lua) { return push_bits(lua, ~to_bits(lua, 1)); }

static int bit_band(lua_State *lua) {
    uint32_t v = to_bits(lua, 1);
    for (int i = lua_gettop(lua); i > 1; i--) v &= to_bits(lua, i);
    return push_bits(lua, v);
}

static int bit_bor(lua_State *lua) {
    uint32_t v = to_bits(lua, 1);
    for (int i = lua_gettop(lua); i > 1; i--) v |= to_bits(lua, i);
    return push_bits(lua, v);
}

static int bit_bxor(lua_State *lua) {
    uint32_t v = to_bits(lua, 1);
    for (int i = lua_gettop(lua); i > 1; i--) v ^= to_bits(lua, i);
    return push_bits(lua, v);
}

static int bit_lshift(lua_State *lua) {
    return push_bits(lua, to_bits(lua, 1) << (to_bits(lua, 2) & 31));
}
static int bit_rshift(lua_State *lua) {
    return push_bits(lua, to_bits(lua, 1) >> (to_bits(lua, 2) & 31));
}
static int bit_arshift(lua_State *lua) {
    return push_bits(lua, (uint32_t)((int32_t)to_bits(lua, 1) >> (to_bits(lua, 2) & 31)));
}

/* --- globals ---------------------------------------------------------------------------------- */

static int no_such_global(lua_State *lua) {
    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      lua_tostring(lua, 2));
}

static int read_only(lua_State *lua) {
    return luaL_error(lua, "Attempt to modify a readonly table");
}

static void open_library(lua_State *lua, lua_CFunction open, const char *name) {
    lua_pushcfunction(lua, open);
    lua_pushstring(lua, name);
    lua_call(lua, 1, 0);
}

static void set_functions(struct script_env *env, const char *table, const luaL_Reg *functions) {
    lua_State *lua = env->lua;
    lua_newtable(lua);
    for (; functions->name; functions++) {
        lua_pushlightuserdata(lua, env);
        lua_pushcclosure(lua, functions->func, 1);
        lua_setfield(lua, -2, functions->name);
    }
    lua_setglobal(lua, table);
}

static void open_redis(struct script_env *env) {
    static const luaL_Reg redis[] = {{"call", lib_call},
                                     {"pcall", lib_pcall_redis},
                                     {"error_reply", lib_error_reply},
                                     {"status_reply", lib_status_reply},
                                     {"sha1hex", lib_sha1hex},
                                     {"log", lib_log},
                                     {"replicate_commands", lib_true},
                                     {NULL, NULL}};
    static const struct {
        const char *name;
        int value;
    } numbers[] = {{"LOG_DEBUG", 0},
                   {"LOG_VERBOSE", 1},
                   {"LOG_NOTICE", 2},
                   {"LOG_WARNING", 3},
                   {"REDIS_VERSION_NUM", 0x0007000f}};
    set_functions(env, "redis", redis);
    lua_getglobal(env->lua, "redis");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        lua_pushnumber(env->lua, numbers[i].value);
        lua_setfield(env->lua, -2, numbers[i].name);
    }
    lua_pushstring(env->lua, "7.0.15");
    lua_setfield(env->lua, -2, "REDIS_VERSION");
    lua_pop(env->lua, 1);
}

static void open_bit(struct script_env *env) {
    static const luaL_Reg bit[] = {
        {"tobit", bit_tobit},   {"bnot", bit_bnot},       {"band", bit_band},
        {"bor", bit_bor},       {"bxor", bit_bxor},       {"lshift", bit_lshift},
        {"rshift", bit_rshift}, {"arshift", bit_arshift}, {NULL, NULL}};
    set_functions(env, "bit", bit);
}

/* Removes the Lua functions that reach outside the script, keep state between runs, or may return
 * another result in each run. */
static void remove_unsafe(lua_State *lua) {
    static const char *const names[] = {"dofile",  "loadfile", "print",   "newproxy", "setfenv",
                                        "getfenv", "module",   "require", "gcinfo"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        lua_pushnil(lua);
        lua_setglobal(lua, names[i]);
    }
    lua_getglobal(lua, "math");
    lua_pushnil(lua);
    lua_setfield(lua, -2, "random");
    lua_pushnil(lua);
    lua_setfield(lua, -2, "randomseed");
    lua_pop(lua, 1);
}

static void set_metafield(lua_State *lua, const char *name, lua_CFunction function) {
    lua_pushcfunction(lua, function);
    lua_setfield(lua, -2, name);
}

/* Gives scripts an empty table as their globals. A read of a global goes to the real globals, where
 * an unknown name is an error. A write of a global is always an error. */
static void protect_globals(struct script_env *env) {
    lua_State *lua = env->lua;
    lua_newtable(lua);
    lua_newtable(lua);
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    lua_setfield(lua, -2, "__index");
    set_metafield(lua, "__newindex", read_only);
    lua_pushboolean(lua, 0);
    lua_setfield(lua, -2, "__metatable");
    lua_setmetatable(lua, -2);
    lua_pushvalue(lua, -1);
    lua_setglobal(lua, "_G");
    env->globals_ref = luaL_ref(lua, LUA_REGISTRYINDEX);

    lua_newtable(lua);
    set_metafield(lua, "__index", no_such_global);
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    lua_insert(lua, -2);
    lua_setmetatable(lua, -2);
    env->real_globals_ref = luaL_ref(lua, LUA_REGISTRYINDEX);
}

void script_lib_open(struct script_env *env) {
    lua_State *lua = env->lua;
    open_library(lua, luaopen_base, "");
    open_library(lua, luaopen_table, LUA_TABLIBNAME);
    open_library(lua, luaopen_string, LUA_STRLIBNAME);
    open_library(lua, luaopen_math, LUA_MATHLIBNAME);
    remove_unsafe(lua);
    open_redis(env);
    open_bit(env);
    lua_pushcfunction(lua, lib_pcall);
    lua_setglobal(lua, "pcall");
    protect_globals(env);
}
