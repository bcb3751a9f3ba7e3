/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what became of the deliveries of a plan, and counts those that differ from what was
 * expected. */
#ifndef LW_CLI_HANDLER_REPORT_H
#define LW_CLI_HANDLER_REPORT_H

#include "cli/handler/plan.h"

struct handler_report {
    const struct handler_plan *plan;
    const char *messages; /* the path of the messages' file */
    bool json;
    size_t printed; /* deliveries that were printed, in the plan's order */
    size_t counts[RESULT_N];
    size_t judged; /* deliveries that were printed, in all rounds */
    size_t wrong;  /* deliveries that differ from what was expected */
};

/* Prints the deliveries that are over, up to the first that is not. */
void handler_report_more(struct handler_report *r);
/* Prints the summary. Returns whether everything was as expected. */
bool handler_report_end(struct handler_report *r);

#endif
