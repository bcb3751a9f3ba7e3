/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles of the durations that were added to histograms (base/histogram.h) during an
 * interval. */
#ifndef LW_MONITOR_PERCENTILE_H
#define LW_MONITOR_PERCENTILE_H

#include "base/histogram.h"

/* The sum of the buckets of one or several histograms at one time. The caller initializes it with
 * zeros. */
struct lw_hist_counts {
    uint64_t bucket[LW_HIST_BOUNDS + 1];
};

void lw_hist_counts_add(struct lw_hist_counts *c, const struct lw_hist *h);
/* Returns a percentile, in µs, of the durations that were added between `before` and `after`.
 * `share` says which percentile: 0.5 is the median, and 0.99 the 99th percentile. Returns -1 if no
 * duration was added. The result is interpolated within its bucket. A duration beyond the last
 * bound counts as the last bound. */
int64_t lw_hist_percentile(const struct lw_hist_bounds *b, const struct lw_hist_counts *before,
                           const struct lw_hist_counts *after, double share);

#endif
