/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the tests of handlers and of the pool. They make configurations from a JSON section,
 * make jobs and temporary folders, and capture the log. */
#ifndef LW_TESTS_SUPPORT_HANDLER_FIXTURE_H
#define LW_TESTS_SUPPORT_HANDLER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "handlers/feed.h"
#include "handlers/handler.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static UNUSED struct lw_config *fx_config(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static UNUSED struct lw_config *fx_config(const char *format, ...) {
    struct lw_buf text = {0};
    va_list ap;
    va_start(ap, format);
    char *section;
    assert_true(vasprintf(&section, format, ap) > 0);
    va_end(ap);
    struct lw_config *c = lw_alloc(sizeof *c);
    json_error_t bad;
    c->handler.json = json_loads(section, 0, &bad);
    if (!c->handler.json) fail_msg("%s in %s", bad.text, section);
    free(section);
    lw_buf_free(&text);
    c->name = (char *)"app";
    c->lock.ttl_ms = 2000;
    c->retry.backoff_max_ms = 30000;
    const json_t *n = json_object_get(c->handler.json, "processes");
    if (!n) n = json_object_get(c->handler.json, "threads");
    c->handler.threads = n ? (int)json_integer_value(n) : 1;
    c->handler.in_flight = (int)json_integer_value(json_object_get(c->handler.json, "in_flight"));
    c->handler.batch = (int)json_integer_value(json_object_get(c->handler.json, "batch"));
    c->handler.timeout_ms = json_integer_value(json_object_get(c->handler.json, "timeout_ms"));
    return c;
}

static UNUSED void fx_config_free(struct lw_config *c) {
    json_decref(c->handler.json);
    free(c);
}

/* Returns the problems that the handler type's check() reports, as one text. The caller frees the
 * text. */
static UNUSED char *fx_check(const struct lw_handler_type *t, const char *section) {
    struct lw_config *c = fx_config("%s", section);
    struct lw_problems p = {0};
    t->check(c, &p);
    char *text = lw_memdup(p.errors.p, p.errors.n);
    assert_int_equal(p.n_errors > 0, p.errors.n > 0);
    lw_buf_free(&p.errors);
    lw_buf_free(&p.warnings);
    fx_config_free(c);
    return text;
}

#define assert_contains(text, part)                                                       \
    do {                                                                                  \
        if (!strstr((text), (part))) fail_msg("\"%s\" is not in \"%s\"", (part), (text)); \
    } while (0)

struct fx_job {
    struct lw_job job;
    struct lw_job_lease lease;
    char key[64];
};

/* Makes a job of topic t, partition 0, with a lease that has not ended. The job borrows the
 * payload. */
static UNUSED struct lw_job *fx_job(struct fx_job *j, int64_t offset, const char *key,
                                    const char *payload) {
    memset(j, 0, sizeof *j);
    snprintf(j->key, sizeof j->key, "%s", key);
    snprintf(j->job.identity, sizeof j->job.identity, "t/0/%lld", (long long)offset);
    j->job.topic = "t";
    j->job.offset = offset;
    j->job.timestamp_ms = 1763671234567;
    j->job.key = lw_bytes(j->key, strlen(key));
    j->job.payload = payload ? lw_bytes_of(payload) : (struct lw_bytes){0};
    j->job.attempt = 1;
    j->job.lease = &j->lease;
    j->job.give_up_ms = INT64_MAX;
    j->job.outcome = (enum lw_outcome)99;
    j->job.fence = (uint64_t)(1000 + offset);
    j->lease.deadline_ms = lw_boot_ms() + 600000;
    return &j->job;
}

/* Runs one job and returns its outcome. If the handler type has serve(), the job goes through
 * serve(). Otherwise it runs on the slot s. */
static UNUSED enum lw_outcome fx_run(const struct lw_handler_type *t, struct lw_handler *h,
                                     struct lw_slot *s, struct lw_job *job) {
    struct lw_err err = {0};
    if (!t->serve)
        t->run(h, s, &job, 1);
    else if (lw_feed_run_one(t, h, job, &err))
        fail_msg("%s", err.text);
    return job->outcome;
}

static UNUSED char *fx_folder(void) {
    char form[] = "/tmp/lw-test-XXXXXX";
    assert_non_null(mkdtemp(form));
    return lw_strdup(form);
}

static UNUSED void fx_remove(char *folder) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) print_message("%s is left\n", folder);
    free(folder);
}

static UNUSED void fx_write(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Returns the file's text, or "" if the file does not exist. The caller frees the text. */
static UNUSED char *fx_read(const char *path) {
    struct lw_buf b = {0};
    char chunk[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, chunk, sizeof chunk)) > 0;)
        lw_buf_add(&b, chunk, (size_t)n);
    if (fd >= 0) close(fd);
    char *text = lw_memdup(b.p, b.n);
    lw_buf_free(&b);
    return text;
}

/* Waits until the condition is true. Fails the test if it is not true within 300 s, which only
 * turns a hang into a failure. */
#define wait_for(condition)                                                           \
    do {                                                                              \
        for (int64_t until_ = lw_boot_ms() + 300000; !(condition);) {                 \
            if (lw_boot_ms() > until_) fail_msg("waited in vain for %s", #condition); \
            lw_sleep_ms(2);                                                           \
        }                                                                             \
    } while (0)

/* fx_capture() redirects stderr, which gets the log, to a file. fx_release() ends the
 * redirection. */
static UNUSED int fx_capture(const char *path) {
    int keep = dup(2), fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    assert_true(keep >= 0 && fd >= 0);
    dup2(fd, 2);
    close(fd);
    return keep;
}

static UNUSED void fx_release(int keep) {
    dup2(keep, 2);
    close(keep);
}

/* Returns true if the process exists and is not a zombie. */
static UNUSED bool fx_alive(pid_t pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    fclose(f);
    return state != 'Z' && state != 'X';
}

#endif
