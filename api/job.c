/* SPDX-License-Identifier: Apache-2.0 */
#include "api/job.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DRY_MS = 3500, SPARE_MS = 500 };

enum state { RUNS, DONE, FAILED, CANCELLED };
static const char *const state_name[] = {"running", "done", "failed", "cancelled"};

/* Sample rows of a job. `all` is true for a dry run, in which the samples are the first rows.
 * Otherwise the samples are the first rows with problems. */
struct sample {
    json_t *rows;
    bool all;
};

struct job {
    struct api_jobs *all;
    const struct api_work *work;
    const struct lw_config *c;
    char id[24], by[API_WHO];
    json_t *body; /* the request's body, which owns the texts in `args` */
    char **words; /* array of the command's arguments, to which `args` points */
    struct ops_args args;
    int64_t asked_ms;
    struct ops_watch watch;
    /* The mutex in struct api_jobs guards the members from `state` on. */
    enum state state;
    int64_t ended_ms;
    char error[1024];
    struct sample sample;
    json_t *result;
};

struct api_jobs {
    const struct lw_config *c;
    pthread_mutex_t lock;
    struct job *job[API_JOBS]; /* all remembered jobs, oldest first */
    int n;
    int64_t last_id;
};

struct api_jobs *api_jobs_open(const struct lw_config *c) {
    struct api_jobs *all = lw_alloc(sizeof *all);
    *all = (struct api_jobs){.c = c};
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

/* --- a job's thread --------------------------------------------------------------------------- */

static void keep(struct sample *s, const char *name, const char *result, bool problem) {
    if ((!s->all && !problem) || json_array_size(s->rows) >= API_SAMPLES) return;
    json_t *row = json_pack("{s:s,s:s}", "name", name, "result", result);
    if (row) json_array_append_new(s->rows, row);
}

static void told(void *ctx, const char *name, const char *result, bool problem) {
    struct job *j = ctx;
    pthread_mutex_lock(&j->all->lock);
    keep(&j->sample, name, result, problem);
    pthread_mutex_unlock(&j->all->lock);
}

static int work(const struct api_work *w, struct ops *o, json_t **result) {
    if (w->make) return w->make(o, result);
    o->met = lw_alloc((size_t)o->args.n_words + 1);
    int status = w->operate(o);
    free(o->met);
    o->met = NULL;
    return status || o->err.text[0] ? -1 : 0;
}

static void end(struct job *j, const struct ops *o, int bad, json_t *result) {
    pthread_mutex_lock(&j->all->lock);
    bool cancelled = bad && atomic_load(&j->watch.cancel);
    snprintf(j->error, sizeof j->error, "%s", cancelled ? "" : o->err.text);
    j->result = result;
    j->ended_ms = lw_wall_ms();
    j->state = cancelled ? CANCELLED : o->err.text[0] ? FAILED : DONE;
    lw_info("api: job %s, %s %s, asked for by %s: %s, %" PRId64 " of %" PRId64 "%s%s", j->id,
            j->work->noun, j->work->verb, j->by, state_name[j->state],
            (int64_t)atomic_load(&j->watch.done), (int64_t)atomic_load(&j->watch.taken),
            j->error[0] ? ": " : "", j->error);
    pthread_mutex_unlock(&j->all->lock);
}

static void *run(void *arg) {
    struct job *j = arg;
    json_t *result = NULL;
    struct ops o = {.noun = j->work->noun,
                    .verb = j->work->verb,
                    .args = j->args,
                    .c = (struct lw_config *)(uintptr_t)j->c,
                    .asked_ms = j->asked_ms,
                    .quiet = true,
                    .who = j->by,
                    .watch = &j->watch};
    int bad = ops_connect(&o) || work(j->work, &o, &result) ? -1 : 0;
    end(j, &o, bad, result);
    ops_disconnect(&o);
    return NULL;
}

/* --- the list --------------------------------------------------------------------------------- */

static void free_job(struct job *j) {
    json_decref(j->body);
    json_decref(j->sample.rows);
    json_decref(j->result);
    free(j->words);
    free(j);
}

static struct job *running(const struct api_jobs *all) {
    for (int i = 0; i < all->n; i++)
        if (all->job[i]->state == RUNS) return all->job[i];
    return NULL;
}

static void add(struct api_jobs *all, struct job *j) {
    int64_t id = lw_wall_ms();
    if (all->n == API_JOBS) {
        /* The oldest job has ended, because only the newest job can be running. */
        free_job(all->job[0]);
        memmove(all->job, all->job + 1, --all->n * sizeof *all->job);
    }
    all->last_id = id > all->last_id ? id : all->last_id + 1;
    snprintf(j->id, sizeof j->id, "%" PRId64, all->last_id);
    all->job[all->n++] = j;
}

static struct job *new_job(struct api_call *k, const struct api_work *w) {
    struct job *j = lw_alloc(sizeof *j);
    *j = (struct job){.all = k->jobs,
                      .work = w,
                      .c = k->c,
                      .body = json_incref(k->body),
                      .words = k->words,
                      .args = k->o->args};
    k->words = NULL;
    api_who(k, j->by);
    j->args.execute = k->execute;
    j->asked_ms = k->o->asked_ms;
    j->sample = (struct sample){json_array(), !k->execute};
    j->watch.told = told;
    j->watch.ctx = j;
    return j;
}

/* --- requests --------------------------------------------------------------------------------- */

/* Sets *busy to true and answers 409 if a job of the application is running, in this process or
 * elsewhere. Another job may still begin elsewhere right after this check. If so, the job of this
 * request finds that other job when it starts, and fails. */
static int is_busy(struct api_call *k, bool *busy) {
    struct ops *o = k->o;
    ops_begin(o, "GET"), ops_keys(o, &o->shards[0], "job");
    redisReply *r = ops_ask(o, &o->shards[0]);
    if (!r) return -1;
    *busy = r->type == REDIS_REPLY_STRING;
    if (*busy)
        lw_http_error(k->a, 409,
                      "job %.*s of an operator is under way, and only one runs at a time; try "
                      "again when it has ended",
                      (int)strcspn(r->str, " "), r->str);
    freeReplyObject(r);
    return 0;
}

/* Adds the job to the list and starts its thread, unless another job is running. The function holds
 * the mutex until it has copied the job's id. The thread also needs the mutex to end the job, so
 * the id is copied before the job can end. */
static bool launch(struct api_call *k, struct job *j, char id[24]) {
    struct api_jobs *all = k->jobs;
    pthread_t thread;
    int failed = 0;
    pthread_mutex_lock(&all->lock);
    const struct job *other = running(all);
    if (!other) {
        add(all, j);
        failed = lw_thread_start(&thread, run, j);
        memcpy(id, j->id, sizeof j->id);
        if (failed) all->n--;
    }
    if (other)
        lw_http_error(
            k->a, 409,
            "job %s (%s %s) is under way, and only one runs at a time; try again when it has ended",
            other->id, other->work->noun, other->work->verb);
    pthread_mutex_unlock(&all->lock);
    if (failed)
        lw_http_error(k->a, 503, "cannot start the thread for the job: %s", strerror(failed));
    if (!other && !failed) pthread_detach(thread);
    return !other && !failed;
}

int api_job_start(struct api_call *k, const struct api_work *w) {
    bool busy = false;
    char id[24];
    if (w->one_at_a_time && k->execute && is_busy(k, &busy)) return -1;
    if (busy) return 0;
    struct job *j = new_job(k, w);
    if (launch(k, j, id)) {
        api_put(k, json_pack("{s:s}", "job", id));
        k->a->status = 202;
    } else {
        free_job(j);
    }
    return 0;
}

static void told_dry(void *ctx, const char *name, const char *result, bool problem) {
    keep(ctx, name, result, problem);
}

int api_job_dry(struct api_call *k, const struct api_work *w) {
    struct ops *o = k->o;
    char by[API_WHO];
    struct sample sample = {json_array(), true};
    struct ops_watch watch = {.until_ms = lw_boot_ms() + DRY_MS, .told = told_dry, .ctx = &sample};
    if (watch.until_ms > k->q->until_ms - SPARE_MS) watch.until_ms = k->q->until_ms - SPARE_MS;
    o->noun = w->noun, o->verb = w->verb, o->who = api_who(k, by), o->watch = &watch;
    json_t *unused = NULL;
    work(w, o, &unused);
    o->verb = NULL, o->who = NULL, o->watch = NULL;
    bool failed = o->err.text[0] && !watch.ran_out;
    int64_t taken = atomic_load(&watch.taken), done = atomic_load(&watch.done),
            problems = atomic_load(&watch.problems);
    if (!failed)
        api_put(k, json_pack("{s:I,s:I,s:I,s:I,s:b,s:O}", "count", (json_int_t)done, "left_out",
                             (json_int_t)(taken - done), "failed", (json_int_t)problems, "scanned",
                             (json_int_t)atomic_load(&watch.scanned), "complete",
                             !watch.ran_out && !o->cut, "sample", sample.rows));
    json_decref(sample.rows);
    return failed ? -1 : 0;
}

static void set_counts(json_t *v, const struct job *j) {
    const struct ops_watch *w = &j->watch;
    int64_t taken = atomic_load(&w->taken), done = atomic_load(&w->done),
            to_scan = atomic_load(&w->to_scan);
    bool known = j->state != RUNS || j->args.n_words;
    json_object_set_new(v, "done", json_integer(done));
    json_object_set_new(v, "total",
                        !known ? json_null()
                               : json_integer(j->state == RUNS ? j->args.n_words : taken));
    json_object_set_new(v, "failed", json_integer(atomic_load(&w->problems)));
    json_object_set_new(v, "left_out", json_integer(taken > done ? taken - done : 0));
    json_object_set_new(v, "scanned", json_integer(atomic_load(&w->scanned)));
    json_object_set_new(v, "to_scan", to_scan ? json_integer(to_scan) : json_null());
    if (atomic_load(&w->number) && j->args.execute)
        json_object_set_new(v, "number", json_integer(atomic_load(&w->number)));
}

/* The answer is written after the mutex is unlocked, while the job's thread may add rows. Therefore
 * the answer gets a copy of the sample. */
static json_t *job_json(const struct job *j) {
    json_t *v =
        json_pack("{s:s,s:o,s:s,s:b,s:s,s:I,s:o}", "id", j->id, "what",
                  json_sprintf("%s %s", j->work->noun, j->work->verb), "state",
                  state_name[j->state], "dry_run", !j->args.execute, "by", j->by, "started_ms",
                  (json_int_t)j->asked_ms, "sample", json_deep_copy(j->sample.rows));
    set_counts(v, j);
    if (j->error[0]) json_object_set_new(v, "error", json_string(j->error));
    if (j->state != RUNS) json_object_set_new(v, "ended_ms", json_integer(j->ended_ms));
    if (j->result) json_object_set(v, "result", j->result);
    return v;
}

int api_jobs(struct api_call *k) {
    json_t *list = json_array();
    pthread_mutex_lock(&k->jobs->lock);
    for (int i = k->jobs->n - 1; i >= 0; i--)
        json_array_append_new(list, job_json(k->jobs->job[i]));
    pthread_mutex_unlock(&k->jobs->lock);
    api_put(k, json_pack("{s:o}", "jobs", list));
    return 0;
}

static struct job *find(const struct api_call *k) {
    for (int i = 0; i < k->jobs->n; i++)
        if (!strcmp(k->jobs->job[i]->id, k->segment[1])) return k->jobs->job[i];
    return NULL;
}

static void put_one(struct api_call *k, bool cancel) {
    pthread_mutex_lock(&k->jobs->lock);
    struct job *j = find(k);
    if (j && cancel) atomic_store(&j->watch.cancel, true);
    json_t *v = j ? job_json(j) : NULL;
    pthread_mutex_unlock(&k->jobs->lock);
    if (v)
        api_put(k, v);
    else
        lw_http_error(k->a, 404, "no job has this ID; only the last %d of this process are kept",
                      API_JOBS);
}

int api_job(struct api_call *k) { return put_one(k, false), 0; }
int api_cancel(struct api_call *k) { return put_one(k, true), 0; }

json_t *api_job_last(struct api_call *k, const struct api_work *w, int64_t *at_ms) {
    json_t *v = NULL;
    pthread_mutex_lock(&k->jobs->lock);
    for (int i = k->jobs->n - 1; i >= 0 && !v; i--) {
        const struct job *j = k->jobs->job[i];
        if (j->work != w || !j->result) continue;
        v = json_incref(j->result);
        *at_ms = j->ended_ms;
    }
    pthread_mutex_unlock(&k->jobs->lock);
    return v;
}
