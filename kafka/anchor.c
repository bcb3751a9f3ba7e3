/* SPDX-License-Identifier: Apache-2.0 */
#include "kafka/anchor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PREFIX "lw3:"

struct lw_anchor lw_anchor_of(const rd_kafka_message_t *m) {
    uint64_t key =
        XXH3_64bits_withSeed(m->key ? m->key : "", m->key ? m->key_len : 0, m->key != NULL);
    return (struct lw_anchor){
        .offset = m->offset,
        .timestamp_ms = rd_kafka_message_timestamp(m, NULL),
        .hash = XXH3_64bits_withSeed(m->payload ? m->payload : "", m->payload ? m->len : 0, key)};
}

size_t lw_meta_encode(const char *fleet, const struct lw_anchor *a, char out[LW_META_TEXT]) {
    size_t n = (size_t)snprintf(out, LW_META_TEXT, PREFIX "%.*s", LW_FLEET, fleet);
    if (a->offset < 0) return n;
    return n + (size_t)snprintf(out + n, LW_META_TEXT - n, "@%" PRId64 ",%" PRId64 ",%" PRIx64,
                                a->offset, a->timestamp_ms, a->hash);
}

void lw_meta_decode(const char *text, size_t n, char fleet[LW_FLEET + 1], struct lw_anchor *a) {
    char copy[LW_META_TEXT];
    struct lw_anchor found = {.offset = -1};
    *a = found;
    fleet[0] = 0;
    if (!n || n >= sizeof copy) return;
    memcpy(copy, text, n);
    copy[n] = 0;
    if (strncmp(copy, PREFIX, strlen(PREFIX))) return;
    const char *name = copy + strlen(PREFIX), *at = name + strspn(name, "0123456789abcdef");
    int end = 0;
    if (at != name && at != name + LW_FLEET) return;
    if (*at && (sscanf(at, "@%" SCNd64 ",%" SCNd64 ",%" SCNx64 "%n", &found.offset,
                       &found.timestamp_ms, &found.hash, &end) != 3 ||
                at + end != copy + n || found.offset < 0))
        return;
    snprintf(fleet, LW_FLEET + 1, "%.*s", (int)(at - name), name);
    *a = found;
}
