/* SPDX-License-Identifier: Apache-2.0 */
/* The tracing process, which runs beside the workers and sends their spans (consumer/spans.h) to
 * tracing.endpoint. No fault of the process or of the endpoint can make a worker wait: the workers
 * write spans to rings, and drop a span if the ring is full.
 *
 *     wait until 512 spans wait, or the oldest is 1 s old; make one request; post it
 *         accepted or refused    release its spans
 *         temporary failure      wait (1 s at first, then twice as long each time, or as long as
 *                                Retry-After says) and post again; after 60 s give up and release
 *                                its spans */
#ifndef LW_MONITOR_TRACING_TRACING_H
#define LW_MONITOR_TRACING_TRACING_H

#include "config/config.h"
#include "consumer/board.h"

/* Times in ms. A value of 0 stands for the default, which is in brackets below. Tests set shorter
 * times. */
struct lw_tracing_times {
    int64_t linger_ms; /* maximum wait of a span for further spans [1 s] */
    /* `backoff_ms` and `backoff_max_ms` are the first and the maximum wait before a request is
     * posted again; the wait doubles each time [1 s, 30 s] */
    int64_t backoff_ms, backoff_max_ms;
    /* `give_up_ms` is the time after the first post of a request at which its spans are given up
     * [60 s] */
    int64_t give_up_ms;
    int64_t last_ms; /* maximum duration of a request after SIGTERM [1.5 s] */
};

/* The main function of the tracing process. After SIGTERM it posts the remaining spans once, and
 * returns the exit status. */
int lw_tracing_main(const struct lw_config *c, struct lw_board *board);
int lw_tracing_run(const struct lw_config *c, struct lw_board *board,
                   const struct lw_tracing_times *times);

#endif
