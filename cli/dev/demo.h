/* SPDX-License-Identifier: Apache-2.0 */
/* The demo: one worker is killed half-way, everything is finished all the same, and the figures
 * must prove it. */
#ifndef LW_CLI_DEV_DEMO_H
#define LW_CLI_DEV_DEMO_H

#include "cli/dev/audit.h"
#include "cli/dev/view.h"

struct dev_demo {
    struct dev_killed killed;
    int worker; /* the worker that was killed */
    bool replaced;
};

/* Kills the worker when it is time, and says so. */
void dev_demo_tick(struct dev_demo *d, struct dev_view *v);
/* True if all messages are produced and the group has committed all of them. */
bool dev_demo_finished(const struct dev_view *v);
/* Prints the table. Returns how many figures are wrong; each is named on stderr. Call it after the
 * workers have ended. */
int dev_demo_judge(const struct dev_demo *d, const struct dev_view *v);

#endif
