/* SPDX-License-Identifier: Apache-2.0 */
/* The board: shared memory between the supervisor and its workers. It outlives a worker's crash, so the supervisor can read from it
 * what was in a handler when the worker died.
 *
 * Writers: a worker writes its own `lw_board_worker` (main thread: counters, heartbeat, partitions; handler threads: their own seat);
 * the supervisor writes `suspects`, `stop` and `drain`; of `partitions` each worker writes the slots that name it as owner. Everything is a
 * lock-free atomic or guarded by the order "text first, then the atomic flag". */
#ifndef LW_CONSUMER_BOARD_H
#define LW_CONSUMER_BOARD_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/histogram.h"
#include "handlers/handler.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LW_UNSURE_SHARDS = 64, LW_UNSURE = 256, LW_UNSURE_COUNTED = 1, LW_OWED = 1 << 15 };
enum { LW_BOARD_WORKERS = 256, LW_BOARD_SEATS = 256, LW_BOARD_SUSPECTS = 1024, LW_BOARD_PARTITIONS = 4096 };

/* What one handler thread is working on. */
enum { LW_SEAT_KEY = 128 };
struct lw_seat {
    atomic_bool busy;
    atomic_bool alone; /* the message is a suspect and runs while no other handler of the worker does */
    _Atomic int64_t
        since_ms; /* start of the run, on the boot clock; if a handler exceeds its timeout by a wide margin, its worker is replaced */
    char identity[LW_IDENTITY_MAX];
    uint64_t key_hash;
    uint32_t n_key; /* length of the key's stored beginning */
    char key[LW_SEAT_KEY];
};

/* Counts since the start, for the summary, the live line and the metrics. They never go down: a
 * worker's successor continues them. */
struct lw_counts {
    _Atomic uint64_t done, dead, dropped, skipped, parked, drained, retried, reruns, stale, received, redelivered, commits, epochs_lost,
        leases_lost, letters_kept, unparked;
    _Atomic uint64_t redis_commands, redis_round_trips;
    _Atomic uint64_t locks_granted,
        locks_busy; /* lanes that gate or claim asked for: granted, or busy (held by another, or with waiting messages) */
    struct lw_hist handler, end_to_end,
        redis; /* durations: of a handler's run (written by its threads), from a record's timestamp to its end, of a pipeline */
};

/* A line of text that one process writes and others read. The version is odd during a write. */
struct lw_note {
    _Atomic uint32_t version;
    char text[320];
};

/* Whether another member joined the group with this worker's group.instance.id. */
enum lw_fenced {
    LW_FENCED_NO,
    LW_FENCED_NOW,   /* yes: this process ends, and its successor joins without an id */
    LW_FENCED_BEFORE /* a predecessor was fenced, so this process has joined without an id */
};

/* What happens to a worker's membership of the consumer group when the worker ends. */
enum lw_ending {
    LW_END_REPLACED, /* the worker is replaced: its next process joins under the same id */
    LW_END_STOPPED,  /* the run ends; kafka.on_stop decides whether the membership is kept */
    LW_END_LEAVES,   /* the membership is given up: the next process has another id, or there is none */
};

struct lw_board_worker {
    _Atomic int32_t pid;
    _Atomic int64_t heartbeat_ms; /* boot clock; the main loop writes it at every turn */
    _Atomic uint64_t waiting;     /* number of messages of its partitions that wait in Redis now */
    _Atomic uint64_t in_handler;  /* number of messages given to its handlers and not answered yet */
    atomic_bool ready;            /* connected to every shard, and a member of the group whose assignment is served */
    _Atomic uint32_t kafka;       /* enum lw_kafka_state + 1; 0: unknown */
    struct lw_note why;           /* why the worker is not ready or makes no progress; "" if there is no reason */
    _Atomic uint64_t starts;      /* number of times that it was forked; written by the supervisor */
    atomic_int ending;            /* enum lw_ending, written by the supervisor: why this process ends */
    atomic_int fenced;            /* enum lw_fenced */
    atomic_bool returned;         /* true once lw_worker_main() returned: the exit that follows is not a handler's exit() */
    struct lw_counts counts;
    /* Outcomes that were sent to Redis and not answered yet, one row per shard. Only the worker
     * writes them. If it dies, nobody knows whether Redis recorded them, so the worker that later
     * finds such a message finished counts it (lw_board_owe). 0: empty. */
    _Atomic uint64_t unsure[LW_UNSURE_SHARDS][LW_UNSURE];
    struct lw_seat seats[LW_BOARD_SEATS];
};

enum lw_suspicion {
    LW_INNOCENT,
    LW_SUSPECT, /* was in a handler when a worker died: run it alone */
    LW_BLAMED,  /* a worker died of it while it ran alone: an attempt is counted before it may run again */
};

/* A slot is free while its suspicion is LW_INNOCENT. Only the supervisor fills one: first a new
 * generation with LW_INNOCENT, then the texts, then the suspicion. A reader that finds the same
 * word before and after reading a text has therefore read it whole. */
struct lw_suspect {
    _Atomic uint32_t word; /* generation << 2 | enum lw_suspicion */
    int64_t since_ms;      /* time of the last death (boot clock); used by the supervisor only */
    uint64_t age;          /* used by the supervisor only: when the table is full, the oldest entry is dropped */
    char identity[LW_IDENTITY_MAX];
    char reason[LW_REASON_MAX]; /* "worker died of signal 11 (Segmentation fault)" */
};

/* --drain: the end offset of each partition at the start, and how far the workers have committed. */
struct lw_drain_partition {
    char topic[256];
    int32_t partition;
    int64_t end;
    _Atomic int64_t committed; /* -1 until known; never goes down */
};

/* A partition of this fleet. A slot, once given out, names its partition for the life of the board;
 * `owner` tells which worker writes the rest now. Two workers may briefly get a slot each for one
 * partition; soon only one of the two slots has an owner. */
enum { LW_SLOT_FREE, LW_SLOT_FILLING, LW_SLOT_NAMED };
struct lw_board_partition {
    _Atomic uint32_t state; /* set to LW_SLOT_NAMED after the texts are written */
    char topic[256];
    int32_t partition;
    _Atomic int32_t owner; /* worker + 1; 0: no worker of this fleet */
    _Atomic int64_t watermark, committed, log_end;
    _Atomic int64_t unfinished, waiting; /* messages delivered and not finished, and how many of these wait in Redis */
    _Atomic int64_t records;             /* records tracked above the watermark, finished or not */
    _Atomic int64_t moved_ms;            /* when the watermark last moved, or when nothing was unfinished (boot clock) */
};

struct lw_board {
    _Atomic int n_workers;                      /* highest number so far, because totals include workers that have ended */
    _Atomic int n_wanted;                       /* number of workers that should run; a reload may change it */
    int member_slot;                            /* this supervisor's slot (member.h); -1: dynamic members */
    _Atomic int64_t started_wall_ms, ticked_ms; /* of the supervisor: its start, and its last look at the workers (boot clock) */
    atomic_bool quick;                          /* a second signal was received: end at once */
    atomic_bool draining;                       /* --drain */
    _Atomic int32_t n_suspects;                 /* number of slots in use; 0 lets readers skip the search */
    struct lw_suspect suspects[LW_BOARD_SUSPECTS];
    _Atomic uint32_t n_owed;
    _Atomic uint64_t owed[LW_OWED]; /* hash table: outcomes that dead workers may not have counted */
    int32_t n_drain;
    struct lw_drain_partition drain[LW_BOARD_PARTITIONS];
    struct lw_board_partition partitions[LW_BOARD_PARTITIONS];
    struct lw_board_worker workers[LW_BOARD_WORKERS]; /* the first n_workers are in use; untouched pages cost no memory */
};

struct lw_board *lw_board_open(int n_workers, struct lw_err *err); /* shared anonymous memory, inherited by fork */
void lw_board_close(struct lw_board *b);

/* note_get returns false, with an empty `out`, if each of its reads met a write in progress. */
void lw_note_set(struct lw_note *n, const char *text);
bool lw_note_get(const struct lw_note *n, char *out, size_t size);

/* Called by handler threads around each run. */
void lw_seat_take(struct lw_seat *s, const char *identity, struct lw_bytes key, bool alone, int64_t now_ms);
void lw_seat_leave(struct lw_seat *s);

/* For workers: whether this message is under suspicion. Fills `reason` (LW_REASON_MAX) for
 * LW_BLAMED. */
enum lw_suspicion lw_board_ask(const struct lw_board *b, const char *identity, char *reason);
/* For workers: a blamed message had its attempt counted (it becomes LW_SUSPECT again), or a message
 * is finished (and is forgotten). */
void lw_board_counted(struct lw_board *b, const char *identity);
void lw_board_forget(struct lw_board *b, const char *identity);
/* For the supervisor: a worker died. `crashed` is true for a crash signal or an unasked exit, and
 * false for SIGKILL, which only makes suspects. */
void lw_board_blame(struct lw_board *b, int worker, bool crashed, const char *reason);
/* The supervisor calls this periodically. A suspicion ends LW_SUSPECT_MS after the last death,
 * because a worker of another supervisor may have finished the message, and nothing runs ahead while
 * there is a suspect. A message that crashes its worker later becomes a suspect again. */
enum { LW_SUSPECT_MS = 15 * 60 * 1000 };
void lw_board_forget_old(struct lw_board *b, int64_t now_ms);
/* For workers: the committed offset of a partition, for --drain. Also called at assignment with the
 * offset where reading begins, because nothing below it will come. */
void lw_board_committed(struct lw_board *b, const char *topic, int32_t partition, int64_t offset);
bool lw_board_drained(const struct lw_board *b);

/* For workers: makes the slot of a partition this worker's; NULL if the table is full. Keep it: it
 * stays the partition's. */
struct lw_board_partition *lw_board_own(struct lw_board *b, int worker, const char *topic, int32_t partition);
/* For workers: gives up the partition, unless another worker has already taken it over. */
void lw_board_disown(struct lw_board_partition *p, int worker);
/* For the supervisor: a worker is gone, so it owns nothing any more. */
void lw_board_disown_all(struct lw_board *b, int worker);
/* The next partition owned by a worker, from slot *at on; NULL after the last. Begin with *at =
 * 0. */
const struct lw_board_partition *lw_board_next(const struct lw_board *b, int *at);

/* The id of an outcome that Redis may or may not have recorded: the hash of the message's identity,
 * and whether the message is done or dead. */
uint64_t lw_owed_id(uint64_t identity_hash, bool dead);
/* Marks the worker's unanswered outcomes as owed. The supervisor calls it when the worker has died;
 * the worker calls it when it gives up a shard's calls. shard -1: all shards. Beyond LW_OWED entries
 * some are forgotten. */
void lw_board_owe(struct lw_board *b, int worker, int shard);
void lw_board_owe_one(struct lw_board *b, uint64_t id);
/* Returns whether the count of this finished message is owed, and removes the entry. `dead` (may be
 * NULL): whether it is to be counted as dead instead of done. */
bool lw_board_owed(struct lw_board *b, uint64_t identity_hash, bool *dead);

/* How a worker process ends. */
enum {
    LW_EXIT_OK = 0,
    LW_EXIT_FAILED = 1, /* the supervisor restarts it with a backoff */
    /* EX_CONFIG: a restart cannot help (it differs from the fleet's schema, offsets were moved back,
     * no handler). The run ends with this status. */
    LW_EXIT_REFUSED = 78,
};

/* The worker process: runs until SIGTERM (graceful), then returns its exit status. consumer/process/process.c. */
int lw_worker_main(const struct lw_config *c, struct lw_board *board, int worker);

#endif
