/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the http handler with a real server in Python. The payload of a message says how the server
 * answers. */
#include "tests/support/feed_fixture.h"
#include "tests/support/server_process.h"

#include "handlers/http/private.h"

#include <signal.h>
#include <sys/wait.h>

/* The script is a server with one thread per connection. It records each connection, request and
 * broken transfer in files. */
static const char script[] =
    "import sys, json, os, select, time\n"
    "from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer\n"
    "here, port = sys.argv[1], int(sys.argv[2])\n"
    "def note(name, line):\n"
    "    with open(here + '/' + name, 'a') as f: f.write(line + '\\n')\n"
    "def wait(until):\n"
    "    if until != 'go': return time.sleep(float(until))\n"
    "    while not os.path.exists(here + '/go'): time.sleep(0.01)\n"
    "class H(BaseHTTPRequestHandler):\n"
    "    protocol_version = 'HTTP/1.1'\n"
    "    disable_nagle_algorithm = True\n"
    "    def setup(self): super().setup(); note('connections', 'one')\n"
    "    def log_message(self, *a): pass\n"
    "    def answer(self, status, body=b'', **headers):\n"
    "        self.send_response(status)\n"
    "        for k, v in headers.items(): self.send_header(k.replace('_', '-'), v)\n"
    "        self.send_header('Content-Length', str(len(body)))\n"
    "        self.end_headers()\n"
    "        self.wfile.write(body)\n"
    "    def refuse(self):\n"
    "        self.answer(413, b'too big'); self.close_connection = True\n"
    "        self.wfile.flush(); self.connection.shutdown(1)\n"
    "        while self.rfile.read1(65536): pass\n"
    "    def do_POST(self):\n"
    "        if os.path.exists(here + '/refuse'): return self.refuse()\n"
    "        body = self.rfile.read(int(self.headers['Content-Length'])).decode()\n"
    "        note('requests', '%s %s %s' % (self.headers.get('ce-id', '-'), "
    "self.headers['Content-Type'], body[:100]))\n"
    "        if os.path.exists(here + '/leave') and getattr(self, 'old', False): "
    "self.close_connection = True; return\n"
    "        self.old = True\n"
    "        if body.startswith('['): return self.batch(json.loads(body))\n"
    "        what, *args = body.split(' ', 2)\n"
    "        if what == 'status': return self.answer(int(args[0]), b'why')\n"
    "        if what == 'later': return self.answer(int(args[0]), b'', Retry_After=args[1])\n"
    "        if what == 'body': return self.answer(int(args[0]), args[1].encode())\n"
    "        if what == 'slow':\n"
    "            note('slow', 'begins'); wait(args[0])\n"
    "            try: self.connection.send(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'); "
    "note('slow', 'ended')\n"
    "            except OSError: note('slow', 'broken')\n"
    "            return\n"
    "        if what == 'hang-up': self.close_connection = True; return\n"
    "        if what == 'half': self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: "
    "9\\r\\n\\r\\nhalf'); self.close_connection = True; "
    "return\n"
    "        if what == 'huge': return self.answer(200, b'x' * 2000000)\n"
    "        if what == 'head': return self.answer(200, b'', **{'X_%d' % i: 'x' * 900 for i in "
    "range(90)})\n"
    "        if what == 'raw': self.wfile.write(body[4:].replace('~', '\\r\\n').encode()); "
    "self.close_connection = os.path.exists(here + '/end'); return\n"
    "        if what == 'second':\n"
    "            self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'); "
    "time.sleep(float(args[0]))\n"
    "            try: self.wfile.write(b'HTTP/1.1 422 No\\r\\nContent-Length: 0\\r\\n\\r\\n')\n"
    "            except OSError: pass\n"
    "            note('second', 'sent'); return\n"
    "        if what in ('rest', 'late-rest'):\n"
    "            self.wfile.write(b'HTTP/1.1 204 No\\r\\n\\r\\n')\n"
    "            if what == 'rest': time.sleep(0.1)\n"
    "            else: select.select([self.connection], [], [])\n"
    "            try: self.wfile.write(args[0].encode())\n"
    "            except OSError: pass\n"
    "            note('rest', 'sent'); return\n"
    "        if what == 'late-hang-up': time.sleep(float(args[0])); self.close_connection = True; "
    "return\n"
    "        if what == 'to-the-end': self.wfile.write(b'HTTP/1.0 200 "
    "OK\\r\\n\\r\\n{\"outcome\":\"done\"}'); self.close_connection = "
    "True; return\n"
    "        if what == 'length': return self.answer(200 if len(body) == int(args[0]) else 400)\n"
    "        if what == 'garbage': self.wfile.write(b'hello\\r\\n\\r\\n'); self.close_connection = "
    "True; return\n"
    "        self.answer(200)\n"
    "    def batch(self, events):\n"
    "        data = [e['data'] for e in events]\n"
    "        if 'bad' in data: return self.answer(400)\n"
    "        if 'split' in data:\n"
    "            answers = [{'id': e['id'], 'outcome': 'retry' if e['data'] == 'split' else "
    "'done'} for e in events]\n"
    "            return self.answer(200, json.dumps({'batch': answers}).encode())\n"
    "        self.answer(204)\n"
    "class S(ThreadingHTTPServer):\n"
    "    daemon_threads = True\n"
    "    def handle_error(self, *a): pass\n"
    "    request_queue_size = 128\n"
    "s = S(('127.0.0.1', port), H)\n"
    "if os.path.exists(here + '/server.pem'):\n"
    "    import ssl\n"
    "    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
    "    tls.load_cert_chain(here + '/server.pem', here + '/server.key')\n"
    "    s.socket = tls.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)\n"
    "with open(here + '/port.new', 'w') as f: f.write(str(s.server_address[1]))\n"
    "os.rename(here + '/port.new', here + '/port')\n"
    "s.serve_forever()\n";

static struct {
    int port;
    pid_t pid;
} server;

static bool listens(struct fx *x) {
    char *text = slurp(x, "port");
    server.port = atoi(text);
    free(text);
    return server.port > 0;
}

static void start_server(struct fx *x) {
    char path[256], port[16];
    snprintf(path, sizeof path, "%s/server.py", x->folder);
    snprintf(port, sizeof port, "%d", server.port);
    fx_write(path, script);
    pid_t parent = getpid();
    server.pid = fork();
    assert_true(server.pid >= 0);
    if (server.pid == 0) {
        char *argv[] = {"python3", "-S", path, x->folder, port, NULL};
        lw_test_exec(parent, SIGKILL, argv[0], argv);
    }
    snprintf(path, sizeof path, "%s/port", x->folder);
    unlink(path);
    wait_for(listens(x));
}

static void stop_server(void) {
    kill(server.pid, SIGKILL);
    waitpid(server.pid, NULL, 0);
}

/* Makes the folder, starts the server with TLS, and opens the handler. */
static void open_tls(struct fx *x, int in_flight) {
    char command[512];
    make_folder(x);
    snprintf(command, sizeof command, "tests/support/certs.sh %s", x->folder);
    assert_int_equal(system(command), 0);
    server.port = 0;
    start_server(x);
    x->c = fx_config("{\"url\":\"https://127.0.0.1:%d/x\",\"in_flight\":%d,"
                     "\"tls\":{\"ca_file\":\"%s/ca.pem\"}}",
                     server.port, in_flight, x->folder);
    x->c->handler.timeout_ms = 10000;
    start_handler(x, &lw_handler_http);
}

/* Starts the server and opens the handler. `more` contains further keys of the configuration
 * section, each with a comma before it. */
/* margin_ms: how long before the end of a lease a request is aborted; 0: as usual */
static void open_fx_margin(struct fx *x, int in_flight, const char *more, int64_t margin_ms) {
    make_folder(x);
    server.port = 0;
    start_server(x);
    x->c = fx_config(
        "{\"url\":\"http://127.0.0.1:%d/x\",\"in_flight\":%d,\"connect_timeout_ms\":2000%s}",
        server.port, in_flight, more);
    if (!x->c->handler.timeout_ms) x->c->handler.timeout_ms = 10000;
    open_handler(x, &lw_handler_http);
    if (margin_ms) x->h->margin_ms = margin_ms;
    serve_handler(x);
}

static void open_fx(struct fx *x, int in_flight, const char *more) {
    open_fx_margin(x, in_flight, more, 0);
}

static void close_fx(struct fx *x) {
    stop_handler(x);
    stop_server();
    fx_remove(x->folder);
}

/* Makes an empty file. The server behaves differently while a file of this name exists. */
static void make_file(const struct fx *x, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", x->folder, name);
    fx_write(path, "");
}

static const char *reason(const struct fx *x, int i) { return x->j[i].job.reason; }

static enum lw_outcome run(struct fx *x, int i, const char *payload) {
    submit(x, i, payload);
    await(x, 1);
    return outcome(x, i);
}

static uint64_t requests(struct fx *x, int code) { return atomic_load(&x->counts.requests[code]); }

/* --- answers ---------------------------------------------------------------------------------- */

static void test_outcomes(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    assert_int_equal(run(&x, 2, "status 422"), LW_DEAD);
    assert_string_equal(reason(&x, 2), "the service answered 422: why");
    assert_int_equal(run(&x, 3, "status 409"), LW_BACK);
    assert_int_equal(run(&x, 4, "later 503 7"), LW_RETRY);
    assert_int_equal(x.j[4].job.wait_ms, 7000);
    assert_int_equal(run(&x, 5, "body 200 {\"outcome\":\"dead\",\"reason\":\"no\"}"), LW_DEAD);
    assert_string_equal(reason(&x, 5), "no");
    assert_int_equal(run(&x, 6, "status 302"), LW_RETRY);
    assert_int_equal(run(&x, 7, NULL), LW_DONE);
    assert_int_equal(run(&x, 8, ""), LW_DONE);
    assert_int_equal(count(&x, "requests", "t/0/7 None \n"), 1);
    assert_int_equal(count(&x, "requests", "t/0/8 application/json \n"), 1);
    /* all requests so far used one connection */
    assert_int_equal(count(&x, "connections", "one"), 1);
    assert_int_equal(atomic_load(&x.counts.connections), 1);
    assert_int_equal(requests(&x, lw_http_code_of(422)), 1);
    assert_int_equal(requests(&x, lw_http_code_of(200)), 4);
    /* the status says done, but the body was meant to say something else */
    assert_int_equal(run(&x, 9, "body 200 {\"outcome\":\"dead\""), LW_RETRY);
    assert_contains(reason(&x, 9), "cannot be read");
    close_fx(&x);
}

/* If a response is incomplete, malformed or too long, the message must be tried again, and the
 * handler must keep working. */
static void test_malformed_answers(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    static const struct {
        const char *payload, *reason;
    } cases[] = {{"hang-up", "no answer from http://127.0.0.1:"},
                 {"half", "no answer from http://127.0.0.1:"},
                 {"garbage", "no answer from http://127.0.0.1:"},
                 {"huge", "the answer is longer than 1 MiB"},
                 {"head", "the answer is longer than 1 MiB, or its headers than 64 KiB"}};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run(&x, i, cases[i].payload), LW_RETRY);
        assert_contains(reason(&x, i), cases[i].reason);
        assert_int_equal(run(&x, 10 + i, "ok"), LW_DONE);
    }
    assert_int_equal(requests(&x, LW_HTTP_BROKEN), 5);
    close_fx(&x);
}

/* --- connections ------------------------------------------------------------------------------ */

static uint64_t connections(struct fx *x) { return atomic_load(&x->counts.connections); }

/* The handler must recognize the end of a response in each form that a service may use. The
 * connection must be used again only if the service allows it. */
static void test_kinds_of_answers(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    assert_int_equal(
        run(&x, 1, "raw HTTP/1.1 200 x~Transfer-Encoding: chunked~~5~more than five~0~~"),
        LW_RETRY);
    assert_int_equal(run(&x, 2, "raw HTTP/1.1 100 Continue~~HTTP/1.1 204 x~~"), LW_DONE);
    assert_int_equal(
        run(&x, 3,
            "raw HTTP/1.1 200 x~Transfer-Encoding: chunked~~5~{\"out~c~come\":\"dead\"~1~}~0~~"),
        LW_DEAD);
    /* the handler closed the first connection, because the first response was malformed */
    assert_int_equal(connections(&x), 2);
    assert_int_equal(run(&x, 4, "raw HTTP/1.1 204 x~~HTTP/1.1 500 x~~"), LW_DONE);
    assert_int_equal(run(&x, 5, "raw HTTP/1.1 204 x~Connection: close~~"), LW_DONE);
    /* unexpected bytes followed the response to message 4, so message 5 got a new connection */
    assert_int_equal(connections(&x), 3);
    assert_int_equal(run(&x, 6, "to-the-end"), LW_DONE);
    assert_int_equal(run(&x, 7, "ok"), LW_DONE);
    assert_int_equal(connections(&x), 5);
    close_fx(&x);
}

/* If the service closes a reused connection instead of answering, the request must be sent once
 * more over a new connection. If the service closes a new connection in this way, the message must
 * be tried again later. */
static void test_closed_meanwhile(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    x.h->resend_us = INT64_MAX; /* however slow this machine is */
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    make_file(&x, "leave");
    assert_int_equal(run(&x, 2, "ok"), LW_DONE);
    assert_int_equal(count(&x, "requests", "t/0/2"), 2);
    assert_int_equal(connections(&x), 2);
    assert_int_equal(run(&x, 3, "hang-up"), LW_RETRY);
    assert_contains(reason(&x, 3), "Empty reply from server");
    assert_int_equal(count(&x, "requests", "t/0/3"), 2);
    close_fx(&x);
}

/* If the service had time to work on a request before it closed the connection, the request must
 * not be sent again with the same attempt and fence. */
static void test_closed_after_work(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    assert_int_equal(run(&x, 2, "late-hang-up 0.5"), LW_RETRY);
    assert_contains(reason(&x, 2), "the service closed a connection that it had kept");
    assert_int_equal(count(&x, "requests", "t/0/2"), 1);
    assert_int_equal(run(&x, 3, NULL), LW_DONE);
    close_fx(&x);
}

/* A part of an answer is never followed by the same request again. */
static void test_closed_within_an_answer(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    static const char *const parts[] = {"raw HTTP/1.1 2", "raw HTTP/1.1 200 x~Content-Le",
                                        "raw HTTP/1.1 200 x~Content-Length: 5~~ab"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run(&x, 10 * i + 1, "ok"), LW_DONE);
        make_file(&x, "end");
        assert_int_equal(run(&x, 10 * i + 2, parts[i]), LW_RETRY);
        char path[256], id[32];
        snprintf(path, sizeof path, "%s/end", x.folder);
        unlink(path);
        snprintf(id, sizeof id, "t/0/%d ", 10 * i + 2);
        assert_int_equal(count(&x, "requests", id), 1);
    }
    close_fx(&x);
}

/* A second answer must never be taken for the answer to the next message. Once one has come, no
 * connection is used twice. */
static void second_answers(struct fx *x) {
    assert_int_equal(run(x, 1, "second 0.1"), LW_DONE);
    wait_for(count(x, "second", "sent") == 1);
    assert_int_equal(run(x, 2, "ok"), LW_DONE);
    assert_int_equal(count(x, "requests", "t/0/2"), 1);
    assert_int_equal(connections(x), 2);
    for (int i = 3; i < 6; i++) assert_int_equal(run(x, i, "ok"), LW_DONE);
    assert_int_equal(connections(x), 5);
    close_fx(x);
}

static void test_second_answers(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    second_answers(&x);
}

static void test_second_answers_over_tls(void **state) {
    (void)state;
    struct fx x;
    open_tls(&x, 4);
    second_answers(&x);
}

static void bodies_where_none_belong(struct fx *x) {
    static const char *const answers[] = {
        "raw HTTP/1.1 204 x~~HTTP/1.1 422 x~Content-Length: 0~~",
        "raw HTTP/1.1 204 x~Content-Length: 40~~HTTP/1.1 422 x~Content-Length: 0~~xxxx",
        "raw HTTP/1.1 200 x~Content-Length: 2~~okHTTP/1.1 422 x~Content-Length: 0~~",
        "raw HTTP/1.1 200 x~Transfer-Encoding: chunked~~0~~HTTP/1.1 422 x~Content-Length: 0~~"};
    for (int i = 0; i < 4; i++) {
        x->h->fresh_ms = 0;
        assert_int_equal(run(x, 10 * i + 1, answers[i]), LW_DONE);
        assert_int_equal(run(x, 10 * i + 2, "ok"), LW_DONE);
        assert_true(x->h->fresh_ms > 0);
        assert_int_equal(count(x, "requests", " ok"), i + 1);
    }
    close_fx(x);
}

static void test_more_than_the_answer(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    bodies_where_none_belong(&x);
}

static void test_more_than_the_answer_over_tls(void **state) {
    (void)state;
    struct fx x;
    open_tls(&x, 4);
    bodies_where_none_belong(&x);
}

/* A service sends a body after a 204. It must be noticed before the next request. */
static void test_rest_of_an_answer_over_tls(void **state) {
    (void)state;
    struct fx x;
    open_tls(&x, 4);
    assert_int_equal(run(&x, 1, "rest {\"a\":1234}"), LW_DONE);
    wait_for(count(&x, "rest", "sent") == 1);
    assert_int_equal(run(&x, 2, "ok"), LW_DONE);
    assert_true(x.h->fresh_ms > 0);
    close_fx(&x);
}

/* If the body comes after the next request, it is taken for the answer to that, but only once:
 * after that no connection is used twice. */
static void test_late_rest_of_an_answer_over_tls(void **state) {
    (void)state;
    struct fx x;
    open_tls(&x, 4);
    assert_int_equal(run(&x, 1, "late-rest {}"), LW_DONE);
    assert_int_equal(run(&x, 2, "ok"), LW_RETRY);
    assert_true(x.h->fresh_ms > 0);
    for (int i = 3; i < 6; i++) assert_int_equal(run(&x, i, "late-rest {}"), LW_DONE);
    close_fx(&x);
}

/* A connection must not be used for new requests for ever: an answer that belongs to the request
 * before may go unnoticed as long as the connection is busy. */
static void test_old_connections(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 1, "");
    x.h->life_s = 1;
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    sleep(3);
    assert_int_equal(run(&x, 2, "ok"), LW_DONE);
    assert_int_equal(connections(&x), 2);
    close_fx(&x);
}

/* A connection that the service closed while the connection was idle must not be used. */
static void test_closed_while_idle(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    stop_server();
    start_server(&x);
    assert_int_equal(run(&x, 2, "ok"), LW_DONE);
    assert_int_equal(count(&x, "requests", "t/0/2"), 1);
    assert_int_equal(connections(&x), 2);
    close_fx(&x);
}

/* A body that is too large for the kernel's buffers must arrive whole. If the service answers
 * before it has read the body, the response must count. The service reads on until the handler
 * closes the connection: if it closed first, the kernel's reset could overtake its response, and
 * the handler would see a broken connection. */
static void test_large_bodies(void **state) {
    (void)state;
    enum { LARGE = 8 << 20 };
    struct fx x;
    char *body = lw_alloc(LARGE + 1);
    open_fx(&x, 4, ",\"timeout_ms\":600000");
    int n = snprintf(body, LARGE, "length %d ", LARGE);
    memset(body + n, 'x', (size_t)(LARGE - n));
    for (int i = 1; i < 3; i++) assert_int_equal(run(&x, i, body), LW_DONE);
    assert_int_equal(connections(&x), 1);
    make_file(&x, "refuse");
    assert_int_equal(run(&x, 3, body), LW_DEAD);
    assert_string_equal(reason(&x, 3), "the service answered 413: too big");
    free(body);
    close_fx(&x);
}

/* --- many at a time --------------------------------------------------------------------------- */

static void test_as_many_as_in_flight(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 8, "");
    struct lw_job *jobs[MOST];
    for (int i = 0; i < MOST; i++) jobs[i] = job(&x, i, i < 8 ? "slow go" : "ok");
    lw_feed_submit(x.feed, jobs, MOST);
    wait_for(count(&x, "slow", "begins") == 8);
    assert_int_equal(count(&x, "requests", "ok"), 0);
    make_file(&x, "go");
    await(&x, MOST);
    for (int i = 0; i < MOST; i++) assert_int_equal(outcome(&x, i), LW_DONE);
    assert_int_equal(count(&x, "connections", "one"), 8);
    close_fx(&x);
}

/* Messages of one key must run one after the other, up to the first message that is not done. */
static void test_followers(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, "");
    run_chain_of_five(&x, "status 500");
    assert_int_equal(count(&x, "requests", "t/0/4"), 0);
    close_fx(&x);
}

static void submit_chain(struct fx *x, const char *const *payloads, int n) {
    for (int i = 0; i < n; i++) job(x, i, payloads[i]);
    for (int i = 0; i < n - 1; i++) assert_true(lw_job_then(&x->j[i].job, &x->j[i + 1].job));
    struct lw_job *first = &x->j[0].job;
    lw_feed_submit(x->feed, &first, 1);
}

/* If a batch is refused as a whole, its messages must be sent again one by one, and only the bad
 * message must become a dead letter. */
static void test_batches(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, ",\"mode\":\"batch\",\"batch\":3");
    static const char *const good[] = {"\"a\"", "\"b\"", "\"c\"", "\"d\""},
                             *const bad[] = {"\"a\"", "\"bad\"", "\"c\""},
                             *const split[] = {"\"a\"", "\"split\"", "\"c\""};
    submit_chain(&x, good, 4);
    await(&x, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(outcome(&x, i), LW_DONE);
    assert_int_equal(count(&x, "requests", "- application/cloudevents-batch+json"), 2);
    submit_chain(&x, bad, 3);
    await(&x, 2);
    assert_int_equal(outcome(&x, 0), LW_DONE);
    assert_int_equal(outcome(&x, 1), LW_DEAD);
    assert_int_equal((int)outcome(&x, 2), 99);
    assert_int_equal(count(&x, "requests", "batch+json"), 5);
    submit_chain(&x, split, 3);
    await(&x, 2);
    assert_int_equal(outcome(&x, 0), LW_DONE);
    assert_int_equal(outcome(&x, 1), LW_RETRY);
    assert_int_equal((int)outcome(&x, 2), 99);
    close_fx(&x);
}

/* --- leases and times ------------------------------------------------------------------------- */

static void test_cancel_aborts_the_transfer(void **state) {
    (void)state;
    struct fx x;
    open_fx_margin(&x, 4, "", 30000);
    submit(&x, 1, "slow go");
    submit(&x, 2, "slow go");
    wait_for(count(&x, "slow", "begins") == 2);
    atomic_store(&x.j[1].lease.cancelled, true);
    await(&x, 1);
    assert_int_equal(outcome(&x, 1), LW_BACK);
    submit(&x, 3, "slow go");
    wait_for(count(&x, "slow", "begins") == 3);
    /* the handler must abort the request 30 s before the lease ends at `deadline_ms` */
    atomic_store(&x.j[2].lease.deadline_ms, INT64_MAX);
    atomic_store(&x.j[3].lease.deadline_ms, lw_boot_ms() + 30100);
    await(&x, 1);
    assert_true(lw_boot_ms() < atomic_load(&x.j[3].lease.deadline_ms));
    assert_int_equal(outcome(&x, 3), LW_BACK);
    assert_int_equal(count(&x, "slow", "ended"), 0);
    assert_int_equal(requests(&x, LW_HTTP_CANCELLED), 2);
    make_file(&x, "go");
    await(&x, 1);
    assert_int_equal(outcome(&x, 2), LW_DONE);
    close_fx(&x);
}

static void test_timeout(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 4, ",\"timeout_ms\":1000");
    assert_int_equal(run(&x, 1, "slow go"), LW_RETRY);
    assert_string_equal(reason(&x, 1), "timed out after 1000 ms");
    assert_int_equal(requests(&x, LW_HTTP_TIMEOUT), 1);
    assert_int_equal(run(&x, 2, "ok"), LW_DONE);
    close_fx(&x);
}

/* A job whose lease has ended must not be sent. */
static void test_no_late_start(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 1, "");
    struct lw_job *jobs[] = {job(&x, 1, "slow 0.3"), job(&x, 2, "ok"), job(&x, 3, "ok")};
    atomic_store(&x.j[2].lease.cancelled, true);
    atomic_store(&x.j[3].lease.deadline_ms, lw_boot_ms() + 100);
    lw_feed_submit(x.feed, jobs, 3);
    await(&x, 3);
    assert_int_equal(outcome(&x, 1), LW_DONE);
    assert_int_equal(outcome(&x, 2), LW_BACK);
    assert_int_equal(outcome(&x, 3), LW_BACK);
    assert_int_equal(count(&x, "requests", "ok"), 0);
    close_fx(&x);
}

static void test_stop_with_requests_under_way(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 2, "");
    submit(&x, 1, "slow 0.3");
    wait_for(count(&x, "slow", "begins") == 1);
    close_fx(&x);
    assert_int_equal(outcome(&x, 1), LW_DONE);
}

/* --- the service is down ---------------------------------------------------------------------- */

static enum lw_health health(struct fx *x, char *why, size_t size) {
    return lw_handler_http.health(x->h, why, size);
}

/* While no service listens, no attempt must be counted. Two messages fail with the reason before
 * the circuit breaker opens, and all others are given back. When a message is answered again, the
 * circuit breaker must close. */
static void test_service_down(void **state) {
    (void)state;
    struct fx x;
    char why[512] = "";
    open_fx(&x, 8, "");
    assert_int_equal(run(&x, 0, "ok"), LW_DONE);
    stop_server();
    int failed = 0;
    struct lw_job *jobs[MOST];
    for (int i = 0; i < MOST; i++) jobs[i] = job(&x, i, "ok");
    lw_feed_submit(x.feed, jobs, MOST);
    await(&x, MOST);
    for (int i = 0; i < MOST; i++) {
        if (outcome(&x, i) == LW_BACK) continue;
        assert_int_equal(outcome(&x, i), LW_RETRY);
        assert_true(x.j[i].job.uncounted && x.j[i].job.unsent);
        assert_contains(x.j[i].job.reason, "Connection refused");
        failed++;
    }
    assert_int_equal(failed, BREAKER_REFUSED - 1);
    assert_int_not_equal(health(&x, why, sizeof why), LW_WELL);
    assert_contains(why, "handler: http://127.0.0.1:");
    assert_contains(why, "Connection refused");
    assert_int_equal(atomic_load(&x.counts.openings), 1);
    wait_for(health(&x, NULL, 0) == LW_ON_TRIAL);
    /* the circuit breaker is half open, and the only request that it lets through fails */
    assert_int_equal(run(&x, 1, "ok"), LW_BACK);
    assert_true(x.h->breaker.pause_ms > BREAKER_PAUSE_MS);
    assert_int_not_equal(health(&x, NULL, 0), LW_WELL);
    start_server(&x);
    wait_for(health(&x, NULL, 0) == LW_ON_TRIAL);
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    assert_int_equal(health(&x, NULL, 0), LW_WELL);
    assert_int_equal(atomic_load(&x.counts.openings), 1);
    close_fx(&x);
}

/* A service that ends after it has read a request may have been ended by the request, so an attempt
 * is counted, also if the request cannot be sent again because no service listens. */
static void test_down_after_reading(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 1, "");
    assert_int_equal(run(&x, 0, "ok"), LW_DONE);
    submit(&x, 1, "slow go");
    wait_for(count(&x, "slow", "begins") == 1);
    stop_server();
    await(&x, 1);
    assert_int_equal(outcome(&x, 1), LW_RETRY);
    assert_false(x.j[1].job.uncounted || x.j[1].job.unsent);
    /* a message that never left the process is not at fault, whatever happened before */
    assert_int_equal(run(&x, 1, "ok"), LW_RETRY);
    assert_true(x.j[1].job.uncounted && x.j[1].job.unsent);
    start_server(&x);
    assert_int_equal(run(&x, 1, "ok"), LW_DONE);
    assert_false(x.j[1].job.unsent);
    close_fx(&x);
}

/* While the circuit breaker is half open, at most one request may be in flight, even if many jobs
 * are ready. */
static void test_one_at_a_time_on_trial(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 8, "");
    for (int i = 0; i < 10; i++)
        assert_int_equal(run(&x, i, "status 503"), i < 9 ? LW_RETRY : LW_BACK);
    wait_for(health(&x, NULL, 0) == LW_ON_TRIAL);
    struct lw_job *jobs[] = {job(&x, 1, "slow go"), job(&x, 2, "ok"), job(&x, 3, "ok")};
    lw_feed_submit(x.feed, jobs, 3);
    wait_for(count(&x, "slow", "begins") == 1);
    assert_int_equal(count(&x, "requests", "ok"), 0);
    make_file(&x, "go");
    wait_for(has_ended(&x, 3));
    assert_ptr_equal(x.ended[0], jobs[0]);
    for (int i = 1; i < 4; i++) assert_int_equal(outcome(&x, i), LW_DONE);
    close_fx(&x);
}

static void test_check_connects_only(void **state) {
    (void)state;
    struct fx x;
    struct lw_err err = {0};
    open_fx(&x, 1, "");
    assert_int_equal(lw_handler_http.start_check(x.h, 1000, &err), 0);
    stop_server();
    assert_int_equal(lw_handler_http.start_check(x.h, 1000, &err), -1);
    assert_contains(err.text, "cannot connect to http://127.0.0.1:");
    assert_contains(err.text, "Connection refused");
    assert_int_equal(count(&x, "requests", "\n"), 0);
    start_server(&x);
    close_fx(&x);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_malformed_answers),
        cmocka_unit_test(test_kinds_of_answers),
        cmocka_unit_test(test_closed_meanwhile),
        cmocka_unit_test(test_closed_after_work),
        cmocka_unit_test(test_closed_within_an_answer),
        cmocka_unit_test(test_second_answers),
        cmocka_unit_test(test_second_answers_over_tls),
        cmocka_unit_test(test_more_than_the_answer),
        cmocka_unit_test(test_more_than_the_answer_over_tls),
        cmocka_unit_test(test_rest_of_an_answer_over_tls),
        cmocka_unit_test(test_late_rest_of_an_answer_over_tls),
        cmocka_unit_test(test_old_connections),
        cmocka_unit_test(test_closed_while_idle),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_as_many_as_in_flight),
        cmocka_unit_test(test_followers),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_cancel_aborts_the_transfer),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_no_late_start),
        cmocka_unit_test(test_stop_with_requests_under_way),
        cmocka_unit_test(test_service_down),
        cmocka_unit_test(test_down_after_reading),
        cmocka_unit_test(test_one_at_a_time_on_trial),
        cmocka_unit_test(test_check_connects_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
