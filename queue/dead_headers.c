/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/dead_headers.h"

#include <assert.h>
#include <stdio.h>

enum added {
    ORIGIN,
    REASON,
    ATTEMPTS,
    DLT_TOPIC,
    DLT_PARTITION,
    DLT_OFFSET,
    DLT_TIMESTAMP,
    X_TOPIC
};

static const char *const names[LW_DEAD_HEADERS] = {
    [ORIGIN] = "latchwork-origin",
    [REASON] = "latchwork-reason",
    [ATTEMPTS] = "latchwork-attempts",
    [DLT_TOPIC] = "kafka_dlt-original-topic",
    [DLT_PARTITION] = "kafka_dlt-original-partition",
    [DLT_OFFSET] = "kafka_dlt-original-offset",
    [DLT_TIMESTAMP] = "kafka_dlt-original-timestamp",
    [X_TOPIC] = "x-original-topic",
};

static struct lw_bytes big_endian(uint64_t v, unsigned char *out, size_t n) {
    assert(n <= sizeof v);
    assert(n == sizeof v || v >> (8 * n) == 0);
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(v >> (8 * (n - 1 - i)));
    return lw_bytes((const char *)out, n);
}

size_t lw_dead_headers_write(struct lw_dead_headers *l, struct lw_header out[LW_DEAD_HEADERS]) {
    assert(l->topic.n && l->partition >= 0 && l->offset >= 0 && l->identity.n);
    const struct lw_bytes values[LW_DEAD_HEADERS] = {
        [ORIGIN] = l->identity,
        [REASON] = l->reason,
        [ATTEMPTS] =
            lw_bytes(l->digits, (size_t)snprintf(l->digits, sizeof l->digits, "%d", l->attempts)),
        [DLT_TOPIC] = l->topic,
        [DLT_PARTITION] =
            big_endian((uint32_t)l->partition, l->partition_be, sizeof l->partition_be),
        [DLT_OFFSET] = big_endian((uint64_t)l->offset, l->offset_be, sizeof l->offset_be),
        [DLT_TIMESTAMP] =
            big_endian((uint64_t)l->timestamp_ms, l->timestamp_be, sizeof l->timestamp_be),
        [X_TOPIC] = l->topic,
    };
    size_t n = 0;
    for (int i = 0; i < LW_DEAD_HEADERS; i++)
        if (i != DLT_TIMESTAMP || l->timestamp_ms >= 0)
            out[n++] = (struct lw_header){lw_bytes_of(names[i]), values[i]};
    assert(n == LW_DEAD_HEADERS - (l->timestamp_ms < 0));
    return n;
}

bool lw_dead_headers_have(struct lw_bytes name) {
    for (int i = 0; i < LW_DEAD_HEADERS; i++)
        if (lw_bytes_eq(name, lw_bytes_of(names[i]))) return true;
    return false;
}
