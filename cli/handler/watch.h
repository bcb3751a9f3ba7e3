/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the files that `latchwork handler test` uses and all other files in their folders, and
 * waits until one of them changes. */
#ifndef LW_CLI_HANDLER_WATCH_H
#define LW_CLI_HANDLER_WATCH_H

#include "base/err.h"
#include "config/config.h"

#include <signal.h>

struct handler_watch;

struct handler_watch *handler_watch_open(struct lw_err *err);
/* Starts to watch the folders that contain the configuration, the file of messages, and the files
 * that the handler section names. No longer watches any other folder. `c` is NULL if the
 * configuration has errors. Only changes after this call are noticed. */
void handler_watch_begin(struct handler_watch *w, const char *config, const char *messages,
                         const struct lw_config *c);
/* Call this function when a run of the test is over. Then a file that the run itself wrote does not
 * count as a change, unless it is the configuration, the file of messages, or a file that the
 * handler section names. */
void handler_watch_run_over(struct handler_watch *w);
/* Waits until a file has changed and no file has changed for a moment after that. Returns the name
 * of the changed file, or NULL if *stop became non-zero. */
const char *handler_watch_wait(struct handler_watch *w, const volatile sig_atomic_t *stop);
/* Returns the path of the handler's program or plugin if it must be built again before a test,
 * because the changed file `name` is a source file that is newer than the program. Otherwise
 * returns NULL. `name` is a result of handler_watch_wait(). */
const char *handler_watch_unbuilt(const struct handler_watch *w, const char *name);
void handler_watch_close(struct handler_watch *w);

#endif
