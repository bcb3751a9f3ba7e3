/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `enter`, by which workers join the epoch of a shard or start a new one. */
#include "tests/support/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FAR_MS = LT_TTL_MS };

static struct lt_enter caller(const char *candidate) {
    return (struct lt_enter){.candidate = candidate,
                             .life = "life",
                             .host = "h1",
                             .ttl_ms = LT_TTL_MS,
                             .field = "shards",
                             .value = "1"};
}

static struct lt_entered entered(struct lt *l, struct lt_enter e) {
    struct lt_entered out;
    assert_string_equal(lt_enter(l, &e, &out), "OK");
    return out;
}

/* Deletes all data on the server, and then enters the epoch "a". */
static struct lt_entered fresh(struct lt *l) {
    lt_text(l, "FLUSHALL");
    return entered(l, caller("a"));
}

static void assert_quarantine(const struct lt_entered *e, int64_t ttl_ms) {
    assert_int_equal(e->not_before_ms - e->now_ms, ttl_ms);
}

static void starts_a_fresh_epoch(void **state) {
    struct lt *l = *state;
    struct lt_entered e = fresh(l);
    assert_string_equal(e.id, "a");
    assert_int_equal(e.ttl_ms, LT_TTL_MS);
    assert_quarantine(&e, LT_TTL_MS);
    assert_true(e.first);
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch id"), "a");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch life"), "life");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch shards"), "1");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch offset:h1"), "0");
}

static void joins_an_epoch(void **state) {
    struct lt *l = *state;
    struct lt_entered a = fresh(l);
    struct lt_entered b = entered(l, caller("b"));
    assert_string_equal(b.id, "a");
    assert_int_equal(b.not_before_ms, a.not_before_ms);
    assert_true(b.first);
}

static void another_life_is_another_epoch(void **state) {
    struct lt *l = *state;
    fresh(l);
    lt_int(l, "HSET " LT_TAG "epoch not_before 5");
    lt_int(l, "HDEL " LT_TAG "epoch first");
    struct lt_enter e = caller("b");
    e.life = "another";
    struct lt_entered b = entered(l, e);
    assert_false(b.first);
    assert_string_equal(b.id, "b");
    assert_quarantine(&b, LT_TTL_MS);
    assert_string_equal(entered(l, e).id, "b");
    e.candidate = "c";
    assert_string_equal(entered(l, e).id, "b");
}

/* Commits name a fleet by the first 16 digits of its epoch. Redis keeps those of the 8 epochs
 * before, the newest first. */
static void earlier_epochs_are_kept(void **state) {
    struct lt *l = *state;
    char id[33], life[8], was[8 * 17 + 1] = "";
    fresh(l);
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "%016d%016d", i, 7);
        snprintf(life, sizeof life, "life%d", i);
        struct lt_enter e = caller(id);
        e.life = life;
        entered(l, e);
        if (i == 0) assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch was"), "a ");
    }
    for (int i = 8; i > 0; i--)
        snprintf(was + strlen(was), sizeof was - strlen(was), "%s%016d", i < 8 ? " " : "", i);
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch was"), was);
}

/* A replica has been attached to the server, so the server has a new replication id. However, the
 * server itself was never a replica. The life of its data therefore continues, and the script
 * `enter` stores the new id. */
static void another_name_of_the_same_life_is_joined(void **state) {
    struct lt *l = *state;
    lt_text(l, "FLUSHALL");
    struct lt_enter e = caller("a");
    e.history = "run/0";
    entered(l, e);
    e = caller("b");
    e.life = "attached", e.history = "run/0";
    assert_string_equal(entered(l, e).id, "a");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch life"), "attached");
    /* Older Redis versions, and servers that hide their history, report no history. */
    e.history = "";
    assert_string_equal(entered(l, e).id, "a");
    e.life = "other";
    /* If the life differs and the history is unknown, a new epoch begins. */
    assert_string_equal(entered(l, e).id, "b");
    e = caller("c");
    e.life = "other", e.history = "run/0";
    assert_string_equal(entered(l, e).id, "b");
    /* A server's history (queue/life.h) contains the number of bytes that the server has read as a
     * replica. A changed number shows that the server was a replica since the last call. */
    e.life = "back", e.history = "run/517";
    assert_string_equal(entered(l, e).id, "c");
    e = caller("d");
    e.life = "back again", e.history = "run2/517";
    assert_string_equal(entered(l, e).id, "d");
}

static void an_epoch_that_jumped_ends_once(void **state) {
    struct lt *l = *state;
    fresh(l);
    lt_int(l, "HSET " LT_TAG "epoch not_before 5");
    struct lt_enter e = caller("b");
    e.jumped = "a";
    struct lt_entered b = entered(l, e);
    assert_string_equal(b.id, "b");
    assert_quarantine(&b, LT_TTL_MS);
    /* Another worker reports the same jump, so it joins the epoch that was started by the first
     * report. */
    e.candidate = "c";
    assert_string_equal(entered(l, e).id, "b");
}

static void a_moved_clock_is_another_epoch(void **state) {
    struct lt *l = *state;
    fresh(l);
    struct lt_enter e = caller("b");
    e.host = "h2";
    /* A quarter of the TTL is the largest difference that does not count as a jump of the clock. */
    e.offset_ms = LT_TTL_MS / 4;
    assert_string_equal(entered(l, e).id, "a");
    e = caller("c");
    e.offset_ms = -LT_TTL_MS / 4;
    assert_string_equal(entered(l, e).id, "a");
    e.offset_ms = LT_TTL_MS / 4 + 1;
    struct lt_entered c = entered(l, e);
    assert_string_equal(c.id, "c");
    assert_quarantine(&c, LT_TTL_MS);
    /* The difference between the clocks of host h2 and Redis was measured before the jump, so the
     * script `enter` has deleted it. */
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch offset:h2"), "(nil)");
    /* Redis' clock has jumped back to its earlier time, which also counts as a jump. */
    assert_string_equal(entered(l, caller("d")).id, "d");
    e.candidate = "x";
    e.offset_ms = LT_TTL_MS / 4;
    assert_string_equal(entered(l, e).id, "d");
}

static void a_far_new_host_is_another_epoch_once(void **state) {
    struct lt *l = *state;
    fresh(l);
    struct lt_enter e = caller("b");
    e.host = "h2";
    e.offset_ms = FAR_MS;
    assert_string_equal(entered(l, e).id, "b");
    e.candidate = "c";
    assert_string_equal(entered(l, e).id, "b");
    /* Compared with the clock of host h1, Redis' clock has not jumped, so h1 joins the epoch. */
    assert_string_equal(entered(l, caller("d")).id, "b");
}

static void assert_refused(struct lt *l, struct lt_enter e, const char *field, const char *theirs) {
    struct lt_entered out;
    char *before = lt_dump(l, true);
    assert_string_equal(lt_enter(l, &e, &out), "REFUSED");
    assert_string_equal(out.field, field);
    assert_string_equal(out.theirs, theirs);
    lt_assert_unchanged(l, before, true);
}

static void another_schema_is_refused(void **state) {
    struct lt *l = *state;
    fresh(l);
    struct lt_enter e = caller("b");
    e.value = "2";
    e.ttl_ms = 3 * LT_TTL_MS;
    e.fence = UINT64_C(9000000000000000);
    e.offset_ms = FAR_MS;
    assert_refused(l, e, "shards", "1");
    e.life = "another";
    assert_refused(l, e, "shards", "1");
    e = caller("b");
    /* The caller names a field of the schema that the epoch does not contain yet. The first such
     * caller adds the field to the epoch. */
    e.field = "group";
    e.value = "g";
    assert_string_equal(entered(l, e).id, "a");
    e.value = "h";
    assert_refused(l, e, "group", "g");
}

static void the_largest_ttl_counts(void **state) {
    struct lt *l = *state;
    fresh(l);
    struct lt_enter e = caller("b");
    e.ttl_ms = 2 * LT_TTL_MS;
    assert_int_equal(entered(l, e).ttl_ms, 2 * LT_TTL_MS);
    e = caller("c");
    assert_int_equal(entered(l, e).ttl_ms, 2 * LT_TTL_MS);
    e.life = "another";
    struct lt_entered c = entered(l, e);
    assert_string_equal(c.id, "c");
    assert_quarantine(&c, 2 * LT_TTL_MS);
}

static void a_quarantine_too_long_is_cut(void **state) {
    struct lt *l = *state;
    struct lt_entered a = fresh(l);
    lt_int(l, "HSET " LT_TAG "epoch not_before %lld", (long long)a.not_before_ms + 3600000);
    struct lt_entered b = entered(l, caller("b"));
    assert_string_equal(b.id, "a");
    assert_true(b.not_before_ms >= a.not_before_ms && b.not_before_ms <= lt_now_ms(l) + LT_TTL_MS);
}

/* Redis was wiped and no longer knows of earlier, longer leases, but a caller does. The quarantine
 * that this caller starts lasts as long as those leases. Later quarantines last as long as the
 * current TTL. */
static void leases_of_earlier_epochs_count_once(void **state) {
    struct lt *l = *state;
    lt_text(l, "FLUSHALL");
    struct lt_enter e = caller("a");
    e.old_ms = 5 * LT_TTL_MS;
    struct lt_entered a = entered(l, e);
    assert_quarantine(&a, 5 * LT_TTL_MS);
    assert_int_equal(a.ttl_ms, LT_TTL_MS);
    /* A caller that joins an epoch never shortens the quarantine of the epoch. */
    assert_int_equal(entered(l, caller("b")).not_before_ms, a.not_before_ms);
    lt_text(l, "FLUSHALL");
    struct lt_entered c = entered(l, caller("c"));
    assert_quarantine(&c, LT_TTL_MS);
}

static void a_quarantine_under_way_grows(void **state) {
    struct lt *l = *state;
    struct lt_entered a = fresh(l);
    struct lt_enter e = caller("b");
    e.old_ms = LT_TTL_MS;
    /* The caller's earlier leases end before the present quarantine does, so the quarantine is not
     * prolonged. */
    assert_int_equal(entered(l, e).not_before_ms, a.not_before_ms);
    e.old_ms = 3 * LT_TTL_MS;
    struct lt_entered b = entered(l, e);
    assert_string_equal(b.id, "a");
    assert_int_equal(b.not_before_ms, a.not_before_ms + 2 * LT_TTL_MS);
    assert_int_equal(entered(l, e).not_before_ms, b.not_before_ms);
    /* The quarantine is over and leases may have been granted, so the quarantine is not
     * prolonged. */
    lt_int(l, "HSET " LT_TAG "epoch not_before 5");
    e.old_ms = 9 * LT_TTL_MS;
    assert_int_equal(entered(l, e).not_before_ms, 5);
}

/* Redis restarts during a long quarantine, and the first caller after that knows of no earlier
 * leases. The new quarantine must last at least as long as the remaining time of the old one. */
static void the_rest_of_a_quarantine_counts_in_the_next(void **state) {
    struct lt *l = *state;
    lt_text(l, "FLUSHALL");
    struct lt_enter e = caller("a");
    e.old_ms = 5 * LT_TTL_MS;
    struct lt_entered a = entered(l, e);
    e = caller("b");
    e.life = "another";
    struct lt_entered b = entered(l, e);
    assert_string_equal(b.id, "b");
    assert_int_equal(b.not_before_ms, a.not_before_ms);
}

static void scores_too_far_ahead_are_cut(void **state) {
    struct lt *l = *state;
    struct lt_entered a = fresh(l);
    lt_text(l, "ZADD " LT_TAG "lanes 5 early %lld late", (long long)a.now_ms + 3600000);
    entered(l, caller("b"));
    /* A caller that joins an epoch does not change the scores in the zset `lanes`. */
    assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes late")) == a.now_ms + 3600000);
    struct lt_enter e = caller("b");
    e.life = "another";
    struct lt_entered b = entered(l, e);
    assert_string_equal(lt_text(l, "ZSCORE " LT_TAG "lanes early"), "5");
    int64_t late = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes late"));
    assert_true(late >= a.now_ms + LT_TTL_MS && late <= b.now_ms + LT_TTL_MS);
}

static void the_fence_only_rises(void **state) {
    struct lt *l = *state;
    fresh(l);
    struct lt_enter e = caller("b");
    e.fence = 500;
    entered(l, e);
    assert_string_equal(lt_text(l, "GET " LT_TAG "fence"), "500");
    e.fence = 499;
    entered(l, e);
    assert_string_equal(lt_text(l, "GET " LT_TAG "fence"), "500");
}

/* Fences grow even if Redis' clock is behind all fences used so far. lt_gate() checks that each
 * fence is larger than all earlier fences. */
static void fences_rise_over_a_wipe(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "fence 8000000000000000");
    struct lt_msg m = lt_msg(0, 1, "k", "t1");
    assert_string_equal(lt_gate(l, &m, 1), "R");
    assert_true(lt_fence(l, 0) > UINT64_C(8000000000000000));
    lt_text(l, "FLUSHALL");
    struct lt_enter e = caller("b");
    e.fence = l->fence_seen;
    entered(l, e);
    snprintf(l->epoch, sizeof l->epoch, "b");
    assert_string_equal(lt_gate(l, &m, 1), "QUARANTINE");
    lt_int(l, "HSET " LT_TAG "epoch not_before 0");
    /* The quarantine is over, but in a first run gate still answers QUARANTINE until a worker has
     * reported a commit of the consumer group. */
    assert_string_equal(lt_gate(l, &m, 1), "QUARANTINE");
    lt_int(l, "HDEL " LT_TAG "epoch first");
    assert_string_equal(lt_gate(l, &m, 1), "R");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(starts_a_fresh_epoch),
        LT(joins_an_epoch),
        LT(another_life_is_another_epoch),
        LT(earlier_epochs_are_kept),
        LT(another_name_of_the_same_life_is_joined),
        LT(an_epoch_that_jumped_ends_once),
        LT(a_moved_clock_is_another_epoch),
        LT(a_far_new_host_is_another_epoch_once),
        LT(another_schema_is_refused),
        LT(the_largest_ttl_counts),
        LT(a_quarantine_too_long_is_cut),
        LT(leases_of_earlier_epochs_count_once),
        LT(a_quarantine_under_way_grows),
        LT(the_rest_of_a_quarantine_counts_in_the_next),
        LT(scores_too_far_ahead_are_cut),
        LT(the_fence_only_rises),
        LT(fences_rise_over_a_wipe),
    };
    return LT_RUN(tests, LT_ALL);
}
