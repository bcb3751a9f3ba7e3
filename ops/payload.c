/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/payload.h"

#include "base/json_scan.h"

#include <jansson.h>
#include <stdlib.h>

#define MASKED "\"•••\""

enum { DEPTH_MAX = 256 };

/* Returns false if the text is not JSON, or if an object in it has two members of the same name.
 * lw_json_scan() finds only the last of these members, so the values of the earlier ones would not
 * be masked. */
static bool unambiguous(struct lw_bytes text) {
    json_t *v =
        json_loadb(text.p, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    json_decref(v);
    return v;
}

/* Returns the text of a JSON value. Unlike the field `raw` of a string, the returned text includes
 * the quotes. */
static struct lw_bytes whole(const struct lw_json_value *v) {
    return v->kind == LW_JSON_STRING ? lw_bytes(v->raw.p - 1, v->raw.n + 2) : v->raw;
}

static int by_place(const void *a, const void *b) {
    const struct lw_bytes *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? -1 : 1;
    return x->n > y->n ? -1 : x->n < y->n; /* a value that contains another value comes first */
}

static void copy_masked(struct lw_bytes text, struct lw_bytes *hide, size_t n, struct lw_buf *out) {
    const char *at = text.p;
    qsort(hide, n, sizeof *hide, by_place);
    for (size_t i = 0; i < n; i++) {
        if (hide[i].p < at) continue; /* this value is part of a value that is already masked */
        lw_buf_add(out, at, (size_t)(hide[i].p - at));
        lw_buf_add(out, MASKED, sizeof MASKED - 1);
        at = hide[i].p + hide[i].n;
    }
    lw_buf_add(out, at, (size_t)(text.p + text.n - at));
}

static enum lw_payload_view mask(const struct lw_config *c, struct lw_bytes text,
                                 struct lw_buf *out) {
    size_t n = c->http.n_mask, n_hide = 0;
    struct lw_json_path *path = lw_alloc((n + 1) * sizeof *path);
    struct lw_json_value *value = lw_alloc((n + 1) * sizeof *value);
    struct lw_bytes *hide = lw_alloc((n + 1) * sizeof *hide);
    struct lw_buf scratch = {0};
    struct lw_err err = {0};
    for (size_t i = 0; i < n; i++) lw_json_path_init(&path[i], c->http.mask[i]);
    bool good =
        unambiguous(text) && lw_json_scan(text, (struct lw_json_rules){.depth_max = DEPTH_MAX},
                                          path, n, value, &scratch, &err) == 0;
    for (size_t i = 0; good && i < n; i++)
        if (value[i].kind != LW_JSON_NOTHING) hide[n_hide++] = whole(&value[i]);
    if (good) copy_masked(text, hide, n_hide, out);
    lw_buf_free(&scratch);
    free(path), free(value), free(hide);
    return good ? LW_PAYLOAD_MASKED : LW_PAYLOAD_HIDDEN;
}

enum lw_payload_view lw_payload_shown(const struct lw_config *c, struct lw_bytes payload,
                                      struct lw_buf *out) {
    if (payload.p && c->http.payloads == LW_PAYLOADS_HIDE) return LW_PAYLOAD_HIDDEN;
    if (payload.p && c->http.payloads == LW_PAYLOADS_MASK) return mask(c, payload, out);
    if (payload.p) lw_buf_add(out, payload.p, payload.n);
    return LW_PAYLOAD_SHOWN;
}
