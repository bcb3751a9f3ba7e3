/* SPDX-License-Identifier: Apache-2.0 */
/* Prints results for people and for programs. */
#include "handlers/json_text.h"
#include "ops/ops.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- JSON ------------------------------------------------------------------------------------- */

static _Thread_local struct lw_buf *lines;
void ops_out_to(struct lw_buf *b) { lines = b; }

void ops_put_json(json_t *o) {
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text && lines)
        lw_buf_addf(lines, "%s\n", text);
    else if (text)
        puts(text);
    free(text);
    json_decref(o);
}

static json_t *base64(struct lw_bytes b) {
    struct lw_buf text = {0};
    lw_json_base64(&text, b);
    json_t *s = json_stringn(text.p + 1, text.n - 2); /* the quotes around the text are left out */
    lw_buf_free(&text);
    return s;
}

void ops_set_bytes(json_t *o, const char *name, struct lw_bytes b) {
    char other[64];
    if (!b.p) {
        json_object_set_new(o, name, json_null());
    } else if (lw_utf8_ok(b)) {
        json_object_set_new(o, name, json_stringn(b.p, b.n));
    } else {
        snprintf(other, sizeof other, "%s_base64", name);
        json_object_set_new(o, other, base64(b));
    }
}

/* --- text ------------------------------------------------------------------------------------- */

void ops_text(struct lw_buf *out, struct lw_bytes b, size_t most) {
    size_t n = b.n <= most ? b.n : most > 1 ? most - 1 : 0;
    bool utf8 = lw_utf8_ok(b);
    /* if the text is cut, it is cut between two characters */
    while (utf8 && n > 0 && n < b.n && ((unsigned char)b.p[n] & 0xc0) == 0x80) n--;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)b.p[i];
        bool control = c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8);
        if (utf8 && c == 0xc2 && i + 1 < n && (unsigned char)b.p[i + 1] < 0xa0) {
            /* a C1 control character, which has two bytes, becomes one '?' */
            lw_buf_add(out, "?", 1);
            i++;
            continue;
        }
        lw_buf_add(out, control ? "?" : b.p + i, 1);
    }
    if (n < b.n) lw_buf_add(out, "…", strlen("…"));
}

void ops_put_text(const char *name, struct lw_bytes b, size_t most) {
    struct lw_buf text = {0};
    ops_text(&text, b, most);
    printf("%-9s%.*s\n", name, (int)text.n, text.p ? text.p : "");
    lw_buf_free(&text);
}

const char *ops_age(int64_t ms, char out[16]) {
    if (ms < 0)
        snprintf(out, 16, "-");
    else if (ms < 1000)
        snprintf(out, 16, "%d ms", (int)ms);
    else if (ms < 120000)
        snprintf(out, 16, "%d s", (int)(ms / 1000));
    else if (ms < 7200000)
        snprintf(out, 16, "%d min", (int)(ms / 60000));
    else if (ms < 172800000)
        snprintf(out, 16, "%d h", (int)(ms / 3600000));
    else
        snprintf(out, 16, "%lld d", (long long)(ms / 86400000));
    return out;
}

const char *ops_when(int64_t wall_ms, char out[32]) {
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (wall_ms < 0 || !gmtime_r(&s, &tm) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(out, 32, "-");
    return out;
}

/* --- tables ----------------------------------------------------------------------------------- */

static void add_cell(struct ops_table *t, char *text) {
    t->cells = lw_more(t->cells, t->n_cells, &t->cap, sizeof *t->cells);
    t->cells[t->n_cells++] = text;
}

void ops_cell(struct ops_table *t, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    add_cell(t, lw_strdup(text));
}

void ops_cell_bytes(struct ops_table *t, struct lw_bytes b, size_t most) {
    struct lw_buf text = {0};
    ops_text(&text, b, most);
    lw_buf_add(&text, "", 1);
    add_cell(t, text.p);
}

/* Returns the width of a text in columns, which is the number of bytes that begin a UTF-8
 * character. */
static size_t width(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_cell(const char *s, size_t w, bool right, bool last) {
    int pad = (int)(w - width(s));
    if (right)
        printf("%*s%s", pad, "", s);
    else
        printf("%s%*s", s, last ? 0 : pad, "");
    fputs(last ? "\n" : "  ", stdout);
}

void ops_table_print(struct ops_table *t) {
    size_t w[16] = {0}, n = t->n_columns;
    assert(n > 0);
    for (size_t i = 0; i < n; i++) w[i] = width(t->columns[i].name);
    for (size_t i = 0; i < t->n_cells; i++)
        if (width(t->cells[i]) > w[i % n]) w[i % n] = width(t->cells[i]);
    for (size_t i = 0; i < n; i++)
        put_cell(t->columns[i].name, w[i], t->columns[i].right, i + 1 == n);
    for (size_t i = 0; i < t->n_cells; i++) {
        put_cell(t->cells[i], w[i % n], t->columns[i % n].right, i % n + 1 == n);
        free(t->cells[i]);
    }
    free(t->cells);
    *t = (struct ops_table){.columns = t->columns, .n_columns = n};
}
