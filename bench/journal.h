/* SPDX-License-Identifier: Apache-2.0 */
/* What every contender in C shares: the clock, the work of a handler, and the journal that
 * bench/judge reads.
 *
 * A journal is a folder. Each thread that handles messages writes its own file there, buffered, one
 * line per message:
 *
 *     START_US END_US KEY PARTITION OFFSET
 *
 * Times are CLOCK_MONOTONIC in µs, taken around the work alone. Keys must hold neither spaces nor
 * newlines; those of the workloads don't. A process also keeps `PID.progress` there, 24 bytes of
 * shared memory (struct bench_progress), which tells the bench how far a process is if it does not
 * end by itself after a number of messages.
 *
 *     bench_journal_open(&j, dir, lines)     once per process; if dir is NULL, only counts are
 *                                            kept, in memory
 *     bench_handle(&j, ...)                  from any thread: sleeps for the work, and writes the
 *                                            line
 *     bench_journal_close(&j)                after the last bench_handle(); writes the buffers out
 *
 * A failure ends the process with an error text on stderr, because an incomplete journal must not
 * become a figure. */
#ifndef BENCH_JOURNAL_H
#define BENCH_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The contents of PID.progress, in native byte order; the times are 0 until they are known. */
struct bench_progress {
    /* number of messages; start of the first; end of the last */
    _Atomic int64_t handled, first_us, last_us;
};

struct bench_thread;

struct bench_journal {
    struct bench_progress *progress;
    const char *dir; /* folder of the journal, borrowed from the caller; NULL: write no files */
    bool lines;      /* true: write one line per message */
    pthread_mutex_t lock;
    struct bench_thread *threads;
    /* number of this journal, which tells a thread whether its file belongs to it */
    uint64_t serial;
};

int64_t bench_us(void); /* reads CLOCK_MONOTONIC, in µs */

/* Opens the journal. If `lines` is false, messages are only counted and no lines are written. */
void bench_journal_open(struct bench_journal *j, const char *dir, bool lines);
/* Handles a message: sleeps for work_us (0: not at all) and records it in the journal. */
void bench_handle(struct bench_journal *j, int64_t work_us, const void *key, size_t n_key,
                  int32_t partition, int64_t offset);
/* Sleeps for work_us (0: not at all). Returns the time at which the sleep began. */
int64_t bench_work(int64_t work_us);
/* Records a message whose work went on from start_us to end_us. */
void bench_record(struct bench_journal *j, int64_t start_us, int64_t end_us, const void *key,
                  size_t n_key, int32_t partition, int64_t offset);
void bench_journal_close(struct bench_journal *j);

#endif
