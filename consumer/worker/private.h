/* SPDX-License-Identifier: Apache-2.0 */
/* private: the worker as a whole. Every file of the worker includes this header, and with it those
 * of lanes, partitions and shards. Each field is assigned by one file only
 * (tests/cli/test_owners.py); other files call a function of that file. */
#ifndef LW_CONSUMER_WORKER_PRIVATE_H
#define LW_CONSUMER_WORKER_PRIVATE_H

#include "consumer/outcomes.h"
#include "consumer/worker/lane.h"
#include "consumer/worker/part.h"
#include "consumer/worker/shard.h"
#include "consumer/worker/worker.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- commit.c -------------------------------------------------------------------------------- */

struct commits { /* a worker's commits to Kafka */
    /* `confirm` is true if Kafka must accept a commit of the watermark of every partition before
     * the worker sends a pipeline to any shard */
    bool confirm;
    int64_t at_ms; /* time when the next commit is due */
    int64_t confirm_ms;
    size_t from; /* index of the partition with which the next commit begins */
};

enum { FLEETS = 16 }; /* twice as many as Redis remembers (enter.lua) */

/* Describes another fleet in this fleet's consumer group. `first_ms` and `last_ms` are the times at
 * which this worker first and last saw that the other fleet's commits had advanced. */
struct rival {
    /* `fleet` is the name of the other fleet, and `part` is the partition in which its last commit
     * was seen */
    char fleet[LW_FLEET + 1], part[320];
    int n; /* number of times that the other fleet's commits were seen to have advanced */
    int64_t first_ms, last_ms, said_ms;
};

/* --- limit.c --------------------------------------------------------------------------------- */

/* Tokens that one call of the script limit has brought. A token is good for one start, from its
 * time on and at most TOKEN_MS later. Times are in µs, on the boot clock. */
struct draw {
    int n;                   /* number of tokens that are left */
    double next_us, step_us; /* time of the next token, and distance to the one after it */
    int64_t trip_us;         /* `next_us` may be this much too late */
    int64_t sent_us;         /* time before the call was sent */
};

enum { DRAWS = 16 };

/* What this worker has got from the home, for the fleet or for a group. */
struct permits {
    struct lw_limit most;
    struct draw draw[DRAWS]; /* in the order in which they were drawn */
    int n_draws;
    /* `places` is the number of messages that may be in handlers until w->limits.until_ms */
    size_t places;
    bool others;  /* true: other workers waited for places or tokens at the last answer */
    bool refused; /* true: the last answer gave less than this worker wanted */
    /* `stated` is true if the home may have a statement of this worker */
    bool stated;
    /* number of places and of tokens that the unanswered statement asks for, and whether it names
     * the group */
    size_t want, wanted;
    bool in_call;
};

struct limits {
    bool on; /* lw_config_limits() */
    /* The limits in force and their version, as of the last answer; 0: not known in this epoch. If
     * `any` is false, nothing is limited. */
    struct lw_limits force;
    bool any;
    int64_t version;
    struct permits fleet;
    int64_t until_ms;          /* time until which places of the fleet and of groups are good */
    int64_t stated_ms, ask_ms; /* time of the last statement, and time before the next one */
    bool fresh;                /* true: no statement was made since the last answer */
    size_t started;            /* number of messages that started since the last statement */
    /* the groups that the last statement names, in order */
    struct group **named;
    size_t n_named, cap_named;
    size_t from;      /* number of the waiting group with which the next statement begins */
    bool odd;         /* true: an odd place is not for groups this time */
    int64_t begun_ms; /* time of the last limit_begin() */
    /* What this turn may still start: `used` counts messages in handlers and those that unanswered
     * calls may grant, `left` those that may be granted besides. */
    size_t used, left;
};

void limit_open(struct lw_worker *w);
void limit_close(struct lw_worker *w);
/* Counts anew how many messages may be granted. Called at the beginning of a turn. */
void limit_begin(struct lw_worker *w);
/* Returns for how many more messages handlers are free or, to judge by the starts since the last
 * statement, become free. */
size_t limit_room(const struct lw_worker *w);
/* Returns how many of `most` messages may be granted. */
size_t limit_of(const struct lw_worker *w, size_t most);
/* Notes that a call of this turn may grant n more messages. */
void limit_grants(struct lw_worker *w, size_t n);
/* Takes what a message needs that starts now. Returns false if the message must not start, because
 * its token or place has expired since it was granted, or another group has the permit. */
bool limit_start(struct lw_worker *w, struct group *g);
/* Returns how many more messages of a group its limits let start, whatever the fleet's are. */
size_t limit_group_permits(struct lw_worker *w, const struct group *g);
/* Returns how many more messages of a group may be granted: those that have permits, and for which
 * it is the group's turn. */
size_t limit_group_left(struct lw_worker *w, const struct group *g);
/* Gives up the place of a message of the group that has left its handler, if others wait. */
void limit_left_handler(struct group *g);
/* Returns true if the home, or an unanswered statement, may know of the group. */
bool limit_knows(const struct group *g);
/* Adds the worker's statement to the pipeline of shard 0, if one is due. */
void limit_build(struct lw_worker *w, struct shard *sh);
void limit_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Forgets places and tokens, because the epoch of shard 0 is lost. */
void limit_forget(struct lw_worker *w);
/* Returns the time at which a turn with this shard can make use of the limits, or INT64_MAX. */
int64_t limit_due_ms(struct lw_worker *w, const struct shard *sh);
/* Describes the limit because of which messages wait. Returns false if none does. */
bool limit_why(struct lw_worker *w, char *out, size_t size);

/* --- group.c --------------------------------------------------------------------------------- */

/* A group of which this worker has messages or knows waiting lanes. It goes when nothing is left of
 * it (groups_sweep). */
struct group {
    UT_hash_handle hh;
    struct lw_bytes id;       /* its name, as lw_lane_id() makes it; owned */
    size_t n_msgs;            /* number of its messages in memory */
    size_t in_handler, asked; /* number of its messages in handlers, and of its lanes in calls */
    struct lw_share *share;   /* on the board, of those in handlers; NULL: none was free */
    size_t taken;             /* number of its lanes that were taken out of ready:<group> */
    int weight;               /* group.weights */
    double tag_us, mean_us;   /* what it was charged, and mean handler time (fair.c) */
    /* sums over its messages in handlers: when they began, and what was charged (fair.c) */
    int64_t begun_ms;
    double charged_us;
    size_t most;            /* number of its messages that may be in use in this turn (fair.c) */
    struct permits permits; /* set by limit.c */
    struct {                /* of each shard: */
        struct lane_list lanes; /* its lanes that wait to ask gate (gate.c) */
        size_t listed, ready; /* their number, and that of lanes in ready:<group> as far as known */
    } shard[];
};

struct groups {
    struct group *table;
    size_t listed; /* number of lanes of groups that wait to ask gate */
};

static inline size_t group_used(const struct group *g) { return g->in_handler + g->asked; }

/* Returns the group of a record, or NULL if no limit of a group concerns it. A record without a
 * group is in the group "". */
struct group *group_of(struct lw_worker *w, const struct lw_record *r);
/* Returns how many lanes of a group wait, as far as this worker knows, on shards that admit
 * messages. */
size_t group_waits(const struct lw_worker *w, const struct group *g);
/* Frees the groups of which nothing is left. */
void groups_sweep(struct lw_worker *w);
void groups_free(struct lw_worker *w);
/* Each function notes that there is one more (`by` is 1) or one less (-1): message in memory, lane
 * in the list of gate, message in a handler. group_running() is called with limits only, and `g` is
 * NULL if the message has no group. */
void group_message(struct group *g, int by);
void group_listed(struct lw_worker *w, struct group *g, int shard, int by);
void group_running(struct lw_worker *w, struct group *g, int by);
/* Returns true if gate parks lanes of the group, because they cannot be granted soon and memory is
 * needed for others. */
bool group_parks(struct lw_worker *w, const struct group *g);

/* --- fair.c ---------------------------------------------------------------------------------- */

struct turn { /* a group that waits, and the tag with which it waits for its next handler */
    double tag_us;
    struct group *group;
    size_t waits;
};

struct fair {
    double virtual_us, mean_us; /* virtual time, and mean handler time of all messages */
    /* `contended` is true if messages of several groups wait, more than may start in this turn */
    bool contended;
    bool waits;        /* true: messages of a group wait */
    struct turn *turn; /* a heap */
    size_t n, cap;
};

/* Shares out the messages that may be granted in this turn among the groups. */
void fair_begin(struct lw_worker *w);
/* Returns how many more messages of the group may be granted in this turn. */
size_t fair_left(const struct group *g);
/* Returns how many of n messages may be of groups that nobody knows before their lane is taken: all
 * of them, or half of them while messages of known groups wait. */
size_t fair_unknown(struct lw_worker *w, size_t n);
/* Returns true if the group has had so much more than the others that its tag must be kept. */
bool fair_owes(const struct lw_worker *w, const struct group *g);
/* Forgets what groups have had, if none waits that has permits. */
void fair_forget(struct lw_worker *w);
/* Charges the group of a message that enters a handler, or leaves it, before the group counts it as
 * in a handler or not any more. */
void fair_enters(struct lw_worker *w, struct run *r);
void fair_leaves(struct lw_worker *w, struct run *r);
void fair_close(struct lw_worker *w);

/* --- the worker ------------------------------------------------------------------------------ */

struct lw_worker {
    struct lw_worker_setup set;
    const struct lw_config *c;
    const struct lw_io *io;
    void *ctx;
    struct lw_counts *counts;
    struct lw_counts own_counts;
    pthread_mutex_t epoch_mutex; /* protects epoch.id of each shard, which the renewer reads */
    struct lw_leases *leases;
    struct shard *shards;
    int n_shards;
    struct part *parts; /* hash table of all known partitions, by name (intake.c) */
    struct part *idle_parts;
    struct part **assigned;
    size_t n_assigned, cap_assigned;
    struct lw_byte_bounds bytes;
    size_t held; /* number of records in memory that are neither in a call nor in a run (lane.c) */
    struct memory memory;
    struct runs runs;
    struct commits commit;
    struct rival rival;
    struct limits limits;
    struct groups groups;
    struct fair fair;

    size_t window; /* maximum number of messages granted and not finished (worker.c) */
    enum lw_grant_limit limit;
    uint64_t turns;
    uint64_t next_token; /* the last number that token_new() returned (pipe.c) */
    bool stopping;       /* true: a shutdown has begun (worker.c) */
    /* end of the wait of a revocation for messages that have started; 0: none waits (intake.c) */
    int64_t revoke_until_ms;
    /* `joined` is true if shard 0 has accepted this worker's schema. Before that, nothing is
     * written to other shards (epoch.c). */
    bool joined;
    bool looking; /* true: the query for the group's commits is unanswered (epoch.c) */
    int64_t look_ms;
    /* Names of this fleet, each made from an epoch of shard 0: `fleet` is the present one, and
     * `fleets` has earlier ones (commit.c). */
    char fleet[LW_FLEET + 1], fleets[FLEETS][LW_FLEET + 1];
    size_t n_fleets;
    /* `unanswered_until_ms` is the time before which Kafka is not asked for the group's offset,
     * because the last request failed (watch.c) */
    int64_t unanswered_until_ms;
    struct hold *free_holds;
    struct lane *free_lanes;
    uint64_t lanes_seed; /* of the hash that finds a lane in memory (lane.c) */
    /* `busy` is an array. All lanes whose tags are equal modulo BUSY_SLOTS share one element, which
     * is one more than the time at which one of them was last busy, in seconds on the boot clock;
     * 0: never (gate.c). */
    uint32_t *busy;
    struct lw_buf scratch, scratch2; /* scratch space for use within one function */
};

static inline void count_n(_Atomic uint64_t *c, uint64_t n) {
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline void count(_Atomic uint64_t *c) { count_n(c, 1); }
/* Counts a lane in `locks_granted` or `locks_busy` (board.h), according to its letters in the
 * answer of gate or claim. */
static inline void count_acquire(struct lw_worker *w, const char *letters, int n) {
    assert(n > 0);
    for (int k = 0; k < n; k++) {
        if (letters[k] == LW_GATED_RUN || letters[k] == LW_GATED_ALSO ||
            letters[k] == LW_CLAIMED_HEADS) {
            count(&w->counts->locks_granted);
            return;
        }
        if (letters[k] == LW_GATED_WAITS || letters[k] == LW_GATED_ENVELOPE ||
            letters[k] == LW_GATED_BAD) {
            count(&w->counts->locks_busy);
            return;
        }
    }
}
static inline int64_t now_ms(struct lw_worker *w) { return w->io->boot_ms(w->ctx); }

/* Returns the maximum of the window: two batches, or one batch more than the number of messages
 * that the handlers can run at once, whichever is more. */
static inline size_t window_most(const struct lw_worker *w) {
    assert(w->c);
    size_t most = (size_t)lw_config_at_once(w->c) + BATCH;
    return most > 2 * BATCH ? most : 2 * BATCH;
}

/* --- tell.c: what people see of it ----------------------------------------------------------- */

/* Formats a key in the form that log.keys sets. */
void tell_key(const struct lw_worker *w, struct lw_bytes key, char out[LW_KEY_TEXT]);
/* Logs why a message did not end as done, in one line with its identity, key, attempt, fence and
 * time in the handler. */
void tell_end(struct lw_worker *w, const struct run *r, enum lw_log_level level, const char *what);
/* Notes at each lease of a shard which message runs, if it has run for some time, so that the next
 * renewal tells operators (lw_leases_note). */
void tell_runs(struct lw_worker *w, struct shard *sh, int64_t now);
/* Notes on the board that a message of the group, if it has one, enters a handler (`by` is 1), or
 * leaves it (-1). */
void tell_running(struct lw_worker *w, struct group *g, int by);
/* Notes on the board the outcome of a run after Redis has recorded it. */
void outcome_of_run(struct lw_worker *w, const struct run *r, int64_t wall_ms);
/* Notes on the board the end of a record that is given to no handler. */
void outcome_of_record(struct lw_worker *w, struct part *p, int64_t offset, struct lw_bytes key,
                       enum lw_end end, const char *reason);

/* Asserts that the fields of a worker agree with each other. Most functions that act on a whole
 * worker begin with this check. */
static inline void check_worker(const struct lw_worker *w) {
    assert(w->io && w->shards && w->n_shards > 0);
    assert(w->n_assigned <= w->cap_assigned);
    assert(w->window <= window_most(w));
    check_memory(&w->memory);
    check_runs(&w->runs);
}

#endif
