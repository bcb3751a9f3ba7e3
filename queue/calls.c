/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/calls.h"

#include "queue/lane.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* If the messages of a call in a segment lie close together, with at least one message per 128
 * bytes of states, the script reads all states from the first to the last message with one command.
 * Otherwise the script reads one page per message. Redis needs about as much time for one more
 * command as for 100 more bytes. */
enum { DENSE_BYTES = 128 };

/* maximum length of a segment's name, which consists of topic, partition and number */
enum { NAME_MAX_BYTES = 370 };

/* --- places ----------------------------------------------------------------------------------- */

void lw_places_clear(struct lw_places *p) { p->n = p->n_bytes = 0; }

/* Asserts that the numbers of segments and of messages agree: each segment has a message, and each
 * message has three bytes. */
static inline void check_places(const struct lw_places *p) {
    assert(p->n >= 0 && p->n <= LW_SEGMENTS_MAX);
    assert(p->n_bytes % 3 == 0 && p->n_bytes <= 3 * LW_PLACES_MAX);
    assert(p->n <= p->n_bytes / 3 && !p->n == !p->n_bytes);
}

bool lw_places_fit(const struct lw_places *p, int segments) {
    assert(p->n <= LW_SEGMENTS_MAX && segments >= 0);
    return p->n + segments <= LW_SEGMENTS_MAX;
}

static struct lw_segment *segment_of(struct lw_places *p, const char *partition, int64_t segment) {
    for (int i = p->n - 1; i >= 0; i--)
        if (p->segment[i].partition == partition && p->segment[i].segment == segment)
            return &p->segment[i];
    assert(p->n < LW_SEGMENTS_MAX);
    struct lw_segment *s = &p->segment[p->n++];
    *s = (struct lw_segment){
        .partition = partition, .segment = segment, .lo = LW_SEGMENT / 4, .hi = 0};
    return s;
}

void lw_places_add(struct lw_places *p, const char *partition, int64_t offset) {
    assert(partition && offset >= 0);
    int index = (int)(offset % LW_SEGMENT), byte = index / 4;
    struct lw_segment *s = segment_of(p, partition, offset / LW_SEGMENT);
    if (byte < s->lo) s->lo = byte;
    if (byte > s->hi) s->hi = byte;
    s->n++;
    assert((size_t)p->n_bytes + 3 <= sizeof p->bytes);
    p->bytes[p->n_bytes++] = (unsigned char)(s - p->segment + 1);
    p->bytes[p->n_bytes++] = (unsigned char)(index >> 8);
    p->bytes[p->n_bytes++] = (unsigned char)(index & 255);
}

/* Asserts that the fields of a call that every script needs are set. */
static inline void check_call(const struct lw_lane_call *c) {
    assert(c->epoch_id && c->ttl_ms > 0);
}

static void places_keys(const struct lw_lane_call *c, const struct lw_places *p) {
    check_places(p);
    for (int i = 0; i < p->n; i++) {
        char name[NAME_MAX_BYTES];
        size_t n = strlen(p->segment[i].partition);
        assert(n + 22 < sizeof name);
        memcpy(name, p->segment[i].partition, n);
        name[n++] = ':';
        n += lw_decimal(p->segment[i].segment, name + n);
        lw_arg_join(c->commands, c->prefix, "state:", lw_bytes(name, n));
        lw_arg_join(c->commands, c->prefix, "tries:", lw_bytes(name, n));
    }
}

static void places_args(const struct lw_lane_call *c, const struct lw_places *p) {
    check_places(p);
    lw_arg_copy(c->commands, (const char *)p->bytes, (size_t)p->n_bytes);
    lw_arg_i64(c->commands, p->n);
    for (int i = 0; i < p->n; i++) {
        const struct lw_segment *s = &p->segment[i];
        /* if the messages are dense, the script reads one range of states; if not, the page of each
         * message */
        bool dense = s->hi - s->lo < DENSE_BYTES * s->n;
        lw_arg_text(c->commands, s->partition), lw_arg_i64(c->commands, s->segment);
        lw_arg_i64(c->commands, dense ? s->lo : 1), lw_arg_i64(c->commands, dense ? s->hi : 0);
    }
}

/* --- what all three calls say ----------------------------------------------------------------- */

static void begin(const struct lw_lane_call *c, int n_keys) {
    check_call(c);
    assert(n_keys >= 4);
    lw_cmd(c->commands, "EVALSHA");
    lw_arg_text(c->commands, c->sha);
    lw_arg_i64(c->commands, n_keys);
    lw_arg_text(c->commands, c->epoch), lw_arg_text(c->commands, c->lanes);
    lw_arg_text(c->commands, c->floor), lw_arg_text(c->commands, c->fence);
}

static void arg_clock(const struct lw_lane_call *c) {
    lw_arg_i64(c->commands, c->redis_ms), lw_arg_i64(c->commands, c->ttl_ms / 4);
}

static void arg_order(const struct lw_lane_call *c) {
    lw_arg_text(c->commands, c->skip ? "skip" : "block");
}

static void arg_copied(const struct lw_lane_call *c, struct lw_bytes b) {
    lw_arg_copy(c->commands, b.p, b.n);
}

static void arg_bounds(const struct lw_lane_call *c, const struct lw_call_bounds *b) {
    char text[80];
    int n = snprintf(text, sizeof text, "%zu %zu %zu", b->lane, b->call, b->met);
    assert(n > 0 && (size_t)n < sizeof text);
    lw_arg_copy(c->commands, text, (size_t)n);
}

struct lw_bytes lw_token_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token) {
    size_t n = strlen(worker);
    /* LW_TOKEN_TEXT leaves room for the worker's id, two numbers and the separators between them */
    assert(token > 0 && n + 48 < LW_TOKEN_TEXT);
    memcpy(to, worker, n);
    to[n++] = '.';
    return lw_bytes(to, n + lw_decimal((int64_t)token, to + n));
}

struct lw_bytes lw_value_text(char to[LW_TOKEN_TEXT], const char *worker, uint64_t token,
                              uint64_t fence) {
    assert(fence > 0);
    struct lw_bytes b = lw_token_text(to, worker, token);
    to[b.n++] = ':';
    b.n += lw_decimal((int64_t)fence, to + b.n);
    assert(b.n < LW_TOKEN_TEXT);
    return b;
}

void lw_call_lane(const struct lw_lane_call *c, struct lw_bytes lane) {
    assert(lane.n <= LW_LANE_MAX);
    lw_arg_join(c->commands, c->prefix, "lock:", lane);
}

void lw_call_envelope(const struct lw_lane_call *c, struct lw_bytes envelope) {
    assert(envelope.n);
    arg_copied(c, envelope);
}

void lw_call_dedup(const struct lw_lane_call *c, struct lw_bytes id) { lw_arg(c->commands, id); }

void lw_call_group(const struct lw_lane_call *c, const struct lw_bytes *group, bool parks) {
    char text[1 + LW_LANE_MAX] = {parks ? '!' : '='};
    if (!group) {
        lw_arg_text(c->commands, "");
        return;
    }
    assert(group->n <= LW_LANE_MAX);
    if (group->n) memcpy(text + 1, group->p, group->n);
    lw_arg_copy(c->commands, text, 1 + group->n);
}

void lw_call_value(const struct lw_lane_call *c, struct lw_bytes value) {
    assert(value.n && value.n < LW_TOKEN_TEXT);
    arg_copied(c, value);
}

/* --- gate ------------------------------------------------------------------------------------- */

void lw_gate_begin(const struct lw_lane_call *c, const struct lw_places *p, int n_lanes) {
    assert(n_lanes > 0 && n_lanes <= p->n_bytes / 3);
    begin(c, 4 + 2 * p->n + n_lanes);
    places_keys(c, p);
}

void lw_gate_args(const struct lw_lane_call *c, const struct lw_places *p,
                  const struct lw_gate_call *g) {
    check_call(c);
    assert(g->token.n && c->fences > 0);
    lw_arg_text(c->commands, c->epoch_id);
    arg_clock(c);
    lw_arg_i64(c->commands, c->ttl_ms);
    arg_copied(c, g->token);
    lw_arg_text(c->commands, g->dedup ? "1" : "0");
    lw_arg_i64(c->commands, c->fences);
    arg_copied(c, g->counts);
    places_args(c, p);
}

/* --- settle ----------------------------------------------------------------------------------- */

void lw_settle_item(const struct lw_settle_item *it, unsigned char to[LW_ITEM_BYTES]) {
    assert(it->value <= UINT8_MAX && it->n_done <= UINT8_MAX && it->n_named <= UINT8_MAX &&
           it->want <= UINT8_MAX && it->before <= UINT8_MAX);
    assert(it->n_done || it->outcome == LW_DONE);
    to[0] = (unsigned char)it->value;
    to[1] = (unsigned char)it->n_done;
    to[2] = (unsigned char)it->outcome;
    to[3] = (unsigned char)it->go;
    to[4] = (unsigned char)it->n_named;
    to[5] = (unsigned char)it->want;
    to[6] = (unsigned char)it->before;
}

void lw_settle_begin(const struct lw_lane_call *c, const struct lw_places *p, int n_lanes) {
    assert(n_lanes > 0);
    begin(c, 6 + 2 * p->n + n_lanes);
    lw_arg_text(c->commands, c->ready), lw_arg_text(c->commands, c->dead);
    places_keys(c, p);
}

void lw_settle_args(const struct lw_lane_call *c, const struct lw_places *p,
                    const struct lw_settle_call *s) {
    check_call(c);
    assert(s->items.n && s->items.n % LW_ITEM_BYTES == 0);
    assert(s->n_values > 0 && (size_t)s->n_values <= s->items.n / LW_ITEM_BYTES);
    lw_arg_text(c->commands, c->epoch_id);
    lw_arg_i64(c->commands, c->ttl_ms), lw_arg_i64(c->commands, c->handoff_ms);
    arg_order(c);
    if (s->dedup)
        lw_arg_i64(c->commands, s->window_s);
    else
        lw_arg_text(c->commands, "");
    lw_arg_i64(c->commands, c->fences);
    arg_bounds(c, &s->bounds);
    arg_copied(c, s->items);
    places_args(c, p);
    lw_arg_i64(c->commands, s->n_values);
}

bool lw_settle_carries(enum lw_outcome outcome) {
    return outcome == LW_RETRY || outcome == LW_LATER || outcome == LW_BACK || outcome == LW_DEAD;
}

void lw_settle_last(const struct lw_lane_call *c, enum lw_outcome outcome, int64_t backoff_ms,
                    const char *reason, struct lw_bytes envelope, const struct lw_bytes *group) {
    if (!lw_settle_carries(outcome)) return;
    assert(outcome == LW_DEAD ? reason != NULL : backoff_ms >= 0);
    assert(envelope.n);
    if (outcome == LW_DEAD)
        lw_arg_text(c->commands, reason);
    else
        lw_arg_i64(c->commands, backoff_ms);
    arg_copied(c, envelope);
    if (outcome != LW_DEAD) lw_call_group(c, group, false);
}

/* --- claim ------------------------------------------------------------------------------------ */

void lw_claim_begin(const struct lw_lane_call *c, int n_lanes) {
    assert(n_lanes >= 0);
    begin(c, 6 + n_lanes);
    lw_arg_text(c->commands, c->ready), lw_arg_text(c->commands, c->claimed);
}

void lw_claim_args(const struct lw_lane_call *c, const struct lw_claim_call *l) {
    check_call(c);
    assert(l->token.n && l->taken >= 0);
    assert(l->want > 0 && c->fences > 0);
    lw_arg_text(c->commands, c->epoch_id);
    arg_clock(c);
    lw_arg_i64(c->commands, c->ttl_ms), lw_arg_i64(c->commands, c->handoff_ms);
    arg_order(c);
    lw_arg_i64(c->commands, l->taken);
    arg_copied(c, l->token);
    lw_arg_i64(c->commands, c->fences), lw_arg_i64(c->commands, l->want);
    arg_bounds(c, &l->bounds);
}
