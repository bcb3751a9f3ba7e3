/* SPDX-License-Identifier: Apache-2.0 */
/* The headers that a dead letter in a topic has in addition to the headers of its message.
 *
 *     latchwork-origin, -reason, -attempts     our own, as text: identity, reason, number of
 *                                              attempts
 *     kafka_dlt-original-topic, -partition, -offset, -timestamp
 *                                              as Spring for Apache Kafka writes them: numbers are
 *                                              big-endian, of 4, 8 and 8 bytes
 *     x-original-topic                         as Spring Cloud Stream writes it
 *
 * These headers follow the headers of the message, so a reader that takes the last header of a name
 * gets the value that the dead letter added. */
#ifndef LW_QUEUE_DEAD_HEADERS_H
#define LW_QUEUE_DEAD_HEADERS_H

#include "queue/key.h"

#include <stdbool.h>
#include <stdint.h>

enum { LW_DEAD_HEADERS = 8 }; /* maximum number of headers that a dead letter adds */

/* Describes a dead message, and has room for the values of the headers that the dead letter
 * adds. */
struct lw_dead_headers {
    /* topic, partition, offset and timestamp_ms are copied from the message */
    struct lw_bytes topic;
    int32_t partition;
    /* timestamp_ms is Kafka's timestamp; if it is -1 (unknown), no header contains it */
    int64_t offset, timestamp_ms;
    struct lw_bytes identity, reason;
    int attempts;
    /* the fields from here on are room for the values of headers, and lw_dead_headers_write() fills
     * them in */
    char digits[24];
    unsigned char partition_be[4], offset_be[8], timestamp_be[8];
};

/* Writes the headers that the dead letter adds, and returns their number. Their values point into
 * *l. */
size_t lw_dead_headers_write(struct lw_dead_headers *l, struct lw_header out[LW_DEAD_HEADERS]);
/* Returns true if a dead letter adds a header of this name. */
bool lw_dead_headers_have(struct lw_bytes name);

#endif
