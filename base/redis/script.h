/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua scripts, which scripts/embed-lua.sh embeds at build time. The scripts in queue/lua and
 * lock/lua go into build/scripts.gen.c, those in ops/lua into build/ops-scripts.gen.c (see
 * ops/script.h), and those in lock/lua/lib, of the lock library, into build/lock-scripts.gen.c (see
 * lock/scripts.h). */
#ifndef LW_BASE_REDIS_SCRIPT_H
#define LW_BASE_REDIS_SCRIPT_H

struct lw_script {
    const char *name;
    const char *text;
    const char *sha1; /* SHA-1 of the text in hex, for EVALSHA */
};

enum { LW_SCRIPTS = 16 };
extern const struct lw_script *const lw_scripts[LW_SCRIPTS];

extern const struct lw_script lw_script_enter, lw_script_repair, lw_script_floor, lw_script_gate,
    lw_script_settle, lw_script_claim, lw_script_renew, lw_script_tend, lw_script_watch,
    lw_script_hints, lw_script_hold, lw_script_break, lw_script_unpark, lw_script_lift,
    lw_script_limit, lw_script_ready;

#endif
