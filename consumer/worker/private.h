/* SPDX-License-Identifier: Apache-2.0 */
/* private: what belongs to the worker as a whole, and to no single step. */
#ifndef LW_CONSUMER_WORKER_PRIVATE_H
#define LW_CONSUMER_WORKER_PRIVATE_H

#include "consumer/worker/rival.h"
#include "consumer/worker/worker.h"

struct hold;
struct lane;
struct msg;
struct part;
struct run;
struct shard;

struct lw_worker {
    struct lw_worker_setup set;
    const struct lw_config *c;
    const struct lw_io *io;
    void *ctx;
    struct lw_counts *counts;
    struct lw_counts own_counts;
    pthread_mutex_t epoch_mutex; /* guards shard.epoch for the renewer */
    struct lw_leases *leases;
    struct shard *shards;
    int n_shards;
    struct part *parts; /* hash by name */
    struct part *idle_parts;
    struct part **assigned;
    size_t n_assigned, cap_assigned;
    struct lw_byte_bounds bytes;
    size_t held;                   /* records in memory that are neither in a call nor in a run */
    size_t held_bytes, head_bytes; /* size of all messages in memory, and of the heads among them */
    size_t in_flight;              /* granted, not finished */
    size_t finished_since;         /* since the last turn: the window adapts to it */
    size_t window;
    enum lw_grant_limit limit;
    struct lw_job **start; /* to hand to the handlers at the end of this step */
    size_t n_start, cap_start;
    size_t in_handler;                   /* submitted, not finished */
    struct run *waiting, **waiting_tail; /* not started because a suspect must run alone: itself, and what came after it */
    bool running_alone;
    size_t n_resend; /* dead letters that their topic refused */

    uint64_t next_token, max_fence;
    bool joined; /* shard 0 took us: what differs is refused before anything is written elsewhere */
    bool confirm, stopping;
    bool looking; /* a look at the group's commits is under way (first.c) */
    int64_t commit_ms, confirm_ms, look_ms;
    char fleet[17], fleets[FLEETS][17]; /* this fleet's name, from the epoch of shard 0, and its earlier names */
    size_t n_fleets;
    struct rival rival;
    size_t meta_max, meta_tried; /* current limit of commit metadata in bytes; the limit of the last commit */
    int64_t unanswered_until_ms; /* a request for the group's offset timed out: no other before this time */
    size_t commit_from;
    uint64_t turns;
    struct hold *free_holds;
    struct run *free_runs;
    struct msg *free_msgs;
    struct lane *free_lanes;
    struct lw_buf scratch, scratch2;
    size_t big_bytes; /* about the largest recent message; decides how many are read at once */
    struct given_back {
        uint32_t times; /* in a row */
        int64_t at_ms;
    } * given_back; /* by tag: lanes whose handlers recently gave messages back under a live lease */
    int64_t told_back_ms;
    uint32_t *busy; /* by tag: when the lane was last seen busy, in seconds of the boot clock */
};

static inline void count_n(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }
static inline void count(_Atomic uint64_t *c) { count_n(c, 1); }
/* What a lane answered to gate or claim, a letter a message: had it, or had to wait. */
static inline void count_acquire(struct lw_worker *w, const char *letters, int n) {
    for (int k = 0; k < n; k++) {
        if (letters[k] == 'R' || letters[k] == 'A' || letters[k] == 'N') {
            count(&w->counts->locks_granted);
            return;
        }
        if (letters[k] == 'W' || letters[k] == 'E' || letters[k] == 'B') {
            count(&w->counts->locks_busy);
            return;
        }
    }
}
static inline void count_end(struct lw_worker *w, int64_t timestamp_ms, bool ended) {
    if (ended && timestamp_ms > 0)
        lw_hist_add(&w->counts->end_to_end, &lw_bounds_end_to_end, 1000 * (w->io->wall_ms(w->ctx) - timestamp_ms));
}
static inline int64_t now_ms(struct lw_worker *w) { return w->io->boot_ms(w->ctx); }

#endif
