/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reader of HTTP/1.1 responses. Each response is read in one piece, cut in two at each
 * position, and byte by byte. */
#include "tests/support/handler_fixture.h"

#include "handlers/http/reader.h"

#define OK "HTTP/1.1 200 OK\r\n"

struct expected {
    const char *text;
    /* `state` is the reader's state after the last byte. If `closed` is true, the service then
     * closes the connection, and `state` is the state after that. */
    enum reader_state state;
    bool closed;
    int status;
    const char *body;
    bool keeps;        /* true if the connection may be used again */
    size_t left_over;  /* number of bytes after the end of the response */
    const char *after; /* value of the header Retry-After */
};

static const struct expected answers[] = {
    {"HTTP/1.1 204 No Content\r\n\r\n", READER_WHOLE, false, 204, "", true, 0, ""},
    {"HTTP/1.1 204\r\n\r\n", READER_WHOLE, false, 204, "", true, 0, ""},
    {"HTTP/1.1 204 No Content\n\n", READER_WHOLE, false, 204, "", true, 0, ""},
    {"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", READER_WHOLE, false, 304, "", true, 0, ""},
    {OK "Content-Length: 5\r\n\r\nhello", READER_WHOLE, false, 200, "hello", true, 0, ""},
    {OK "content-LENGTH:5  \r\n\r\nhello", READER_WHOLE, false, 200, "hello", true, 0, ""},
    {OK "Content-Length: 0\r\n\r\n", READER_WHOLE, false, 200, "", true, 0, ""},
    {OK "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", READER_WHOLE, false, 200, "hello",
     true, 0, ""},
    {OK "Content-Length: 2\r\n\r\nokHTTP", READER_WHOLE, false, 200, "ok", true, 4, ""},
    {OK "Connection: close\r\nContent-Length: 2\r\n\r\nok", READER_WHOLE, false, 200, "ok", false,
     0, ""},
    {OK "Connection: x, Close\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", READER_WHOLE,
     false, 200, "", false, 0, ""},
    {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", READER_WHOLE, false, 200, "", false, 0, ""},
    {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", READER_WHOLE, false,
     200, "", true, 0, ""},
    {"HTTP/1.0 200 OK\r\n\r\nto the end", READER_WHOLE, true, 200, "to the end", false, 0, ""},
    {OK "\r\nto the end", READER_UNTIL_CLOSE, false, 200, "to the end", false, 0, ""},
    {OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", READER_WHOLE,
     false, 200, "hello!", true, 0, ""},
    {OK "Transfer-Encoding: Chunked\r\n\r\n0A \r\n0123456789\r\n0\r\nA: b\r\n\r\nx", READER_WHOLE,
     false, 200, "0123456789", true, 1, ""},
    {OK "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n", READER_WHOLE,
     false, 200, "a", false, 0, ""},
    {"HTTP/1.1 503 x\r\nRetry-After: \t7 \r\nContent-Length: 0\r\n\r\n", READER_WHOLE, false, 503,
     "", true, 0, "7"},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nRetry-After: 7\r\n\r\n" OK
     "Content-Length: 1\r\n\r\na",
     READER_WHOLE, false, 200, "a", true, 0, ""},
    {OK "X: a\r\n b: c\r\nContent-Length: 1\r\n\r\na", READER_WHOLE, false, 200, "a", true, 0, ""},
    {OK "Content-Length: 5\r\n\r\nhell", READER_BROKEN, true, 200, "hell", false, 0, ""},
    {OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", READER_BROKEN, true, 200, "hello",
     false, 0, ""},
    {OK "Content-Le", READER_BROKEN, true, 200, "", false, 0, ""},
    {"", READER_BROKEN, true, 0, "", false, 0, ""},
};

static const char *const malformed[] = {
    "hello\r\n",
    "HTTP/2 200\r\n",
    "HTTP/1.1 20\r\n",
    "HTTP/1.1 2000\r\n",
    "HTTP/1.1 099 x\r\n",
    "HTTP/1.1 200x\r\n",
    "\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    OK "no colon\r\n",
    OK ": no name\r\n",
    OK "Content-Length : 5\r\n",
    OK "Content-Length: -1\r\n",
    OK "Content-Length: 5 5\r\n",
    OK "Content-Length: 5, 5\r\n",
    OK "Content-Length:\r\n",
    OK "Content-Length: 9999999999999999999\r\n",
    OK "Content-Length: 5\r\nContent-Length: 6\r\n",
    OK "Content-Length: 5\r\n 6\r\n",
    OK "Transfer-Encoding: gzip, chunked\r\n",
    OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\nx\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\n\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    OK "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
};

struct fx_reader {
    struct http_reader reader;
    struct http_received received;
};

/* Feeds the text to the reader in pieces, the first of `first` bytes and the others of `each`
 * bytes. A size of 0 means all of the remaining text. Returns the number of bytes that the reader
 * has consumed. Each piece is copied to a buffer of its own, so that a sanitizer finds a read
 * beyond its end. */
static size_t feed(struct fx_reader *x, const char *text, size_t first, size_t each) {
    size_t n = strlen(text), at = 0;
    reader_begin(&x->reader, &x->received);
    while (at < n && !reader_over(&x->reader)) {
        size_t some = at ? each : first;
        if (!some || some > n - at) some = n - at;
        char *piece = lw_memdup(text + at, some);
        size_t taken = reader_take(&x->reader, piece, some);
        free(piece);
        at += taken;
        if (taken < some) break;
    }
    return at;
}

static void check(struct fx_reader *x, const struct expected *e, size_t first, size_t each) {
    size_t taken = feed(x, e->text, first, each);
    if (e->closed) reader_end(&x->reader, NULL);
    if (x->reader.state != e->state)
        fail_msg("state %d, not %d, of: %s (%zu, %zu)", (int)x->reader.state, (int)e->state,
                 e->text, first, each);
    assert_int_equal(strlen(e->text) - taken, e->left_over);
    assert_int_equal(x->reader.status, e->status);
    assert_int_equal(x->received.body.n, strlen(e->body));
    if (*e->body) assert_memory_equal(x->received.body.p, e->body, strlen(e->body));
    assert_int_equal(x->reader.keeps, e->keeps);
    assert_string_equal(x->received.retry_after, e->after);
}

static void close_reader(struct fx_reader *x) {
    reader_free(&x->reader);
    received_free(&x->received);
}

/* The reader must return the same response, no matter into which pieces its bytes are divided. One
 * reader reads all responses, one after the other. */
static void good_answers(void **state) {
    (void)state;
    struct fx_reader x = {0};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        for (size_t cut = 0; cut < strlen(answers[i].text); cut++) check(&x, &answers[i], cut, 0);
        check(&x, &answers[i], 1, 1);
    }
    close_reader(&x);
}

static void bad_answers(void **state) {
    (void)state;
    struct fx_reader x = {0};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        for (size_t cut = 0; cut < strlen(malformed[i]); cut++) {
            feed(&x, malformed[i], cut, 0);
            if (x.reader.state != READER_BROKEN)
                fail_msg("state %d of: %s", (int)x.reader.state, malformed[i]);
            assert_non_null(x.reader.problem);
        }
    }
    close_reader(&x);
}

/* Returns a text that consists of `head` and n copies of `part`. The caller frees the text. */
static char *repeated(const char *head, const char *part, size_t n) {
    struct lw_buf text = {0};
    lw_buf_add(&text, head, strlen(head));
    for (size_t i = 0; i < n; i++) lw_buf_add(&text, part, strlen(part));
    lw_buf_add(&text, "", 1);
    return text.p;
}

/* No response may make the reader store more than its limits allow, even if a part of the response
 * never ends. */
static void endless_answers(void **state) {
    (void)state;
    static const struct {
        const char *head, *part;
    } cases[] = {
        {"", "x"},
        {OK "X: ", "x"},
        {OK, "X: y\r\n"},
        {"", "HTTP/1.1 100 x\r\n\r\n"},
        {OK "\r\n", "0123456789"},
        {OK "Content-Length: 999999999\r\n\r\n", "0123456789"},
        {OK "Transfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n"},
        {OK "Transfer-Encoding: chunked\r\n\r\n5;", "x"},
        {OK "Transfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n"},
    };
    struct fx_reader x = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i].head, cases[i].part, 4 * RECEIVED_BODY_MAX / 10);
        feed(&x, text, 1000, 1000);
        assert_int_equal(x.reader.state, READER_TOO_LONG);
        assert_true(x.received.too_long && x.received.body.n <= RECEIVED_BODY_MAX &&
                    x.reader.line.n <= RECEIVED_HEAD_MAX + 1000);
        free(text);
    }
    close_reader(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_answers),
        cmocka_unit_test(bad_answers),
        cmocka_unit_test(endless_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
