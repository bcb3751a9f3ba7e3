/* SPDX-License-Identifier: Apache-2.0 */
/* calls: builds the calls of gate, settle and claim. In C only this file and calls.c know the
 * order of the keys and arguments; the head of each script (queue/lua) says what they mean. The
 * calls go into a pipeline (base/redis/command.h); there is no I/O here.
 *
 * The parts of a call come in this order:
 *
 *     gate     lw_places_add (each message) → lw_gate_begin → lw_call_lane (each lane) →
 *              lw_gate_args → lw_call_envelope, lw_call_dedup (for each message that has one)
 *     settle   lw_places_add (of each item the finished, then the named) → lw_settle_begin →
 *              lw_call_lane (each item) → lw_settle_args → lw_call_value (each value) → of each
 *              item: lw_settle_last, lw_call_dedup (the finished, then the named; only with ids)
 *     claim    lw_claim_begin → lw_call_lane (each lane) → lw_claim_args
 *
 * Texts are lent: they must stay until the pipeline is sent, unless a comment says that they are
 * copied. */
#ifndef LW_QUEUE_CALLS_H
#define LW_QUEUE_CALLS_H

#include "base/bytes.h"
#include "base/redis/command.h"
#include "queue/codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- places: messages named by segment and index ---------------------------------------------- */

/* maximum number of messages and of segments per call; one byte names a segment */
enum { LW_PLACES_MAX = 1024, LW_GROUPS_MAX = 250 };

/* A segment of a partition, with some messages of the call. */
struct lw_group {
    /* "topic:partition", lent; compared by address, so each partition needs a single text */
    const char *partition;
    int64_t segment;
    int lo, hi; /* first and last byte of its messages' states */
    int n;      /* number of the call's messages in the segment */
    /* for gate with on_busy drop: first offset of the partition that is new in this epoch;
     * INT64_MAX: unknown */
    int64_t new_from;
};

struct lw_places {
    int n, n_bytes;
    struct lw_group group[LW_GROUPS_MAX];
    unsigned char bytes[3 * LW_PLACES_MAX];
};

void lw_places_clear(struct lw_places *p);
/* returns true if `groups` more segments fit */
bool lw_places_fit(const struct lw_places *p, int groups);
/* Adds a message and returns its segment, which may be changed until the next message is added. */
struct lw_group *lw_places_add(struct lw_places *p, const char *partition, int64_t offset);

/* --- what all three calls say ----------------------------------------------------------------- */

struct lw_call {
    struct lw_commands *commands;
    const char *sha;        /* SHA-1 of the script, 40 hex digits */
    struct lw_bytes prefix; /* beginning of the names of the shard's keys, "lw:{NAME.SHARD}:" */
    /* Names of keys: all calls need the first four, settle also ready and dead, claim also ready
     * and claimed. */
    const char *epoch, *lanes, *floor, *fence, *ready, *dead, *claimed;
    const char *epoch_id;
    int64_t redis_ms; /* time that Redis' clock should show, for gate and claim */
    int64_t ttl_ms, handoff_ms;
    int fences; /* number of fences that one lane may need */
    bool skip;  /* retry.order is skip; for settle and claim */
};

/* Limits of settle and claim, in bytes. */
struct lw_call_bounds {
    size_t lane; /* maximum size of what is granted per lane */
    size_t call; /* maximum size of what the call reads from waiting lists */
    size_t met;  /* about the size of the largest envelope that the caller met recently */
};

enum { LW_TOKEN_TEXT = 256 };
/* These functions write a text to `to` and return it. lw_token_text() writes the token of a call,
 * "WORKER.TOKEN"; lw_value_text() writes the value of a lock that this call holds,
 * "WORKER.TOKEN:FENCE". */
struct lw_bytes lw_token_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token);
struct lw_bytes lw_value_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token,
                              uint64_t fence);

/* adds the lane's lock as a key */
void lw_call_lane(const struct lw_call *c, struct lw_bytes lane);
/* adds an envelope, which is copied */
void lw_call_envelope(const struct lw_call *c, struct lw_bytes envelope);
void lw_call_dedup(const struct lw_call *c, struct lw_bytes id);
/* adds the value of a lock, which is copied */
void lw_call_value(const struct lw_call *c, struct lw_bytes value);

/* --- gate ------------------------------------------------------------------------------------- */

struct lw_gate_call {
    bool drop;             /* queue.on_busy is drop */
    bool dedup;            /* messages carry a business id */
    struct lw_bytes token; /* token of the call, copied */
    /* one byte per lane: number of its messages plus LW_GATE_… flags; "": one message each, no
     * flags; copied */
    struct lw_bytes counts;
};

void lw_gate_begin(const struct lw_call *c, const struct lw_places *p, int n_lanes);
void lw_gate_args(const struct lw_call *c, const struct lw_places *p, const struct lw_gate_call *g);

/* --- settle ----------------------------------------------------------------------------------- */

/* An item: the part of a settle call that concerns one lane. */
struct lw_settle_item {
    int value; /* index of the lock's value among the values of the call */
    int n_done;
    /* outcome of the last of the n_done messages (those before it are done); LW_DONE if n_done is
     * 0 */
    enum lw_outcome outcome;
    enum lw_go go;
    int n_named;
    /* number of heads wanted, and of messages that stand before them in the list */
    int want, before;
};
enum { LW_ITEM_BYTES = 7 };
void lw_settle_item(const struct lw_settle_item *it, unsigned char to[LW_ITEM_BYTES]);

struct lw_settle_call {
    bool dedup;
    int64_t window_s; /* how long business ids are remembered; with dedup only */
    struct lw_call_bounds bounds;
    struct lw_bytes items; /* encoded items, LW_ITEM_BYTES each; copied */
    int n_values;
};

void lw_settle_begin(const struct lw_call *c, const struct lw_places *p, int n_lanes);
void lw_settle_args(const struct lw_call *c, const struct lw_places *p,
                    const struct lw_settle_call *s);
/* lw_settle_last() adds what an item's last message needs: for LW_RETRY and LW_BACK the backoff
 * and the envelope, for LW_DEAD the reason and the envelope (copied). */
/* true if a call with this outcome carries the envelope */
bool lw_settle_carries(enum lw_outcome outcome);
void lw_settle_last(const struct lw_call *c, enum lw_outcome outcome, int64_t backoff_ms,
                    const char *reason, struct lw_bytes envelope);

/* --- claim ------------------------------------------------------------------------------------ */

struct lw_claim_call {
    int64_t taken;         /* number of hints to remove from `claimed` */
    struct lw_bytes token; /* token of the call, copied */
    int64_t want;          /* maximum number of heads per lane */
    struct lw_call_bounds bounds;
};

void lw_claim_begin(const struct lw_call *c, int n_lanes);
void lw_claim_args(const struct lw_call *c, const struct lw_claim_call *l);

#endif
