/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that store_lua.c and store_lua_lib.c share. These two files run the scripts of the
 * fake Redis. */
#ifndef LW_SIM_STORE_LUA_H
#define LW_SIM_STORE_LUA_H

#include <lauxlib.h>
#include <lua.h>

#include "tests/sim/redis/store_internal.h"

struct script;

/* The state of the script that is running. */
struct script_run {
    struct store *store;
    bool refuse_growth; /* true at maxmemory until the script has written something */
    bool no_writes;
};

struct script_env {
    int refs;
    uint64_t random;
    lua_State *lua;
    /* Registry index of the empty, protected table that scripts see as their globals. Reads of this
     * table go to the real globals. */
    int globals_ref;
    /* Registry index of the real globals: the libraries, `redis`, KEYS and ARGV. */
    int real_globals_ref;
    struct script *compiled;
    struct digest *digests;
    struct script_run run;
};

/* Creates the Lua libraries and the `redis` table, and protects the globals from scripts. */
void script_lib_open(struct script_env *env);

#endif
