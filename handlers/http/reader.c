/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/reader.h"

#include "handlers/http/head.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

enum {
    BUFFER_KEPT = 64 << 10, /* size in bytes; a larger buffer is freed after its response */
    CHUNK_LINE_MAX = 4096,
    LENGTH_DIGITS = 18,
    CHUNK_DIGITS = 15,
};

/* --- what has come ---------------------------------------------------------------------------- */

void received_clear(struct http_received *a) {
    a->body.n = a->head_bytes = 0;
    a->too_long = false;
    a->retry_after[0] = '\0';
    if (a->body.cap > BUFFER_KEPT) lw_buf_free(&a->body);
}

void received_free(struct http_received *a) { lw_buf_free(&a->body); }

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool is_blank_or_end(char c) { return is_blank(c) || c == '\r' || c == '\n'; }

static struct lw_bytes trim(struct lw_bytes text) {
    while (text.n && is_blank(*text.p)) text.p++, text.n--;
    while (text.n && is_blank_or_end(text.p[text.n - 1])) text.n--;
    return text;
}

static bool begins(struct lw_bytes text, const char *with) {
    return text.n >= strlen(with) && strncasecmp(text.p, with, strlen(with)) == 0;
}

static void take_retry_after(struct http_received *a, struct lw_bytes value) {
    value = trim(value);
    if (value.n >= sizeof a->retry_after) return;
    memcpy(a->retry_after, value.p, value.n);
    a->retry_after[value.n] = '\0';
}

bool received_header(struct http_received *a, struct lw_bytes line) {
    static const char name[] = "retry-after:";
    a->head_bytes += line.n;
    if (a->head_bytes > RECEIVED_HEAD_MAX) {
        a->too_long = true;
        return false;
    }
    /* ignore a Retry-After in an informational (1xx) response */
    if (begins(line, "HTTP/")) a->retry_after[0] = '\0';
    if (begins(line, name))
        take_retry_after(a, lw_bytes(line.p + sizeof name - 1, line.n - sizeof name + 1));
    return true;
}

bool received_body(struct http_received *a, struct lw_bytes part) {
    a->too_long = a->body.n + part.n > RECEIVED_BODY_MAX;
    if (!a->too_long) lw_buf_add(&a->body, part.p, part.n);
    return !a->too_long;
}

/* --- the status and the headers --------------------------------------------------------------- */

static void fail(struct http_reader *r, const char *problem) {
    r->state = READER_BROKEN;
    r->problem = problem;
}

static void take_status(struct http_reader *r, struct lw_bytes line) {
    const unsigned char *p = (const unsigned char *)line.p;
    if (line.n < 12 || !begins(line, "HTTP/1.") || !isdigit(p[7]) || p[8] != ' ' ||
        !isdigit(p[9]) || !isdigit(p[10]) || !isdigit(p[11]) || (line.n > 12 && p[12] != ' ') ||
        p[9] == '0') {
        fail(r, "the answer is no HTTP/1.1");
        return;
    }
    r->status = 100 * (p[9] - '0') + 10 * (p[10] - '0') + (p[11] - '0');
    r->keeps = p[7] != '0';
    r->chunked = r->sized = r->closes = r->framing = false;
    r->state = READER_HEADER;
}

static void take_length(struct http_reader *r, struct lw_bytes value) {
    int64_t length = 0;
    size_t i = 0;
    for (; i < value.n && i < LENGTH_DIGITS && isdigit((unsigned char)value.p[i]); i++)
        length = 10 * length + (value.p[i] - '0');
    if (!i || i < value.n || (r->sized && r->left != length)) {
        fail(r, "the answer's Content-Length is malformed");
        return;
    }
    r->sized = true;
    r->left = length;
}

static void take_coding(struct http_reader *r, struct lw_bytes value) {
    if (value.n == 7 && begins(value, "chunked") && !r->chunked)
        r->chunked = true;
    else
        fail(r, "the answer's Transfer-Encoding is not \"chunked\"");
}

static void take_connection(struct http_reader *r, struct lw_bytes list) {
    while (list.n) {
        const char *comma = memchr(list.p, ',', list.n);
        size_t n = comma ? (size_t)(comma - list.p) : list.n, past = comma ? n + 1 : n;
        struct lw_bytes word = trim(lw_bytes(list.p, n));
        if (word.n == 5 && begins(word, "close")) r->closes = true;
        if (word.n == 10 && begins(word, "keep-alive")) r->keeps = true;
        list = lw_bytes(list.p + past, list.n - past);
    }
}

static void take_header(struct http_reader *r, struct lw_bytes line) {
    static const struct {
        const char *name;
        void (*take)(struct http_reader *r, struct lw_bytes value);
    } known[] = {{"content-length", take_length},
                 {"transfer-encoding", take_coding},
                 {"connection", take_connection}};
    const char *colon = memchr(line.p, ':', line.n);
    struct lw_bytes name = lw_bytes(line.p, colon ? (size_t)(colon - line.p) : 0);
    r->framing = false;
    if (!head_name_ok(name)) {
        fail(r, "a header of the answer is malformed");
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (name.n != strlen(known[i].name) || !begins(name, known[i].name)) continue;
        r->framing = true;
        known[i].take(r, trim(lw_bytes(colon + 1, line.n - name.n - 1)));
    }
}

/* Chooses the state after the headers. A response with both a Content-Length and chunks may hide a
 * smuggled response, so its connection is not used again. */
static void end_head(struct http_reader *r) {
    r->keeps &= !r->closes;
    if (r->status == 101)
        fail(r, "the service switched to another protocol");
    else if (r->status < 200)
        r->state = READER_STATUS;
    else if (r->status == 204 || r->status == 304)
        r->state = READER_WHOLE;
    else if (r->chunked)
        r->state = READER_CHUNK_SIZE, r->keeps &= !r->sized;
    else if (r->sized)
        r->state = r->left ? READER_LENGTH : READER_WHOLE;
    else
        r->state = READER_UNTIL_CLOSE, r->keeps = false;
}

/* --- the body --------------------------------------------------------------------------------- */

static void take_chunk_size(struct http_reader *r, struct lw_bytes line) {
    size_t i = 0;
    r->left = 0;
    for (; i < line.n && i < CHUNK_DIGITS && isxdigit((unsigned char)line.p[i]); i++)
        r->left = 16 * r->left + (isdigit((unsigned char)line.p[i]) ? line.p[i] - '0'
                                                                    : (line.p[i] | 32) - 'a' + 10);
    if (!i || (i < line.n && line.p[i] != ';' && !is_blank(line.p[i])))
        fail(r, "a chunk of the answer is malformed");
    else
        r->state = r->left ? READER_CHUNK : READER_TRAILER;
}

static size_t take_body(struct http_reader *r, const char *p, size_t n) {
    if (r->state != READER_UNTIL_CLOSE && (uint64_t)n > (uint64_t)r->left) n = (size_t)r->left;
    if (!received_body(r->into, lw_bytes(p, n))) {
        r->state = READER_TOO_LONG;
        return n;
    }
    if (r->state == READER_UNTIL_CLOSE) return n;
    r->left -= (int64_t)n;
    if (!r->left) r->state = r->state == READER_CHUNK ? READER_CHUNK_END : READER_WHOLE;
    return n;
}

/* --- lines ------------------------------------------------------------------------------------ */

static void take_head_line(struct http_reader *r, struct lw_bytes line) {
    if (!line.n)
        end_head(r);
    else if (!is_blank(*line.p))
        take_header(r, line);
    /* A continuation line is an error only after a header that decides the body's length or what
     * becomes of the connection. */
    else if (r->framing)
        fail(r, "a header of the answer is folded");
}

static void take_line(struct http_reader *r, struct lw_bytes line) {
    bool head =
        r->state == READER_STATUS || r->state == READER_HEADER || r->state == READER_TRAILER;
    if (head && !received_header(r->into, line)) {
        r->state = READER_TOO_LONG;
        return;
    }
    if (line.n && line.p[line.n - 1] == '\n') line.n--;
    if (line.n && line.p[line.n - 1] == '\r') line.n--;
    if (r->state == READER_STATUS)
        take_status(r, line);
    else if (r->state == READER_HEADER)
        take_head_line(r, line);
    else if (r->state == READER_CHUNK_SIZE)
        take_chunk_size(r, line);
    else if (r->state == READER_CHUNK_END && line.n)
        fail(r, "a chunk of the answer is malformed");
    else if (r->state == READER_CHUNK_END)
        r->state = READER_CHUNK_SIZE;
    else if (!line.n)
        r->state = READER_WHOLE;
}

/* Returns true if the line that has begun can still end within the size limits. */
static bool may_go_on(const struct http_reader *r) {
    bool chunk = r->state == READER_CHUNK_SIZE || r->state == READER_CHUNK_END;
    return chunk ? r->line.n <= CHUNK_LINE_MAX
                 : r->into->head_bytes + r->line.n <= RECEIVED_HEAD_MAX;
}

static size_t take_text(struct http_reader *r, const char *p, size_t n) {
    const char *end = memchr(p, '\n', n);
    size_t some = end ? (size_t)(end - p) + 1 : n;
    if (end && !r->line.n) {
        take_line(r, lw_bytes(p, some));
        return some;
    }
    lw_buf_add(&r->line, p, some);
    if (end) {
        take_line(r, lw_bytes(r->line.p, r->line.n));
        r->line.n = 0;
    } else if (!may_go_on(r)) {
        r->into->too_long = true;
        r->state = READER_TOO_LONG;
    }
    return some;
}

/* --- an answer -------------------------------------------------------------------------------- */

void reader_begin(struct http_reader *r, struct http_received *into) {
    struct lw_buf line = r->line;
    line.n = 0;
    received_clear(into);
    *r = (struct http_reader){.into = into, .line = line};
}

void reader_free(struct http_reader *r) { lw_buf_free(&r->line); }

size_t reader_take(struct http_reader *r, const char *p, size_t n) {
    size_t done = 0;
    r->begun |= n > 0;
    while (done < n && !reader_over(r)) {
        bool body =
            r->state == READER_LENGTH || r->state == READER_UNTIL_CLOSE || r->state == READER_CHUNK;
        done += body ? take_body(r, p + done, n - done) : take_text(r, p + done, n - done);
    }
    return done;
}

void reader_end(struct http_reader *r, const char *problem) {
    r->keeps = false;
    if (reader_over(r)) return;
    if (r->state == READER_UNTIL_CLOSE && !problem)
        r->state = READER_WHOLE;
    else
        fail(r, problem    ? problem
                : r->begun ? "the service closed the connection before the answer was complete"
                           : "the service closed the connection without an answer");
}
