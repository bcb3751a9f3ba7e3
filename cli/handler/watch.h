/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for changes of files: of those that a test depends on, and of any other in the same
 * folders. */
#ifndef LW_CLI_HANDLER_WATCH_H
#define LW_CLI_HANDLER_WATCH_H

#include "base/err.h"
#include "config/config.h"

#include <signal.h>

struct handler_watch;

struct handler_watch *handler_watch_open(struct lw_err *err);
/* Forgets what was watched, and watches the folders of the configuration, of the messages, and of
 * the files that the handler section names. `c` is NULL if the configuration has errors. Only
 * changes after this call are noticed. */
void handler_watch_begin(struct handler_watch *w, const char *config, const char *messages,
                         const struct lw_config *c);
/* Must be called when a run is over. A file that the run itself wrote is then not taken for a
 * change, unless it is the configuration, the file of messages, or a file that the handler section
 * names. */
void handler_watch_run_over(struct handler_watch *w);
/* Waits until a file has changed and then no file changes for a moment. Returns the name of the
 * changed file, or NULL if *stop became non-zero. */
const char *handler_watch_wait(struct handler_watch *w, const volatile sig_atomic_t *stop);
/* Returns the program or plugin of the handler if `name`, which handler_watch_wait() returned, is a
 * source that is newer than that file, so that a test would run the old one; NULL otherwise. */
const char *handler_watch_unbuilt(const struct handler_watch *w, const char *name);
void handler_watch_close(struct handler_watch *w);

#endif
