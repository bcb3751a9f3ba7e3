/* SPDX-License-Identifier: Apache-2.0 */
/* The envelope: how a message looks in a waiting list and among the dead letters.
 *
 * One line of text that the scripts read, then bytes that only C reads:
 *
 *     "1 " topic " " partition " " offset " " replay " " first_ms " " timestamp_ms " " n_key " "
 *     n_dedup " " n_headers " " n_payload "\n" dedup key headers payload
 *
 * Numbers are decimal; n_key and n_payload are -1 for null. n_headers is the number of headers;
 * each header is the length of its name (u32 LE), the name, the length of its value (i32 LE; -1:
 * null), the value. first_ms is the wall time of the first arrival. Topic names hold no spaces
 * (Kafka allows [a-zA-Z0-9._-]). `dedup` stands first, so that a script finds it behind the
 * newline. The identity is topic/partition/offset, and #replay behind it if replay > 0. */
#ifndef LW_QUEUE_ENVELOPE_H
#define LW_QUEUE_ENVELOPE_H

#include "base/bytes.h"
#include "base/err.h"
#include "queue/key.h"

#include <stdint.h>

struct lw_envelope {
    /* key and payload may be null (p == NULL); dedup is empty if it is not configured */
    struct lw_bytes topic, key, dedup, payload;
    int32_t partition;
    int64_t offset, replay, first_ms, timestamp_ms; /* timestamp_ms is Kafka's; -1: unknown */
    /* owned by a decoded envelope; lw_envelope_clear() frees them */
    struct lw_header *headers;
    size_t n_headers;
};

/* a bound for the decoder that no Kafka record reaches */
enum { LW_ENVELOPE_HEADERS_MAX = 1 << 20 };

/* Appends the encoded envelope to out. */
void lw_envelope_encode(const struct lw_envelope *e, struct lw_buf *out);
/* Decodes an envelope; its texts point into `in`. Every length is checked: a torn or foreign
 * envelope is an error that says what is wrong and where. */
int lw_envelope_decode(struct lw_bytes in, struct lw_envelope *e, struct lw_err *err);
void lw_envelope_clear(struct lw_envelope *e); /* frees the headers */

#endif
