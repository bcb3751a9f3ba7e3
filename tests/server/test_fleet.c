/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the heartbeats by which supervisors know of each other, on a private redis-server: what is
 * written, what is read of others, and that nothing that another writer puts there is believed,
 * grows without bound, or crashes a reader. */
#include "base/clock.h"
#include "monitor/fleet.h"
#include "ops/fleet.h"
#include "ops/script.h"

#include "tests/support/redis_fixture.h"

#include <signal.h>

#define FLEET "lw:{orders.0}:fleet"

static char *urls[] = {url};
static struct lw_config config = {.name = (char *)"orders",
                                  .redis = {.urls = urls, .n_urls = 1, .shards = 1}};
static struct ops_fleet_reader reader = {.id = "", .host = "here"};

static int clean(void **state) {
    reader = (struct ops_fleet_reader){.id = "", .host = "here"};
    return flush(state);
}

/* Calls fleet.lua. */
static redisReply *call(const char *id, struct lw_bytes text) {
    struct lw_commands c = {0};
    lw_cmd(&c, "EVAL");
    lw_arg_text(&c, lw_op_fleet.text), lw_arg_i64(&c, 1), lw_arg_text(&c, FLEET);
    ops_fleet_args(&c, id, text, OPS_FLEET_BEATS, lw_bytes("", 0));
    redisReply *r = redisCommandArgv(admin, c.cmd[0].argc, c.argv, c.len);
    lw_commands_free(&c);
    assert_non_null(r);
    return r;
}

static void beat(const char *id, const char *text) { freeReplyObject(call(id, lw_bytes_of(text))); }

/* Reads the fleet as `reader` does. */
static json_t *look(void) {
    struct lw_err err = {0};
    redisReply *r = call("", lw_bytes("", 0));
    if (ops_fleet_now(r, &err) < 0) fail_msg("%s", err.text);
    json_t *fleet = ops_fleet_json(r, &reader);
    assert_non_null(fleet);
    freeReplyObject(r);
    return fleet;
}

static json_int_t count(const json_t *fleet, const char *name) {
    const json_t *v = json_object_get(json_object_get(fleet, "sums"), name);
    if (!json_is_number(v)) fail_msg("no sum %s", name);
    return (json_int_t)json_number_value(v);
}

static const json_t *row(const json_t *fleet, size_t i) {
    return json_array_get(json_object_get(fleet, "supervisors"), i);
}

static const char *text(const json_t *object, const char *name) {
    const json_t *v = json_object_get(object, name);
    if (!json_is_string(v) && !json_is_null(v)) fail_msg("%s is no text", name);
    return json_is_string(v) ? json_string_value(v) : NULL;
}

#define FIGURES                                                                             \
    "\"started_ms\":5,\"workers\":4,\"ready\":3,\"partitions\":6,\"lag\":10,\"waiting\":2," \
    "\"in_handler\":1"

/* --- what is written and read ----------------------------------------------------------------- */

static void test_sums_are_of_those_that_are_up(void **state) {
    (void)state;
    beat("a-1-x", "{\"host\":\"a\",\"pid\":1," FIGURES ",\"per_second\":1.5}");
    beat("b-2-x", "{\"host\":\"b\",\"pid\":2," FIGURES ",\"per_second\":2.5}");
    beat("c-3-x", "{\"host\":\"c\",\"pid\":3," FIGURES ",\"per_second\":9}");
    redis_says("ZINCRBY " FLEET " -%d b-2-x", OPS_FLEET_SILENT_MS + 1000);
    reader.id = "c-3-x";
    json_t *f = look();
    assert_int_equal(count(f, "supervisors"), 3);
    assert_int_equal(count(f, "up"), 2);
    assert_int_equal(count(f, "silent"), 1);
    assert_int_equal(count(f, "ready"), 6);
    assert_int_equal(count(f, "lag"), 20);
    assert_int_equal(count(f, "per_second"), 10);
    assert_true(json_is_true(json_object_get(f, "complete")));
    assert_string_equal(text(row(f, 1), "state"), "silent");
    assert_true(json_integer_value(json_object_get(row(f, 1), "heard_ms_ago")) >
                OPS_FLEET_SILENT_MS);
    assert_false(json_is_true(json_object_get(row(f, 0), "this")));
    assert_true(json_is_true(json_object_get(row(f, 2), "this")));
    json_decref(f);
}

/* Whoever could not reach Redis for a while must not call others silent, because they may have had
 * the same trouble. */
static void test_an_outage_makes_nobody_silent(void **state) {
    (void)state;
    beat("a-1-x", "{\"host\":\"a\"," FIGURES ",\"per_second\":0}");
    redis_says("ZINCRBY " FLEET " -%d a-1-x", OPS_FLEET_SILENT_MS + 1000);
    redisReply *r = call("", lw_bytes("", 0));
    reader.steady_ms = ops_fleet_now(r, NULL);
    freeReplyObject(r);
    json_t *f = look();
    assert_string_equal(text(row(f, 0), "state"), "unknown");
    assert_non_null(strstr(text(row(f, 0), "problem"), "not reached"));
    json_decref(f);
    reader.steady_ms -= OPS_FLEET_SILENT_MS + 1000;
    f = look();
    assert_string_equal(text(row(f, 0), "state"), "silent");
    json_decref(f);
}

static void test_what_is_missing_makes_sums_incomplete(void **state) {
    (void)state;
    beat("a-1-x", "{\"host\":\"a\",\"workers\":2,\"of a later version\":[1]}");
    json_t *f = look();
    assert_string_equal(text(row(f, 0), "state"), "up");
    assert_true(json_is_null(json_object_get(row(f, 0), "lag")));
    assert_int_equal(count(f, "workers"), 2);
    assert_true(json_is_false(json_object_get(f, "complete")));
    json_decref(f);
}

static void test_links(void **state) {
    static const struct {
        const char *host, *listen, *link;
    } cases[] = {
        {"a", "0.0.0.0:9464", "http://a:9464/"},
        {"a.example", "[::]:9464", "http://a.example:9464/"},
        {"a", "10.0.0.7:80", "http://10.0.0.7:80/"},
        {"a", "[fd00::7]:80", "http://[fd00::7]:80/"},
        {"here", "127.0.0.1:9464", "http://127.0.0.1:9464/"},
        {"here", "[::1]:9464", "http://[::1]:9464/"},
        {"a", "127.0.0.1:9464", NULL},
        {"a", "javascript:1", NULL},
        {"a", "evil.example:80", NULL},
        {"a", "10.0.0.7:80/@x", NULL},
        {"a", "10.0.0.7:0", NULL},
        {"a", "10.0.0.7:65536", NULL},
        {"a", "10.0.0.7:-1", NULL},
        {"a", "10.0.0.7:", NULL},
        {"a", "10.0.0.7", NULL},
        {"a", "", NULL},
        {"a/../b", "0.0.0.0:80", NULL},
        {"user@a", "0.0.0.0:80", NULL},
        {"", "0.0.0.0:80", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[256];
        snprintf(said, sizeof said, "{\"host\":\"%s\",\"listen\":\"%s\"}", cases[i].host,
                 cases[i].listen);
        beat("a-1-x", said);
        json_t *f = look();
        const char *link = text(row(f, 0), "link");
        if (cases[i].link)
            assert_string_equal(link ? link : "none", cases[i].link);
        else if (link)
            fail_msg("%s makes the link %s", said, link);
        json_decref(f);
    }
}

/* --- bounds ----------------------------------------------------------------------------------- */

static void test_many_are_cut_and_counted(void **state) {
    (void)state;
    for (int i = 0; i < OPS_FLEET_MAX + 36; i++) {
        char id[32];
        snprintf(id, sizeof id, "a-%d-x", i);
        beat(id, "{\"host\":\"a\"," FIGURES ",\"per_second\":0}");
    }
    json_t *f = look();
    assert_int_equal(json_array_size(json_object_get(f, "supervisors")), OPS_FLEET_MAX);
    assert_int_equal(count(f, "supervisors"), OPS_FLEET_MAX + 36);
    assert_int_equal(json_integer_value(json_object_get(f, "more")), 36);
    assert_true(json_is_false(json_object_get(f, "complete")));
    json_decref(f);
}

static void test_old_entries_go(void **state) {
    (void)state;
    beat("a-1-x", "{\"host\":\"a\"}");
    beat("b-2-x", "{\"host\":\"b\"}");
    redis_says("ZINCRBY " FLEET " -%d a-1-x", OPS_FLEET_FORGET_MS + 1000);
    assert_in_range(redis_number("PTTL " FLEET), 1, OPS_FLEET_FORGET_MS);
    assert_in_range(redis_number("PTTL " FLEET ":a-1-x"), 1, OPS_FLEET_FORGET_MS);
    beat("b-2-x", "{\"host\":\"b\"}");
    assert_int_equal(redis_number("ZCARD " FLEET), 1);
    beat("b-2-x", ""); /* it leaves */
    assert_int_equal(redis_number("EXISTS " FLEET " " FLEET ":b-2-x"), 0);
}

/* The clock of Redis may be set back: then entries from before look as if they were of the future.
 * None of them counts as up, and none keeps the place of a living supervisor for as long as the
 * clock was ahead. */
static void test_entries_of_a_clock_set_back(void **state) {
    (void)state;
    for (int i = 0; i <= OPS_FLEET_MAX; i++) {
        char id[32];
        snprintf(id, sizeof id, "gone-%d-x", i);
        beat(id, "{\"host\":\"gone\"," FIGURES ",\"per_second\":1}");
        redis_says("ZINCRBY " FLEET " %d %s", 2 * OPS_FLEET_FORGET_MS, id);
    }
    beat("gone-x", "{\"host\":\"gone\"," FIGURES ",\"per_second\":1}");
    redis_says("ZINCRBY " FLEET " %d gone-x", OPS_FLEET_FORGET_MS / 2);
    beat("a-1-x", "{\"host\":\"a\"," FIGURES ",\"per_second\":1}");
    json_t *f = look();
    assert_int_equal(count(f, "supervisors"), 2);
    assert_int_equal(count(f, "up"), 1);
    assert_int_equal(count(f, "workers"), 4);
    assert_string_equal(text(row(f, 1), "state"), "unknown");
    assert_non_null(strstr(text(row(f, 1), "problem"), "s ahead of the clock of Redis"));
    json_decref(f);
}

/* The fleet is most needed when Redis has no memory left. The script may write then, because it
 * deletes first. */
static void test_heartbeats_at_maxmemory(void **state) {
    (void)state;
    redis_says("CONFIG SET maxmemory 1");
    redisReply *r = call("a-1-x", lw_bytes_of("{\"host\":\"a\"," FIGURES "}"));
    redis_says("CONFIG SET maxmemory 0");
    struct lw_err err = {0};
    if (ops_fleet_now(r, &err) < 0) fail_msg("%s", err.text);
    freeReplyObject(r);
    assert_int_equal(redis_number("ZCARD " FLEET), 1);
}

/* --- what others wrote ------------------------------------------------------------------------ */

static void plant(const char *id, size_t n_id, const char *said, size_t n_said) {
    redisReply *r = call("", lw_bytes("", 0));
    int64_t now_ms = ops_fleet_now(r, NULL);
    freeReplyObject(r);
    redis_says("ZADD " FLEET " %lld %b", (long long)now_ms, id, n_id);
    redis_says("SET " FLEET ":%b %b", id, n_id, said, n_said);
}

static void is_unknown(const char *said, size_t n) {
    lw_test_redis_flush(server);
    plant("a-1-x", 5, said, n);
    json_t *f = look();
    assert_string_equal(text(row(f, 0), "state"), "unknown");
    assert_non_null(strstr(text(row(f, 0), "problem"), "malformed heartbeat"));
    assert_null(text(row(f, 0), "host"));
    assert_null(text(row(f, 0), "link"));
    assert_int_equal(count(f, "workers"), 0);
    assert_true(json_is_false(json_object_get(f, "complete")));
    json_decref(f);
}

static void test_malformed_texts_are_unknown(void **state) {
    static const char *const texts[] = {
        "",
        "no JSON",
        "[]",
        "7",
        "{\"host\":\"a\"",
        "{\"host\":\"a\"} {}",
        "{\"host\":7}",
        "{\"host\":\"a\",\"host\":\"b\"}",
        "{\"host\":\"a\\u0000b\"}",
        "{\"host\":\"\xff\"}",
        "{\"host\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
        "{\"host\":\"a\",\"workers\":-1}",
        "{\"host\":\"a\",\"workers\":\"4\"}",
        "{\"host\":\"a\",\"workers\":1.5}",
        "{\"host\":\"a\",\"lag\":9223372036854775807}",
        "{\"host\":\"a\",\"lag\":92233720368547758070}",
        "{\"host\":\"a\",\"per_second\":-1}",
        "{\"host\":\"a\",\"per_second\":1e300}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        is_unknown(texts[i], strlen(texts[i]));
    size_t n = 1 << 20;
    char *large = lw_alloc(n + 1);
    memset(large, 'x', n);
    is_unknown(large, n);
    memset(large, '[', n);
    is_unknown(large, OPS_FLEET_BYTES);
    free(large);
}

static void test_odd_ids_and_times(void **state) {
    static const char *const times[] = {"inf", "-inf", "1e300", "-1", "0"};
    size_t n = 1 << 20;
    char *large = lw_alloc(n + 1);
    (void)state;
    memset(large, 'x', n);
    plant(large, n, "{\"host\":\"a\"}", 12);
    plant("\xff\x00\n", 3, "{\"host\":\"a\"}", 12);
    plant("", 0, "{\"host\":\"a\"}", 12);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        redis_says("ZADD " FLEET " %s t%d", times[i], (int)i);
    redis_says("LPUSH " FLEET ":t0 {}");
    json_t *f = look();
    assert_int_equal(count(f, "supervisors"), 8);
    assert_int_equal(count(f, "unknown"), 6); /* those with odd times, and that with a long id */
    for (size_t i = 0; i < 8; i++) {
        const json_t *id = json_object_get(row(f, i), "id");
        assert_in_range(json_string_length(id), 0, OPS_FLEET_ID);
    }
    json_decref(f);
    free(large);
}

/* Any bytes, mostly a heartbeat with some of them changed. */
static void test_random_texts(void **state) {
    static const char good[] = "{\"host\":\"a\",\"pid\":1,\"listen\":\"0.0.0.0:80\"," FIGURES "}";
    unsigned seed = 17;
    (void)state;
    for (int round = 0; round < 40; round++) {
        lw_test_redis_flush(server);
        for (int i = 0; i < 32; i++) {
            char id[8], said[sizeof good];
            size_t n = sizeof good - 1 - (size_t)rand_r(&seed) % 4;
            memcpy(said, good, sizeof good);
            for (int k = 0; k < 1 + i / 8; k++)
                said[(size_t)rand_r(&seed) % n] = (char)rand_r(&seed);
            plant(id, (size_t)snprintf(id, sizeof id, "%d", i), said, n);
        }
        json_t *f = look();
        assert_int_equal(count(f, "up") + count(f, "unknown"), 32);
        char *dump = json_dumps(f, 0); /* all of it is valid UTF-8 */
        assert_non_null(dump);
        free(dump);
        json_decref(f);
    }
}

static void test_malformed_replies(void **state) {
    redisReply time = {.type = REDIS_REPLY_STRING, .str = (char *)"1", .len = 1},
               n = {.type = REDIS_REPLY_INTEGER, .integer = 1}, *two[] = {&time, &n, &n, &time};
    redisReply r = {.type = REDIS_REPLY_ARRAY, .elements = 0, .element = two};
    (void)state;
    for (r.elements = 0; r.elements <= 4; r.elements++) {
        struct lw_err err = {0};
        if (r.elements == 2) continue;
        assert_int_equal(ops_fleet_now(&r, &err), -1);
        assert_non_null(strstr(err.text, "malformed reply from fleet.lua"));
    }
    r.elements = 2;
    assert_int_equal(ops_fleet_now(&r, NULL), 1);
    two[1] = &time;
    assert_int_equal(ops_fleet_now(&r, NULL), -1);
}

/* --- a supervisor's own part ------------------------------------------------------------------ */

static json_t *stats(json_int_t done) {
    return json_pack("{s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:{s:I}}", "started_ms", (json_int_t)5,
                     "workers", 2, "ready", 1, "partitions", 3, "lag", 0, "waiting", 0,
                     "in_handler", 0, "counters", "done", done);
}

static json_t *beat_and_look(struct lw_fleet *f, json_int_t done) {
    json_t *s = stats(done);
    lw_fleet_beat(f, s);
    json_decref(s);
    return lw_fleet_json(f);
}

static bool known(const json_t *fleet) { return json_is_true(json_object_get(fleet, "known")); }

static void test_a_supervisor(void **state) {
    struct lw_err err = {0};
    struct lw_board *board = lw_board_open(1, &err);
    (void)state;
    assert_non_null(board);
    config.http.host = (char *)"127.0.0.1";
    struct lw_fleet *f = lw_fleet_open(&config, board);
    json_t *j = lw_fleet_json(f);
    assert_false(known(j));
    assert_string_equal(text(j, "why"), "not asked yet");
    json_decref(j);

    lw_fleet_serves(f, 9464);
    json_decref(beat_and_look(f, 0));
    lw_sleep_ms(20); /* a rate needs some time */
    j = beat_and_look(f, 1000000);
    assert_true(known(j));
    assert_int_equal(count(j, "up"), 1);
    assert_true(json_is_true(json_object_get(row(j, 0), "this")));
    assert_string_equal(text(row(j, 0), "listen"), "127.0.0.1:9464");
    assert_string_equal(text(row(j, 0), "link"), "http://127.0.0.1:9464/");
    assert_string_equal(text(row(j, 0), "version"), LW_VERSION);
    assert_true(count(j, "per_second") > 0);
    json_decref(j);

    /* a name of the wrong type is told, and ends with it */
    redis_says("DEL " FLEET), redis_says("SET " FLEET " x");
    j = beat_and_look(f, 2000000);
    assert_false(known(j));
    assert_non_null(strstr(text(j, "why"), "WRONGTYPE"));
    assert_true(json_is_null(json_object_get(j, "supervisors")));
    assert_true(json_is_null(json_object_get(j, "sums")));
    assert_true(json_is_integer(json_object_get(j, "at_ms")));
    json_decref(j);
    redis_says("DEL " FLEET);
    j = beat_and_look(f, 2000000);
    assert_true(known(j));
    json_decref(j);

    /* a supervisor that stands still does not say that it is up */
    redis_says("DEL " FLEET);
    atomic_store(&board->ticked_ms, 1);
    j = beat_and_look(f, 2000000);
    assert_true(known(j));
    assert_int_equal(count(j, "supervisors"), 0);
    json_decref(j);
    atomic_store(&board->ticked_ms, 0);

    json_decref(beat_and_look(f, 2000000));
    assert_int_equal(redis_number("ZCARD " FLEET), 1);
    lw_fleet_leave(f);
    assert_int_equal(redis_number("EXISTS " FLEET), 0);
    lw_fleet_close(f);
    lw_board_close(board);
}

static void test_a_frozen_redis_is_unknown(void **state) {
    struct lw_err err = {0};
    struct lw_board *board = lw_board_open(1, &err);
    (void)state;
    struct lw_fleet *f = lw_fleet_open(&config, board);
    json_t *j = beat_and_look(f, 0);
    assert_true(known(j));
    json_decref(j);
    kill(lw_test_redis_pid(server), SIGSTOP);
    j = beat_and_look(f, 0);
    kill(lw_test_redis_pid(server), SIGCONT);
    assert_false(known(j));
    assert_non_null(strstr(text(j, "why"), "no answer in time"));
    json_decref(j);
    j = beat_and_look(f, 0);
    assert_true(known(j));
    json_decref(j);
    lw_fleet_close(f);
    lw_board_close(board);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sums_are_of_those_that_are_up, clean),
        cmocka_unit_test_setup(test_an_outage_makes_nobody_silent, clean),
        cmocka_unit_test_setup(test_what_is_missing_makes_sums_incomplete, clean),
        cmocka_unit_test_setup(test_links, clean),
        cmocka_unit_test_setup(test_many_are_cut_and_counted, clean),
        cmocka_unit_test_setup(test_old_entries_go, clean),
        cmocka_unit_test_setup(test_entries_of_a_clock_set_back, clean),
        cmocka_unit_test_setup(test_heartbeats_at_maxmemory, clean),
        cmocka_unit_test_setup(test_malformed_texts_are_unknown, clean),
        cmocka_unit_test_setup(test_odd_ids_and_times, clean),
        cmocka_unit_test_setup(test_random_texts, clean),
        cmocka_unit_test_setup(test_malformed_replies, clean),
        cmocka_unit_test_setup(test_a_supervisor, clean),
        cmocka_unit_test_setup(test_a_frozen_redis_is_unknown, clean),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
