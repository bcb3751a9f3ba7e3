/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the board, which is shared memory between the supervisor and its workers. The board
 * outlives a worker's crash, so the supervisor can read from it what was in a handler when the
 * worker died.
 *
 * A worker writes its own `lw_board_worker` (the main thread writes the counters, the heartbeat,
 * the outcomes and the shares; each handler thread writes its own seat) and the slots of
 * `partitions` that it owns. The supervisor adds `suspects`, and workers clear them. The supervisor
 * also fills `drain`. The workers, and the process that follows the group's commits, raise the
 * committed offsets in `drain`. The process that sends spans counts them in `spans_sent` and
 * `spans_lost`. The supervisor writes all other fields. A field that one process writes while
 * others may read it is a lock-free atomic, or is guarded by the order "text first, then the atomic
 * flag". */
#ifndef LW_CONSUMER_BOARD_H
#define LW_CONSUMER_BOARD_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/histogram.h"
#include "consumer/outcomes.h"
#include "consumer/shares.h"
#include "consumer/spans.h"
#include "handlers/handler.h"
#include "handlers/http/counts.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LW_BOARD_WORKERS = 256,
    LW_BOARD_SEATS = 256,
    LW_BOARD_SUSPECTS = 1024,
    LW_BOARD_PARTITIONS = 4096
};

enum { LW_SEAT_KEY = 128 };
/* Describes the message that one handler thread is working on. */
struct lw_seat {
    atomic_bool busy;
    _Atomic int64_t since_ms; /* time at which the run of the message began, ms on the boot clock */
    char identity[LW_IDENTITY_MAX];
    uint64_t key_hash;
    uint32_t n_key; /* number of bytes in `key`, which holds the beginning of the message's key */
    char key[LW_SEAT_KEY];
};

/* Holds the counts of a worker, for the summary, the live line and the metrics. The counts never go
 * down: the process that replaces the worker continues them. `parked` counts the messages that went
 * into a waiting list, and `drained` those that came from one and ended as done or dead. So,
 * without a crash, `parked` is `drained` plus what waits, dropped and skipped; but a message that
 * Kafka delivers again while it waits is counted as parked again. */
struct lw_counts {
    _Atomic uint64_t done, dead, dropped, skipped, parked, drained, retried, stale, group_changed,
        limited, received, redelivered, commits, epochs_lost, leases_lost, letters_kept, unparked;
    _Atomic uint64_t redis_commands, redis_round_trips;
    /* `locks_granted` and `locks_busy` count the lanes that gate or claim tried to lock.
     * `locks_granted` counts those that this worker got. `locks_busy` counts those that were locked
     * by another worker or had waiting messages. */
    _Atomic uint64_t locks_granted, locks_busy;
    /* `spans_dropped` is the number of spans that the worker dropped because its ring was full */
    _Atomic uint64_t spans_dropped;
    struct lw_http_counts http; /* counts of the thread that serves the http handler */
    /* `waited` holds the times from a message's arrival until a run of it was given to the handler.
     * `handler` holds the durations of runs; the handler threads add them. `end_to_end` holds the
     * times from a record's timestamp until its message is finished. `redis` holds the durations of
     * pipelines. */
    struct lw_hist waited, handler, end_to_end, redis;
};

/* Holds a line of text that one process writes and other processes read. The version is odd during
 * a write. */
struct lw_note {
    _Atomic uint32_t version;
    char text[320];
};

/* Lists what can happen if another member joins the group with this worker's group.instance.id. */
enum lw_fenced {
    LW_FENCED_NO,
    /* LW_FENCED_NOW: another member joined with this worker's id, so this process ends, and its
     * successor joins without an id */
    LW_FENCED_NOW,
    /* LW_FENCED_BEFORE: an earlier process of this worker was fenced, so this process has joined
     * without an id */
    LW_FENCED_BEFORE
};

/* Lists what can happen to a worker's membership of the consumer group when the worker ends. */
enum lw_ending {
    LW_END_REPLACED, /* the worker is replaced: its next process joins under the same id */
    /* LW_END_STOPPED: the supervisor and all workers end; kafka.on_stop decides whether the
     * membership is kept */
    LW_END_STOPPED,
    /* LW_END_LEAVES: the worker gives up its membership, because its next process has another id or
     * there is no next process */
    LW_END_LEAVES,
};

struct lw_board_worker {
    _Atomic int32_t pid;
    /* `heartbeat_ms` is the time of the main loop's last turn, ms on the boot clock */
    _Atomic int64_t heartbeat_ms;
    /* `waiting` is the number of messages of the worker's partitions that wait in Redis now */
    _Atomic uint64_t waiting;
    /* `in_handler` is the number of messages that were given to the worker's handlers and have no
     * outcome yet */
    _Atomic uint64_t in_handler;
    /* `n_loads` is the number of processes of the exec handler; 0 for other handlers */
    _Atomic uint32_t n_loads;
    /* `loads` holds, for each process of the exec handler, the number of requests that were sent to
     * it and are not answered yet */
    _Atomic uint32_t loads[LW_BOARD_SEATS];
    /* `ready` is true if the worker can use every shard and has joined the consumer group, and if
     * its handler can work */
    atomic_bool ready;
    /* `kafka` is the state of the connection to Kafka, as enum lw_kafka_state plus 1; 0: unknown */
    _Atomic uint32_t kafka;
    /* `why` says why the worker is not ready or makes no progress; "" if there is no reason */
    struct lw_note why;
    /* `starts` is the number of times that the supervisor has started this worker; the supervisor
     * writes it */
    _Atomic uint64_t starts;
    /* `ending` says why this process ends, as enum lw_ending; the supervisor writes it */
    atomic_int ending;
    /* `fenced` says what happened to the worker's membership of the group, as enum lw_fenced */
    atomic_int fenced;
    /* `returned` is true after lw_worker_main() has returned; an exit after that was not caused by
     * a handler */
    atomic_bool returned;
    struct lw_counts counts;
    struct lw_seat seats[LW_BOARD_SEATS];
    /* `outcomes` holds the rings of the worker's last outcomes; the process that replaces the
     * worker continues these rings */
    struct lw_outcome_rings outcomes;
    /* `shares` says how much of the worker's handlers each group takes */
    struct lw_shares shares;
};

/* Describes a message that was in a plugin when its worker died. Only the supervisor fills a slot:
 * first it frees the slot under a new generation, then it stores the identity, then it marks the
 * slot as used. So if a reader finds the same value of `word` before and after it reads the
 * identity, the identity is whole. */
struct lw_suspect {
    _Atomic uint32_t word; /* generation of the slot, times 2, plus 1 if the slot is used */
    /* `since_ms` is the time at which the supervisor last made the message a suspect, in ms on the
     * boot clock; only the supervisor uses this time */
    int64_t since_ms;
    /* `age` gives the order of the entries, because a full table replaces its oldest entry; only
     * the supervisor uses this number */
    uint64_t age;
    char identity[LW_IDENTITY_MAX];
};

/* Describes a partition during `run --drain`: its end offset when the supervisor started, and the
 * offset up to which it is committed. */
struct lw_drain_partition {
    char topic[256];
    int32_t partition;
    int64_t end;
    _Atomic int64_t committed; /* highest commit seen so far; -1 until a commit is known */
};

enum { LW_SLOT_FREE, LW_SLOT_FILLING, LW_SLOT_NAMED };
/* A slot for one partition of the application's topics. Once a slot has the name of a partition, it
 * keeps that name as long as the board exists. The worker that `owner` names writes the fields
 * after `owner`. If two workers look for a new partition at once, each may get a slot for it, but
 * soon only one of the two slots has an owner. */
struct lw_board_partition {
    /* `state` is LW_SLOT_NAMED as soon as the topic and the partition are written. */
    _Atomic uint32_t state;
    char topic[256];
    int32_t partition;
    /* `owner` is the index of the worker that owns the partition, plus 1; 0: no worker of this
     * supervisor owns it */
    _Atomic int32_t owner;
    _Atomic int64_t watermark, committed, log_end;
    /* `unfinished` counts the messages that were delivered and are not finished, and `waiting`
     * counts those among them that wait in Redis. */
    _Atomic int64_t unfinished, waiting;
    _Atomic int64_t records; /* number of tracked records from the watermark on, finished or not */
    /* `moved_ms` is the last time, ms on the boot clock, at which the watermark moved or no message
     * was unfinished */
    _Atomic int64_t moved_ms;
};

/* Lists why spans that the workers handed over (consumer/spans.h) were not delivered. The process
 * that sends spans counts these cases. */
enum lw_span_loss {
    /* LW_SPAN_UNREACHABLE: the endpoint could not be reached, or answered each time that it was too
     * busy */
    LW_SPAN_UNREACHABLE,
    LW_SPAN_REFUSED,  /* the endpoint refused the request */
    LW_SPAN_REJECTED, /* the endpoint accepted the request, but rejected this span of it */
    LW_SPAN_LOSSES
};

struct lw_board {
    /* `n_workers` is the highest number of workers so far. This number never goes down, because
     * totals include workers that have ended. */
    _Atomic int n_workers;
    _Atomic int n_wanted; /* number of workers that should run, which a reload may change */
    /* `member_slot` is the slot of static membership that this supervisor has claimed (member.h);
     * -1: the workers are dynamic members */
    int member_slot;
    /* `started_wall_ms` is the time at which the supervisor started, on the wall clock. `ticked_ms`
     * is the time of its last tick, on the boot clock. */
    _Atomic int64_t started_wall_ms, ticked_ms;
    /* `quick` is true after a second signal to end: the supervisor and the workers end at once */
    atomic_bool quick;
    atomic_bool draining; /* true during `run --drain` */
    /* `n_suspects` is the number of messages in `suspects`. If it is 0, readers do not search the
     * table. */
    _Atomic int32_t n_suspects;
    struct lw_suspect suspects[LW_BOARD_SUSPECTS];
    int32_t n_drain;
    struct lw_drain_partition drain[LW_BOARD_PARTITIONS];
    struct lw_board_partition partitions[LW_BOARD_PARTITIONS];
    /* `spans` has one ring of spans per worker (consumer/spans.h says who may use it); NULL:
     * tracing was never configured */
    struct lw_span_ring *spans;
    _Atomic uint64_t spans_sent, spans_lost[LW_SPAN_LOSSES];
    /* Only the first n_workers elements of `workers` are in use. The rest takes up no memory,
     * because it is never touched. */
    struct lw_board_worker workers[LW_BOARD_WORKERS];
};

/* Allocates the board in shared anonymous memory, which fork passes on to the workers. */
struct lw_board *lw_board_open(int n_workers, struct lw_err *err);
void lw_board_close(struct lw_board *b);
/* Adds the rings of spans to the board, unless it has them already. The supervisor calls this
 * function before it forks processes whose configuration has tracing.endpoint. Returns -1 with *err
 * if memory is missing. */
int lw_board_add_spans(struct lw_board *b, struct lw_err *err);

/* lw_note_get() returns true if it has copied a whole text. If the text changes while it is read,
 * the function reads it again. After 100 such reads, the function returns false and an empty
 * text. */
void lw_note_set(struct lw_note *n, const char *text);
bool lw_note_get(const struct lw_note *n, char *out, size_t size);

/* A handler thread calls lw_seat_take() before each run of a handler, and lw_seat_leave() after
 * the run. When a worker has died, the supervisor calls lw_seat_leave() for all its seats. */
void lw_seat_take(struct lw_seat *s, const char *identity, struct lw_bytes key, int64_t now_ms);
void lw_seat_leave(struct lw_seat *s);

/* Returns true if the message is a suspect. Workers call this function. */
bool lw_board_is_suspect(const struct lw_board *b, const char *identity);
/* Ends the suspicion of a message. Workers call this function when the message is finished. */
void lw_board_forget(struct lw_board *b, const char *identity);
/* Makes the messages in a worker's seats suspects, and returns how many of them were none before.
 * The supervisor calls this function when the worker has died. */
int lw_board_suspect(struct lw_board *b, int worker);
enum { LW_SUSPECT_MS = 15 * 60 * 1000 };
/* Ends each suspicion that is older than LW_SUSPECT_MS, counted from the time when the message
 * became a suspect. The supervisor calls this function periodically. Without it, a suspicion might
 * never end, because a worker of another supervisor may have finished the message without ending
 * the suspicion on this board. And while there is a suspect, no message runs ahead. */
void lw_board_forget_old(struct lw_board *b, int64_t now_ms);
/* Raises the committed offset of a partition for `run --drain`. After an assignment, the worker
 * also reports the offset from which it reads, because no record below that offset will come. */
void lw_board_committed(struct lw_board *b, const char *topic, int32_t partition, int64_t offset);
bool lw_board_drained(const struct lw_board *b);

/* Returns the slot that has the name of this partition. If there is none, gives the name to a free
 * slot. Returns NULL if the table is full. */
struct lw_board_partition *lw_board_slot(struct lw_board *b, const char *topic, int32_t partition);
/* Makes a worker the owner of a partition, and returns the slot of the partition. Returns NULL if
 * the table is full. The slot keeps the partition's name as long as the board exists. */
struct lw_board_partition *lw_board_own(struct lw_board *b, int worker, const char *topic,
                                        int32_t partition);
/* Takes a partition from a worker that gives it up, unless another worker has already taken it
 * over. */
void lw_board_disown(struct lw_board_partition *p, int worker);
/* Takes all partitions from a worker. The supervisor calls this function when the worker has
 * ended. */
void lw_board_disown_all(struct lw_board *b, int worker);
/* Returns the next slot that has an owner, starting at index *at; NULL after the last slot. Begin
 * with *at = 0. */
const struct lw_board_partition *lw_board_next(const struct lw_board *b, int *at);

/* Lists the exit statuses of a worker process. */
enum {
    LW_EXIT_OK = 0,
    LW_EXIT_FAILED = 1, /* the worker failed, so the supervisor restarts it after a backoff */
    /* LW_EXIT_REFUSED is EX_CONFIG: a restart cannot help, for example because the worker differs
     * from the fleet's schema, the group's offsets were moved back, or the handler does not exist.
     * So the supervisor ends with this status, too. */
    LW_EXIT_REFUSED = 78,
};

/* Runs a worker process (consumer/process/process.c) until SIGTERM, waits for the messages in
 * handlers, and returns the exit status. */
int lw_worker_main(const struct lw_config *c, struct lw_board *board, int worker);

#endif
