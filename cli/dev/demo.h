/* SPDX-License-Identifier: Apache-2.0 */
/* The demo kills a worker when half of the messages are done. Afterwards the demo shows and checks
 * figures. If all of them are right, every message was finished although a worker was killed. */
#ifndef LW_CLI_DEV_DEMO_H
#define LW_CLI_DEV_DEMO_H

#include "cli/dev/audit.h"
#include "cli/dev/view.h"

struct dev_demo {
    struct dev_killed killed;
    int worker; /* number of the worker that was killed */
    bool replaced;
};

/* Does the next step of the demo if its time has come: kills a worker when half of the messages are
 * done, reports that the worker was replaced, or lets the last burst of messages be produced. Call
 * this function regularly. */
void dev_demo_tick(struct dev_demo *d, struct dev_view *v);
/* Returns true if all messages are produced and the group has committed all of them. */
bool dev_demo_finished(const struct dev_view *v);
/* Prints the table of figures on stdout, and names each wrong figure on stderr. Returns the number
 * of wrong figures. Call this function after the workers have ended. */
int dev_demo_judge(const struct dev_demo *d, const struct dev_view *v);

#endif
