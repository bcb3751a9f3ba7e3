/* SPDX-License-Identifier: Apache-2.0 */
/* What the librdkafka that is loaded can do, and what it can't: its version and what was compiled into it decide that at run time, since
 * a program that was built with one version runs with another. One table holds every limit that concerns us (config/librdkafka.c). `check`
 * and every start report a limit that the configuration meets, before a broker fails on it with a message that names another cause. */
#ifndef LW_CONFIG_LIBRDKAFKA_H
#define LW_CONFIG_LIBRDKAFKA_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>

struct lw_librdkafka {
    int version;          /* as rd_kafka_version(): 0x020601ff is 2.6.1 */
    const char *text;     /* "2.6.1" */
    const char *features; /* as builtin.features: "gzip,ssl,sasl_plain" */
};

/* The library that is loaded. Lives as long as the process. */
const struct lw_librdkafka *lw_librdkafka_loaded(void);
/* True if the feature was compiled in. */
bool lw_librdkafka_has(const struct lw_librdkafka *k, const char *feature);
/* Reports what this library can't do with this property of kafka.properties. Returns true if the value is refused. */
bool lw_librdkafka_judge(const struct lw_librdkafka *k, const char *name, const char *value, struct lw_problems *problems);
/* Reports defects that concern every configuration. */
void lw_librdkafka_judge_all(const struct lw_librdkafka *k, struct lw_problems *problems);
/* Every limit of this library, one per line, each after `before`. */
void lw_librdkafka_limits(const struct lw_librdkafka *k, const char *before, struct lw_buf *out);
/* True if the library must not push client metrics to the brokers, which 2.5.0 does not survive. */
bool lw_librdkafka_mute(const struct lw_librdkafka *k);

#endif
