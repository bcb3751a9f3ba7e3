/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parts of the http handler that need no server: events, signatures, responses, the
 * circuit breaker and the configuration. */
#include "tests/support/handler_fixture.h"

#include "handlers/http/answer.h"
#include "handlers/http/breaker.h"
#include "handlers/http/counts.h"
#include "handlers/http/event.h"
#include "handlers/http/sign.h"
#include "handlers/reason.h"
#include "handlers/trial.h"

enum { SECOND = 1000 };

/* --- headers and events ----------------------------------------------------------------------- */

/* Returns all headers as text, one per line. The caller frees the text. */
static char *lines(struct http_head *head) {
    struct lw_buf text = {0};
    for (const struct curl_slist *n = head_list(head); n; n = n->next)
        lw_buf_addf(&text, "%s\n", n->data);
    char *copy = lw_memdup(text.p ? text.p : "", text.n);
    lw_buf_free(&text);
    head_free(head);
    return copy;
}

static const struct event_passed every = {(const char *const[]){"*"}, 1};

static struct lw_header header(const char *name, const char *value) {
    return (struct lw_header){lw_bytes_of(name), value ? lw_bytes_of(value) : (struct lw_bytes){0}};
}

static void binary_event(void **state) {
    (void)state;
    struct fx_job j;
    struct http_head head = {0};
    event_head(&head, fx_job(&j, 42, "kunde \xc3\xa4 \"1\" 5%", "{}"), "application/json",
               1763671264567);
    char *text = lines(&head);
    assert_string_equal(text, "content-type: application/json\n"
                              "ce-specversion: 1.0\n"
                              "ce-id: t/0/42\n"
                              "ce-source: /t/0\n"
                              "ce-type: latchwork.message\n"
                              "ce-time: 2025-11-20T20:40:34.567Z\n"
                              "ce-partitionkey: kunde%20%C3%A4%20%221%22%205%25\n"
                              "latchwork-fence: 1042\n"
                              "latchwork-attempt: 1\n"
                              "latchwork-deadline-ms: 1763671264567\n");
    free(text);
}

static void binary_event_without_values(void **state) {
    (void)state;
    struct fx_job j;
    struct http_head head = {0};
    struct lw_job *job = fx_job(&j, 1, "\xff\x00k", NULL);
    job->key.n = 1;
    job->timestamp_ms = -1;
    event_head(&head, job, "application/json", 0);
    char *text = lines(&head);
    assert_contains(text, "content-type:\n");
    assert_contains(text, "latchwork-key-base64: /w==\n");
    assert_null(strstr(text, "ce-time"));
    assert_null(strstr(text, "partitionkey"));
    assert_null(strstr(text, "deadline"));
    free(text);
}

/* The headers of the record must be sent. A header must be left out if it has no value or a
 * malformed name, if it is too long, if it could split the request or break its framing, or if it
 * could be taken for one of Latchwork's own. */
static void record_headers(void **state) {
    (void)state;
    char long_value[9000], *line = (char *)"Authorization: Bearer ours";
    memset(long_value, 'x', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = '\0';
    const struct lw_header all[] = {
        header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        header("X-Empty", ""),
        header("x-null", NULL),
        header("x-split", "a\r\nce-id: 7"),
        header("bad name", "1"),
        header("", "1"),
        header("Content-Length", "7"),
        header("Transfer-Encoding", "chunked"),
        header("host", "elsewhere"),
        header("CE-Id", "forged"),
        header("latchwork-fence", "99"),
        header("webhook-signature", "v1,forged"),
        header("authorization", "Bearer theirs"),
        header("x-long", long_value),
        header("x-\xc3\xa4", "1"),
        header("x-utf8", "\xc3\xa4"),
    };
    struct fx_job j;
    struct http_head head = {0};
    struct lw_job *job = fx_job(&j, 1, "k", "{}");
    job->headers = all;
    job->n_headers = sizeof all / sizeof *all;
    event_head_record(&head, job, &(struct event_fixed){&line, 1}, &every);
    char *text = lines(&head);
    assert_string_equal(
        text,
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nX-Empty;\nx-utf8: "
        "\xc3\xa4\n");
    free(text);
}

/* Only headers that are named may be passed on, and never one that services trust. */
static void headers_that_pass(void **state) {
    (void)state;
    static const char *const trusted[] = {"Authorization",
                                          "cookie",
                                          "HOST",
                                          "Forwarded",
                                          "X-Forwarded-For",
                                          "X_Api_Key",
                                          "Latchwork_Fence",
                                          "proxy-authorization",
                                          "x-real-ip",
                                          "Via"};
    const struct lw_header all[] = {header("traceparent", "00-1"), header("Baggage", "a=b"),
                                    header("x-shop-tenant", "a"), header("X-Shop-Id", "7"),
                                    header("x-other", "1")};
    struct fx_job j;
    struct http_head head = {0};
    struct lw_job *job = fx_job(&j, 1, "k", "{}");
    job->headers = all;
    job->n_headers = sizeof all / sizeof *all;
    event_head_record(&head, job, &(struct event_fixed){0}, &event_passed_usual);
    char *text = lines(&head);
    assert_string_equal(text, "traceparent: 00-1\nBaggage: a=b\n");
    free(text);
    const struct event_passed own = {(const char *const[]){"x-shop-*", "X-OTHER"}, 2};
    event_head_record(&head, job, &(struct event_fixed){0}, &own);
    text = lines(&head);
    assert_string_equal(text, "x-shop-tenant: a\nX-Shop-Id: 7\nx-other: 1\n");
    free(text);
    for (size_t i = 0; i < sizeof trusted / sizeof *trusted; i++) {
        const struct lw_header one = header(trusted[i], "1");
        job->headers = &one;
        job->n_headers = 1;
        event_head_record(&head, job, &(struct event_fixed){0}, &every);
        if (head.n) fail_msg("%s", trusted[i]);
    }
    head_free(&head);
}

static void record_headers_are_bounded(void **state) {
    (void)state;
    static char value[8000];
    struct lw_header all[10];
    memset(value, 'x', sizeof value - 1);
    for (size_t i = 0; i < 10; i++) all[i] = header("x-large", value);
    struct fx_job j;
    struct http_head head = {0};
    struct lw_job *job = fx_job(&j, 1, "k", "{}");
    job->headers = all;
    job->n_headers = 10;
    event_head_record(&head, job, &(struct event_fixed){0}, &every);
    assert_int_equal(head.n, 4);
    assert_true(head.text.n <= HEAD_MAX);
    head_free(&head);
}

/* Returns the CloudEvents event of a message as a parsed document. */
static json_t *event(struct lw_job *job, bool all_headers) {
    struct lw_buf text = {0};
    json_error_t bad;
    event_json(&text, job, "application/json", all_headers ? &every : NULL);
    json_t *v = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &bad);
    if (!v) fail_msg("%s in %.*s", bad.text, (int)text.n, text.p);
    lw_buf_free(&text);
    return v;
}

static const char *text_of(const json_t *v, const char *name) {
    const char *s = json_string_value(json_object_get(v, name));
    return s ? s : "(none)";
}

static void structured_event(void **state) {
    (void)state;
    struct fx_job j;
    json_t *v = event(fx_job(&j, 7, "c-17", " {\"a\": [1, \"x\"]} "), false);
    assert_string_equal(text_of(v, "specversion"), "1.0");
    assert_string_equal(text_of(v, "id"), "t/0/7");
    assert_string_equal(text_of(v, "source"), "/t/0");
    assert_string_equal(text_of(v, "type"), "latchwork.message");
    assert_string_equal(text_of(v, "partitionkey"), "c-17");
    assert_string_equal(text_of(v, "latchworkfence"), "1007");
    assert_int_equal(json_integer_value(json_object_get(v, "latchworkattempt")), 1);
    assert_string_equal(text_of(v, "datacontenttype"), "application/json");
    assert_int_equal(json_array_size(json_object_get(json_object_get(v, "data"), "a")), 2);
    json_decref(v);
}

static void structured_data(void **state) {
    (void)state;
    struct fx_job j;
    struct lw_header type = header("Content-Type", "text/plain; charset=utf-8");
    json_t *v = event(fx_job(&j, 1, "k", "{not JSON"), false);
    assert_string_equal(text_of(v, "data_base64"), "e25vdCBKU09O");
    assert_string_equal(text_of(v, "datacontenttype"), "application/octet-stream");
    json_decref(v);
    struct lw_job *job = fx_job(&j, 1, "k", "a \"b\"");
    job->headers = &type;
    job->n_headers = 1;
    v = event(job, false);
    assert_string_equal(text_of(v, "data"), "a \"b\"");
    assert_string_equal(text_of(v, "datacontenttype"), "text/plain; charset=utf-8");
    json_decref(v);
    v = event(fx_job(&j, 1, "k", NULL), false);
    assert_null(json_object_get(v, "data"));
    assert_null(json_object_get(v, "datacontenttype"));
    json_decref(v);
}

static void attributes_in_a_batch(void **state) {
    (void)state;
    const struct lw_header all[] = {header("traceparent", "00-1"), header("tenant", "a"),
                                    header("tenant", "b"),         header("X-Upper", "1"),
                                    header("id", "forged"),        header("latchworkfence", "9"),
                                    header("data", "1"),           header("bin", "\xff")};
    struct fx_job j;
    struct lw_job *job = fx_job(&j, 1, "k", "1");
    job->headers = all;
    job->n_headers = sizeof all / sizeof *all;
    json_t *v = event(job, true);
    assert_string_equal(text_of(v, "traceparent"), "00-1");
    assert_string_equal(text_of(v, "tenant"), "b");
    assert_string_equal(text_of(v, "id"), "t/0/1");
    assert_string_equal(text_of(v, "latchworkfence"), "1001");
    assert_int_equal(json_integer_value(json_object_get(v, "data")), 1);
    assert_null(json_object_get(v, "bin"));
    json_decref(v);
}

/* --- signatures ------------------------------------------------------------------------------- */

/* Checks the example signature that the specification "Standard Webhooks" and its libraries
 * give. */
static void signature(void **state) {
    (void)state;
    struct signer s = {0};
    struct lw_buf out = {0};
    struct lw_err err = {0};
    assert_true(sign_key_read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &s.keys[0]));
    assert_true(sign_key_read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &s.keys[1]));
    assert_int_equal(s.keys[0].n, 24);
    s.n = 1;
    assert_int_equal(signer_open(&s, &err), 0);
    signer_add(&s, &out, lw_bytes_of("msg_p5jXN8AQM9LWM0D4loKWxJek"), 1614265330,
               lw_bytes_of("{\"test\": 2432232314}"));
    lw_buf_add(&out, "", 1);
    assert_string_equal(out.p, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    out.n = 0;
    s.n = 2;
    signer_add(&s, &out, lw_bytes_of("msg_p5jXN8AQM9LWM0D4loKWxJek"), 1614265330,
               lw_bytes_of("{\"test\": 2432232314}"));
    assert_int_equal(out.n, 2 * strlen("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=") + 1);
    lw_buf_free(&out);
    signer_close(&s);
}

static void keys(void **state) {
    (void)state;
    struct sign_key k;
    static const char *const bad[] = {"",
                                      "whsec_",
                                      "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                                      "whsec_c2hvcnQ=",
                                      "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
                                      "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa w",
                                      "whsec_====MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(sign_key_read(bad[i], &k));
    char longest[6 + 89] = "whsec_", too_long[6 + 93] = "whsec_";
    memset(longest + 6, 'A', 88), memcpy(longest + 92, "==", 2); /* a key of 64 bytes in base64 */
    assert_true(sign_key_read(longest, &k));
    assert_int_equal(k.n, 64);
    memset(too_long + 6, 'A', 92);
    assert_false(sign_key_read(too_long, &k));
}

/* --- answers ---------------------------------------------------------------------------------- */

static struct http_verdict read_body(const struct http_answer *a, struct http_verdict v) {
    struct lw_err err = {0};
    json_t *document;
    if (answer_document(a, &document, &err)) {
        v.outcome = LW_RETRY;
        lw_reason_copy(v.reason, err.text);
    } else if (document) {
        answer_by_document(document, 0, 1, "t/0/1", &v);
    }
    json_decref(document);
    return v;
}

static struct http_verdict judge(int status, const char *body, const char *retry_after) {
    struct http_verdict v;
    struct http_answer a = {
        .status = status, .body = lw_bytes_of(body), .retry_after = retry_after};
    answer_by_status(&a, 1700000000, &v);
    return read_body(&a, v);
}

static void statuses(void **state) {
    (void)state;
    static const struct {
        int status;
        enum lw_outcome outcome;
    } table[] = {{200, LW_DONE},  {201, LW_DONE},  {202, LW_DONE},  {204, LW_DONE},
                 {299, LW_DONE},  {301, LW_RETRY}, {307, LW_RETRY}, {400, LW_DEAD},
                 {401, LW_DEAD},  {403, LW_DEAD},  {404, LW_DEAD},  {408, LW_RETRY},
                 {409, LW_BACK},  {410, LW_DEAD},  {412, LW_BACK},  {413, LW_DEAD},
                 {422, LW_DEAD},  {425, LW_RETRY}, {429, LW_RETRY}, {499, LW_DEAD},
                 {500, LW_RETRY}, {502, LW_RETRY}, {503, LW_RETRY}, {504, LW_RETRY},
                 {599, LW_RETRY}, {999, LW_RETRY}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct http_verdict v = judge(table[i].status, "", "");
        if (v.outcome != table[i].outcome) fail_msg("%d: %c", table[i].status, v.outcome);
        assert_int_equal(v.retry.wait_ms, 0);
    }
}

static void reasons(void **state) {
    (void)state;
    assert_string_equal(judge(503, "", "").reason, "the service answered 503");
    assert_string_equal(judge(422, "no such\norder", "").reason,
                        "the service answered 422: no such order");
    assert_string_equal(judge(302, "", "").reason,
                        "the service answered 302 (redirects are not followed)");
    assert_string_equal(judge(400, "\xff\xfe", "").reason, "the service answered 400");
    assert_string_equal(judge(409, "stale", "").reason, "");
    char body[400];
    memset(body, 'x', 199), snprintf(body + 199, sizeof body - 199, "\xc3\xa4 and more");
    struct http_verdict v = judge(500, body, "");
    assert_int_equal(strlen(v.reason), strlen("the service answered 500: ") + 199);
}

static void retry_after(void **state) {
    (void)state;
    assert_int_equal(judge(429, "", "7").retry.wait_ms, 7 * SECOND);
    assert_int_equal(judge(503, "", " 3 ").retry.wait_ms, 3 * SECOND);
    assert_int_equal(judge(409, "", "2").retry.wait_ms, 2 * SECOND);
    assert_int_equal(judge(503, "", "0").retry.wait_ms, 0);
    assert_int_equal(judge(503, "", "Tue, 14 Nov 2023 22:13:30 GMT").retry.wait_ms, 10 * SECOND);
    assert_int_equal(judge(503, "", "Tuesday, 14-Nov-23 22:13:30 GMT").retry.wait_ms, 10 * SECOND);
    assert_int_equal(judge(503, "", "Tue, 14 Nov 2023 22:13:10 GMT").retry.wait_ms, 0);
    assert_int_equal(judge(503, "", "soon").retry.wait_ms, 0);
    assert_int_equal(judge(503, "", "-5").retry.wait_ms, 0);
    assert_int_equal(judge(503, "", "99999999999999999999999999").retry.wait_ms,
                     LW_RETRY_AFTER_MAX_MS);
    assert_int_equal(judge(200, "{\"outcome\":\"retry\"}", "7").retry.wait_ms, 7 * SECOND);
}

/* A body says when its message comes back, and whether an attempt counts. */
static void comes_back(void **state) {
    (void)state;
    static const struct {
        const char *members;
        int64_t wait_ms;
        bool uncounted;
    } good[] = {{"", 4 * SECOND, false},
                {",\"after_ms\":60000", 60 * SECOND, false},
                {",\"after_ms\":2.5e3,\"counts\":false", 2500, true},
                {",\"after_ms\":0,\"counts\":true", 1, false},
                {",\"after_ms\":null,\"counts\":null", 4 * SECOND, false},
                {",\"after_ms\":3600001", LW_RETRY_AFTER_MAX_MS, false},
                {",\"after_ms\":9007199254740992", LW_RETRY_AFTER_MAX_MS, false},
                {",\"counts\":false", 4 * SECOND, true}};
    static const char *const bad[] = {"\"after_ms\":-1",
                                      "\"after_ms\":\"60000\"",
                                      "\"after_ms\":1e300",
                                      "\"after_ms\":true",
                                      "\"after_ms\":[60000]",
                                      "\"after_ms\":NaN",
                                      "\"counts\":0",
                                      "\"counts\":\"false\"",
                                      "\"after_ms\":99999999999999999999999",
                                      "\"after_ms\":1,\"after_ms\":1"};
    char body[200];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(body, sizeof body, "{\"outcome\":\"retry\"%s}", good[i].members);
        struct http_verdict v = judge(200, body, "4");
        assert_string_equal(v.reason, "the service asked for a retry");
        assert_int_equal(v.retry.wait_ms, good[i].wait_ms);
        assert_int_equal(v.retry.uncounted, good[i].uncounted);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static const char *const outcomes[] = {"retry", "done"};
        for (int k = 0; k < 2; k++) {
            snprintf(body, sizeof body, "{\"outcome\":\"%s\",%s}", outcomes[k], bad[i]);
            struct http_verdict v = judge(200, body, "4");
            if (v.outcome != LW_RETRY || v.retry.uncounted || v.retry.wait_ms != 4 * SECOND)
                fail_msg("%s: %c", body, v.outcome);
            bool says = strstr(v.reason, "after_ms") || strstr(v.reason, "counts") ||
                        strstr(v.reason, "malformed JSON");
            if (!says) fail_msg("%s: %s", body, v.reason);
        }
    }
    /* each message of a batch has its own */
    struct http_answer a = {.status = 200, .batch = true};
    a.body = lw_bytes_of("[{\"outcome\":\"done\"},{\"outcome\":\"retry\",\"after_ms\":9}]");
    json_t *document = NULL;
    struct lw_err err = {0};
    struct http_verdict v = {0};
    assert_int_equal(answer_document(&a, &document, &err), 0);
    answer_by_document(document, 1, 2, "t/0/1", &v);
    assert_int_equal(v.outcome, LW_RETRY);
    assert_int_equal(v.retry.wait_ms, 9);
    json_decref(document);
}

static void bodies(void **state) {
    (void)state;
    struct http_verdict v = judge(200, "{\"outcome\":\"retry\",\"reason\":\"busy\"}", "");
    assert_int_equal(v.outcome, LW_RETRY);
    assert_string_equal(v.reason, "busy");
    v = judge(500, " {\"outcome\":\"dead\"}", "");
    assert_int_equal(v.outcome, LW_DEAD);
    assert_string_equal(v.reason, "the service gave the message up");
    v = judge(503, "{\"outcome\":\"retry\"}", "4");
    assert_int_equal(v.retry.wait_ms, 4 * SECOND);
    v = judge(404, "{\"outcome\":\"done\",\"reason\":\"gone before\"}", "");
    assert_int_equal(v.outcome, LW_DONE);
    assert_string_equal(v.reason, "");
    v = judge(200, "{\"outcome\":\"paid\"}", "");
    assert_int_equal(v.outcome, LW_RETRY);
    assert_contains(v.reason, "unknown outcome \"paid\"");
    assert_int_equal(judge(200, "{\"outcome\":\"sent\"}", "").outcome, LW_RETRY);
    assert_int_equal(judge(200, "{\"outcome\":\"back\"}", "").outcome, LW_RETRY);
    assert_int_equal(judge(200, "{\"outcome\":7}", "").outcome, LW_RETRY);
    assert_int_equal(judge(200, "{\"order\":{\"outcome\":\"dead\"}}", "").outcome, LW_DONE);
    assert_int_equal(judge(200, "\"outcome\"", "").outcome, LW_DONE);
}

/* A body that is meant to be an outcome and cannot be read must be a retry that says so. */
static void unreadable_bodies(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"outcome\":\"dead\"",                               /* cut off */
        "{\"outcome\":\"dead\"} and more",                     /* trailing text */
        "{\"outcome\":\"dead\",\"reason\":\"d\xe9j\xe0 vu\"}", /* Latin-1 */
        "{\"outcome\":\"retry\",\"reason\":\"\\ud83d\"}",      /* half a surrogate pair */
        "{\"outcome\":\"retry\",\"reason\":NaN}",
        "{'outcome':'retry'}",
        "{\"outcome\":\"done\",\"outcome\":\"dead\"}",
        "{\"Outcome\":\"dead\"}",
        "[{\"OUTCOME\":\"dead\"}]",
        "{\"batch\":[{\"outcome\":\"done\"},{\"outcome\":\"retry\"}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct http_verdict v = judge(200, bodies[i], "");
        if (v.outcome != LW_RETRY) fail_msg("%s: %c", bodies[i], v.outcome);
        assert_contains(v.reason, "the answer's body ");
        assert_int_equal(judge(400, bodies[i], "").outcome, LW_RETRY);
    }
    struct http_verdict v = judge(200, "\xef\xbb\xbf {\"outcome\":\"dead\",\"reason\":\"x\"}", "");
    assert_int_equal(v.outcome, LW_DEAD);
    struct http_answer a = {.status = 200, .body = lw_bytes_of("oops"), .json = true};
    assert_int_equal(read_body(&a, (struct http_verdict){.outcome = LW_DONE}).outcome, LW_RETRY);
    a.body = lw_bytes_of("{\"id\":7,\"id\":8}"); /* JSON that is no outcome */
    assert_int_equal(read_body(&a, (struct http_verdict){.outcome = LW_DONE}).outcome, LW_DONE);
}

/* Every message of a batch needs its own outcome, if the body has any. */
static void bodies_without_outcomes(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "[]", " []", "{\"batch\":[]}", "{\"batch\":{}}", "[7]", "{\"batch\":\"outcome\"}",
        "[",  "[[]]"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct http_answer a = {.status = 200, .body = lw_bytes_of(bodies[i]), .batch = true};
        struct http_verdict v = read_body(&a, (struct http_verdict){.outcome = LW_DONE});
        if (v.outcome != LW_RETRY) fail_msg("%s: %c", bodies[i], v.outcome);
    }
    struct http_answer a = {
        .status = 200, .body = lw_bytes_of("{\"outcome\":\"done\"}"), .batch = true};
    struct http_verdict v = {0};
    struct lw_err err = {0};
    json_t *document;
    assert_int_equal(answer_document(&a, &document, &err), 0);
    answer_by_document(document, 0, 3, "t/0/1", &v);
    assert_int_equal(v.outcome, LW_RETRY);
    answer_by_document(document, 0, 1, "t/0/1", &v);
    assert_int_equal(v.outcome, LW_DONE);
    json_decref(document);
}

static void bodies_of_batches(void **state) {
    (void)state;
    static const char *const ids[] = {"t/0/1", "t/0/2", "t/0/3"};
    static const char text[] = "{\"batch\":[{\"id\":\"t/0/1\",\"outcome\":\"done\"},{\"id\":\"t/0/"
                               "7\",\"outcome\":\"done\"}]}";
    struct lw_err err = {0};
    json_t *document;
    struct http_answer a = {.status = 200, .body = lw_bytes_of(text), .batch = true};
    struct http_verdict v = {.outcome = LW_DONE};
    assert_int_equal(answer_document(&a, &document, &err), 0);
    assert_non_null(document);
    answer_by_document(document, 0, 3, ids[0], &v);
    assert_int_equal(v.outcome, LW_DONE);
    answer_by_document(document, 1, 3, ids[1], &v);
    assert_int_equal(v.outcome, LW_RETRY);
    assert_contains(v.reason, "another message: \"t/0/7\"");
    answer_by_document(document, 2, 3, ids[2], &v);
    assert_contains(v.reason, "2 outcomes for 3 messages");
    answer_by_document(document, 0, 1, ids[0], &v);
    assert_contains(v.reason, "2 outcomes for 1 messages");
    json_decref(document);
    a.body = lw_bytes_of("{\"outcome\":\"done\"}");
    assert_int_equal(answer_document(&a, &document, &err), 0);
    answer_by_document(document, 0, 1, ids[0], &v);
    assert_int_equal(v.outcome, LW_DONE);
    answer_by_document(document, 0, 2, ids[0], &v);
    assert_int_equal(v.outcome, LW_RETRY);
    assert_contains(v.reason, "one outcome for a batch");
    json_decref(document);
}

/* --- the breaker ------------------------------------------------------------------------------ */

static struct breaker made(int percent, int row_max) {
    struct breaker b;
    breaker_open(&b, "http://service:80", percent, row_max, BREAKER_PAUSE_MAX_MS);
    return b;
}

/* Reports to the circuit breaker that a request failed at the moment it was sent. */
static bool fails(struct breaker *b, enum breaker_failure how, bool trial, int64_t now_ms,
                  const char *why) {
    return breaker_failed(b, &(struct breaker_request){now_ms, trial}, how, now_ms, why);
}

static void answers(struct breaker *b, int64_t now_ms) { breaker_answered(b, now_ms); }

static void refused_connections_open_it(void **state) {
    (void)state;
    struct breaker b = made(50, 10);
    char why[256] = "";
    assert_false(fails(&b, BREAKER_REFUSED_CONNECTION, false, 1000, "refused"));
    assert_false(fails(&b, BREAKER_REFUSED_CONNECTION, false, 1000, "refused"));
    /* one answered request resets the count of refused connections */
    answers(&b, 1000);
    assert_false(fails(&b, BREAKER_REFUSED_CONNECTION, false, 1000, "refused"));
    assert_false(fails(&b, BREAKER_REFUSED_CONNECTION, false, 1000, "refused"));
    assert_int_equal(breaker_health(&b, 1000, why, sizeof why), LW_WELL);
    assert_true(fails(&b, BREAKER_REFUSED_CONNECTION, false, 1000, "refused"));
    assert_int_equal(breaker_state(&b, 1000 + BREAKER_PAUSE_MS - 1), LW_HTTP_OPEN);
    assert_int_equal(breaker_health(&b, 1001, why, sizeof why), LW_UNABLE);
    assert_string_equal(why, "handler: http://service:80: refused");
    assert_int_equal(breaker_health(&b, 1000 + BREAKER_PAUSE_MS, why, sizeof why), LW_ON_TRIAL);
    breaker_close(&b);
}

static void failures_in_a_row_open_it(void **state) {
    (void)state;
    struct breaker b = made(0, 10);
    for (int i = 0; i < 9; i++) assert_false(fails(&b, BREAKER_FAILED, false, i * 20000, "503"));
    assert_true(fails(&b, BREAKER_FAILED, false, 180000, "503"));
    breaker_close(&b);
}

/* If a connection breaks, many requests fail at once. Together they must count as one failure when
 * failures in a row are counted. */
static void failures_together_are_one(void **state) {
    (void)state;
    struct breaker b = made(0, 3);
    for (int i = 0; i < 50; i++)
        assert_false(breaker_failed(&b, &(struct breaker_request){1000 + i, false}, BREAKER_FAILED,
                                    2000, "broken"));
    assert_false(
        breaker_failed(&b, &(struct breaker_request){2000, false}, BREAKER_FAILED, 3000, "broken"));
    assert_true(
        breaker_failed(&b, &(struct breaker_request){3000, false}, BREAKER_FAILED, 4000, "broken"));
    breaker_close(&b);
}

/* Every second request fails. The circuit breaker must open as soon as it has counted the minimum
 * number of requests (BREAKER_REQUESTS_MIN) within its time window. */
static void a_rate_opens_it(void **state) {
    (void)state;
    struct breaker b = made(50, 1000);
    bool opened = false;
    int n = 0;
    for (; n < 100 && !opened; n++) {
        if (n % 2 == 0) answers(&b, 5000 + n);
        if (n % 2 == 1) opened = fails(&b, BREAKER_FAILED, false, 5000 + n, "500");
    }
    assert_int_equal(n, BREAKER_REQUESTS_MIN);
    breaker_close(&b);
    b = made(0, 1000);
    for (n = 0; n < 100; n++) assert_false(fails(&b, BREAKER_FAILED, false, 5000 + n, "500"));
    breaker_close(&b);
}

static void old_requests_do_not_count(void **state) {
    (void)state;
    struct breaker b = made(50, 1000);
    /* Half of the requests fail, but at one request per 600 ms the breaker's time window of 10 s
     * never contains the required 20 requests. */
    for (int i = 0; i < 40; i++)
        assert_false(i % 2 && fails(&b, BREAKER_FAILED, false, (int64_t)i * 600, "500"));
    breaker_close(&b);
    /* nor after a pause in which no request came: one failure in nine is few */
    b = made(50, 1000);
    for (int i = 0; i < BREAKER_REQUESTS_MIN - 1; i++)
        assert_false(fails(&b, BREAKER_FAILED, false, 1000, "500"));
    for (int i = 0; i < 8; i++) answers(&b, 100000);
    assert_false(fails(&b, BREAKER_FAILED, false, 100000, "500"));
    breaker_close(&b);
}

static void trials(void **state) {
    (void)state;
    struct breaker b = made(50, 10);
    int64_t now = 0, pause = BREAKER_PAUSE_MS;
    for (int i = 0; i < 3; i++) fails(&b, BREAKER_REFUSED_CONNECTION, false, now, "refused");
    /* each failed trial doubles the time for which the breaker stays open, up to a maximum */
    for (int i = 0; i < 12; i++) {
        assert_int_equal(breaker_state(&b, now + pause - 1), LW_HTTP_OPEN);
        now += pause;
        assert_int_equal(breaker_state(&b, now), LW_HTTP_HALF_OPEN);
        assert_true(fails(&b, BREAKER_FAILED, true, now, "503"));
        pause = 2 * pause < BREAKER_PAUSE_MAX_MS ? 2 * pause : BREAKER_PAUSE_MAX_MS;
    }
    /* if a request that was sent before the breaker opened fails, the breaker must not stay open
     * for longer */
    assert_true(fails(&b, BREAKER_FAILED, false, now + 5, "503"));
    assert_int_equal(breaker_state(&b, now + pause - 1), LW_HTTP_OPEN);
    now += pause;
    assert_int_equal(breaker_state(&b, now), LW_HTTP_HALF_OPEN);
    answers(&b, now);
    assert_int_equal(breaker_state(&b, now), LW_HTTP_CLOSED);
    assert_false(fails(&b, BREAKER_REFUSED_CONNECTION, false, now, "refused"));
    breaker_close(&b);
}

/* Plays a service that fails for the first `poison` messages and works for all others, or for none
 * if `down` is true. Returns how many trials fail before one succeeds, at most 20. */
static int trials_until_success(struct lw_trial *t, int poison, bool down) {
    int n = 0;
    for (; n < 20; n++) {
        struct lw_job_queue line;
        struct fx_job all[300];
        lw_jobs_clear(&line);
        for (int i = 0; i < 300; i++) lw_jobs_append(&line, fx_job(&all[i], i, "k", ""));
        int most = t->size;
        for (int i = 0; i < most; i++) {
            lw_trial_prefer(t, &line);
            struct lw_job *job = lw_jobs_pop(&line);
            if (!down && job->offset >= poison) {
                lw_trial_succeeded(t, job->identity);
                return n;
            }
            assert_false(lw_trial_failed(t, job->identity));
            assert_int_equal(lw_trial_over(t), i == most - 1);
        }
    }
    return n;
}

/* The three pauses before the trial that must have a good message take at most twice as long as the
 * longest pause. */
static void three_pauses_are_short(void **state) {
    (void)state;
    for (int64_t most = 4; most <= BREAKER_PAUSE_MAX_MS; most += 13) {
        struct breaker b;
        breaker_open(&b, "http://service:80", 0, 1, most);
        int64_t now = 1000;
        for (int i = 0; i < 3; i++) {
            assert_true(fails(&b, BREAKER_FAILED, i > 0, now, "503"));
            assert_true(b.pause_ms > 0 && b.pause_ms <= most);
            now += b.pause_ms;
        }
        assert_true(now - 1000 <= 2 * most);
        breaker_close(&b);
    }
}

/* However many messages fail for ever, others must soon be among those of a trial, and nobody may
 * be charged before one has succeeded. */
static void poison_messages_do_not_stop_trials(void **state) {
    (void)state;
    struct lw_trial t;
    lw_trial_open(&t, 64);
    assert_int_equal(trials_until_success(&t, 20, false), 1); /* 1, 64: 65 messages */
    assert_int_equal(t.size, 1);
    /* now each of them is at fault itself, as often as it fails after a success */
    for (int i = 0; i < 20; i++) {
        char id[32];
        snprintf(id, sizeof id, "t/0/%d", i);
        assert_true(lw_trial_failed(&t, id));
        assert_false(lw_trial_failed(&t, id));
        lw_trial_succeeded(&t, "t/0/999");
        assert_true(lw_trial_failed(&t, id));
    }
    lw_trial_close(&t);
    lw_trial_open(&t, 64);
    assert_int_equal(trials_until_success(&t, 256, false), 2); /* 1, 64, 257 */
    lw_trial_close(&t);
    lw_trial_open(&t, 1);
    assert_int_equal(trials_until_success(&t, 4, false), 2); /* 1, 1, 5 */
    lw_trial_close(&t);
    lw_trial_open(&t, 4);
    assert_int_equal(trials_until_success(&t, 0, true), 20);
    lw_trial_close(&t);
}

/* --- labels ----------------------------------------------------------------------------------- */

static void labels(void **state) {
    (void)state;
    for (int i = 0; i < LW_HTTP_CODES; i++) assert_non_null(lw_http_code_name[i]);
    assert_string_equal(lw_http_code_name[lw_http_code_of(200)], "200");
    assert_string_equal(lw_http_code_name[lw_http_code_of(226)], "2xx");
    assert_string_equal(lw_http_code_name[lw_http_code_of(302)], "3xx");
    assert_string_equal(lw_http_code_name[lw_http_code_of(418)], "4xx");
    assert_string_equal(lw_http_code_name[lw_http_code_of(504)], "504");
    assert_string_equal(lw_http_code_name[lw_http_code_of(599)], "5xx");
    assert_string_equal(lw_http_code_name[lw_http_code_of(999)], "5xx");
    assert_string_equal(lw_http_code_name[lw_http_code_of(0)], "2xx");
}

/* --- the configuration ------------------------------------------------------------------------ */

static void wrong(const char *section, const char *problem) {
    char *text = fx_check(&lw_handler_http, section);
    if (*problem)
        assert_contains(text, problem);
    else
        assert_string_equal(text, "");
    free(text);
}

static void configuration(void **state) {
    (void)state;
    wrong("{\"url\":\"http://127.0.0.1:8080/orders?x=1\"}", "");
    wrong("{\"url\":\"https://[::1]/"
          "\",\"mode\":\"structured\",\"headers\":{\"Authorization\":\"Bearer "
          "x\"},\"breaker_percent\":0}",
          "");
    wrong(
        "{\"url\":\"https://"
        "h\",\"hmac_key\":[\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"],\"tls\":{\"verify\":true}}",
        "");
    wrong("{}", "handler.url: required");
    wrong("{\"url\":\"ftp://h/\"}", "handler.url: must begin with http:// or https://");
    wrong("{\"url\":\"http://h:99999/\"}", "handler.url: ");
    wrong("{\"url\":\"http://\"}", "handler.url: ");
    wrong("{\"url\":\"http://a b/\"}", "handler.url: ");
    wrong("{\"url\":\"http://u:secret@h/\"}",
          "handler.url: put user and password into handler.headers");
    wrong("{\"url\":\"http://h/#x\"}", "handler.url: a fragment");
    wrong("{\"url\":\"http://h/\\u0001\"}",
          "handler.url: must have at most 8 KiB and no control characters");
    wrong("{\"url\":\"http://h\",\"urls\":1}", "handler.urls: unknown key; did you mean url?");
    wrong("{\"url\":\"http://h\",\"mode\":\"json\"}",
          "handler.mode: \"json\": must be binary, structured or batch");
    wrong("{\"url\":\"http://h\",\"batch\":2}", "handler.batch: only \"mode\": \"batch\"");
    wrong("{\"url\":\"http://h\",\"headers\":[]}", "handler.headers: must be an object");
    wrong("{\"url\":\"http://h\",\"headers\":{\"a b\":\"1\"}}", "handler.headers.a b: is no name");
    wrong("{\"url\":\"http://h\",\"headers\":{\"a\":1}}", "handler.headers.a: must be a string");
    wrong("{\"url\":\"http://h\",\"headers\":{\"a\":\"1\\r\\nb: 2\"}}",
          "handler.headers.a: must have at most 8 KiB");
    wrong("{\"url\":\"http://h\",\"headers\":{\"ce-id\":\"1\"}}",
          "handler.headers.ce-id: is set by Latchwork");
    wrong("{\"url\":\"http://h\",\"headers\":{\"Content-Type\":\"1\"}}",
          "use handler.content_type instead");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"x-shop-*\",\"*\"]}", "");
    wrong("{\"url\":\"http://h\",\"record_headers\":\"x\"}",
          "handler.record_headers: must be a list");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"x\",\"Authorization\"]}",
          "handler.record_headers[1]: services trust this header");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"X-Forwarded-*\"]}",
          "handler.record_headers[0]: services trust this header");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"x_key\"]}",
          "handler.record_headers[0]: services trust this header");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"ce-id\"]}",
          "handler.record_headers[0]: is set by Latchwork");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"a b\"]}",
          "handler.record_headers[0]: is no name");
    wrong("{\"url\":\"http://h\",\"record_headers\":[\"\"]}",
          "handler.record_headers[0]: is no name");
    wrong("{\"url\":\"http://h\",\"record_headers\":[7]}",
          "handler.record_headers[0]: must be a string");
    wrong("{\"url\":\"http://h\",\"content_type\":\"a\\nb\"}", "handler.content_type: ");
    wrong("{\"url\":\"http://h\",\"hmac_key\":\"secret\"}",
          "handler.hmac_key: must be \"whsec_\" and 24 to 64 bytes in base64");
    wrong("{\"url\":\"http://h\",\"hmac_key\":[]}", "handler.hmac_key: must be");
    wrong("{\"url\":\"http://h\",\"connect_timeout_ms\":0}",
          "handler.connect_timeout_ms: must be a number from 1 to 3600000");
    wrong("{\"url\":\"http://h\",\"breaker_percent\":101}",
          "handler.breaker_percent: must be a number from 0 to 100");
    wrong("{\"url\":\"https://h\",\"tls\":true}", "handler.tls: must be an object");
    wrong("{\"url\":\"https://h\",\"tls\":{\"ca\":\"x\"}}", "handler.tls.ca: unknown key");
    wrong("{\"url\":\"https://h\",\"tls\":{\"ca_file\":\"/none.pem\"}}",
          "handler.tls.ca_file: /none.pem can't be read: No such file");
    wrong("{\"url\":\"https://h\",\"tls\":{\"key_file\":\"/dev/null\"}}",
          "handler.tls.key_file: needs handler.tls.cert_file");
    wrong("{\"url\":\"https://h\",\"tls\":{\"verify\":\"no\"}}",
          "handler.tls.verify: must be true or false");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_event),
        cmocka_unit_test(binary_event_without_values),
        cmocka_unit_test(record_headers),
        cmocka_unit_test(headers_that_pass),
        cmocka_unit_test(record_headers_are_bounded),
        cmocka_unit_test(structured_event),
        cmocka_unit_test(structured_data),
        cmocka_unit_test(attributes_in_a_batch),
        cmocka_unit_test(signature),
        cmocka_unit_test(keys),
        cmocka_unit_test(statuses),
        cmocka_unit_test(reasons),
        cmocka_unit_test(retry_after),
        cmocka_unit_test(comes_back),
        cmocka_unit_test(bodies),
        cmocka_unit_test(bodies_of_batches),
        cmocka_unit_test(unreadable_bodies),
        cmocka_unit_test(bodies_without_outcomes),
        cmocka_unit_test(refused_connections_open_it),
        cmocka_unit_test(failures_in_a_row_open_it),
        cmocka_unit_test(failures_together_are_one),
        cmocka_unit_test(a_rate_opens_it),
        cmocka_unit_test(old_requests_do_not_count),
        cmocka_unit_test(trials),
        cmocka_unit_test(three_pauses_are_short),
        cmocka_unit_test(poison_messages_do_not_stop_trials),
        cmocka_unit_test(labels),
        cmocka_unit_test(configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
