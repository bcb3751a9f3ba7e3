/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/head.h"

#include "base/redis/command.h"

#include <ctype.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 256, VALUE_MAX = 8192 };

void head_clear(struct http_head *h) {
    lw_buf_clear(&h->text);
    h->n = 0;
}

void head_free(struct http_head *h) {
    lw_buf_free(&h->text);
    free(h->nodes);
    *h = (struct http_head){0};
}

/* Adds a header's name and the separator before its value. libcurl's form for an empty value is
 * "Name;", because "Name:" removes the header. */
static void begin(struct http_head *h, struct lw_bytes name, bool empty) {
    lw_buf_add(&h->text, name.p, name.n);
    lw_buf_add(&h->text, empty ? ";" : ": ", empty ? 1 : 2);
}

static void end(struct http_head *h) {
    lw_buf_add(&h->text, "", 1);
    h->n++;
}

void head_add(struct http_head *h, struct lw_bytes name, struct lw_bytes value) {
    begin(h, name, !value.n);
    lw_buf_add(&h->text, value.p, value.n);
    end(h);
}

void head_add_text(struct http_head *h, const char *name, const char *value) {
    head_add(h, lw_bytes_of(name), lw_bytes_of(value));
}

void head_add_number(struct http_head *h, const char *name, int64_t value) {
    char digits[24];
    head_add(h, lw_bytes_of(name), lw_bytes(digits, lw_decimal(value, digits)));
}

static bool is_plain(unsigned char c) { return c > ' ' && c < 0x7f && c != '"' && c != '%'; }

void head_add_encoded(struct http_head *h, const char *name, struct lw_bytes value) {
    static const char hex[] = "0123456789ABCDEF";
    begin(h, lw_bytes_of(name), !value.n);
    for (size_t i = 0, from; i < value.n; i++) {
        for (from = i; i < value.n && is_plain((unsigned char)value.p[i]); i++) {}
        lw_buf_add(&h->text, value.p + from, i - from);
        unsigned char c = i < value.n ? (unsigned char)value.p[i] : 0;
        if (i < value.n) lw_buf_add(&h->text, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
    }
    end(h);
}

void head_add_line(struct http_head *h, const char *line) {
    lw_buf_add(&h->text, line, strlen(line));
    end(h);
}

struct curl_slist *head_list(struct http_head *h) {
    if (h->n > h->cap) {
        h->cap = 2 * h->n;
        h->nodes = lw_realloc(h->nodes, h->cap * sizeof *h->nodes);
    }
    char *at = h->text.p;
    for (size_t i = 0; i < h->n; i++, at += strlen(at) + 1)
        h->nodes[i] = (struct curl_slist){at, i + 1 < h->n ? &h->nodes[i + 1] : NULL};
    return h->n ? h->nodes : NULL;
}

bool head_name_ok(struct lw_bytes name) {
    if (!name.n || name.n > NAME_MAX_BYTES) return false;
    for (size_t i = 0; i < name.n; i++)
        if (!name.p[i] ||
            (!isalnum((unsigned char)name.p[i]) && !strchr("!#$%&'*+-.^_`|~", name.p[i])))
            return false;
    return true;
}

bool head_value_ok(struct lw_bytes value) {
    if (value.n > VALUE_MAX) return false;
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) return false;
    }
    return true;
}
