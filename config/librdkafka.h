/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what the loaded librdkafka can do, and what it cannot. Both are known only at run time,
 * from the library's version and the features compiled into it, because a program that was built
 * with one version may run with another. One table has every limit that concerns us
 * (config/librdkafka.c). `check` and every start report each limit that concerns the configuration,
 * before the limit causes a misleading error of a broker. */
#ifndef LW_CONFIG_LIBRDKAFKA_H
#define LW_CONFIG_LIBRDKAFKA_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>

struct lw_librdkafka {
    int version;          /* version as rd_kafka_version() returns it: 0x020601ff is 2.6.1 */
    const char *text;     /* "2.6.1" */
    const char *features; /* features as builtin.features lists them: "gzip,ssl,sasl_plain" */
};

/* Returns the loaded library, which lives as long as the process. */
const struct lw_librdkafka *lw_librdkafka_loaded(void);
/* Returns true if the feature was compiled in. */
bool lw_librdkafka_has(const struct lw_librdkafka *k, const char *feature);
/* Reports what this library cannot do with this property of kafka.properties. Returns true if the
 * value is refused. */
bool lw_librdkafka_judge(const struct lw_librdkafka *k, const char *name, const char *value,
                         struct lw_problems *problems);
/* Reports defects that concern every configuration. */
void lw_librdkafka_judge_all(const struct lw_librdkafka *k, struct lw_problems *problems);
/* Appends every limit of this library to `out`, one per line, with `before` in front of each. */
void lw_librdkafka_limits(const struct lw_librdkafka *k, const char *before, struct lw_buf *out);
/* Returns true if the library must not push client metrics to the brokers, because the library
 * would abort, as 2.5.0 does. */
bool lw_librdkafka_mute(const struct lw_librdkafka *k);

#endif
