/* SPDX-License-Identifier: Apache-2.0 */
/* claim: gets lanes whose messages wait in Redis. Hints name lanes that may be runnable; claim
 * takes these lanes and is handed their heads.
 *
 * The first hint comes from a blocking pop (BRPOPLPUSH into claimed:<worker>) on a connection of
 * its own. After that, the turn's pipeline fetches more hints. If a hint is lost, tend makes it
 * again. settle.c, too, may be handed heads, and uses take_heads() of this file. */
#include "consumer/worker/private.h"

#include "base/redis/reply.h"

#include <utlist.h>

/* --- hints ----------------------------------------------------------------------------------- */

enum { HINTS_MAX = 4096 };

struct hint {
    struct hint *next, *prev;
    struct lw_bytes lane; /* id of the lane; owned */
};

bool hints_known(const struct shard *sh) { return sh->hints.n || sh->hints.more; }

/* Takes a hint out of the list and returns it. The caller frees it. */
static struct lw_bytes hints_pop(struct shard *sh) {
    struct hint *h = sh->hints.first;
    struct lw_bytes lane = h->lane;
    DL_DELETE(sh->hints.first, h);
    free(h);
    sh->hints.n--;
    sh->hints.taken++;
    return lane;
}

void hints_forget(struct shard *sh) {
    while (sh->hints.n) free((void *)(uintptr_t)hints_pop(sh).p);
    sh->hints.taken = 0;
}

void hints_want(struct lw_worker *w, struct shard *sh, bool want) {
    if (want == sh->hints.on) return;
    sh->hints.on = want;
    w->io->hints(w->ctx, sh->index, sh->key_ready, sh->key_claimed, want);
}

static void push(struct shard *sh, struct lw_bytes lane) {
    /* a hint with an id longer than LW_LANE_MAX names no lane of this application */
    if (lane.n > LW_LANE_MAX) return;
    struct hint *h = lw_alloc(sizeof *h);
    h->lane = lw_bytes(lw_memdup(lane.p, lane.n), lane.n);
    DL_APPEND(sh->hints.first, h);
    sh->hints.n++;
}

void lw_worker_hint(struct lw_worker *w, int shard, struct lw_bytes lane) {
    assert(shard >= 0 && shard < w->n_shards);
    struct shard *sh = &w->shards[shard];
    /* the list of hints is full, so the hint is dropped; tend makes it again */
    if (sh->hints.n >= HINTS_MAX) return;
    push(sh, lane);
    sh->hints.more = true;
}

void hints_build(struct lw_worker *w, struct shard *sh, size_t most) {
    assert(sh->phase == READY);
    if (!sh->hints.more || sh->hints.n >= CLAIM_BATCH || !most || !heads_fit(w)) return;
    sh->hints.more = false;
    pipe_script(sh, CALL_HINTS, &lw_script_hints, 3);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_ready), pipe_text(sh, sh->key_claimed);
    pipe_text(sh, sh->epoch.id), pipe_number(sh, most < CLAIM_BATCH ? (int64_t)most : CLAIM_BATCH);
    pipe_number(sh, w->c->lock.ttl_ms);
}

void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    if (r->type != REDIS_REPLY_ARRAY) {
        pipe_malformed(w, sh, r, "hints.lua", "an array of strings");
        return;
    }
    for (size_t i = 0; i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_STRING)
            push(sh, lw_bytes(r->element[i]->str, r->element[i]->len));
    if (r->elements > 0) sh->hints.more = true;
}

/* --- heads: how many, and those in a reply ---------------------------------------------------- */

size_t wanted_heads(const struct lw_worker *w) {
    return lw_config_runs_ahead(w->c) ? (size_t)w->c->lock.run_ahead : 1;
}

struct tried grants_tries(struct grants *g) {
    assert(g->tries);
    g->n++;
    if (g->at_tries + 2 >= g->tries->elements ||
        g->tries->element[g->at_tries]->integer != (long long)g->n)
        return (struct tried){0};
    redisReply *const *e = g->tries->element + g->at_tries;
    g->at_tries += 3;
    return (struct tried){(int)e[1]->integer, e[2]->integer};
}

/* Returns the next head as a message, or NULL if its envelope is malformed. */
static struct msg *grants_head(struct lw_worker *w, struct grants *g) {
    assert(g->heads && g->at_heads <= g->heads->elements);
    if (g->at_heads >= g->heads->elements) return NULL;
    const redisReply *r = g->heads->element[g->at_heads++];
    struct lw_envelope e;
    struct lw_err err = {0};
    if (r->type != REDIS_REPLY_STRING) return NULL;
    char *own = lw_memdup(r->str, r->len);
    if (lw_envelope_decode(lw_bytes(own, r->len), &e, &err) != 0) {
        lw_some(
            20, LW_LOG_ERROR, NULL, 0,
            "a waiting list holds what is not a message: %s; no message behind it runs until it "
            "is removed",
            err.text);
        free(own);
        return NULL;
    }
    struct msg *m = msg_new(w, part_get(w, e.topic.p, e.topic.n, e.partition, e.replay));
    m->offset = e.offset;
    m->first_ms = e.first_ms;
    m->timestamp_ms = e.timestamp_ms;
    m->key = e.key;
    m->payload = e.payload;
    m->dedup = e.dedup;
    m->headers = e.headers;
    m->n_headers = e.n_headers;
    m->own = own;
    m->raw = lw_bytes(own, r->len);
    if (w->c->group.on)
        msg_group(m, group_of(w, &(struct lw_record){.key = m->key,
                                                     .payload = m->payload,
                                                     .headers = m->headers,
                                                     .n_headers = m->n_headers}));
    msg_count(w, m, r->len);
    return m;
}

/* If a message that waited in Redis has no key, notes the reason for its dead letter. The envelope
 * does not contain the reason, so the key is looked for again. */
static void look_for_key(struct lw_worker *w, const struct lane *l, struct msg *m) {
    assert(!m->dead_reason);
    if (!lw_lane_lacks_key(l->id)) return;
    const struct lw_record r = {
        .key = m->key, .payload = m->payload, .headers = m->headers, .n_headers = m->n_headers};
    const struct lw_record_at at = {lw_bytes_of(m->part->topic), m->part->partition, m->offset};
    struct lw_bytes key;
    struct lw_err err = {0};
    if (lw_key_of(w->c, &r, &at, &w->scratch, &key, &err) != LW_KEY_OK)
        m->dead_reason = lw_strdup(err.text);
}

void take_heads(struct lw_worker *w, struct shard *sh, struct lane *l, struct hold *h,
                struct grants *g, size_t n, uint64_t token) {
    check_lane(l);
    assert(h ? h->lane == l : token != 0);
    /* A worker that stops takes no heads. If a hold has nothing else, its heads are taken and given
     * back at once, because only a settle with an outcome releases the lock. */
    bool stop = h && (h->failed || (w->stopping && h->first));
    for (size_t i = 0; i < n; i++) {
        struct tried tried = grants_tries(g);
        struct msg *m = grants_head(w, g);
        if (!m) {
            /* an unreadable head stays in its waiting list, so no head behind it may run */
            stop = true;
            continue;
        }
        if (stop || (h && (h->failed || hold_msg(h, m->part, m->offset)))) {
            msg_free(w, m);
            continue;
        }
        m->tag = l->tag;
        look_for_key(w, l, m);
        if (!h) h = hold_new(w, l, LANE, token, g->fence, sh->pipe.sent_ms + w->c->lock.ttl_ms);
        hold_grant(w, h, m, g->fence + i, tried);
    }
}

/* --- the call -------------------------------------------------------------------------------- */

void claim_encode(struct lw_worker *w, struct shard *sh) {
    char token[LW_TOKEN_TEXT];
    assert(epoch_joined(sh));
    assert(sh->claim.n > 0 && sh->claim.n <= CLAIM_BATCH);
    struct lw_lane_call c = pipe_lane_call(w, sh, &lw_script_claim);
    lw_claim_begin(&c, sh->claim.n);
    for (int i = 0; i < sh->claim.n; i++) lw_call_lane(&c, sh->claim.lane[i]->id);
    struct lw_claim_call l = {.taken = (int64_t)sh->hints.taken,
                              .token = lw_token_text(token, w->set.id, sh->claim.token),
                              .want = (int64_t)wanted_heads(w),
                              .bounds = pipe_bounds(w)};
    lw_claim_args(&c, &l);
}

size_t claim_build(struct lw_worker *w, struct shard *sh, size_t most) {
    assert(!sh->claim.n && sh->phase == READY);
    /* If memory has no room for more heads, no lane is claimed until some of the heads in memory
     * have finished. */
    if (!heads_fit(w)) return 0;
    size_t unknown = fair_unknown(w, most);
    while (sh->claim.n < CLAIM_BATCH && (size_t)sh->claim.n < most) {
        struct group *group = NULL;
        struct lw_bytes id;
        if (!ready_next(w, sh, &id, &group)) {
            if (!sh->hints.n || !unknown) break;
            id = hints_pop(sh);
        }
        struct lane *l = lane_get(w, id);
        free((void *)(uintptr_t)id.p);
        /* The hint is dropped if this worker already works on the lane, because the lane's next
         * settle or gate sees the waiting messages as well. */
        if (l->hold || l->lost || l->in_call) continue;
        if (!group) unknown--;
        lane_call(l, group);
        sh->claim.lane[sh->claim.n++] = l;
    }
    if (!sh->claim.n) return 0;
    sh->claim.token = token_new(w);
    pipe_call(sh, CALL_CLAIM);
    claim_encode(w, sh);
    sh->hints.taken = 0;
    return (size_t)sh->claim.n;
}

void claim_back(struct lw_worker *w, struct shard *sh) {
    for (int i = 0; i < sh->claim.n; i++) {
        lane_answered(sh->claim.lane[i]);
        lane_wake(w, sh->claim.lane[i]);
    }
    sh->claim.n = 0;
}

void claim_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    int n = sh->claim.n;
    assert(n > 0 && n <= CLAIM_BATCH);
    const redisReply *const *e = (const redisReply *const *)r->element;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 6 || !e[0]->str || !e[1]->str ||
        e[1]->len != (size_t)n || e[3]->type != REDIS_REPLY_ARRAY ||
        e[4]->type != REDIS_REPLY_ARRAY || !e[5]->str || e[5]->len != (size_t)n) {
        pipe_malformed(w, sh, r, "claim.lua",
                       "[string, string of %d bytes, integer, array, array, string "
                       "of %d bytes]",
                       n, n);
        return;
    }
    struct grants g = {.fence = strtoull(e[0]->str, NULL, 10), .tries = e[3], .heads = e[4]};
    for (int i = 0; i < n; i++) {
        struct lane *l = sh->claim.lane[i];
        const struct group *asked = l->asks;
        lane_answered(l);
        count_acquire(w, &e[1]->str[i], 1);
        size_t heads = (unsigned char)e[5]->str[i];
        take_heads(w, sh, l, NULL, &g, heads, sh->claim.token);
        if (l->hold) hold_more(w, l->hold, heads == wanted_heads(w));
        if (asked && l->hold && l->hold->first && l->hold->first->msg->group != asked)
            count(&w->counts->group_changed);
        lane_wake(w, l);
    }
    sh->claim.n = 0;
    if (e[2]->type == REDIS_REPLY_INTEGER) count_n(&w->counts->dropped, (uint64_t)e[2]->integer);
}
