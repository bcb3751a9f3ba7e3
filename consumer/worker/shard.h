/* SPDX-License-Identifier: Apache-2.0 */
/* shard: one Redis server as the worker knows it, and the steps that call it. Each step has a
 * struct of its own in `struct shard`, and only the file that is named above the struct assigns its
 * fields (tests/cli/test_owners.py). A step consists of NAME_build(), which adds a call to the
 * pipeline of the turn, and NAME_reply(), which gets the answer. */
#ifndef LW_CONSUMER_WORKER_SHARD_H
#define LW_CONSUMER_WORKER_SHARD_H

#include "base/bytes.h"
#include "base/redis/command.h"
#include "base/redis/script.h"
#include "config/shard.h"
#include "consumer/worker/lane.h"
#include "queue/calls.h"
#include "queue/codes.h"
#include "queue/life.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    /* BATCH is the maximum number of messages per call. With more, a script would take too long,
     * and little would be gained: beyond 64, larger batches save little time per message. */
    BATCH = 256,
    /* AHEAD_MAX is the maximum number of messages of a lane that one call grants; they run one
     * after the other without another call */
    AHEAD_MAX = 64,
};
/* WATCH_MS is the time between two looks at the states of waiting messages. HOLD_BAD_MS is the time
 * for which a lane rests when a Redis key of it holds another type. */
enum { WATCH_MS = 100, HOLD_BAD_MS = 1000 };

/* --- pipe.c ---------------------------------------------------------------------------------- */

/* PIPE_CALLS is the maximum number of calls per pipeline. KEPT_CALLS is the maximum number of calls
 * that are sent again after a lost reply. Only settle, gate and claim are sent again. */
enum { PIPE_CALLS = 32, KEPT_CALLS = 3 };

enum call_kind {
    CALL_LOAD,
    CALL_INFO,
    CALL_TIME,
    CALL_OWNER,
    CALL_ENTER,
    CALL_REPAIR,
    CALL_WATCH,
    CALL_SETTLE,
    CALL_GATE,
    CALL_CLAIM,
    CALL_HINTS,
    CALL_READY,
    CALL_TEND,
    CALL_FLOOR,
    CALL_VANISHED,
    CALL_UNPARK,
    CALL_LIFT,
    CALL_LIMIT,
    CALL_ALIVE
};

/* What a kind of call is. NULL stands for "none" or "nothing happens". */
struct call_type {
    const char *name; /* in log lines */
    const struct lw_script *script;
    void (*reply)(struct lw_worker *w, struct shard *sh, const redisReply *r);
    void (*encode)(struct lw_worker *w, struct shard *sh); /* builds the call again */
    /* takes the call back, because it did not execute or will never be answered */
    void (*back)(struct lw_worker *w, struct shard *sh);
};
extern const struct call_type call_types[];

struct call {
    enum call_kind kind;
    bool again; /* true: the call did not execute, so it is sent again unchanged */
};

struct pipeline {
    struct lw_commands commands;
    struct call calls[PIPE_CALLS];
    int n, answered;
    bool open; /* true: a pipeline is in flight */
    /* `kept` lists the calls that are sent again before anything else; they are built once more
     * from the lanes that they name */
    enum call_kind kept[KEPT_CALLS];
    int n_kept;
    /* `cut` is true if a call that is sent again may have executed, because its reply was lost or
     * its script failed in the middle */
    bool cut;
    int64_t sent_ms;
};

void pipe_begin(struct shard *sh);
/* Begins a call whose command the caller appends to the pipeline by the functions of queue/calls.h
 * (gate, settle and claim). */
void pipe_call(struct shard *sh, enum call_kind kind);
/* pipe_command() begins a Redis command. pipe_script() begins a call of a script that has n_keys
 * keys and is not gate, settle or claim. The functions below append the keys and arguments. Texts
 * must stay valid until the pipeline is sent, except those that pipe_copy() and pipe_key() copy. */
void pipe_command(struct shard *sh, enum call_kind kind, const char *name);
void pipe_script(struct shard *sh, enum call_kind kind, const struct lw_script *script, int n_keys);
void pipe_text(struct shard *sh, const char *text);
void pipe_copy(struct shard *sh, const char *text);
void pipe_bytes(struct shard *sh, struct lw_bytes b);
void pipe_number(struct shard *sh, int64_t v);
/* Appends the name of a key of the shard. `name` is the part after the shard's prefix. */
void pipe_key(struct shard *sh, const char *name);
/* Appends three arguments to the current call: a partition's name and two of its offsets. */
void pipe_offsets(struct shard *sh, const char *partition, int64_t a, int64_t b);
void pipe_send(struct lw_worker *w, struct shard *sh);
/* Keeps the unanswered calls of a lost connection, so that they can be sent again. */
void pipe_broken(struct lw_worker *w, struct shard *sh);
void pipe_free(struct shard *sh);
void pipe_forget(struct lw_worker *w, struct shard *sh);
/* Ends the connection because the reply that is being handled is malformed; the arguments are those
 * of lw_malformed(). The call may have executed, so it counts as unanswered: gate, settle and claim
 * are sent again on the next connection. The caller must return at once. */
void pipe_malformed(struct lw_worker *w, struct shard *sh, const redisReply *r, const char *name,
                    const char *expected, ...) __attribute__((format(printf, 5, 6)));
bool pipe_urgent(struct lw_worker *w, struct shard *sh);
/* Returns the arguments that gate, settle and claim have in common, in the form that queue/calls.h
 * takes. */
struct lw_lane_call pipe_lane_call(struct lw_worker *w, struct shard *sh,
                                   const struct lw_script *script);
struct lw_call_bounds pipe_bounds(const struct lw_worker *w);
/* Returns a number that this worker has never used before. */
uint64_t token_new(struct lw_worker *w);

static inline void check_pipe(const struct pipeline *p) {
    assert(p->n >= 0 && p->n <= PIPE_CALLS);
    assert(p->answered >= 0 && p->answered <= p->n);
    assert(p->n_kept >= 0 && p->n_kept <= KEPT_CALLS);
    assert(!p->open || p->n > 0);
}

/* --- gate.c ---------------------------------------------------------------------------------- */

struct gate_item {
    struct lane *lane;
    int first, n; /* index of the lane's first message in the call, and number of its messages */
    bool envelopes;
    bool parks; /* true: the messages must wait, because their group has no permit */
};

struct gate {
    struct gate_item item[BATCH];
    struct msg *msgs[BATCH];
    int n, n_msgs;  /* 0, unless a call is unanswered or waits to be sent again */
    int n_parks;    /* number of items that park */
    uint64_t token; /* the token that all locks taken by one call share */
    /* lanes that wait to ask gate and have no group; each group has a list of its own */
    struct lane_list lanes;
    size_t n_listed; /* number of lanes in all these lists */
    /* `ask` is a factor from 1 to 16: if n more messages may run, a call asks for n * `ask` lanes,
     * because many of the lanes may be busy */
    size_t ask;
    /* `rest_ms` is the earliest time at which one of the listed lanes may ask gate (its
     * not_before_ms) */
    int64_t rest_ms;
    /* `oom_until_ms` is the time before which nothing is admitted, because Redis is at maxmemory;
     * 0: Redis has memory left */
    int64_t oom_until_ms;
};

void gate_open(struct shard *sh);
/* Adds the lane to the list of lanes that wait to ask gate. */
void gate_list(struct lw_worker *w, struct shard *sh, struct lane *l, int64_t now);
/* Lets the listed lanes ask again at once, because there are new permits. */
void gate_urge(struct shard *sh);
/* Stops admission for a moment, because Redis is at maxmemory. Waiting messages still run. */
void gate_refused(struct lw_worker *w, struct shard *sh);
/* Returns true while admission pauses because of maxmemory. */
bool gate_rests(const struct shard *sh, int64_t now);
/* Returns true if a listed lane may ask gate now, and Redis did not refuse the last call of gate
 * because of maxmemory. */
bool gate_due(const struct shard *sh, int64_t now);
/* Returns true if messages of this lane had to wait in the last second or two. */
bool gate_saw_busy(const struct lw_worker *w, const struct lane *l, int64_t now);
/* Builds a call that asks for at most `most` lanes. Returns the number of lanes that it names. */
size_t gate_build(struct lw_worker *w, struct shard *sh, size_t most);
void gate_encode(struct lw_worker *w, struct shard *sh);
void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void gate_back(struct lw_worker *w, struct shard *sh);

static inline void check_gate(const struct gate *g) {
    assert(g->n >= 0 && g->n <= g->n_msgs && g->n_msgs <= BATCH);
    assert(g->ask >= 1);
}

/* --- settle.c -------------------------------------------------------------------------------- */

/* Names a message of the local chain by its identity, because the message may be freed before the
 * reply comes. */
struct named {
    struct part *part;
    int64_t offset;
};

struct settle_item {
    struct hold *hold;
    int n_runs; /* number of runs at the front of the hold that this settle reports */
    enum lw_outcome outcome;
    enum lw_go go;
    /* `first_named` is the index of the hold's first message among the messages that the call
     * names, and `n_named` is their number */
    int first_named, n_named;
    int want, before;
    int64_t backoff_ms;
};

struct settle {
    struct settle_item item[BATCH];
    struct named named[BATCH];
    int n, n_named;
    struct hold *listed, **tail; /* holds that have runs to settle */
    size_t n_listed;
    /* `urgent` is true if the next settle is sent at once, because the lane of a listed hold waits
     * for it */
    bool urgent;
};

/* Returns true if the next settle is sent at once: because the lane of a hold in the list `listed`
 * waits for it, or because the list is long. */
bool settle_urgent(const struct shard *sh);
/* Returns true while a settle that may still be sent again names messages of this partition. */
bool settle_names(const struct shard *sh, const struct part *p);
/* Returns the time at which the next settle is due, or INT64_MAX if none is. */
int64_t settle_due_ms(struct lw_worker *w, const struct shard *sh);
bool settle_at_once(const struct lw_worker *w, const struct hold *h);
void settle_open(struct shard *sh);
/* Adds a hold that has finished runs to the list of holds to settle. */
void settle_list(struct shard *sh, struct hold *h);
/* Takes a hold out of the list of holds to settle. Does nothing if the hold is not in the list. */
void settle_unlist(struct shard *sh, struct hold *h);
/* Makes the next settle urgent, because the lane of one of the holds to settle waits for it. */
void settle_urge(struct shard *sh);
void settle_again(struct lw_worker *w, struct shard *sh, bool may_have_executed);
void settle_build(struct lw_worker *w, struct shard *sh);
void settle_encode(struct lw_worker *w, struct shard *sh);
void settle_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void settle_back(struct lw_worker *w, struct shard *sh);

static inline void check_settle(const struct settle *s) {
    assert(s->n >= 0 && s->n <= BATCH);
    assert(s->n_named >= 0 && s->n_named <= BATCH);
    assert((s->listed != NULL) == (s->n_listed > 0));
    assert(s->tail && (s->listed || s->tail == &s->listed));
}

/* --- claim.c --------------------------------------------------------------------------------- */

enum { CLAIM_BATCH = 64 };

struct claim {
    struct lane *lane[CLAIM_BATCH];
    int n;
    uint64_t token; /* the token that all locks taken by one call share */
};

size_t claim_build(struct lw_worker *w, struct shard *sh, size_t most);
void claim_encode(struct lw_worker *w, struct shard *sh);
void claim_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void claim_back(struct lw_worker *w, struct shard *sh);

static inline void check_claim(const struct claim *c) {
    assert(c->n >= 0 && c->n <= CLAIM_BATCH);
    assert(!c->n || c->token);
}

struct hint;

struct hints {          /* lanes that hints name */
    struct hint *first; /* the oldest */
    size_t n;
    size_t taken; /* number of hints that were taken and not yet reported to Redis */
    bool on;      /* true: the blocking pop should run */
    bool more;    /* true: the list `ready` in Redis may hold more hints */
};

/* Returns true if the list has a hint, or if the list `ready` in Redis may hold more hints. */
bool hints_known(const struct shard *sh);
void hints_forget(struct shard *sh);
void hints_want(struct lw_worker *w, struct shard *sh, bool want);
void hints_build(struct lw_worker *w, struct shard *sh, size_t most);
void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_hints(const struct hints *h) { assert(!h->first == !h->n); }

/* Holds the position in a reply whose grants are read one after the other. */
struct grants {
    uint64_t fence;
    const redisReply *tries, *heads;
    size_t n, at_tries, at_heads;
};

/* Returns what the next granted message has been through. */
struct tried grants_tries(struct grants *g);
/* Returns the maximum number of heads of a lane that a call of claim or settle asks for. */
size_t wanted_heads(const struct lw_worker *w);
/* Adds the heads that a reply hands over to a hold: to h or, if h is NULL, to a new hold. */
void take_heads(struct lw_worker *w, struct shard *sh, struct lane *l, struct hold *h,
                struct grants *g, size_t n, uint64_t token);

/* --- group.c --------------------------------------------------------------------------------- */

struct group;
struct ready_lane;

enum { TAKEN_MAX = 64 }; /* number of groups of which a call of ready takes lanes */

struct ready {                      /* lanes of groups that wait in Redis */
    struct ready_lane *lanes;       /* those that were taken and not claimed yet */
    struct group *asked[TAKEN_MAX]; /* groups of which the unanswered call takes lanes */
    int n_asked;
    bool looks;      /* true: the unanswered call names groups */
    int64_t look_ms; /* time of the next look for groups that have lanes */
};

/* Makes the next pipeline look for groups that have lanes. */
void ready_look(struct lw_worker *w, struct shard *sh);
void ready_forget(struct lw_worker *w, struct shard *sh);
void ready_build(struct lw_worker *w, struct shard *sh);
void ready_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Takes the next lane out of the list for whose group there is a permit. The caller frees `lane`.
 * Returns false if there is none. */
bool ready_next(struct lw_worker *w, struct shard *sh, struct lw_bytes *lane, struct group **group);
/* Returns the time at which a turn can take or claim lanes of groups, or INT64_MAX. */
int64_t ready_due_ms(struct lw_worker *w, const struct shard *sh);

/* --- watch.c --------------------------------------------------------------------------------- */

enum { LOOK_BATCH = 64 }; /* maximum number of segments per watch call */

struct look_item {
    struct part *part;
    uint32_t gen, pass;
    /* `segment` is the number of the segment that the call reads. `next` is the offset after the
     * last record that had been delivered when the call was sent. */
    int64_t segment, next;
    int lo, hi; /* first and last byte of the segment that the call reads */
    /* `fresh` is true if the segment is read for a new assignment. `last` is true if no further
     * segment of the partition is read for that assignment. */
    bool fresh;
    bool last;
};

struct watch {
    struct look_item item[LOOK_BATCH];
    int n;
    int64_t at_ms; /* time at which states are read next */
    size_t from;   /* counter that decides with which partition the next call begins */
};

struct vanished { /* waiting lists that others have deleted */
    struct unparking {
        struct part *part;
        uint32_t gen, serial;
        int64_t to; /* the unanswered unpark call covers messages below this offset */
    } unpark;
    int64_t unpark_ms;
    struct stream_id said;
    /* `failed_ms` is the time of the last log line that says that the stream cannot be read; 0: it
     * can be read */
    int64_t failed_ms;
};

void watch_build(struct lw_worker *w, struct shard *sh);
void watch_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void vanished_build(struct lw_worker *w, struct shard *sh);
void vanished_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Logs that the stream `vanished` could not be read. */
void vanished_failed(struct lw_worker *w, struct shard *sh, const char *why);
void unpark_build(struct lw_worker *w, struct shard *sh);
void unpark_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_watch(const struct watch *x) { assert(x->n >= 0 && x->n <= LOOK_BATCH); }

/* --- connection.c ---------------------------------------------------------------------------- */

struct connection {
    bool loaded; /* true: the scripts are loaded on the server */
    /* `checking` is true if the server's life and clock must be checked before anything else is
     * sent */
    bool checking;
    struct lw_life life, new_life;
    struct lw_redis_server program; /* the kind and version of the server that answered last */
    /* `slow_trips` is the number of replies to TIME in a row that came too late to compare the
     * clocks */
    int slow_trips;
    int64_t trip_ms; /* round-trip time of the last reply to TIME that came too late */
    /* `jumped` is the id of the epoch that was lost because the server's clock jumped; "": none */
    char jumped[40];
    /* Both fields hold the clock of Redis minus the boot clock. `offset_ms` is the value in use.
     * `new_offset_ms` is the newest value. If the two differ too much, the clock of Redis has
     * jumped. */
    int64_t offset_ms, new_offset_ms;
    int64_t wall_offset_ms; /* clock of Redis minus wall clock */
    /* `elsewhere` is true if the server has said that another node of the cluster owns the shard's
     * slot */
    bool elsewhere;
    int64_t rest_ms;  /* time before which nothing is sent, because keys of the slot are moving */
    int64_t pause_ms; /* length of the last such pause; 0: there was none */
};

/* Makes the next pipeline check the server's life and clock before anything else. */
void connection_check(struct shard *sh);
void connection_scripts(struct shard *sh, bool loaded);
/* Returns true if the server's life, clock or scripts must be checked before anything else is
 * sent. */
bool connection_unsure(const struct shard *sh);
/* Returns true if this error says that the slot, or a key of it, is on another node of the cluster.
 * The server is then asked about the slot, after a pause, before anything else is sent. */
bool connection_moved(struct lw_worker *w, struct shard *sh, const char *text);
/* Returns true during such a pause. */
bool connection_rests(const struct shard *sh, int64_t now);
void connection_restart(struct lw_worker *w, struct shard *sh);
/* Closes the connection and gives up its pipeline. The unanswered calls are sent again on the next
 * connection. */
void connection_drop(struct lw_worker *w, struct shard *sh);
/* Returns the time on the clock of Redis. */
int64_t connection_redis_ms(struct lw_worker *w, const struct shard *sh);
/* Makes the life that the server has reported last the known one, because the epoch is joined. */
void connection_entered(struct shard *sh);
void hello_build(struct lw_worker *w, struct shard *sh, bool with_scripts);
void hello_done(struct lw_worker *w, struct shard *sh);
/* Writes to `out` why the clock of the server cannot be compared with that of this machine, and
 * what the operator can do. Returns false if the clocks can be compared. */
bool connection_slow(const struct lw_worker *w, const struct shard *sh, char *out, size_t size);
void life_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void time_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void owner_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

struct tend { /* the regular look at lanes and at the server */
    int64_t at_ms;
    /* `due_ms` is the time at which tend must check the lanes, because the first of the backoffs
     * that this worker has set ends then; 0: there is no such backoff */
    int64_t due_ms;
};

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now);
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void tend_now(struct shard *sh, int64_t now);
/* Makes tend check the lanes at this time at the latest, for example because a short backoff ends
 * at this time. */
void tend_by(struct shard *sh, int64_t due_ms);

/* A right that Redis denies to the worker's user. For a short time after each such reply, nothing
 * is admitted on the shard, and the worker is not ready until the refusal is over. */
struct refusal {
    enum call_kind kind;
    bool allowed; /* true: a call of this `kind` has succeeded since the refusal */
    /* `since_ms` and `last_ms` are the times of the first and of the last refused call of the
     * present refusal. `last_ms` is 0 if there is no refusal now. */
    int64_t since_ms, last_ms;
    int64_t said_ms;
    char text[240];
};

/* Handles an error reply to a call of the kind `kind`. Returns false if the error denies no right.
 * Otherwise remembers the refusal, and logs it from time to time. */
bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error);
/* Call this function when a call of this kind has succeeded. If there is a refusal of the same
 * kind, the function notes the success in it. */
void refusal_allowed(struct shard *sh, enum call_kind kind);
/* Ends the refusal by Redis after enough time has passed without a refused call. Call this function
 * once per turn. */
void refusal_look(struct lw_worker *w, struct shard *sh, int64_t now);
/* Returns true while nothing may be admitted because of a refusal. */
bool refusal_holds(const struct shard *sh, int64_t now);
/* Returns a text that describes the refusal, or NULL if there is no refusal. */
const char *refusal_text(const struct shard *sh);

/* --- epoch.c --------------------------------------------------------------------------------- */

struct epoch {
    char id[40];                 /* id of the epoch that is joined; "": none */
    int64_t quarantine_until_ms; /* time when the quarantine ends; 0: there is no quarantine */
    /* `ttl_ms` is the largest TTL of the epoch that was joined last, from the reply to enter; 0:
     * none */
    int64_t ttl_ms;
    int64_t old_until_ms; /* time at which all leases of earlier epochs have ended */
};

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
};

void repair_build(struct lw_worker *w, struct shard *sh);
void repair_restart(struct shard *sh);
/* Makes late runs ready for another repair call, because the repair call that names them will never
 * be answered. */
void repair_back(struct lw_worker *w, struct shard *sh);
/* Adds `by`, which is 1 or -1, to the number of late runs that wait for a repair. */
void late_count(struct shard *sh, int by);
/* Begins the repair of every shard again, because the set of messages known as done has changed. */
void repairs_restart(struct lw_worker *w);
void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void late_build(struct lw_worker *w, struct shard *sh);

static inline void check_repair(const struct repair *x) {
    assert(x->n >= 0 && x->n <= REPAIR_BATCH);
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

/* --- commit.c -------------------------------------------------------------------------------- */

enum { FLOOR_BATCH = 256 };

struct floor_item {
    struct part *part;
    uint32_t gen;
    int64_t to;
};

struct floors {
    struct floor_item item[FLOOR_BATCH];
    int n;
};

/* Makes Kafka confirm the watermarks again, because an epoch is lost. */
void commit_must_confirm(struct lw_worker *w);
/* Forgets which floors were sent to a shard whose epoch is lost. */
void floor_unknown(struct lw_worker *w, const struct shard *sh);
/* Notes the floor of a partition that watch has read from a shard. If `again` is true, the floor is
 * sent to that shard once more, even if the shard has it already. */
void floor_known(const struct shard *sh, struct part *p, int64_t floor, bool again);
void floor_build(struct lw_worker *w, struct shard *sh);
void floor_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void commit_step(struct lw_worker *w);
bool commit_confirm(struct lw_worker *w);
/* Commits the watermarks of partitions that this worker gives up, and waits for the answer. */
void commit_now(struct lw_worker *w, struct part **parts, size_t n);

static inline void check_floors(const struct floors *x) {
    assert(x->n >= 0 && x->n <= FLOOR_BATCH);
}

/* Makes the fleet's name from the id of shard 0's epoch, when this worker has joined that epoch. */
void rival_epoch(struct lw_worker *w, const char *epoch);
/* Takes ids of epochs of shard 0, or their first digits, separated by spaces: commits under them
 * are those of this fleet. */
void rival_known(struct lw_worker *w, const char *names);

/* --- the shard ------------------------------------------------------------------------------- */

enum phase { DOWN, HELLO, ENTERING, REPAIRING, READY };

struct shard {
    int index;
    char prefix[LW_SHARD_PREFIX]; /* prefix of the names of the shard's keys in Redis */
    size_t n_prefix;
    char *key_epoch, *key_lanes, *key_floor, *key_fence, *key_ready, *key_dead, *key_claimed,
        *key_workers, *key_vanished, *key_limit, *key_limits, *key_limited, *key_groups;
    enum phase phase;
    struct connection server;
    struct epoch epoch;
    struct repair repair;
    struct tend tend;
    struct pipeline pipe;
    struct gate gate;
    struct settle settle;
    struct claim claim;
    struct hints hints;
    struct ready ready;
    struct watch watch;
    struct floors floors;
    struct vanished vanished;
    struct first first;
    struct refusal refusal;

    struct lane *lanes; /* hash table of the known lanes, by id (lane.c) */
};

void shard_to(struct shard *sh, enum phase to);

/* Returns true while the worker is in an epoch of the shard. */
static inline bool epoch_joined(const struct shard *sh) { return sh->epoch.id[0] != 0; }

/* Returns true while the shard answers nothing, or not soon: it is away, or the answer of a
 * pipeline has taken long. */
static inline bool shard_silent(const struct shard *sh, int64_t now) {
    enum { SILENT_MS = 100 };
    return sh->phase != READY || (sh->pipe.open && now - sh->pipe.sent_ms > SILENT_MS);
}

/* Asserts the shard's invariants at the beginning and the end of its turn. A shard that is
 * REPAIRING or READY has an epoch, and one that is ENTERING has none. A pipeline is in flight only
 * while there is a connection. */
static inline void check_shard(const struct shard *sh) {
    assert(epoch_joined(sh) ? sh->phase != ENTERING : sh->phase < REPAIRING);
    assert(!sh->pipe.open || sh->phase != DOWN);
    check_pipe(&sh->pipe);
    check_gate(&sh->gate);
    check_settle(&sh->settle);
    check_claim(&sh->claim);
    check_hints(&sh->hints);
    check_watch(&sh->watch);
    check_repair(&sh->repair);
    check_first(&sh->first);
    check_floors(&sh->floors);
}

#endif
