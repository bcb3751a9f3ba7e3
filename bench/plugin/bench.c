/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin with which the benchmark measures Latchwork. The handler sleeps, and writes a journal
 * (bench/journal.h).
 *
 *     "handler": {"type": "plugin", "path": "bench.so", "threads": 8,
 *                 "config": {"work_us": 1000, "journal": "FOLDER", "lines": 1}}
 *
 * `work_us` is the sleep per message; 0 (default) means no sleep. `journal` is a folder for
 * `PID.progress` and, if `lines` is 1, for one line per message.
 *
 * Compiled with BENCH_BATCH_MAX, the handler takes batches of up to BENCH_BATCH_MAX messages of one
 * key, and sleeps once per batch. Each message of a batch is recorded with an equal share of the
 * time, in order, because bench/judge.c reports runs of a key that
 * overlap. */
#include "bench/journal.h"

#include <latchwork/handler.h>

#include <stdlib.h>
#include <string.h>

struct bench {
    struct bench_journal journal;
    int64_t work_us;
};

static int init(const struct latchwork_host *host, const char *config, void **self, char *error,
                size_t error_size) {
    (void)config;
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        snprintf(error, error_size, "out of memory");
        return -1;
    }
    const char *work = host->setting(host, "/work_us"), *lines = host->setting(host, "/lines");
    b->work_us = work ? atoll(work) : 0;
    bench_journal_open(&b->journal, host->setting(host, "/journal"), lines && !strcmp(lines, "1"));
    *self = b;
    return 0;
}

#ifdef BENCH_BATCH_MAX
static void handle_batch(void *self, const struct latchwork_message *const *messages,
                         struct latchwork_answer *const *answers, size_t n) {
    struct bench *b = self;
    int64_t start_us = bench_work(b->work_us), share_us = (bench_us() - start_us) / (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        const struct latchwork_message *m = messages[i];
        int64_t at_us = start_us + (int64_t)i * share_us;
        bench_record(&b->journal, at_us, at_us + share_us, m->key, m->key_len, m->partition,
                     m->offset);
        answers[i]->outcome = LATCHWORK_DONE;
    }
}
#else
static int handle(void *self, const struct latchwork_message *m, char *reason, size_t reason_size) {
    (void)reason, (void)reason_size;
    struct bench *b = self;
    bench_handle(&b->journal, b->work_us, m->key, m->key_len, m->partition, m->offset);
    return LATCHWORK_DONE;
}
#endif

static void finish(void *self) {
    struct bench *b = self;
    bench_journal_close(&b->journal);
    free(b);
}

LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {
    LATCHWORK_HANDLER_INIT,
    .init = init,
    .close = finish,
#ifdef BENCH_BATCH_MAX
    .handle_batch = handle_batch,
    .batch_max = BENCH_BATCH_MAX,
    .batch_of = LATCHWORK_BATCH_ONE_KEY,
#else
    .handle = handle,
#endif
};
