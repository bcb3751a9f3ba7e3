/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that Latchwork writes and reads the lines in the test vectors of the exec protocol, which
 * are in tests/vectors/exec. */
#include "tests/support/handler_fixture.h"

#include "handlers/exec/line.h"

#define VECTORS "tests/vectors/exec/"
enum { MOST = 8, ROOM = 1 << 16 };

typedef void judge_fn(const json_t *vector, struct lw_bytes line);

static void each_vector(const char *path, judge_fn *judge, size_t least) {
    FILE *f = fopen(path, "r");
    static char text[ROOM];
    size_t n = 0;
    if (!f) fail_msg("%s is missing", path);
    while (fgets(text, sizeof text, f)) {
        json_t *v = json_loads(text, JSON_ALLOW_NUL, NULL), *line = json_object_get(v, "line");
        if (!json_is_string(line)) fail_msg("%s:%zu is no vector", path, n + 1);
        judge(v, lw_bytes(json_string_value(line), json_string_length(line)));
        json_decref(v);
        n++;
    }
    fclose(f);
    assert_true(n >= least);
}

/* --- requests --------------------------------------------------------------------------------- */

/* Returns the bytes of a JSON string, or the decoded bytes of an object {"base64":"…"}, which are
 * stored in `room`. For JSON null, the pointer to the bytes is NULL. */
static struct lw_bytes bytes_of(const json_t *v, char room[256]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (json_is_null(v)) return (struct lw_bytes){0};
    if (json_is_string(v)) return lw_bytes(json_string_value(v), json_string_length(v));
    unsigned bits = 0, have = 0;
    size_t n = 0;
    for (const char *p = json_string_value(json_object_get(v, "base64")); *p && *p != '='; p++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *p) - digits);
        have += 6;
        if (have >= 8) room[n++] = (char)(bits >> (have -= 8));
    }
    return lw_bytes(room, n);
}

struct message {
    struct lw_job job;
    struct lw_header headers[MOST];
    char room[2 + 2 * MOST][256];
};

static void fill(struct message *m, const json_t *v) {
    struct lw_job *j = &m->job;
    const json_t *pair, *headers = json_object_get(v, "headers"),
                        *at = json_object_get(v, "timestamp_ms");
    size_t i;
    memset(m, 0, sizeof *m);
    snprintf(j->identity, sizeof j->identity, "%s", json_string_value(json_object_get(v, "id")));
    j->topic = json_string_value(json_object_get(v, "topic"));
    j->partition = (int32_t)json_integer_value(json_object_get(v, "partition"));
    j->offset = json_integer_value(json_object_get(v, "offset"));
    j->timestamp_ms = json_is_null(at) ? -1 : json_integer_value(at);
    j->fence = (uint64_t)json_integer_value(json_object_get(v, "fence"));
    j->attempt = (int)json_integer_value(json_object_get(v, "attempt"));
    j->key = bytes_of(json_object_get(v, "key"), m->room[0]);
    j->payload = bytes_of(json_object_get(v, "payload"), m->room[1]);
    json_array_foreach(headers, i, pair) {
        m->headers[i].name = bytes_of(json_array_get(pair, 0), m->room[2 + 2 * i]);
        m->headers[i].value = bytes_of(json_array_get(pair, 1), m->room[3 + 2 * i]);
    }
    j->headers = m->headers;
    j->n_headers = json_array_size(headers);
}

static void judge_request(const json_t *vector, struct lw_bytes line) {
    static struct message m[MOST];
    struct lw_job *jobs[MOST];
    const json_t *one, *messages = json_object_get(vector, "messages");
    struct lw_buf b = {0};
    size_t i;
    json_array_foreach(messages, i, one) {
        fill(&m[i], one);
        jobs[i] = &m[i].job;
    }
    lw_exec_request(
        &b, jobs, json_array_size(messages),
        json_integer_value(json_object_get(json_array_get(messages, 0), "deadline_ms")));
    if (b.n != line.n + 1 || memcmp(b.p, line.p, line.n) != 0)
        fail_msg("%.*s is not %.*s", (int)b.n, b.p, (int)line.n, line.p);
    lw_buf_free(&b);
}

static void test_requests(void **state) {
    (void)state;
    each_vector(VECTORS "requests.jsonl", judge_request, 7);
}

/* --- answers ---------------------------------------------------------------------------------- */

static bool same(struct lw_bytes a, const json_t *v) {
    return json_is_string(v)
               ? a.p && lw_bytes_eq(a, lw_bytes(json_string_value(v), json_string_length(v)))
               : !a.p;
}

static void judge_answer(const json_t *vector, struct lw_bytes line) {
    struct lw_exec_said said = {0};
    struct lw_err err = {0};
    const char *error = json_string_value(json_object_get(vector, "error"));
    const json_t *one, *answers = json_object_get(vector, "answers");
    size_t i;
    int bad = lw_exec_read(&said, line, &err);
    if (bad != (error ? -1 : 0))
        fail_msg("%.*s: %s", (int)line.n, line.p, bad ? err.text : "is accepted");
    if (error) assert_contains(err.text, error);
    assert_int_equal(said.hello, json_integer_value(json_object_get(vector, "hello")));
    assert_int_equal(said.n, json_array_size(answers));
    json_array_foreach(answers, i, one) {
        const char *fault = json_string_value(json_object_get(one, "error"));
        assert_true(same(said.answers[i].id, json_object_get(one, "id")));
        assert_int_equal(said.answers[i].malformed, fault != NULL);
        if (fault)
            assert_contains(said.answers[i].reason.p, fault);
        else
            assert_true(same(said.answers[i].reason, json_object_get(one, "reason")));
        assert_int_equal(said.answers[i].attempt,
                         json_integer_value(json_object_get(one, "attempt")));
        assert_int_equal(said.answers[i].retry.wait_ms,
                         json_integer_value(json_object_get(one, "after_ms")));
        assert_int_equal(said.answers[i].retry.uncounted,
                         json_is_false(json_object_get(one, "counts")));
        assert_string_equal(lw_outcome_word(said.answers[i].outcome),
                            json_string_value(json_object_get(one, "outcome")));
    }
    lw_exec_said_free(&said);
}

static void test_answers(void **state) {
    (void)state;
    each_vector(VECTORS "answers.jsonl", judge_answer, 25);
}

/* A prefix of an answer must give either the id of the answer's message or no id. */
static void test_begun(void **state) {
    (void)state;
    static const char line[] = "{\"id\": \"t/0/1\", \"outcome\": \"do";
    for (size_t n = 0; n < sizeof line; n++) {
        struct lw_bytes id = lw_exec_begun(lw_bytes(line, n));
        assert_int_equal(id.p != NULL, n >= strlen("{\"id\": \"t/0/1\""));
        if (id.p) assert_true(lw_bytes_eq(id, lw_bytes_of("t/0/1")));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests),
                                       cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_begun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
