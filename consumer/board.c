#include "consumer/board.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static size_t board_size(int n_workers) { return sizeof(struct lw_board) + (size_t)n_workers * sizeof(struct lw_board_worker); }

struct lw_board *lw_board_open(int n_workers, struct lw_err *err) {
    if (n_workers < 1 || n_workers > LW_BOARD_WORKERS) {
        lw_fail(err, "workers: %d is not in 1…%d", n_workers, LW_BOARD_WORKERS);
        return NULL;
    }
    struct lw_board *b = mmap(NULL, board_size(n_workers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        lw_fail(err, "no shared memory for %d workers (%zu bytes): %s", n_workers, board_size(n_workers), strerror(errno));
        return NULL;
    }
    b->n_workers = n_workers;
    atomic_store(&b->started_wall_ms, lw_wall_ms());
    return b;
}

void lw_board_close(struct lw_board *b) {
    if (b) munmap(b, board_size(b->n_workers));
}

void lw_seat_take(struct lw_seat *s, const char *identity, bool alone, int64_t now_ms) {
    snprintf(s->identity, sizeof s->identity, "%s", identity);
    atomic_store_explicit(&s->since_ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&s->alone, alone, memory_order_relaxed);
    atomic_store_explicit(&s->busy, true, memory_order_release);
}

void lw_seat_leave(struct lw_seat *s) { atomic_store_explicit(&s->busy, false, memory_order_release); }

static enum lw_suspicion suspicion_of(uint32_t word) { return (enum lw_suspicion)(word & 3); }

/* Finds the slot of an identity under suspicion and the word under which its texts were read; NULL where there is none. */
static struct lw_suspect *find(const struct lw_board *b, const char *identity, uint32_t *word, char *reason) {
    int32_t left = atomic_load_explicit(&b->n_suspects, memory_order_acquire); /* slots fill from below: most looks end early */
    for (size_t i = 0; i < LW_BOARD_SUSPECTS && left > 0; i++) {
        const struct lw_suspect *s = &b->suspects[i];
        *word = atomic_load_explicit(&s->word, memory_order_acquire);
        if (suspicion_of(*word) == LW_INNOCENT) continue;
        left--;
        if (strncmp(s->identity, identity, sizeof s->identity) != 0) continue;
        if (reason) snprintf(reason, LW_REASON_MAX, "%.*s", LW_REASON_MAX - 1, s->reason);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&s->word, memory_order_relaxed) == *word) return (struct lw_suspect *)s;
    }
    return NULL;
}

enum lw_suspicion lw_board_ask(const struct lw_board *b, const char *identity, char *reason) {
    uint32_t word;
    return find(b, identity, &word, reason) ? suspicion_of(word) : LW_INNOCENT;
}

/* Moves a slot to another suspicion, unless it changed since the word was read. */
static bool move(struct lw_board *b, struct lw_suspect *s, uint32_t word, enum lw_suspicion to) {
    if (!atomic_compare_exchange_strong(&s->word, &word, (word & ~3u) | (uint32_t)to)) return false;
    bool was = suspicion_of(word) != LW_INNOCENT, is = to != LW_INNOCENT;
    if (was != is) atomic_fetch_add(&b->n_suspects, is ? 1 : -1);
    return true;
}

void lw_board_counted(struct lw_board *b, const char *identity) {
    uint32_t word;
    struct lw_suspect *s = find(b, identity, &word, NULL);
    if (s && suspicion_of(word) == LW_BLAMED) move(b, s, word, LW_SUSPECT);
}

void lw_board_forget(struct lw_board *b, const char *identity) {
    uint32_t word;
    struct lw_suspect *s = find(b, identity, &word, NULL);
    if (s) move(b, s, word, LW_INNOCENT);
}

/* The lowest free slot; where there is none, the oldest suspect's, and only then the oldest blamed one's: forgetting a suspect costs one
 * more run in company, forgetting a blamed one a try. */
static struct lw_suspect *slot_for_new(struct lw_board *b) {
    struct lw_suspect *best = NULL;
    enum lw_suspicion best_is = LW_BLAMED;
    for (size_t i = 0; i < LW_BOARD_SUSPECTS; i++) {
        struct lw_suspect *s = &b->suspects[i];
        enum lw_suspicion is = suspicion_of(atomic_load(&s->word));
        if (is == LW_INNOCENT) return s;
        if (!best || is < best_is || (is == best_is && s->age < best->age)) best = s, best_is = is;
    }
    return best;
}

static void fill(struct lw_board *b, struct lw_suspect *s, const char *identity, const char *reason, enum lw_suspicion is) {
    static uint64_t age;
    uint32_t old = atomic_exchange(&s->word, ((atomic_load(&s->word) >> 2) + 1) << 2 | LW_INNOCENT);
    if (suspicion_of(old) != LW_INNOCENT) atomic_fetch_sub(&b->n_suspects, 1);
    s->age = ++age;
    snprintf(s->identity, sizeof s->identity, "%s", identity);
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    move(b, s, atomic_load(&s->word), is);
}

/* Suspicion of one message grows by a death: a suspect already blamed stays blamed until its try was counted. */
static void accuse(struct lw_board *b, const char *identity, bool blamed, const char *reason) {
    uint32_t word;
    struct lw_suspect *s = find(b, identity, &word, NULL);
    if (s && (suspicion_of(word) == LW_BLAMED || !blamed)) return;
    fill(b, s ? s : slot_for_new(b), identity, reason, blamed ? LW_BLAMED : LW_SUSPECT);
}

void lw_board_blame(struct lw_board *b, int worker, bool crashed, const char *reason) {
    struct lw_board_worker *w = &b->workers[worker];
    for (size_t i = 0; i < LW_BOARD_SEATS; i++) {
        struct lw_seat *s = &w->seats[i];
        if (!atomic_load_explicit(&s->busy, memory_order_acquire)) continue;
        s->identity[sizeof s->identity - 1] = 0; /* a crash may have written anywhere */
        accuse(b, s->identity, crashed && atomic_load(&s->alone), reason);
        lw_seat_leave(s);
    }
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

/* Two workers may look for the same partition at once; each then has a slot of its own, and lets go of it with the partition. */
struct lw_board_partition *lw_board_own(struct lw_board *b, int worker, const char *topic, int32_t partition) {
    struct lw_board_partition *found = NULL;
    for (int i = 0; i < LW_BOARD_PARTITIONS && !found; i++) {
        struct lw_board_partition *p = &b->partitions[i];
        uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
        if (state == LW_SLOT_NAMED && p->partition == partition && strcmp(p->topic, topic) == 0) found = p;
        if (state != LW_SLOT_FREE || !atomic_compare_exchange_strong(&p->state, &state, LW_SLOT_FILLING)) continue;
        snprintf(p->topic, sizeof p->topic, "%s", topic);
        p->partition = partition;
        atomic_store_explicit(&p->state, LW_SLOT_NAMED, memory_order_release);
        found = p;
    }
    if (found) atomic_store(&found->owner, worker + 1);
    return found;
}

void lw_board_disown(struct lw_board_partition *p, int worker) {
    int32_t mine = worker + 1;
    atomic_compare_exchange_strong(&p->owner, &mine, 0);
}

void lw_board_disown_all(struct lw_board *b, int worker) {
    for (int i = 0; i < LW_BOARD_PARTITIONS; i++) {
        if (atomic_load(&b->partitions[i].state) == LW_SLOT_FREE) return; /* they fill from below */
        lw_board_disown(&b->partitions[i], worker);
    }
}

const struct lw_board_partition *lw_board_next(const struct lw_board *b, int *at) {
    while (*at < LW_BOARD_PARTITIONS) {
        const struct lw_board_partition *p = &b->partitions[*at];
        uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
        if (state == LW_SLOT_FREE) break; /* they fill from below */
        ++*at;
        if (state == LW_SLOT_NAMED && atomic_load(&p->owner)) return p;
    }
    return NULL;
}

bool lw_board_drained(const struct lw_board *b) {
    for (int32_t i = 0; i < b->n_drain; i++) {
        const struct lw_drain_partition *p = &b->drain[i];
        if (p->end > 0 && atomic_load(&p->committed) < p->end) return false; /* nothing was ever written where end is 0 */
    }
    return true;
}
