/* SPDX-License-Identifier: Apache-2.0 */
/* msg: the part of the worker that handles a message in memory, from the arrival of its record or
 * envelope to its end. */
#ifndef LW_CONSUMER_WORKER_MSG_H
#define LW_CONSUMER_WORKER_MSG_H

#include "consumer/worker/partition.h"
#include "queue/envelope.h"

#include <assert.h>

struct lw_worker;
struct part;

struct msg {
    struct msg *next;
    struct part *part;
    uint32_t gen, pass, tag;
    int64_t offset, timestamp_ms, first_ms;
    struct lw_bytes key, payload, dedup;
    struct lw_header *headers; /* the headers, which the message owns */
    size_t n_headers;
    void *origin; /* Kafka record of the message, which is released through lw_io */
    char *own;    /* bytes that the message owns: a claimed envelope, or a decoded key */
    /* `raw` is the envelope as it is in its waiting list. If raw.p is NULL, the message has no
     * envelope yet, and msg_envelope() encodes one. */
    struct lw_bytes raw;
    char *dedup_own;
    /* `dead_reason` says why the record has no key. The message then becomes a dead letter with
     * this reason, and no handler gets it. NULL: the record has a key. */
    char *dead_reason;
    size_t bytes; /* size of the message in memory, close to the size of its envelope */
};

/* Counts the memory that messages take, as records and as envelopes. */
struct memory {   /* only msg.c changes this struct */
    size_t held;  /* total size of all messages in memory, in bytes */
    size_t heads; /* total size of the messages that are heads, in bytes */
    /* `big` is the approximate size of the largest recent message, in bytes. It determines how many
     * messages are read at once. */
    size_t big;
    struct msg *free;
};

/* Assumes that messages are large (w->bytes.lane) until the sizes of real messages are known. */
void msgs_open(struct lw_worker *w);
struct msg *msg_new(struct lw_worker *w, struct part *p);
void msg_free(struct lw_worker *w, struct msg *m);
/* Adds the size of a new message to the counts: n bytes, and the bytes of the headers. */
void msg_count(struct lw_worker *w, struct msg *m, size_t n);
/* Returns true if the heads in memory are smaller in total than their limit (w->bytes.heads), so
 * that more heads may be claimed. */
bool heads_fit(const struct lw_worker *w);
void msg_envelope(struct lw_worker *w, struct msg *m, struct lw_buf *out);

/* Returns true if the message belongs to the present delivery and is not finished. The function is
 * inline because every step calls it for every message. */
static inline bool msg_current(const struct msg *m) {
    assert(m && m->part);
    if (!m->gen || m->part->gen != m->gen || m->part->pass != m->pass) return false;
    enum lw_offset_state s = lw_offsets_get(m->part->offsets, m->offset);
    return s == LW_OFF_IN || s == LW_OFF_WAITING;
}

static inline void check_msg(const struct msg *m) {
    assert(m->part && m->part->n_msgs > 0);
    assert(m->offset >= 0 && m->bytes > 0);
    assert(!m->raw.p || m->own);
}

static inline void check_memory(const struct memory *mem) {
    assert(mem->heads <= mem->held);
    assert(mem->big > 0);
}

#endif
