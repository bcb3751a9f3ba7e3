/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker remembers. Private to consumer/: worker, shard, intake, gate, run, settle, claim, watch, commit, partition. */
#ifndef LW_CONSUMER_WORKER_STATE_H
#define LW_CONSUMER_WORKER_STATE_H

#include "base/redis/script.h"
#include "consumer/worker/worker.h"
#include "queue/envelope.h"
#include "queue/life.h"
#include "queue/offsets.h"

#include <uthash.h>

enum {
    BATCH = 256, /* messages a call; 64 is the best batch, more gains little, and 256 bounds what a script does at once */
    CLAIM_BATCH = 64,
    AHEAD_MAX = 64,      /* messages of a lane that one call grants: they run one after the other without asking again */
    GROUPS_MAX = 250,    /* segments a call: one byte names them */
    LOOK_BATCH = 64,     /* segments a watch call */
    REPAIR_BATCH = 1024, /* ranges a repair call */
    REPAIR_OFFSETS = 4096,
    FLOOR_BATCH = 256,
    META_RANGES = 512, /* in a commit's metadata */
    PIPE_CALLS = 32,
    KEPT_CALLS = 3, /* settle, gate, claim */
    SEGMENT = 16384,
    HELD_MAX = 20000,       /* records in memory that wait for a turn or behind a run of their key */
    PACE_MS = 2,            /* minimum gap between non-urgent pipelines, so that each carries a larger batch */
    LOOK_SEGMENTS = 64,     /* how far ahead the states are read on assign */
    LOOK_RECORDS = 1 << 16, /* records that one watch call searches for parked ones */
    /* records that a worker tracks above its watermarks, at 16 bytes per record; each partition gets an
     * equal share, within these limits */
    RECORDS_MAX = 4 << 20,
    PART_RECORDS_MAX = 1 << 20,
    PART_RECORDS_MIN = 1 << 16,
    FULL_SAID_MS = 60000,
    OPEN_TAGS = 1 << 16,
};
enum { WATCH_MS = 100, COMMIT_MS = 200, HOLD_BAD_MS = 1000, RECHECK_MS = 1000 };

/* Lanes of a shard whose lists have vanished: of what is delivered in lo <= offset < hi, what is parked there is to be read again
 * (vanished.c). */
struct missing {
    struct stream_id {
        uint64_t ms, seq;
    } seen;        /* how far this assignment has read the stream `vanished` */
    bool asked;    /* the call under way reads on from there */
    uint8_t *tags; /* bitmap over tags; NULL: none */
    bool more;     /* the last call was full */
    int64_t lo, hi;
    uint32_t serial; /* counts changes of the above */
};

/* A topic's partition; `gen` is 0 while it is not ours. A partition of Kafka exists until the process
 * ends. A partition of replays is freed soon after its last message (parts_sweep), because operators
 * create any number of them. */
struct part {
    UT_hash_handle hh;
    size_t n_msgs;          /* its messages in memory */
    struct part *next_idle; /* in the list of partitions to free; `idle`: it is in that list */
    bool idle;
    char *name; /* "topic:partition"; "topic:partition#replay" for the replays of a number, which are a partition that nobody owns */
    char *topic;
    int32_t partition;
    int64_t replay;    /* 0: of Kafka */
    int64_t looked_at; /* what was committed at the last look at the whole group, -1: not looked yet (rival.c) */
    uint32_t gen;      /* assignment */
    uint32_t pass;     /* counts rewinds within it: deliveries of an earlier pass are void */
    struct lw_offsets *offsets;
    int64_t begin, log_begin, log_end, committed; /* committed: what Kafka has accepted, -1 none yet */
    int64_t new_from;                             /* first offset that no earlier epoch can have granted; INT64_MAX: not known yet */
    bool had_commit;
    bool leaving;          /* being revoked: starts no more of its messages and does not rewind */
    struct lw_range *meta; /* commit metadata: finished above the committed offset, to be believed only through Redis */
    size_t n_meta;
    bool claims;    /* the group's metadata may call messages finished that will run again here */
    uint8_t *fresh; /* a shard each: its floor and segments were read for this assignment */
    int n_fresh;
    int64_t recheck_ms;  /* the group's offset did not fit the floor: look again then */
    int64_t *floor_sent; /* a shard each: the floor it was told */
    bool held;
    struct kept {
        int64_t offset;
        uint32_t tag;
    } * kept; /* finished, known here, for repair: survived the last rewind */
    size_t n_kept, cap_kept;
    int64_t *watch_at;               /* per shard: the offset where its watch continues */
    struct missing *missing;         /* one per shard */
    int64_t full_ms;                 /* when the full tracking window was last logged; 0: never */
    struct lw_board_partition *slot; /* its place on the board; NULL: not looked for yet */
    uint8_t *meta_open;              /* bitmap over tags: keys of records delivered since that the metadata does not call finished */
};

struct msg {
    struct msg *next;
    struct part *part;
    uint32_t gen, pass, tag;
    int64_t offset, timestamp_ms, first_ms;
    struct lw_bytes key, payload, dedup;
    struct lw_header *headers; /* owned */
    size_t n_headers;
    void *origin;        /* a Kafka record, released through lw_io */
    char *own;           /* or the bytes of a claimed envelope */
    struct lw_bytes raw; /* the envelope as it stands in its list; p == NULL: encode when needed */
    char *dedup_own;
    char *dead_reason; /* no handler: a dead letter (no key) */
    size_t bytes;      /* its size in memory, about that of its envelope */
};

enum hold_kind { FAST, LANE }; /* gate said run; or heads handed over by claim or settle */
enum run_state { AHEAD, RUNNING, SENDING, FINISHED };
enum verdict { V_DONE, V_RETRY, V_BACK, V_DEAD, V_SENT };

/* A granted message and what became of it. */
struct run {
    struct lw_job job; /* first: the handler knows the run by it */
    struct hold *hold;
    struct msg *msg;
    enum run_state state;
    enum verdict verdict;
    int tries;
    bool linked;    /* AHEAD: the thread of the one before it may start it at any time */
    bool submitted; /* handed to the handlers */
    bool accounted; /* its outcome was counted */
    bool late;      /* its epoch is gone, and it was done after all: blocks its lane until Redis knows or never will */
    bool in_repair;
    int unsure;             /* 1-based place in its shard's row of unanswered outcomes (board.h); 0: none */
    int64_t rest_ms;        /* V_BACK by its handler under a live lease: how long its lane rests */
    int64_t resend_ms;      /* SENDING: when to try again; 0 while the answer is awaited */
    struct run *next;       /* in its hold, in order; or free */
    struct run *next_alone; /* in the line of those that wait for a suspect */
};

/* One acquisition of a lane, under one lease: its messages run one after the other. What is finished stands first, then at most one that
 * runs, then what is granted ahead. The first that is not done is the last to run: what was granted behind it is taken back. */
struct hold {
    struct lw_lease lease;
    struct lane *lane;
    enum hold_kind kind;
    uint64_t fence; /* as the lock's value names it */
    struct run *first, **tail;
    int n;           /* messages granted since the lane was last looked at for others (max_run) */
    int n_finished;  /* the first so many runs are FINISHED */
    int n_open;      /* behind them: RUNNING, SENDING or AHEAD */
    int n_in_call;   /* the first so many runs are in the settle that is under way */
    bool failed;     /* the last finished one is not done: nothing more runs */
    bool lost;       /* settle said stale: nothing more is recorded, and the lane waits until what runs has ended */
    bool stale;      /* its epoch is gone */
    bool listed;     /* in its shard's list of those to settle */
    int64_t done_ms; /* when the first of the finished came */
    struct hold *next;
};

/* Everything about one key, while there is anything. */
struct lane {
    UT_hash_handle hh;
    int shard;
    uint32_t tag;
    struct lw_bytes id; /* `own` or `small` */
    char small[48];
    char *own;
    struct msg *head, **tail; /* not gated, in order: also the local chain behind a FAST run */
    size_t n;
    size_t n_asked; /* queue.on_busy drop: the first n_asked messages have asked gate; they are not dropped */
    struct hold *hold;
    struct hold *stale;    /* holds whose epoch is gone, with runs that are still in their handler, or late */
    bool in_call;          /* named by a call that is not answered */
    bool queued;           /* in its shard's gate queue */
    bool settled;          /* its last call was a settle: messages that wait for gate go first now */
    int64_t not_before_ms; /* a name of the lane holds another type: look again then */
    struct lane *gate_next;
};

enum call_kind {
    CALL_LOAD,
    CALL_INFO,
    CALL_TIME,
    CALL_ENTER,
    CALL_REPAIR,
    CALL_WATCH,
    CALL_SETTLE,
    CALL_GATE,
    CALL_CLAIM,
    CALL_HINTS,
    CALL_TEND,
    CALL_FLOOR,
    CALL_VANISHED,
    CALL_UNPARK,
    CALL_LIFT,
    CALL_ALIVE
};

struct call {
    enum call_kind kind;
    bool again; /* did not execute: send it once more as it was */
};

struct gate_item {
    struct lane *lane;
    int first, n; /* of the call's messages */
    bool envelopes;
    bool behind; /* behind a run of the fast path: asks only which messages are dropped */
};
struct named { /* of the local chain; only its identity counts: it may have gone meanwhile */
    struct part *part;
    int64_t offset;
};
enum mode { KEEP = 'k', KEEP_ALONE = 'K', NEXT = 'n', DROP = '-', MORE = 'm', HEADS = 'h' }; /* settle.lua */
struct settle_item {
    struct hold *hold;
    int n_runs; /* its first so many */
    enum verdict verdict;
    enum mode mode;
    int first_named, n_named; /* of the call's */
    int want, before;
    int64_t backoff_ms;
};
struct claim_item {
    char *lane;
    size_t n_lane;
};
struct look_item {
    struct part *part;
    uint32_t gen, pass;
    int64_t segment, next; /* next: what was delivered when the call was sent */
    int lo, hi;            /* bytes */
    bool fresh;            /* read on assign; last: the last of the partition's */
    bool last;
};
struct repair_item {
    struct part *part;
    uint32_t gen;
    int64_t lo, hi;
    struct run *late; /* a handler outlived its epoch */
    bool meta;        /* known by the commit's metadata alone */
};
struct floor_item {
    struct part *part;
    uint32_t gen;
    int64_t to;
};

enum phase { DOWN, HELLO, ENTERING, REPAIRING, READY };

/* Each step has its part of the shard, which only its own file changes; others call a function of that file. */
struct gate { /* gate.c */
    struct gate_item item[BATCH];
    struct msg *msgs[BATCH];
    int n, n_msgs;
    uint64_t token; /* one for all lanes of a call */
    struct lane *head, **tail;
    size_t ask;           /* how many lanes are asked for one that may run, 1 to 16 */
    int64_t rest_ms;      /* until then all lanes in the gate queue have to wait (not_before_ms) */
    int64_t oom_until_ms; /* Redis is at maxmemory: nothing is admitted until then; 0: it is not */
};
struct settle { /* settle.c */
    struct settle_item item[BATCH];
    struct named named[BATCH];
    int n, n_named;
    struct hold *listed, **tail; /* to settle */
    size_t n_listed;
    bool urgent; /* one of them keeps somebody waiting */
};
struct claim { /* claim.c */
    struct claim_item item[CLAIM_BATCH];
    int n;
    uint64_t token; /* one for all lanes of a call */
};
struct hints {             /* hints.c: lanes that may be runnable */
    struct lw_bytes *ring; /* owned copies */
    size_t head, n, cap;
    size_t taken; /* popped from `claimed` and not told yet */
    bool on;      /* the blocking pop is wanted */
    bool more;    /* `ready` may hold more */
};
struct watch { /* watch.c */
    struct look_item item[LOOK_BATCH];
    int n;
    int64_t at_ms; /* the next round */
    size_t from;   /* the partition it begins with */
};
struct floors { /* commit.c */
    struct floor_item item[FLOOR_BATCH];
    int n;
};
struct vanished { /* vanished.c */
    struct unparking {
        struct part *part;
        uint32_t gen, serial;
        int64_t to; /* all that is missing below it is in the call */
    } unpark;
    int64_t unpark_ms;
    struct stream_id said;
    int64_t failed_ms; /* when the log last said that the stream can't be read; 0: it can */
};
struct first {                                                 /* first.c */
    bool waits;                                                /* no commit of the group is known yet: handlers are given nothing */
    enum { LOOK_NOT, LOOK_ASKED, LOOK_EMPTY, LOOK_USED } look; /* at the group's commits, since the epoch was joined */
    int64_t lift_ms;                                           /* when to ask next whether the quarantine was lifted */
};
struct connection { /* connection.c */
    bool loaded;    /* its scripts */
    bool checking;  /* look at its life and its clock before anything else is sent */
    struct lw_life life, new_life;
    char jumped[40];                  /* the epoch in which its clock jumped; "": none */
    int64_t offset_ms, new_offset_ms; /* Redis time less the boot clock */
    int64_t wall_offset_ms;           /* Redis time less the wall clock */
};
struct epoch {              /* epoch.c */
    char id[40];            /* "": none */
    int64_t quiet_until_ms; /* the quarantine */
    int64_t ttl_ms;         /* the largest of the epoch joined last, as enter answered; 0 none */
    int64_t old_until_ms;   /* leases of the epochs before that one are over then */
};
struct repair { /* repair.c */
    struct repair_item item[REPAIR_BATCH];
    int n;
    size_t part, at;          /* how far the repair after enter has come */
    bool floors_sent, over;   /* over: all was said; only then gate and claim */
    size_t n_late;            /* stale runs that were done after all */
    struct repair_item *meta; /* finished by commit metadata, to be written back while the quarantine lasts */
    size_t n_meta, cap_meta;
};
struct tend { /* tend.c */
    int64_t at_ms;
    int64_t due_ms; /* a backoff that this worker set ends then: look after the lanes; 0 none */
};
struct pipeline { /* pipe.c */
    struct lw_commands commands;
    struct call calls[PIPE_CALLS];
    int n, answered;
    bool open;                       /* a pipeline is out */
    enum call_kind kept[KEPT_CALLS]; /* calls to send again before anything else; their items stay with their steps */
    int n_kept;
    bool cut; /* a kept call may have executed */
    int64_t sent_ms;
};

struct shard {
    int index;
    char *prefix; /* "lw:{NAME.SHARD}:" */
    size_t n_prefix;
    char *key_epoch, *key_lanes, *key_floor, *key_fence, *key_ready, *key_dead, *key_claimed, *key_workers, *key_vanished;
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
    struct watch watch;
    struct floors floors;
    struct vanished vanished;
    struct first first;

    struct lane *lanes; /* hash by id; lane.c */
};

enum { FLEETS = 8 };
/* Another fleet in our group whose commits advance: how often that was seen, first and last. */
struct rival {
    char fleet[17], part[320]; /* part: where it committed last */
    int n;                     /* looks at which its commits had advanced */
    int64_t first_ms, last_ms, said_ms;
};

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

/* lane.c: lanes and messages */
struct lane *lane_get(struct lw_worker *w, struct lw_bytes id);
struct lane *lane_find(struct lw_worker *w, struct shard *sh, struct lw_bytes id);
void lane_wake(struct lw_worker *w, struct lane *l); /* something changed: queue it for gate if it may be gated */
bool lane_may_gate(struct lw_worker *w, struct lane *l, int64_t now);
struct msg *lane_first(struct lw_worker *w, struct lane *l); /* drops heads that need no gate */
void lane_call(struct lane *l);                              /* a call names it: nothing else about its key is sent until it is answered */
void lane_answered(struct lane *l);                          /* or never will be */
void lane_push(struct lw_worker *w, struct lane *l, struct msg *m);
void lane_push_front(struct lw_worker *w, struct lane *l, struct msg *m);
struct msg *lane_pop(struct lw_worker *w, struct lane *l);
void lane_drop_pending(struct lw_worker *w, const struct part *only); /* NULL: all */
void lane_maybe_free(struct lw_worker *w, struct lane *l);
void lanes_free(struct lw_worker *w, struct shard *sh);
int shard_of(const struct lw_worker *w, struct lw_bytes lane, uint32_t *tag);
struct msg *msg_new(struct lw_worker *w);
void msg_free(struct lw_worker *w, struct msg *m);
void msg_count(struct lw_worker *w, struct msg *m, size_t n); /* accounts for a new message: n bytes plus headers */
bool heads_fit(const struct lw_worker *w);                    /* true if memory has room for more heads */
void msg_envelope(struct lw_worker *w, struct msg *m, struct lw_buf *out);
bool msg_current(const struct msg *m); /* of the present delivery, and not finished */

/* partition.c */
struct part *part_get(struct lw_worker *w, const char *topic, size_t n, int32_t partition, int64_t replay);
void part_idle(struct lw_worker *w, struct part *p); /* called when its last message is gone */
void parts_sweep(struct lw_worker *w);               /* frees partitions that are still idle */
void part_free(struct lw_worker *w, struct part *p);
struct part *part_of_gen(struct lw_worker *w, uint32_t gen);
void part_mark(struct lw_worker *w, struct part *p, int64_t offset, enum lw_offset_state s);
void part_drop(struct lw_worker *w, struct part *p);
void parts_rewind(struct lw_worker *w, bool keep);
void part_again(struct lw_worker *w, struct part *p); /* from its watermark on, what is done stays known */
void part_hold(struct lw_worker *w, struct part *p);
size_t part_records_max(const struct lw_worker *w); /* maximum number of tracked records per partition */
bool all_joined(const struct lw_worker *w);         /* the epochs of all shards */
bool part_closed(const struct part *p, const struct msg *m);
void part_look_in_meta(struct lw_worker *w, struct part *p, const struct msg *m); /* called when it arrives */
void part_forget_meta(struct part *p);
void part_check_claims(struct lw_worker *w, struct part *p); /* called when its states have been read */

/* shard.c: connection, life, epoch */
void shard_init(struct lw_worker *w, struct shard *sh, int index);
void shard_free(struct lw_worker *w, struct shard *sh);
void shard_to(struct shard *sh, enum phase to);
/* connection.c */
void connection_check(struct shard *sh); /* look at the server's life and clock before anything else is sent */
void connection_scripts(struct shard *sh, bool loaded);
bool connection_unsure(const struct shard *sh); /* there is something to check, or scripts to load */
void connection_restart(struct lw_worker *w, struct shard *sh);
const struct lw_life *connection_life(struct shard *sh); /* in which the epoch is entered */
void connection_entered(struct shard *sh);
/* epoch.c */
void epoch_quiet(struct shard *sh, int64_t until_ms);
void repair_open(struct shard *sh); /* an epoch was entered */
void repair_drop(struct shard *sh); /* the epoch is lost */
void repair_free(struct shard *sh);
void shard_lost(struct lw_worker *w, struct shard *sh, const char *why);
bool shard_quiet(struct lw_worker *w, struct shard *sh, int64_t now); /* no gate, no claim now */
void enter_build(struct lw_worker *w, struct shard *sh);
void repair_build(struct lw_worker *w, struct shard *sh);
void hello_build(struct lw_worker *w, struct shard *sh, bool with_scripts);
void hello_done(struct lw_worker *w, struct shard *sh);
void life_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void time_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void enter_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void tend_build(struct lw_worker *w, struct shard *sh, int64_t now);
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void tend_now(struct shard *sh, int64_t now);
void tend_by(struct shard *sh, int64_t due_ms); /* look after the lanes then: the janitor would see the end of a short backoff late */
void repair_restart(struct shard *sh);
void repair_begin(struct shard *sh);                                /* of a pipeline */
void repair_forget(struct shard *sh);                               /* its call is never answered */
void repair_meta(struct shard *sh, struct part *p, int64_t offset); /* finished by commit metadata: to be written back */
void late_count(struct shard *sh, int by);                          /* how many late runs wait for a repair */
void repairs_restart(struct lw_worker *w);                          /* the set of known dones changed: start every repair over */

/* pipe.c */
void pipe_begin(struct lw_worker *w, struct shard *sh);
void pipe_call(struct shard *sh, enum call_kind kind);
void pipe_script(struct shard *sh, const struct lw_script *script, int n_keys);
void pipe_send(struct lw_worker *w, struct shard *sh);
void pipe_broken(struct lw_worker *w, struct shard *sh); /* its connection is */
void pipe_free(struct shard *sh);
void pipe_forget(struct lw_worker *w, struct shard *sh);
bool pipe_urgent(struct lw_worker *w, struct shard *sh);
const char *script_sha(const struct lw_script *s);

/* places.c: how a call names messages: by segment and index */
struct places {
    int n; /* groups */
    struct group {
        struct part *part;
        int64_t segment;
        int lo, hi; /* the bytes with their states */
        int n;      /* messages there */
    } group[GROUPS_MAX];
    int n_bytes;
    unsigned char bytes[3 * 2 * BATCH];
};
bool places_fit(const struct places *p, int more);
void places_add(struct places *p, struct part *part, int64_t offset);
void places_keys(struct shard *sh, const struct places *p);
void places_args(struct lw_commands *c, const struct places *p);

/* pipe.c: arguments */
void arg_bounds(struct lw_worker *w, struct shard *sh); /* byte limits of claim and settle: "LANE CALL MET" */
void arg_lock(struct shard *sh, struct lw_bytes lane);
void arg_token(struct lw_worker *w, struct shard *sh, uint64_t token);

/* hold.c */
struct hold *hold_new(struct lw_worker *w, struct lane *l, enum hold_kind kind, uint64_t token, uint64_t fence, int64_t deadline_ms);
void hold_free(struct lw_worker *w, struct hold *h);                                            /* its runs must have gone */
void hold_grant(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries); /* starts it when its turn has come */
void hold_cut(struct lw_worker *w, struct hold *h);                                             /* takes back what has not started */
void hold_drop_runs(struct lw_worker *w, struct hold *h, int n);                                /* the first n, which are finished */
void hold_to_settle(struct lw_worker *w, struct hold *h);
bool hold_has(const struct hold *h, const struct part *p, int64_t offset, struct msg **m);
void hold_to_stale(struct lw_worker *w, struct hold *h);  /* its epoch is gone */
void hold_to_lost(struct lw_worker *w, struct hold *h);   /* its lease is: nothing more of it is settled */
void hold_maybe_end(struct lw_worker *w, struct hold *h); /* stale or lost: over once nothing runs */
size_t wanted_heads(const struct lw_worker *w);
bool drops_busy(const struct lw_worker *w); /* true with queue.on_busy drop */
bool runs_ahead(const struct lw_worker *w);

/* the steps */
void settle_choose(struct lw_worker *w, struct shard *sh, struct settle_item *it, bool again);
int64_t settle_due_ms(struct lw_worker *w, const struct shard *sh); /* when there is something to settle; INT64_MAX never */
bool settle_due(const struct lw_worker *w, const struct hold *h, int64_t now);
void settle_open(struct shard *sh);
void settle_begin(struct shard *sh);                  /* of a pipeline */
void settle_list(struct shard *sh, struct hold *h);   /* it has finished runs */
void settle_unlist(struct shard *sh, struct hold *h); /* nothing happens if it is not in the list */
void settle_urge(struct shard *sh);                   /* somebody waits for what is listed */
void settle_again(struct lw_worker *w, struct shard *sh, bool may_have_executed);
void settle_forget(struct lw_worker *w, struct shard *sh); /* its call is never answered */
void settle_build(struct lw_worker *w, struct shard *sh);
void settle_encode(struct lw_worker *w, struct shard *sh);
void settle_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* owed.c: outcomes that a crash would leave uncounted */
void unsure_write(struct lw_worker *w, struct shard *sh);                 /* before a settle is sent: its outcomes */
void unsure_counted(struct lw_worker *w, struct run *r);                  /* before one of them is counted */
void unsure_clear(struct lw_worker *w, struct shard *sh);                 /* when the settle is answered */
void unsure_owe(struct lw_worker *w, const struct shard *sh);             /* when it never will be */
void owed_add(struct lw_worker *w, const struct run *r);                  /* done; others may find it finished first */
void owed_pay(struct lw_worker *w, const struct part *p, int64_t offset); /* found finished: count it if owed */
/* What a reply grants, read in order: fences, attempts, envelopes. */
struct grants {
    uint64_t fence;
    const redisReply *tries, *heads;
    size_t n, at_tries, at_heads;
};
int grants_tries(struct grants *g);                             /* attempts so far of the next grant */
struct msg *grants_head(struct lw_worker *w, struct grants *g); /* NULL: not a message */
void take_heads(struct lw_worker *w, struct shard *sh, struct lane *l, struct hold *h, struct grants *g, size_t n, uint64_t token);
void settle_back(struct lw_worker *w, struct shard *sh);
void gate_open(struct shard *sh);
void gate_begin(struct shard *sh);                              /* of a pipeline */
void gate_queue(struct shard *sh, struct lane *l, int64_t now); /* it may be gated */
void gate_forget(struct lw_worker *w, struct shard *sh);        /* its call is never answered */
void gate_refused(struct lw_worker *w, struct shard *sh);       /* Redis is at maxmemory: admission waits, the queue drains */
bool gate_rests(const struct shard *sh, int64_t now);           /* for that */
void gate_build(struct lw_worker *w, struct shard *sh, size_t most);
void gate_encode(struct lw_worker *w, struct shard *sh);
void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void gate_back(struct lw_worker *w, struct shard *sh);
void claim_begin(struct shard *sh); /* of a pipeline */
size_t claim_build(struct lw_worker *w, struct shard *sh, size_t most);
void claim_encode(struct lw_worker *w, struct shard *sh);
void claim_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void claim_forget(struct lw_worker *w, struct shard *sh);
bool hints_known(const struct shard *sh);    /* some lane may be runnable */
struct lw_bytes hints_pop(struct shard *sh); /* the caller's to free */
void hints_told(struct shard *sh);           /* Redis was told which were popped */
void hints_forget(struct shard *sh);
void hints_free(struct shard *sh);
void hints_want(struct lw_worker *w, struct shard *sh, bool want);
void hints_build(struct lw_worker *w, struct shard *sh, size_t most);
void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void watch_begin(struct shard *sh); /* of a pipeline */
void watch_build(struct lw_worker *w, struct shard *sh);
void watch_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* vanished.c */
void vanished_build(struct lw_worker *w, struct shard *sh);
void vanished_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void vanished_failed(struct lw_worker *w, struct shard *sh, const char *why); /* the stream could not be read */
void unpark_build(struct lw_worker *w, struct shard *sh);
void unpark_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
bool unpark_busy(const struct part *p, int shard); /* more of it is to be unparked at once */
void missing_forget(struct lw_worker *w, struct part *p);
void floor_begin(struct shard *sh); /* of a pipeline */
void floor_build(struct lw_worker *w, struct shard *sh);
void floor_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void late_build(struct lw_worker *w, struct shard *sh);
void commit_step(struct lw_worker *w);
bool commit_encode(struct lw_worker *w, const struct part *p, char *out); /* metadata of its commit; false: no ranges */
bool commit_confirm(struct lw_worker *w);
/* first.c */
void first_begin(struct shard *sh, bool waits); /* called when an epoch was joined, or lost */
void first_committed(struct lw_worker *w);      /* Kafka has accepted a commit */
void first_look(struct lw_worker *w);
bool first_looks(struct lw_worker *w); /* a look is awaited */
void lift_build(struct lw_worker *w, struct shard *sh, int64_t now);
void lift_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void rival_epoch(struct lw_worker *w, const char *epoch); /* rival.c: called when shard 0 joined an epoch */

/* tell.c: why a message did not simply end as done: one line, with who, key (as log.keys says), attempt, fence, time in the handler */
void tell_key(const struct lw_worker *w, struct lw_bytes key, char out[LW_KEY_TEXT]);
void tell_end(struct lw_worker *w, const struct run *r, enum lw_log_level level, const char *what);

/* run.c */
struct run *run_new(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries);
void run_start(struct lw_worker *w, struct run *r); /* nothing before it in its hold runs any more */
void run_free(struct lw_worker *w, struct run *r);
void run_finish(struct lw_worker *w, struct run *r, enum verdict v);
void run_flush(struct lw_worker *w);                       /* passes started runs to the handlers */
void run_tend(struct lw_worker *w);                        /* retries dead letters and starts suspects when due */
void run_leave(struct lw_worker *w, const struct part *p); /* gives back a leaving partition's runs that no handler has */
bool run_leave_line(struct lw_worker *w, struct run *r);   /* removes it from the queue behind a suspect; true if queued */
void late_remove(struct lw_worker *w, struct run *r);

#endif
