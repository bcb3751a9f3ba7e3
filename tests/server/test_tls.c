/* SPDX-License-Identifier: Apache-2.0 */
/* Tests TLS connections to a real redis-server: which connections are accepted, and which error
 * names the cause of each refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/redis/connection.h"
#include "base/redis/wire.h"
#include "tests/support/redis_server.h"
#include "tests/support/server_process.h"

enum { WAIT_MS = 10000, SHORT_MS = 300, BIG = 3 << 20 };

static char folder[] = "/tmp/lw-tls-XXXXXX";
static struct lw_test_redis *server;
static int port;

static const char *in_folder(const char *name, char out[64]) {
    snprintf(out, 64, "%s/%s", folder, name);
    return out;
}

static int start(void **state) {
    (void)state;
    char command[128], ca[64], cert[64], key[64], number[12];
    if (!mkdtemp(folder)) return -1;
    snprintf(command, sizeof command, "tests/support/certs.sh %s", folder);
    if (system(command)) return -1;
    port = lw_test_free_port();
    snprintf(number, sizeof number, "%d", port);
    server = lw_test_redis_start(
        (const char *[]){"--tls-port", number, "--tls-ca-cert-file", in_folder("ca.pem", ca),
                         "--tls-cert-file", in_folder("server.pem", cert), "--tls-key-file",
                         in_folder("server.key", key), "--tls-auth-clients", "optional", NULL});
    return server ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    char command[64];
    lw_test_redis_stop(server);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void configure(const char *name, const char *value) {
    redisContext *c = lw_test_redis_connect(server);
    redisReply *r = redisCommand(c, "CONFIG SET %s %s", name, value);
    assert_true(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    redisFree(c);
}

/* Makes the server use another certificate and key. One CONFIG SET changes both, because Redis
 * refuses a certificate and a key that do not match. */
static void present(const char *name) {
    char cert[64], key[64];
    redisContext *c = lw_test_redis_connect(server);
    snprintf(cert, sizeof cert, "%s/%s.pem", folder, name);
    snprintf(key, sizeof key, "%s/%s.key", folder, name);
    redisReply *r = redisCommand(c, "CONFIG SET tls-cert-file %s tls-key-file %s", cert, key);
    if (r->type == REDIS_REPLY_ERROR) fail_msg("%s", r->str);
    freeReplyObject(r);
    redisFree(c);
}

/* The settings of a client's connection. Files are given by their names in the folder of the
 * test. */
struct way {
    const char *host; /* host name or address to connect to; NULL means localhost */
    const char *ca, *cert, *key, *name;
    bool no_verify, plain;
    int wait_ms;
};

static char *full(const char *name) {
    char out[64];
    return name ? strdup(in_folder(name, out)) : NULL;
}

static struct lw_redis_url place(const struct way *w) {
    struct lw_redis_url at;
    char url[128];
    snprintf(url, sizeof url, "%s://%s:%d", w->plain ? "redis" : "rediss",
             w->host ? w->host : "localhost", port);
    assert_int_equal(lw_redis_url_parse(url, &at, NULL), 0);
    at.tls.ca_file = full(w->ca), at.tls.cert_file = full(w->cert), at.tls.key_file = full(w->key);
    at.tls.server_name = w->name ? strdup(w->name) : NULL;
    at.tls.no_verify = w->no_verify;
    return at;
}

/* Tries to connect. The error must contain the text `want`. If `want` is NULL, the connection must
 * succeed. */
static void try(const struct way *w, const char *want) {
    struct lw_redis_url at = place(w);
    struct lw_err why = {0};
    struct lw_redis *c =
        lw_redis_open(&at, "test", w->wait_ms ? w->wait_ms : WAIT_MS, WAIT_MS, &why);
    if (c && want) fail_msg("connected, want %s", want);
    if (!c && !want) fail_msg("%s", why.text);
    if (want && !strstr(why.text, want)) fail_msg("want %s, got %s", want, why.text);
    if (c) {
        redisReply *r = lw_redis_ask(c, "PING");
        assert_true(r && r->type == REDIS_REPLY_STATUS);
        freeReplyObject(r);
    }
    lw_redis_close(c);
    lw_redis_url_free(&at);
}

/* --- a caller that waits ---------------------------------------------------------------------- */

static void test_verified(void **state) {
    (void)state;
    try(&(struct way){.ca = "ca.pem"}, NULL);
    try(&(struct way){.host = "127.0.0.1", .ca = "ca.pem"}, NULL);
    try(&(struct way){.host = "127.0.0.1", .ca = "ca.pem", .name = "localhost"}, NULL);
    try(&(struct way){.no_verify = true}, NULL);
}

static void test_wrong_ca(void **state) {
    (void)state;
    try(&(struct way){.ca = "other-ca.pem"}, "signed by no CA that is trusted here");
    try(&(struct way){.ca = NULL}, "signed by no CA that is trusted here");
    try(&(struct way){.ca = "missing.pem"}, "missing.pem can't be read: No such file or directory");
    try(&(struct way){.ca = "ca.key"}, "ca.key can't be used");
}

static void test_wrong_name(void **state) {
    (void)state;
    try(&(struct way){.ca = "ca.pem", .name = "other.example"}, "is not for other.example");
    present("named");
    try(&(struct way){.ca = "ca.pem"}, "is not for localhost");
    try(&(struct way){.host = "127.0.0.1", .ca = "ca.pem"}, "is not for 127.0.0.1");
    try(&(struct way){.ca = "ca.pem", .name = "redis.internal"}, NULL);
    present("server");
}

static void test_expired(void **state) {
    (void)state;
    present("expired");
    try(&(struct way){.ca = "ca.pem"}, "has expired (");
    try(&(struct way){.no_verify = true}, NULL);
    present("server");
    try(&(struct way){.ca = "ca.pem"}, NULL);
}

static void test_client_certificate(void **state) {
    (void)state;
    configure("tls-auth-clients", "yes");
    try(&(struct way){.ca = "ca.pem", .cert = "client.pem", .key = "client.key"}, NULL);
    try(&(struct way){.ca = "ca.pem"}, "client certificate");
    try(&(struct way){.ca = "ca.pem", .cert = "stranger.pem", .key = "stranger.key"},
        "does not trust the CA of redis.tls.cert_file");
    try(&(struct way){.ca = "ca.pem", .cert = "client.pem", .key = "server.key"},
        "server.key can't be used");
    try(&(struct way){.ca = "ca.pem", .cert = "client.pem"}, "client.pem can't be used");
    configure("tls-auth-clients", "optional");
}

/* Tries TLS on a port without TLS, where some servers answer with an error and others stay silent.
 * Then tries a connection without TLS on a port with TLS. */
static void test_not_tls(void **state) {
    (void)state;
    char number[12];
    int tls = port;
    port = lw_test_free_port();
    snprintf(number, sizeof number, "%d", port);
    configure("port", number);
    try(&(struct way){.ca = "ca.pem", .wait_ms = SHORT_MS}, "speak TLS on this port");
    configure("port", "0");
    port = tls;
    try(&(struct way){.plain = true}, "if this port speaks TLS, write rediss://");
}

/* --- many bytes, and a connection that breaks ------------------------------------------------- */

struct story {
    struct lw_wire *wire;
    int ups, downs, replies;
    size_t bytes;
    char why[256];
};

static void on_up(void *ctx) { ((struct story *)ctx)->ups++; }
static void on_reply(void *ctx, const redisReply *r) {
    struct story *s = ctx;
    s->replies++;
    if (r->type == REDIS_REPLY_STRING) s->bytes += r->len;
}
static void on_down(void *ctx, const char *why) {
    struct story *s = ctx;
    s->downs++;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static void serve_until(struct story *s, const int *counter, int want) {
    int64_t until_ms = lw_boot_ms() + WAIT_MS;
    while (*counter < want) {
        struct pollfd p = lw_wire_poll(s->wire);
        int64_t wait_ms = lw_wire_due_ms(s->wire) - lw_boot_ms();
        poll(&p, 1, wait_ms < 0 ? 0 : wait_ms > 100 ? 100 : (int)wait_ms);
        lw_wire_serve(s->wire, p.revents);
        if (lw_boot_ms() > until_ms) fail_msg("%d of %d in time", *counter, want);
    }
}

static void kill_clients(void) {
    redisContext *c = lw_test_redis_connect(server);
    redisReply *r = redisCommand(c, "CLIENT KILL TYPE normal SKIPME yes");
    assert_true(r && r->type == REDIS_REPLY_INTEGER && r->integer >= 1);
    freeReplyObject(r);
    redisFree(c);
}

/* Sends pipelines and receives replies that are much larger than a TLS record and the buffers of
 * the socket. */
static void test_wire(void **state) {
    (void)state;
    struct way way = {.ca = "ca.pem"};
    struct lw_redis_url at = place(&way);
    struct story s = {0};
    struct lw_wire_setup setup = {.url = &at,
                                  .name = "test",
                                  .owner = "me",
                                  .up = on_up,
                                  .reply = on_reply,
                                  .down = on_down,
                                  .ctx = &s};
    char *big = malloc(BIG);
    memset(big, 'x', BIG);
    s.wire = lw_wire_open(&setup);
    serve_until(&s, &s.ups, 1);
    struct lw_commands c = {0};
    lw_cmd(&c, "CLIENT"), lw_arg_text(&c, "GETNAME");
    lw_wire_send(s.wire, &c);
    serve_until(&s, &s.replies, 1);
    assert_int_equal(s.bytes, strlen("latchwork:me:test"));
    lw_commands_reset(&c);
    s.replies = 0, s.bytes = 0;
    for (int i = 0; i < 4; i++) {
        lw_cmd(&c, "SET"), lw_arg_text(&c, "big"), lw_arg(&c, lw_bytes(big, BIG));
        lw_cmd(&c, "GET"), lw_arg_text(&c, "big");
    }
    lw_wire_send(s.wire, &c);
    serve_until(&s, &s.replies, 8);
    assert_int_equal(s.bytes, (size_t)4 * BIG);
    lw_wire_send(s.wire, &c);
    /* Cut the connection in the middle of a pipeline. */
    kill_clients();
    serve_until(&s, &s.downs, 1);
    serve_until(&s, &s.ups, 2);
    assert_true(s.replies < 16);
    lw_wire_close(s.wire);
    lw_commands_free(&c);
    free(big);
    lw_redis_url_free(&at);
}

/* Replaces the certificates while a wire is up. The wire stays up, and its next connection uses the
 * new certificates. */
static void test_replaced(void **state) {
    (void)state;
    struct way way = {.ca = "trusted.pem", .name = "redis.internal"};
    char command[256];
    snprintf(command, sizeof command, "cp %s/other-ca.pem %s/trusted.pem", folder, folder);
    assert_int_equal(system(command), 0);
    try(&way, "signed by no CA that is trusted here");
    snprintf(command, sizeof command, "cp %s/ca.pem %s/trusted.pem", folder, folder);
    assert_int_equal(system(command), 0);
    present("named");
    struct lw_redis_url at = place(&way);
    struct story s = {0};
    struct lw_wire_setup setup = {
        .url = &at, .name = "test", .up = on_up, .reply = on_reply, .down = on_down, .ctx = &s};
    s.wire = lw_wire_open(&setup);
    serve_until(&s, &s.ups, 1);
    snprintf(command, sizeof command, "cp %s/other-ca.pem %s/trusted.pem", folder, folder);
    assert_int_equal(system(command), 0);
    struct lw_commands c = {0};
    lw_cmd(&c, "PING");
    lw_wire_send(s.wire, &c);
    serve_until(&s, &s.replies, 1);
    kill_clients();
    serve_until(&s, &s.downs, 1);
    snprintf(command, sizeof command, "cp %s/ca.pem %s/trusted.pem", folder, folder);
    assert_int_equal(system(command), 0);
    serve_until(&s, &s.ups, 2);
    lw_wire_close(s.wire);
    lw_commands_free(&c);
    lw_redis_url_free(&at);
    present("server");
}

/* Tests that a server which accepts a connection but stays silent delays no caller beyond the
 * caller's time limit. */
static void test_silent(void **state) {
    (void)state;
    int tls = port, fd = lw_test_bound(&port);
    assert_int_equal(listen(fd, 5), 0);
    struct way way = {.host = "127.0.0.1", .ca = "ca.pem"};
    struct lw_redis_url at = place(&way);
    struct lw_err why = {0};
    assert_null(lw_redis_open(&at, NULL, 200, 200, &why));
    assert_non_null(strstr(why.text, "TLS handshake timed out after"));
    lw_redis_url_free(&at);
    close(fd);
    port = tls;
}

int main(void) {
    /* No code may cause a SIGPIPE. Restore the signal's default action, so that a SIGPIPE ends the
     * test. */
    signal(SIGPIPE, SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verified),
        cmocka_unit_test(test_wrong_ca),
        cmocka_unit_test(test_wrong_name),
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_client_certificate),
        cmocka_unit_test(test_not_tls),
        cmocka_unit_test(test_wire),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_silent),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
