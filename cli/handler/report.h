/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of the deliveries of a plan, and counts the results that differ from the
 * expected ones. */
#ifndef LW_CLI_HANDLER_REPORT_H
#define LW_CLI_HANDLER_REPORT_H

#include "cli/handler/plan.h"

struct handler_report {
    const struct handler_plan *plan;
    const char *messages; /* path of the file with the messages */
    bool json;
    /* `printed` is the number of deliveries, counted from the beginning of the plan, that were
     * printed or left out. */
    size_t printed;
    size_t counts[RESULT_N];
    /* `judged` is the number of printed deliveries. The delivery of a message that no handler gets
     * is printed only in the first round. */
    size_t judged;
    size_t wrong; /* number of deliveries with an unexpected result */
};

/* Prints the finished deliveries in the order of the plan, up to the first unfinished delivery. */
void handler_report_more(struct handler_report *r);
/* Prints the summary. Returns true if the test reached its end and all results were as expected. */
bool handler_report_end(struct handler_report *r);

#endif
