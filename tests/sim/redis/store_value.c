/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of the fake Redis: byte strings, lists as ring buffers, dictionaries, and zsets
 * as sorted arrays. */
#include "tests/sim/redis/store_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void) {
    fprintf(stderr, "store: out of memory\n");
    abort();
}

void *store_alloc(size_t size) {
    void *p = calloc(1, size ? size : 1);
    if (!p) out_of_memory();
    return p;
}

void *store_realloc(void *p, size_t size) {
    p = realloc(p, size ? size : 1);
    if (!p) out_of_memory();
    return p;
}

struct blob *blob_new(const char *p, size_t n) {
    struct blob *b = malloc(sizeof *b + n + 1);
    if (!b || n > UINT32_MAX) out_of_memory();
    b->refs = 1;
    b->len = (uint32_t)n;
    if (n > 0) memcpy(b->data, p, n);
    b->data[n] = '\0';
    return b;
}

struct blob *blob_ref(struct blob *b) {
    b->refs++;
    return b;
}

void blob_unref(struct blob *b) {
    if (b && --b->refs == 0) free(b);
}

struct blob *blob_writable(struct blob *b, size_t len) {
    if (b->refs == 1 && b->len >= len) return b;
    size_t size = b->len > len ? b->len : len;
    struct blob *fresh = store_alloc(sizeof *fresh + size + 1);
    fresh->refs = 1;
    fresh->len = (uint32_t)size;
    memcpy(fresh->data, b->data, b->len);
    blob_unref(b);
    return fresh;
}

struct slice blob_slice(const struct blob *b) {
    return (struct slice){b->data, b->len};
}

bool slice_is(struct slice a, const char *word) {
    return strlen(word) == a.n && strncasecmp(a.p, word, a.n) == 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

static void list_grow(struct list *l) {
    size_t cap = l->cap ? l->cap * 2 : 8;
    struct blob **at = store_alloc(cap * sizeof *at);
    for (size_t i = 0; i < l->count; i++) at[i] = *list_at(l, i);
    free(l->at);
    l->at = at;
    l->cap = cap;
    l->head = 0;
}

struct blob **list_at(const struct list *l, size_t i) {
    return &l->at[(l->head + i) & (l->cap - 1)];
}

void list_push(struct list *l, bool left, struct blob *b) {
    if (l->count == l->cap) list_grow(l);
    if (left) l->head = (l->head - 1) & (l->cap - 1);
    l->count++;
    *list_at(l, left ? 0 : l->count - 1) = b;
}

struct blob *list_pop(struct list *l, bool left) {
    struct blob *b = *list_at(l, left ? 0 : l->count - 1);
    if (left) l->head = (l->head + 1) & (l->cap - 1);
    l->count--;
    return b;
}

void list_remove(struct list *l, size_t i) {
    blob_unref(*list_at(l, i));
    for (; i + 1 < l->count; i++) *list_at(l, i) = *list_at(l, i + 1);
    l->count--;
}

/* --- dictionaries ----------------------------------------------------------------------------- */

struct member *member_find(struct member *dict, struct slice name) {
    struct member *m;
    HASH_FIND(hh, dict, name.p, name.n, m);
    return m;
}

static struct member *member_insert(struct member **dict, struct blob *name) {
    struct member *m = store_alloc(sizeof *m);
    m->name = name;
    HASH_ADD_KEYPTR(hh, *dict, m->name->data, m->name->len, m);
    return m;
}

struct member *member_add(struct member **dict, struct slice name) {
    return member_insert(dict, blob_new(name.p, name.n));
}

void member_delete(struct member **dict, struct member *m) {
    HASH_DEL(*dict, m);
    blob_unref(m->name);
    blob_unref(m->value);
    free(m);
}

static void dict_clear(struct member **dict) {
    struct member *m, *next;
    HASH_ITER(hh, *dict, m, next) member_delete(dict, m);
}

static struct member *dict_copy(struct member *dict) {
    struct member *copy = NULL;
    for (struct member *m = dict; m; m = m->hh.next) {
        struct member *n = member_insert(&copy, blob_ref(m->name));
        n->value = m->value ? blob_ref(m->value) : NULL;
        n->score = m->score;
    }
    return copy;
}

/* --- zsets ------------------------------------------------------------------------------------ */

static int slice_order(const struct blob *a, const struct blob *b) {
    int c = memcmp(a->data, b->data, a->len < b->len ? a->len : b->len);
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

static bool ranks_before(const struct member *a, double score, const struct blob *name) {
    if (a->score < score || a->score > score) return a->score < score;
    return slice_order(a->name, name) < 0;
}

static size_t rank_of(const struct zset *z, double score, const struct blob *name) {
    size_t low = 0, high = z->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (ranks_before(z->sorted[mid], score, name))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

size_t zset_rank(const struct zset *z, const struct member *m) {
    return rank_of(z, m->score, m->name);
}

static void unsort(struct zset *z, const struct member *m) {
    size_t at = zset_rank(z, m);
    z->count--;
    memmove(&z->sorted[at], &z->sorted[at + 1], (z->count - at) * sizeof *z->sorted);
}

static void sort_in(struct zset *z, struct member *m) {
    if (z->count == z->cap) {
        z->cap = z->cap ? z->cap * 2 : 8;
        z->sorted = store_realloc(z->sorted, z->cap * sizeof *z->sorted);
    }
    size_t at = zset_rank(z, m);
    memmove(&z->sorted[at + 1], &z->sorted[at], (z->count - at) * sizeof *z->sorted);
    z->sorted[at] = m;
    z->count++;
}

void zset_set(struct zset *z, struct slice name, double score) {
    struct member *m = member_find(z->dict, name);
    if (m)
        unsort(z, m);
    else
        m = member_add(&z->dict, name);
    /* Redis keeps no negative zero in a small zset. Adding 0.0 turns -0.0 into 0.0, so the fake
     * keeps none either. */
    m->score = score + 0.0;
    sort_in(z, m);
}

void zset_remove(struct zset *z, struct member *m) {
    unsort(z, m);
    member_delete(&z->dict, m);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void stream_clear(struct stream *st) {
    for (size_t i = 0; i < st->count; i++) {
        for (size_t j = 0; j < st->at[i].count; j++) blob_unref(st->at[i].fields[j]);
        free(st->at[i].fields);
    }
    free(st->at);
}

void entry_clear(struct entry *e) {
    switch (e->type) {
    case STORE_STRING: blob_unref(e->str); break;
    case STORE_LIST:
        for (size_t i = 0; i < e->list.count; i++) blob_unref(*list_at(&e->list, i));
        free(e->list.at);
        break;
    case STORE_HASH:
    case STORE_SET: dict_clear(&e->dict); break;
    case STORE_ZSET:
        dict_clear(&e->zset.dict);
        free(e->zset.sorted);
        break;
    case STORE_STREAM: stream_clear(&e->stream); break;
    case STORE_NONE: break;
    }
    /* `stream` is the largest member of the union, so clearing it clears the whole union. */
    e->stream = (struct stream){0};
    e->type = STORE_NONE;
}

bool entry_expired(const struct store *s, const struct entry *e) {
    return e->expire_ms >= 0 && store_now_ms(s) > e->expire_ms;
}

struct entry *entry_find(struct store *s, struct slice key) {
    struct entry *e;
    HASH_FIND(hh, s->keys, key.p, key.n, e);
    if (!e || !entry_expired(s, e)) return e;
    entry_delete(s, e);
    return NULL;
}

const struct entry *entry_peek(const struct store *s, const char *key, size_t key_len) {
    struct entry *e;
    HASH_FIND(hh, s->keys, key, key_len, e);
    return e && !entry_expired(s, e) ? e : NULL;
}

struct entry *entry_add(struct store *s, struct slice key, enum store_type type) {
    struct entry *e = store_alloc(sizeof *e);
    e->key = blob_new(key.p, key.n);
    e->expire_ms = -1;
    e->type = type;
    HASH_ADD_KEYPTR(hh, s->keys, e->key->data, e->key->len, e);
    return e;
}

void entry_delete(struct store *s, struct entry *e) {
    HASH_DEL(s->keys, e);
    entry_clear(e);
    blob_unref(e->key);
    free(e);
}

void entry_drop_empty(struct store *s, struct entry *e) {
    bool empty = (e->type == STORE_LIST && e->list.count == 0) ||
                 (e->type == STORE_ZSET && e->zset.count == 0) ||
                 ((e->type == STORE_HASH || e->type == STORE_SET) && !e->dict);
    if (empty) entry_delete(s, e);
}

static void copy_list(struct list *to, const struct list *from) {
    to->cap = from->cap;
    to->at = store_alloc(to->cap * sizeof *to->at);
    for (size_t i = 0; i < from->count; i++) to->at[i] = blob_ref(*list_at(from, i));
    to->count = from->count;
}

static void copy_zset(struct zset *to, const struct zset *from) {
    to->dict = dict_copy(from->dict);
    to->cap = from->cap;
    to->sorted = store_alloc(to->cap * sizeof *to->sorted);
    to->count = from->count;
    for (size_t i = 0; i < to->count; i++)
        to->sorted[i] = member_find(to->dict, blob_slice(from->sorted[i]->name));
}

static void copy_stream(struct stream *to, const struct stream *from) {
    *to = *from;
    to->at = store_alloc(to->cap * sizeof *to->at);
    for (size_t i = 0; i < to->count; i++) {
        const struct stream_entry *old = &from->at[i];
        to->at[i] = *old;
        to->at[i].fields = store_alloc(old->count * sizeof *old->fields);
        for (size_t j = 0; j < old->count; j++) to->at[i].fields[j] = blob_ref(old->fields[j]);
    }
}

struct entry *entry_copy(const struct entry *e) {
    struct entry *c = store_alloc(sizeof *c);
    c->key = blob_ref(e->key);
    c->expire_ms = e->expire_ms;
    c->type = e->type;
    switch (e->type) {
    case STORE_STRING: c->str = blob_ref(e->str); break;
    case STORE_LIST: copy_list(&c->list, &e->list); break;
    case STORE_HASH:
    case STORE_SET: c->dict = dict_copy(e->dict); break;
    case STORE_ZSET: copy_zset(&c->zset, &e->zset); break;
    case STORE_STREAM: copy_stream(&c->stream, &e->stream); break;
    case STORE_NONE: break;
    }
    return c;
}
