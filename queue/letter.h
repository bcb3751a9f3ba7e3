/* SPDX-License-Identifier: Apache-2.0 */
/* The headers that a dead letter in a topic carries behind those of its message.
 *
 *     latchwork-origin, -reason, -attempts     our own, as text: identity, reason, number of
 *                                              attempts
 *     kafka_dlt-original-topic, -partition, -offset, -timestamp
 *                                              as Spring for Apache Kafka writes them: numbers are
 *                                              big-endian, of 4, 8 and 8 bytes
 *     x-original-topic                         as Spring Cloud Stream writes it
 *
 * These headers stand behind the message's own, so a reader that takes the last header of a name
 * finds the letter's. */
#ifndef LW_QUEUE_LETTER_H
#define LW_QUEUE_LETTER_H

#include "queue/key.h"

#include <stdbool.h>
#include <stdint.h>

enum { LW_LETTER_HEADERS = 8 }; /* maximum number of headers that are added */

struct lw_letter {
    struct lw_bytes topic; /* topic, partition, offset and timestamp_ms are those of the message */
    int32_t partition;
    /* timestamp_ms is Kafka's; -1 if it is unknown, and then its header is left out */
    int64_t offset, timestamp_ms;
    struct lw_bytes identity, reason;
    int attempts;
    /* this member and those below are room for the values of headers; lw_letter_headers() fills
     * them in */
    char digits[24];
    unsigned char partition_be[4], offset_be[8], timestamp_be[8];
};

/* Writes the headers that the letter adds, and returns their number. Their values point into the
 * letter. */
size_t lw_letter_headers(struct lw_letter *l, struct lw_header out[LW_LETTER_HEADERS]);
/* Returns whether a letter adds a header of this name. */
bool lw_letter_adds(struct lw_bytes name);

#endif
