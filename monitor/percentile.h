/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles of the durations that were added to histograms (base/histogram.h) in an interval. */
#ifndef LW_MONITOR_PERCENTILE_H
#define LW_MONITOR_PERCENTILE_H

#include "base/histogram.h"

/* What the buckets of one or several histograms held at one time. Begin with zeros. */
struct lw_hist_counts {
    uint64_t bucket[LW_HIST_BOUNDS + 1];
};

void lw_hist_counts_add(struct lw_hist_counts *c, const struct lw_hist *h);
/* Returns the duration, in µs, that this share (0.5: half) of those added between `before` and
 * `after` did not exceed; -1 if none was added. The exact duration is not known: the result lies in
 * the right bucket, in proportion. Durations beyond the last bound count as the last bound. */
int64_t lw_hist_percentile(const struct lw_hist_bounds *b, const struct lw_hist_counts *before,
                           const struct lw_hist_counts *after, double share);

#endif
