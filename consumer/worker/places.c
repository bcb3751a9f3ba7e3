/* SPDX-License-Identifier: Apache-2.0 */
/* places: how a call names messages. Each segment is named once, as a key. A message is then three
 * bytes: which segment, and its index there. */
#include "consumer/worker/places.h"

#include "consumer/worker/limits.h"
#include "consumer/worker/partition.h"
#include "consumer/worker/shard.h"

#include <assert.h>

/* A range of states is read at once up to so many bytes per message: one more byte costs Redis
 * about a hundredth of what one more page costs. */
enum { DENSE_BYTES = 128 };

bool places_fit(const struct places *p, int more) { return p->n + more <= GROUPS_MAX; }

static struct group *group_of(struct places *p, struct part *part, int64_t segment) {
    for (int i = p->n - 1; i >= 0; i--)
        if (p->group[i].part == part && p->group[i].segment == segment) return &p->group[i];
    assert(p->n < GROUPS_MAX);
    struct group *g = &p->group[p->n++];
    *g = (struct group){.part = part, .segment = segment, .lo = LW_SEGMENT / 4, .hi = 0};
    return g;
}

void places_add(struct places *p, struct part *part, int64_t offset) {
    int index = (int)(offset % LW_SEGMENT), byte = index / 4;
    struct group *g = group_of(p, part, offset / LW_SEGMENT);
    if (byte < g->lo) g->lo = byte;
    if (byte > g->hi) g->hi = byte;
    g->n++;
    assert((size_t)p->n_bytes + 3 <= sizeof p->bytes);
    p->bytes[p->n_bytes++] = (unsigned char)(g - p->group + 1);
    p->bytes[p->n_bytes++] = (unsigned char)(index >> 8);
    p->bytes[p->n_bytes++] = (unsigned char)(index & 255);
}

void places_keys(struct shard *sh, const struct places *p) {
    for (int i = 0; i < p->n; i++) {
        char name[370];
        size_t len = strlen(p->group[i].part->name);
        memcpy(name, p->group[i].part->name, len);
        name[len++] = ':';
        len += lw_decimal(p->group[i].segment, name + len);
        lw_arg_join(&sh->pipe.commands, lw_bytes(sh->prefix, sh->n_prefix), "state:", lw_bytes(name, len));
        lw_arg_join(&sh->pipe.commands, lw_bytes(sh->prefix, sh->n_prefix), "tries:", lw_bytes(name, len));
    }
}

void places_args(struct lw_commands *c, const struct places *p) {
    lw_arg_copy(c, (const char *)p->bytes, (size_t)p->n_bytes);
    lw_arg_i64(c, p->n);
    for (int i = 0; i < p->n; i++) {
        lw_arg_text(c, p->group[i].part->name), lw_arg_i64(c, p->group[i].segment);
        bool dense = p->group[i].hi - p->group[i].lo < DENSE_BYTES * p->group[i].n; /* otherwise each message's page is read by itself */
        lw_arg_i64(c, dense ? p->group[i].lo : 1), lw_arg_i64(c, dense ? p->group[i].hi : 0);
    }
}
