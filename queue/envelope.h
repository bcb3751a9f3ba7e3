/* SPDX-License-Identifier: Apache-2.0 */
/* The envelope is the form of a message in a waiting list and among the dead letters.
 *
 * It consists of one line of text, then bytes. The scripts read only the line and `dedup`.
 *
 *     "1 " topic " " partition " " offset " " replay " " first_ms " " timestamp_ms " " n_key " "
 *     n_dedup " " n_headers " " n_payload "\n" dedup key headers payload
 *
 * Numbers are decimal; n_key and n_payload are -1 for null. n_headers is the number of headers.
 * Each header consists of the length of its name (u32 LE), the name, the length of its value (i32
 * LE, or -1 for null), and the value. first_ms is the wall time of the first arrival. Topic names
 * contain no spaces (Kafka allows [a-zA-Z0-9._-]). `dedup`, the business id, follows the newline
 * directly, so that a script can find it. The identity of the message is topic/partition/offset,
 * followed by #replay if replay > 0. */
#ifndef LW_QUEUE_ENVELOPE_H
#define LW_QUEUE_ENVELOPE_H

#include "base/bytes.h"
#include "base/err.h"
#include "queue/key.h"

#include <stdint.h>

struct lw_envelope {
    /* key and payload may be null (p == NULL); `dedup` is empty if no business id is configured */
    struct lw_bytes topic, key, dedup, payload;
    int32_t partition;
    /* timestamp_ms is the timestamp that Kafka recorded, or -1 if it is unknown */
    int64_t offset, replay, first_ms, timestamp_ms;
    /* array of headers; a decoded envelope owns the array, and lw_envelope_clear() frees it */
    struct lw_header *headers;
    size_t n_headers;
};

/* maximum number of headers that the decoder accepts; no Kafka record has as many */
enum { LW_ENVELOPE_HEADERS_MAX = 1 << 20 };

/* Encodes a message as an envelope, and appends the envelope to `out`. */
void lw_envelope_encode(const struct lw_envelope *e, struct lw_buf *out);
/* Decodes an envelope. The texts in *e then point into `in`. Every length is checked. Returns 0, or
 * -1 if the envelope is truncated or foreign; then *err says what is wrong and at which byte. */
int lw_envelope_decode(struct lw_bytes in, struct lw_envelope *e, struct lw_err *err);
void lw_envelope_clear(struct lw_envelope *e); /* frees the array of headers */

#endif
