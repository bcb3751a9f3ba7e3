/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts of the lock library, embedded from lock/lua/lib. They are called with EVALSHA. The
 * text of a script is sent if the server answers NOSCRIPT. Each new connection of a Redlock loads
 * all scripts of Redlock in advance. The scripts have no `#!lua` line, so that they run on Redis 5
 * and later, and on compatible servers. When Redis has reached maxmemory, it still executes DEL,
 * ZREM, PEXPIRE and PUBLISH. So the scripts that release a lock still work, and so do those that
 * extend a lock stored in a string. The scripts that use ZADD to extend the lease of a reader or a
 * permit fail, and those that take a lock usually fail at their first write. */
#ifndef LW_LOCK_SCRIPTS_H
#define LW_LOCK_SCRIPTS_H

#include "base/redis/script.h"

enum { LW_LOCK_SCRIPTS = 18 };
extern const struct lw_script *const lw_lock_scripts[LW_LOCK_SCRIPTS];

extern const struct lw_script lw_lock_script_mutex_take, lw_lock_script_mutex_drop,
    lw_lock_script_string_keep, lw_lock_script_leave, lw_lock_script_queue_take,
    lw_lock_script_queue_drop, lw_lock_script_queue_leave, lw_lock_script_permit_take,
    lw_lock_script_permit_drop, lw_lock_script_share_keep, lw_lock_script_break,
    lw_lock_script_rows_take, lw_lock_script_rows_raise, lw_lock_script_rows_keep,
    lw_lock_script_rows_drop, lw_lock_script_redlock_take, lw_lock_script_redlock_raise,
    lw_lock_script_redlock_drop;

#endif
