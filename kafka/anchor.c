/* SPDX-License-Identifier: Apache-2.0 */
#include "kafka/anchor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct lw_anchor lw_anchor_of(const rd_kafka_message_t *m) {
    uint64_t key =
        XXH3_64bits_withSeed(m->key ? m->key : "", m->key ? m->key_len : 0, m->key != NULL);
    return (struct lw_anchor){
        .offset = m->offset,
        .timestamp_ms = rd_kafka_message_timestamp(m, NULL),
        .hash = XXH3_64bits_withSeed(m->payload ? m->payload : "", m->payload ? m->len : 0, key)};
}

size_t lw_anchor_encode(const struct lw_anchor *a, char out[LW_ANCHOR_TEXT]) {
    out[0] = 0;
    if (a->offset < 0) return 0;
    return (size_t)snprintf(out, LW_ANCHOR_TEXT, "@%" PRId64 ",%" PRId64 ",%" PRIx64, a->offset,
                            a->timestamp_ms, a->hash);
}

size_t lw_anchor_decode(const char *metadata, size_t n, struct lw_anchor *a) {
    char text[LW_ANCHOR_TEXT];
    *a = (struct lw_anchor){.offset = -1};
    size_t at = n;
    while (at && metadata[at - 1] != '@' && n - at < sizeof text) at--;
    if (!at || metadata[at - 1] != '@' || n - at >= sizeof text) return n;
    memcpy(text, metadata + at, n - at);
    text[n - at] = 0;
    struct lw_anchor found = {0};
    int end = 0;
    if (sscanf(text, "%" SCNd64 ",%" SCNd64 ",%" SCNx64 "%n", &found.offset, &found.timestamp_ms,
               &found.hash, &end) != 3 ||
        (size_t)end != n - at || found.offset < 0)
        return n;
    *a = found;
    return at - 1;
}
