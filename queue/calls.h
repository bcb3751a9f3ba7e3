/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the calls of the scripts gate, settle and claim. In C only this file and calls.c know the
 * order of the keys and arguments. The first comment of each script (in queue/lua) explains them.
 * The calls become part of a pipeline (base/redis/command.h). No function does I/O.
 *
 * The parts of a call come in this order:
 *
 *     gate     lw_places_add (each message) → lw_gate_begin → lw_call_lane (each lane) →
 *              lw_gate_args → for each lane: lw_call_group (only if the lane has envelopes),
 *              lw_call_envelope, lw_call_dedup (for each message that has one)
 *     settle   lw_places_add (each message) → lw_settle_begin → lw_call_lane (each item) →
 *              lw_settle_args → lw_call_value (each value) → for each item: lw_settle_last,
 *              lw_call_dedup (each message; only if messages have business ids)
 *     claim    lw_claim_begin → lw_call_lane (each lane) → lw_claim_args
 *
 * In a settle call, the messages are in the order of their items. The settled messages of an item,
 * whose outcomes the call reports, come before the named messages of that item.
 *
 * Texts are borrowed: they must stay valid until the pipeline is sent, unless a comment says that
 * they are copied. */
#ifndef LW_QUEUE_CALLS_H
#define LW_QUEUE_CALLS_H

#include "base/bytes.h"
#include "base/redis/command.h"
#include "queue/codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- places: messages named by segment and index ---------------------------------------------- */

/* maximum number of messages and of segments per call; a place names its segment by one byte */
enum { LW_PLACES_MAX = 1024, LW_SEGMENTS_MAX = 250 };

/* A segment of a partition, with some messages of the call. */
struct lw_segment {
    /* "topic:partition", borrowed; compared by address, so all calls must use the same text for a
     * partition */
    const char *partition;
    int64_t segment;
    int lo, hi; /* first and last byte of the states of the call's messages */
    int n;      /* number of the call's messages in the segment */
};

struct lw_places {
    int n, n_bytes;
    struct lw_segment segment[LW_SEGMENTS_MAX];
    unsigned char bytes[3 * LW_PLACES_MAX];
};

void lw_places_clear(struct lw_places *p);
/* Returns true if `segments` more segments fit into `p`. */
bool lw_places_fit(const struct lw_places *p, int segments);
/* Adds a message and returns its segment. The caller may change the segment until it adds the next
 * message. */
void lw_places_add(struct lw_places *p, const char *partition, int64_t offset);

/* --- what all three calls say ----------------------------------------------------------------- */

struct lw_lane_call {
    struct lw_commands *commands;
    const char *sha;        /* SHA-1 of the script, 40 hex digits */
    struct lw_bytes prefix; /* beginning of the names of the shard's keys, "lw:{NAME.SHARD}:" */
    /* Names of Redis keys. All calls need the first four; settle also needs `ready` and `dead`, and
     * claim also needs `ready` and `claimed`. */
    const char *epoch, *lanes, *floor, *fence, *ready, *dead, *claimed;
    const char *epoch_id;
    int64_t redis_ms; /* for gate and claim: the time that the clock of Redis is expected to show */
    int64_t ttl_ms, handoff_ms;
    int fences; /* maximum number of fences that one lane may need in this call */
    bool skip;  /* for settle and claim: true if retry.order is skip */
};

/* Limits of settle and claim, in bytes. */
struct lw_call_bounds {
    size_t lane; /* maximum total size of the messages granted per lane */
    size_t call; /* maximum total size of the data that the call reads from waiting lists */
    size_t met;  /* approximate size of the largest envelope that the caller has seen recently */
};

enum { LW_TOKEN_TEXT = 256 };
/* lw_token_text() writes the token of a call, "WORKER.TOKEN". lw_value_text() writes the value of a
 * lock that this call holds, "WORKER.TOKEN:FENCE". Each function writes to `to` and returns the
 * text. */
struct lw_bytes lw_token_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token);
struct lw_bytes lw_value_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token,
                              uint64_t fence);

/* Adds a key to the call: the name of the lane's lock. */
void lw_call_lane(const struct lw_lane_call *c, struct lw_bytes lane);
/* Adds an argument to the call: a copy of an envelope. */
void lw_call_envelope(const struct lw_lane_call *c, struct lw_bytes envelope);
void lw_call_dedup(const struct lw_lane_call *c, struct lw_bytes id);
/* Adds an argument to the call: the group under which the lane waits; NULL if no limit of a group
 * concerns it. If `parks` is true, its messages must wait even if the lane is free, because the
 * group has no permit for them. */
void lw_call_group(const struct lw_lane_call *c, const struct lw_bytes *group, bool parks);
/* Adds an argument to the call: a copy of the value of a lock. */
void lw_call_value(const struct lw_lane_call *c, struct lw_bytes value);

/* --- gate ------------------------------------------------------------------------------------- */

struct lw_gate_call {
    bool dedup;            /* true if messages have a business id */
    struct lw_bytes token; /* token of the call, copied */
    /* one byte per lane: number of its messages, plus LW_GATE_ENVELOPES if they have envelopes;
     * copied. An empty text means one message per lane and no envelopes. */
    struct lw_bytes counts;
};

void lw_gate_begin(const struct lw_lane_call *c, const struct lw_places *p, int n_lanes);
void lw_gate_args(const struct lw_lane_call *c, const struct lw_places *p,
                  const struct lw_gate_call *g);

/* --- settle ----------------------------------------------------------------------------------- */

/* An item is the part of a settle call that concerns one lane. */
struct lw_settle_item {
    int value; /* index of the value of the lane's lock among the values of the call */
    /* `n_done` is the number of settled messages */
    int n_done;
    /* outcome of the last settled message; the outcome of the other ones is LW_DONE. If n_done is
     * 0, this field is LW_DONE. */
    enum lw_outcome outcome;
    enum lw_go go;
    int n_named;
    /* `want` is the number of wanted heads; `before` is the number of messages before them in the
     * waiting list */
    int want, before;
};
enum { LW_ITEM_BYTES = 7 };
void lw_settle_item(const struct lw_settle_item *it, unsigned char to[LW_ITEM_BYTES]);

struct lw_settle_call {
    bool dedup;
    int64_t window_s; /* time for which business ids are remembered, if `dedup` is true */
    struct lw_call_bounds bounds;
    struct lw_bytes items; /* encoded items, LW_ITEM_BYTES each; they are copied */
    int n_values;
};

void lw_settle_begin(const struct lw_lane_call *c, const struct lw_places *p, int n_lanes);
void lw_settle_args(const struct lw_lane_call *c, const struct lw_places *p,
                    const struct lw_settle_call *s);
/* Returns true if the arguments for a message with this outcome include the envelope. */
bool lw_settle_carries(enum lw_outcome outcome);
/* Adds the arguments that the last settled message of an item needs: for LW_RETRY, LW_LATER
 * and LW_BACK the backoff, the envelope and the group (as lw_call_group()), for LW_DEAD the reason
 * and the envelope. Copies the envelope. */
void lw_settle_last(const struct lw_lane_call *c, enum lw_outcome outcome, int64_t backoff_ms,
                    const char *reason, struct lw_bytes envelope, const struct lw_bytes *group);

/* --- claim ------------------------------------------------------------------------------------ */

struct lw_claim_call {
    int64_t taken;         /* number of hints to remove from `claimed` */
    struct lw_bytes token; /* token of the call, copied */
    int64_t want;          /* maximum number of heads per lane */
    struct lw_call_bounds bounds;
};

void lw_claim_begin(const struct lw_lane_call *c, int n_lanes);
void lw_claim_args(const struct lw_lane_call *c, const struct lw_claim_call *l);

#endif
