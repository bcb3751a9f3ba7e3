/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the servers that tests start: a folder for each server, a process that dies with
 * the test, the server's log, and free ports. Functions that fail print the reason on stderr. */
#ifndef LW_TESTS_SUPPORT_SERVER_PROCESS_H
#define LW_TESTS_SUPPORT_SERVER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LW_TEST_DIR = 100, LW_TEST_SOCKET_NAME = 32 };

/* Makes a folder named lw-NAME-XXXXXX in TMPDIR, or else in /tmp. The folder's path is short enough
 * for a socket in the folder: with a file name of at most LW_TEST_SOCKET_NAME bytes, the socket's
 * path fits into the 108 bytes of a unix socket's address. On failure, `dir` becomes empty. */
bool lw_test_dir_make(char dir[LW_TEST_DIR], const char *name);
/* Removes the folder and everything in it. Does nothing if `dir` is empty. */
void lw_test_dir_remove(const char *dir);
/* Prints the end of the file `log` in the folder `dir` on stderr. */
void lw_test_log_show(const char *dir, const char *log);
/* Executes a program in the child process after fork(). The program gets the signal `sig` when the
 * thread that called fork() dies. `parent` is the pid of the process that called fork(). */
_Noreturn void lw_test_exec(pid_t parent, int sig, const char *program, char *const *argv);
/* Returns a socket that is bound to a free port of 127.0.0.1, and sets *port to this port. Ends the
 * test if no port is free. */
int lw_test_bound(int *port);
/* Returns a TCP port of 127.0.0.1 that is free at the time of the call. */
int lw_test_free_port(void);

#endif
