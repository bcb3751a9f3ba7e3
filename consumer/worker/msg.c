/* SPDX-License-Identifier: Apache-2.0 */
/* msg: the part of the worker that handles messages in memory. The bytes of a message belong to a
 * claimed envelope, or to a Kafka record, which is released when the message is freed. */
#include "consumer/worker/private.h"

void msgs_open(struct lw_worker *w) {
    assert(w->bytes.lane > 0);
    w->memory.big = w->bytes.lane;
}

struct msg *msg_new(struct lw_worker *w, struct part *p) {
    assert(p && p->name);
    struct msg *m = w->memory.free;
    if (m)
        w->memory.free = m->next;
    else
        m = lw_alloc(sizeof *m);
    *m = (struct msg){.part = p};
    p->n_msgs++;
    return m;
}

void msg_count(struct lw_worker *w, struct msg *m, size_t n) {
    assert(m->part && m->part->n_msgs > 0);
    assert(!m->bytes);
    n += sizeof *m;
    /* if there is a `raw` envelope, n already includes the bytes of the headers */
    for (size_t i = 0; i < m->n_headers; i++)
        n += sizeof m->headers[i] + (m->raw.p ? 0 : m->headers[i].name.n + m->headers[i].value.n);
    m->bytes = n;
    w->memory.held += n;
    if (m->raw.p) w->memory.heads += n;
    w->memory.big -= w->memory.big / 256;
    if (n > w->memory.big) w->memory.big = n;
}

bool heads_fit(const struct lw_worker *w) {
    check_memory(&w->memory);
    return w->memory.heads < w->bytes.heads;
}

void msg_free(struct lw_worker *w, struct msg *m) {
    assert(m->part->n_msgs);
    if (!--m->part->n_msgs && m->part->replay) part_idle(w, m->part);
    assert(w->memory.held >= m->bytes);
    w->memory.held -= m->bytes;
    if (m->raw.p) w->memory.heads -= m->bytes;
    if (m->origin) w->io->release(w->ctx, m->origin);
    free(m->own);
    free(m->headers);
    free(m->dedup_own);
    free(m->dead_reason);
    m->origin = NULL;
    m->next = w->memory.free;
    w->memory.free = m;
}

void msg_envelope(struct lw_worker *w, struct msg *m, struct lw_buf *out) {
    check_msg(m);
    (void)w;
    if (m->raw.p) {
        lw_buf_add(out, m->raw.p, m->raw.n);
        return;
    }
    lw_envelope_encode(&(struct lw_envelope){.topic = lw_bytes_of(m->part->topic),
                                             .key = m->key,
                                             .dedup = m->dedup,
                                             .payload = m->payload,
                                             .partition = m->part->partition,
                                             .offset = m->offset,
                                             .replay = m->part->replay,
                                             .first_ms = m->first_ms,
                                             .timestamp_ms = m->timestamp_ms,
                                             .headers = m->headers,
                                             .n_headers = m->n_headers},
                       out);
}
