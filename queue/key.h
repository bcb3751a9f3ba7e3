/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the primary key or the business id of a record by a rule: `message-key`, `header:NAME` or
 * `json:/pointer`.
 *
 * The value of a JSON string is its decoded text, and the value of a number is its text in the
 * document (so 1.0 and 1 are two keys). If several headers have the name NAME, the last one counts.
 * An empty key of a Kafka record is a key; a null key is missing. The whole document is scanned
 * (base/json_scan.h), so that malformed JSON is found anywhere in it. If an object contains a name
 * twice, the last one counts. If the pointer leads to null or to nothing, the key is missing. If
 * the pointer leads to true, false, an object or an array, the key is bad. */
#ifndef LW_QUEUE_KEY_H
#define LW_QUEUE_KEY_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

struct lw_header {
    struct lw_bytes name, value; /* name and value of a header; value.p is NULL for a null value */
};

/* The parts of a record that a rule can refer to. All texts are borrowed. */
struct lw_record {
    struct lw_bytes key, payload; /* key and payload of the record; null if p is NULL */
    const struct lw_header *headers;
    size_t n_headers;
};

enum lw_key_result { LW_KEY_OK, LW_KEY_MISSING, LW_KEY_BAD };

/* Finds the value that the rule names in a record. With LW_KEY_OK, `*out` points into the record,
 * or into `scratch` if escapes had to be decoded (earlier content of `scratch` is discarded). With
 * LW_KEY_MISSING and LW_KEY_BAD, `err` gets the reason. For malformed JSON, the reason names a
 * position, counted from 0 ("malformed JSON at byte 17: …"). Thread-safe. */
enum lw_key_result lw_key_find(const struct lw_rule *rule, const struct lw_record *r,
                               struct lw_buf *scratch, struct lw_bytes *out, struct lw_err *err);

/* Topic, partition and offset of a record. */
struct lw_record_at {
    struct lw_bytes topic;
    int32_t partition;
    int64_t offset;
};

/* Finds the primary key as configured. If the record has no key and key.missing is `own`, its key
 * is its identity, "topic/partition/offset", which is written to `scratch`. The record then has a
 * lane of its own, and handlers and commands can name the lane by this key. In every other case the
 * function works like lw_key_find(). */
enum lw_key_result lw_key_of(const struct lw_config *c, const struct lw_record *r,
                             const struct lw_record_at *at, struct lw_buf *scratch,
                             struct lw_bytes *out, struct lw_err *err);

/* Formats a key for display: as text if it is valid UTF-8, otherwise as hex. Long keys are
 * truncated. */
enum { LW_KEY_SHOWN = 200, LW_KEY_TEXT = 2 * LW_KEY_SHOWN + 8 };
void lw_key_plain(struct lw_bytes key, char out[LW_KEY_TEXT]);
struct lw_log_field;
/* Makes the field of a log line that shows a key, or its hash, in the form that log.keys sets.
 * Returns false if keys are not shown. */
bool lw_key_field(enum lw_log_keys how, struct lw_bytes key, uint64_t hash, char text[LW_KEY_TEXT],
                  struct lw_log_field *out);

#endif
