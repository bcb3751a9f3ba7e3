/* SPDX-License-Identifier: Apache-2.0 */
/* What `latchwork top` knows, and how it looks.
 *
 * Two sources. Redis: counts, lanes, dead letters, commits; asked with cursors and small scripts, a bounded number of questions a refresh
 * whatever the number of lanes. Where there are more lanes than one refresh looks at, it goes round: those with most waiting so far are
 * kept and looked at each time, and the round finds others. And the HTTP server of the supervisor on http.listen, for what only workers
 * know: rates, lag, each worker's state. Where one of them does not answer the rest is shown all the same. */
#ifndef LW_CLI_TOP_PRIVATE_H
#define LW_CLI_TOP_PRIVATE_H

#include "ops/ops.h"

enum { TOP_LANES = 256, TOP_LOOK = 1024 /* TOP_LOOK: maximum lanes per refresh and shard */, TOP_DEAD = 32, TOP_WORKERS = 256 };
enum top_sort { TOP_BY_WAITING, TOP_BY_AGE, TOP_BY_TRIES, TOP_SORTS };

struct top_lane {
    struct ops_lane l; /* name and lock are owned */
    uint64_t seen;     /* number of the last refresh that looked at it */
};

struct top_shard {
    char cursor[OPS_CURSOR];
    bool whole;                      /* At least one round is complete. */
    int64_t waiting, oldest_ms;      /* sums of the last complete round */
    int64_t now_waiting, now_oldest; /* sums of the round under way */
};

struct top_dead {
    char id[64], identity[320], key[100], reason[200]; /* printable */
    int64_t at_ms, attempts;
};

struct top_worker {
    int index, pid;
    char state[16];
    int64_t starts, waiting, in_handler, turned_ms, done;
    double done_rate; /* -1: unknown */
};

/* What the supervisor has answered. */
struct top_fleet {
    bool on;
    char why[256]; /* if it does not answer: the reason */
    int workers, ready;
    int64_t at_ms; /* boot clock */
    int64_t lag, waiting, in_handler, received, finished, done, dead, retried;
    double in, out; /* per second; -1: unknown */
};

struct top {
    struct ops *o;
    enum top_sort sort;
    struct lw_buf filter; /* the text as typed, from which args.match is made */
    struct lw_buf match;

    bool up; /* Redis answers */
    char why[1024];
    uint64_t refresh;
    int64_t at_ms, committed_at_ms, committed, n_lanes, paused, dead, known_workers, now_ms /* at_ms and now_ms: Redis' time */;
    double commit_rate; /* -1: unknown */
    struct top_shard *shard;
    struct top_lane lane[TOP_LANES];
    size_t n_lane;
    struct top_dead died[TOP_DEAD]; /* newest first */
    size_t n_died;

    struct top_fleet fleet;
    struct top_worker worker[TOP_WORKERS];
    size_t n_worker;
};

/* cli/top/look.c */
void top_open(struct top *t, struct ops *o);
void top_close(struct top *t);
void top_refresh(struct top *t);                      /* refreshes everything; failures are described in `why` */
void top_set_filter(struct top *t, const char *text); /* "" for none; a glob, or a part of the key */
void top_set_sort(struct top *t, enum top_sort sort);
int64_t top_waiting(const struct top *t, bool *about); /* about: some lanes were not counted */
int64_t top_oldest_ms(const struct top *t);            /* 0: no message waits */
/* cli/top/fleet.c */
void top_ask_fleet(struct top *t);

/* cli/top/frame.c: lines of at most `width` columns. */
enum top_style { TOP_PLAIN, TOP_BAR, TOP_HEAD, TOP_SELECTED, TOP_WARN };
struct top_line {
    char *text;
    enum top_style style;
};
struct top_frame {
    struct top_line *line;
    size_t n, cap;
    int width;
};
struct top_view {
    int width, height;
    int64_t interval_ms;
    size_t selected;     /* index into lane[]; SIZE_MAX: none is marked */
    size_t first;        /* the first lane shown; adjusted so that the marked one is visible */
    const char *message; /* the last event; NULL: none */
    const char *footer;  /* NULL: show the keys */
    bool help;
};
void top_draw(const struct top *t, struct top_view *v, struct top_frame *f);
void top_frame_free(struct top_frame *f);
json_t *top_json(const struct top *t);

/* cli/top/screen.c: runs on the terminal. Returns the exit status. */
int top_screen(struct top *t, int64_t interval_ms);
/* cli/top/act.c: what the capital keys do. Fills `said`. */
void top_pause(struct top *t, struct lw_bytes lane, bool resume, struct lw_buf *said);
void top_break(struct top *t, struct lw_bytes lane, struct lw_buf *said);
void top_drop(struct top *t, struct lw_bytes lane, struct lw_buf *said);

#endif
