/* SPDX-License-Identifier: Apache-2.0 */
/* What a reason says of a row that the database refuses: the columns, their values, and the text of
 * the database. Reasons are shown to those who may see dead letters, so they hide what http.mask
 * hides in payloads. */
#include "handlers/insert/insert.h"

#include "handlers/reason.h"

#include <ctype.h>

#define MASKED "•••"
#define CUT "…"

enum { VALUE_MAX = 80 }; /* maximum number of bytes of a value in a reason */

/* Replaces each occurrence of a value in a text, also one whose end was cut off. */
static void hide(struct lw_buf *text, struct lw_bytes value) {
    struct lw_buf out = {0};
    const char *at = text->p, *end = text->p + text->n;
    while (at < end && value.n) {
        const char *cut = memmem(at, (size_t)(end - at), CUT, strlen(CUT)),
                   *found = memmem(at, (size_t)(end - at), value.p, value.n);
        size_t n = value.n;
        if (!found && cut)
            for (n = (size_t)(cut - at) < value.n ? (size_t)(cut - at) : value.n; n && !found; n--)
                if (memcmp(cut - n, value.p, n) == 0) {
                    found = cut - n;
                    break;
                }
        if (!found) break;
        lw_buf_add(&out, at, (size_t)(found - at));
        lw_buf_add(&out, MASKED, strlen(MASKED));
        at = found + n;
    }
    lw_buf_add(&out, at, (size_t)(end - at));
    lw_buf_free(text);
    *text = out;
}

bool lw_row_quotes(struct lw_bytes text, const struct lw_json_value *v) {
    const char *end = text.p + text.n, *from = memchr(text.p, '"', text.n), *to;
    for (; from && (to = memchr(from + 1, '"', (size_t)(end - from - 1))); from = to)
        if (to > from + 1 && memmem(v->raw.p, v->raw.n, from + 1, (size_t)(to - from - 1)))
            return true;
    return false;
}

/* Hides all that the text quotes if an element of the array may be among it. What an escape stands
 * for cannot be compared, so it may be. */
static void hide_elements(struct lw_buf *text, const struct lw_json_value *v) {
    const char *first = memchr(text->p, '"', text->n), *last = memrchr(text->p, '"', text->n);
    if (first == last) return;
    if (lw_row_quotes(lw_bytes(text->p, text->n), v) || memchr(v->raw.p, '\\', v->raw.n))
        hide(text, lw_bytes(first + 1, (size_t)(last - first - 1)));
}

static void hide_masked(const struct lw_insert *in, const struct lw_json_value *row,
                        struct lw_buf *text) {
    struct lw_buf scratch = {0};
    for (size_t i = 0; i < in->n_columns; i++) {
        char time[LW_TIME_TEXT];
        struct lw_json_value v = lw_row_value(&in->columns[i], &row[i], time);
        if (!in->columns[i].masked || v.kind == LW_JSON_NOTHING || v.kind == LW_JSON_NULL) continue;
        hide(text, lw_json_text(&v, &scratch));
        if (row[i].raw.p != v.raw.p) hide(text, row[i].raw);
        if (v.kind == LW_JSON_ARRAY) hide_elements(text, &v);
    }
    lw_buf_free(&scratch);
}

/* Appends: column "amount" gets "x" from /amount. The value is as it is in the payload. */
static void add_column(struct lw_buf *out, const struct lw_column *c,
                       const struct lw_json_value *v) {
    const char *quote = v->kind == LW_JSON_STRING ? "\"" : "";
    lw_buf_addf(out, "column \"%s\" gets ", c->name);
    if (v->kind == LW_JSON_NOTHING) {
        lw_buf_addf(out, "nothing");
    } else if (c->masked) {
        lw_buf_addf(out, MASKED);
    } else {
        size_t n = lw_bytes_fit(v->raw, VALUE_MAX);
        lw_buf_addf(out, "%s%.*s%s%s", quote, (int)n, v->raw.p, n < v->raw.n ? CUT : "", quote);
    }
    lw_buf_addf(out, " from %s", c->pointer[0] ? c->pointer : "the payload");
}

void lw_row_blame(const struct lw_insert *in, const struct lw_json_value *row,
                  const struct lw_column_set *columns, const char *what, const char *why,
                  char reason[LW_REASON_MAX]) {
    struct lw_buf out = {0}, text = {0};
    const char *before = ": ";
    lw_buf_addf(&out, "%s", what);
    for (size_t i = 0; i < in->n_columns; i++) {
        if (!lw_in_set(columns, i)) continue;
        lw_buf_addf(&out, "%s", before);
        add_column(&out, &in->columns[i], &row[i]);
        before = ", ";
    }
    lw_buf_addf(&text, "%s", why);
    hide_masked(in, row, &text);
    if (text.n) lw_buf_addf(&out, ": %.*s", (int)text.n, text.p);
    lw_buf_add(&out, "", 1);
    lw_reason_copy(reason, out.p);
    lw_buf_free(&out);
    lw_buf_free(&text);
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || (c & 0x80); }

void lw_row_find_names(const struct lw_insert *in, const char *text,
                       struct lw_column_set *columns) {
    for (size_t i = 0; i < in->n_columns; i++) {
        size_t n = strlen(in->columns[i].name);
        for (const char *p = text; (p = strcasestr(p, in->columns[i].name)); p++)
            if ((p == text || !in_word(p[-1])) && !in_word(p[n])) {
                lw_set_add(columns, i);
                break;
            }
    }
}

struct lw_column_set lw_row_key(const struct lw_insert *in) {
    struct lw_column_set key = {0};
    for (size_t i = 0; i < in->n_columns; i++)
        if (in->columns[i].primary) lw_set_add(&key, i);
    return key;
}
