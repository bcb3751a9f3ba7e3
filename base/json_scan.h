/* SPDX-License-Identifier: Apache-2.0 */
/* Finds values in JSON text by pointers (RFC 6901), without building the document.
 *
 * One pass from the first byte to the last, so that a document is accepted or refused whole. A value is a slice of the text. Of doubled
 * names the last wins, as it does in most parsers. What is accepted is what jansson accepts with JSON_DECODE_ANY | JSON_ALLOW_NUL, but for
 * the rules below; the depth of recursion is bounded by them.
 *
 *     struct lw_json_path path[2];
 *     struct lw_json_value value[2];
 *     lw_json_path_init(&path[0], "/id");
 *     lw_json_path_init(&path[1], "/lines/0/price");
 *     if (lw_json_scan(text, rules, path, 2, value, &scratch, err)) …
 *
 * Positions in errors count from 0. Thread-safe as far as paths, values and scratch are the caller's own. */
#ifndef LW_BASE_JSON_SCAN_H
#define LW_BASE_JSON_SCAN_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>

enum lw_json_kind {
    LW_JSON_NOTHING, /* the pointer leads nowhere */
    LW_JSON_STRING,
    LW_JSON_INTEGER, /* no fraction, no exponent; of any size */
    LW_JSON_REAL,
    LW_JSON_TRUE,
    LW_JSON_FALSE,
    LW_JSON_NULL,
    LW_JSON_OBJECT,
    LW_JSON_ARRAY,
};

struct lw_json_value {
    enum lw_json_kind kind;
    bool escaped;        /* a string with escapes: lw_json_text() decodes it */
    struct lw_bytes raw; /* in the text as written; a string's without its quotes */
};

struct lw_json_rules {
    int depth_max; /* maximum nesting of objects and arrays */
    bool fit;      /* refuse what C cannot hold: integers beyond 64 bits, numbers beyond double, NUL in a name */
};

/* A pointer, and how far it has led. It serves any number of scans, one at a time. */
struct lw_json_path {
    const char *pointer; /* borrowed */
    /* the scan's own */
    const char *next;          /* the '/' of the step to come; at the end: this is the target */
    int depth;                 /* number of steps already taken */
    uint32_t mark, first_mark; /* marks of the next and of the first step: they rule out most names without a comparison */
};

/* Whether a pointer is valid: empty or beginning with '/', and with 0 or 1 after every '~'. */
bool lw_json_pointer_ok(const char *pointer);
/* `pointer` must have passed lw_json_pointer_ok(). There is nothing to free. */
void lw_json_path_init(struct lw_json_path *path, const char *pointer);

/* Fills values[i] for paths[i]. Returns -1 with "malformed JSON at byte N: …"; the values must not
 * be used then. `scratch` takes decoded names. */
int lw_json_scan(struct lw_bytes text, struct lw_json_rules rules, struct lw_json_path *paths, size_t n, struct lw_json_value *values,
                 struct lw_buf *scratch, struct lw_err *err);

/* A string's text: the slice itself, or decoded into scratch, which is emptied first. */
struct lw_bytes lw_json_text(const struct lw_json_value *v, struct lw_buf *scratch);
/* Converts a scanned number. Returns false if it does not fit the type (a double that underflows
 * becomes 0). */
bool lw_json_integer(struct lw_bytes raw, int64_t *out);
bool lw_json_real(struct lw_bytes raw, double *out);

#endif
