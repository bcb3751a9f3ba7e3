/* SPDX-License-Identifier: Apache-2.0 */
/* The last outcomes of a worker: rings in shared memory that the worker writes and other processes read at the same time.
 *
 * One thread writes to a ring, and never waits for a reader. A reader copies a record and then checks that the worker has not begun to
 * write over it; a record that changed meanwhile is discarded. If the worker dies while it writes, the record that it left half-written is
 * never read, and the process that replaces it writes over it. So a crash costs at most one record. Nothing is allocated.
 *
 * Failures (retries and dead letters) have a ring of their own, so that the many outcomes that went well do not push them out. */
#ifndef LW_CONSUMER_OUTCOMES_H
#define LW_CONSUMER_OUTCOMES_H

#include "base/bytes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LW_OUTCOMES = 1024, LW_FAILURES = 512, LW_OUTCOME_KEY = 64, LW_OUTCOME_REASON = 160 };

/* How a message, or one attempt of it, ended. */
enum lw_end { LW_END_DONE, LW_END_RETRY, LW_END_DEAD, LW_END_DROPPED, LW_END_SKIPPED, LW_END_BACK, LW_ENDS };
extern const char *const lw_end_name[LW_ENDS];

struct lw_outcome_record {
    int64_t at_ms; /* time when the outcome was recorded, ms since 1970 */
    int64_t offset;
    uint64_t fence;    /* 0: the message had no grant */
    uint64_t key_hash; /* hash of the whole key if the key is longer than LW_OUTCOME_KEY; otherwise 0 */
    int64_t took_us;   /* time in the handler; 0: it did not run */
    int32_t slot;      /* index of the partition on the board */
    uint32_t attempt;  /* 0: the handler did not run */
    uint8_t end;       /* enum lw_end */
    uint8_t n_key, n_reason;
    bool cut;                                      /* the reason was longer */
    char text[LW_OUTCOME_KEY + LW_OUTCOME_REASON]; /* the beginning of the key, then that of the reason */
};

enum { LW_OUTCOME_WORDS = (sizeof(struct lw_outcome_record) + 7) / 8 };

/* A record's place. `version` is 2n + 1 while record n is being written, and 2n + 2 afterwards. */
struct lw_outcome_cell {
    _Atomic uint64_t version;
    _Atomic uint64_t word[LW_OUTCOME_WORDS];
};

struct lw_outcome_rings {
    _Atomic uint64_t n_outcomes, n_failures; /* number of records ever written */
    struct lw_outcome_cell outcomes[LW_OUTCOMES];
    struct lw_outcome_cell failures[LW_FAILURES];
};

/* Returns true if such an outcome is kept in the ring of failures. */
static inline bool lw_end_failed(enum lw_end end) { return end == LW_END_RETRY || end == LW_END_DEAD; }

/* Sets the key and the reason of a record, and cuts both to size. The other fields stay. */
void lw_outcome_texts(struct lw_outcome_record *r, struct lw_bytes key, const char *reason);
/* Adds a record. Only the worker's main thread calls this. */
void lw_outcome_add(struct lw_outcome_rings *rings, const struct lw_outcome_record *r);
/* Returns how many records a ring has seen. Record n is there if n is below that number, and not more than the ring's size below it. */
uint64_t lw_outcome_count(const struct lw_outcome_rings *rings, bool failures);
/* Copies record n. Returns false if it is not in the ring any more, or is being written. */
bool lw_outcome_get(const struct lw_outcome_rings *rings, bool failures, uint64_t n, struct lw_outcome_record *out);
/* Returns true if the record is of this key. */
bool lw_outcome_has_key(const struct lw_outcome_record *r, struct lw_bytes key);

#endif
