/* SPDX-License-Identifier: Apache-2.0 */
/* A private redis-server for one test. It listens on a unix socket in a temporary folder. It
 * listens on a TCP port only if the test's arguments name one.
 *
 * A test starts a server, asks for its path or connects to it as often as needed, may kill, restart
 * or flush it, and finally stops it, which also removes the folder. A server dies with the thread
 * that started it (PR_SET_PDEATHSIG), so that a test which crashes leaves no server behind. Nothing
 * is saved to disk unless the test asks for it (SAVE, or arguments such as "--appendonly", "yes").
 * Every wait is bounded. */
#ifndef LW_TEST_REDIS_SERVER_H
#define LW_TEST_REDIS_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

struct lw_test_redis;

/* Returns the program that all tests start as redis-server. The variable LW_REDIS_SERVER can name
 * another program, which tests/matrix uses for other releases. */
const char *lw_test_redis_program(void);

/* Starts a server, and returns when the server answers PING. extra_args is NULL, or a list of at
 * most 60 more arguments for redis-server, ended by NULL. The arguments are copied, and a restart
 * uses them again. If the server does not answer within 10 s, prints the reason and the server's
 * log on stderr and returns NULL. */
struct lw_test_redis *lw_test_redis_start(const char *const *extra_args);

/* lw_test_redis_path() returns the path of the socket. lw_test_redis_dir() returns the path of the
 * folder that contains the socket, dump.rdb and other files. Both texts are valid until the server
 * is stopped. */
const char *lw_test_redis_path(const struct lw_test_redis *r);
const char *lw_test_redis_dir(const struct lw_test_redis *r);
/* Returns the server's process id, or -1 while the server is down. A restart changes the id. */
pid_t lw_test_redis_pid(const struct lw_test_redis *r);

/* Opens a connection with a timeout of 10 s per command. The caller frees the connection.
 * Returns NULL, with the reason on stderr, if the connection fails. */
redisContext *lw_test_redis_connect(const struct lw_test_redis *r);

/* Runs FLUSHALL. Returns false, with the reason on stderr, if the server refuses the command. */
bool lw_test_redis_flush(struct lw_test_redis *r);
/* Kills the server with kill -9 and reaps it. */
void lw_test_redis_kill(struct lw_test_redis *r);
/* Kills the server with kill -9 if it is up, then starts it in the same folder with the same
 * arguments. The server loads only the data that it had saved. Returns false if it does not
 * start. */
bool lw_test_redis_restart(struct lw_test_redis *r);
/* Stops the server, removes the folder, and frees r. Ignores NULL. */
void lw_test_redis_stop(struct lw_test_redis *r);

#endif
