/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of bytes, which another object owns, and buffers, which own their bytes and grow. */
#ifndef LW_BASE_BYTES_H
#define LW_BASE_BYTES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The characters allowed in the names of Kafka topics, applications, tokens and hosts. */
#define LW_PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

struct lw_bytes {
    /* the bytes of the slice, which are not NUL-terminated; NULL stands for a missing value, which
     * is not the same as an empty slice */
    const char *p;
    size_t n;
};

static inline struct lw_bytes lw_bytes(const char *p, size_t n) { return (struct lw_bytes){p, n}; }
static inline struct lw_bytes lw_bytes_of(const char *s) { return (struct lw_bytes){s, strlen(s)}; }
static inline bool lw_bytes_eq(struct lw_bytes a, struct lw_bytes b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
/* Compares two texts byte by byte, for qsort: a prefix comes before what is longer. */
static inline int lw_bytes_order(struct lw_bytes a, struct lw_bytes b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* Returns the length of the longest prefix of a text that has at most `max` bytes and does not end
 * inside a UTF-8 character. */
static inline size_t lw_bytes_fit(struct lw_bytes text, size_t max) {
    size_t n = text.n;
    if (n <= max) return n;
    for (n = max; n && ((unsigned char)text.p[n] & 0xc0) == 0x80;) n--;
    return n;
}

static inline bool lw_begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the value of a hexadecimal digit, or -1 if the character is none. */
static inline int lw_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Writes n bytes as 2n lower-case hex digits, followed by a NUL. */
static inline void lw_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

/* Returns the smaller of two sizes. */
static inline size_t lw_smaller(size_t a, size_t b) { return a < b ? a : b; }

struct lw_buf {
    char *p; /* NULL while the buffer is empty */
    size_t n, cap;
    bool failed; /* lw_buf_try() or lw_buf_tryf() found no memory */
};

/* For code that must not abort when memory runs out, because the lock library is part of other
 * people's programs (base/buf.c). After a failed allocation, `failed` is set and everything added
 * later is ignored. So a text can be built in any number of steps, and `failed` is checked once at
 * the end. */
void lw_buf_try(struct lw_buf *b, const void *p, size_t n);
void lw_buf_tryf(struct lw_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lw_buf_vtryf(struct lw_buf *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
/* Returns the text with a NUL at its end, or NULL if an allocation failed. The caller frees the
 * text. The buffer is empty afterwards. */
char *lw_buf_take(struct lw_buf *b);
void lw_buf_free(struct lw_buf *b);
/* Empties the buffer for its next use. A large one gives its memory back, or one large message
 * would leave its size in each buffer that it went through. */
void lw_buf_clear(struct lw_buf *b);
/* Sets *to to a copy of `from`, which may be NULL. If the allocation fails, sets *to to NULL and
 * returns false. */
bool lw_text_copy(char **to, const char *from);

/* The functions below abort the process when memory runs out. If the process is a worker, the
 * supervisor restarts it, and no message is lost. */
void lw_buf_add(struct lw_buf *b, const void *p, size_t n);
void lw_buf_addf(struct lw_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *lw_alloc(size_t n); /* returns memory filled with zeros */
void *lw_realloc(void *p, size_t n);
/* Returns the array `p` of *cap elements of `size` bytes, of which n are used, with room for one
 * more: the array itself, or one of twice the capacity in its place. */
void *lw_more(void *p, size_t n, size_t *cap, size_t size);
void *lw_or_abort(void *p); /* returns p, or aborts the process if p is NULL */
char *lw_strdup(const char *s);
char *lw_memdup(const void *p, size_t n); /* returns a copy of n bytes, followed by a NUL */

#endif
