/* SPDX-License-Identifier: Apache-2.0 */
/* The process that sends the workers' spans (consumer/spans.h) to tracing.endpoint, beside the
 * workers. Whatever happens to it or to the endpoint, no worker waits: it reads rings that the
 * workers write, and a worker drops a span that finds its ring full.
 *
 *     wait until there are 512 spans, or the oldest is 1 s old → make one request → post it
 *         taken, refused     release them
 *         later              wait, 1 s at first and twice as long each time, or as long as
 *                            Retry-After says; post again; after 60 s give the spans up and release
 *                            them
 */
#ifndef LW_MONITOR_TRACING_TRACING_H
#define LW_MONITOR_TRACING_TRACING_H

#include "config/config.h"
#include "consumer/board.h"

/* Holds times in ms. A value of 0 stands for the default in brackets. Tests set shorter times. */
struct lw_tracing_times {
    int64_t linger_ms; /* how long a span waits for others [1 s] */
    /* wait before a request is posted again, which doubles each time up to the maximum [1 s, 30
     * s] */
    int64_t backoff_ms, backoff_max_ms;
    /* time after the first post of a request after which its spans are given up [60 s] */
    int64_t give_up_ms;
};

/* The main function of the process. After SIGTERM it posts what is left, once, and returns the exit
 * status. */
int lw_tracing_main(const struct lw_config *c, struct lw_board *board);
int lw_tracing_run(const struct lw_config *c, struct lw_board *board,
                   const struct lw_tracing_times *times);

#endif
