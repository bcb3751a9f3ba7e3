/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the data of `latchwork top`, and the functions that request it from the servers.
 *
 * Redis has the counts, lanes, dead letters and commits. Top reads Redis with cursors and small
 * scripts. The number of requests per refresh is bounded and does not depend on the number of
 * lanes. If a shard has more lanes than one refresh reads, each refresh continues a round through
 * all lanes: top keeps the lanes with the most waiting messages and reads them in each refresh, and
 * the round finds further lanes. The HTTP server of the supervisor (http.listen) has the figures
 * that only workers know: rates, lag, and the state of each worker. If Redis does not answer, top
 * still shows the figures of the supervisor. If the supervisor does not answer, top still shows the
 * figures of Redis. */
#ifndef LW_CLI_TOP_PRIVATE_H
#define LW_CLI_TOP_PRIVATE_H

#include "ops/ops.h"

enum {
    TOP_LANES = 256,
    TOP_LOOK = 1024, /* maximum number of lanes that a refresh reads per shard */
    TOP_DEAD = 32,
    TOP_WORKERS = 256
};
enum top_sort { TOP_BY_WAITING, TOP_BY_AGE, TOP_BY_ATTEMPTS, TOP_SORTS };

struct top_lane {
    struct ops_lane l; /* the lane; its name and lock are owned copies */
    uint64_t seen;     /* number of the last refresh that has read the lane */
};

struct top_shard {
    char cursor[OPS_CURSOR];
    bool whole; /* true: at least one round over all lanes is complete */
    /* `waiting` is the number of waiting messages, and `oldest_ms` the time at which the oldest of
     * them arrived, as found by the last complete round over all lanes. */
    int64_t waiting, oldest_ms;
    /* `now_waiting` and `now_oldest` correspond to `waiting` and `oldest_ms`, but cover only the
     * lanes that the current, incomplete round has read so far. */
    int64_t now_waiting, now_oldest;
};

struct top_dead {
    /* texts about a dead letter, all in printable form */
    char id[64], identity[320], key[100], reason[200];
    int64_t at_ms, attempts;
};

struct top_worker {
    int index, pid;
    char state[16];
    int64_t starts, waiting, in_handler, turned_ms, done;
    double done_rate; /* rate of done messages per second; -1: unknown */
};

/* Holds the figures of the supervisor's last response. */
struct top_fleet {
    bool on;
    char why[256]; /* the reason why the supervisor did not answer; set if `on` is false */
    int workers, ready;
    int64_t at_ms; /* time of the response, ms on the boot clock */
    int64_t lag, waiting, in_handler, received, finished, done, dead, retried;
    double in, out; /* rates in messages per second; -1: unknown */
    /* Percentiles of durations in µs, measured over a few seconds. The web page shows the same
     * values. -1: unknown. */
    int64_t handler_p50_us, handler_p99_us, end_to_end_p50_us, end_to_end_p99_us;
};

struct top {
    struct ops *o;
    enum top_sort sort;
    struct lw_buf filter; /* the filter as the user typed it, from which args.match is made */
    struct lw_buf match;

    bool up; /* true if Redis answered the last refresh */
    char why[1024];
    uint64_t refresh;
    /* `at_ms` and `now_ms` are the time of the last refresh, by this machine's clock and by Redis'
     * clock. */
    int64_t at_ms, committed_at_ms, committed, n_lanes, paused, dead, known_workers, now_ms;
    double commit_rate; /* rate at which the commits advance, in offsets per second; -1: unknown */
    struct top_shard *shard;
    struct top_lane lane[TOP_LANES];
    size_t n_lane;
    struct top_dead died[TOP_DEAD]; /* the newest dead letters, newest first */
    size_t n_died;

    struct top_fleet fleet;
    struct top_worker worker[TOP_WORKERS];
    size_t n_worker;
};

/* cli/top/look.c defines the functions from top_open() to top_oldest_ms(). */
void top_open(struct top *t, struct ops *o);
void top_close(struct top *t);
/* Reads the data that the display needs from Redis, and requests the supervisor's figures by
 * top_ask_fleet(). If a request to Redis fails, sets t->up to false, and t->why to a text that
 * names the request and the reason. */
void top_refresh(struct top *t);
/* Sets the filter that chooses the lanes to show: a glob pattern or a part of the key; "" means no
 * filter. */
void top_set_filter(struct top *t, const char *text);
void top_set_sort(struct top *t, enum top_sort sort);
/* Returns the number of waiting messages. Sets *about to true if the number is only an estimate,
 * because some lanes were not counted yet. */
int64_t top_waiting(const struct top *t, bool *about);
/* Returns the time at which the oldest waiting message arrived, in ms since 1970 by Redis' clock,
 * or 0 if no message waits. */
int64_t top_oldest_ms(const struct top *t);
/* Requests the supervisor's figures over HTTP. cli/top/fleet.c defines this function. */
void top_ask_fleet(struct top *t);

/* The following types describe a display, which is formatted as lines of at most `width` columns.
 * The functions that format it are in cli/top/frame.c. */
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
    size_t selected; /* index of the marked lane in lane[]; SIZE_MAX: no lane is marked */
    /* `first` is the index of the first lane that is shown. It is changed whenever the marked lane
     * would not be visible. */
    size_t first;
    const char *message; /* text about the last action or error; NULL: there is no text */
    const char *footer;  /* text of the last line; NULL: the last line lists the keys */
    bool help;
};
void top_draw(const struct top *t, struct top_view *v, struct top_frame *f);
void top_frame_free(struct top_frame *f);
json_t *top_json(const struct top *t);

/* Runs `latchwork top` on the terminal until the user quits. Returns the exit status.
 * cli/top/screen.c defines this function. */
int top_screen(struct top *t, int64_t interval_ms);
/* The actions that users start by typing capital letters. Each action writes its result to `said`.
 * cli/top/act.c defines these functions. */
void top_pause(struct top *t, struct lw_bytes lane, bool resume, struct lw_buf *said);
void top_break(struct top *t, struct lw_bytes lane, struct lw_buf *said);
void top_drop(struct top *t, struct lw_bytes lane, struct lw_buf *said);

#endif
