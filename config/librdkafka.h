/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what the loaded librdkafka can do and what it cannot do. The answers come from the
 * library's version and its compiled-in features, and are known only at run time, because a program
 * that was built with one version may run with another. config/librdkafka.c has a table of all
 * limits that concern Latchwork. The command `check` and every start report each limit that
 * concerns the configuration, before that limit causes a misleading error of a broker. */
#ifndef LW_CONFIG_LIBRDKAFKA_H
#define LW_CONFIG_LIBRDKAFKA_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>

struct lw_librdkafka {
    int version;      /* version as rd_kafka_version() returns it; 0x020601ff is 2.6.1 */
    const char *text; /* version as text, such as "2.6.1" */
    /* features as builtin.features lists them, such as "gzip,ssl,sasl_plain" */
    const char *features;
};

/* Returns a description of the loaded library, which stays valid until the process ends. */
const struct lw_librdkafka *lw_librdkafka_loaded(void);
/* Returns true if the feature was compiled into the library. */
bool lw_librdkafka_has(const struct lw_librdkafka *k, const char *feature);
/* Reports what this library cannot do with one property of kafka.properties. Returns true if the
 * value of the property is refused. */
bool lw_librdkafka_judge(const struct lw_librdkafka *k, const char *name, const char *value,
                         struct lw_problems *problems);
/* Warns of each limit of the loaded library that concerns every configuration, except the limits
 * that librdkafka.c marks as NOTE. */
void lw_librdkafka_judge_all(const struct lw_librdkafka *k, struct lw_problems *problems);
/* Appends a line for every limit of this library to `out`. Each line begins with `before`. */
void lw_librdkafka_limits(const struct lw_librdkafka *k, const char *before, struct lw_buf *out);
/* Returns true if the library must not push client metrics to the brokers, because it would abort
 * the process, as version 2.5.0 does. */
bool lw_librdkafka_mute(const struct lw_librdkafka *k);

#endif
