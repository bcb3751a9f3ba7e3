/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `hold`, with which a command takes a lane's lock (`latchwork lock exec -c`), and
 * the script `break`, with which an operator ends a lock (`latchwork lock break -c`). */
#include "tests/support/lanes_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A fence that is larger than the time of Redis in µs. So the next fence is not that time, but is
 * larger than this fence by exactly 1. */
#define FENCE_FAR 8000000000000000
enum { MOST_FENCES = 64 };

/* --- the calls -------------------------------------------------------------------------------- */

static bool paused_too;

/* Calls the script `hold`. Returns "H", "B", "Q", "P", "LOST", "JUMP" or an error. The answer "H"
 * says that the lock was taken. In this case the function also checks that the fence is larger than
 * all fences reserved before. */
static const char *hold(struct lt *l, struct lt_msg m) {
    lt_begin(l, &lw_script_hold);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "fence");
    lt_add_lane(l, "lock:", m.lane);
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%" PRId64, lt_now_ms(l) + l->off_ms);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms / 4);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_add_text(&l->args, m.token);
    lt_add_text(&l->args, paused_too ? "1" : "0");
    lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    assert_int_equal(l->reply->elements, 2);
    snprintf(l->answers, sizeof l->answers, "%s", l->reply->element[0]->str);
    if (strcmp(l->answers, "H") != 0) return l->answers;
    l->fence = strtoull(l->reply->element[1]->str, NULL, 10);
    if (l->fence <= l->fence_seen)
        fail_msg("hold: fence %" PRIu64 " after %" PRIu64, l->fence, l->fence_seen);
    l->fence_seen = strtoull(lt_text(l, "GET " LT_TAG "fence"), NULL, 10);
    if (l->variant != LT_TWICE) assert_int_equal(l->fence_seen, l->fence);
    return l->answers;
}
static int64_t number_in(const struct lt *l) {
    assert_int_equal(l->reply->element[1]->type, REDIS_REPLY_INTEGER);
    return l->reply->element[1]->integer;
}

/* Calls the script `break`. Returns the value that the lock had, or "" if the lane had no lock. */
static const char *break_lock(struct lt *l, const char *lane, const char *by) {
    static const char *const names[] = {"epoch", "lanes", "fence", "ready", "audit"};
    lt_begin(l, &lw_script_break);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        lt_addf(&l->keys, LT_TAG "%s", names[i]);
    lt_add_lane(l, "lock:", lw_bytes_of(lane));
    lt_addf(&l->args, "%d", LT_HANDOFF_MS);
    lt_add_text(&l->args, by);
    lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) fail_msg("break: %s", l->answers);
    if (l->reply->elements == 0) return "";
    assert_int_equal(l->reply->elements, 2);
    uint64_t fence = strtoull(l->reply->element[0]->str, NULL, 10);
    if (fence <= l->fence_seen)
        fail_msg("break: fence %" PRIu64 " after %" PRIu64, fence, l->fence_seen);
    l->fence = l->fence_seen = fence;
    assert_string_equal(lt_text(l, "GET " LT_TAG "fence"), l->reply->element[0]->str);
    return l->reply->element[1]->str;
}

static int64_t left(struct lt *l, struct lt_msg m) {
    return lt_int(l, "PTTL " LT_TAG "lock:%b", m.lane.p, m.lane.n);
}
static void assert_holds(struct lt *l, struct lt_msg m) {
    assert_string_equal(lt_lock(l, m), m.token);
    assert_true(left(l, m) > 1000 && left(l, m) <= LT_TTL_MS);
}

static int setup(void **state) {
    paused_too = false;
    return lt_setup(state);
}
#define T(f) cmocka_unit_test_setup(f, setup)

/* --- hold ------------------------------------------------------------------------------------- */

static void a_free_lane_is_held(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me");
    assert_string_equal(hold(l, m), "H");
    assert_holds(l, m);
    char value[96];
    snprintf(value, sizeof value, "me:%" PRIu64, l->fence);
    if (l->variant != LT_TWICE) assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    m = lt_msg_bytes(0, 1, lw_bytes("\0}\xff", 3), "me");
    assert_string_equal(hold(l, m), "H");
    assert_holds(l, m);
    /* No message waits in the lane, so the script `hold` does not add the lane to the zset
     * `lanes`. */
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lanes"), 0);
}

static void its_fence_is_above_all_that_a_call_reserved(void **state) {
    struct lt *l = *state;
    l->reserve = MOST_FENCES;
    lt_text(l, "SET " LT_TAG "fence %" PRId64, (int64_t)FENCE_FAR);
    struct lt_msg a = lt_msg(0, 1, "a", "worker"), b = lt_msg(0, 2, "b", "me"),
                  c = lt_msg(0, 3, "c", "worker2");
    assert_string_equal(lt_gate(l, &a, 1), "R");
    uint64_t reserved = l->fence + MOST_FENCES - 1;
    assert_string_equal(hold(l, b), "H");
    assert_int_equal(l->fence, reserved + 1);
    uint64_t mine = l->fence;
    /* The next fence that gate gives to a worker is larger than the fence of the operator's
     * command. */
    assert_string_equal(lt_gate(l, &c, 1), "R");
    assert_true(lt_fence(l, 0) > mine);
}

static void a_held_lane_is_busy(void **state) {
    struct lt *l = *state;
    struct lt_msg worker = lt_msg(0, 1, "k", "worker"), me = lt_msg(0, 1, "k", "me");
    assert_string_equal(lt_gate(l, &worker, 1), "R");
    char *before = lt_dump(l, true);
    assert_string_equal(hold(l, me), "B");
    assert_true(number_in(l) > 1000 && number_in(l) <= LT_TTL_MS);
    lt_assert_unchanged(l, before, true);
    /* During the backoff of a message no worker holds the lane, but the lane is still busy. */
    lt_text(l, "SET " LT_TAG "lock:k backoff PX 60000");
    assert_string_equal(hold(l, me), "B");
    assert_true(number_in(l) <= 60000);
    lt_text(l, "SET " LT_TAG "lock:k left-behind");
    assert_string_equal(hold(l, me), "B");
    /* The script `hold` reports that the lock has no TTL, so the lock would never expire. */
    assert_int_equal(number_in(l), -1);
}

static void the_other_way_round_messages_wait(void **state) {
    struct lt *l = *state;
    struct lt_msg me = lt_msg(0, 1, "k", "me"), m = lt_msg(0, 1, "k", "worker");
    assert_string_equal(hold(l, me), "H");
    assert_string_equal(lt_gate(l, &m, 1), "W");
    assert_string_equal(lt_claim(l, &m, 1), "B");
    assert_holds(l, me);
    lt_free_lock(l, me);
    /* A command takes a free lane even if messages wait in it. */
    assert_string_equal(hold(l, me), "H");
    assert_string_equal(lt_waiting(l, m), "0/1");
    lt_free_lock(l, me);
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_string_equal(hold(l, me), "B");
}

static void mine_already_is_held_anew(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me"), like_mine = lt_msg(0, 1, "k", "m");
    assert_string_equal(hold(l, m), "H");
    uint64_t first = l->fence;
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 500");
    /* The answer of the first call was lost, and the lane is paused before the call is sent
     * again. */
    lt_int(l, "SADD " LT_TAG "paused k");
    assert_string_equal(hold(l, m), "H");
    assert_true(l->fence > first);
    assert_holds(l, m);
    /* The caller's token is a prefix of the holder's token, but not the same token. */
    assert_string_equal(hold(l, like_mine), "B");
}

static void another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me");
    snprintf(l->epoch, sizeof l->epoch, "other");
    /* The clock has jumped as well, but the script `hold` checks the epoch first. */
    l->off_ms = 10 * LT_TTL_MS;
    char *before = lt_dump(l, true);
    assert_string_equal(hold(l, m), "LOST");
    lt_assert_unchanged(l, before, true);
    lt_text(l, "FLUSHALL");
    assert_string_equal(hold(l, m), "LOST");
    assert_int_equal(lt_int(l, "DBSIZE"), 0);
}

static void a_clock_that_jumped(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me");
    char *before = lt_dump(l, true);
    l->off_ms = LT_TTL_MS / 4 + 60000;
    assert_string_equal(hold(l, m), "JUMP");
    l->off_ms = -LT_TTL_MS / 4 - 60000;
    assert_string_equal(hold(l, m), "JUMP");
    lt_assert_unchanged(l, before, true);
    l->off_ms = LT_TTL_MS / 4 - 60000;
    assert_string_equal(hold(l, m), "H");
}

static void nobody_locks_in_a_quarantine(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me");
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + 60000);
    char *before = lt_dump(l, true);
    assert_string_equal(hold(l, m), "Q");
    assert_true(number_in(l) > 1000 && number_in(l) <= 60000);
    lt_assert_unchanged(l, before, true);
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) - 1);
    assert_string_equal(hold(l, m), "H");
}

static void a_paused_lane_only_if_asked_for(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me"), other = lt_msg(0, 1, "other", "me");
    lt_int(l, "SADD " LT_TAG "paused k");
    char *before = lt_dump(l, true);
    assert_string_equal(hold(l, m), "P");
    assert_int_equal(number_in(l), 0);
    lt_assert_unchanged(l, before, true);
    assert_string_equal(hold(l, other), "H");
    paused_too = true;
    assert_string_equal(hold(l, m), "H");
    assert_holds(l, m);
}

static void what_cannot_be_taken_changes_nothing(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "me");
    lt_int(l, "LPUSH " LT_TAG "lock:k x");
    char *before = lt_dump(l, true);
    assert_string_equal(hold(l, m), "-WRONGTYPE");
    lt_assert_unchanged(l, before, true);
    lt_text(l, "CONFIG SET maxmemory 1");
    before = lt_dump(l, true);
    assert_string_equal(hold(l, lt_msg(0, 1, "free", "me")), "-OOM");
    lt_text(l, "CONFIG SET maxmemory 0");
    lt_assert_unchanged(l, before, true);
}

/* --- break ------------------------------------------------------------------------------------ */

static void nobody_held_it(void **state) {
    struct lt *l = *state;
    lt_int(l, "ZADD " LT_TAG "lanes 1 k");
    char *before = lt_dump(l, true);
    assert_string_equal(break_lock(l, "k", "anna"), "");
    /* Breaking a lock that does not exist makes no new fence, hint or audit entry. */
    lt_assert_unchanged(l, before, true);
}

static void the_holder_is_stale_from_then_on(void **state) {
    struct lt *l = *state;
    l->reserve = MOST_FENCES;
    lt_text(l, "SET " LT_TAG "fence %" PRId64, (int64_t)FENCE_FAR);
    struct lt_msg m = lt_msg(0, 1, "k", "worker"), other = lt_msg(0, 2, "other", "worker");
    assert_string_equal(lt_gate(l, (struct lt_msg[]){m, other}, 2), "RR");
    uint64_t reserved = l->fence + MOST_FENCES - 1;
    char value[96];
    lt_value(l, "worker", value, sizeof value);
    assert_string_equal(break_lock(l, "k", "anna"), value);
    /* The new fence is larger than all fences that the worker may use under its lease. */
    assert_int_equal(l->fence, reserved + 1);
    assert_string_equal(lt_lock(l, m), "(nil)");
    assert_string_equal(lt_lock(l, other), "worker");
    assert_string_equal(lt_renew(l, &m, 1), "0");
    m.outcome = "retry", m.backoff_ms = 1000;
    assert_string_equal(lt_settle(l, &m, 1), "S");
}

static void what_waits_goes_on(void **state) {
    struct lt *l = *state;
    struct lt_msg run = lt_msg(0, 1, "k", "worker"), wait = lt_msg(0, 2, "k", "worker2");
    assert_string_equal(lt_gate(l, &run, 1), "R");
    assert_string_equal(lt_gate(l, &wait, 1), "W");
    int64_t now = lt_now_ms(l);
    break_lock(l, "k", "anna");
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "ready 0"), "k");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "ready"), 1);
    int64_t score = strtoll(lt_text(l, "ZSCORE " LT_TAG "lanes k"), NULL, 10);
    /* The lane's score is the time at which tend makes a new hint if no worker claims the lane
     * earlier. */
    assert_true(score >= now + LT_HANDOFF_MS && score <= now + LT_HANDOFF_MS + 60000);
    assert_string_equal(lt_claim(l, &wait, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
}

static void where_nothing_waits_nothing_is_hinted(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "worker");
    lt_gate(l, &m, 1);
    break_lock(l, "k", "anna");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "ready"), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lanes"), 0);
}

static void a_paused_lane_stays_paused(void **state) {
    struct lt *l = *state;
    struct lt_msg run = lt_msg(0, 1, "k", "worker"), wait = lt_msg(0, 2, "k", "worker2");
    lt_gate(l, &run, 1), lt_gate(l, &wait, 1);
    lt_int(l, "SADD " LT_TAG "paused k");
    break_lock(l, "k", "anna");
    assert_string_equal(lt_lock(l, run), "(nil)");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "ready"), 0);
}

static void a_backoff_ends(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "worker"), "retry", "next");
    m.backoff_ms = 60000;
    lt_gate(l, &m, 1);
    lt_settle(l, &m, 1);
    assert_string_equal(lt_lock(l, m), "backoff");
    assert_int_equal(strncmp(break_lock(l, "k", "anna"), "backoff", 7), 0);
    assert_string_equal(lt_lock(l, m), "(nil)");
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "ready 0"), "k");
    m.token = "worker2";
    /* The next claim gets the message at once, although the backoff was not over. The failed
     * attempt is still counted. */
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_int_equal(lt_attempts(l, 0), 1);
}

static void without_ttl_epoch_or_in_a_quarantine(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "lock:k left-behind");
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + 60000);
    assert_string_equal(break_lock(l, "k", "anna"), "left-behind");
    lt_text(l, "FLUSHALL");
    l->fence_seen = 0;
    lt_text(l, "SET " LT_TAG "lock:k left-behind");
    assert_string_equal(break_lock(l, "k", "anna"), "left-behind");
}

static void the_audit_says_who_and_what(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "lock:k worker:17");
    break_lock(l, "k", "anna@example");
    redisReply *r = redisCommand(l->admin, "XRANGE " LT_TAG "audit - +");
    /* The audit has only one entry, even in the variant in which each call is sent twice. */
    assert_int_equal(r->elements, 1);
    const redisReply *f = r->element[0]->element[1];
    char fence[24];
    snprintf(fence, sizeof fence, "%" PRIu64, l->fence);
    const char *const want[] = {"did",          "lock break", "key",       "k",     "by",
                                "anna@example", "was",        "worker:17", "fence", fence};
    assert_int_equal(f->elements, sizeof want / sizeof *want);
    for (size_t i = 0; i < f->elements; i++) assert_string_equal(f->element[i]->str, want[i]);
    freeReplyObject(r);
}

static void the_audit_is_bounded_and_never_in_the_way(void **state) {
    struct lt *l = *state;
    lt_text(l, "EVAL %s 1 " LT_TAG "audit",
            "for i = 1, 10500 do redis.call('XADD', KEYS[1], '*', 'did', 'x') end return 'OK'");
    lt_text(l, "SET " LT_TAG "lock:k worker:17");
    break_lock(l, "k", "anna");
    assert_true(lt_int(l, "XLEN " LT_TAG "audit") < 10200);
    lt_int(l, "DEL " LT_TAG "audit");
    lt_text(l, "SET " LT_TAG "audit nonsense");
    lt_text(l, "SET " LT_TAG "lock:k worker:18");
    assert_string_equal(break_lock(l, "k", "anna"), "worker:18");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lock:k"), 0);
}

int main(void) {
    const struct CMUnitTest of_hold[] = {
        T(a_free_lane_is_held),
        T(its_fence_is_above_all_that_a_call_reserved),
        T(a_held_lane_is_busy),
        T(the_other_way_round_messages_wait),
        T(mine_already_is_held_anew),
        T(another_epoch_is_lost),
        T(a_clock_that_jumped),
        T(nobody_locks_in_a_quarantine),
        T(a_paused_lane_only_if_asked_for),
        T(what_cannot_be_taken_changes_nothing),
    };
    const struct CMUnitTest of_break[] = {
        T(nobody_held_it),
        T(the_holder_is_stale_from_then_on),
        T(what_waits_goes_on),
        T(where_nothing_waits_nothing_is_hinted),
        T(a_paused_lane_stays_paused),
        T(a_backoff_ends),
        T(without_ttl_epoch_or_in_a_quarantine),
        T(the_audit_says_who_and_what),
        T(the_audit_is_bounded_and_never_in_the_way),
    };
    /* The tests of the script `hold` do not run in the variant in which Redis has reached
     * maxmemory, because Redis then refuses the script. The test
     * what_cannot_be_taken_changes_nothing checks that. */
    int failed = LT_RUN(of_hold, LT_PLAIN | LT_FLUSHED | LT_TWICE);
    return failed + LT_RUN(of_break, LT_ALL);
}
