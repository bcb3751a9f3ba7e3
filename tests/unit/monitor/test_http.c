/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the HTTP server. Slow requests must not delay other requests, the number of slow requests
 * is limited, and the server can be closed while requests are being answered. test_metrics.c tests
 * how the text of a request is read. */
#include "base/clock.h"
#include "monitor/http.h"
#include "monitor/stream.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 30, WAIT_MS = 20000 };

struct world {
    struct lw_http *h;
    atomic_bool gate;         /* while true, short responses of slow threads are held back */
    atomic_bool lengthy_gate; /* while true, lengthy responses are held back */
    /* `begun` counts the slow responses that have begun, and `slow` those that have ended. */
    atomic_int begun, slow;
};

static bool quick(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a) {
    (void)ctx;
    if (!strncmp(q->path, "/api/slow", 9)) return false;
    a->status = !strcmp(q->path, "/api/denied") ? 401 : 200;
    if (!strcmp(q->path, "/api/stream")) {
        a->stream = true;
        lw_buf_addf(&a->body, "first;");
        return true;
    }
    lw_buf_addf(&a->body, "%s %s", q->post ? "POST" : "GET", q->path);
    for (size_t i = 0; i < q->n_args; i++)
        lw_buf_addf(&a->body, " %s=%s", q->args[i].name, q->args[i].value);
    lw_buf_addf(&a->body, " %.*s", (int)q->body.n, q->body.p ? q->body.p : "");
    return true;
}

static bool lengthy(void *ctx, const struct lw_http_request *q) {
    (void)ctx;
    return !strcmp(q->path, "/api/slow/lengthy");
}

static void slow(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a,
                 bool is_lengthy) {
    struct world *w = ctx;
    assert_int_equal(is_lengthy, lengthy(ctx, q));
    atomic_fetch_add(&w->begun, 1);
    while (atomic_load(is_lengthy ? &w->lengthy_gate : &w->gate)) lw_sleep_ms(1);
    atomic_fetch_add(&w->slow, 1);
    a->status = 200;
    lw_buf_addf(&a->body, "slow");
}

static void open_world(struct world *w) {
    struct lw_err err = {0};
    struct lw_http_handler handler = {.ctx = w, .quick = quick, .lengthy = lengthy, .slow = slow};
    *w = (struct world){0};
    w->h = lw_http_open("127.0.0.1", 0, &handler, &err);
    if (!w->h) fail_msg("%s", err.text);
}

static int connect_to(const struct world *w) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)lw_http_port(w->h)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {WAIT_MS / 1000, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    /* SO_SNDTIMEO, the time limit for sending, also limits the time of connect() */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static int begin(const struct world *w, const char *request) {
    int fd = connect_to(w);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    return fd;
}

/* Reads the response until the server closes the connection. Copies the body into `body`, and
 * returns the status, or 0 if the response is too short to have one. */
static int end(int fd, char body[1024]) {
    char all[4096];
    size_t n = 0;
    ssize_t got;
    while (n < sizeof all - 1 && (got = read(fd, all + n, sizeof all - 1 - n)) > 0)
        n += (size_t)got;
    all[n] = 0;
    close(fd);
    const char *behind = strstr(all, "\r\n\r\n");
    snprintf(body, 1024, "%.1000s", behind ? behind + 4 : "");
    return n > 12 ? atoi(all + 9) : 0;
}

static int ask(const struct world *w, const char *request, char body[1024]) {
    return end(begin(w, request), body);
}

static void wait_for(atomic_int *n, int least) {
    for (int64_t until = lw_boot_ms() + WAIT_MS; atomic_load(n) < least; lw_sleep_ms(1))
        if (lw_boot_ms() > until) fail_msg("%d did not become %d", atomic_load(n), least);
}

#define HOST " HTTP/1.0\r\nHost: localhost\r\n"

static void test_quick(void **state) {
    struct world w;
    char body[1024];
    (void)state;
    open_world(&w);
    assert_int_equal(ask(&w, "GET /a%2Fb?x=1%262&y=a+b" HOST "\r\n", body), 200);
    assert_string_equal(body, "GET /a%2Fb x=1&2 y=a b ");
    assert_int_equal(ask(&w, "POST /p" HOST "Content-Length: 5\r\n\r\nhello", body), 200);
    assert_string_equal(body, "POST /p hello");
    assert_int_equal(ask(&w, "POST /p" HOST "Content-Length: 65537\r\n\r\n", body), 413);
    assert_int_equal(ask(&w, "GET /a HTTP/1.0\r\nHost: evil.example\r\n\r\n", body), 421);
    assert_int_equal(ask(&w, "GET /a HTTP/1.0\r\n\r\n", body), 421);
    assert_int_equal(ask(&w, "GET /api/a?x=%0" HOST "\r\n", body), 400);
    assert_string_equal(body, "{\"error\":\"the query can't be read\"}\n");
    assert_int_equal(ask(&w, "PUT /a" HOST "\r\n", body), 405);
    lw_http_close(w.h);
}

/* One slow request may run and fifteen may wait. All other slow requests must be refused, but quick
 * requests must still be answered. */
static void test_slow_ones_are_bounded(void **state) {
    struct world w;
    char body[1024];
    int fd[CLIENTS], good = 0, busy = 0;
    (void)state;
    open_world(&w);
    atomic_store(&w.gate, true);
    for (int i = 0; i < CLIENTS; i++) fd[i] = begin(&w, "GET /api/slow" HOST "\r\n");
    wait_for(&w.begun, 1);
    for (int i = 0; i < 10; i++) assert_int_equal(ask(&w, "GET /a" HOST "\r\n", body), 200);
    assert_int_equal(atomic_load(&w.begun), 1);
    atomic_store(&w.gate, false);
    for (int i = 0; i < CLIENTS; i++) {
        int status = end(fd[i], body);
        good += status == 200;
        busy += status == 503 && strstr(body, "too many");
    }
    assert_int_equal(good, LW_HTTP_WAITING);
    assert_int_equal(busy, CLIENTS - LW_HTTP_WAITING);
    assert_int_equal(atomic_load(&w.slow), LW_HTTP_WAITING);
    assert_int_equal(ask(&w, "GET /api/slow" HOST "\r\n", body), 200);
    lw_http_close(w.h);
}

/* While a slow thread answers a lengthy request, the other slow thread must still answer short
 * requests, in any number (monitor/http.h). */
static void test_lengthy_ones_hold_up_no_others(void **state) {
    struct world w;
    char body[1024];
    int fd[CLIENTS], good = 0;
    (void)state;
    open_world(&w);
    atomic_store(&w.lengthy_gate, true);
    for (int i = 0; i < CLIENTS; i++) fd[i] = begin(&w, "GET /api/slow/lengthy" HOST "\r\n");
    wait_for(&w.begun, 1);
    for (int i = 0; i < 2 * LW_HTTP_WAITING; i++)
        assert_int_equal(ask(&w, "GET /api/slow" HOST "\r\n", body), 200);
    assert_int_equal(atomic_load(&w.begun), 1 + 2 * LW_HTTP_WAITING);
    assert_int_equal(atomic_load(&w.slow), 2 * LW_HTTP_WAITING);
    atomic_store(&w.lengthy_gate, false);
    for (int i = 0; i < CLIENTS; i++) good += end(fd[i], body) == 200;
    assert_int_equal(good, LW_HTTP_LENGTHY);
    lw_http_close(w.h);
}

static void *open_gate(void *ctx) {
    struct world *w = ctx;
    lw_sleep_ms(50);
    atomic_store(&w->gate, false);
    return NULL;
}

struct crowd {
    int fd[2 * LW_HTTP_CONNECTIONS];
    atomic_bool over;
};

/* Sends bytes on all connections, so that none of them becomes idle. */
static void *drip(void *ctx) {
    struct crowd *c = ctx;
    while (!atomic_load(&c->over)) {
        for (size_t i = 0; i < sizeof c->fd / sizeof *c->fd; i++)
            send(c->fd[i], "a", 1, MSG_NOSIGNAL);
        lw_sleep_ms(100);
    }
    return NULL;
}

static void test_crowd_of_slow_clients(void **state) {
    struct world w;
    struct crowd crowd = {0};
    char body[1024];
    pthread_t t;
    size_t n = sizeof crowd.fd / sizeof *crowd.fd;
    (void)state;
    open_world(&w);
    atomic_store(&w.gate, true);
    /* this connection is the oldest, and is kept because its request is complete */
    int kept = begin(&w, "GET /api/slow" HOST "\r\n");
    wait_for(&w.begun, 1);
    for (size_t i = 0; i < n; i++)
        crowd.fd[i] = begin(&w, "GET /a HTTP/1.1\r\nHost: localhost\r\nX: ");
    pthread_create(&t, NULL, drip, &crowd);
    for (int i = 0; i < 10; i++) assert_int_equal(ask(&w, "GET /a" HOST "\r\n", body), 200);
    atomic_store(&w.gate, false);
    assert_int_equal(end(kept, body), 200);
    assert_string_equal(body, "slow");
    atomic_store(&crowd.over, true);
    pthread_join(t, NULL);
    for (size_t i = 0; i < n; i++) close(crowd.fd[i]);
    lw_http_close(w.h);
}

/* The answer to a wrong token is delayed, and other requests are not, however many wrong ones come.
 * Whoever sent no token learns at once that one is needed. */
static void test_wrong_tokens_wait(void **state) {
    (void)state;
    struct world w;
    char body[1024];
    int fd[LW_HTTP_DENIED], one_more = 0, status;
    open_world(&w);
    int64_t begun_ms = lw_boot_ms();
    for (size_t i = 0; i < LW_HTTP_DENIED; i++)
        fd[i] = begin(&w, "GET /api/denied" HOST "Authorization: Bearer guess\r\n\r\n");
    assert_int_equal(ask(&w, "GET /a" HOST "Authorization: Bearer right\r\n\r\n", body), 200);
    assert_int_equal(ask(&w, "GET /api/denied" HOST "\r\n", body), 401);
    /* while so many wait, one more gets no answer, and none of them an earlier one */
    while (
        !(status = ask(&w, "GET /api/denied" HOST "Authorization: Bearer guess\r\n\r\n", body))) {
        one_more++;
        lw_sleep_ms(10);
    }
    assert_int_equal(status, 401);
    assert_true(one_more > 0);
    assert_true(lw_boot_ms() - begun_ms >= 2 * LW_HTTP_DENIED_MS);
    for (size_t i = 0; i < LW_HTTP_DENIED; i++) assert_int_equal(end(fd[i], body), 401);
    /* the server closes while such an answer waits */
    fd[0] = begin(&w, "GET /api/denied" HOST "Authorization: Bearer guess\r\n\r\n");
    assert_int_equal(ask(&w, "GET /a" HOST "\r\n", body), 200);
    lw_http_close(w.h);
    close(fd[0]);
}

/* Clients that ask and never read, or never end what they ask, must not stop others. */
static void test_clients_that_never_read(void **state) {
    (void)state;
    enum { MANY = 200 };
    struct world w;
    char body[1024];
    int fd[MANY];
    open_world(&w);
    for (size_t i = 0; i < MANY; i++)
        fd[i] = begin(&w, i % 3 == 0   ? "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
                          : i % 3 == 1 ? "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                       : "GET /a HTTP/1.1\r\nHo");
    for (int i = 0; i < 10; i++) assert_int_equal(ask(&w, "GET /a" HOST "\r\n", body), 200);
    for (size_t i = 0; i < MANY; i++) close(fd[i]);
    lw_http_close(w.h);
}

/* Closes the server while requests are being answered. The clients of two of these requests have
 * disconnected. */
static void test_close_under_way(void **state) {
    struct world w;
    pthread_t t;
    int fd[8];
    (void)state;
    open_world(&w);
    atomic_store(&w.gate, true);
    for (int i = 0; i < 8; i++) fd[i] = begin(&w, "GET /api/slow" HOST "\r\n");
    wait_for(&w.begun, 1);
    close(fd[0]), close(fd[1]);
    pthread_create(&t, NULL, open_gate, &w);
    lw_http_close(w.h);
    pthread_join(t, NULL);
    for (int i = 2; i < 8; i++) close(fd[i]);
    assert_int_equal(atomic_load(&w.slow), atomic_load(&w.begun));
}

/* --- streams ---------------------------------------------------------------------------------- */

static const char stream_request[] = "GET /api/stream HTTP/1.0\r\nHost: localhost\r\n\r\n";

static void publish(const struct world *w, const char *text) {
    lw_http_publish(w->h, lw_bytes_of(text));
}

static void wait_for_streams(const struct world *w, int n) {
    for (int64_t until = lw_boot_ms() + WAIT_MS; lw_http_streams(w->h) != n; lw_sleep_ms(1))
        if (lw_boot_ms() > until)
            fail_msg("%d streams did not become %d", lw_http_streams(w->h), n);
}

/* Reads from a stream until `text` has arrived. Fails if the stream ends earlier. */
static void read_until(int fd, const char *text) {
    char all[8192];
    size_t n = 0;
    while (n < sizeof all - 1) {
        ssize_t got = read(fd, all + n, sizeof all - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
        all[n] = 0;
        /* a stream must not contain texts that were published before it began */
        assert_null(strstr(all, "before;"));
        if (strstr(all, text)) return;
    }
    fail_msg("the stream ended without \"%s\": %.*s", text, (int)n, all);
}

static void test_streams_get_what_is_published(void **state) {
    struct world w;
    int fd[3];
    (void)state;
    open_world(&w);
    publish(&w, "before;");
    for (int i = 0; i < 3; i++) {
        fd[i] = begin(&w, stream_request);
        read_until(fd[i], "\r\n\r\nfirst;");
    }
    for (int i = 0; i < 3; i++) {
        publish(&w, i == 1 ? "two;" : "one;");
        for (int k = 0; k < 3; k++) read_until(fd[k], i == 1 ? "two;" : "one;");
    }
    close(fd[1]);
    for (int64_t until = lw_boot_ms() + WAIT_MS; lw_http_streams(w.h) > 2 && lw_boot_ms() < until;
         lw_sleep_ms(1))
        publish(&w, "three;");
    assert_int_equal(lw_http_streams(w.h), 2);
    read_until(fd[2], "three;");
    close(fd[0]), close(fd[2]);
    lw_http_close(w.h);
}

static void test_streams_are_bounded(void **state) {
    struct world w;
    char body[1024];
    int fd[LW_STREAMS];
    (void)state;
    open_world(&w);
    for (int i = 0; i < LW_STREAMS; i++) {
        fd[i] = begin(&w, stream_request);
        read_until(fd[i], "first;");
    }
    assert_int_equal(lw_http_streams(w.h), LW_STREAMS);
    assert_int_equal(ask(&w, stream_request, body), 503);
    assert_string_equal(body, "{\"error\":\"too many streams are open; close a page\"}\n");
    /* the server must not close a stream to make room for other clients, however many they are */
    for (int i = 0; i < 2 * LW_HTTP_CROWD; i++)
        assert_int_equal(ask(&w, "GET /a" HOST "\r\n", body), 200);
    assert_int_equal(lw_http_streams(w.h), LW_STREAMS);
    close(fd[3]);
    for (int64_t until = lw_boot_ms() + WAIT_MS;
         lw_http_streams(w.h) == LW_STREAMS && lw_boot_ms() < until; lw_sleep_ms(1))
        publish(&w, "x;");
    fd[3] = begin(&w, stream_request);
    read_until(fd[3], "first;");
    lw_http_close(w.h); /* closing the server ends all streams */
    for (int i = 0; i < LW_STREAMS; i++) end(fd[i], body);
}

/* A client that reads more slowly than texts are published must be disconnected, although its
 * connection is never idle. */
static void test_a_slow_reader_is_cut_off(void **state) {
    struct world w;
    char *text = malloc((64 << 10) + 1);
    int64_t until = lw_boot_ms() + WAIT_MS;
    (void)state;
    open_world(&w);
    int slow_one = begin(&w, stream_request);
    wait_for_streams(&w, 1);
    memset(text, 'x', 64 << 10);
    text[64 << 10] = 0;
    while (lw_http_streams(w.h) && lw_boot_ms() < until) {
        char some[1024];
        publish(&w, text);
        recv(slow_one, some, sizeof some, MSG_DONTWAIT);
        lw_sleep_ms(1);
    }
    assert_int_equal(lw_http_streams(w.h), 0);
    int other = begin(&w, stream_request);
    read_until(other, "first;");
    publish(&w, "and on;");
    read_until(other, "and on;");
    close(slow_one), close(other);
    free(text);
    lw_http_close(w.h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick),
        cmocka_unit_test(test_slow_ones_are_bounded),
        cmocka_unit_test(test_lengthy_ones_hold_up_no_others),
        cmocka_unit_test(test_crowd_of_slow_clients),
        cmocka_unit_test(test_wrong_tokens_wait),
        cmocka_unit_test(test_clients_that_never_read),
        cmocka_unit_test(test_close_under_way),
        cmocka_unit_test(test_streams_get_what_is_published),
        cmocka_unit_test(test_streams_are_bounded),
        cmocka_unit_test(test_a_slow_reader_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
