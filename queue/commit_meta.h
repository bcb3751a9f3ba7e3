/* Commit metadata: the finished offsets above the watermark, as text beside the committed offset.
 *
 * Form: "lw1:" base64url(varint deltas of the ranges, relative to the committed offset) ":" 8 hex digits of XXH32 over the committed
 * offset and what stands before. At most LW_META_MAX bytes, no NUL (librdkafka below 2.6.1 corrupts those). What does not fit is left out,
 * highest first: metadata is a help, never a promise. Anything else than this form is foreign, a wrong checksum or an impossible range
 * corrupt: both decode to nothing, with a reason. Pure. */
#ifndef LW_QUEUE_COMMIT_META_H
#define LW_QUEUE_COMMIT_META_H

#include "base/err.h"
#include "queue/offsets.h"

enum { LW_META_MAX = 4096, LW_META_RANGES = 4096 };

/* Encodes ranges (sorted, disjoint, all above `committed`) into out[LW_META_MAX + 1], NUL-terminated. Returns its length; "" for none. */
size_t lw_meta_encode(int64_t committed, const struct lw_range *ranges, size_t n, char *out);
/* Decodes into out[max]; returns how many ranges, 0 for empty metadata, -1 with a reason in err for foreign or corrupt metadata. */
int lw_meta_decode(int64_t committed, const char *text, size_t len, struct lw_range *out, size_t max, struct lw_err *err);

#endif
