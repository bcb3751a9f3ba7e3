/* SPDX-License-Identifier: Apache-2.0 */
/* What the servers that tests start have in common: a folder of their own, a process that dies with the test, its log, and free ports.
 * Failures are told on stderr. */
#ifndef LW_TESTS_SUPPORT_SERVER_PROCESS_H
#define LW_TESTS_SUPPORT_SERVER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LW_TEST_DIR = 100, LW_TEST_SOCKET_NAME = 32 };

/* Makes a folder lw-NAME-XXXXXX in TMPDIR, or else in /tmp. Its path is short enough for a socket in the folder, whose name may have
 * LW_TEST_SOCKET_NAME bytes when the address has 108. After a failure, `dir` is empty. */
bool lw_test_dir_make(char dir[LW_TEST_DIR], const char *name);
/* Removes the folder with all that is in it; nothing if `dir` is empty. */
void lw_test_dir_remove(const char *dir);
/* Prints the end of a log in the folder on stderr. */
void lw_test_log_show(const char *dir, const char *log);
/* For a child between fork() and the program: runs the program, which gets the signal `sig` when the thread that forked dies. `parent` is
 * the process that forked. */
_Noreturn void lw_test_exec(pid_t parent, int sig, const char *program, char *const *argv);
/* Returns a socket that is bound to a free port of 127.0.0.1, and sets *port. Ends the test on failure. */
int lw_test_bound(int *port);
/* Returns a TCP port of 127.0.0.1 that was free just now. */
int lw_test_free_port(void);

#endif
