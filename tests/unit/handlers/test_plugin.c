/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plugins that are built as their authors build them: the header is installed in a separate
 * folder, and pkg-config finds this folder. The test must be started in the source folder. */
#include "handlers/plugin_host.h"
#include "tests/support/handler_fixture.h"

#include "handlers/retry.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* `prefix` is the folder with the installed header, the plugins and the files that the plugins
 * write */
static char *prefix;

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...) {
    char command[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    int status = system(command);
    if (status) fail_msg("status %d of: %s", status, command);
}

static int install(void **state) {
    (void)state;
    prefix = fx_folder();
    shell("mkdir -p %s/include/latchwork %s/pc && cp include/latchwork/handler.h "
          "%s/include/latchwork/",
          prefix, prefix, prefix);
    shell(
        "sed -e 's|@PREFIX@|%s|' -e 's|@VERSION@|1|' scripts/latchwork.pc.in > %s/pc/latchwork.pc",
        prefix, prefix);
    /* The plugins are copied, so that they can include only the installed header. They are built
     * without the compiler flags of this program, which may enable ASan. */
    shell("cp -r handlers/examples/count handlers/examples/tail handlers/examples/tally "
          "tests/plugins/crash %s/",
          prefix);
    shell("cd %s && for d in count tail tally crash; do env -u CPPFLAGS -u CFLAGS -u MAKEFLAGS -u "
          "MAKELEVEL CXXFLAGS=-Werror "
          "PKG_CONFIG_PATH=%s/pc "
          "${MAKE:-make} -s -C $d OUT=%s || exit 1; done",
          prefix, prefix, prefix);
    return 0;
}

static int uninstall(void **state) {
    (void)state;
    fx_remove(prefix);
    return 0;
}

struct fx {
    struct lw_config *c;
    struct lw_handler *h;
    struct lw_slot *s;
};

static void open_fx(struct fx *x, const char *name, const char *config) {
    x->c = fx_config("{\"path\":\"%s/%s.so\",\"config\":%s}", prefix, name, config);
    struct lw_err err = {0};
    x->h = lw_handler_plugin.open(x->c, 0, &err);
    if (!x->h) fail_msg("%s", err.text);
    x->s = lw_handler_plugin.slot_open(x->h, 0, &err);
    assert_non_null(x->s);
}

static void close_fx(struct fx *x) {
    lw_handler_plugin.slot_close(x->h, x->s);
    lw_handler_plugin.close(x->h);
    fx_config_free(x->c);
}

static enum lw_outcome play(struct fx *x, struct fx_job *j, const char *payload) {
    return fx_run(&lw_handler_plugin, x->h, x->s, fx_job(j, 1, "k", payload));
}

static void build(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s.c", prefix, name);
    fx_write(path, text);
    shell("cc -Wall -Wextra -Wno-unused-parameter -Werror -fvisibility=hidden -shared -fPIC "
          "-I%s/include -o %s/%s.so %s",
          prefix, prefix, name, path);
}

static void expect_open_fails(const char *name, const char *config, const char *why) {
    struct lw_config *c = fx_config("{\"path\":\"%s/%s.so\",\"config\":%s}", prefix, name, config);
    struct lw_err err = {0};
    assert_null(lw_handler_plugin.open(c, 0, &err));
    assert_contains(err.text, why);
    assert_contains(err.text, name);
    fx_config_free(c);
}

/* --- the examples ----------------------------------------------------------------------------- */

static void test_count(void **state) {
    (void)state;
    char log[256];
    snprintf(log, sizeof log, "%s/log", prefix);
    struct fx x;
    open_fx(&x, "count", "null");
    struct fx_job j;
    for (int i = 0; i < 10; i++) {
        struct lw_job *job = fx_job(&j, i, i % 3 ? "a" : "b", NULL);
        assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, job), LW_DONE);
    }
    int keep = fx_capture(log);
    close_fx(&x);
    fx_release(keep);
    char *text = fx_read(log);
    assert_contains(text, "count: 10 messages of at least 2 keys; the busiest had 6");
    free(text);
}

static void test_tail(void **state) {
    (void)state;
    char config[512], path[256];
    snprintf(path, sizeof path, "%s/tail.log", prefix);
    snprintf(config, sizeof config, "{\"file\":\"%s\",\"sleep_ms\":5}", path);
    struct fx x;
    open_fx(&x, "tail", config);
    struct fx_job j;
    assert_int_equal(play(&x, &j, "two\nlines"), LW_DONE);
    struct lw_job *job = fx_job(&j, 2, "k", "late");
    job->lease->cancelled = true;
    assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, job), LW_BACK);
    close_fx(&x);
    char *text = fx_read(path);
    assert_contains(text, "start ");
    assert_contains(text, " t/0/1 1001 1\nline t/0/1 two lines\nend ");
    assert_null(strstr(text, "line t/0/2"));
    free(text);
}

/* Tests the example plugin `tally`, which is written in C++17. */
static void test_tally(void **state) {
    (void)state;
    expect_open_fails("tally", "null", "config.file is missing");
    char config[512], path[256];
    snprintf(path, sizeof path, "%s/sums", prefix);
    snprintf(config, sizeof config, "{\"file\":\"%s\"}", path);
    struct fx x;
    open_fx(&x, "tally", config);
    struct fx_job j;
    assert_int_equal(play(&x, &j, "40"), LW_DONE);
    assert_int_equal(play(&x, &j, "-2"), LW_DONE);
    assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, fx_job(&j, 3, "other", "7")), LW_DONE);
    static const char *const no_numbers[] = {"4 ", "", "four", NULL, "99999999999999999999"};
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        assert_int_equal(play(&x, &j, no_numbers[i]), LW_DEAD);
        assert_string_equal(j.job.reason, "the payload is no whole number");
    }
    close_fx(&x);
    char *text = fx_read(path);
    assert_string_equal(text, "k 38\nother 7\n");
    free(text);
}

static void test_seven_lines(void **state) {
    (void)state;
    build("seven", "#include <latchwork/handler.h>\n"
                   "#include <stdio.h>\n"
                   "\n"
                   "static int handle(void *self, const struct latchwork_message *m, char *reason, "
                   "size_t reason_size) {\n"
                   "    return fprintf(stderr, \"%s\\n\", m->identity) < 0 ? LATCHWORK_RETRY : "
                   "LATCHWORK_DONE;\n"
                   "}\n"
                   "LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = "
                   "{LATCHWORK_HANDLER_INIT, .handle = handle};\n");
    struct fx x;
    open_fx(&x, "seven", "null");
    struct fx_job j;
    assert_int_equal(play(&x, &j, "p"), LW_DONE);
    close_fx(&x);
}

/* --- what a plugin sees ----------------------------------------------------------------------- */

static const char witness[] =
    "#include <latchwork/handler.h>\n"
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "static FILE *f; static const struct latchwork_host *host;\n"
    "static int init(const struct latchwork_host *h, const char *config, void **self, char *e, "
    "size_t n) {\n"
    "    host = h; *self = &f; const char *file = h->setting(h, \"/file\");\n"
    "    if (!file) { snprintf(e, n, \"no file in %s\", config); return 3; }\n"
    "    f = fopen(file, \"w\");\n"
    "    const char *at[] = {\"/n\", \"/t\", \"/deep/a~1b/1\", \"/none\", \"/deep\", \"/nul\", "
    "\"\", \"/x/\", \"file\"};\n"
    "    for (int i = 0; i < 9; i++) { const char *v = h->setting(h, at[i]); fprintf(f, "
    "\"%s=%s\\n\", at[i], v ? v : \"-\"); }\n"
    "    fprintf(f, \"abi %u same %d\\n\", h->abi, h->size == sizeof *h);\n"
    "    return 0; }\n"
    "static void batch(void *self, const struct latchwork_message *const *m, struct "
    "latchwork_answer *const *a, size_t n) {\n"
    "    fprintf(f, \"batch %zu self %d\\n\", n, self == (void *)&f);\n"
    "    for (size_t i = 0; i < n; i++) {\n"
    "        fprintf(f, \"%s %s %d %lld %lld key %.*s payload %.*s attempt %d fence %llu headers "
    "%zu cancelled %d ends %d\\n\", "
    "m[i]->identity, "
    "m[i]->topic,\n"
    "            m[i]->partition, (long long)m[i]->offset, (long long)m[i]->timestamp_ms, "
    "(int)m[i]->key_len, (const char *)m[i]->key,\n"
    "            (int)m[i]->payload_len, m[i]->payload ? (const char *)m[i]->payload : \"\", "
    "m[i]->attempt, (unsigned long "
    "long)m[i]->lease->fence,\n"
    "            m[i]->n_headers, latchwork_cancelled(m[i]) != 0, latchwork_deadline_ms(m[i]) < "
    "INT64_MAX);\n"
    "        for (size_t k = 0; k < m[i]->n_headers; k++) { const struct latchwork_header *h = "
    "&m[i]->headers[k];\n"
    "            fprintf(f, \"header %.*s=%.*s\\n\", (int)h->name_len, h->name, (int)h->value_len, "
    "h->value ? (const char *)h->value : "
    "\"null\"); }\n"
    "        if (i == 1) continue;\n"
    "        a[i]->outcome = i == 2 ? LATCHWORK_DEAD : i == 3 ? 55 : LATCHWORK_DONE;\n"
    "        if (i == 2) snprintf(a[i]->reason, a[i]->reason_size, \"bad one\");\n"
    "    } }\n"
    "static void end(void *self) { fprintf(f, \"closed %d\\n\", self == (void *)&f); fclose(f); }\n"
    "LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {LATCHWORK_HANDLER_INIT, "
    ".init = init, .handle_batch = batch,\n"
    "    .batch_max = 8, .close = end};\n";

static void test_what_a_plugin_sees(void **state) {
    (void)state;
    build("witness", witness);
    expect_open_fails("witness", "{\"fil\":1}", "init failed (3): no file in {\"fil\":1}");
    char config[512], path[256];
    snprintf(path, sizeof path, "%s/witness.log", prefix);
    snprintf(config, sizeof config,
             "{\"file\":\"%s\",\"n\":42,\"t\":true,\"nul\":null,\"deep\":{\"a/b\":[0,\"found\"]}}",
             path);
    struct fx x;
    open_fx(&x, "witness", config);
    assert_int_equal(lw_handler_plugin.batch_max(x.h), 8);
    assert_int_equal(lw_handler_plugin.batch_of(x.h), LW_BATCH_KEYS);
    struct fx_job j[4];
    struct lw_job *jobs[4];
    for (int i = 0; i < 4; i++) jobs[i] = fx_job(&j[i], i, "key", i ? NULL : "pay");
    const struct lw_header headers[] = {{lw_bytes_of("h1"), lw_bytes_of("v1")},
                                        {lw_bytes_of("h2"), {NULL, 0}}};
    jobs[0]->headers = headers;
    jobs[0]->n_headers = 2;
    jobs[1]->lease->cancelled = true;
    jobs[2]->lease->deadline_ms = lw_boot_ms() - 1;
    jobs[3]->lease->deadline_ms = INT64_MAX;
    jobs[3]->attempt = 4;
    lw_handler_plugin.run(x.h, x.s, jobs, 4);
    close_fx(&x);
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    assert_int_equal(jobs[1]->outcome, LW_RETRY); /* a message without an answer is tried again */
    assert_int_equal(jobs[2]->outcome, LW_DEAD);
    assert_string_equal(jobs[2]->reason, "bad one");
    assert_int_equal(jobs[3]->outcome, LW_RETRY);
    assert_string_equal(jobs[3]->reason, "plugin returned the unknown outcome 55");
    char *text = fx_read(path);
    assert_contains(text, "/n=42\n/t=true\n/deep/a~1b/1=found\n/none=-\n/deep=-\n/nul=-\n=-\n/x/"
                          "=-\nfile=-\nabi 2 same 1\n");
    assert_contains(text, "batch 4 self 1\n");
    assert_contains(text, "t/0/0 t 0 0 1763671234567 key key payload pay attempt 1 fence 1000 "
                          "headers 2 cancelled 0 ends 1\n"
                          "header h1=v1\nheader h2=\n");
    assert_contains(text, "t/0/1 t 0 1 1763671234567 key key payload  attempt 1 fence 1001 headers "
                          "0 cancelled 1 ends 1\n");
    assert_contains(text, "fence 1002 headers 0 cancelled 1");
    assert_contains(text, "attempt 4 fence 1003 headers 0 cancelled 0 ends 0\n");
    assert_contains(text, "closed 1\n");
    free(text);
}

static void test_outcomes(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "crash", "null");
    assert_int_equal(play(&x, &j, "fine"), LW_DONE);
    assert_string_equal(j.job.reason, "");
    assert_int_equal(play(&x, &j, "retry"), LW_RETRY);
    assert_string_equal(j.job.reason, "the payload says retry");
    assert_int_equal(play(&x, &j, "dead"), LW_DEAD);
    assert_int_equal(play(&x, &j, "back"), LW_BACK);
    assert_int_equal(play(&x, &j, "odd"), LW_RETRY);
    assert_contains(j.job.reason, "unknown outcome 77");
    /* the plugin hangs until the handler's timeout cancels the run */
    struct lw_job *job = fx_job(&j, 1, "k", "hang");
    job->give_up_ms = lw_boot_ms() + 50;
    assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, job), LW_RETRY);
    assert_string_equal(j.job.reason, "timed out");
    job = fx_job(&j, 1, "k", "hang");
    job->lease->cancelled = true; /* the lease is lost, so no attempt may be counted */
    job->give_up_ms = lw_boot_ms();
    assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, job), LW_BACK);
    static const struct {
        const char *payload;
        int status; /* status of the process, as waitpid() reports it */
    } ends[] = {{"segv", 11}, {"abort", 6}, {"exit", 3 << 8}, {"exit0", 0}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGSEGV, SIG_DFL);
            signal(SIGABRT, SIG_DFL);
            play(&x, &j, ends[i].payload);
            _exit(99);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status & ~0x80, ends[i].status);
    }
    close_fx(&x);
}

/* --- suspects --------------------------------------------------------------------------------- */

static enum lw_outcome suspect(struct fx *x, struct fx_job *j, const char *payload, int64_t ms) {
    struct lw_job *job = fx_job(j, 1, "k", payload);
    job->suspect = true;
    job->give_up_ms = lw_boot_ms() + ms;
    return fx_run(&lw_handler_plugin, x->h, x->s, job);
}

/* A suspect runs in a process of its own. Whatever it does there, this process lives on. */
/* A plugin says when its message comes back, in the worker and as a suspect. */
static void test_comes_back(void **state) {
    (void)state;
    static const struct {
        const char *payload;
        int64_t wait_ms;
        bool uncounted;
        const char *reason;
    } cases[] = {
        {"later:60000", 60000, true, "plugin asked for a retry"},
        {"later:0", 1, true, "plugin asked for a retry"},
        {"later:9223372036854775807", LW_RETRY_AFTER_MAX_MS, true, "plugin asked for a retry"},
        {"later:-1", 0, false,
         "plugin asked for a retry after a negative time; expected 0 to 3600000 ms"},
        {"retry", 0, false, "the payload says retry"},
    };
    struct fx x;
    struct fx_job j;
    open_fx(&x, "crash", "null");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int alone = 0; alone < 2; alone++) {
            assert_int_equal(alone ? suspect(&x, &j, cases[i].payload, 60000)
                                   : play(&x, &j, cases[i].payload),
                             LW_RETRY);
            assert_string_equal(j.job.reason, cases[i].reason);
            assert_int_equal(j.job.wait_ms, cases[i].wait_ms);
            assert_int_equal(j.job.uncounted, cases[i].uncounted);
        }
    close_fx(&x);
}

static void test_suspects(void **state) {
    (void)state;
    static const struct {
        const char *payload;
        enum lw_outcome outcome;
        const char *reason;
    } cases[] = {
        {"fine", LW_DONE, ""},
        {"retry", LW_RETRY, "the payload says retry"},
        {"dead", LW_DEAD, "the payload says dead"},
        {"back", LW_BACK, ""},
        {"odd", LW_RETRY, "plugin returned the unknown outcome 77"},
        {"segv", LW_RETRY, "the plugin died of signal 11 (Segmentation fault)"},
        {"abort", LW_RETRY, "the plugin died of signal 6 (Aborted)"},
        {"exit", LW_RETRY, "the plugin ended its process with status 3"},
        {"exit0", LW_RETRY, "the plugin ended its process with status 0"},
    };
    struct fx x;
    struct fx_job j;
    open_fx(&x, "crash", "null");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(suspect(&x, &j, cases[i].payload, 60000), cases[i].outcome);
        assert_string_equal(j.job.reason, cases[i].reason);
    }
    /* returns when it is cancelled, or never */
    assert_int_equal(suspect(&x, &j, "hang", 50), LW_RETRY);
    assert_string_equal(j.job.reason, "timed out");
    assert_int_equal(suspect(&x, &j, "stuck", 50), LW_RETRY);
    assert_string_equal(j.job.reason, "timed out");
    struct lw_job *job = fx_job(&j, 1, "k", "stuck");
    job->suspect = true;
    job->lease->cancelled = true;
    assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, job), LW_BACK);
    close_fx(&x);
}

/* What a suspect's plugin started must not outlive its message. */
static void test_children_of_a_suspect(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "crash", "null");
    assert_int_equal(suspect(&x, &j, "child", 60000), LW_RETRY);
    pid_t child = atoi(j.job.reason);
    assert_true(child > 1);
    bool alive = true;
    for (int64_t until = lw_boot_ms() + 10000; alive && lw_boot_ms() < until; lw_sleep_ms(5))
        alive = fx_alive(child);
    /* a child that is left would hold this test's output open, and who reads it would not end */
    if (alive) kill(child, SIGKILL);
    assert_false(alive);
    close_fx(&x);
}

static void *let_the_lease_end(void *lease) {
    lw_sleep_ms(100);
    ((struct lw_job_lease *)lease)->cancelled = true;
    return NULL;
}

static void test_a_suspect_sees_its_lease(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "crash", "null");
    struct lw_job *job = fx_job(&j, 1, "k", "hang");
    job->suspect = true;
    pthread_t t;
    pthread_create(&t, NULL, let_the_lease_end, job->lease);
    assert_int_equal(fx_run(&lw_handler_plugin, x.h, x.s, job), LW_BACK);
    pthread_join(t, NULL);
    close_fx(&x);
}

static void test_what_a_suspect_sees(void **state) {
    (void)state;
    build("witness", witness);
    char config[512], path[256];
    snprintf(path, sizeof path, "%s/witness.log", prefix);
    snprintf(config, sizeof config, "{\"file\":\"%s\",\"n\":42}", path);
    struct fx x;
    open_fx(&x, "witness", config);
    struct fx_job j;
    struct lw_job *job = fx_job(&j, 0, "key", "pay");
    const struct lw_header headers[] = {{lw_bytes_of("h1"), lw_bytes_of("v1")},
                                        {lw_bytes_of("h2"), {NULL, 0}}};
    job->headers = headers;
    job->n_headers = 2;
    job->attempt = 4;
    job->suspect = true;
    lw_handler_plugin.run(x.h, x.s, &job, 1);
    char *text = fx_read(path); /* before this process, which opened the file too, closes it */
    assert_int_equal(job->outcome, LW_DONE);
    assert_contains(text, "/n=42\n");
    assert_contains(text, "batch 1 self 1\n"
                          "t/0/0 t 0 0 1763671234567 key key payload pay attempt 4 fence 1000 "
                          "headers 2 cancelled 0 ends 1\n"
                          "header h1=v1\nheader h2=\nclosed 1\n");
    free(text);
    close_fx(&x);
}

/* The plugin cannot start once the file exists that this process made after its own start: the
 * message has not been seen, so it is given back, and no attempt is counted. */
static void test_a_suspect_without_a_plugin(void **state) {
    (void)state;
    build("fussy", "#include <latchwork/handler.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
                   "static int init(const struct latchwork_host *h, const char *c, void **self, "
                   "char *e, size_t n) {\n"
                   "    const char *file = h->setting(h, \"/file\");\n"
                   "    if (access(file, F_OK)) return 0;\n"
                   "    if (h->setting(h, \"/abort\")) abort();\n"
                   "    return 1; }\n"
                   "static int handle(void *self, const struct latchwork_message *m, char *reason, "
                   "size_t reason_size) { return LATCHWORK_DONE; }\n"
                   "LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = "
                   "{LATCHWORK_HANDLER_INIT, .init = init, .handle = handle};\n");
    for (int aborts = 0; aborts < 2; aborts++) {
        char config[512], path[256];
        snprintf(path, sizeof path, "%s/fussy-%d", prefix, aborts);
        snprintf(config, sizeof config, "{\"file\":\"%s\"%s}", path, aborts ? ",\"abort\":1" : "");
        struct fx x;
        struct fx_job j;
        open_fx(&x, "fussy", config);
        assert_int_equal(suspect(&x, &j, "p", 60000), LW_DONE);
        fx_write(path, "");
        assert_int_equal(suspect(&x, &j, "p", 60000), LW_BACK);
        assert_true(j.job.wait_ms > 0);
        close_fx(&x);
    }
}

/* --- plugins that cannot be used -------------------------------------------------------------- */

static void test_refusals(void **state) {
    (void)state;
    expect_open_fails("missing", "null", "No such file");
    char path[256];
    snprintf(path, sizeof path, "%s/text.so", prefix);
    fx_write(path, "this is no shared object");
    expect_open_fails("text", "null", "cannot be loaded");
    build("empty", "int x;\n");
    expect_open_fails("empty", "null", "exports no object \"latchwork_handler\"");
#define WITH(init)                                                                               \
    "#include <latchwork/handler.h>\nstatic int handle(void *s, const struct latchwork_message " \
    "*m, char *r, size_t n) { return 0; }\n"                                                     \
    "int (*use)(void *, const struct latchwork_message *, char *, size_t) = handle;\n"           \
    "LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {" init "};\n"
    build("new", WITH(".abi = 3, .size = sizeof(struct latchwork_handler), .handle = handle"));
    expect_open_fails(
        "new", "null",
        "built for interface version 3, this Latchwork has version 2: install a newer");
    build("old", WITH(".abi = 1, .size = sizeof(struct latchwork_handler), .handle = handle"));
    expect_open_fails(
        "old", "null",
        "built for interface version 1, this Latchwork has version 2: build the plugin");
    build("noinit", WITH(".handle = handle"));
    expect_open_fails("noinit", "null", "LATCHWORK_HANDLER_INIT missing");
    build("small", WITH(".abi = 2, .size = 16, .handle = handle"));
    expect_open_fails("small", "null", "a size of 16 bytes");
    build("nohandle", WITH("LATCHWORK_HANDLER_INIT"));
    expect_open_fails("nohandle", "null", "has no handle");
    build("nobatch", WITH("LATCHWORK_HANDLER_INIT, .handle = handle, .batch_max = 5"));
    expect_open_fails("nobatch", "null", "no handle_batch");
    build("huge", WITH("LATCHWORK_HANDLER_INIT, .handle = handle, .batch_max = 5000"));
    expect_open_fails("huge", "null", "batch_max is 5000");
    build("kind", WITH("LATCHWORK_HANDLER_INIT, .handle_batch = (void *)handle, .batch_max = 5, "
                       ".batch_of = 3"));
    expect_open_fails("kind", "null", "batch_of is 3, which this Latchwork does not know");
    build("single",
          WITH("LATCHWORK_HANDLER_INIT, .handle = handle, .batch_of = LATCHWORK_BATCH_ANY"));
    expect_open_fails("single", "null", "has batch_of but no batch_max");
}

/* A plugin that was built with an older header has no field batch_of. It must get batches in which
 * no two messages have the same key. */
static void test_which_batches(void **state) {
    (void)state;
    static const char batches[] =
        "#include <latchwork/handler.h>\n"
        "static void batch(void *s, const struct latchwork_message *const *m, struct "
        "latchwork_answer *const *a, "
        "size_t n) { (void)s, (void)m; for (size_t i = 0; i < n; i++) a[i]->outcome = "
        "LATCHWORK_DONE; }\n"
        "LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {.abi = "
        "LATCHWORK_ABI, .size = SIZE, "
        ".handle_batch = batch, .batch_max = 4, .batch_of = LATCHWORK_BATCH_ONE_KEY};\n";
    static const struct {
        const char *name, *size;
        enum lw_batch_of expected;
    } plugins[] = {
        {"whole", "sizeof(struct latchwork_handler)", LW_BATCH_ONE_KEY},
        {"before", "__builtin_offsetof(struct latchwork_handler, batch_of)", LW_BATCH_KEYS}};
    for (int i = 0; i < 2; i++) {
        char source[2048];
        snprintf(source, sizeof source, "#define SIZE %s\n%s", plugins[i].size, batches);
        build(plugins[i].name, source);
        struct fx x;
        open_fx(&x, plugins[i].name, "null");
        assert_int_equal(lw_handler_plugin.batch_of(x.h), plugins[i].expected);
        close_fx(&x);
    }
}

static void test_check(void **state) {
    (void)state;
    char *text = fx_check(&lw_handler_plugin, "{\"pth\":1}");
    assert_contains(text, "handler.pth: unknown key; did you mean path?");
    assert_contains(text, "handler.path: required");
    free(text);
    text = fx_check(&lw_handler_plugin, "{\"path\":\"/no/such.so\"}");
    assert_contains(text, "handler.path: /no/such.so: No such file");
    free(text);
    text = fx_check(&lw_handler_plugin, "{\"type\":\"plugin\",\"path\":\"Makefile\",\"config\":[1],"
                                        "\"threads\":3,\"timeout_ms\":1}");
    assert_string_equal(text, "");
    free(text);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], LW_PLUGIN_HOST)) return lw_plugin_host_main();
    lw_log_setup(LW_LOG_INFO, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_tail),
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_seven_lines),
        cmocka_unit_test(test_what_a_plugin_sees),
        cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_suspects),
        cmocka_unit_test(test_children_of_a_suspect),
        cmocka_unit_test(test_a_suspect_sees_its_lease),
        cmocka_unit_test(test_what_a_suspect_sees),
        cmocka_unit_test(test_a_suspect_without_a_plugin),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_which_batches),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, install, uninstall);
}
