/* SPDX-License-Identifier: Apache-2.0 */
/* reader: takes an answer of HTTP/1.1 or 1.0 apart, which may come in pieces of any size. Nothing
 * here does I/O.
 *
 *     STATUS ──> HEADER ──> LENGTH ───────────────────────────────────────┐
 *       ^          │ │└───> UNTIL_CLOSE ──────────────────────────────────┤
 *       │          │ └────> CHUNK_SIZE ──> CHUNK ──> CHUNK_END            ├──> WHOLE
 *       │ 1xx      │           │  ^                     │                 │
 *       └──────────┘           │  └─────────────────────┘                 │
 *                              └─────> TRAILER ───────────────────────────┘
 *
 * Any state may lead to TOO_LONG or BROKEN. */
#ifndef LW_HANDLERS_HTTP_READER_H
#define LW_HANDLERS_HTTP_READER_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum { RECEIVED_BODY_MAX = 1 << 20, RECEIVED_HEAD_MAX = 64 << 10, RECEIVED_RETRY_AFTER = 64 };

/* What has come of an answer. */
struct http_received {
    struct lw_buf body;
    size_t head_bytes; /* number of bytes in the answer's headers */
    bool too_long;     /* the answer is longer than allowed */
    char retry_after[RECEIVED_RETRY_AFTER];
};

/* Forgets the answer and keeps its memory for the next one. */
void received_clear(struct http_received *a);
void received_free(struct http_received *a);
/* Takes note of a line of the headers, with its end. Returns false if the headers are longer than
 * allowed. */
bool received_header(struct http_received *a, struct lw_bytes line);
/* Appends to the body. Returns false if the body is longer than allowed. */
bool received_body(struct http_received *a, struct lw_bytes part);

enum reader_state {
    READER_STATUS,
    READER_HEADER,
    READER_LENGTH,      /* the body has a known length */
    READER_UNTIL_CLOSE, /* the body ends with the connection */
    READER_CHUNK_SIZE,
    READER_CHUNK,
    READER_CHUNK_END,
    READER_TRAILER,
    READER_WHOLE, /* from here on the answer is over */
    READER_TOO_LONG,
    READER_BROKEN,
};

struct http_reader {
    struct http_received *into;
    enum reader_state state;
    bool begun; /* at least one byte of the answer has come */
    bool keeps; /* the connection may be used again after this answer */
    /* what the headers say: Transfer-Encoding, Content-Length, Connection: close */
    bool chunked, sized, closes;
    /* the last header says how long the body is, or what becomes of the connection */
    bool framing;
    int status; /* status of the answer; 0: not known yet */
    /* number of bytes of the body, or of the chunk, that are still to come */
    int64_t left;
    struct lw_buf line;  /* the beginning of a line whose end has not come */
    const char *problem; /* BROKEN: what is wrong with the answer */
};

/* Prepares for the next answer, which goes into *into. The caller initializes the structure with
 * {0}. */
void reader_begin(struct http_reader *r, struct http_received *into);
void reader_free(struct http_reader *r);
/* Takes the next bytes. Returns how many belong to the answer: fewer than n only when the answer is
 * over. */
size_t reader_take(struct http_reader *r, const char *p, size_t n);
/* Takes note that nothing more will come. `problem` says why, for an answer that is not whole by
 * now; NULL: the service closed the connection. */
void reader_end(struct http_reader *r, const char *problem);
static inline bool reader_over(const struct http_reader *r) { return r->state >= READER_WHOLE; }

#endif
