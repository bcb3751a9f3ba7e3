/* SPDX-License-Identifier: Apache-2.0 */
/* A store into which the bare writer writes. The bare writer is a contender of the benchmark that
 * inserts rows without locks, and so shows how fast the store is. If a function fails, it ends the
 * program. */
#ifndef LW_BENCH_WRITER_H
#define LW_BENCH_WRITER_H

#include <librdkafka/rdkafka.h>
#include <stdint.h>

struct writer_store {
    void (*open)(const char *store); /* connects, and creates the table */
    void (*begin)(void);             /* begins a transaction */
    /* adds a row; the message must stay valid until commit() */
    void (*add)(const rd_kafka_message_t *m);
    void (*commit)(void);
    int64_t (*count)(void); /* returns the number of rows in the table */
    void (*close)(void);
};

extern const struct writer_store writer_postgres;

_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
