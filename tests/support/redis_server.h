/* SPDX-License-Identifier: Apache-2.0 */
/* A private redis-server for one test: on a unix socket in a temporary folder of its own, never on a TCP port.
 *
 * Calling sequence: start, path (or connect) as often as wanted, perhaps kill, restart or flush, then stop, which also removes the
 * folder. A server dies with the thread that started it (PR_SET_PDEATHSIG), so that a test which crashes leaves none behind.
 * Nothing is saved unless the test asks for it (SAVE, or arguments such as "--appendonly", "yes"). Every wait is bounded. */
#ifndef LW_TEST_REDIS_SERVER_H
#define LW_TEST_REDIS_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

struct lw_test_redis;

/* extra_args: further arguments of redis-server, ended by NULL; or NULL for none. At most 60; they are copied, and are used again by
 * restart. Returns when the server answers PING. NULL, with the reason and the server's log on stderr, if it does not within 10 s. */
struct lw_test_redis *lw_test_redis_start(const char *const *extra_args);

/* The socket's path, and the folder that holds it (dump.rdb and the like too). Valid until stop. */
const char *lw_test_redis_path(const struct lw_test_redis *r);
const char *lw_test_redis_dir(const struct lw_test_redis *r);
/* -1 while it is down. Changes at restart. */
pid_t lw_test_redis_pid(const struct lw_test_redis *r);

/* A new connection with a command timeout of 10 s, the caller's to free; NULL with the reason on stderr. */
redisContext *lw_test_redis_connect(const struct lw_test_redis *r);

/* FLUSHALL. False, with the reason on stderr, if the server refused. */
bool lw_test_redis_flush(struct lw_test_redis *r);
/* Kills the server with kill -9 and reaps it. */
void lw_test_redis_kill(struct lw_test_redis *r);
/* Kills the server with kill -9 if it is up, then starts it in the same folder with the same arguments: it loads what it had saved, and
 * has lost the rest. Returns false if it does not start. */
bool lw_test_redis_restart(struct lw_test_redis *r);
/* Ends the server, removes the folder, frees r. NULL is ignored. */
void lw_test_redis_stop(struct lw_test_redis *r);

#endif
