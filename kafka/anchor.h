/* SPDX-License-Identifier: Apache-2.0 */
/* Anchors detect a recreated topic, that is, a topic that was deleted and created again. It has the
 * same name and soon the same offsets, so offsets alone do not show that its records are new.
 *
 * An anchor describes one record: its offset, its timestamp, and a hash of its key and payload.
 * While a partition is assigned to this worker, an inspector (a thread with its own Kafka client)
 * reads that record again every few seconds and compares it with the anchor. The anchor is stored
 * in the commit metadata, so that the next owner of the partition compares too. Anchors work with
 * every supported version of the broker and of librdkafka.
 *
 * Commit metadata is the text beside a committed offset:
 *
 *     lw3:FLEET@OFFSET,TIMESTAMP,HASH
 *
 * FLEET is the name of the fleet that made the commit (queue/epoch.h), or empty if that was not
 * known. The anchor behind it is missing if there is none. Text of any other form was written by
 * another program, and means nothing. The text has no NUL, which librdkafka below 2.6.1 would
 * corrupt. */
#ifndef LW_KAFKA_ANCHOR_H
#define LW_KAFKA_ANCHOR_H

#include "config/config.h"
#include "queue/epoch.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

enum { LW_META_TEXT = 96 };

struct lw_anchor {
    int64_t offset; /* offset of the record; -1 if there is no anchor */
    int64_t timestamp_ms;
    uint64_t hash;
};

struct lw_anchor lw_anchor_of(const rd_kafka_message_t *m);
/* Writes commit metadata. Returns the length of the text. */
size_t lw_meta_encode(const char *fleet, const struct lw_anchor *a, char out[LW_META_TEXT]);
/* Reads commit metadata. Sets a->offset to -1 if it names no anchor, and `fleet` to "" if it names
 * no fleet. */
void lw_meta_decode(const char *text, size_t n, char fleet[LW_FLEET + 1], struct lw_anchor *a);

/* enum lw_look lists the possible answers of the inspector. struct lw_looked is a request about one
 * partition, together with its answer. */
enum lw_look { LW_LOOK_UNKNOWN, LW_LOOK_SAME, LW_LOOK_GONE, LW_LOOK_ANOTHER };
struct lw_looked {
    char topic[256];
    int32_t partition;
    uint32_t gen;
    int64_t begin; /* offset at which this worker began to read the partition */
    /* anchor to compare with; if its offset is -1, a record just before `begin` becomes the
     * anchor */
    struct lw_anchor anchor;
    /* a record that was delivered before the request and can become the next anchor */
    struct lw_anchor next;
    /* the answer; LW_LOOK_GONE means that retention or compaction deleted the record */
    enum lw_look found;
    char why[160]; /* the reason if the answer is LW_LOOK_ANOTHER */
};

struct lw_inspector;
/* Starts the inspector, which writes to the eventfd `fd` when an answer is ready. Returns NULL with
 * *err on failure. */
struct lw_inspector *lw_inspector_open(const struct lw_config *c, int fd, struct lw_err *err);
/* Returns true if a request has been made and its answer has not been taken yet. */
bool lw_inspector_busy(struct lw_inspector *i);
/* Requests the inspection of the n partitions in `all`, an array from malloc() whose ownership
 * passes to the inspector. Must not be called while the inspector is busy. */
void lw_inspector_ask(struct lw_inspector *i, struct lw_looked *all, size_t n);
/* Returns the array of the last request, filled with answers and owned by the caller again, or NULL
 * if the answers are not ready yet. */
struct lw_looked *lw_inspector_answer(struct lw_inspector *i, size_t *n);
/* Waits at most timeout_ms for the inspector's thread to end, then detaches it. */
void lw_inspector_close(struct lw_inspector *i, int64_t timeout_ms);

#endif
