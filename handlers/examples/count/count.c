/* SPDX-License-Identifier: Apache-2.0 */
/* count: counts messages and distinct keys, and does nothing else. The plugin is an example to copy
 * from, and is used to measure Latchwork itself. Counting needs no mutex, because the counters are
 * atomics in a table of fixed size, in which a hash of the key chooses the counter. The plugin logs
 * its figures at the end. */
#include <latchwork/handler.h>

#include <stdatomic.h>
#include <stdlib.h>

enum { SLOTS = 1 << 18 };

struct count {
    const struct latchwork_host *host;
    atomic_ullong messages;
    /* `per_slot` is the number of messages in each slot of the table. Keys whose hashes choose
     * the same slot are counted as one key, so the number of used slots is a lower bound of the
     * number of keys. */
    atomic_uint per_slot[SLOTS];
};

static int init(const struct latchwork_host *host, const char *config, void **self, char *error,
                size_t error_size) {
    (void)config, (void)error, (void)error_size;
    struct count *c = calloc(1, sizeof *c);
    if (!c) return -1;
    c->host = host;
    *self = c;
    return 0;
}

/* Finds the slot of a key by an FNV-1a hash. */
static unsigned slot_of(const unsigned char *key, size_t n) {
    unsigned long long h = 14695981039346656037ULL;
    for (size_t i = 0; i < n; i++) h = (h ^ key[i]) * 1099511628211ULL;
    return (unsigned)(h ^ h >> 32) & (SLOTS - 1);
}

static int handle(void *self, const struct latchwork_message *m, char *reason, size_t reason_size) {
    (void)reason, (void)reason_size;
    struct count *c = self;
    atomic_fetch_add_explicit(&c->messages, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->per_slot[slot_of(m->key, m->key_len)], 1, memory_order_relaxed);
    return LATCHWORK_DONE;
}

static void finish(void *self) {
    struct count *c = self;
    unsigned keys = 0, most = 0;
    for (int i = 0; i < SLOTS; i++) {
        unsigned n = c->per_slot[i];
        keys += n > 0;
        if (n > most) most = n;
    }
    c->host->log(LATCHWORK_LOG_INFO, "count: %llu messages of at least %u keys; the busiest had %u",
                 (unsigned long long)c->messages, keys, most);
    free(c);
}

LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {
    LATCHWORK_HANDLER_INIT, .init = init, .handle = handle, .close = finish};
