/* SPDX-License-Identifier: Apache-2.0 */
/* Finds values in JSON text by pointers (RFC 6901), without building a tree of the document.
 *
 * The scan is one pass over the whole text, so a document is accepted or refused as a whole. A
 * found value is a slice of the text. If a name occurs twice in an object, the last one counts, as
 * in most parsers. The scan accepts the texts that jansson accepts with JSON_DECODE_ANY |
 * JSON_ALLOW_NUL, except those that `struct lw_json_rules` forbids. The maximum nesting in these
 * rules also limits the depth of recursion.
 *
 *     struct lw_json_path path[2];
 *     struct lw_json_value value[2];
 *     lw_json_path_init(&path[0], "/id");
 *     lw_json_path_init(&path[1], "/lines/0/price");
 *     if (lw_json_scan(text, rules, path, 2, value, &scratch, err)) …
 *
 * Positions in errors count from 0. The scan is thread-safe if each thread has its own paths,
 * values and scratch buffer. */
#ifndef LW_BASE_JSON_SCAN_H
#define LW_BASE_JSON_SCAN_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>

enum lw_json_kind {
    LW_JSON_NOTHING, /* the pointer leads to no value in the text */
    LW_JSON_STRING,
    LW_JSON_INTEGER, /* a number of any size without fraction and exponent */
    LW_JSON_REAL,
    LW_JSON_TRUE,
    LW_JSON_FALSE,
    LW_JSON_NULL,
    LW_JSON_OBJECT,
    LW_JSON_ARRAY,
};

struct lw_json_value {
    enum lw_json_kind kind;
    bool escaped;        /* true if the string has escapes, which lw_json_text() decodes */
    struct lw_bytes raw; /* the value as written in the text, but without the quotes of a string */
};

struct lw_json_rules {
    int depth_max; /* maximum nesting of objects and arrays */
    /* true if values that C cannot represent are refused: integers beyond 64 bits, numbers too
     * large for a double, and names that contain a NUL */
    bool fit;
};

/* A path: a JSON pointer (RFC 6901), and how far a scan has followed it. A path can be used for any
 * number of scans, one after the other. */
struct lw_json_path {
    const char *pointer; /* text of the pointer, borrowed */
    /* Only the scan itself uses the fields below. */
    /* points to the '/' of the next step, or to the end of the pointer once the value is found */
    const char *next;
    /* number of the pointer's steps that the scan has followed to its current place; these are the
     * first steps of the pointer */
    int depth;
    /* Each mark combines the length and the first byte of a step: `mark` of the next step, and
     * `first_mark` of the first step. A name and a step with different marks are different, so for
     * most names the texts need not be compared. */
    uint32_t mark, first_mark;
};

/* Returns true if a pointer is valid: it is empty or begins with '/', and 0 or 1 follows every
 * '~'. */
bool lw_json_pointer_ok(const char *pointer);
/* Prepares a path. `pointer` must have passed lw_json_pointer_ok(). A path owns nothing that must
 * be freed. */
void lw_json_path_init(struct lw_json_path *path, const char *pointer);

/* Scans a text and sets values[i] to the value at paths[i]. Returns 0. If the text is refused,
 * returns -1 with the error "malformed JSON at byte N: …"; then the values must not be used.
 * `scratch` is a buffer for decoded names. */
int lw_json_scan(struct lw_bytes text, struct lw_json_rules rules, struct lw_json_path *paths,
                 size_t n, struct lw_json_value *values, struct lw_buf *scratch,
                 struct lw_err *err);

/* Returns the text of a string value: the slice itself or, if it has escapes, its decoded form in
 * `scratch`, whose earlier content is discarded. */
struct lw_bytes lw_json_text(const struct lw_json_value *v, struct lw_buf *scratch);
/* Converts a scanned number. Returns false if the number does not fit the type. A double that
 * underflows becomes 0. */
bool lw_json_integer(struct lw_bytes raw, int64_t *out);
bool lw_json_real(struct lw_bytes raw, double *out);

#endif
