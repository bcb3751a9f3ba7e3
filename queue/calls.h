/* SPDX-License-Identifier: Apache-2.0 */
/* calls: how gate, settle and claim are called. This file and calls.c are all of C that knows the order of their keys and arguments; what
 * each of them means is said at the head of the script (queue/lua). It fills a pipeline (base/redis/command.h) and does no I/O.
 *
 * The parts of a call come in this order:
 *
 *     gate     lw_places_add (each message) → lw_gate_begin → lw_call_lane (each lane) → lw_gate_args → lw_call_envelope, lw_call_dedup
 *              (for each message that has one)
 *     settle   lw_places_add (of each item the finished, then the named) → lw_settle_begin → lw_call_lane (each item) → lw_settle_args →
 *              lw_call_value (each value) → of each item: lw_settle_last, lw_call_dedup (the finished, then the named; only with ids)
 *     claim    lw_claim_begin → lw_call_lane (each lane) → lw_claim_args
 *
 * Texts are lent until the pipeline is sent, unless it says that they are copied. */
#ifndef LW_QUEUE_CALLS_H
#define LW_QUEUE_CALLS_H

#include "base/bytes.h"
#include "base/redis/command.h"
#include "queue/codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- places: messages named by segment and index -------------------------------------------------------------------------------------- */

enum { LW_PLACES_MAX = 1024, LW_GROUPS_MAX = 250 }; /* maximum messages and segments per call; one byte names a segment */

/* A segment of a partition, with some messages of the call. */
struct lw_group {
    const char *partition; /* "topic:partition"; lent: the same pointer for the same partition */
    int64_t segment;
    int lo, hi;       /* first and last byte of its messages' states */
    int n;            /* number of its messages */
    int64_t new_from; /* gate with on_busy drop: from here on the partition is new in this epoch; INT64_MAX: not known */
};

struct lw_places {
    int n, n_bytes;
    struct lw_group group[LW_GROUPS_MAX];
    unsigned char bytes[3 * LW_PLACES_MAX];
};

void lw_places_clear(struct lw_places *p);
bool lw_places_fit(const struct lw_places *p, int groups); /* true if that many more segments fit */
/* Adds a message; returns its segment, until the next is added. */
struct lw_group *lw_places_add(struct lw_places *p, const char *partition, int64_t offset);

/* --- what all three calls say --------------------------------------------------------------------------------------------------------- */

struct lw_call {
    struct lw_commands *commands;
    const char *sha;                                                    /* of the script; 40 digits */
    struct lw_bytes prefix;                                             /* "lw:{NAME.SHARD}:" */
    const char *epoch, *lanes, *floor, *fence, *ready, *dead, *claimed; /* names of keys; gate needs the first four, settle six */
    const char *epoch_id;
    int64_t redis_ms; /* expected time of Redis; gate and claim */
    int64_t ttl_ms, handoff_ms;
    int fences; /* how many fences a lane may need */
    bool skip;  /* retry.order is skip; settle and claim */
};

/* Bounds in bytes of settle and claim. */
struct lw_call_bounds {
    size_t lane; /* granted per lane */
    size_t call; /* read from waiting lists */
    size_t met;  /* about the size of the largest envelope met recently */
};

enum { LW_TOKEN_TEXT = 256 };
/* What a call's token, and a lock's value while the call's grant holds it, look like: "WORKER.TOKEN" and "WORKER.TOKEN:FENCE".
 * Returns the text, which stands in `to`. */
struct lw_bytes lw_token_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token);
struct lw_bytes lw_value_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token, uint64_t fence);

void lw_call_lane(const struct lw_call *c, struct lw_bytes lane);         /* its lock, as a key */
void lw_call_envelope(const struct lw_call *c, struct lw_bytes envelope); /* copied */
void lw_call_dedup(const struct lw_call *c, struct lw_bytes id);
void lw_call_value(const struct lw_call *c, struct lw_bytes value); /* copied */

/* --- gate ----------------------------------------------------------------------------------------------------------------------------- */

struct lw_gate_call {
    bool drop;              /* on_busy */
    bool dedup;             /* messages carry a business id */
    struct lw_bytes token;  /* copied */
    struct lw_bytes counts; /* a byte per lane: its number of messages, plus LW_GATE_…; copied; empty: one message per lane, no flags */
};

void lw_gate_begin(const struct lw_call *c, const struct lw_places *p, int n_lanes);
void lw_gate_args(const struct lw_call *c, const struct lw_places *p, const struct lw_gate_call *g);

/* --- settle --------------------------------------------------------------------------------------------------------------------------- */

/* What becomes of a lane. */
struct lw_settle_item {
    int value; /* index of its lock's value among those of the call */
    int n_done;
    enum lw_outcome outcome; /* of the last of the n_done, LW_DONE if there is none; those before it are done */
    enum lw_go go;
    int n_named;
    int want, before; /* number of heads wanted, and of messages that stand before them in the list */
};
enum { LW_ITEM_BYTES = 7 };
void lw_settle_item(const struct lw_settle_item *it, unsigned char to[LW_ITEM_BYTES]);

struct lw_settle_call {
    bool dedup;
    int64_t window_s; /* with dedup */
    struct lw_call_bounds bounds;
    struct lw_bytes items; /* LW_ITEM_BYTES each; copied */
    int n_values;
};

void lw_settle_begin(const struct lw_call *c, const struct lw_places *p, int n_lanes);
void lw_settle_args(const struct lw_call *c, const struct lw_places *p, const struct lw_settle_call *s);
/* What an item's last message needs: LW_RETRY, LW_BACK: backoff_ms and envelope; LW_DEAD: reason and envelope, which is copied. */
bool lw_settle_carries(enum lw_outcome outcome); /* the envelope */
void lw_settle_last(const struct lw_call *c, enum lw_outcome outcome, int64_t backoff_ms, const char *reason, struct lw_bytes envelope);

/* --- claim ---------------------------------------------------------------------------------------------------------------------------- */

struct lw_claim_call {
    int64_t taken;         /* hints that leave `claimed` */
    struct lw_bytes token; /* copied */
    int64_t want;          /* heads of each lane, at most */
    struct lw_call_bounds bounds;
};

void lw_claim_begin(const struct lw_call *c, int n_lanes);
void lw_claim_args(const struct lw_call *c, const struct lw_claim_call *l);

#endif
