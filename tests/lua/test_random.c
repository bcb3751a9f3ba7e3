/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random calls of the scripts `gate`, `settle`, `claim` and `floor`, lets leases expire,
 * pauses lanes and wipes servers, and compares the results with a small model of a lane: its list,
 * its lock and the states of its messages. After each call the answers, lists, locks and states
 * must equal those of the model. Three promises are checked independently of the model: the number
 * of a message's state never becomes smaller, a waiting message is in its lane's list, and no
 * finished message is granted.
 *
 * LW_SEED: the only seed to run. A failed run prints its seed. */
#include "queue/codes.h"
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    LANES = 3,
    PARTS = 2,
    OFFSETS = 160,
    FIRST = 16384 - 30,
    LIST_MAX = 4096,
    STALE_MAX = 6,
    NOBODY = 0,
    BACKOFF = -1,
    STEPS = 250,
    SEEDS = 6
};
/* Returns the offset of message number o. The first 30 offsets are the last ones of a segment. The
 * others are so far apart in the next segment that a script needs several reads for all of them. */
static int64_t offset_of(int o) { return o < 30 ? FIRST + o : 16384 + (int64_t)(o - 30) * 120; }

struct id {
    int part, o;
};
struct hold { /* what a worker knows of one of its holds */
    int token, n;
    bool of_heads;
    struct id msg[256];
    char value[96];
};
struct lane {
    struct id list[LIST_MAX]; /* the lane's waiting list, oldest message first */
    int n, holder;
    bool listed, paused;
    struct hold hold, stale[STALE_MAX];
    int n_stale;
};
struct world {
    struct lt *l;
    uint64_t seed;
    struct lane lane[LANES];
    /* These arrays have one element per message: `state` is the expected state, `tries` the
     * expected number of attempts, and `was` the state after the previous call. floor[p]: all
     * messages of partition p below this number are finished. */
    int state[PARTS][OFFSETS], tries[PARTS][OFFSETS], was[PARTS][OFFSETS], floor[PARTS];
    /* For each business id: the message that recorded it, as part * OFFSETS + o, in which `part` is
     * the partition and `o` the number of the message. -1 means that no message has recorded it. */
    int recorded[OFFSETS];
    int duplicates, tokens, step;
    bool dedup;
    char did[200];
};

static int pick(struct world *w, int n) {
    w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((w->seed >> 33) % (uint64_t)n);
}
static bool chance(struct world *w, int percent) { return pick(w, 100) < percent; }

static char token_names[STEPS + 2][16], lane_names[LANES][3] = {"k0", "k1", "k2"},
                                        dedup_names[OFFSETS][16];
static const char *token_name(int token) {
    snprintf(token_names[token], sizeof token_names[token], "t%d", token);
    return token_names[token];
}
static int lane_of(struct id m) { return (m.o + m.part) % LANES; }
/* Returns the number of the message's business id. One message of each partition has this id, and
 * these two messages are in the same lane. */
static int dedup_of(struct id m) { return m.part == 0 ? m.o : (m.o + 1) % OFFSETS; }
static struct lt_msg message(struct world *w, struct id m, int token) {
    struct lt_msg out = lt_msg(m.part, offset_of(m.o), lane_names[lane_of(m)], token_name(token));
    if (w->dedup) {
        snprintf(dedup_names[dedup_of(m)], sizeof dedup_names[0], "id%d", dedup_of(m));
        out.dedup = dedup_names[dedup_of(m)];
    }
    return out;
}

/* --- the model -------------------------------------------------------------------------------- */

static bool same(struct id a, struct id b) { return a.part == b.part && a.o == b.o; }
static bool finished(const struct world *w, struct id m) {
    return m.o < w->floor[m.part] || w->state[m.part][m.o] >= 2;
}
static void set_state(struct world *w, struct id m, int state) {
    if (m.o >= w->floor[m.part] && w->state[m.part][m.o] < 2) w->state[m.part][m.o] = state;
}
static bool is_duplicate(const struct world *w, struct id m) {
    int by = w->dedup ? w->recorded[dedup_of(m)] : -1;
    return by >= 0 && by != m.part * OFFSETS + m.o;
}
static void drop_first(struct lane *k, int n) {
    memmove(k->list, k->list + n, (size_t)(k->n - n) * sizeof *k->list);
    k->n -= n;
}

/* Predicts which heads queue/lua/parts/heads.lua finds. Returns their number, or -1 if no
 * unfinished message is left in the lane. */
static int take_heads(struct world *w, struct lane *k, int want, int before, const struct id *after,
                      struct id *out) {
    for (int size = before + want;; size = 16) {
        int n = 0, drop = 0, looked = k->n < size ? k->n : size;
        bool any = false, behind = after == NULL, full = size > k->n;
        struct id seen[LIST_MAX];
        int n_seen = 0;
        for (int i = 0; i < looked; i++) {
            struct id m = k->list[i];
            bool over = finished(w, m), again = false;
            if (!over && is_duplicate(w, m)) {
                set_state(w, m, 2);
                w->duplicates++;
                over = true;
            }
            if (over) {
                drop += !any;
                continue;
            }
            for (int s = 0; s < n_seen; s++) again |= same(seen[s], m);
            if (again) continue;
            any = true;
            seen[n_seen++] = m;
            if (!behind) {
                behind = same(m, *after);
                continue;
            }
            out[n++] = m;
            if (n == want) break;
        }
        drop_first(k, drop);
        if (any) return n;
        if (full) {
            k->listed = false;
            return -1;
        }
    }
}

static void expect_gate(struct world *w, struct lane *k, const struct id *m, int n, int token,
                        bool bare, char *out) {
    enum { UNKNOWN, MINE, TAKEN } whose = UNKNOWN;
    bool stop = false, park = false;
    for (int i = 0; i < n; i++) {
        if (finished(w, m[i])) {
            out[i] = 'D';
        } else if (stop) {
            out[i] = 'G';
        } else if (w->state[m[i].part][m[i].o] == 1 && whose != MINE) {
            out[i] = 'W';
            whose = TAKEN;
        } else if (is_duplicate(w, m[i])) {
            set_state(w, m[i], 2);
            out[i] = 'U';
        } else if (whose == MINE) {
            out[i] = 'A';
        } else {
            if (whose == UNKNOWN)
                whose = k->holder == token || (k->holder == NOBODY && !k->paused && !k->listed)
                            ? MINE
                            : TAKEN;
            if (whose == MINE) {
                k->holder = token;
                out[i] = 'R';
                stop = w->dedup;
            } else if (bare) {
                out[i] = 'E';
                stop = true;
            } else {
                out[i] = 'W';
                set_state(w, m[i], 1);
                assert_true(k->n < LIST_MAX);
                k->list[k->n++] = m[i];
                park = true;
            }
        }
    }
    if (park) k->listed = true;
}

struct settle {
    struct id done[256], named[8], heads[256];
    int n_done, n_named, want, before, n_heads;
    char outcome, mode, answer, named_answer[9];
    int64_t backoff_ms;
};

static void none_named(struct settle *s) {
    memset(s->named_answer, 'G', (size_t)s->n_named);
    s->named_answer[s->n_named] = '\0';
}

static void expect_put_back(struct world *w, struct lane *k, struct settle *s, char outcome) {
    struct id m = s->done[s->n_done - 1], head;
    if (take_heads(w, k, 1, 0, NULL, &head) != 1 || !same(head, m)) {
        memmove(k->list + 1, k->list, (size_t)k->n * sizeof *k->list);
        k->list[0] = m;
        k->n++;
    }
    set_state(w, m, 1);
    if (outcome == 'r') w->tries[m.part][m.o]++;
    k->holder = s->backoff_ms ? BACKOFF : NOBODY;
    k->listed = true;
    s->answer = 'L';
}

static void expect_named(struct world *w, struct settle *s) {
    for (int i = 0; i < s->n_named; i++) {
        bool over = finished(w, s->named[i]);
        if (!over && is_duplicate(w, s->named[i])) {
            set_state(w, s->named[i], 2);
            w->duplicates++;
            over = true;
        }
        s->named_answer[i] = over ? 'P' : 'A';
    }
}

static void record_done(struct world *w, struct settle *s, bool held) {
    for (int i = 0; i < s->n_done; i++) {
        if ((i == s->n_done - 1 && s->outcome != 'd') || (!held && i)) continue;
        struct id m = s->done[i];
        set_state(w, m, 2);
        w->tries[m.part][m.o] = 0;
        if (w->dedup && w->recorded[dedup_of(m)] < 0)
            w->recorded[dedup_of(m)] = m.part * OFFSETS + m.o;
    }
}

/* Predicts what settle does with a lane that the caller holds, if settle puts no message back into
 * the waiting list of the lane. */
static void expect_next(struct world *w, struct lane *k, struct settle *s, int token) {
    bool stop = k->paused && s->mode != '-';
    int heads = -1;
    if (k->listed) {
        if (s->mode == 'h' && !s->want)
            heads = take_heads(w, k, 1, 0, NULL, s->heads) >= 0 ? 0 : -1;
        else if (s->mode == 'h')
            heads =
                take_heads(w, k, s->want, s->before, s->n_named ? &s->named[0] : NULL, s->heads);
        else
            heads = take_heads(w, k, s->mode == 'n' ? s->want : 1, s->mode == 'n' ? s->before : 0,
                               NULL, s->heads);
    }
    if (s->mode == 'h' || s->mode == 'm' || (s->mode == 'k' && !stop) ||
        (s->mode == 'K' && heads < 0 && !stop)) {
        s->answer = 'K';
        if (s->mode == 'h') s->n_heads = heads > 0 && !stop ? heads : 0;
        if (s->mode != 'h' && !stop) expect_named(w, s);
        return;
    }
    s->answer = heads >= 0 && s->mode == 'n' && !stop ? 'N' : 'L';
    if (s->answer == 'N')
        s->n_heads = heads;
    else
        k->holder = NOBODY;
    (void)token;
}

static void expect_settle(struct world *w, struct lane *k, struct settle *s, int token) {
    bool held = k->holder == token;
    s->n_heads = 0;
    none_named(s);
    record_done(w, s, held);
    s->answer = 'S';
    if (!held) return;
    struct id last = s->n_done ? s->done[s->n_done - 1] : (struct id){0, 0};
    char outcome = s->n_done && s->outcome != 'd' && finished(w, last) ? 'd' : s->outcome;
    if (strchr("xs", outcome)) {
        set_state(w, last, 3);
        w->tries[last.part][last.o] = 0;
    }
    if (strchr("rb", outcome))
        expect_put_back(w, k, s, outcome);
    else
        expect_next(w, k, s, token);
}

/* --- what Redis has --------------------------------------------------------------------------- */

#define CHECK(w, ok, ...)                            \
    do {                                             \
        if (!(ok)) {                                 \
            fprintf(stderr, "after %s: ", (w)->did); \
            fprintf(stderr, __VA_ARGS__);            \
            fputc('\n', stderr);                     \
            fail();                                  \
        }                                            \
    } while (0)

static void check_lane(struct world *w, int i) {
    struct lane *k = &w->lane[i];
    struct lt_msg any = lt_msg(0, 0, lane_names[i], "");
    static char want[20 * LIST_MAX];
    size_t n = 0;
    want[0] = '\0';
    for (int j = 0; j < k->n; j++)
        n += (size_t)snprintf(want + n, sizeof want - n, "%s%d/%" PRId64, j ? " " : "",
                              k->list[j].part, offset_of(k->list[j].o));
    CHECK(w, strcmp(lt_waiting(w->l, any), want) == 0, "%s waits in %s, not %.200s", w->l->text,
          lane_names[i], want);
    const char *holder = k->holder == NOBODY    ? "(nil)"
                         : k->holder == BACKOFF ? "backoff"
                                                : token_name(k->holder);
    CHECK(w, strcmp(lt_lock(w->l, any), holder) == 0, "%s is locked by %s, not %s", lane_names[i],
          w->l->text, holder);
    bool listed = strcmp(lt_text(w->l, "ZSCORE " LT_TAG "lanes %s", lane_names[i]), "(nil)") != 0;
    CHECK(w, listed == k->listed, "%s %s in lanes", lane_names[i], listed ? "is" : "is not");
}

/* Reads the states of all offsets of partition p, with one read per segment. */
static void read_states(struct world *w, int p, int *out) {
    memset(out, 0, OFFSETS * sizeof *out);
    for (int segment = 0; segment < 2; segment++) {
        redisReply *r = redisCommand(w->l->admin, "GET " LT_TAG "state:orders:%d:%d", p, segment);
        assert_non_null(r);
        for (int o = 0; o < OFFSETS; o++) {
            int64_t index = offset_of(o) - segment * INT64_C(16384);
            if (index < 0 || index / 4 >= (int64_t)r->len) continue;
            if (index < 16384) out[o] = (unsigned char)r->str[index / 4] >> (6 - index % 4 * 2) & 3;
        }
        freeReplyObject(r);
    }
}

static void check_states(struct world *w) {
    int states[OFFSETS];
    for (int p = 0; p < PARTS; p++) {
        read_states(w, p, states);
        for (int o = w->floor[p]; o < OFFSETS; o++) {
            struct id m = {p, o};
            int state = states[o];
            CHECK(w, state == w->state[p][o], "%d/%" PRId64 " is %d, not %d", p, offset_of(o),
                  state, w->state[p][o]);
            CHECK(w, state >= w->was[p][o], "%d/%" PRId64 " went down from %d to %d", p,
                  offset_of(o), w->was[p][o], state);
            w->was[p][o] = state;
            bool waits = false;
            const struct lane *k = &w->lane[lane_of(m)];
            for (int i = 0; i < k->n; i++) waits |= same(k->list[i], m);
            CHECK(w, state != 1 || waits, "%d/%" PRId64 " waits in no list", p, offset_of(o));
        }
    }
}

static void check(struct world *w) {
    for (int i = 0; i < LANES; i++) check_lane(w, i);
    check_states(w);
}

static void check_attempts(struct world *w, struct id m, int attempts) {
    CHECK(w, !finished(w, m), "%d/%" PRId64 " was granted though it is finished", m.part,
          offset_of(m.o));
    CHECK(w, attempts == w->tries[m.part][m.o], "%d/%" PRId64 " has %d attempts, not %d", m.part,
          offset_of(m.o), attempts, w->tries[m.part][m.o]);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void forget_hold(struct lane *k) {
    if (!k->hold.n) return;
    if (k->n_stale < STALE_MAX) k->stale[k->n_stale++] = k->hold;
    k->hold.n = 0;
}
static void take_hold(struct world *w, struct lane *k, int token, bool of_heads) {
    /* Forget the lane's earlier hold, whose lease has ended. */
    forget_hold(k);
    k->hold.token = token;
    k->hold.of_heads = of_heads;
    /* In the variant in which each call is sent twice, the second call has reserved fences of its
     * own, but the lock keeps the fence of the first call. */
    snprintf(k->hold.value, sizeof k->hold.value, "%s:%" PRIu64, token_name(token),
             w->l->fence - (w->l->variant == LT_TWICE ? 3 : 0));
}
static void hold_add(struct hold *h, struct id m) {
    assert_true(h->n < 256);
    h->msg[h->n++] = m;
}

static struct id some_message(struct world *w, int lane) {
    struct id m;
    /* Choose offsets in roughly ascending order. */
    do m = (struct id){pick(w, PARTS), w->step * (OFFSETS - 24) / STEPS + pick(w, 24)};
    while (lane_of(m) != lane);
    return m;
}

static int distinct_messages(struct world *w, int lane, int most, struct id *out) {
    int n = 0;
    for (int i = 0; i < most; i++) {
        struct id m = some_message(w, lane);
        bool again = false;
        for (int j = 0; j < n; j++) again |= same(out[j], m);
        for (int j = 0; j < w->lane[lane].hold.n; j++)
            again |= same(w->lane[lane].hold.msg[j], m) && w->lane[lane].holder <= 0;
        if (!again) out[n++] = m;
    }
    return n;
}

static void gate(struct world *w) {
    struct lt_msg msgs[LANES * 6];
    struct id ids[LANES * 6];
    char want[LANES * 6 + 1] = "";
    int n = 0, token = ++w->tokens, first[LANES], count[LANES];
    w->l->narrow = chance(w, 30) + chance(w, 20);
    for (int i = 0; i < LANES; i++) {
        bool bare = chance(w, 50);
        first[i] = n;
        count[i] = chance(w, 60) ? distinct_messages(w, i, 1 + pick(w, 5), ids + n) : 0;
        for (int k = 0; k < count[i]; k++) {
            msgs[n + k] = message(w, ids[n + k], token);
            msgs[n + k].bare = bare;
        }
        expect_gate(w, &w->lane[i], ids + n, count[i], token, bare, want + n);
        n += count[i];
    }
    want[n] = '\0';
    if (!n) return;
    snprintf(w->did, sizeof w->did, "gate %d → %s", token, want);
    CHECK(w, strcmp(lt_gate(w->l, msgs, (size_t)n), want) == 0, "%s", w->l->answers);
    for (int i = 0; i < LANES; i++)
        for (int k = first[i]; k < first[i] + count[i]; k++) {
            if (!strchr("RA", want[k])) continue;
            if (want[k] == 'R') take_hold(w, &w->lane[i], token, false);
            hold_add(&w->lane[i].hold, ids[k]);
            check_attempts(w, ids[k], lt_attempts(w->l, k));
        }
}

static void check_heads(struct world *w, int item, int first_grant, const struct id *heads, int n) {
    char want[256 * 20];
    size_t at = 0;
    want[0] = '\0';
    for (int i = 0; i < n; i++) {
        at += (size_t)snprintf(want + at, sizeof want - at, "%s%d/%" PRId64, i ? " " : "",
                               heads[i].part, offset_of(heads[i].o));
        check_attempts(w, heads[i], lt_attempts_of(w->l, item, first_grant + i));
    }
    CHECK(w, strcmp(lt_heads(w->l, item), want) == 0, "heads %s, not %.200s", w->l->text, want);
}

static void claim(struct world *w) {
    struct lt_msg msgs[LANES];
    struct id heads[LANES][256];
    int lane[LANES], given[LANES], n = 0, token = ++w->tokens;
    char want[LANES + 1] = "";
    w->duplicates = 0;
    w->l->want = w->dedup ? 1 : 1 + pick(w, 5);
    for (int i = 0; i < LANES; i++) {
        if (chance(w, 30)) continue;
        struct lane *k = &w->lane[i];
        lane[n] = i;
        given[n] =
            k->holder != NOBODY || k->paused ? -2 : take_heads(w, k, w->l->want, 0, NULL, heads[n]);
        if (given[n] >= 0) k->holder = token;
        want[n] = given[n] == -2 ? 'B' : given[n] < 0 ? 'E' : 'N';
        msgs[n++] = lt_msg(0, 0, lane_names[i], token_name(token));
    }
    if (!n) return;
    snprintf(w->did, sizeof w->did, "claim %d of %d → %s", token, w->l->want, want);
    CHECK(w, strcmp(lt_claim(w->l, msgs, (size_t)n), want) == 0, "%s", w->l->answers);
    CHECK(w, lt_duplicates(w->l) == w->duplicates, "%d duplicates", w->duplicates);
    for (int i = 0; i < n; i++) {
        check_heads(w, i, 0, heads[i], given[i] > 0 ? given[i] : 0);
        if (given[i] <= 0) continue;
        take_hold(w, &w->lane[lane[i]], token, true);
        for (int k = 0; k < given[i]; k++) hold_add(&w->lane[lane[i]].hold, heads[i][k]);
    }
}

/* Makes a call of settle that a worker could send for this hold now. Returns false if no such call
 * is possible. */
static bool make_settle(struct world *w, int lane, struct hold *h, struct settle *s) {
    static const char outcomes[] = "ddddddrbxs";
    *s = (struct settle){.outcome = 'd', .want = w->dedup ? 1 : 1 + pick(w, 5)};
    bool more = h->n > 1 && chance(w, 40); /* true if some messages of the hold still run */
    if (w->dedup) more = false;
    if (more) {
        s->n_done = pick(w, h->n);
        s->mode = h->of_heads ? 'h' : 'm';
        if (chance(w, 15)) s->want = 0;
    } else {
        s->n_done = 1 + pick(w, h->n);
        s->outcome = outcomes[pick(w, 10)];
        if (s->outcome == 'd' && s->n_done < h->n) s->n_done = h->n;
        s->mode = h->of_heads ? "nn-"[pick(w, 3)] : "kKn-"[pick(w, 4)];
    }
    memcpy(s->done, h->msg, (size_t)s->n_done * sizeof *s->done);
    if (chance(w, 50)) s->backoff_ms = 100000;
    if (s->mode == 'h' && (s->want || chance(w, 50))) {
        s->named[s->n_named++] = h->msg[h->n - 1];
        s->before = chance(w, 70) ? h->n : pick(w, 6);
    } else if (strchr("mkK", s->mode) || (s->mode == '-' && chance(w, 30))) {
        s->n_named = distinct_messages(w, lane, w->dedup ? 1 : 1 + pick(w, 4), s->named);
        for (int i = 0; i < s->n_named; i++)
            for (int k = 0; k < h->n; k++)
                if (same(s->named[i], h->msg[k])) s->n_named = 0;
        if (!s->n_named && strchr("kK", s->mode)) s->mode = 'n';
    }
    if (!s->n_named && !s->n_done) return false;
    if (s->mode == 'n') s->before = chance(w, 70) ? s->n_done : pick(w, 6);
    return true;
}

static void after_settle(struct world *w, struct lane *k, struct hold *h, const struct settle *s,
                         int item) {
    int n_named = 0;
    if (s->answer == 'S') {
        if (h == &k->hold)
            h->n = 0;
        else
            *h = k->stale[--k->n_stale];
        return;
    }
    memmove(h->msg, h->msg + s->n_done, (size_t)(h->n - s->n_done) * sizeof *h->msg);
    h->n -= s->n_done;
    if (s->answer == 'L') h->n = 0;
    for (int i = 0; i < s->n_named; i++) {
        if (s->named_answer[i] != 'A') continue;
        check_attempts(w, s->named[i], lt_attempts_of(w->l, item, n_named++));
        hold_add(h, s->named[i]);
    }
    check_heads(w, item, 0, s->heads, s->n_heads);
    if (s->answer == 'N') h->of_heads = true;
    for (int i = 0; i < s->n_heads; i++) hold_add(h, s->heads[i]);
    if (s->answer == 'K' && !h->n) {
        /* settle has kept the lane, but the hold has no message left. A worker would now release
         * the lane. */
        lt_free_lock(w->l, lt_msg(0, 0, lane_names[k - w->lane], ""));
        k->holder = NOBODY;
    }
}

static void settle(struct world *w) {
    static struct settle s[LANES];
    static struct lt_msg done[LANES][256], named[LANES][8];
    struct lt_item items[LANES];
    struct hold *h[LANES];
    int lane[LANES], n = 0;
    char want[LANES + 1] = "", want_named[LANES * 8 + 1] = "";
    w->duplicates = 0;
    w->l->narrow = chance(w, 30) + chance(w, 20);
    size_t at = (size_t)snprintf(w->did, sizeof w->did, "settle");
    for (int i = 0; i < LANES; i++) {
        struct lane *k = &w->lane[i];
        h[n] = k->n_stale && chance(w, 20) ? &k->stale[pick(w, k->n_stale)] : &k->hold;
        if (!h[n]->n || chance(w, 20) || !make_settle(w, i, h[n], &s[n])) continue;
        struct settle *x = &s[n];
        expect_settle(w, k, x, h[n]->token);
        for (int j = 0; j < x->n_done; j++) done[n][j] = message(w, x->done[j], h[n]->token);
        for (int j = 0; j < x->n_named; j++) named[n][j] = message(w, x->named[j], h[n]->token);
        if (x->n_done) {
            done[n][x->n_done - 1].outcome = lw_outcome_word((enum lw_outcome)x->outcome);
            done[n][x->n_done - 1].backoff_ms = x->backoff_ms;
        }
        items[n] =
            (struct lt_item){done[n], (size_t)x->n_done, x->mode,    named[n], (size_t)x->n_named,
                             x->want, x->before,         h[n]->value};
        want[n] = x->answer;
        strcat(want_named, x->named_answer);
        at += (size_t)snprintf(w->did + at, sizeof w->did - at,
                               " %s: %d %c%c %d named, want %d before %d → %c %s;", lane_names[i],
                               x->n_done, x->outcome, x->mode, x->n_named, x->want, x->before,
                               x->answer, x->named_answer);
        if (at >= sizeof w->did) at = sizeof w->did - 1;
        lane[n++] = i;
    }
    if (!n) return;
    CHECK(w, strcmp(lt_settle_items(w->l, items, (size_t)n), want) == 0, "%s", w->l->answers);
    CHECK(w, strcmp(w->l->named, want_named) == 0, "named %s", w->l->named);
    CHECK(w, lt_duplicates(w->l) == w->duplicates, "%d duplicates, not %d",
          (int)lt_duplicates(w->l), w->duplicates);
    for (int i = 0; i < n; i++) after_settle(w, &w->lane[lane[i]], h[i], &s[i], i);
}

static void expire(struct world *w) {
    int i = pick(w, LANES);
    snprintf(w->did, sizeof w->did, "expiry of %s", lane_names[i]);
    lt_free_lock(w->l, lt_msg(0, 0, lane_names[i], ""));
    w->lane[i].holder = NOBODY;
    forget_hold(&w->lane[i]);
}

static void pause(struct world *w) {
    int i = pick(w, LANES);
    snprintf(w->did, sizeof w->did, "pause of %s", lane_names[i]);
    w->lane[i].paused = !w->lane[i].paused;
    lt_int(w->l, "%s " LT_TAG "paused %s", w->lane[i].paused ? "SADD" : "SREM", lane_names[i]);
}

static void raise_floor(struct world *w) {
    int p = pick(w, PARTS);
    if (w->floor[p] + 3 >= w->step * (OFFSETS - 24) / STEPS + 6) return;
    w->floor[p] += pick(w, 3);
    char tp[16];
    snprintf(tp, sizeof tp, "orders:%d", p);
    snprintf(w->did, sizeof w->did, "floor %s %d", tp, w->floor[p]);
    lt_floor(w->l, tp, offset_of(w->floor[p]), 0);
}

static void forget_all(struct world *w) {
    for (int i = 0; i < LANES; i++) {
        w->lane[i].n = w->lane[i].holder = 0;
        w->lane[i].listed = w->lane[i].paused = false;
        forget_hold(&w->lane[i]);
    }
    memset(w->state, 0, sizeof w->state);
    memset(w->was, 0, sizeof w->was);
    memset(w->tries, 0, sizeof w->tries);
    memset(w->floor, 0, sizeof w->floor);
    for (int o = 0; o < OFFSETS; o++) w->recorded[o] = -1;
}

static void wipe(struct world *w) {
    snprintf(w->did, sizeof w->did, "FLUSHALL");
    lt_text(w->l, "FLUSHALL");
    lt_int(w->l, "HSET " LT_TAG "epoch id %s not_before 0", w->l->epoch);
    forget_all(w);
}

static void step(struct world *w) {
    int what = pick(w, 100);
    if (what < 33)
        gate(w);
    else if (what < 75)
        settle(w);
    else if (what < 87)
        claim(w);
    else if (what < 93)
        expire(w);
    else if (what < 95)
        pause(w);
    else if (what < 99)
        raise_floor(w);
    else if (chance(w, 30))
        wipe(w);
    check(w);
}

static void run_seed(void **state, uint64_t seed, bool dedup) {
    static struct world w;
    lt_setup(state);
    memset(&w, 0, sizeof w);
    w = (struct world){.l = *state, .seed = seed * 2 + dedup, .dedup = dedup};
    w.l->reserve = 16;
    w.l->window_s = dedup ? 10000 : 0;
    forget_all(&w);
    for (w.step = 0; w.step < STEPS; w.step++) step(&w);
}

static void some_seeds(void **state, bool dedup) {
    const char *one = getenv("LW_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (one ? 1 : SEEDS); seed++) {
        print_message("seed %" PRIu64 "\n", seed);
        run_seed(state, seed, dedup);
    }
}
static void random_calls(void **state) { some_seeds(state, false); }
static void random_calls_with_business_ids(void **state) { some_seeds(state, true); }

int main(void) {
    const struct CMUnitTest tests[] = {LT(random_calls), LT(random_calls_with_business_ids)};
    return LT_RUN(tests, LT_PLAIN | LT_TWICE);
}
