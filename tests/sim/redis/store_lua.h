/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the two files of the fake Redis's script engine share. */
#ifndef LW_SIM_STORE_LUA_H
#define LW_SIM_STORE_LUA_H

#include <lauxlib.h>
#include <lua.h>

#include "tests/sim/redis/store_internal.h"

struct script;

/* The script that is running. */
struct script_run {
    struct store *store;
    bool refuse_growth; /* true at maxmemory until the script has written */
    bool no_writes;
};

struct script_env {
    int refs;
    uint64_t random;
    lua_State *lua;
    /* the empty, protected table that scripts see; reads go to the real globals */
    int globals_ref;
    int real_globals_ref; /* the table with the libraries, `redis`, KEYS and ARGV */
    struct script *compiled;
    struct digest *digests;
    struct script_run run;
};

/* Sets up the libraries, the `redis` table and the protection of globals. */
void script_lib_open(struct script_env *env);

#endif
