/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a request for a job says while the job's thread still works. The operators' commands
 * are replaced by functions of this file. Also runs under ThreadSanitizer. */
#include "api/job.c" /* NOLINT(bugprone-suspicious-include): to call its static functions */

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

int ops_connect(struct ops *o) { return (void)o, 0; }
void ops_disconnect(struct ops *o) { (void)o; }
void ops_begin(struct ops *o, const char *name) { (void)o, (void)name; }
void ops_add_keys(struct ops *o, const struct ops_shard *sh, const char *const *names) {
    (void)o, (void)sh, (void)names;
}
redisReply *ops_ask(struct ops *o, struct ops_shard *sh) { return (void)o, (void)sh, NULL; }
const char *api_who(const struct api_call *k, char out[API_WHO]) {
    return (void)k, strcpy(out, "somebody");
}

static struct job *working; /* the job whose thread adds a row while an answer is written */

void api_put(struct api_call *k, json_t *v) {
    const json_t *jobs = json_object_get(v, "jobs");
    const json_t *one = jobs ? json_array_get(jobs, 0) : v;
    size_t n = json_array_size(json_object_get(one, "sample"));
    if (working) told(working, "orders/3/1042", "failed: late", true);
    if (working) assert_int_equal(json_array_size(json_object_get(one, "sample")), n);
    lw_http_json(k->a, 200, v);
}

static void ask(struct api_call *k, api_fn *fn) {
    struct lw_http_answer a = {0};
    k->a = &a;
    fn(k);
    assert_true(a.status == 200);
    lw_buf_free(&a.body);
}

static void an_answer_does_not_change_while_the_job_works(void **state) {
    (void)state;
    static struct lw_config c;
    struct api_jobs *all = api_jobs_open(&c);
    static const struct api_work w = {.noun = "queue", .verb = "replay"};
    struct ops o = {0};
    struct api_call k = {.c = &c, .o = &o, .jobs = all, .body = json_object()};
    working = new_job(&k, &w);
    add(all, working);
    ask(&k, api_jobs);
    k.segment[1] = working->id;
    ask(&k, api_job);
    assert_int_equal(json_array_size(working->sample.rows), 2);
    json_decref(k.body);
    free_job(working);
    working = NULL;
    all->n = 0;
    free(all);
}

static atomic_bool asked;

static int operate(struct ops *o) {
    while (!atomic_load(&asked)) o->watch->told(o->watch->ctx, "orders/3/1", "failed: so", true);
    return 0;
}

/* ThreadSanitizer reports an answer that shares anything with the thread. */
static void jobs_are_shown_while_they_work(void **state) {
    (void)state;
    static struct lw_config c;
    static const struct api_work w = {.noun = "queue", .verb = "replay", .operate = operate};
    struct api_jobs *all = api_jobs_open(&c);
    for (int round = 0; round < 20; round++) {
        struct ops o = {0};
        struct lw_http_answer a = {0};
        struct api_call k = {.c = &c, .o = &o, .a = &a, .jobs = all, .body = json_object()};
        atomic_store(&asked, false);
        api_job_start(&k, &w);
        assert_int_equal(a.status, 202);
        lw_buf_free(&a.body);
        json_decref(k.body);
        for (int i = 0; i < 100; i++) ask(&k, api_jobs);
        atomic_store(&asked, true);
        for (bool runs = true; runs; lw_sleep_ms(1)) {
            pthread_mutex_lock(&all->lock);
            runs = running(all);
            pthread_mutex_unlock(&all->lock);
        }
    }
    while (all->n) free_job(all->job[--all->n]);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_does_not_change_while_the_job_works),
        cmocka_unit_test(jobs_are_shown_while_they_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
