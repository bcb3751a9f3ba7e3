/* SPDX-License-Identifier: Apache-2.0 */
/* A private PostgreSQL server for tests. Its data is in a temporary folder, and it listens only on
 * a unix socket in that folder. A test may start PgBouncer in front of the server. */
#ifndef LW_TESTS_SUPPORT_PG_SERVER_H
#define LW_TESTS_SUPPORT_PG_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct lw_test_pg;

/* Makes a database cluster and starts its server. If that fails, prints a message on stderr and
 * returns NULL. */
struct lw_test_pg *lw_test_pg_start(void);
/* Stops the server and PgBouncer, and removes the folder. Ignores NULL. */
void lw_test_pg_stop(struct lw_test_pg *pg);
/* Returns the URL of the database "postgres" for the user who owns the server. If `bouncer` is
 * true, the URL leads to PgBouncer. */
const char *lw_test_pg_url(const struct lw_test_pg *pg, bool bouncer);
/* Stops the server at once by SIGQUIT (PostgreSQL's immediate shutdown), and starts it again. */
void lw_test_pg_kill(struct lw_test_pg *pg);
bool lw_test_pg_launch(struct lw_test_pg *pg);
pid_t lw_test_pg_pid(const struct lw_test_pg *pg);
/* Starts PgBouncer in transaction mode, with two server connections. If that fails, prints a
 * message on stderr and returns false. */
bool lw_test_pg_bouncer(struct lw_test_pg *pg);

#endif
