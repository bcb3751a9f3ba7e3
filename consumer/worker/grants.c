/* SPDX-License-Identifier: Apache-2.0 */
/* grants: the part of the worker that finds out from a reply of gate, claim or settle which
 * messages are granted. */
#include "consumer/worker/private.h"

int grants_tries(struct grants *g) {
    assert(g->tries);
    g->n++;
    if (g->at_tries + 1 >= g->tries->elements ||
        g->tries->element[g->at_tries]->integer != (long long)g->n)
        return 0;
    int tries = (int)g->tries->element[g->at_tries + 1]->integer;
    g->at_tries += 2;
    return tries;
}

struct msg *grants_head(struct lw_worker *w, struct grants *g) {
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

/* Adds the heads that a reply hands over to a hold: to h or, if h is NULL, to a new hold. */
void take_heads(struct lw_worker *w, struct shard *sh, struct lane *l, struct hold *h,
                struct grants *g, size_t n, uint64_t token) {
    check_lane(l);
    assert(h ? h->lane == l : token != 0);
    /* A worker that stops takes no heads. If a hold has nothing else, its heads are taken and given
     * back at once, because only a settle with an outcome releases the lock. */
    bool stop = h && (h->failed || (w->stopping && h->first));
    for (size_t i = 0; i < n; i++) {
        int tries = grants_tries(g);
        struct msg *m = grants_head(w, g), *same;
        if (!m) {
            /* an unreadable head stays in its waiting list, so no head behind it may run */
            stop = true;
            continue;
        }
        if (stop || (h && (h->failed || hold_has(h, m->part, m->offset, &same)))) {
            msg_free(w, m);
            continue;
        }
        m->tag = l->tag;
        look_for_key(w, l, m);
        if (!h) h = hold_new(w, l, LANE, token, g->fence, pipe_sent_ms(sh) + w->c->lock.ttl_ms);
        hold_grant(w, h, m, g->fence + i, tries);
    }
}
