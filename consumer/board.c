/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/board.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

struct lw_board *lw_board_open(int n_workers, struct lw_err *err) {
    if (n_workers < 1 || n_workers > LW_BOARD_WORKERS) {
        lw_fail(err, "workers is %d; expected 1 to %d", n_workers, LW_BOARD_WORKERS);
        return NULL;
    }
    struct lw_board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        lw_fail(err, "cannot map shared memory for %d workers (%zu bytes): %s", n_workers,
                sizeof *b, strerror(errno));
        return NULL;
    }
    atomic_store(&b->n_workers, n_workers);
    atomic_store(&b->n_wanted, n_workers);
    b->member_slot = -1;
    atomic_store(&b->started_wall_ms, lw_wall_ms());
    return b;
}

void lw_board_close(struct lw_board *b) {
    if (!b) return;
    lw_spans_close(b->spans, LW_BOARD_WORKERS);
    munmap(b, sizeof *b);
}

int lw_board_add_spans(struct lw_board *b, struct lw_err *err) {
    if (!b->spans) b->spans = lw_spans_open(LW_BOARD_WORKERS, err);
    return b->spans ? 0 : -1;
}

/* Writes the text of a note, unless the note has this text already. The version is made odd before
 * the text is written, and even afterwards. It may be odd at first, because an earlier writer may
 * have died during a write. */
void lw_note_set(struct lw_note *n, const char *text) {
    uint32_t version = atomic_load(&n->version);
    if (!(version & 1) && !strcmp(n->text, text)) return;
    atomic_store(&n->version, version | 1);
    atomic_thread_fence(memory_order_release);
    snprintf(n->text, sizeof n->text, "%s", text);
    atomic_store(&n->version, (version | 1) + 1);
}

bool lw_note_get(const struct lw_note *n, char *out, size_t size) {
    for (int i = 0; i < 100; i++) {
        uint32_t before = atomic_load(&n->version);
        snprintf(out, size, "%.*s", (int)sizeof n->text - 1, n->text);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load(&n->version) == before) return true;
    }
    if (size) out[0] = '\0';
    return false;
}

void lw_seat_take(struct lw_seat *s, const char *identity, struct lw_bytes key, int64_t now_ms) {
    assert(key.p || !key.n);
    snprintf(s->identity, sizeof s->identity, "%s", identity);
    s->key_hash = XXH3_64bits(key.p ? key.p : "", key.n);
    s->n_key = key.n < LW_SEAT_KEY ? (uint32_t)key.n : LW_SEAT_KEY;
    if (s->n_key) memcpy(s->key, key.p, s->n_key);
    atomic_store_explicit(&s->since_ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&s->busy, true, memory_order_release);
}

void lw_seat_leave(struct lw_seat *s) {
    atomic_store_explicit(&s->busy, false, memory_order_release);
}

static bool is_used(uint32_t word) { return word & 1; }

/* Returns the slot of a suspect, or -1 if the message is none. Sets *word to the word of that
 * slot. */
static int find(const struct lw_board *b, const char *identity, uint32_t *word) {
    /* slots of the table of suspects are filled from the lowest index, so most searches end
     * early */
    int32_t left = atomic_load_explicit(&b->n_suspects, memory_order_acquire);
    for (size_t i = 0; i < LW_BOARD_SUSPECTS && left > 0; i++) {
        const struct lw_suspect *s = &b->suspects[i];
        *word = atomic_load_explicit(&s->word, memory_order_acquire);
        if (!is_used(*word)) continue;
        left--;
        if (strncmp(s->identity, identity, sizeof s->identity) != 0) continue;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&s->word, memory_order_relaxed) == *word) return (int)i;
    }
    return -1;
}

bool lw_board_is_suspect(const struct lw_board *b, const char *identity) {
    uint32_t word;
    return find(b, identity, &word) >= 0;
}

/* Frees a slot, unless it has changed since the caller read `word` from it. */
static void release(struct lw_board *b, struct lw_suspect *s, uint32_t word) {
    if (atomic_compare_exchange_strong(&s->word, &word, word & ~1u))
        atomic_fetch_sub(&b->n_suspects, 1);
}

void lw_board_forget(struct lw_board *b, const char *identity) {
    uint32_t word;
    int i = find(b, identity, &word);
    if (i >= 0) release(b, &b->suspects[i], word);
}

/* Returns the lowest free slot or, if no slot is free, the slot of the oldest suspect. The caller
 * overwrites that slot, so its old message is forgotten, and may crash its worker once more. */
static struct lw_suspect *slot_for_new(struct lw_board *b) {
    struct lw_suspect *best = &b->suspects[0];
    for (size_t i = 0; i < LW_BOARD_SUSPECTS; i++) {
        struct lw_suspect *s = &b->suspects[i];
        if (!is_used(atomic_load(&s->word))) return s;
        if (s->age < best->age) best = s;
    }
    return best;
}

/* Returns true if the message was no suspect before. */
static bool accuse(struct lw_board *b, const char *identity) {
    static uint64_t age;
    uint32_t word;
    int i = find(b, identity, &word);
    struct lw_suspect *s = i >= 0 ? &b->suspects[i] : slot_for_new(b);
    word = ((atomic_load(&s->word) >> 1) + 1) << 1;
    if (is_used(atomic_exchange(&s->word, word))) atomic_fetch_sub(&b->n_suspects, 1);
    s->age = ++age;
    s->since_ms = lw_boot_ms();
    snprintf(s->identity, sizeof s->identity, "%s", identity);
    atomic_store(&s->word, word | 1);
    atomic_fetch_add(&b->n_suspects, 1);
    return i < 0;
}

void lw_board_forget_old(struct lw_board *b, int64_t now_ms) {
    if (atomic_load(&b->n_suspects) == 0) return;
    for (size_t i = 0; i < LW_BOARD_SUSPECTS; i++) {
        struct lw_suspect *s = &b->suspects[i];
        uint32_t word = atomic_load(&s->word);
        if (is_used(word) && now_ms - s->since_ms >= LW_SUSPECT_MS) release(b, s, word);
    }
}

int lw_board_suspect(struct lw_board *b, int worker) {
    struct lw_board_worker *w = &b->workers[worker];
    int n = 0;
    for (size_t i = 0; i < LW_BOARD_SEATS; i++) {
        struct lw_seat *s = &w->seats[i];
        if (!atomic_load_explicit(&s->busy, memory_order_acquire)) continue;
        /* the worker that crashed may have overwritten the NUL at the end of the identity, so this
         * function adds one */
        s->identity[sizeof s->identity - 1] = 0;
        n += accuse(b, s->identity);
        lw_seat_leave(s);
    }
    return n;
}

void lw_board_committed(struct lw_board *b, const char *topic, int32_t partition, int64_t offset) {
    for (int32_t i = 0; i < b->n_drain; i++) {
        struct lw_drain_partition *p = &b->drain[i];
        if (p->partition != partition || strcmp(p->topic, topic) != 0) continue;
        int64_t had = atomic_load(&p->committed);
        while (had < offset && !atomic_compare_exchange_weak(&p->committed, &had, offset)) continue;
        return;
    }
}

struct lw_board_partition *lw_board_slot(struct lw_board *b, const char *topic, int32_t partition) {
    struct lw_board_partition *found = NULL;
    for (int i = 0; i < LW_BOARD_PARTITIONS && !found; i++) {
        struct lw_board_partition *p = &b->partitions[i];
        uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
        if (state == LW_SLOT_NAMED && p->partition == partition && strcmp(p->topic, topic) == 0)
            found = p;
        if (state != LW_SLOT_FREE ||
            !atomic_compare_exchange_strong(&p->state, &state, LW_SLOT_FILLING))
            continue;
        snprintf(p->topic, sizeof p->topic, "%s", topic);
        p->partition = partition;
        atomic_store_explicit(&p->state, LW_SLOT_NAMED, memory_order_release);
        found = p;
    }
    return found;
}

/* Two workers that look for the same new partition at once may each own a slot for it, until one of
 * them gives up the partition. */
struct lw_board_partition *lw_board_own(struct lw_board *b, int worker, const char *topic,
                                        int32_t partition) {
    struct lw_board_partition *found = lw_board_slot(b, topic, partition);
    if (found) atomic_store(&found->owner, worker + 1);
    return found;
}

void lw_board_disown(struct lw_board_partition *p, int worker) {
    int32_t mine = worker + 1;
    atomic_compare_exchange_strong(&p->owner, &mine, 0);
}

void lw_board_disown_all(struct lw_board *b, int worker) {
    for (int i = 0; i < LW_BOARD_PARTITIONS; i++) {
        /* slots of partitions are filled from the lowest index, so all slots after a free one are
         * free */
        if (atomic_load(&b->partitions[i].state) == LW_SLOT_FREE) return;
        lw_board_disown(&b->partitions[i], worker);
    }
}

const struct lw_board_partition *lw_board_next(const struct lw_board *b, int *at) {
    while (*at < LW_BOARD_PARTITIONS) {
        const struct lw_board_partition *p = &b->partitions[*at];
        uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
        /* slots of partitions are filled from the lowest index, so all slots after a free one are
         * free */
        if (state == LW_SLOT_FREE) break;
        ++*at;
        if (state == LW_SLOT_NAMED && atomic_load(&p->owner)) return p;
    }
    return NULL;
}

bool lw_board_drained(const struct lw_board *b) {
    for (int32_t i = 0; i < b->n_drain; i++) {
        const struct lw_drain_partition *p = &b->drain[i];
        /* A partition whose end offset is 0 never had a record, so `run --drain` does not wait for
         * a commit of this partition. */
        if (p->end > 0 && atomic_load(&p->committed) < p->end) return false;
    }
    return true;
}
