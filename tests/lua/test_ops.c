/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the operators' scripts `edit`, `hold`, `job`, `look`, `page` and `wake`: every answer, and
 * what each script leaves in Redis. test_ops_move.c tests the scripts `put` and `drop`. */
#include "tests/support/lanes.h"
#include "tests/support/lanes_build.h"
#include "ops/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void key(struct lt *l, const char *name) { lt_addf(&l->keys, LT_TAG "%s", name); }
static void arg(struct lt *l, const char *text) { lt_add_text(&l->args, text); }

static const char *envelope(int64_t offset) {
    static char text[128];
    snprintf(text, sizeof text, "1 orders 0 %" PRId64 " 0 5 5 1 0 0 2\nk{}", offset);
    return text;
}
static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static void park(struct lt *l, int first, int last) {
    for (int o = first; o <= last; o++) {
        lt_int(l, "LPUSH " LT_TAG "wait:k %s", envelope(o));
        lt_set_state(l, message(o), 1);
    }
    lt_int(l, "ZADD " LT_TAG "lanes 5 k");
}
static int64_t hints(struct lt *l) { return lt_int(l, "LLEN " LT_TAG "ready"); }

/* Returns the elements of the script's answer as one text, joined by '|'. */
static const char *joined(struct lt *l) {
    assert_int_equal(l->reply->type, REDIS_REPLY_ARRAY);
    size_t n = 0;
    l->text[0] = '\0';
    for (size_t i = 0; i < l->reply->elements; i++) {
        const redisReply *e = l->reply->element[i];
        if (e->type == REDIS_REPLY_INTEGER)
            n += (size_t)snprintf(l->text + n, sizeof l->text - n, "%s%lld", i ? "|" : "",
                                  e->integer);
        else
            n += (size_t)snprintf(l->text + n, sizeof l->text - n, "%s%s", i ? "|" : "", e->str);
    }
    return l->text;
}

/* --- edit ------------------------------------------------------------------------------------- */

static const char *edit(struct lt *l, const char *id, const char *was, const char *is,
                        const char *who, const char *at) {
    lt_begin(l, &lw_op_edit);
    key(l, "epoch"), key(l, "dead");
    arg(l, id), arg(l, was), arg(l, is), arg(l, who), arg(l, at);
    return lt_run(l);
}
/* Returns all fields of the only dead letter in Redis, as one text. */
static const char *letter(struct lt *l) {
    redisReply *r = redisCommand(l->admin, "XRANGE " LT_TAG "dead - +");
    assert_int_equal(r->elements, 1);
    const redisReply *f = r->element[0]->element[1];
    size_t n = 0;
    for (size_t i = 0; i < f->elements; i++)
        n += (size_t)snprintf(l->text + n, sizeof l->text - n, "%s%s", i ? " " : "",
                              f->element[i]->str);
    freeReplyObject(r);
    return l->text;
}

static void an_edit_keeps_what_was(void **state) {
    struct lt *l = *state;
    char first[64], second[64];
    snprintf(first, sizeof first, "%s",
             lt_text(l, "XADD " LT_TAG "dead * envelope e1 reason r attempts 3"));
    snprintf(second, sizeof second, "%s", edit(l, first, "e1", "e2", "me", "11"));
    assert_string_not_equal(first, second);
    assert_string_equal(letter(l),
                        "envelope e2 original e1 edited_by me edited_ms 11 reason r attempts 3");
    edit(l, second, "e2", "e3", "you", "12");
    assert_string_equal(letter(l),
                        "envelope e3 original e1 edited_by you edited_ms 12 reason r attempts 3");
}

static const char *edit_in_topic(struct lt *l, const char *which, const char *is) {
    lt_begin(l, &lw_op_edit);
    key(l, "epoch"), key(l, "dead");
    arg(l, "orders/0/7"), arg(l, "e1"), arg(l, is), arg(l, "me"), arg(l, "11");
    arg(l, which), arg(l, "reason"), arg(l, "r"), arg(l, "attempts"), arg(l, "3");
    return lt_run(l);
}

static void an_edit_of_a_letter_in_a_topic_takes_it_once(void **state) {
    struct lt *l = *state;
    assert_true(strchr(edit_in_topic(l, "", "e2"), '-') != NULL);
    assert_string_equal(letter(l),
                        "envelope e2 original e1 edited_by me edited_ms 11 reason r attempts 3");
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "taken"), 1);
    char *before = lt_dump(l, true);
    assert_string_equal(edit_in_topic(l, "", "e3"), "1");
    lt_assert_unchanged(l, before, true);
    assert_true(strchr(edit_in_topic(l, "any", "e3"), '-') != NULL);
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 2);
}

static void an_edit_of_what_is_no_more(void **state) {
    struct lt *l = *state;
    char id[64];
    snprintf(id, sizeof id, "%s", lt_text(l, "XADD " LT_TAG "dead * reason r envelope e1"));
    char *before = lt_dump(l, true);
    assert_string_equal(edit(l, "1-1", "e1", "e2", "me", "11"), "0");
    /* The dead letter no longer has the envelope that this operator saw, so the edit changes
     * nothing. */
    assert_string_equal(edit(l, id, "e0", "e2", "me", "11"), "0");
    lt_assert_unchanged(l, before, true);
}

/* --- job -------------------------------------------------------------------------------------- */

static void job_call(struct lt *l, const char *what, const char *token, const char *number) {
    lt_begin(l, &lw_op_job);
    key(l, "epoch"), key(l, "job"), key(l, "replays");
    lt_addf(&l->keys, LT_TAG "job:%s", number);
    key(l, "audit");
    arg(l, what), arg(l, token), arg(l, "30000");
}
static const char *begin(struct lt *l, const char *token, const char *least, const char *resume) {
    job_call(l, "begin", token, resume[0] ? resume : "0");
    arg(l, least), arg(l, resume), arg(l, "who"), arg(l, "me"), arg(l, "words"), arg(l, "w");
    lt_run(l);
    return l->reply->type == REDIS_REPLY_ARRAY ? joined(l) : l->answers;
}
static const char *go_on(struct lt *l, const char *what, const char *token, const char *number) {
    job_call(l, what, token, number);
    arg(l, number), arg(l, "state"), arg(l, what);
    return lt_run(l);
}

static void jobs_are_numbered_and_run_alone(void **state) {
    struct lt *l = *state;
    assert_string_equal(begin(l, "a", "1", ""), "1");
    /* The same call sent again, as after a lost answer, does not begin a second job. */
    assert_string_equal(begin(l, "a", "1", ""), "1");
    assert_string_equal(begin(l, "b", "1", ""), "BUSY|1");
    assert_string_equal(go_on(l, "renew", "a", "1"), "1");
    assert_string_equal(go_on(l, "renew", "b", "1"), "0");
    assert_string_equal(go_on(l, "end", "b", "1"), "0");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "job:1 state"), "renew");
    assert_string_equal(go_on(l, "end", "a", "1"), "1");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "job:1 state"), "end");
    assert_string_equal(begin(l, "b", "1", ""), "2");
    go_on(l, "end", "b", "2");
    /* The caller names 9 as the lowest number for the new job, because of the jobs in other shards.
     * Number 9 is free in this shard, so the new job gets it. */
    assert_string_equal(begin(l, "c", "9", ""), "9");
    assert_string_equal(lt_text(l, "GET " LT_TAG "replays"), "9");
    /* The audit has six entries: four for successful calls of `begin`, including the repeated call,
     * and two for calls of `end`. */
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "audit"), 6);
}

static void a_job_goes_on(void **state) {
    struct lt *l = *state;
    assert_string_equal(begin(l, "a", "1", ""), "1");
    assert_string_equal(begin(l, "b", "1", "1"), "BUSY|1");
    /* Delete the lease of the job, as if the process that ran the job had been killed and the lease
     * had expired. */
    lt_int(l, "DEL " LT_TAG "job");
    assert_string_equal(begin(l, "b", "1", "1"), "1");
    assert_string_equal(lt_text(l, "GET " LT_TAG "job"), "1 b");
    go_on(l, "end", "b", "1");
    assert_string_equal(begin(l, "c", "1", "5"), "NONE");
    assert_string_equal(begin(l, "c", "1", ""), "2");
}

static void a_job_that_was_silent(void **state) {
    struct lt *l = *state;
    begin(l, "a", "1", "");
    /* Delete the lease of the job, as if it had expired. No other job has begun, so the job can
     * renew its lease. */
    lt_int(l, "DEL " LT_TAG "job");
    assert_string_equal(go_on(l, "renew", "a", "1"), "1");
    assert_string_equal(begin(l, "b", "1", ""), "BUSY|1");
    lt_int(l, "DEL " LT_TAG "job");
    assert_string_equal(begin(l, "b", "1", ""), "2");
    assert_string_equal(go_on(l, "renew", "a", "1"), "0");
    assert_string_equal(go_on(l, "end", "a", "1"), "0");
    assert_string_equal(lt_text(l, "GET " LT_TAG "job"), "2 b");
    int64_t left = lt_int(l, "PTTL " LT_TAG "job");
    assert_true(left > 20000 && left <= 30000);
}

/* The record of a job must expire before the marks of its replays. If a job could be resumed when
 * the marks are gone, it would put its messages into their lanes a second time. */
static void a_record_goes_before_the_marks(void **state) {
    struct lt *l = *state;
    enum { MARKS_S = 604800 };
    begin(l, "a", "1", "");
    int64_t left = lt_int(l, "TTL " LT_TAG "job:1");
    assert_true(left > 86400 && left <= MARKS_S - 86400);
    lt_int(l, "EXPIRE " LT_TAG "job:1 100");
    go_on(l, "renew", "a", "1");
    go_on(l, "end", "a", "1");
    begin(l, "a", "1", "1");
    /* The TTL of the job's record still counts from the time at which the job first began. */
    assert_true(lt_int(l, "TTL " LT_TAG "job:1") <= 100);
}

/* --- look, page ------------------------------------------------------------------------------- */

static const char *look(struct lt *l, int n, const char *const *lanes) {
    lt_begin(l, &lw_op_look);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor");
    for (int i = 0; i < n; i++) arg(l, lanes[i]);
    lt_run(l);
    /* Leave out the first element of the answer, which is the time. */
    return strchr(joined(l), '|') + 1;
}
static const char *look_at_k(struct lt *l) { return look(l, 1, (const char *const[]){"k"}); }

static void look_tells_of_lanes(void **state) {
    struct lt *l = *state;
    assert_string_equal(look(l, 2, (const char *const[]){"k", "x"}), "0|||0||0|0||0|||0||0|0|");
    park(l, 1, 3);
    assert_string_equal(look_at_k(l), "3|1 orders 0 1 0 5 5 1 0 0 2||0||0|0|");
    /* A finished message that is still in the waiting list counts in the length of the list. */
    lt_set_state(l, message(1), 2);
    lt_text(l, "SET " LT_TAG "lock:k w.1:5");
    lt_int(l, "SADD " LT_TAG "paused k");
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 2 %s", "4 5 77");
    assert_string_equal(look_at_k(l), "3|1 orders 0 2 0 5 5 1 0 0 2|w.1:5|-1|1|4|77|");
    lt_int(l, "HSET " LT_TAG "floor orders:0 9");
    lt_int(l, "DEL " LT_TAG "lock:k");
    assert_string_equal(look_at_k(l), "3|||0|1|0|0|");
}

static void look_names_the_message_that_runs(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "lock:k w.1:5");
    lt_text(l, "SET " LT_TAG "run:k %s", "w.1:5 orders/0/7 2 1700");
    assert_string_equal(look_at_k(l), "0||w.1:5|-1||0|0|orders/0/7 2 1700");
    /* a message that has ended since */
    lt_set_state(l, message(7), 2);
    assert_string_equal(look_at_k(l), "0||w.1:5|-1||0|0|");
    lt_text(l, "SET " LT_TAG "run:k %s", "w.1:5 orders/0/7#3 1 1700"); /* a replay of it */
    assert_string_equal(look_at_k(l), "0||w.1:5|-1||0|0|orders/0/7#3 1 1700");
    /* another holder, whose token begins with the same bytes; then nobody */
    lt_text(l, "SET " LT_TAG "lock:k w.1:50");
    assert_string_equal(look_at_k(l), "0||w.1:50|-1||0|0|");
    lt_int(l, "DEL " LT_TAG "lock:k");
    assert_string_equal(look_at_k(l), "0|||0||0|0|");
    lt_text(l, "SET " LT_TAG "lock:k w.1:5");
    lt_int(l, "DEL " LT_TAG "run:k");
    lt_int(l, "LPUSH " LT_TAG "run:k x");
    assert_string_equal(look_at_k(l), "0||w.1:5|-1||0|0|");
}

static void look_passes_over_what_it_cannot_read(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "wait:k torn");
    park(l, 1, 1);
    assert_string_equal(look_at_k(l), "2|1 orders 0 1 0 5 5 1 0 0 2||0||0|0|");
    lt_int(l, "DEL " LT_TAG "wait:k");
    lt_text(l, "SET " LT_TAG "wait:k x");
    lt_int(l, "LPUSH " LT_TAG "lock:k x");
    assert_string_equal(look_at_k(l), "-1||(not a lock)|-1||0|0|");
}

static void look_has_a_bound(void **state) {
    struct lt *l = *state;
    park(l, 1, 17);
    for (int o = 1; o <= 16; o++) lt_set_state(l, message(o), 2);
    assert_string_equal(look_at_k(l), "17|||0||0|0|");
    lt_set_state(l, message(16), 0);
    assert_non_null(strstr(look_at_k(l), "17|1 orders 0 16 "));
}

static const char *page(struct lt *l, const char *skip, const char *most) {
    lt_begin(l, &lw_op_page);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor"), key(l, "wait:k");
    arg(l, skip), arg(l, most);
    lt_run(l);
    char *p = (char *)(uintptr_t)joined(l);
    for (; *p; p++)
        if (*p == '\n') *p = '/';
    return l->text;
}

static void page_tells_of_elements(void **state) {
    struct lt *l = *state;
    assert_string_equal(page(l, "0", "5"), "0");
    lt_int(l, "LPUSH " LT_TAG "wait:k torn");
    park(l, 1, 3);
    lt_set_state(l, message(1), 3);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 2 %s", "4 5 77");
    assert_string_equal(
        page(l, "0", "3"),
        "4|?|0|0|torn|f|0|0|1 orders 0 1 0 5 5 1 0 0 2/k{}|w|4|77|1 orders 0 2 0 5 5 1 0 0 2/k{}");
    assert_string_equal(page(l, "3", "3"), "4|w|0|0|1 orders 0 3 0 5 5 1 0 0 2/k{}");
    assert_string_equal(page(l, "4", "3"), "4");
    assert_string_equal(page(l, "9", "3"), "4");
    lt_int(l, "DEL " LT_TAG "wait:k");
    lt_text(l, "SET " LT_TAG "wait:k x");
    assert_string_equal(page(l, "0", "5"), "-1");
}

/* --- wake ------------------------------------------------------------------------------------- */

static const char *wake(struct lt *l) {
    static const char *const names[] = {"epoch", "lanes", "ready", "paused", "lock:k", "lock:x"};
    lt_begin(l, &lw_op_wake);
    for (size_t i = 0; i < 6; i++) key(l, names[i]);
    lt_addf(&l->args, "%d", LT_HANDOFF_MS);
    return lt_run(l);
}

static void wake_hints_where_something_may_run(void **state) {
    struct lt *l = *state;
    park(l, 1, 1);
    assert_string_equal(wake(l), "NN");
    assert_int_equal(hints(l), 0);
    lt_int(l, "SADD " LT_TAG "paused k x");
    assert_string_equal(wake(l), "RR");
    assert_int_equal(hints(l), 1);
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "ready 0"), "k");
    assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")) > 5);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "paused"), 0);
    lt_int(l, "SADD " LT_TAG "paused k");
    /* The lane has a holder, which will look at the lane itself, so the script `wake` makes no
     * hint. */
    lt_text(l, "SET " LT_TAG "lock:k w.1:5");
    assert_string_equal(wake(l), "RN");
    assert_int_equal(hints(l), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(an_edit_keeps_what_was),
        LT(an_edit_of_a_letter_in_a_topic_takes_it_once),
        LT(an_edit_of_what_is_no_more),
        LT(jobs_are_numbered_and_run_alone),
        LT(a_job_goes_on),
        LT(a_job_that_was_silent),
        LT(a_record_goes_before_the_marks),
        LT(look_tells_of_lanes),
        LT(look_names_the_message_that_runs),
        LT(look_passes_over_what_it_cannot_read),
        LT(look_has_a_bound),
        LT(page_tells_of_elements),
        LT(wake_hints_where_something_may_run),
    };
    return LT_RUN(tests, LT_PLAIN | LT_FLUSHED);
}
