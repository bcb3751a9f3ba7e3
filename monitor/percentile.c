/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/percentile.h"

void lw_hist_counts_add(struct lw_hist_counts *c, const struct lw_hist *h) {
    for (int i = 0; i <= LW_HIST_BOUNDS; i++)
        c->bucket[i] += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
}

int64_t lw_hist_percentile(const struct lw_hist_bounds *b, const struct lw_hist_counts *before,
                           const struct lw_hist_counts *after, double share) {
    double all = 0, seen = 0;
    for (int i = 0; i <= b->n; i++) all += (double)(after->bucket[i] - before->bucket[i]);
    if (all <= 0) return -1;
    for (int i = 0; i < b->n; i++) {
        double here = (double)(after->bucket[i] - before->bucket[i]),
               low = i ? (double)b->us[i - 1] : 0;
        if (here > 0 && seen + here >= share * all)
            return (int64_t)(low + ((double)b->us[i] - low) * (share * all - seen) / here);
        seen += here;
    }
    return b->us[b->n - 1];
}
