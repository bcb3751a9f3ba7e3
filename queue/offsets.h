/* SPDX-License-Identifier: Apache-2.0 */
/* The offsets tracker of one partition: which records were delivered, which of them are finished,
 * and therefore where the watermark is.
 *
 *     committed          watermark                  next
 *         |  done done done | in  done waiting done |  not delivered yet; some of it may be known
 *                                                      done ("ahead")
 *
 * The watermark is the lowest offset that is not finished. Offsets that Kafka skips (compaction,
 * transaction markers) count as finished once a later record, or the end of the partition, was
 * delivered. Every record is IN after its delivery, WAITING while it is parked in Redis, and
 * finally DONE. Only lw_offsets_rewind() lowers a state. Each record between the watermark and
 * `next` takes 16 bytes (lw_offsets_held()). The tracker doubles its memory when it is full, and
 * halves it when less than an eighth is used. The caller must stop delivering when the tracker
 * holds too many records. The tracker is not thread-safe, uses no clock and does no I/O. */
#ifndef LW_QUEUE_OFFSETS_H
#define LW_QUEUE_OFFSETS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum lw_offset_state { LW_OFF_UNKNOWN, LW_OFF_IN, LW_OFF_WAITING, LW_OFF_DONE };

struct lw_range {
    int64_t lo, hi; /* the range contains the offsets with lo <= offset < hi */
};

struct lw_offsets;

/* Creates an empty tracker, with next = watermark = committed. */
struct lw_offsets *lw_offsets_open(int64_t committed);
void lw_offsets_free(struct lw_offsets *t);

/* Records the delivery of a record. Returns LW_OFF_UNKNOWN if the record is new (its state becomes
 * IN), or LW_OFF_DONE if the record is below the watermark or was known to be done before it was
 * delivered. Otherwise the record was delivered twice and must be ignored; then the function
 * returns the record's present state. `tag` is a hash of the key, which lw_offsets_each() and
 * lw_offsets_rewind() pass to their callbacks. A record at or above `next` raises `next` to
 * offset + 1; the offsets from the old `next` to the record are a gap. */
enum lw_offset_state lw_offsets_deliver(struct lw_offsets *t, int64_t offset, uint32_t tag);
/* Records that the partition ends at `offset`: every lower offset was delivered or is a gap. */
void lw_offsets_end(struct lw_offsets *t, int64_t offset);
/* Raises the state of a delivered record to `state`: from IN to WAITING, from IN to DONE, or from
 * WAITING to DONE. Returns false and changes nothing if `state` is not above the record's state, or
 * if the record was not delivered (the caller must mark it again after its delivery). */
bool lw_offsets_mark(struct lw_offsets *t, int64_t offset, enum lw_offset_state state);
/* Records offsets that are known to be done before their delivery (from states in Redis). Offsets
 * below `next` are ignored. Ranges may overlap. */
void lw_offsets_ahead(struct lw_offsets *t, struct lw_range done);
/* Returns the state of an offset. If the offset is below the watermark, or is known to be done
 * before its delivery, returns DONE. Otherwise returns the state of the offset's record, or UNKNOWN
 * if no such record was delivered. */
enum lw_offset_state lw_offsets_get(const struct lw_offsets *t, int64_t offset);

int64_t lw_offsets_watermark(const struct lw_offsets *t);
int64_t lw_offsets_next(const struct lw_offsets *t);
size_t lw_offsets_waiting(const struct lw_offsets *t); /* number of records in state WAITING */
/* Returns the number of unfinished records, which are IN or WAITING. */
size_t lw_offsets_unfinished(const struct lw_offsets *t);

/* Returns the number of tracked records, which lie between the watermark and `next`. */
size_t lw_offsets_held(const struct lw_offsets *t);

/* Searches upwards from *offset for a record in `state`. Sets *offset to the offset of the first
 * such record, and returns true. Passes at most *budget records that are not in `state`, and
 * reduces *budget by the number of these records. Returns false if *budget is used up (then *offset
 * is the offset at which the search must continue) or if no records are left (then *offset is
 * `next`). */
bool lw_offsets_find(const struct lw_offsets *t, enum lw_offset_state state, int64_t *offset,
                     size_t *budget);

/* Calls fn for every record in `state` with lo <= offset < hi, in order of offset, until fn returns
 * false. */
void lw_offsets_each(const struct lw_offsets *t, enum lw_offset_state state, int64_t lo, int64_t hi,
                     bool (*fn)(void *ctx, int64_t offset, uint32_t tag), void *ctx);

/* Forgets every delivery from the watermark on, and sets next = watermark. A DONE record above the
 * watermark stays known to be done (ahead) if keep(ctx, offset, …) returns true. keep() is called
 * for IN, WAITING and DONE records in order of offset, so that it can require that all earlier
 * records of the same key are done; its answer matters only for DONE records. Ranges that were
 * known to be done ahead of their delivery are forgotten. Returns the watermark. */
typedef bool lw_offsets_keep_fn(void *ctx, int64_t offset, enum lw_offset_state state,
                                uint32_t tag);
int64_t lw_offsets_rewind(struct lw_offsets *t, lw_offsets_keep_fn *keep, void *ctx);

#endif
