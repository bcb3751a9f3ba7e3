/* SPDX-License-Identifier: Apache-2.0 */
/* The demo: kills one worker half-way, and shows by checked figures that everything is finished
 * all the same. */
#ifndef LW_CLI_DEV_DEMO_H
#define LW_CLI_DEV_DEMO_H

#include "cli/dev/audit.h"
#include "cli/dev/view.h"

struct dev_demo {
    struct dev_killed killed;
    int worker; /* number of the worker that was killed */
    bool replaced;
};

/* Kills the worker at the right moment, and reports it. */
void dev_demo_tick(struct dev_demo *d, struct dev_view *v);
/* True if all messages are produced and the group has committed all of them. */
bool dev_demo_finished(const struct dev_view *v);
/* Prints the table, and names each wrong figure on stderr. Returns the number of wrong figures.
 * Call it after the workers have ended. */
int dev_demo_judge(const struct dev_demo *d, const struct dev_view *v);

#endif
