/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the wire with a private redis-server: long pipelines, servers that die, freeze and come
 * back, and logins. */
#include "base/clock.h"
#include "base/log.h"
#include "base/redis/wire.h"
#include "tests/support/redis_server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h must be included after the preceding system headers */
#include <cmocka.h>

enum { LIMIT_MS = 20000, KEEP = 16, TEXT = 64, QUICK_MS = 300 };

struct seen {
    struct lw_wire *wire;
    struct lw_redis_url url;
    int ups, downs;
    char why[256];
    size_t n, errors; /* number of all replies, and number of error replies */
    char text[KEEP][TEXT];
    /* Size, in bytes, of each large reply. Each large reply must also contain its own number. */
    size_t big_size;
    bool wrong;
};

static void on_up(void *ctx) { ((struct seen *)ctx)->ups++; }

static void on_down(void *ctx, const char *why) {
    struct seen *s = ctx;
    s->downs++;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static void on_reply(void *ctx, const redisReply *r) {
    struct seen *s = ctx;
    s->errors += r->type == REDIS_REPLY_ERROR;
    if (s->big_size)
        s->wrong |= r->type != REDIS_REPLY_STRING || r->len != s->big_size ||
                    strtoull(r->str, NULL, 10) != s->n;
    if (s->n < KEEP)
        snprintf(s->text[s->n], TEXT, "%.*s", r->str ? (int)(r->len < TEXT ? r->len : TEXT - 1) : 0,
                 r->str ? r->str : "");
    s->n++;
}

static void open_wire(struct seen *s, const char *text, int64_t answer_ms) {
    struct lw_err err = {0};
    *s = (struct seen){0};
    if (lw_redis_url_parse(text, &s->url, &err)) fail_msg("%s", err.text);
    struct lw_wire_setup setup = {.url = &s->url,
                                  .name = "test",
                                  .answer_ms = answer_ms,
                                  .backoff_max_ms = 100,
                                  .up = on_up,
                                  .reply = on_reply,
                                  .down = on_down,
                                  .ctx = s};
    s->wire = lw_wire_open(&setup);
}

static void open_to(struct seen *s, const struct lw_test_redis *r, const char *login,
                    const char *query, int64_t answer_ms) {
    char text[300];
    snprintf(text, sizeof text, "unix://%s%s%s", login, lw_test_redis_path(r), query);
    open_wire(s, text, answer_ms);
}

static void close_wire(struct seen *s) {
    lw_wire_close(s->wire);
    lw_redis_url_free(&s->url);
}

static void turn(struct seen *s) {
    int64_t left = lw_wire_due_ms(s->wire) - lw_boot_ms();
    struct pollfd p = lw_wire_poll(s->wire);
    poll(&p, 1, left < 0 ? 0 : left > 20 ? 20 : (int)left);
    lw_wire_serve(s->wire, p.revents);
}

#define UNTIL(s, condition)                                                               \
    do {                                                                                  \
        int64_t until_ = lw_boot_ms() + LIMIT_MS;                                         \
        while (!(condition)) {                                                            \
            if (lw_boot_ms() > until_)                                                    \
                fail_msg("never: %s (ups %d downs %d replies %zu)", #condition, (s)->ups, \
                         (s)->downs, (s)->n);                                             \
            turn(s);                                                                      \
        }                                                                                 \
    } while (0)

static void turn_for(struct seen *s, int64_t ms) {
    for (int64_t until = lw_boot_ms() + ms; lw_boot_ms() < until;) turn(s);
}

/* Sends commands in one pipeline. In the list of words, "" ends each command, and NULL ends the
 * list. */
static void send_words(struct seen *s, const char *const *words) {
    struct lw_commands c = {0};
    bool first = true;
    for (; *words; words++) {
        if (!**words)
            first = true;
        else if (first)
            lw_cmd(&c, *words), first = false;
        else
            lw_arg_text(&c, *words);
    }
    lw_wire_send(s->wire, &c);
    lw_commands_free(&c);
}

#define SEND(s, ...) send_words(s, (const char *const[]){__VA_ARGS__, NULL})

static struct lw_test_redis *start(void) {
    struct lw_test_redis *r = lw_test_redis_start(NULL);
    assert_non_null(r);
    return r;
}

static void tell_server(struct lw_test_redis *r, const char *command) {
    redisContext *c = lw_test_redis_connect(r);
    assert_non_null(c);
    redisReply *reply = redisCommand(c, command);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", command, reply->str);
    freeReplyObject(reply);
    redisFree(c);
}

static void send_echoes(struct seen *s, size_t n, size_t size) {
    struct lw_commands c = {0};
    for (size_t i = 0; i < n; i++) {
        lw_cmd(&c, "ECHO");
        char *p = lw_arg_room(&c, size);
        memset(p, ' ', size);
        p[lw_decimal((int64_t)i, p)] = ' ';
    }
    lw_wire_send(s->wire, &c);
    /* The wire has made its own copy of the commands. */
    lw_commands_free(&c);
}

static void long_pipelines_come_back_in_order(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", 0);
    UNTIL(&s, s.ups == 1);
    s.big_size = 100 * 1000;
    /* Send 20 MB, which no socket accepts at once. */
    send_echoes(&s, 200, s.big_size);
    UNTIL(&s, s.n == 200);
    assert_false(s.wrong);
    s.n = 0;
    s.big_size = 40;
    send_echoes(&s, 20000, s.big_size);
    UNTIL(&s, s.n == 20000);
    assert_false(s.wrong);
    turn_for(&s, 20);
    assert_int_equal(s.n, 20000);
    assert_int_equal(s.downs, 0);
    assert_int_equal(lw_wire_due_ms(s.wire), INT64_MAX);
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void a_server_killed_in_the_middle(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", 0);
    UNTIL(&s, s.ups == 1);
    SEND(&s, "ECHO", "one", "", "BLPOP", "nothing", "0", "", "ECHO", "two");
    UNTIL(&s, s.n == 1);
    lw_test_redis_kill(r);
    UNTIL(&s, s.downs == 1);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.text[0], "one");
    /* While the server is down, further attempts to connect fail, but the callback `down` is not
     * called again. */
    turn_for(&s, 300);
    assert_int_equal(s.downs, 1);
    assert_int_equal(s.ups, 1);
    assert_true(lw_test_redis_restart(r));
    UNTIL(&s, s.ups == 2);
    SEND(&s, "ECHO", "three");
    UNTIL(&s, s.n == 2);
    assert_string_equal(s.text[1], "three");
    assert_int_equal(s.downs, 1);
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void a_frozen_server_is_given_up(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", QUICK_MS);
    UNTIL(&s, s.ups == 1);
    /* While the wire expects no reply, the silence of the server is not a fault. */
    turn_for(&s, 2 * QUICK_MS);
    assert_int_equal(s.downs, 0);
    kill(lw_test_redis_pid(r), SIGSTOP);
    SEND(&s, "ECHO", "lost");
    UNTIL(&s, s.downs == 1);
    assert_string_equal(s.why, "no answer in 300 ms");
    kill(lw_test_redis_pid(r), SIGCONT);
    UNTIL(&s, s.ups == 2);
    SEND(&s, "ECHO", "heard");
    UNTIL(&s, s.n == 1);
    assert_string_equal(s.text[0], "heard");
    close_wire(&s);
    lw_test_redis_stop(r);
}

/* Several pipelines are unanswered at once. Each reply must be taken, and then the wire must expect
 * none any more. */
static void pipelines_follow_each_other(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", QUICK_MS);
    UNTIL(&s, s.ups == 1);
    SEND(&s, "ECHO", "1", "", "ECHO", "2");
    SEND(&s, "ECHO", "3");
    SEND(&s, "ECHO", "4", "", "ECHO", "5");
    UNTIL(&s, s.n == 5);
    for (size_t i = 0; i < s.n; i++) assert_int_equal(atoi(s.text[i]), i + 1);
    turn_for(&s, 2 * QUICK_MS);
    assert_int_equal(s.downs, 0);
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void a_frozen_server_in_the_middle_of_a_long_pipeline(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", QUICK_MS);
    UNTIL(&s, s.ups == 1);
    kill(lw_test_redis_pid(r), SIGSTOP);
    /* Send 700 kB, which is more than the socket accepts, but not so much that the wire frees its
     * buffer afterwards. */
    send_echoes(&s, 7, 100 * 1000);
    assert_true(lw_wire_poll(s.wire).events & POLLOUT);
    UNTIL(&s, s.downs == 1);
    kill(lw_test_redis_pid(r), SIGCONT);
    UNTIL(&s, s.ups == 2);
    /* The new connection begins with the new command, and not with the rest of the pipeline that
     * was cut off. */
    SEND(&s, "ECHO", "whole");
    UNTIL(&s, s.n == 1);
    assert_string_equal(s.text[0], "whole");
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void logs_in_before_anything_else(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    tell_server(r, "ACL SETUSER bob on >p@ss/word ~* &* +@all");
    tell_server(r, "CONFIG SET requirepass p@ss/word");
    struct seen s;
    open_to(&s, r, ":p@ss/word@", "?db=3", 0);
    UNTIL(&s, s.ups == 1);
    SEND(&s, "SET", "here", "1");
    UNTIL(&s, s.n == 1);
    assert_string_equal(s.text[0], "OK");
    close_wire(&s);
    open_to(&s, r, ":p@ss/word@", "?db=3", 0);
    UNTIL(&s, s.ups == 1);
    SEND(&s, "MOVE", "here", "0", "", "EXISTS", "here");
    UNTIL(&s, s.n == 2);
    assert_int_equal(s.errors, 0);
    close_wire(&s);
    open_to(&s, r, "bob:p@ss/word@", "", 0);
    UNTIL(&s, s.ups == 1);
    /* The key `here` was moved from database 3 to database 0, which this connection uses. */
    SEND(&s, "GET", "here", "", "ACL", "WHOAMI");
    UNTIL(&s, s.n == 2);
    assert_string_equal(s.text[0], "1");
    assert_string_equal(s.text[1], "bob");
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void a_wrong_password_is_never_up(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    tell_server(r, "CONFIG SET requirepass right");
    struct seen s;
    open_to(&s, r, ":wrong@", "", 0);
    turn_for(&s, 300);
    assert_int_equal(s.ups, 0);
    assert_int_equal(s.downs, 0);
    close_wire(&s);
    /* Without a login the wire comes up, but the server refuses the first command. */
    open_to(&s, r, "", "", 0);
    UNTIL(&s, s.ups == 1);
    SEND(&s, "PING");
    UNTIL(&s, s.errors == 1);
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void connecting_anew_forgets_the_old(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", 0);
    UNTIL(&s, s.ups == 1);
    for (int i = 2; i < 6; i++) {
        SEND(&s, "ECHO", "old", "", "ECHO", "older");
        lw_wire_connect(s.wire);
        lw_wire_connect(s.wire);
        assert_false(lw_wire_is_up(s.wire));
        UNTIL(&s, s.ups == i);
    }
    SEND(&s, "ECHO", "new");
    UNTIL(&s, s.n == 1);
    assert_string_equal(s.text[0], "new");
    assert_int_equal(s.downs, 0);
    close_wire(&s);
    lw_test_redis_stop(r);
}

static void what_is_not_redis_is_dropped(void **state) {
    (void)state;
    struct lw_test_redis *r = start();
    struct seen s;
    open_to(&s, r, "", "", 0);
    UNTIL(&s, s.ups == 1);
    /* After SUBSCRIBE the server sends a message although no request is in flight, which the wire
     * must treat as an error. */
    SEND(&s, "SUBSCRIBE", "c");
    UNTIL(&s, s.n == 1);
    tell_server(r, "PUBLISH c hello");
    UNTIL(&s, s.downs == 1);
    assert_string_equal(s.why, "an answer to nothing");
    close_wire(&s);
    open_wire(&s, "unix:///nowhere/at/all", 0);
    turn_for(&s, 200);
    assert_int_equal(s.ups + s.downs, 0);
    close_wire(&s);
    lw_test_redis_stop(r);
}

int main(void) {
    lw_log_setup(LW_LOG_OFF, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_pipelines_come_back_in_order),
        cmocka_unit_test(a_server_killed_in_the_middle),
        cmocka_unit_test(a_frozen_server_is_given_up),
        cmocka_unit_test(pipelines_follow_each_other),
        cmocka_unit_test(a_frozen_server_in_the_middle_of_a_long_pipeline),
        cmocka_unit_test(logs_in_before_anything_else),
        cmocka_unit_test(a_wrong_password_is_never_up),
        cmocka_unit_test(connecting_anew_forgets_the_old),
        cmocka_unit_test(what_is_not_redis_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
