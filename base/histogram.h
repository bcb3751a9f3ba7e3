/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms in shared memory: counts of durations by bucket. Writers add durations with relaxed
 * atomics while another process reads the counts.
 *
 * The functions use no mutex and allocate nothing, and there may be any number of writers. A reader
 * reads each bucket once and computes the cumulative counts from these values, so within one
 * reading the cumulative counts never fall, and the last one (`+Inf`) equals the total count. The
 * sum may already contain durations that were added after the buckets were read. */
#ifndef LW_BASE_HISTOGRAM_H
#define LW_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { LW_HIST_BOUNDS = 20 };

/* Upper bounds of a histogram's buckets, in rising order. One more bucket counts all durations
 * above the last bound. */
struct lw_hist_bounds {
    int n;
    int64_t us[LW_HIST_BOUNDS];
};

struct lw_hist {
    /* number of durations in each bucket, not cumulative */
    _Atomic uint64_t bucket[LW_HIST_BOUNDS + 1];
    _Atomic uint64_t sum_us;
};

extern const struct lw_hist_bounds lw_bounds_handler, lw_bounds_end_to_end, lw_bounds_redis;

/* Counts `times` durations of `us` microseconds each. A negative duration counts as 0. Such a
 * duration can result if its beginning and its end were measured on two machines. */
static inline void lw_hist_add_n(struct lw_hist *h, const struct lw_hist_bounds *b, int64_t us,
                                 uint64_t times) {
    int lo = 0, hi = b->n;
    if (us < 0) us = 0;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (us > b->us[mid])
            lo = mid + 1;
        else
            hi = mid;
    }
    atomic_fetch_add_explicit(&h->bucket[lo], times, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_us, (uint64_t)us * times, memory_order_relaxed);
}
static inline void lw_hist_add(struct lw_hist *h, const struct lw_hist_bounds *b, int64_t us) {
    lw_hist_add_n(h, b, us, 1);
}

#endif
