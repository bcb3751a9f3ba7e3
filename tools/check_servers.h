/* The parts of `check --connect`. Each says what is wrong in r->problems and what is worth knowing in r->notes, one a line, and waits
 * at most wait_ms for each answer. */
#ifndef LW_TOOLS_CHECK_SERVERS_H
#define LW_TOOLS_CHECK_SERVERS_H

#include "config/config.h"

enum { LW_CHECK_WAIT_MS = 5000 };

/* Begin with {.wait_ms = LW_CHECK_WAIT_MS}. */
struct lw_check_report {
    struct lw_problems problems;
    struct lw_buf notes;
    int wait_ms;
};

void lw_check_kafka(const struct lw_config *c, struct lw_check_report *r);
void lw_check_redis(const struct lw_config *c, struct lw_check_report *r);
/* Opens the handler in a child process, so that one that hangs or crashes is only a problem. Before any threads are made. */
void lw_check_handler_opens(const struct lw_config *c, struct lw_check_report *r);

#endif
