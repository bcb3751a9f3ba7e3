/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_host: runs one message of a plugin in a process of its own.
 *
 * A message that was in the plugin when its worker died is a suspect. It runs in such a process,
 * whose death costs nobody else anything: the worker and its other handlers go on, and the message
 * is charged with an attempt. The process is this program itself, started with the argument
 * LW_PLUGIN_HOST. Both processes share a piece of memory (descriptor 3 of the new process), which
 * holds the message, its lease, and then the answer. The process ends itself when the lease or the
 * time of the message is over, also if the worker is frozen then, and it dies with the worker. */
#ifndef LW_HANDLERS_PLUGIN_HOST_H
#define LW_HANDLERS_PLUGIN_HOST_H

#include "handlers/handler.h"

#define LW_PLUGIN_HOST "plugin-host"

/* Runs the job in a new process, and sets its outcome and reason. Blocks the calling thread, which
 * must not end before the process does. `config` is borrowed. */
void lw_plugin_host_run(const struct lw_config *config, struct lw_job *job);
/* The main function of such a process. Returns its exit status. */
int lw_plugin_host_main(void);

#endif
