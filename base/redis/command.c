/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/command.h"

#include <stdlib.h>

enum { CHUNK = 64 * 1024 };

struct lw_chunk {
    struct lw_chunk *older;
    size_t n, cap;
    char data[];
};

void lw_commands_reset(struct lw_commands *c) {
    c->n = c->n_args = 0;
    while (c->chunk && (c->chunk->older || c->chunk->cap > CHUNK)) {
        /* keep one chunk of the usual size for the next pipeline */
        struct lw_chunk *older = c->chunk->older;
        free(c->chunk);
        c->chunk = older;
    }
    if (c->chunk) c->chunk->n = 0;
}

void lw_commands_free(struct lw_commands *c) {
    while (c->chunk) {
        struct lw_chunk *older = c->chunk->older;
        free(c->chunk);
        c->chunk = older;
    }
    free(c->cmd);
    free(c->argv);
    free(c->len);
    *c = (struct lw_commands){0};
}

static char *room(struct lw_commands *c, size_t n) {
    if (!c->chunk || c->chunk->cap - c->chunk->n < n) {
        size_t cap = n > CHUNK ? n : CHUNK;
        struct lw_chunk *k = lw_realloc(NULL, sizeof *k + cap);
        *k = (struct lw_chunk){.older = c->chunk, .cap = cap};
        c->chunk = k;
    }
    char *p = c->chunk->data + c->chunk->n;
    c->chunk->n += n;
    return p;
}

void lw_arg(struct lw_commands *c, struct lw_bytes b) {
    if (c->n_args == c->cap_args) {
        c->cap_args = c->cap_args ? c->cap_args * 2 : 256;
        c->argv = lw_realloc(c->argv, (size_t)c->cap_args * sizeof *c->argv);
        c->len = lw_realloc(c->len, (size_t)c->cap_args * sizeof *c->len);
    }
    c->argv[c->n_args] = b.p ? b.p : "";
    c->len[c->n_args++] = b.n;
    c->cmd[c->n - 1].argc++;
}

void lw_cmd(struct lw_commands *c, const char *name) {
    if (c->n == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 16;
        c->cmd = lw_realloc(c->cmd, (size_t)c->cap * sizeof *c->cmd);
    }
    c->cmd[c->n++] = (struct lw_command){.first = c->n_args};
    lw_arg_text(c, name);
}

void lw_arg_text(struct lw_commands *c, const char *s) { lw_arg(c, lw_bytes_of(s)); }

char *lw_arg_room(struct lw_commands *c, size_t n) {
    char *p = room(c, n);
    lw_arg(c, lw_bytes(p, n));
    return p;
}

void lw_arg_copy(struct lw_commands *c, const char *p, size_t n) {
    char *to = lw_arg_room(c, n);
    if (n) memcpy(to, p, n);
}

void lw_arg_join(struct lw_commands *c, struct lw_bytes a, const char *b, struct lw_bytes d) {
    size_t nb = strlen(b);
    char *p = lw_arg_room(c, a.n + nb + d.n);
    memcpy(p, a.p, a.n);
    memcpy(p + a.n, b, nb);
    if (d.n) memcpy(p + a.n + nb, d.p, d.n);
}

size_t lw_decimal(int64_t v, char *out) {
    char digits[20];
    size_t n = 0, at = 0;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do digits[n++] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0) out[at++] = '-';
    while (n) out[at++] = digits[--n];
    out[at] = 0;
    return at;
}

void lw_arg_i64(struct lw_commands *c, int64_t v) {
    char text[24];
    lw_arg_copy(c, text, lw_decimal(v, text));
}
