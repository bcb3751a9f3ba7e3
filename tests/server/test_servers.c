/* SPDX-License-Identifier: Apache-2.0 */
/* Tests connections to servers named by Sentinels, with real Sentinels, masters and replicas on the
 * loopback interface. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/redis/connection.h"
#include "base/redis/servers.h"
#include "base/redis/wire.h"
#include "lock/client.h"
#include "tests/support/redis_server.h"
#include "tests/support/server_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* cmocka.h must be included after the preceding system headers */
#include <cmocka.h>

enum { LIMIT_MS = 30000, FIND_MS = 10000, HURRIED_MS = 1500 };

static char folder[] = "/tmp/lw-servers-XXXXXX";
static int server_port[2], sentinel_port;
/* At the beginning of each test, the Sentinel monitors server 0 under the name "m". */
static struct lw_test_redis *server[2];
static pid_t sentinel_pid;

/* --- servers ---------------------------------------------------------------------------------- */

static struct lw_test_redis *start_server(int port) {
    char number[12];
    snprintf(number, sizeof number, "%d", port);
    struct lw_test_redis *r =
        lw_test_redis_start((const char *[]){"--port", number, "--bind", "127.0.0.1", NULL});
    assert_non_null(r);
    return r;
}

static struct lw_redis_url place(int port) {
    return (struct lw_redis_url){.host = (char *)(uintptr_t) "127.0.0.1", .port = port};
}

/* Sends one command, whose words end with NULL, to the server at a port. The reply must not be an
 * error. */
static void say(int port, const char *const *words) {
    struct lw_redis_url at = place(port);
    struct lw_err err = {0};
    int n = 0;
    while (words[n]) n++;
    struct lw_redis *c = lw_redis_open(&at, NULL, LIMIT_MS, LIMIT_MS, &err);
    if (!c) fail_msg("port %d: %s", port, err.text);
    redisReply *r = lw_redis_ask_argv(c, n, (const char **)(uintptr_t)words, NULL);
    if (!r || r->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", words[0], r ? r->str : c->why);
    freeReplyObject(r);
    lw_redis_close(c);
}
#define SAY(port, ...) say(port, (const char *const[]){__VA_ARGS__, NULL})

static void run_sentinel(const char *file, pid_t parent) {
    char *argv[] = {"redis-server", (char *)(uintptr_t)file, "--sentinel", NULL};
    lw_test_exec(parent, SIGKILL, lw_test_redis_program(), argv);
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static bool listens(int port) {
    struct lw_redis_url at = place(port);
    struct lw_stream s;
    bool up = !lw_stream_open(&s, &at, LIMIT_MS, NULL);
    lw_stream_close(&s);
    return up;
}

/* Starts a Sentinel that monitors server 0 as "m". `more` contains additional lines of
 * configuration. */
static pid_t start_sentinel(int port, const char *more) {
    char file[100];
    snprintf(file, sizeof file, "%s/%d.conf", folder, port);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f,
            "bind 127.0.0.1\ndir %s\nlogfile %s/%d.log\n%s\nsentinel monitor m 127.0.0.1 %d "
            "1\nsentinel down-after-milliseconds m 300\n"
            "sentinel failover-timeout m 3000\n",
            folder, folder, port, more, server_port[0]);
    assert_int_equal(fclose(f), 0);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) run_sentinel(file, parent);
    assert_true(pid > 0);
    for (int64_t until = lw_boot_ms() + LIMIT_MS; !listens(port); pause_ms(5))
        assert_true(lw_boot_ms() < until);
    return pid;
}

static void end_sentinel(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static pid_t plain_sentinel(int port) {
    char more[64];
    snprintf(more, sizeof more, "port %d", port);
    return start_sentinel(port, more);
}

static int start(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < 2; i++) server[i] = start_server(server_port[i] = lw_test_free_port());
    sentinel_pid = plain_sentinel(sentinel_port = lw_test_free_port());
    return 0;
}

static int stop(void **state) {
    (void)state;
    char command[64];
    end_sentinel(sentinel_pid);
    for (int i = 0; i < 2; i++) lw_test_redis_stop(server[i]);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void monitor(int i) {
    char port[12];
    snprintf(port, sizeof port, "%d", server_port[i]);
    SAY(sentinel_port, "SENTINEL", "MONITOR", "m", "127.0.0.1", port, "1");
}

/* Makes the Sentinel report server i as the master "m" from now on. */
static void name_master(int i) {
    SAY(sentinel_port, "SENTINEL", "REMOVE", "m");
    monitor(i);
}

/* Makes server i a replica of the other server, as a failover does, but without closing the
 * connections of clients. */
static void demote(int i) {
    char port[12];
    snprintf(port, sizeof port, "%d", server_port[!i]);
    SAY(server_port[i], "REPLICAOF", "127.0.0.1", port);
}

static int begin(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) SAY(server_port[i], "REPLICAOF", "NO", "ONE");
    name_master(0);
    return 0;
}

/* --- asking ----------------------------------------------------------------------------------- */

static struct lw_redis_servers sentinels(const char *master, const int *ports, size_t n) {
    struct lw_redis_servers s = {.kind = LW_REDIS_SENTINEL,
                                 .n = n,
                                 .at = lw_alloc(n * sizeof *s.at),
                                 .master = lw_strdup(master)};
    for (size_t i = 0; i < n; i++)
        s.at[i] = (struct lw_redis_url){
            .host = lw_strdup("127.0.0.1"), .port = ports[i], .via = LW_VIA_SENTINEL};
    return s;
}

static struct lw_redis_servers one_sentinel(void) {
    return sentinels("m", (int[]){sentinel_port}, 1);
}

static void find(struct lw_redis_servers *s, int port) {
    struct lw_redis_url at;
    struct lw_err err = {0};
    if (lw_redis_servers_find(s, 0, FIND_MS, &at, &err)) fail_msg("%s", err.text);
    assert_string_equal(at.host, "127.0.0.1");
    assert_int_equal(at.port, port);
    assert_true(at.only_master);
    lw_redis_url_free(&at);
}

static void refuse(struct lw_redis_servers *s, const char *why) {
    struct lw_redis_url at;
    struct lw_err err = {0};
    assert_int_equal(lw_redis_servers_find(s, 0, FIND_MS, &at, &err), -1);
    if (!strstr(err.text, why)) fail_msg("\"%s\" is not in: %s", why, err.text);
    assert_null(at.host);
}

static void the_login_goes_to_the_master(void **state) {
    (void)state;
    struct lw_redis_servers s = one_sentinel();
    struct lw_redis_url at;
    s.login = (struct lw_redis_url){
        .user = lw_strdup("u"), .password = lw_strdup("p"), .db = 3, .tls.on = true};
    assert_int_equal(lw_redis_servers_find(&s, 5, FIND_MS, &at, NULL), 0);
    assert_string_equal(at.user, "u");
    assert_string_equal(at.password, "p");
    assert_int_equal(at.db, 3);
    assert_true(at.tls.on && at.only_master);
    assert_int_equal(lw_redis_servers_count(&s), 1);
    lw_redis_url_free(&at);
    lw_redis_servers_free(&s);
}

static void a_name_that_is_unknown(void **state) {
    (void)state;
    struct lw_redis_servers s = sentinels("other", (int[]){sentinel_port}, 1);
    refuse(&s, "no Sentinel names the master \"other\"");
    refuse(&s, "correct redis.sentinel.master");
    lw_redis_servers_free(&s);
}

/* The first Sentinel refuses connections, and the second accepts connections but never answers.
 * These two must not use up the time limit of lw_redis_servers_find(). The next call of this
 * function must begin with the third Sentinel, which answers. */
static void dead_sentinels_before_a_live_one(void **state) {
    (void)state;
    int silent_port, silent = lw_test_bound(&silent_port);
    assert_int_equal(listen(silent, 8), 0);
    struct lw_redis_servers s =
        sentinels("m", (int[]){lw_test_free_port(), silent_port, sentinel_port}, 3);
    struct lw_redis_url at;
    assert_int_equal(lw_redis_servers_find(&s, 0, HURRIED_MS, &at, NULL), 0);
    lw_redis_url_free(&at);
    assert_int_equal(atomic_load(&s.first), 2);
    find(&s, server_port[0]);
    lw_redis_servers_doubt(&s);
    assert_int_equal(atomic_load(&s.first) % s.n, 0);
    lw_redis_servers_free(&s);
    close(silent);
}

static void each_failure_is_named(void **state) {
    (void)state;
    char first[32], second[32];
    int ports[] = {lw_test_free_port(), lw_test_free_port()};
    struct lw_redis_servers s = sentinels("m", ports, 2);
    snprintf(first, sizeof first, "127.0.0.1:%d: Connection refused", ports[0]);
    snprintf(second, sizeof second, "127.0.0.1:%d: Connection refused", ports[1]);
    refuse(&s, first);
    refuse(&s, second);
    lw_redis_servers_free(&s);
}

static void a_sentinel_with_a_password(void **state) {
    (void)state;
    char more[128];
    int port = lw_test_free_port();
    snprintf(more, sizeof more, "port %d\nrequirepass secret", port);
    pid_t pid = start_sentinel(port, more);
    struct lw_redis_servers s = sentinels("m", &port, 1);
    refuse(&s, "set redis.sentinel.password");
    s.at[0].password = lw_strdup("guess");
    refuse(&s, "correct redis.sentinel.username and redis.sentinel.password");
    free(s.at[0].password);
    s.at[0].password = lw_strdup("secret");
    find(&s, server_port[0]);
    /* Use the Sentinel that has no password. */
    s.at[0].port = sentinel_port;
    refuse(&s, "its default user has no password; name another user, or leave the password out: "
               "redis.sentinel.username and");
    lw_redis_servers_free(&s);
    end_sentinel(pid);
}

static void a_sentinel_with_tls(void **state) {
    (void)state;
    char command[128], more[600];
    int port = lw_test_free_port();
    snprintf(command, sizeof command, "tests/support/certs.sh %s", folder);
    assert_int_equal(system(command), 0);
    snprintf(more, sizeof more,
             "port 0\ntls-port %d\ntls-ca-cert-file %s/ca.pem\ntls-cert-file "
             "%s/server.pem\ntls-key-file %s/server.key\ntls-auth-clients no",
             port, folder, folder, folder);
    pid_t pid = start_sentinel(port, more);
    struct lw_redis_servers s = sentinels("m", &port, 1);
    refuse(&s, "set redis.sentinel.tls");
    snprintf(command, sizeof command, "%s/ca.pem", folder);
    s.at[0].tls = (struct lw_tls){
        .on = true, .ca_file = lw_strdup(command), .server_name = lw_strdup("localhost")};
    find(&s, server_port[0]);
    lw_redis_servers_free(&s);
    end_sentinel(pid);
}

/* If the caller gives an address together with the host name, the name is not resolved, because
 * resolving could block. The name is still used to check the certificate, and in errors. */
static void an_address_needs_no_resolver(void **state) {
    (void)state;
    struct lw_stream s;
    struct lw_redis_url at = {.host = (char *)(uintptr_t) "nowhere.invalid",
                              .port = server_port[0]};
    assert_int_equal(lw_stream_open(&s, &at, LIMIT_MS, NULL), -1);
    at.address = (char *)(uintptr_t) "127.0.0.1";
    assert_int_equal(lw_stream_open(&s, &at, LIMIT_MS, NULL), 0);
    lw_stream_close(&s);
}

static struct lw_redis_url ask_finder(struct lw_redis_servers servers, struct lw_err *err) {
    struct lw_redis_url at;
    struct lw_finder *finder = lw_finder_open(&servers, NULL);
    struct lw_finding *q = lw_finding_open(finder, 0);
    lw_finding_ask(q);
    for (int64_t until = lw_boot_ms() + LIMIT_MS; lw_finding_take(q, &at, err) == 0; pause_ms(2))
        assert_true(lw_boot_ms() < until);
    lw_finding_close(q);
    lw_finder_close(finder);
    return at;
}

/* With announce-hostnames, a Sentinel reports the master's host name instead of its address. The
 * finder resolves the name. */
static void the_finder_resolves_names(void **state) {
    (void)state;
    char more[128], port_text[12];
    int port = lw_test_free_port();
    snprintf(more, sizeof more,
             "port %d\nsentinel resolve-hostnames yes\nsentinel announce-hostnames yes", port);
    pid_t pid = start_sentinel(port, more);
    snprintf(port_text, sizeof port_text, "%d", server_port[0]);
    SAY(port, "SENTINEL", "MONITOR", "named", "localhost", port_text, "1");
    struct lw_err err = {0};
    struct lw_redis_url at = ask_finder(sentinels("named", &port, 1), &err);
    assert_string_equal(err.text, "");
    assert_string_equal(at.host, "localhost");
    assert_string_equal(at.address, "127.0.0.1");
    lw_redis_url_free(&at);
    end_sentinel(pid);
}

/* --- wires ------------------------------------------------------------------------------------ */

struct seen {
    struct lw_finder *finder;
    struct lw_wire *wire;
    int ups, downs;
    char why[256], text[64];
};

static void on_up(void *ctx) { ((struct seen *)ctx)->ups++; }

static void on_down(void *ctx, const char *why) {
    struct seen *s = ctx;
    s->downs++;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static void on_reply(void *ctx, const redisReply *r) {
    struct seen *s = ctx;
    snprintf(s->text, sizeof s->text, "%s", r->str ? r->str : "");
}

static void open_wire(struct seen *s, struct lw_redis_servers servers) {
    *s = (struct seen){.finder = lw_finder_open(&servers, NULL)};
    assert_non_null(s->finder);
    assert_null(servers.at);
    struct lw_wire_setup setup = {.finder = s->finder,
                                  .name = "test",
                                  .backoff_max_ms = 100,
                                  .up = on_up,
                                  .reply = on_reply,
                                  .down = on_down,
                                  .ctx = s};
    s->wire = lw_wire_open(&setup);
}

static void close_wire(struct seen *s) {
    lw_wire_close(s->wire);
    lw_finder_close(s->finder);
}

static void turn(struct seen *s) {
    int64_t left = lw_wire_due_ms(s->wire) - lw_boot_ms();
    struct pollfd p = lw_wire_poll(s->wire);
    poll(&p, 1, left < 0 ? 0 : left > 20 ? 20 : (int)left);
    lw_wire_serve(s->wire, p.revents);
}

#define UNTIL(s, condition)                                                       \
    for (int64_t until_ = lw_boot_ms() + LIMIT_MS; !(condition); turn(s))         \
        if (lw_boot_ms() > until_)                                                \
    fail_msg("never: %s (ups %d downs %d, %s)", #condition, (s)->ups, (s)->downs, \
             lw_wire_trouble((s)->wire) ? lw_wire_trouble((s)->wire) : "")

static void set_on(struct seen *s, const char *value) {
    struct lw_commands c = {0};
    s->text[0] = '\0';
    lw_cmd(&c, "SET"), lw_arg_text(&c, "k"), lw_arg_text(&c, value);
    lw_wire_send(s->wire, &c);
    lw_commands_free(&c);
}

static void expect_on(int i, const char *value) {
    struct lw_redis_url at = place(server_port[i]);
    struct lw_redis *c = lw_redis_open(&at, NULL, LIMIT_MS, LIMIT_MS, NULL);
    redisReply *r = lw_redis_ask(c, "GET k");
    assert_non_null(r);
    assert_string_equal(r->str ? r->str : "(nothing)", value);
    freeReplyObject(r);
    lw_redis_close(c);
}

/* The master becomes a replica while the wire is up, and refuses a write. The wire must not pass on
 * the refusal as a reply, and the write must go to the new master. */
static void a_master_that_was_demoted(void **state) {
    (void)state;
    struct seen s;
    open_wire(&s, one_sentinel());
    UNTIL(&s, s.ups == 1);
    set_on(&s, "before");
    UNTIL(&s, s.text[0]);
    expect_on(0, "before");
    demote(0);
    set_on(&s, "lost");
    UNTIL(&s, s.downs == 1);
    name_master(1);
    UNTIL(&s, s.ups == 2);
    assert_int_equal(s.downs, 1);
    assert_non_null(strstr(s.why, "READONLY"));
    assert_string_equal(s.text, "");
    set_on(&s, "after");
    UNTIL(&s, s.text[0]);
    assert_string_equal(s.text, "OK");
    expect_on(1, "after");
    close_wire(&s);
}

/* After a planned failover, the old master serves its clients for about ten seconds. The wire must
 * leave it, and must stay up while no Sentinel answers. */
static void an_old_master_that_serves(void **state) {
    (void)state;
    struct seen s;
    open_wire(&s, one_sentinel());
    UNTIL(&s, s.ups == 1);
    SAY(sentinel_port, "SENTINEL", "REMOVE", "m");
    for (int64_t until = lw_boot_ms() + 2500; lw_boot_ms() < until;) turn(&s);
    assert_int_equal(s.downs, 0);
    monitor(1);
    UNTIL(&s, s.ups == 2);
    assert_int_equal(s.downs, 1);
    assert_non_null(strstr(s.why, "the Sentinels name another master, 127.0.0.1:"));
    set_on(&s, "after");
    UNTIL(&s, s.text[0]);
    expect_on(1, "after");
    close_wire(&s);
}

/* A Sentinel that does not know of a failover yet names a server that is now a replica. The finder
 * must not accept this server as the master. */
static void a_replica_is_no_master(void **state) {
    (void)state;
    struct seen s;
    demote(0);
    open_wire(&s, one_sentinel());
    UNTIL(&s, lw_wire_trouble(s.wire));
    assert_non_null(strstr(lw_wire_trouble(s.wire), "its role is slave"));
    assert_int_equal(s.ups, 0);
    SAY(server_port[0], "REPLICAOF", "NO", "ONE");
    UNTIL(&s, s.ups == 1);
    close_wire(&s);
}

static void no_sentinel_answers(void **state) {
    (void)state;
    struct seen s;
    open_wire(&s, sentinels("m", (int[]){lw_test_free_port()}, 1));
    UNTIL(&s, lw_wire_trouble(s.wire));
    assert_non_null(strstr(lw_wire_trouble(s.wire), "no Sentinel names the master"));
    close_wire(&s);
}

/* Tests that closing the finder does not wait until the finder has found the master, even if the
 * Sentinel is silent. */
static void closed_in_a_search(void **state) {
    (void)state;
    struct seen s;
    int port, silent = lw_test_bound(&port);
    assert_int_equal(listen(silent, 8), 0);
    open_wire(&s, sentinels("m", &port, 1));
    for (int i = 0; i < 3; i++) turn(&s);
    assert_int_equal(lw_wire_poll(s.wire).events, POLLIN);
    lw_wire_connect(s.wire);
    for (int i = 0; i < 3; i++) turn(&s);
    close(silent);
    close_wire(&s);
    assert_int_equal(s.ups, 0);
}

static bool knows_the_replica(void) {
    struct lw_redis_url at = place(sentinel_port);
    struct lw_redis *c = lw_redis_open(&at, NULL, LIMIT_MS, LIMIT_MS, NULL);
    redisReply *r = lw_redis_ask(c, "SENTINEL REPLICAS m");
    assert_non_null(r);
    bool known = r->elements == 1;
    freeReplyObject(r);
    lw_redis_close(c);
    return known;
}

/* Tests a real failover: the master is killed, and its replica takes over. */
static void a_master_that_is_killed(void **state) {
    (void)state;
    struct seen s;
    demote(1);
    for (int64_t until = lw_boot_ms() + LIMIT_MS; !knows_the_replica(); pause_ms(300)) {
        assert_true(lw_boot_ms() < until);
        /* Name the master to the Sentinel anew, because a Sentinel asks a new master for its
         * replicas at once, and a known master only every ten seconds. */
        name_master(0);
    }
    SAY(sentinel_port, "SENTINEL", "SET", "m", "down-after-milliseconds", "300");
    open_wire(&s, one_sentinel());
    UNTIL(&s, s.ups == 1);
    lw_test_redis_kill(server[0]);
    UNTIL(&s, s.ups == 2);
    set_on(&s, "taken over");
    UNTIL(&s, s.text[0]);
    assert_string_equal(s.text, "OK");
    expect_on(1, "taken over");
    close_wire(&s);
    assert_true(lw_test_redis_restart(server[0]));
}

/* --- the lock library ------------------------------------------------------------------------- */

static bool sets(struct latchwork_client *c, struct latchwork_error *error) {
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_text(&call, "SET"), lw_call_text(&call, "k"), lw_call_text(&call, "by the client");
    redisReply *r = lw_client_call(c, &call, error);
    if (r) freeReplyObject(r);
    return r;
}

static void a_client_finds_the_new_master(void **state) {
    (void)state;
    struct lw_redis_servers servers = one_sentinel();
    struct latchwork_error error = {0};
    struct latchwork_client *c = lw_client_open_servers(&servers, 0, "master \"m\"", &error);
    assert_non_null(c);
    assert_null(servers.at);
    assert_true(sets(c, &error));
    name_master(1);
    demote(0);
    assert_false(sets(c, &error));
    assert_int_equal(error.code, LATCHWORK_E_READONLY);
    assert_true(lw_may_pass(&error));
    if (!sets(c, &error)) fail_msg("%s", error.text);
    expect_on(1, "by the client");
    latchwork_client_close(c);
}

static struct latchwork_client *open_by_sentinels(const struct latchwork_sentinels *more) {
    struct latchwork_error error;
    char at[2][32];
    const char *const addresses[] = {at[0], at[1]};
    struct latchwork_sentinels s =
        more ? *more : (struct latchwork_sentinels){LATCHWORK_SENTINELS_INIT};
    /* the first address has a port at which no Sentinel listens */
    snprintf(at[0], sizeof at[0], "127.0.0.1:%d", lw_test_free_port());
    snprintf(at[1], sizeof at[1], "127.0.0.1:%d", sentinel_port);
    s.addresses = addresses;
    s.n_addresses = 2;
    if (!s.master) s.master = "m";
    const struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .sentinels = &s};
    struct latchwork_client *c = latchwork_client_open(NULL, &o, &error);
    if (!c) fail_msg("%s", error.text);
    return c;
}

static void a_sentinel_that_knows_no_such_master(void **state) {
    (void)state;
    struct latchwork_error error;
    struct latchwork_client *c = open_by_sentinels(
        &(struct latchwork_sentinels){LATCHWORK_SENTINELS_INIT, .master = "other"});
    assert_int_equal(latchwork_client_ping(c, &error), LATCHWORK_LOCK_ERROR);
    assert_int_equal(error.code, LATCHWORK_E_CONNECT);
    assert_non_null(strstr(error.text, "it knows no master of this name"));
    latchwork_client_close(c);
}

/* Checks the hold repeatedly until a master answers. Returns the result of the last check. */
static enum latchwork_result check(struct latchwork_hold *hold, struct latchwork_error *error) {
    for (int64_t until = lw_boot_ms() + LIMIT_MS;; pause_ms(20)) {
        enum latchwork_result result = latchwork_hold_check(hold, error);
        if (result != LATCHWORK_LOCK_ERROR) return result;
        if (lw_boot_ms() > until) fail_msg("%s", error->text);
    }
}

/* The master that stores a held lock is killed. The lock may be kept or lost, but the next holder
 * must get a larger fence. */
static void a_lock_whose_master_is_killed(void **state) {
    (void)state;
    struct latchwork_error error = {0};
    demote(1);
    for (int64_t until = lw_boot_ms() + LIMIT_MS; !knows_the_replica(); pause_ms(300)) {
        assert_true(lw_boot_ms() < until);
        name_master(0);
    }
    SAY(sentinel_port, "SENTINEL", "SET", "m", "down-after-milliseconds", "300");
    struct latchwork_client *c = open_by_sentinels(NULL);
    const struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                             .ttl_ms = LIMIT_MS};
    struct latchwork_lock *lock = latchwork_lock_open(c, "l", &o, &error);
    assert_non_null(lock);
    struct latchwork_hold *hold;
    assert_int_equal(latchwork_lock_try(lock, &hold, &error), LATCHWORK_LOCK_OK);
    uint64_t fence = latchwork_hold_fence(hold);
    lw_test_redis_kill(server[0]);
    enum latchwork_result result = check(hold, &error);
    print_message("the lock is %s\n", result == LATCHWORK_LOCK_OK ? "kept" : "lost");
    latchwork_hold_release(hold, &error);
    assert_int_equal(latchwork_lock_acquire(lock, LIMIT_MS, &hold, &error), LATCHWORK_LOCK_OK);
    assert_true(latchwork_hold_fence(hold) > fence);
    assert_int_equal(latchwork_hold_release(hold, &error), LATCHWORK_LOCK_OK);
    latchwork_lock_close(lock);
    latchwork_client_close(c);
    assert_true(lw_test_redis_restart(server[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_login_goes_to_the_master, begin),
        cmocka_unit_test_setup(a_name_that_is_unknown, begin),
        cmocka_unit_test_setup(dead_sentinels_before_a_live_one, begin),
        cmocka_unit_test_setup(each_failure_is_named, begin),
        cmocka_unit_test_setup(a_sentinel_with_a_password, begin),
        cmocka_unit_test_setup(a_sentinel_with_tls, begin),
        cmocka_unit_test_setup(an_address_needs_no_resolver, begin),
        cmocka_unit_test_setup(the_finder_resolves_names, begin),
        cmocka_unit_test_setup(a_master_that_was_demoted, begin),
        cmocka_unit_test_setup(an_old_master_that_serves, begin),
        cmocka_unit_test_setup(a_replica_is_no_master, begin),
        cmocka_unit_test_setup(no_sentinel_answers, begin),
        cmocka_unit_test_setup(closed_in_a_search, begin),
        cmocka_unit_test_setup(a_client_finds_the_new_master, begin),
        cmocka_unit_test_setup(a_sentinel_that_knows_no_such_master, begin),
        cmocka_unit_test_setup(a_lock_whose_master_is_killed, begin),
        cmocka_unit_test_setup(a_master_that_is_killed, begin),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
