/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the last outcomes of a worker in ring buffers in shared memory: the worker writes them
 * while other processes read them.
 *
 * One thread writes to a ring, and never waits for a reader. A reader copies a record and then
 * checks that the worker has not begun to overwrite it. A record that changed during the copy is
 * discarded. If the worker dies while it writes, the half-written record is never read, and the
 * process that replaces the worker overwrites it. So a crash costs at most one record. No function
 * of this file allocates memory.
 *
 * Failures (retries, dead letters, and what became of a message that had failed before) have a ring
 * of their own, so that the many outcomes of keys that never fail do not push them out.
 *
 * Outcomes of a key that fails or waits are also kept in a small ring for the key, so that an
 * operator finds them for a key that stands still while others go on. Keys share these rings by the
 * hash of their names. */
#ifndef LW_CONSUMER_OUTCOMES_H
#define LW_CONSUMER_OUTCOMES_H

#include "base/bytes.h"
#include "queue/codes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LW_OUTCOMES = 1024, LW_FAILURES = 512, LW_OUTCOME_KEY = 64, LW_OUTCOME_REASON = 160 };
enum { LW_KEY_RINGS = 512, LW_KEY_OUTCOMES = 4 };

/* Lists how a message, or one attempt of a message, can end: with an outcome (enum lw_outcome) or,
 * if no handler sees the message, as dropped or skipped. The values of this enum are small numbers,
 * which serve as bits and indexes. The values of enum lw_outcome are letters of the protocol with
 * Redis. lw_end_of() converts an outcome to an end. */
enum lw_end {
    LW_END_DONE,
    LW_END_RETRY,
    LW_END_DEAD,
    LW_END_DROPPED,
    LW_END_SKIPPED,
    LW_END_BACK,
    LW_ENDS
};
extern const char *const lw_end_name[LW_ENDS];
/* Returns the end that belongs to an outcome. LW_DEAD_SENT has the same end as LW_DEAD. */
enum lw_end lw_end_of(enum lw_outcome outcome);

struct lw_outcome_record {
    int64_t at_ms; /* time when the outcome was recorded, ms since 1970 */
    int64_t offset;
    uint64_t fence; /* fence of the grant; 0: the message had no grant */
    /* `key_hash` is the hash of the whole key if the key is longer than LW_OUTCOME_KEY; otherwise
     * 0 */
    uint64_t key_hash;
    uint64_t number;  /* its number in its ring: of failures, or the other one */
    int64_t took_us;  /* time that the handler took; 0: the handler did not run */
    int32_t slot;     /* index of the partition on the board */
    uint32_t attempt; /* number of the attempt; 0: the handler did not run */
    uint8_t end;      /* how the message has ended, as enum lw_end */
    uint8_t n_key, n_reason;
    /* `cut` is true if the reason was longer than the space for it, and was shortened */
    bool cut;
    /* `text` holds the beginning of the key, followed by the beginning of the reason */
    char text[LW_OUTCOME_KEY + LW_OUTCOME_REASON];
};

enum { LW_OUTCOME_WORDS = (sizeof(struct lw_outcome_record) + 7) / 8 };

/* Holds a record in a ring. `version` is 2n + 1 while record n is being written, and 2n + 2
 * afterwards. */
struct lw_outcome_cell {
    _Atomic uint64_t version;
    _Atomic uint64_t word[LW_OUTCOME_WORDS];
};

/* The last outcomes of a key that fails or waits. */
struct lw_key_ring {
    _Atomic uint64_t n; /* number of records ever written */
    struct lw_outcome_cell cell[LW_KEY_OUTCOMES];
};

struct lw_outcome_rings {
    /* `n_outcomes` and `n_failures` are the numbers of records ever written to the two rings */
    _Atomic uint64_t n_outcomes, n_failures;
    struct lw_outcome_cell outcomes[LW_OUTCOMES];
    struct lw_outcome_cell failures[LW_FAILURES];
    struct lw_key_ring keys[LW_KEY_RINGS];
};

static inline bool lw_end_failed(enum lw_end end) {
    return end == LW_END_RETRY || end == LW_END_DEAD;
}

/* Returns true if the record is kept in the ring of failures. */
static inline bool lw_outcome_failed(const struct lw_outcome_record *r) {
    return lw_end_failed((enum lw_end)r->end) || r->attempt > 1;
}

/* Sets the key and the reason of a record, each cut to the space for it. The other fields stay as
 * they are. */
void lw_outcome_texts(struct lw_outcome_record *r, struct lw_bytes key, const char *reason);
/* Adds a record to the ring of failures if it belongs there (lw_outcome_failed), otherwise to the
 * other ring; and to the key's ring if it is a failure, or if the message had waited. Sets the
 * record's number. Only the worker's main thread calls this function. */
void lw_outcome_add(struct lw_outcome_rings *rings, struct lw_outcome_record *r, bool waited);
/* Returns how many records have been added to a ring so far. Records are numbered from 0. The ring
 * holds only the newest of these records, one per cell. */
uint64_t lw_outcome_count(const struct lw_outcome_rings *rings, bool failures);
/* Copies record n. Returns false if the record was overwritten, or is being overwritten now. */
bool lw_outcome_get(const struct lw_outcome_rings *rings, bool failures, uint64_t n,
                    struct lw_outcome_record *out);
/* Returns the ring of this key, which it may share with other keys. */
const struct lw_key_ring *lw_outcome_key_ring(const struct lw_outcome_rings *rings,
                                              struct lw_bytes key);
/* Copies record n of a key's ring. Returns false as lw_outcome_get() does. */
bool lw_outcome_get_key(const struct lw_key_ring *ring, uint64_t n, struct lw_outcome_record *out);
/* Returns true if the key of the record is this key. */
bool lw_outcome_has_key(const struct lw_outcome_record *r, struct lw_bytes key);

#endif
