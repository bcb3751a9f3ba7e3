/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the script engine share. */
#ifndef LW_SIM_STORE_LUA_H
#define LW_SIM_STORE_LUA_H

#include <lauxlib.h>
#include <lua.h>

#include "tests/sim/redis/store_internal.h"

struct script;

/* The script that runs. */
struct script_run {
    struct store *store;
    bool refuse_growth; /* at maxmemory, until the script has written */
    bool no_writes;
};

struct script_env {
    int refs;
    uint64_t random;
    lua_State *lua;
    int globals_ref;      /* what scripts see: empty, protected, falls through to the real ones */
    int real_globals_ref; /* libraries, redis, KEYS, ARGV */
    struct script *compiled;
    struct digest *digests;
    struct script_run run;
};

/* Libraries, the redis table and the protection of globals. */
void script_lib_open(struct script_env *env);

#endif
