/* SPDX-License-Identifier: Apache-2.0 */
/* Situations that random runs of the simulation seldom meet, built by hand: the real worker logic
 * and the real scripts on a fake Redis, with one fake Kafka for each worker. In most cases the
 * handler of record 1 (key X) does not end, so that the watermark stands still, and the case checks
 * which record of key K has the last effect.
 *
 * Each case begins with a scene and a fake Redis of its own. scene.c has what the worker sees and
 * how time passes; the cases are in the other files, by what they are about. */
#ifndef LW_SIM_SCENE_H
#define LW_SIM_SCENE_H

#include "consumer/worker/private.h"
#include "tests/sim/redis/store.h"

#include <stdio.h>

enum { OTHER = 99 }; /* generation of the assignment of partition 1 */
enum { RECORDS = 7, JOBS = 64, REPLIES = 128, EFFECTS = 64 };
/* QUARANTINE is a number of calls of round_of_all(), each of which advances the clock by 2 ms.
 * Together they last longer than a quarantine. LOOK is the number of rounds between two looks at
 * the commits of the group: a worker reports a rival only after 2.5 * LOOK rounds, half of its
 * TTL. */
enum { QUARANTINE = 5200, LOOK = 1000 };

struct scene {
    struct store *store;
    int64_t now_ms;
    struct lw_worker *lw;
    struct lw_config *config; /* of the worker */
    uint64_t random;
    struct lw_counts counts;
    struct lw_board *board;  /* NULL: nothing is a suspect */
    bool connecting, frozen; /* frozen: the worker gets no turns and no answers */
    bool x_lingers, k_lingers, all_linger;
    redisReply *reply[REPLIES];
    int n_reply;
    struct lw_job *job[JOBS];
    int n_job;
    int64_t committed, asked; /* asked: offset of the commit under way; -1: none */
    uint32_t asked_gen;
    int64_t sought; /* offset from which the worker wants to read partition 0 again; -1: none */
    /* can_look: Kafka can list the commits of the group. looking: the worker waits for this list.
     * no_commits: Kafka never answers a commit. */
    bool can_look, looking, no_commits;
    int run_ahead, repair_batch, ttl_ms;
    bool lost_shard; /* there are two shards, and the second one never answers */
    /* The payload of a record, a JSON string, names its group. The group "w" has the weight 3. */
    bool groups;
    int repairs; /* number of calls of repair so far */
    /* fail_settle: the next call of settle executes, but is answered with an error. settles: number
     * of calls of settle so far. go: how the last one wanted its first lane to continue. */
    bool fail_settle;
    int settles;
    enum lw_go go;
    int stopped; /* exit status with which the worker asked to end */
    /* Names of the Redis lists of hints and of claimed hints. `ready` is NULL while the worker does
     * not want hints. */
    const char *ready, *claimed;
    int64_t effect[EFFECTS];
    int n_effects;
};
extern struct scene scene; /* the present one */

/* Returns a scene without a store and a worker. */
struct scene scene_new(void);
/* Swaps the present scene with `other`. The fake Redis, the time and the list of effects stay as
 * they are, because both scenes share them. */
void exchange(struct scene *other);

/* --- the worker, and what it reads ------------------------------------------------------------ */

void begin_worker(const char *id);
void end_worker(void);
void assign(uint32_t gen); /* assigns partition 0, from the group's commit on */
void arrive_one(uint32_t gen, int64_t offset, const char *key);
void arrive_as(uint32_t gen, int64_t offset, const char *key, const char *payload);
/* The records from `from` to before `to` arrive, with the keys A, X, K, Y, K, K, K. */
void arrive(uint32_t gen, int from, int to);
void arrive_k(int from, int to); /* likewise, all with key K */
void round_of_all(void);
void rounds(int n);
/* Runs a worker until records 0, 2, 3 and 4 are done, while record 1 is still with its handler. */
void first_life(void);

/* --- handlers --------------------------------------------------------------------------------- */

bool has_key(const struct lw_job *job, char key);
void finish(struct lw_job *job); /* ends the job, and those that are linked to it, as done */
bool has_k(void);                /* true if a record of key K is with a handler */
bool finish_k(void);             /* finishes it; false if there is none */
/* Returns true if the last effect of key K is that of record `wanted`. */
bool last_of_k(int64_t wanted);

/* --- Redis ------------------------------------------------------------------------------------ */

void command(const char *name, const char *key, const char *value); /* `value` may be NULL */
long long count_of(const char *command_name, const char *key);
void set_lock_of_k(bool taken); /* locks the lane of key K for another holder, or frees it */
bool k_is_locked(void);

/* --- the cases: each returns true if all is as it must be ------------------------------------- */

#define SCENES(X)                                   \
    X(an_unreadable_stream_of_vanished_lists)       \
    X(unreadable_entries_before_a_vanished_list)    \
    X(a_list_vanishes_while_records_are_read_again) \
    X(a_younger_fleet_seen_once)                    \
    X(no_younger_fleet)                             \
    X(an_older_fleet)                               \
    X(an_epoch_before_the_failover)                 \
    X(a_repair_that_is_late)                        \
    X(a_repair_whose_place_moves)                   \
    X(dones_of_an_ended_lease)                      \
    X(a_wipe_with_two_ttls)                         \
    X(a_first_run)                                  \
    X(a_first_run_on_a_promoted_replica)            \
    X(a_wipe_after_the_first_commit)                \
    X(a_wipe_before_the_first_commit)               \
    X(a_chain_that_was_cut_is_linked_again)         \
    X(a_long_chain_leaves_the_window_as_it_is)      \
    X(a_batch_of_many_keys_widens_the_window)       \
    X(a_record_without_a_key_waits_in_redis)        \
    X(a_settle_that_failed_in_the_middle)           \
    X(a_stop_while_the_next_head_comes)             \
    X(an_end_that_nobody_waits_for)                 \
    X(an_older_record_is_read_again)                \
    X(a_named_record_is_taken_away)                 \
    X(suspects_run_beside_others)                   \
    X(what_comes_back_later_holds_no_other_key)     \
    X(an_outage_counts_no_attempt)                  \
    X(a_newcomer_has_the_next_handler)              \
    X(a_flood_waits_in_redis)                       \
    X(a_lone_flood_leaves_room_in_memory)           \
    X(groups_share_handler_time)                    \
    X(a_weight_multiplies_the_share)                \
    X(coming_back_does_not_pay)                     \
    X(lanes_of_a_lost_shard_have_no_turns)          \
    X(at_maxmemory_lanes_in_redis_have_the_turns)   \
    X(what_takes_longer_than_known_leaves_handlers) \
    X(groups_of_one_message_are_forgotten)          \
    X(lanes_of_unknown_groups_leave_handlers)
#define SCENE(name) bool name(void);
SCENES(SCENE)
#undef SCENE

#endif
