/* SPDX-License-Identifier: Apache-2.0 */
/* reader: a parser of HTTP/1.1 and 1.0 responses, which may arrive in pieces of any size. The
 * functions of this file do no I/O.
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

/* The part of a response that has arrived. */
struct http_received {
    struct lw_buf body;
    size_t head_bytes; /* number of bytes in the response's headers */
    bool too_long;     /* the response is longer than allowed */
    char retry_after[RECEIVED_RETRY_AFTER];
};

/* Empties the response and keeps its memory for the next response. */
void received_clear(struct http_received *a);
void received_free(struct http_received *a);
/* Processes a line of the headers, including its line end. Returns false if the headers are longer
 * than allowed. */
bool received_header(struct http_received *a, struct lw_bytes line);
/* Appends bytes to the body. Returns false if the body is longer than allowed. */
bool received_body(struct http_received *a, struct lw_bytes part);

enum reader_state {
    READER_STATUS,
    READER_HEADER,
    READER_LENGTH,      /* the body has a known length */
    READER_UNTIL_CLOSE, /* the body ends when the connection closes */
    READER_CHUNK_SIZE,
    READER_CHUNK,
    READER_CHUNK_END,
    READER_TRAILER,
    READER_WHOLE, /* in this state and the following ones the response is over */
    READER_TOO_LONG,
    READER_BROKEN,
};

struct http_reader {
    struct http_received *into;
    enum reader_state state;
    bool begun; /* at least one byte of the response has arrived */
    bool keeps; /* the connection may be reused after this response */
    /* `chunked` is true if the response has the header Transfer-Encoding, `sized` if it has
     * Content-Length, and `closes` if it has "Connection: close". */
    bool chunked, sized, closes;
    /* `framing` is true if the header that was read last decides how long the body is, or whether
     * the connection stays open. */
    bool framing;
    int status; /* status of the response; 0: not read yet */
    /* `left` is the number of bytes of the body, or of the current chunk, that have not arrived */
    int64_t left;
    struct lw_buf line;  /* the beginning of a line that has no end yet */
    const char *problem; /* in the state BROKEN: what is wrong */
};

/* Prepares for the next response, which is stored in *into. The caller initializes the structure
 * with {0} before its first use. */
void reader_begin(struct http_reader *r, struct http_received *into);
void reader_free(struct http_reader *r);
/* Processes the next n bytes. Returns how many of them belong to the response. This number is less
 * than n only if the response is over. */
size_t reader_take(struct http_reader *r, const char *p, size_t n);
/* Takes note that no more bytes will arrive. `problem` is the reason if the response is incomplete;
 * NULL means that the service closed the connection. */
void reader_end(struct http_reader *r, const char *problem);
static inline bool reader_over(const struct http_reader *r) { return r->state >= READER_WHOLE; }

#endif
