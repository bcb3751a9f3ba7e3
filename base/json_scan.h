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
    int depth_max; /* of objects and arrays in each other */
    bool fit;      /* refuse what does not fit C: integers beyond 64 bits, numbers beyond double, NUL in a name */
};

/* A pointer, and how far it has led. One scan at a time may use it, any number one after another. */
struct lw_json_path {
    const char *pointer; /* borrowed */
    /* the scan's own */
    const char *next;          /* the '/' of the step to come; at the end: this is the target */
    int depth;                 /* steps behind it */
    uint32_t mark, first_mark; /* of the step to come, of the first: tell most names apart */
};

/* Every '~' is followed by 0 or 1, and it is empty or begins with '/'. */
bool lw_json_pointer_ok(const char *pointer);
/* `pointer` must be such a one. Nothing is to be freed. */
void lw_json_path_init(struct lw_json_path *path, const char *pointer);

/* Fills values[i] for paths[i]. -1 with "malformed JSON at byte N: …"; then values are not to be used. `scratch` takes decoded names. */
int lw_json_scan(struct lw_bytes text, struct lw_json_rules rules, struct lw_json_path *paths, size_t n, struct lw_json_value *values,
                 struct lw_buf *scratch, struct lw_err *err);

/* A string's text: the slice itself, or decoded into scratch, which is emptied first. */
struct lw_bytes lw_json_text(const struct lw_json_value *v, struct lw_buf *scratch);
/* A scanned number. False where it is beyond the type (a double's underflow is 0). */
bool lw_json_integer(struct lw_bytes raw, int64_t *out);
bool lw_json_real(struct lw_bytes raw, double *out);

#endif
