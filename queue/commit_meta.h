/* SPDX-License-Identifier: Apache-2.0 */
/* Commit metadata: text beside the committed offset that lists the finished offsets above it and
 * names the fleet that made the commit.
 *
 *     lw2:FLEET:RANGES:CHECKSUM    the present form
 *     lw1:RANGES:CHECKSUM          the older form, still written while the fleet is not known
 *
 * FLEET consists of 16 hex digits that identify the fleet by its Redis. RANGES is base64url of
 * varint deltas relative to the committed offset; in the form lw2 it may be empty. CHECKSUM is 8
 * hex digits of XXH32 over the committed offset and the text before the checksum. The text has at
 * most LW_META_MAX bytes and no NUL (librdkafka below 2.6.1 corrupts metadata with a NUL). Ranges
 * that do not fit are omitted, the highest first, because the metadata need not be complete. A text
 * of any other form is foreign. A text with a wrong checksum or an impossible range is corrupt.
 * Decoding a foreign or corrupt text yields no ranges and a reason. No function does I/O.
 *
 * In Kafka, the anchor of the partition may follow this text (kafka/anchor.h). The anchor is
 * removed before the text is decoded. */
#ifndef LW_QUEUE_COMMIT_META_H
#define LW_QUEUE_COMMIT_META_H

#include "base/err.h"
#include "queue/offsets.h"

enum { LW_META_MAX = 4096, LW_META_RANGES = 4096, LW_META_FLEET = 16 };

/* Encodes ranges (sorted, disjoint, all above `committed`) into out[LW_META_MAX + 1],
 * NUL-terminated. The text has at most `max` bytes, because a broker may accept less than
 * LW_META_MAX. `fleet` consists of LW_META_FLEET hex digits, or is "". Returns the length, or 0 if
 * there is neither a range nor a fleet, or if nothing fits. */
size_t lw_meta_encode(int64_t committed, const struct lw_range *ranges, size_t n, size_t max,
                      const char *fleet, char *out);
/* Extracts the name of the fleet that made a commit from its metadata, into out[LW_META_FLEET + 1].
 * Returns false if the text names no fleet or is not valid. */
bool lw_meta_fleet(int64_t committed, const char *text, size_t len, char *out);
/* Decodes the ranges in commit metadata into out[max]. Returns the number of ranges, 0 for empty
 * metadata, or -1 with a reason in *err for foreign or corrupt metadata. */
int lw_meta_decode(int64_t committed, const char *text, size_t len, struct lw_range *out,
                   size_t max, struct lw_err *err);

#endif
