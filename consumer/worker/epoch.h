/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LW_CONSUMER_WORKER_EPOCH_H
#define LW_CONSUMER_WORKER_EPOCH_H

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct shard;

struct epoch {
    char id[40];                 /* id of the epoch that is joined; "": none */
    int64_t quarantine_until_ms; /* time when the quarantine ends; 0: there is no quarantine */
    /* `ttl_ms` is the largest TTL of the epoch that was joined last, from the reply to enter; 0:
     * none */
    int64_t ttl_ms;
    int64_t old_until_ms; /* time at which all leases of earlier epochs have ended */
};

/* Returns true while the worker is in an epoch of the shard. */
bool epoch_joined(const struct shard *sh);
/* Returns the id of the epoch, or "" if there is none. The text belongs to the shard, and changes
 * when the epoch does. */
const char *epoch_id(const struct shard *sh);
/* Returns the largest TTL of the epoch that was joined last, or 0 if none was joined. */
int64_t epoch_ttl_ms(const struct shard *sh);
void epoch_quarantine(struct shard *sh, int64_t until_ms);
/* Returns how long the quarantine still lasts, or 0 if there is none. */
int64_t quarantine_left_ms(const struct shard *sh, int64_t now);
void shard_lost(struct lw_worker *w, struct shard *sh, const char *why);
/* Returns true while neither gate nor claim may be sent, because of a quarantine or because no
 * commit of the group is known yet. */
bool shard_quarantined(const struct shard *sh, int64_t now);
void enter_build(struct lw_worker *w, struct shard *sh);
void enter_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

/* A call of repair carries at most REPAIR_BATCH ranges, with at most REPAIR_OFFSETS offsets in
 * all. */
enum { REPAIR_BATCH = 1024, REPAIR_OFFSETS = 4096 };

struct repair_item {
    struct part *part;
    uint32_t gen;
    int64_t lo, hi;
    /* the run of the message, if its handler ended after the run's epoch was lost; otherwise
     * NULL */
    struct run *late;
    bool meta; /* true: only commit metadata lists this range as finished */
};

struct repair {
    struct repair_item item[REPAIR_BATCH];
    int n;
    /* `part` and `at` are the position of the repair after enter: `part` is the index of the
     * partition, and `at` is the index in the partition's list of kept records */
    size_t part, at;
    /* `floors_sent` is true when a call with the floors has been sent. `over` is true when Redis
     * has answered the last call; then gate and claim may be sent. */
    bool floors_sent, over;
    /* `n_late` is the number of runs of lost holds that ended as done and may still be written
     * back */
    size_t n_late;
    /* `meta` holds the messages that commit metadata lists as finished; they are written back while
     * the quarantine lasts */
    struct repair_item *meta;
    size_t n_meta, cap_meta;
};

/* Returns true if Redis knows all that the repair after enter writes; then gate and claim may be
 * sent. */
bool repair_over(const struct shard *sh);
/* Returns true if repair_meta() may note one more message. */
bool repair_has_room(const struct shard *sh);
void repair_open(struct shard *sh); /* begins the repair, after enter */
void repair_drop(struct shard *sh); /* ends the repair, because the epoch is lost */
void repair_free(struct shard *sh);
void repair_build(struct lw_worker *w, struct shard *sh);
void repair_restart(struct shard *sh);
/* Empties the list of ranges that a call of repair names, when a new pipeline begins. */
void repair_begin(struct shard *sh);
/* Makes late runs ready for another repair call, because the repair call that names them will never
 * be answered. */
void repair_forget(struct shard *sh);
/* Notes a message to be written back, because commit metadata lists it as finished. */
void repair_meta(struct shard *sh, struct part *p, int64_t offset);
/* Adds `by`, which is 1 or -1, to the number of late runs that wait for a repair. */
void late_count(struct shard *sh, int by);
/* Begins the repair of every shard again, because the set of messages known as done has changed. */
void repairs_restart(struct lw_worker *w);
void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void late_build(struct lw_worker *w, struct shard *sh);

static inline void check_repair(const struct repair *x) {
    assert(x->n >= 0 && x->n <= REPAIR_BATCH);
    assert(x->n_meta <= x->cap_meta && x->n_meta <= REPAIR_OFFSETS);
}

/* Holds what the worker knows about one shard to decide whether the application runs for the first
 * time and so needs no quarantine. */
struct first {
    /* `waits` is true if no commit of the group is known yet, so handlers are given nothing */
    bool waits;
    /* `look` is the state of the query for the group's commits in this epoch */
    enum { LOOK_NOT, LOOK_ASKED, LOOK_EMPTY, LOOK_USED } look;
    /* `lift_ms` is the time at which the worker next calls the script lift, whose reply says
     * whether the quarantine has ended */
    int64_t lift_ms;
};

/* Returns true while nothing may be granted, because no commit of the group is known yet. */
bool first_waits(const struct shard *sh);
/* Forgets what was known in the earlier epoch of the shard, and sets the field `waits`. */
void first_begin(struct shard *sh, bool waits);
/* Notes that Kafka has accepted a commit of this worker. */
void first_committed(struct lw_worker *w);
void first_look(struct lw_worker *w);
/* Returns true while the worker waits for the list of the group's commits. */
bool first_looks(struct lw_worker *w);
void lift_build(struct lw_worker *w, struct shard *sh, int64_t now);
void lift_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_first(const struct first *x) {
    assert(x->look <= LOOK_USED);
    assert(x->lift_ms >= 0);
}

#endif
