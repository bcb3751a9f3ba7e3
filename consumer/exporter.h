/* The exporter: a process beside the workers that serves metrics and health (`http.listen`). It reads the board and asks Redis every few
 * seconds; nothing that it does, or that anybody does to it, can hold up a worker. Where its port is taken the run goes on without it, and
 * it tries again. */
#ifndef LW_CONSUMER_EXPORTER_H
#define LW_CONSUMER_EXPORTER_H

#include "config/config.h"
#include "consumer/board.h"

/* The process; ends with its parent. Returns only where nothing is to be served. For lw_supervise_options.exporter_main. */
int lw_exporter_main(const struct lw_config *c, const struct lw_board *board);

#endif
