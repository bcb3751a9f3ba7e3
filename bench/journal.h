/* SPDX-License-Identifier: Apache-2.0 */
/* The common parts of all contenders in C: the clock, the work of a handler, and the journal that
 * bench/judge reads.
 *
 * A journal is a folder. Each thread that handles messages writes a file of its own in the folder,
 * through a buffer, with one line per message:
 *
 *     START_US END_US KEY PARTITION OFFSET
 *
 * START_US and END_US are times of CLOCK_MONOTONIC in µs, taken around the work alone. Keys must
 * not contain spaces or newlines; the keys of the workloads do not. Each process also keeps the
 * file `PID.progress` in the folder, 24 bytes of shared memory (struct bench_progress). With this
 * file, the benchmark sees the progress of a process that does not end after a number of messages.
 *
 *     bench_journal_open(&j, dir, lines)     once per process; if dir is NULL, messages are only
 *                                            counted, in memory
 *     bench_handle(&j, ...)                  from any thread: sleeps for the work, and writes the
 *                                            line
 *     bench_journal_close(&j)                after the last bench_handle(); writes the buffers out
 *
 * After any failure the process ends with an error text on stderr, because an incomplete journal
 * must not become a figure. */
#ifndef BENCH_JOURNAL_H
#define BENCH_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The contents of PID.progress, in native byte order. A time is 0 until it is known. */
struct bench_progress {
    /* number of messages, start of the first message, and end of the last message */
    _Atomic int64_t handled, first_us, last_us;
};

struct bench_thread;

struct bench_journal {
    struct bench_progress *progress;
    /* folder of the journal, borrowed from the caller; NULL means that no files are written */
    const char *dir;
    bool lines; /* true if each message gets a line */
    pthread_mutex_t lock;
    struct bench_thread *threads;
    /* number of this journal, by which a thread recognizes whether its open file belongs to this
     * journal */
    uint64_t serial;
};

int64_t bench_us(void); /* returns the time of CLOCK_MONOTONIC, in µs */

/* Opens the journal. If `lines` is false, messages are only counted and no lines are written. */
void bench_journal_open(struct bench_journal *j, const char *dir, bool lines);
/* Handles a message: sleeps for work_us (0 means no sleep), and records the message in the
 * journal. */
void bench_handle(struct bench_journal *j, int64_t work_us, const void *key, size_t n_key,
                  int32_t partition, int64_t offset);
/* Sleeps for work_us (0 means no sleep). Returns the time at which the sleep began. */
int64_t bench_work(int64_t work_us);
/* Records a message whose handling began at start_us and ended at end_us. */
void bench_record(struct bench_journal *j, int64_t start_us, int64_t end_us, const void *key,
                  size_t n_key, int32_t partition, int64_t offset);
void bench_journal_close(struct bench_journal *j);

#endif
