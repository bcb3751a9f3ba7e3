/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of Redis, whatever a server sends: the map of a cluster is usable or refused, and a
 * malformed reply can be described. */
#include "base/redis/cluster.h"
#include "base/redis/reply.h"
#include "base/redis/slot.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_map(const redisReply *r, const struct lw_redis_url *asked) {
    struct lw_slot_map map;
    struct lw_err err = {0};
    if (lw_slot_map_read(r, asked, &map, &err)) {
        HOLDS(err.text[0]);
        return;
    }
    for (int slot = 0; slot < LW_SLOTS; slot += 331) {
        const struct lw_span *span = lw_slot_map_find(&map, slot);
        HOLDS(!span || (span->first <= slot && slot <= span->last && span->n_nodes > 0));
        HOLDS(!span || (span->node[0].host && span->node[0].port > 0));
    }
    lw_slot_map_free(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char host[] = "127.0.0.1";
    const struct lw_redis_url asked = {.host = host, .port = 6379};
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    /* The reader keeps what is incomplete, so the bytes come in two parts. */
    for (size_t from = 0; from < size;) {
        size_t n = from ? size - from : (size + 1) / 2;
        if (redisReaderFeed(reader, (const char *)data + from, n)) break;
        from += n;
        while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
            char text[LW_REPLY_TEXT];
            HOLDS(strlen(lw_malformed(text, reply, "fuzz", "%s", "anything")) < sizeof text);
            (void)lw_reply_wrong(text, reply, "fuzz", REDIS_REPLY_ARRAY, "down");
            check_map(reply, &asked);
            freeReplyObject(reply);
            reply = NULL;
        }
    }
    redisReaderFree(reader);
    return 0;
}
