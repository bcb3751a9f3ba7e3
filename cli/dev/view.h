/* SPDX-License-Identifier: Apache-2.0 */
/* Shows on the terminal what `latchwork dev` does while it runs. */
#ifndef LW_CLI_DEV_VIEW_H
#define LW_CLI_DEV_VIEW_H

#include "cli/dev/private.h"

struct dev_view {
    const struct dev_home *home;
    const struct dev_options *o;
    struct dev_shared *shared;
    bool terminal;
    int64_t start_ms, shown_ms;
    /* `last_ms` and `last_done` are the time and the number of done messages at the last
     * measurement. `rate` is in messages per second. */
    int64_t last_ms, last_done, rate;
    struct dev_rows rows; /* the counts of rows that were last read from the database */
    /* `live` is true if the last line on the terminal is a live line, which the next live line
     * overwrites. */
    bool live;
};

void dev_view_init(struct dev_view *v, const struct dev_home *h, const struct dev_options *o,
                   struct dev_shared *shared);
void dev_view_welcome(const struct dev_view *v, const char *config);
/* Prints the live line again if its interval is over. If stdout is not a terminal, prints a new
 * line every two seconds instead. */
void dev_view_tick(struct dev_view *v);
/* Prints a line that no live line overwrites. */
void dev_view_say(struct dev_view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Formats 1234567 as "1,234,567" into `out`, which has at least 32 bytes. Returns `out`. */
const char *dev_count(int64_t n, char *out);

#endif
