/* SPDX-License-Identifier: Apache-2.0 */
/* What every contender in C shares: the clock, the work of a handler, and the journal that bench/judge reads.
 *
 * A journal is a folder. Each thread that handles messages writes a file of its own there, buffered, a line a message:
 *
 *     START_US END_US KEY PARTITION OFFSET
 *
 * Times are CLOCK_MONOTONIC in µs, taken around the work alone. Keys must hold neither spaces nor newlines; those of the workloads don't.
 * A process also keeps `PID.progress` there, 24 bytes of shared memory (struct bench_progress), so that the bench sees how far a process is
 * that does not count to an end by itself.
 *
 *     bench_journal_open(&j, dir, journal)   once a process; dir may be NULL: then only counts are kept, in memory
 *     bench_handle(&j, ...)                  any thread: works, and writes it down
 *     bench_journal_close(&j)                after the last of them; writes the buffers out
 *
 * Failures end the process with a word on stderr: a measurement with a torn journal is none. */
#ifndef BENCH_JOURNAL_H
#define BENCH_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Native byte order; times are 0 until they are known. */
struct bench_progress {
    _Atomic int64_t handled, first_us, last_us; /* first start and last end */
};

struct bench_thread;

struct bench_journal {
    struct bench_progress *progress;
    const char *dir; /* borrowed from the caller; NULL: none */
    bool lines;      /* write one line per message */
    pthread_mutex_t lock;
    struct bench_thread *threads;
    uint64_t serial; /* distinguishes this journal from earlier ones, so that a thread's file belongs to it */
};

int64_t bench_us(void); /* CLOCK_MONOTONIC */

/* lines: whether messages are written to a file, or only counted. */
void bench_journal_open(struct bench_journal *j, const char *dir, bool lines);
/* Handles a message: sleeps work_us (0: not at all) and writes the journal. */
void bench_handle(struct bench_journal *j, int64_t work_us, const void *key, size_t n_key, int32_t partition, int64_t offset);
void bench_journal_close(struct bench_journal *j);

#endif
