/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the configuration. Each folder of tests/config/cases has the file input.json and either
 * error or effective.json, and may have the files env, set and warnings. The effective.json of
 * good-minimal has every key. In all other cases the file has the keys whose values differ from
 * those, and null for the keys that do not exist there. */
#include "base/nearest.h"
#include "config/config.h"

#include <dirent.h>
#include <librdkafka/rdkafka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/redis/login.h"

#define CASES "tests/config/cases"
#define EVERY_KEY CASES "/good-minimal"
enum { SETS_MAX = 16, CASES_MIN = 50 };

static char *slurp(const char *dir, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = lw_alloc(65536);
    size_t n = fread(text, 1, 65535, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* Splits the lines of `text`, which have the form "a=b", in place. Writes the names and values to
 * `out`, and returns the number of lines. */
static size_t split(char *text, struct lw_override *out) {
    size_t n = 0;
    for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n")) {
        char *equals = strchr(line, '=');
        assert_non_null(equals);
        assert_true(n < SETS_MAX);
        *equals = '\0';
        out[n++] = (struct lw_override){line, equals + 1};
    }
    return n;
}

static bool same_text(const char *what, const struct lw_buf *got, const char *want) {
    if (got->n == strlen(want) && !memcmp(got->n ? got->p : "", want, got->n)) return true;
    print_error("%s differ\n--- want\n%s--- got\n%.*s", what, want, (int)got->n,
                got->n ? got->p : "");
    return false;
}

/* Returns what is different in `v`, with null for what only `base` has. */
static json_t *differences(json_t *v, json_t *base) {
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach(v, key, value) {
        json_t *was = json_object_get(base, key);
        if (json_is_object(value) && json_is_object(was)) {
            json_t *inner = differences(value, was);
            if (json_object_size(inner)) json_object_set(out, key, inner);
            json_decref(inner);
        } else if (!was || !json_equal(value, was)) {
            json_object_set(out, key, value);
        }
    }
    json_object_foreach(base, key, value)
        if (!json_object_get(v, key)) json_object_set_new(out, key, json_null());
    return out;
}

static json_t *effective_of(const char *dir) {
    char *text = slurp(dir, "effective.json");
    json_t *v = text ? json_loads(text, 0, NULL) : NULL;
    assert_non_null(v);
    free(text);
    return v;
}

static bool same_json(const struct lw_config *c, const char *dir) {
    struct lw_buf got = {0};
    lw_config_print(c, &got);
    json_t *a = json_loadb(got.p, got.n, 0, NULL), *b = effective_of(dir);
    if (strcmp(dir, EVERY_KEY)) {
        json_t *base = effective_of(EVERY_KEY), *all = a;
        a = differences(all, base);
        json_decref(base);
        json_decref(all);
    }
    bool same = json_equal(a, b);
    char *is = json_dumps(a, JSON_INDENT(2)), *want = json_dumps(b, JSON_INDENT(2));
    if (!same) print_error("--- want\n%s\n--- got\n%s\n", want, is);
    free(is), free(want);
    json_decref(a);
    json_decref(b);
    lw_buf_free(&got);
    return same;
}

/* Returns true if the text contains a secret: every secret in a case begins with "hunter". */
static bool holds_secret(const struct lw_buf *b) { return b->n && memmem(b->p, b->n, "hunter", 6); }

static bool run_case(const char *name) {
    char dir[300];
    struct lw_override env[SETS_MAX], set[SETS_MAX];
    struct lw_problems problems = {0};
    snprintf(dir, sizeof dir, CASES "/%s", name);
    char *input = slurp(dir, "input.json"), *error = slurp(dir, "error"),
         *effective = slurp(dir, "effective.json");
    char *env_text = slurp(dir, "env"), *set_text = slurp(dir, "set"),
         *warnings = slurp(dir, "warnings");
    assert_non_null(input);
    assert_true((error != NULL) != (effective != NULL));
    size_t n_env = split(env_text, env), n_set = split(set_text, set);
    for (size_t i = 0; i < n_env; i++) setenv(env[i].path, env[i].value, 1);
    struct lw_config *c =
        lw_config_parse("input.json", input, strlen(input), set, n_set, &problems);
    for (size_t i = 0; i < n_env; i++) unsetenv(env[i].path);
    bool ok = same_text("errors", &problems.errors, error ? error : "") &&
              (c != NULL) == (effective != NULL);
    if (ok && effective) ok = same_json(c, dir);
    if (ok && warnings) ok = same_text("warnings", &problems.warnings, warnings);
    struct lw_buf shown = {0};
    if (c) lw_config_print(c, &shown);
    if (holds_secret(&shown) || holds_secret(&problems.errors) || holds_secret(&problems.warnings))
        ok = false;
    lw_buf_free(&shown);
    lw_problems_free(&problems);
    lw_config_free(c);
    free(input), free(error), free(effective), free(env_text), free(set_text), free(warnings);
    if (!ok) print_error("case %s\n", name);
    return ok;
}

static void test_cases(void **state) {
    (void)state;
    DIR *d = opendir(CASES);
    int n = 0, failed = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        n++;
        failed += !run_case(e->d_name);
    }
    closedir(d);
    assert_int_equal(failed, 0);
    assert_true(n >= CASES_MIN);
}

/* --- files ------------------------------------------------------------------------------------ */

static void test_examples_load(void **state) {
    (void)state;
    DIR *d = opendir("config/examples");
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        struct lw_problems problems = {0};
        if (!strstr(e->d_name, ".json")) continue;
        snprintf(path, sizeof path, "config/examples/%s", e->d_name);
        struct lw_config *c = lw_config_load(path, NULL, 0, &problems);
        if (!c) print_error("%s\n%.*s", path, (int)problems.errors.n, problems.errors.p);
        assert_non_null(c);
        assert_string_equal(c->path, path);
        lw_config_free(c);
        lw_problems_free(&problems);
        n++;
    }
    closedir(d);
    assert_true(n >= 3);
}

static void expect_errors(struct lw_problems *p, struct lw_config *c, const char *want) {
    assert_null(c);
    assert_true(same_text("errors", &p->errors, want));
    lw_problems_free(p);
}

static void test_files(void **state) {
    (void)state;
    struct lw_problems p = {0};
    struct lw_config *c = lw_config_load("/nonexistent/c.json", NULL, 0, &p);
    expect_errors(&p, c, "/nonexistent/c.json: No such file or directory\n");
    c = lw_config_load("/tmp", NULL, 0, &p);
    expect_errors(&p, c, "/tmp: Is a directory\n");
    char *big = lw_alloc((1 << 20) + 2);
    memset(big, ' ', (1 << 20) + 1);
    c = lw_config_parse("big", big, (1 << 20) + 1, NULL, 0, &p);
    free(big);
    expect_errors(&p, c, "big: larger than 1 MiB\n");
}

/* A named pipe must be refused as the file of a reference ${file:PATH}: reading would wait for a
 * writer, and a reload would find nothing to read. */
static void test_named_pipe(void **state) {
    (void)state;
    char path[] = "/tmp/lw-config-XXXXXX", text[300], want[200];
    struct lw_problems p = {0};
    assert_non_null(mkdtemp(path));
    snprintf(text, sizeof text, "%s/pipe", path);
    assert_int_equal(mkfifo(text, 0600), 0);
    snprintf(text, sizeof text,
             "{\"name\":\"${file:%s/"
             "pipe}\",\"kafka\":{\"topics\":[\"o\"]},\"handler\":{\"type\":\"exec\"}}",
             path);
    struct lw_config *c = lw_config_parse("t", text, strlen(text), NULL, 0, &p);
    assert_null(c);
    snprintf(want, sizeof want,
             "name: file %s/pipe: is a named pipe, which cannot be read again at a reload; "
             "expected a file\n",
             path);
    lw_buf_add(&p.errors, "", 1);
    assert_non_null(strstr(p.errors.p, want));
    lw_problems_free(&p);
    snprintf(text, sizeof text, "%s/pipe", path);
    unlink(text);
    rmdir(path);
}

/* --- what cases can't say --------------------------------------------------------------------- */

#define MINIMAL "\"kafka\":{\"topics\":[\"o\"],\"properties\":{%s}},\"handler\":{\"type\":\"exec\"}"

static void test_struct_is_filled(void **state) {
    (void)state;
    static const char text[] =
        "{\"kafka\":{\"topics\":[\"o\",\"p\"],\"properties\":{\"group.id\":\"g\",\"auto.offset."
        "reset\":\"latest\","
        "\"sasl.password\":\"s\"}},\"redis\":{\"url\":[\"redis://a\",\"redis://b\"]},"
        "\"key\":{\"from\":\"json:/"
        "a\",\"missing\":\"skip\"},\"dedup\":{\"id\":\"header:h\",\"window_s\":9},"
        "\"dead\":{\"to\":\"topic:d\"},\"handler\":{\"type\":\"exec\",\"processes\":3},\"log\":{"
        "\"level\":\"error\",\"format\":\"json\"}}";
    struct lw_problems p = {0};
    struct lw_config *c = lw_config_parse("t", text, sizeof text - 1, NULL, 0, &p);
    assert_non_null(c);
    assert_int_equal(p.n_errors, 0);
    assert_int_equal(p.n_warnings, 1);
    assert_string_equal(c->kafka.group_id, "g");
    assert_true(c->kafka.reset_latest);
    assert_int_equal(c->kafka.n_topics, 2);
    assert_int_equal(c->kafka.n_properties, 4);
    assert_string_equal(c->kafka.properties[2].value, "s");
    assert_true(c->kafka.properties[2].secret);
    assert_int_equal(c->redis.shards, 2);
    assert_int_equal(c->key.from.from, LW_KEY_JSON);
    assert_string_equal(c->key.from.arg, "/a");
    assert_string_equal(c->key.from_text, "json:/a");
    assert_int_equal(c->key.missing, LW_MISSING_SKIP);
    assert_true(c->dedup.business);
    assert_int_equal(c->dedup.id.from, LW_KEY_HEADER);
    assert_int_equal(c->dead.to, LW_DEAD_TOPIC);
    assert_string_equal(c->dead.topic, "d");
    assert_int_equal(c->handler.threads, 3);
    assert_int_equal(c->handler.timeout_ms, 30000);
    assert_int_equal(c->log.level, LW_LOG_ERROR);
    assert_true(c->log.json);
    lw_config_free(c);
    lw_problems_free(&p);
}

static struct lw_config *with_properties(const char *properties, struct lw_problems *p) {
    struct lw_buf text = {0};
    lw_buf_addf(&text, "{" MINIMAL "}", properties);
    struct lw_config *c = lw_config_parse("t", text.p, text.n, NULL, 0, p);
    lw_buf_free(&text);
    return c;
}

static void test_cooperative_sticky_by_version(void **state) {
    (void)state;
    struct lw_problems p = {0};
    struct lw_config *c =
        with_properties("\"partition.assignment.strategy\":\"cooperative-sticky\"", &p);
    assert_int_equal(c == NULL, rd_kafka_version() < 0x020601ff);
    const char *said = c ? p.warnings.p : p.errors.p;
    if (rd_kafka_version() < 0x020a00ff)
        assert_non_null(strstr(said, "kafka.properties.partition.assignment.strategy: "));
    lw_config_free(c);
    lw_problems_free(&p);
}

static void test_new_protocol(void **state) {
    (void)state;
    struct lw_problems p = {0};
    struct lw_config *c = with_properties(
        "\"group.protocol\":\"consumer\",\"session.timeout.ms\":9000,\"heartbeat.interval.ms\":900,"
        "\"partition.assignment.strategy\":\"range\"",
        &p);
    assert_null(c);
    assert_non_null(strstr(p.errors.p, "kafka.properties.session.timeout.ms: refused with "
                                       "group.protocol \"consumer\": the broker sets it"));
    assert_non_null(
        strstr(p.errors.p, "kafka.properties.heartbeat.interval.ms: refused with group.protocol"));
    assert_non_null(strstr(
        p.errors.p, "kafka.properties.partition.assignment.strategy: refused with group.protocol"));
    lw_problems_free(&p);
    c = with_properties("\"group.protocol\":\"consumer\"", &p);
    assert_int_equal(c != NULL, rd_kafka_version() >= 0x020f00ff);
    if (c) assert_true(c->kafka.new_protocol && c->kafka.dynamic);
    if (!c)
        assert_non_null(
            strstr(p.errors.p, "kafka.properties.group.protocol: refused: librdkafka "));
    lw_config_free(c);
    lw_problems_free(&p);
}

static void test_read_uncommitted_warns(void **state) {
    (void)state;
    struct lw_problems p = {0};
    struct lw_config *c = with_properties("\"isolation.level\":\"read_uncommitted\"", &p);
    assert_non_null(c);
    assert_non_null(strstr(p.warnings.p, "kafka.properties.isolation.level: "));
    lw_config_free(c);
    lw_problems_free(&p);
}

static void handler_check(const struct lw_config *c, struct lw_problems *p) {
    assert_non_null(json_object_get(c->handler.json, "zebra"));
    lw_problem(p, "handler.zebra: unknown key");
}

static void test_handler_problems_come_with_the_others(void **state) {
    (void)state;
    static const char text[] = "{\"workers\":0,\"handler\":{\"type\":\"exec\",\"zebra\":1}}";
    struct lw_problems p = {.check_handler = handler_check};
    struct lw_config *c = lw_config_parse("t", text, sizeof text - 1, NULL, 0, &p);
    expect_errors(&p, c,
                  "workers: must be a whole number from 1 to 256, is 0\nkafka.topics: missing; it "
                  "has no default\nhandler.zebra: unknown key\n");
}

static void test_problems_are_bounded(void **state) {
    (void)state;
    struct lw_buf text = {0};
    struct lw_problems p = {0};
    lw_buf_addf(&text, "{");
    for (int i = 0; i < 1000; i++) lw_buf_addf(&text, "\"zzz%d\":1,", i);
    lw_buf_addf(&text, MINIMAL "}", "");
    assert_null(lw_config_parse("t", text.p, text.n, NULL, 0, &p));
    assert_int_equal(p.n_errors, 1000);
    int lines = 0;
    for (size_t i = 0; i < p.errors.n; i++) lines += p.errors.p[i] == '\n';
    assert_int_equal(lines, 201);
    lw_buf_free(&text);
    lw_problems_free(&p);
}

/* A document that is damaged at random must be refused with an error, or still be valid. */
static void test_damaged_documents(void **state) {
    (void)state;
    char *good = slurp(CASES "/good-everything", "input.json");
    size_t n = strlen(good);
    unsigned seed = 1;
    for (int i = 0; i < 400; i++) {
        struct lw_problems p = {0};
        char *bad = lw_memdup(good, n);
        size_t cut = n;
        for (int k = 0; k < 3; k++) bad[(size_t)rand_r(&seed) % n] = (char)(rand_r(&seed) % 256);
        if (i % 4 == 0) cut = (size_t)rand_r(&seed) % n;
        struct lw_config *c = lw_config_parse("t", bad, cut, NULL, 0, &p);
        assert_int_equal(c == NULL, p.n_errors > 0);
        lw_config_free(c);
        lw_problems_free(&p);
        free(bad);
    }
    free(good);
}

static void test_reference_names_every_key(void **state) {
    (void)state;
    static const char *const some[] = {
        "| `name` |", "| `lock.ttl_ms` | 200 to 3600000 | `10000` |",
        "| `kafka.topics` | list of 1 to 64 topic names | required |",
        "| `redis.cluster` | list of 1 to 64 `host[:port]` |",
        "| `log.format` | `text` or `json` | `\"text\"` |"};
    struct lw_buf b = {0};
    lw_config_reference(&b);
    lw_buf_add(&b, "", 1);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) assert_non_null(strstr(b.p, some[i]));
    lw_buf_free(&b);
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const words[] = {"exec", "plugin", "insert"};
    assert_string_equal(lw_nearest("exce", words, 3), "exec");
    assert_string_equal(lw_nearest("plug", words, 3), "plugin");
    assert_null(lw_nearest("zebra", words, 3));
    assert_null(lw_nearest("", words, 3));
}

/* --- Redis URLs ------------------------------------------------------------------------------- */

/* Writes the commands by which a client logs in to Redis to `out`, as one text such as
 * "AUTH u p;SELECT 3;". */
static void login_text(const char *url, const char *name, char *out) {
    struct lw_redis_url u;
    struct lw_redis_login login;
    struct lw_err err = {0};
    assert_int_equal(lw_redis_url_parse(url, &u, &err), 0);
    lw_redis_login(&u, name, &login);
    *out = '\0';
    for (size_t i = 0; i < login.n; i++) {
        assert_null(login.command[i].word[login.command[i].n]);
        for (int k = 0; k < login.command[i].n; k++)
            strcat(strcat(out, k ? " " : ""), login.command[i].word[k]);
        strcat(out, ";");
    }
    lw_redis_url_free(&u);
}

static void test_redis_login(void **state) {
    (void)state;
    static const struct {
        const char *url, *name, *says;
    } cases[] = {
        {"redis://h", NULL, ""},
        {"redis://:p@h", NULL, "AUTH p;"},
        {"redis://u:p@h/3", NULL, "AUTH u p;SELECT 3;"},
        {"rediss://u:p@h/3", "me and\nyou", "AUTH u p;SELECT 3;CLIENT SETNAME me-and-you;"},
        {"unix:///s?db=12", NULL, "SELECT 12;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        login_text(cases[i].url, cases[i].name, text);
        assert_string_equal(text, cases[i].says);
    }
}

static void test_redis_url(void **state) {
    (void)state;
    struct lw_redis_url u;
    struct lw_err err = {0};
    assert_int_equal(lw_redis_url_parse("redis://me:p%40s/@x@db.local:7000/3", &u, &err), 0);
    assert_string_equal(u.host, "db.local");
    assert_int_equal(u.port, 7000);
    assert_int_equal(u.db, 3);
    assert_string_equal(u.user, "me");
    assert_string_equal(u.password, "p@s/@x");
    assert_null(u.path);
    lw_redis_url_free(&u);
    assert_int_equal(lw_redis_url_parse("redis://:p@[::1]", &u, &err), 0);
    assert_string_equal(u.host, "::1");
    assert_int_equal(u.port, 6379);
    assert_null(u.user);
    assert_string_equal(u.password, "p");
    lw_redis_url_free(&u);
    assert_int_equal(lw_redis_url_parse("unix:///run/r.sock?db=2", &u, &err), 0);
    assert_string_equal(u.path, "/run/r.sock");
    assert_int_equal(u.db, 2);
    assert_null(u.host);
    lw_redis_url_free(&u);
    assert_int_equal(lw_redis_url_parse("redis://", &u, &err), 0);
    assert_string_equal(u.host, "127.0.0.1");
    assert_false(u.tls.on);
    lw_redis_url_free(&u);
    assert_int_equal(lw_redis_url_parse("redis://me@h", &u, &err), -1);
    assert_null(u.user);
    assert_non_null(strstr(err.text, "user without a password"));
}

static void test_redact(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{"redis://u:p@h", "redis://u:***@h"},
                                           {"redis://:p/@q@h/1", "redis://:***@h/1"},
                                           {"redis://h", "redis://h"},
                                           {"p@h", "***@h"},
                                           {"redis://u@h", "redis://***@h"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char *got = lw_url_redact(pairs[i][0]);
        assert_string_equal(got, pairs[i][1]);
        free(got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_examples_load),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_named_pipe),
        cmocka_unit_test(test_struct_is_filled),
        cmocka_unit_test(test_cooperative_sticky_by_version),
        cmocka_unit_test(test_read_uncommitted_warns),
        cmocka_unit_test(test_new_protocol),
        cmocka_unit_test(test_handler_problems_come_with_the_others),
        cmocka_unit_test(test_problems_are_bounded),
        cmocka_unit_test(test_damaged_documents),
        cmocka_unit_test(test_reference_names_every_key),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_redis_login),
        cmocka_unit_test(test_redis_url),
        cmocka_unit_test(test_redact),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
