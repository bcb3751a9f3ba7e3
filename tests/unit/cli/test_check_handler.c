/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the command `check` checks the section `handler`, and that it reports a handler that
 * cannot be opened. The test replaces the real handler types with its own. */
#include "base/clock.h"
#include "handlers/handler.h"
#include "cli/check/servers.h"
#include "cli/check/check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 400 };

static void check(const struct lw_config *c, struct lw_problems *problems) {
    if (json_object_get(c->handler.json, "zebra"))
        lw_problem(problems, "handler.zebra: unknown key");
}

static struct lw_handler *open_named(const struct lw_config *c, int worker, struct lw_err *err) {
    const char *how = json_string_value(json_object_get(c->handler.json, "how"));
    (void)worker;
    if (!strcmp(how, "fails")) lw_fail(err, "no such table");
    if (!strcmp(how, "crashes")) raise(SIGKILL);
    if (!strcmp(how, "exits")) _exit(3);
    if (!strcmp(how, "hangs")) lw_sleep_ms(60000);
    return !strcmp(how, "fails") ? NULL : (struct lw_handler *)lw_strdup(how);
}

static struct lw_slot *slot_open(struct lw_handler *h, int slot, struct lw_err *err) {
    (void)slot;
    if (strcmp((char *)h, "has no slot")) return (struct lw_slot *)h;
    lw_fail(err, "no slot");
    return NULL;
}

static void slot_close(struct lw_handler *h, struct lw_slot *s) { (void)h, (void)s; }
static void close_it(struct lw_handler *h) { free(h); }

static const struct lw_handler_type fake = {.name = "fake",
                                            .check = check,
                                            .open = open_named,
                                            .slot_open = slot_open,
                                            .slot_close = slot_close,
                                            .close = close_it};

const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err) {
    if (!strcmp(name, "fake")) return &fake;
    lw_fail(err, "handler.type: unknown type \"%s\"", name);
    return NULL;
}

static void expect_opens(const char *how, const char *problems, const char *notes) {
    struct lw_config c = {
        .handler = {.type = (char *)(uintptr_t) "fake", .json = json_pack("{ss}", "how", how)}};
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_handler_opens(&c, &r);
    lw_buf_add(&r.problems.errors, "", 1);
    lw_buf_add(&r.notes, "", 1);
    assert_string_equal(r.problems.errors.p, problems);
    assert_string_equal(r.notes.p, notes);
    lw_problems_free(&r.problems);
    lw_buf_free(&r.notes);
    json_decref(c.handler.json);
}

static void test_opening(void **state) {
    (void)state;
    expect_opens("works", "", "handler: fake opens\n");
    expect_opens("fails", "handler: no such table\n", "");
    expect_opens("has no slot", "handler: no slot\n", "");
    expect_opens("crashes", "handler: it crashed while opening: Killed\n", "");
    expect_opens("exits", "handler: it ended the process while opening\n", "");
    expect_opens("hangs", "handler: it did not open within 400 ms\n", "");
}

static void expect_load(const char *text, const char *want) {
    char path[] = "/tmp/lw-check-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    struct lw_problems p = {0};
    struct lw_config *c = lw_config_load_checked(path, NULL, 0, &p);
    unlink(path);
    lw_buf_add(&p.errors, "", 1);
    assert_string_equal(p.errors.p, want);
    assert_int_equal(c == NULL, *want != '\0');
    lw_config_free(c);
    lw_problems_free(&p);
}

static void test_all_problems_at_once(void **state) {
    (void)state;
    expect_load(
        "{\"workers\":0,\"kafka\":{\"topics\":[\"o\"]},\"handler\":{\"type\":\"fake\",\"zebra\":1}"
        "}",
        "workers: must be a whole number from 1 to 256, is 0\nhandler.zebra: unknown key\n");
    expect_load("{\"kafka\":{\"topics\":[\"o\"]},\"handler\":{\"type\":\"fak\"}}",
                "handler.type: unknown type \"fak\"\n");
    expect_load("{\"kafka\":{\"topics\":[\"o\"]},\"handler\":{\"type\":\"fake\"}}", "");
}

/* --- the command ------------------------------------------------------------------------------ */

static int command(const char *a, const char *b, const char *c) {
    char words[4][64] = {"check"};
    char *argv[5] = {words[0]};
    int argc = 1;
    for (const char *const *p = (const char *const[]){a, b, c, NULL}; *p; p++) {
        snprintf(words[argc], sizeof words[argc], "%s", *p);
        argv[argc] = words[argc];
        argc++;
    }
    return cli_call(&cli_check, argc, argv);
}

static void test_exit_status(void **state) {
    (void)state;
    assert_int_equal(command("--help", NULL, NULL), 0);
    assert_int_equal(command("--reference", NULL, NULL), 0);
    assert_int_equal(command(NULL, NULL, NULL), 2);
    assert_int_equal(command("--conect", NULL, NULL), 2);
    assert_int_equal(command("-c", NULL, NULL), 2);
    assert_int_equal(command("-c", "/nonexistent.json", NULL), 2);
    assert_int_equal(command("-c", "config/examples/plugin.json", "--set=name"), 2);
    assert_int_equal(command("-c", "config/examples/plugin.json", "--set=handler.type=fake"), 0);
    assert_int_equal(command("--set=handler.type=fake", "-c", "config/examples/plugin.json"), 0);
    assert_int_equal(command("-c", "config/examples/plugin.json", "more"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_all_problems_at_once),
        cmocka_unit_test(test_exit_status),
    };
    return cmocka_run_group_tests_name("check handler", tests, NULL, NULL);
}
