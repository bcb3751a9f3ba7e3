/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the board, which is shared memory between the supervisor and its workers. The board
 * outlives a worker's crash, so the supervisor can read from it what was in a handler when the
 * worker died.
 *
 * A worker writes its own `lw_board_worker` (the main thread writes the counters, the heartbeat and
 * the outcomes; each handler thread writes its own seat) and the slots of `partitions` that it
 * owns. The supervisor adds `suspects`, which workers clear, and fills `drain`, in which workers
 * raise the committed offsets. The supervisor and the workers write `owed`. The supervisor writes
 * all other fields. Each field is a lock-free atomic, or is guarded by the order "text first, then
 * the atomic flag". */
#ifndef LW_CONSUMER_BOARD_H
#define LW_CONSUMER_BOARD_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/histogram.h"
#include "consumer/outcomes.h"
#include "consumer/spans.h"
#include "handlers/handler.h"
#include "handlers/http/counts.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LW_UNSURE_SHARDS = 64, LW_UNSURE = 256, LW_UNSURE_COUNTED = 1, LW_OWED = 1 << 15 };
enum {
    LW_BOARD_WORKERS = 256,
    LW_BOARD_SEATS = 256,
    LW_BOARD_SUSPECTS = 1024,
    LW_BOARD_PARTITIONS = 4096
};

/* Describes the message that one handler thread is working on. */
enum { LW_SEAT_KEY = 128 };
struct lw_seat {
    atomic_bool busy;
    /* the message is a suspect and runs while no other handler of the worker does */
    atomic_bool alone;
    _Atomic int64_t since_ms; /* start of the message's run, ms on the boot clock */
    char identity[LW_IDENTITY_MAX];
    uint64_t key_hash;
    uint32_t n_key; /* number of bytes in `key`, which holds the beginning of the message's key */
    char key[LW_SEAT_KEY];
};

/* Holds what a worker has counted, for the summary, the live line and the metrics. The counts never
 * go down: the process that replaces the worker continues the counts. */
struct lw_counts {
    _Atomic uint64_t done, dead, dropped, skipped, parked, drained, retried, reruns, stale,
        received, redelivered, commits, epochs_lost, leases_lost, letters_kept, unparked;
    _Atomic uint64_t redis_commands, redis_round_trips;
    /* lanes that gate or claim asked for: number granted, and number busy (locked by another, or
     * with waiting messages) */
    _Atomic uint64_t locks_granted, locks_busy;
    /* spans that the worker dropped because its ring was full */
    _Atomic uint64_t spans_dropped;
    struct lw_http_counts http; /* counts of the http handler's thread */
    /* handler: durations of runs, added by handler threads; end_to_end: times from a record's
     * timestamp to the end of its message; redis: durations of pipelines */
    struct lw_hist handler, end_to_end, redis;
};

/* Holds a line of text that one process writes and other processes read. The version is odd during
 * a write. */
struct lw_note {
    _Atomic uint32_t version;
    char text[320];
};

/* Says whether another member joined the group with this worker's group.instance.id. */
enum lw_fenced {
    LW_FENCED_NO,
    /* another member joined with this worker's id: this process ends, and its successor joins
     * without an id */
    LW_FENCED_NOW,
    /* an earlier process of this worker was fenced, so this process has joined without an id */
    LW_FENCED_BEFORE
};

/* Says what happens to a worker's membership of the consumer group when the worker ends. */
enum lw_ending {
    LW_END_REPLACED, /* the worker is replaced: its next process joins under the same id */
    LW_END_STOPPED,  /* the run ends; kafka.on_stop decides whether the membership is kept */
    /* the worker gives up its membership, because its next process has another id or there is no
     * next process */
    LW_END_LEAVES,
};

struct lw_board_worker {
    _Atomic int32_t pid;
    /* time of the main loop's last turn, ms on the boot clock */
    _Atomic int64_t heartbeat_ms;
    /* number of messages of the worker's partitions that wait in Redis now */
    _Atomic uint64_t waiting;
    /* number of messages that the worker's handlers have not answered yet */
    _Atomic uint64_t in_handler;
    /* number of processes of the exec handler; 0 for other handlers */
    _Atomic uint32_t n_loads;
    /* per handler process: number of requests sent to the process and not answered */
    _Atomic uint32_t loads[LW_BOARD_SEATS];
    /* the worker is connected to every shard, and is a member of the group that Kafka serves */
    atomic_bool ready;
    /* state of Kafka, as enum lw_kafka_state plus 1; 0: unknown */
    _Atomic uint32_t kafka;
    /* why the worker is not ready or makes no progress; "" if there is no reason */
    struct lw_note why;
    /* number of times that the worker was forked; written by the supervisor */
    _Atomic uint64_t starts;
    /* enum lw_ending, written by the supervisor: why this process ends */
    atomic_int ending;
    /* what happened to the worker's membership, as enum lw_fenced */
    atomic_int fenced;
    /* true after lw_worker_main() has returned: no handler has caused the exit that follows */
    atomic_bool returned;
    struct lw_counts counts;
    /* Outcomes that were sent to Redis and not answered yet, one row per shard. Only the worker
     * writes them. If the worker dies, nobody knows whether Redis recorded these outcomes. So each
     * of these outcomes is counted by the worker that next finds its message finished
     * (lw_board_owe). An element is 0 if it is free. */
    _Atomic uint64_t unsure[LW_UNSURE_SHARDS][LW_UNSURE];
    struct lw_seat seats[LW_BOARD_SEATS];
    /* the last outcomes, which the worker's next process continues */
    struct lw_outcome_rings outcomes;
};

enum lw_suspicion {
    LW_INNOCENT,
    LW_SUSPECT, /* the message was in a handler when its worker died, so it runs alone */
    /* the worker died while the message ran alone, so an attempt is counted before the message runs
     * again */
    LW_BLAMED,
};

/* A slot is free while its suspicion is LW_INNOCENT. Only the supervisor fills a slot: first it
 * stores a new generation with LW_INNOCENT, then the texts, then the suspicion. If a reader finds
 * the same word before and after reading a text, it has therefore read the whole text. */
struct lw_suspect {
    _Atomic uint32_t word; /* generation of the slot << 2 | enum lw_suspicion */
    /* time when a worker last died of the message, ms on the boot clock; used by the supervisor
     * only */
    int64_t since_ms;
    /* order in which entries were made, used by the supervisor only: when the table is full, the
     * oldest entry makes room */
    uint64_t age;
    char identity[LW_IDENTITY_MAX];
    /* why the worker died, such as "worker died of signal 11 (Segmentation fault)" */
    char reason[LW_REASON_MAX];
};

/* Describes a partition during `run --drain`: its end offset when the run started, and the offset
 * up to which it is committed. */
struct lw_drain_partition {
    char topic[256];
    int32_t partition;
    int64_t end;
    _Atomic int64_t committed; /* highest commit seen so far; -1 until a commit is known */
};

/* Describes a partition of this fleet. When a slot has got the name of a partition, the slot keeps
 * the name for the life of the board; the worker in `owner` writes the fields behind `owner`. If
 * two workers look for a new partition at once, each may get a slot for the partition, but soon
 * only one of the two slots has an owner. */
enum { LW_SLOT_FREE, LW_SLOT_FILLING, LW_SLOT_NAMED };
struct lw_board_partition {
    _Atomic uint32_t state; /* LW_SLOT_NAMED is stored after the topic and the partition */
    char topic[256];
    int32_t partition;
    /* index of the worker that owns the partition, plus 1; 0: no worker of this fleet */
    _Atomic int32_t owner;
    _Atomic int64_t watermark, committed, log_end;
    /* number of messages that were delivered and are not finished, and of those among them that
     * wait in Redis */
    _Atomic int64_t unfinished, waiting;
    _Atomic int64_t records; /* number of records tracked above the watermark, finished or not */
    /* last time when the watermark moved, or when no message was unfinished; ms on the boot
     * clock */
    _Atomic int64_t moved_ms;
};

/* Counts what became of the spans that the workers have handed over (consumer/spans.h). The process
 * that sends them writes it. */
enum lw_span_loss {
    /* the endpoint could not be reached, or asked again and again to try later */
    LW_SPAN_UNREACHABLE,
    LW_SPAN_REFUSED,  /* the endpoint refused the request */
    LW_SPAN_REJECTED, /* the endpoint took the request, but not this span of it */
    LW_SPAN_LOSSES
};

struct lw_board {
    /* highest number of workers so far; totals include workers that have ended, so this number
     * never goes down */
    _Atomic int n_workers;
    _Atomic int n_wanted; /* number of workers that should run, which a reload may change */
    /* this supervisor's slot (member.h); -1: the workers are dynamic members */
    int member_slot;
    /* Two times: of the supervisor's start (wall clock), and of its last look at the workers (boot
     * clock). */
    _Atomic int64_t started_wall_ms, ticked_ms;
    atomic_bool quick;    /* true after a second signal to end: the run ends at once */
    atomic_bool draining; /* true during `run --drain` */
    /* number of suspects and blamed messages; if it is 0, readers skip the search */
    _Atomic int32_t n_suspects;
    struct lw_suspect suspects[LW_BOARD_SUSPECTS];
    _Atomic uint32_t n_owed;
    /* hash table of the outcomes that dead workers may not have counted */
    _Atomic uint64_t owed[LW_OWED];
    int32_t n_drain;
    struct lw_drain_partition drain[LW_BOARD_PARTITIONS];
    struct lw_board_partition partitions[LW_BOARD_PARTITIONS];
    /* a ring per worker (consumer/spans.h says who may use it); NULL: nothing was ever traced */
    struct lw_span_ring *spans;
    _Atomic uint64_t spans_sent, spans_lost[LW_SPAN_LOSSES];
    /* the first n_workers elements are in use; untouched pages cost no memory */
    struct lw_board_worker workers[LW_BOARD_WORKERS];
};

/* allocates shared anonymous memory, which fork passes on to the workers */
struct lw_board *lw_board_open(int n_workers, struct lw_err *err);
void lw_board_close(struct lw_board *b);
/* The supervisor calls this function before it forks processes whose configuration has
 * tracing.endpoint. Adds the rings of spans to the board, unless it has them already. Returns -1
 * with *err if there is no memory for them. */
int lw_board_add_spans(struct lw_board *b, struct lw_err *err);

/* lw_note_get() reads the text several times. If a write was in progress at each read, the function
 * returns false and an empty text. */
void lw_note_set(struct lw_note *n, const char *text);
bool lw_note_get(const struct lw_note *n, char *out, size_t size);

/* Handler threads call lw_seat_take() before each run of a handler, and lw_seat_leave() after the
 * run. */
void lw_seat_take(struct lw_seat *s, const char *identity, struct lw_bytes key, bool alone,
                  int64_t now_ms);
void lw_seat_leave(struct lw_seat *s);

/* A worker asks whether a message is under suspicion. If the message is LW_BLAMED, `reason`
 * (LW_REASON_MAX bytes) says why. */
enum lw_suspicion lw_board_ask(const struct lw_board *b, const char *identity, char *reason);
/* A worker reports that the attempt of a blamed message was counted (the message is LW_SUSPECT
 * again), or that a message is finished (it is forgotten). */
void lw_board_counted(struct lw_board *b, const char *identity);
void lw_board_forget(struct lw_board *b, const char *identity);
/* The supervisor calls this function when a worker has died: the messages in the worker's seats
 * become suspects. If `crashed` is true (the worker died of a crash signal, or exited unasked), a
 * message that ran alone is blamed. */
void lw_board_blame(struct lw_board *b, int worker, bool crashed, const char *reason);
/* The supervisor calls this function periodically. A suspicion ends LW_SUSPECT_MS after the last
 * death, for two reasons: while there is a suspect, no message runs ahead; and a worker of another
 * supervisor may have finished the message without ending the suspicion here. A message that
 * crashes its worker later becomes a suspect again. */
enum { LW_SUSPECT_MS = 15 * 60 * 1000 };
void lw_board_forget_old(struct lw_board *b, int64_t now_ms);
/* A worker reports the committed offset of a partition, for --drain. After an assignment the worker
 * reports the offset from which it reads, because no record below that offset will come. */
void lw_board_committed(struct lw_board *b, const char *topic, int32_t partition, int64_t offset);
bool lw_board_drained(const struct lw_board *b);

/* Returns a slot that has the name of this partition, and if necessary gives the name to a free
 * slot. Returns NULL if the table is full. */
struct lw_board_partition *lw_board_slot(struct lw_board *b, const char *topic, int32_t partition);
/* Makes a worker the owner of a partition's slot and returns the slot; NULL if the table is
 * full. The slot belongs to the partition for the life of the board. */
struct lw_board_partition *lw_board_own(struct lw_board *b, int worker, const char *topic,
                                        int32_t partition);
/* A worker gives up a partition, unless another worker has already taken it over. */
void lw_board_disown(struct lw_board_partition *p, int worker);
/* The supervisor calls this function when a worker has ended, so that the worker owns no partition
 * any more. */
void lw_board_disown_all(struct lw_board *b, int worker);
/* Returns the next slot that has an owner, starting at index *at; NULL after the last slot. Begin
 * with *at = 0. */
const struct lw_board_partition *lw_board_next(const struct lw_board *b, int *at);

/* Returns the id under which an outcome is owed: a hash of the message's identity and of whether
 * the message is done or dead. */
uint64_t lw_owed_id(uint64_t identity_hash, bool dead);
/* Marks the unanswered outcomes of a worker, in one shard or in all (-1), as owed. The supervisor
 * calls this function when the worker has died; the worker itself calls it when the worker gives up
 * a shard's calls. If more than LW_OWED outcomes are owed, some are forgotten. */
void lw_board_owe(struct lw_board *b, int worker, int shard);
void lw_board_owe_one(struct lw_board *b, uint64_t id);
/* Returns true if the outcome of this finished message is owed. The caller must then count the
 * outcome, which is no longer owed. If `dead` is not NULL, sets *dead to true if the message counts
 * as dead, and to false if it counts as done. */
bool lw_board_owed(struct lw_board *b, uint64_t identity_hash, bool *dead);

/* Lists the exit statuses of a worker process. */
enum {
    LW_EXIT_OK = 0,
    LW_EXIT_FAILED = 1, /* the supervisor restarts the worker after a backoff */
    /* EX_CONFIG: a restart cannot help, because the worker differs from the fleet's schema, offsets
     * were moved back, or the handler does
     *       not exist. The run ends with this status. */
    LW_EXIT_REFUSED = 78,
};

/* Runs a worker process (consumer/process/process.c) until SIGTERM, finishes what is in a handler,
 * and returns the exit status. */
int lw_worker_main(const struct lw_config *c, struct lw_board *board, int worker);

#endif
