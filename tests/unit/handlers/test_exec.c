/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the handler type exec with real processes. One script plays every kind of handler, and the
 * payload says which kind. */
#include "tests/support/handler_fixture.h"

#include "handlers/exec/line.h"
#include "handlers/json_text.h"
#include "handlers/reason.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static const char script[] =
    "import sys, json, os, time, subprocess\n"
    "here = sys.argv[1]\n"
    "def say(x):\n"
    "    sys.stdout.write(x + '\\n'); sys.stdout.flush()\n"
    "def grandchild():\n"
    "    p = subprocess.Popen(['sleep', '600'], stdin=subprocess.DEVNULL)\n"
    "    open(here + '/grandchild.tmp', 'w').write('%d\\n' % p.pid); os.rename(here + "
    "'/grandchild.tmp', here + '/grandchild')\n"
    "for line in iter(sys.stdin.readline, ''):\n"
    "    m = json.loads(line)\n"
    "    if 'cancel' in m: continue\n"
    "    open(here + '/requests', 'a').write(line)\n"
    "    what, i = m.get('payload') or '', m['id']\n"
    "    done = json.dumps({'id': i, 'outcome': 'done'})\n"
    "    if what == 'retry': say(json.dumps({'id': i, 'outcome': 'retry', 'reason': 'later, "
    "pl\\u00e9ase'}))\n"
    "    elif what == 'dead': say(json.dumps({'id': i, 'outcome': 'dead'}))\n"
    "    elif what == 'garbage': say('not json')\n"
    "    elif what == 'foreign': say(json.dumps({'id': 'x/9/9', 'outcome': 'done'}))\n"
    "    elif what == 'odd': say(json.dumps({'id': i, 'outcome': 'perhaps'}))\n"
    "    elif what == 'noid': say('{\"outcome\": \"done\"}')\n"
    "    elif what == 'array': say('[1]')\n"
    "    elif what == 'long': say('x' * 1200000)\n"
    "    elif what == 'endless':\n"
    "        while True: sys.stdout.write('y' * 65536); sys.stdout.flush()\n"
    "    elif what == 'exit': sys.exit(7)\n"
    "    elif what == 'segv': os.kill(os.getpid(), 11)\n"
    "    elif what == 'mute': os.close(1); time.sleep(600)\n"
    "    elif what == 'heir': grandchild(); os._exit(5)\n"
    "    elif what == 'hang': grandchild(); time.sleep(600)\n"
    "    elif what == 'slow':\n"
    "        while not os.path.exists(here + '/go'): time.sleep(0.01)\n"
    "        say(done)\n"
    "    elif what == 'polite':\n"
    "        grandchild(); c = json.loads(sys.stdin.readline()); open(here + '/cancelled', "
    "'w').write(c['cancel'])\n"
    "        say(done)\n"
    "    elif what == 'polite-retry':\n"
    "        grandchild(); sys.stdin.readline(); say(json.dumps({'id': i, 'outcome': 'retry', "
    "'reason': 'r'}))\n"
    "    elif what == 'blank': say('\\n \\n' + done)\n"
    "    elif what == 'twice': say(done); say(done); time.sleep(0.05)\n"
    "    elif what == 'descriptors':\n"
    "        fds = '/proc/self/fd/'\n"
    "        extra = [f for f in os.listdir(fds) if int(f) > 4 and os.path.exists(fds + f)]\n"
    "        open(here + '/extra', 'w').write(' '.join(extra)); say(done)\n"
    "    elif what == 'loud':\n"
    "        for k in range(3000): sys.stderr.write('x' * 300 + '\\n')\n"
    "        sys.stderr.write('no newline'); sys.stderr.flush(); say(done)\n"
    "    elif what == 'flood':\n"
    "        sys.stderr.write('flood\\n' * 1000000); sys.stderr.flush(); say(done)\n"
    "    else: say(done)\n"
    "open(here + '/bye', 'a').write('bye\\n')\n";

struct fx {
    char *folder;
    struct lw_config *c;
    struct lw_handler *h;
    struct fx_job j;
};

static void path_of(const struct fx *x, const char *name, char out[256]) {
    snprintf(out, 256, "%s/%s", x->folder, name);
}

static int64_t ttl_ms = 2000;

static void open_fx(struct fx *x, int timeout_ms) {
    *x = (struct fx){.folder = fx_folder()};
    char path[256];
    path_of(x, "handler.py", path);
    fx_write(path, script);
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    x->c = fx_config(
        "{\"type\":\"exec\",\"command\":[\"%s\",\"%s\",\"%s\"],\"processes\":1,\"timeout_ms\":%d}",
        python, path, x->folder, timeout_ms);
    x->c->lock.ttl_ms = ttl_ms;
    x->c->retry.max_attempts = 5;
    struct lw_err err = {0};
    x->h = lw_handler_exec.open(x->c, 0, &err);
    assert_non_null(x->h);
    if (lw_handler_exec.start(x->h, 1, &err)) fail_msg("%s", err.text);
}

static void close_fx(struct fx *x) {
    lw_handler_exec.close(x->h);
    fx_config_free(x->c);
    fx_remove(x->folder);
}

static char *slurp(const struct fx *x, const char *name) {
    char path[256];
    path_of(x, name, path);
    return fx_read(path);
}

static enum lw_outcome play(struct fx *x, const char *payload) {
    static int64_t offset;
    struct lw_job *job = fx_job(&x->j, ++offset, "k", payload);
    return fx_run(&lw_handler_exec, x->h, NULL, job);
}

static pid_t grandchild(const struct fx *x) {
    char *text = slurp(x, "grandchild");
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    free(text);
    return pid;
}

/* --- lines ------------------------------------------------------------------------------------ */

static void test_utf8(void **state) {
    (void)state;
    static const char *const good[] = {"",
                                       "abc",
                                       "\xc3\xa9",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xed\x9f\xbf",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {
        "\x80", "\xc3",      "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xff", "a\xe2\x82", "\xc3(",    "\xf0\x9f\x98"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(lw_utf8_ok(lw_bytes_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(lw_utf8_ok(lw_bytes_of(bad[i])));
}

static void test_request_line(void **state) {
    (void)state;
    struct fx_job j;
    struct lw_job *job = fx_job(&j, 42, "", NULL);
    const struct lw_header headers[] = {{lw_bytes_of("trace"), lw_bytes_of("a1")},
                                        {lw_bytes_of("none"), {NULL, 0}},
                                        {lw_bytes_of("raw"), lw_bytes("\xff\x00\x01", 3)}};
    job->headers = headers;
    job->n_headers = 3;
    job->key = lw_bytes("\xfe\xff", 2);
    job->payload = lw_bytes("a\"\\\n\0\x7f\xc3\xa9", 8);
    struct lw_buf b = {0};
    lw_exec_request(&b, &job, 1, 0);
    static const char expected[] =
        "{\"id\":\"t/0/42\",\"key_base64\":\"/"
        "v8=\",\"fence\":1042,\"attempt\":1,\"topic\":\"t\",\"partition\":0,"
        "\"offset\":42,\"timestamp_ms\":1763671234567,\"headers\":[[\"trace\",\"a1\"],[\"none\","
        "null],"
        "[\"raw\",{\"base64\":\"/wAB\"}]],\"payload\":\"a\\\"\\\\\\n\\u0000\\u007f\xc3\xa9\"}\n";
    assert_int_equal(b.n, sizeof expected - 1);
    assert_memory_equal(b.p, expected, b.n);
    json_t *v = json_loadb(b.p, b.n, JSON_ALLOW_NUL, NULL);
    assert_int_equal(json_string_length(json_object_get(v, "payload")), 8);
    json_decref(v);
    b.n = 0;
    job->key = lw_bytes_of("");
    job->payload = (struct lw_bytes){0};
    job->n_headers = 0;
    lw_exec_request(&b, &job, 1, 0);
    lw_buf_add(&b, "", 1);
    assert_contains(b.p, "\"key\":\"\",");
    assert_contains(b.p, "\"headers\":[],\"payload\":null}");
    lw_buf_free(&b);
}

static void test_reason_is_cut_between_characters(void **state) {
    (void)state;
    char text[700] = "", reason[LW_REASON_MAX];
    for (int i = 0; i < 200; i++) strcat(text, "\xe2\x82\xac");
    lw_reason_copy(reason, text);
    assert_int_equal(strlen(reason), 510);
    assert_true(lw_utf8_ok(lw_bytes_of(reason)));
    memset(text, 'a', 600);
    lw_reason_copy(reason, text);
    assert_int_equal(strlen(reason), 511);
}

static void test_answers_through_pipes(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 20000);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    assert_string_equal(x.j.job.reason, "");
    assert_int_equal(play(&x, "retry"), LW_RETRY);
    assert_string_equal(x.j.job.reason, "later, pl\xc3\xa9"
                                        "ase");
    assert_int_equal(play(&x, "dead"), LW_DEAD);
    assert_string_not_equal(x.j.job.reason, "");
    assert_int_equal(play(&x, "blank"), LW_DONE);
    assert_int_equal(play(&x, NULL), LW_DONE);
    char *big = lw_alloc(1000001);
    memset(big, 'p', 1000000);
    assert_int_equal(play(&x, big), LW_DONE);
    free(big);
    char *requests = slurp(&x, "requests");
    assert_contains(requests, "\"payload\":null");
    assert_int_equal(strlen(requests) > 1000000, 1);
    free(requests);
    close_fx(&x);
}

/* --- broken handlers -------------------------------------------------------------------------- */

static void test_bad_answers_retry_and_replace(void **state) {
    (void)state;
    static const struct {
        const char *payload, *reason;
    } cases[] = {
        {"garbage", "is not JSON"},
        {"foreign", "another message: \"x/9/9\""},
        {"odd", "unknown outcome \"perhaps\""},
        {"noid", "no \"id\""},
        {"array", "not a JSON object"},
        {"long", "longer than 1 MiB"},
        {"endless", "longer than 1 MiB"},
        {"exit", "exited with status 7"},
        {"segv", "killed by signal 11"},
        {"mute", "closed its stdout"},
    };
    struct fx x;
    open_fx(&x, 20000);
    /* after the command has answered once, each failure counts an attempt of its message */
    assert_int_equal(play(&x, "ok"), LW_DONE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(play(&x, cases[i].payload), LW_RETRY);
        assert_contains(x.j.job.reason, cases[i].reason);
        /* a new process has taken the place of the failed one */
        assert_int_equal(play(&x, "ok"), LW_DONE);
    }
    close_fx(&x);
}

static void test_heir_does_not_hide_a_death(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 20000);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    /* the process dies, but one of its children still has its stdout open */
    assert_int_equal(play(&x, "heir"), LW_RETRY);
    assert_contains(x.j.job.reason, "exited with status 5");
    assert_false(fx_alive(grandchild(&x)));
    close_fx(&x);
}

static void test_word_out_of_turn_costs_no_message(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 20000);
    assert_int_equal(play(&x, "twice"), LW_DONE);
    lw_sleep_ms(100);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    close_fx(&x);
}

/* Node prints its version below an uncaught error. The reason must be the text of the error, not
 * the version. */
static void test_error_above_the_version_of_node(void **state) {
    (void)state;
    struct fx x;
    char path[256], why[512];
    open_fx(&x, 20000);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    path_of(&x, "handler.py", path);
    fx_write(path, "import sys\n"
                   "sys.stderr.write('''node:internal/modules/cjs/loader:1210\n  throw err;\n  "
                   "^\n\nError: Cannot find module 'zebra'\n'''\n"
                   "                 '''Require stack:\n- /handler.js\n    at load (x.js:1:1) {\n  "
                   "code: 'X'\n}\n\nNode.js v20.0.0\n''')\n"
                   "sys.exit(1)\n");
    /* ends the process that open_fx() may have started with the previous script */
    assert_int_equal(play(&x, "exit"), LW_RETRY);
    assert_int_equal(play(&x, "ok"), LW_BACK);
    assert_int_equal(lw_handler_exec.health(x.h, why, sizeof why), LW_UNABLE);
    assert_string_equal(why, "handler: its process exited with status 1 before it ever answered: "
                             "Error: Cannot find module 'zebra'");
    close_fx(&x);
}

/* If a process dies before it has answered anything and before it has read its request, no attempt
 * may be counted, even if earlier processes have answered. */
static void test_command_that_dies_at_its_start(void **state) {
    (void)state;
    struct fx x;
    char path[256], why[512];
    struct fx_job j;
    open_fx(&x, 20000);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    assert_int_equal(lw_handler_exec.health(x.h, why, sizeof why), LW_WELL);
    path_of(&x, "handler.py", path);
    /* simulates the deployment of a broken version of the command */
    fx_write(path,
             "import sys\nsys.stderr.write('first\\nNo module named zebra\\n\\n')\nsys.exit(3)\n");
    /* the process that now ends had answered before, so its death counts as an attempt */
    assert_int_equal(play(&x, "exit"), LW_RETRY);
    assert_int_equal(play(&x, "ok"), LW_BACK);
    assert_string_equal(x.j.job.reason, "");
    assert_int_equal(lw_handler_exec.health(x.h, why, sizeof why), LW_UNABLE);
    assert_string_equal(
        why,
        "handler: its process exited with status 3 before it ever answered: No module named zebra");
    int64_t begun = lw_boot_ms();
    /* during the backoff, no process is started for a message, and the message is given back */
    assert_int_equal(fx_run(&lw_handler_exec, x.h, NULL, fx_job(&j, 1, "k", "ok")), LW_BACK);
    wait_for(lw_handler_exec.health(x.h, why, sizeof why) == LW_ON_TRIAL);
    assert_int_equal(play(&x, "ok"), LW_BACK);
    wait_for(lw_handler_exec.health(x.h, why, sizeof why) == LW_ON_TRIAL);
    /* two backoffs have passed, of 500 ms and 1,000 ms */
    assert_true(lw_boot_ms() - begun >= 1000);
    fx_write(path, script);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    assert_int_equal(lw_handler_exec.health(x.h, why, sizeof why), LW_WELL);
    close_fx(&x);
}

/* A process reads its request and dies. As long as no process of the command has answered, the
 * command is at fault. Once a process has answered, the message is at fault, until too many
 * processes have died in a row. */
static void test_whose_fault_a_death_is(void **state) {
    (void)state;
    struct fx x;
    char why[512];
    open_fx(&x, 20000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(play(&x, "exit"), LW_BACK);
        wait_for(lw_handler_exec.health(x.h, why, sizeof why) == LW_ON_TRIAL);
    }
    assert_int_equal(play(&x, "ok"), LW_DONE);
    /* the process that dies has answered before, so the message is at fault */
    assert_int_equal(play(&x, "exit"), LW_RETRY);
    /* Then 5 processes in a row (retry.max_attempts) die without having answered. */
    for (int i = 0; i < 5; i++) assert_int_equal(play(&x, "exit"), LW_RETRY);
    assert_contains(x.j.job.reason, "handler process exited with status 7 before it answered");
    /* too many processes have died in a row, so the command is at fault, not the message */
    assert_int_equal(play(&x, "exit"), LW_BACK);
    close_fx(&x);
}

static void test_never_read_until_its_timeout(void **state) {
    (void)state;
    struct lw_config *c = fx_config("{\"command\":[\"sleep\",\"600\"],\"timeout_ms\":300}");
    struct lw_handler *h = lw_handler_exec.open(c, 0, NULL);
    assert_int_equal(lw_handler_exec.start(h, 1, NULL), 0);
    struct fx_job j;
    char why[512];
    struct lw_job *job = fx_job(&j, 1, "k", "small");
    job->give_up_ms = lw_boot_ms() + 300;
    assert_int_equal(fx_run(&lw_handler_exec, h, NULL, job), LW_BACK);
    assert_int_equal(lw_handler_exec.health(h, why, sizeof why), LW_UNABLE);
    assert_string_equal(why, "handler: its process did not read its first request within 300 ms");
    lw_handler_exec.close(h);
    fx_config_free(c);
}

/* Tests start_check(), which the command `check --connect` calls. */
static void test_start_check(void **state) {
    (void)state;
    static const struct {
        const char *command, *err;
    } cases[] = {
        {"echo no settings >&2; exit 4",
         "its process exited with status 4 before it was asked anything: no settings"},
        {"exit 0", "its process exited with status 0 before it was asked anything"},
        {"exec sleep 600", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lw_config *c = fx_config("{\"command\":[\"sh\",\"-c\",\"%s\"]}", cases[i].command);
        struct lw_handler *h = lw_handler_exec.open(c, 0, NULL);
        assert_int_equal(lw_handler_exec.start(h, 1, NULL), 0);
        struct lw_err err = {0};
        int wait_ms = cases[i].err[0] ? 20000 : 200;
        assert_int_equal(lw_handler_exec.start_check(h, wait_ms, &err), cases[i].err[0] ? -1 : 0);
        assert_string_equal(err.text, cases[i].err);
        lw_handler_exec.close(h);
        fx_config_free(c);
    }
}

static void test_backoff_of_a_useless_command(void **state) {
    (void)state;
    char *folder = fx_folder(), log[256];
    snprintf(log, sizeof log, "%s/log", folder);
    int keep = fx_capture(log);
    struct fx x;
    open_fx(&x, 20000);
    enum lw_outcome first = play(&x, "ok"), others[4];
    for (int i = 0; i < 4; i++) others[i] = play(&x, "exit");
    struct fx_job j;
    struct lw_job *job = fx_job(&j, 9, "k", "p");
    job->lease->cancelled = true;
    enum lw_outcome last = fx_run(&lw_handler_exec, x.h, NULL, job);
    close_fx(&x);
    fx_release(keep);
    assert_int_equal(first, LW_DONE);
    for (int i = 0; i < 4; i++) assert_int_equal(others[i], LW_RETRY);
    /* the last message was not started, so no attempt is counted */
    assert_int_equal(last, LW_BACK);
    char *text = fx_read(log);
    assert_contains(text,
                    "2 processes in a row ended without an answer; the next starts in 100 ms");
    assert_contains(text, "the next starts in 200 ms");
    free(text);
    fx_remove(folder);
}

static void test_command_that_cannot_start(void **state) {
    (void)state;
    struct lw_config *c = fx_config("{\"command\":[\"/no/such/program\"]}");
    struct lw_handler *h = lw_handler_exec.open(c, 0, NULL);
    struct lw_err err = {0};
    assert_int_equal(lw_handler_exec.start(h, 1, &err), -1);
    assert_contains(err.text, "cannot start \"/no/such/program\": No such file");
    lw_handler_exec.close(h);
    fx_config_free(c);
}

/* --- time ------------------------------------------------------------------------------------- */

static void test_timeout_kills_the_group(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 700);
    /* A process that has not read the message yet, as under load, is not the message's fault: then
     * the message is given back, and gets more time. */
    enum lw_outcome o = LW_BACK;
    for (int64_t ms = 700; (o != LW_RETRY || grandchild(&x) <= 0) && ms < 60000; ms += 300) {
        struct lw_job *job = fx_job(&x.j, 1, "k", "hang");
        job->give_up_ms = lw_boot_ms() + ms;
        o = fx_run(&lw_handler_exec, x.h, NULL, job);
        if (o == LW_RETRY) assert_string_equal(job->reason, "timed out after 700 ms");
        if (o == LW_BACK) lw_sleep_ms(100);
    }
    assert_int_equal(o, LW_RETRY);
    assert_true(grandchild(&x) > 0);
    assert_false(fx_alive(grandchild(&x)));
    wait_for(play(&x, "ok") == LW_DONE);
    close_fx(&x);
}

static void test_lease_end_kills_the_group_before(void **state) {
    (void)state;
    struct fx x;
    ttl_ms = 100000; /* the handler is killed a tenth of the TTL, 10 s, before its lease ends */
    open_fx(&x, 0);
    ttl_ms = 2000;
    /* under load the process may take longer than the first times to start a grandchild */
    for (int64_t ms = 500; grandchild(&x) <= 0 && ms < 60000; ms *= 2) {
        struct lw_job *job = fx_job(&x.j, 1, "k", "hang");
        job->lease->deadline_ms = lw_boot_ms() + 10000 + ms;
        assert_int_equal(fx_run(&lw_handler_exec, x.h, NULL, job), LW_BACK);
        assert_true(lw_boot_ms() < job->lease->deadline_ms);
    }
    assert_true(grandchild(&x) > 0);
    assert_false(fx_alive(grandchild(&x)));
    struct lw_job *job = fx_job(&x.j, 2, "k", "ok");
    /* the rest of the lease is too short to begin a run */
    job->lease->deadline_ms = lw_boot_ms() + 500;
    assert_int_equal(fx_run(&lw_handler_exec, x.h, NULL, job), LW_BACK);
    char *requests = slurp(&x, "requests");
    assert_null(strstr(requests, "\"ok\""));
    free(requests);
    close_fx(&x);
}

struct renewer {
    const struct fx *x;
    struct lw_job_lease *lease;
};

/* Renews the lease once the handler has the message, and lets the handler end only after the lease
 * would have ended without that. */
static void *renew(void *arg) {
    struct renewer *r = arg;
    int64_t end_ms = atomic_load(&r->lease->deadline_ms);
    char asked[256], go[256];
    path_of(r->x, "requests", asked);
    path_of(r->x, "go", go);
    while (access(asked, F_OK) && lw_boot_ms() < end_ms) lw_sleep_ms(2);
    atomic_store(&r->lease->deadline_ms, end_ms + 600000);
    while (lw_boot_ms() <= end_ms) lw_sleep_ms(10);
    fx_write(go, "");
    return NULL;
}

static void test_renewed_lease_goes_on(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 0);
    /* under load the process may take longer than the first times to read the message */
    enum lw_outcome o = LW_BACK;
    for (int64_t ms = 500; o != LW_DONE && ms < 30000; ms *= 2) {
        char path[256];
        path_of(&x, "requests", path), unlink(path);
        path_of(&x, "go", path), unlink(path);
        struct lw_job *job = fx_job(&x.j, 1, "k", "slow");
        job->lease->deadline_ms = lw_boot_ms() + ms;
        struct renewer r = {&x, job->lease};
        pthread_t t;
        pthread_create(&t, NULL, renew, &r);
        o = fx_run(&lw_handler_exec, x.h, NULL, job);
        pthread_join(t, NULL);
    }
    assert_int_equal(o, LW_DONE);
    close_fx(&x);
}

struct canceller {
    struct fx *x;
    struct lw_job_lease *lease;
};

static void *cancel_when_begun(void *arg) {
    struct canceller *c = arg;
    for (int i = 0; i < 5000 && grandchild(c->x) <= 0; i++) lw_sleep_ms(2);
    atomic_store(&c->lease->cancelled, true);
    return NULL;
}

static enum lw_outcome cancelled_run(struct fx *x, const char *payload) {
    char path[256];
    path_of(x, "grandchild", path);
    unlink(path);
    struct lw_job *job = fx_job(&x->j, 1, "k", payload);
    struct canceller c = {x, job->lease};
    pthread_t t;
    pthread_create(&t, NULL, cancel_when_begun, &c);
    enum lw_outcome o = fx_run(&lw_handler_exec, x->h, NULL, job);
    pthread_join(t, NULL);
    return o;
}

static void test_cancel(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 20000);
    /* the outcome is done in spite of the cancellation, because the effect has happened */
    assert_int_equal(cancelled_run(&x, "polite"), LW_DONE);
    char *id = slurp(&x, "cancelled");
    assert_string_equal(id, "t/0/1");
    free(id);
    /* if a cancelled handler answers retry, no attempt may be counted */
    assert_int_equal(cancelled_run(&x, "polite-retry"), LW_BACK);
    assert_int_equal(cancelled_run(&x, "hang"), LW_BACK);
    assert_false(fx_alive(grandchild(&x)));
    close_fx(&x);
}

static void test_deaf_child_cannot_block_us(void **state) {
    (void)state;
    struct lw_config *c = fx_config("{\"command\":[\"sleep\",\"600\"],\"timeout_ms\":300}");
    struct lw_handler *h = lw_handler_exec.open(c, 0, NULL);
    assert_int_equal(lw_handler_exec.start(h, 1, NULL), 0);
    struct fx_job j;
    char *big = lw_alloc(1000001);
    memset(big, 'p', 1000000);
    struct lw_job *job = fx_job(&j, 1, "k", big);
    job->give_up_ms = lw_boot_ms() + 300;
    /* the process never reads its request, so no attempt is counted */
    assert_int_equal(fx_run(&lw_handler_exec, h, NULL, job), LW_BACK);
    free(big);
    lw_handler_exec.close(h);
    fx_config_free(c);
}

static void test_inherited_descriptors_are_closed(void **state) {
    (void)state;
    int low = open("/dev/null", O_RDONLY), high = fcntl(low, F_DUPFD, 200);
    assert_true(low >= 0 && high >= 200);
    struct fx x;
    open_fx(&x, 10000);
    assert_int_equal(play(&x, "descriptors"), LW_DONE);
    char *extra = slurp(&x, "extra");
    assert_string_equal(extra, "");
    free(extra);
    close_fx(&x);
    close(high);
    close(low);
}

static void test_closed_stdin_is_no_sigpipe(void **state) {
    (void)state;
    signal(SIGPIPE, SIG_DFL);
    struct lw_config *c =
        fx_config("{\"command\":[\"sh\",\"-c\",\"exec 0<&-; sleep 0.3; exit 4\"]}");
    struct lw_handler *h = lw_handler_exec.open(c, 0, NULL);
    assert_int_equal(lw_handler_exec.start(h, 1, NULL), 0);
    lw_sleep_ms(100);
    struct fx_job j;
    char why[512];
    assert_int_equal(fx_run(&lw_handler_exec, h, NULL, fx_job(&j, 1, "k", "p")), LW_BACK);
    assert_int_equal(lw_handler_exec.health(h, why, sizeof why), LW_UNABLE);
    assert_contains(why, "exited with status 4");
    lw_handler_exec.close(h);
    fx_config_free(c);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void test_end_of_input_lets_it_finish(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, 0);
    assert_int_equal(play(&x, "ok"), LW_DONE);
    lw_handler_exec.close(x.h);
    char *bye = slurp(&x, "bye");
    assert_string_equal(bye, "bye\n");
    free(bye);
    fx_config_free(x.c);
    fx_remove(x.folder);
}

static void test_worker_killed_takes_all_with_it(void **state) {
    (void)state;
    struct fx x = {.folder = fx_folder()};
    char *folder = x.folder;
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t worker = fork();
    if (worker == 0) {
        close(p[0]);
        fx_remove(x.folder);
        open_fx(&x, 0);
        if (write(p[1], x.folder, strlen(x.folder) + 1) < 0) _exit(1);
        play(&x, "hang");
        _exit(0);
    }
    close(p[1]);
    char where[256] = "";
    assert_true(read(p[0], where, sizeof where) > 0);
    close(p[0]);
    x.folder = where;
    wait_for(grandchild(&x) > 0);
    pid_t g = grandchild(&x), group = getpgid(g);
    assert_true(group > 1 && group != getpgid(0) && group != worker);
    assert_true(fx_alive(group));
    kill(worker, SIGKILL);
    waitpid(worker, NULL, 0);
    wait_for(!fx_alive(g) && !fx_alive(group));
    fx_remove(lw_strdup(where));
    free(folder);
}

static void test_stderr_goes_to_the_log(void **state) {
    (void)state;
    char *folder = fx_folder(), log[256];
    snprintf(log, sizeof log, "%s/log", folder);
    int keep = fx_capture(log);
    struct fx x;
    open_fx(&x, 20000);
    /* the handler writes 900 kB to stderr, far more than a pipe can hold */
    enum lw_outcome o = play(&x, "loud");
    close_fx(&x);
    fx_release(keep);
    assert_int_equal(o, LW_DONE);
    char *text = fx_read(log);
    size_t lines = 0;
    for (char *at = text; (at = strstr(at, "]: xxx")); at++) lines++;
    assert_int_equal(lines, 3000);
    assert_contains(text, "handler 0[");
    assert_contains(text, "]: no newline\n");
    free(text);
    fx_remove(folder);
}

/* A handler that writes a million lines to stderr gets its message done, and does not fill the
 * log. */
static void test_a_flood_of_stderr(void **state) {
    (void)state;
    char *folder = fx_folder(), log[256];
    snprintf(log, sizeof log, "%s/log", folder);
    int keep = fx_capture(log);
    struct fx x;
    open_fx(&x, 600000);
    enum lw_outcome flood = play(&x, "flood"), next = play(&x, "ok");
    close_fx(&x);
    fx_release(keep);
    assert_int_equal(flood, LW_DONE);
    assert_int_equal(next, LW_DONE);
    char *text = fx_read(log);
    size_t lines = 0;
    for (char *at = text; (at = strstr(at, "]: flood\n")); at++) lines++;
    assert_true(lines > 0 && lines < 100000);
    free(text);
    fx_remove(folder);
}

/* --- configuration ---------------------------------------------------------------------------- */

static void test_check(void **state) {
    (void)state;
    static const struct {
        const char *section, *says;
    } cases[] = {
        {"{}", "handler.command: required"},
        {"{\"command\":\"x\"}", "handler.command: must be"},
        {"{\"command\":[]}", "handler.command: must be"},
        {"{\"command\":[1]}", "handler.command[0]: must be a string"},
        {"{\"command\":[\"\"]}", "handler.command[0]: must be the program"},
        {"{\"command\":[\"x\"],\"proceses\":2}",
         "handler.proceses: unknown key; did you mean processes?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = fx_check(&lw_handler_exec, cases[i].section);
        assert_contains(text, cases[i].says);
        free(text);
    }
    char *text =
        fx_check(&lw_handler_exec,
                 "{\"type\":\"exec\",\"command\":[\"x\",\"\"],\"processes\":2,\"timeout_ms\":5}");
    assert_string_equal(text, "");
    free(text);
}

static void test_registry(void **state) {
    (void)state;
    assert_ptr_equal(lw_handler_find("exec", NULL), &lw_handler_exec);
    assert_ptr_equal(lw_handler_find("plugin", NULL), &lw_handler_plugin);
    assert_ptr_equal(lw_handler_find("http", NULL), &lw_handler_http);
    assert_ptr_equal(lw_handler_find("insert", NULL), &lw_handler_insert);
    struct lw_err err = {0};
    assert_null(lw_handler_find("pluggin", &err));
    assert_contains(err.text, "did you mean plugin? There are exec, plugin, http, insert");
    err.text[0] = '\0';
    assert_null(lw_handler_find("zzzzzz", &err));
    assert_contains(err.text, "there are exec, plugin, http, insert");
}

int main(void) {
    lw_log_setup(LW_LOG_INFO, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_request_line),
        cmocka_unit_test(test_reason_is_cut_between_characters),
        cmocka_unit_test(test_answers_through_pipes),
        cmocka_unit_test(test_bad_answers_retry_and_replace),
        cmocka_unit_test(test_heir_does_not_hide_a_death),
        cmocka_unit_test(test_word_out_of_turn_costs_no_message),
        cmocka_unit_test(test_command_that_dies_at_its_start),
        cmocka_unit_test(test_error_above_the_version_of_node),
        cmocka_unit_test(test_whose_fault_a_death_is),
        cmocka_unit_test(test_never_read_until_its_timeout),
        cmocka_unit_test(test_start_check),
        cmocka_unit_test(test_backoff_of_a_useless_command),
        cmocka_unit_test(test_command_that_cannot_start),
        cmocka_unit_test(test_timeout_kills_the_group),
        cmocka_unit_test(test_lease_end_kills_the_group_before),
        cmocka_unit_test(test_renewed_lease_goes_on),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_deaf_child_cannot_block_us),
        cmocka_unit_test(test_inherited_descriptors_are_closed),
        cmocka_unit_test(test_closed_stdin_is_no_sigpipe),
        cmocka_unit_test(test_end_of_input_lets_it_finish),
        cmocka_unit_test(test_worker_killed_takes_all_with_it),
        cmocka_unit_test(test_stderr_goes_to_the_log),
        cmocka_unit_test(test_a_flood_of_stderr),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
