/* SPDX-License-Identifier: Apache-2.0 */
/* plugin: a handler in a shared object, behind the public interface include/latchwork/handler.h. */
#include "handlers/handler.h"
#include "handlers/plugin_host.h"
#include "handlers/retry.h"
#include "handlers/section.h"

#include "base/clock.h"
#include "base/json_place.h"
#include "base/log.h"
#include "latchwork/handler.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH_MAX = 1024, SETTING_MAX = 64 };

/* Size of struct latchwork_handler in the first version of the interface. The table of every plugin
 * has at least this size. */
static const size_t first_size =
    offsetof(struct latchwork_handler, close) + sizeof(void (*)(void *));

struct setting {
    struct setting *next;
    char text[SETTING_MAX];
};

struct lw_handler {
    /* `host` must be the first member, because host_setting() casts its address to struct
     * lw_handler. */
    struct latchwork_host host;
    void *object;
    const struct latchwork_handler *api;
    void *self;
    bool inited;
    const struct lw_config *c; /* borrowed */
    /* `settings` lists the numbers and booleans that host_setting() has returned as text; `lock`
     * guards the list */
    struct setting *settings;
    pthread_mutex_t lock;
    size_t batch_max;
    enum lw_batch_of batch_of;
};

/* A job as the plugin sees it, with a pointer to the job itself. */
struct view {
    /* `lease` must be the first member, because the lease functions cast its address to struct
     * view. */
    struct latchwork_lease lease;
    struct lw_job *job;
    struct latchwork_message message;
    struct latchwork_header *headers;
    size_t room;
};

struct lw_slot {
    struct view *views;
    const struct latchwork_message **messages;
    struct latchwork_answer *answer;
    struct latchwork_answer **answers; /* pointers to the elements of `answer` */
};

/* --- the services ----------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void host_log(enum latchwork_level level,
                                                           const char *format, ...) {
    static const enum lw_log_level levels[] = {LW_LOG_DEBUG, LW_LOG_INFO, LW_LOG_WARN,
                                               LW_LOG_ERROR};
    unsigned l = (unsigned)level > LATCHWORK_LOG_ERROR ? LATCHWORK_LOG_ERROR : (unsigned)level;
    if (!lw_log_on(levels[l])) return;
    char text[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (levels[l] == LW_LOG_DEBUG)
        lw_debug("%s", text);
    else
        lw_some(5000, levels[l], NULL, 0, "%s", text);
}

static const char *keep_text(struct lw_handler *h, const json_t *v) {
    struct setting *s = lw_alloc(sizeof *s);
    size_t n = json_dumpb(v, s->text, sizeof s->text - 1, JSON_ENCODE_ANY);
    if (!n || n >= sizeof s->text) {
        free(s);
        return NULL;
    }
    pthread_mutex_lock(&h->lock);
    for (struct setting *old = h->settings; old; old = old->next)
        if (strcmp(old->text, s->text) == 0) {
            pthread_mutex_unlock(&h->lock);
            free(s);
            return old->text;
        }
    s->next = h->settings;
    h->settings = s;
    pthread_mutex_unlock(&h->lock);
    return s->text;
}

/* Returns the plugin's own section of the configuration, or NULL. */
static const json_t *config_of(const struct lw_handler *h) {
    return json_object_get(h->c->handler.json, "config");
}

static const char *host_setting(const struct latchwork_host *host, const char *pointer) {
    struct lw_handler *h = (struct lw_handler *)(uintptr_t)host;
    const json_t *v = lw_json_at(config_of(h), pointer);
    if (json_is_string(v)) return json_string_value(v);
    return json_is_number(v) || json_is_boolean(v) ? keep_text(h, v) : NULL;
}

static int64_t lease_deadline_ms(const struct latchwork_lease *lease) {
    return lw_job_end_ms(((const struct view *)(const void *)lease)->job);
}

static int lease_cancelled(const struct latchwork_lease *lease) {
    return lw_job_over(((const struct view *)(const void *)lease)->job, lw_boot_ms());
}

/* A negative time is kept until the answer comes, which reports it. */
static void lease_retry_after(const struct latchwork_lease *lease, int64_t after_ms, int counts) {
    struct lw_job *job = ((const struct view *)(const void *)lease)->job;
    job->wait_ms = after_ms < 0 ? -1 : lw_retry_wait_ms(after_ms);
    job->uncounted = !counts;
}

/* --- configuration, loading ------------------------------------------------------------------- */

static void check(const struct lw_config *c, struct lw_problems *problems) {
    static const char *const known[] = {"type", "path", "config", "threads", "timeout_ms", NULL};
    lw_section_known(c->handler.json, known, problems);
    const char *path = lw_section_string(c->handler.json, "path", true, problems);
    if (path && access(path, R_OK))
        lw_problem(problems, "handler.path: %s: %s", path, strerror(errno));
}

/* Checks the table of functions that a plugin exports. Returns -1 with *err if the table is not
 * valid. */
static int check_api(const struct latchwork_handler *api, const char *path, struct lw_err *err) {
    const char *advice =
        api->abi == 0 ? " (is LATCHWORK_HANDLER_INIT missing in its table?)"
        : api->abi < LATCHWORK_ABI
            ? ": build the plugin with this one's header"
            : ": install a newer Latchwork, or build the plugin with this one's header";
    if (api->abi != LATCHWORK_ABI)
        return lw_refuse(
            err, "plugin %s: built for interface version %u, this Latchwork has version %d%s", path,
            api->abi, LATCHWORK_ABI, advice);
    if (api->size < first_size)
        return lw_refuse(err,
                         "plugin %s: its table has a size of %u bytes, expected at least %zu; "
                         "build it with <latchwork/handler.h>",
                         path, api->size, first_size);
    if (api->batch_max > BATCH_MAX)
        return lw_refuse(err, "plugin %s: batch_max is %zu, at most %d is allowed", path,
                         api->batch_max, BATCH_MAX);
    if (api->batch_max && !api->handle_batch)
        return lw_refuse(err, "plugin %s: has batch_max but no handle_batch; set both or neither",
                         path);
    if (!api->batch_max && !api->handle)
        return lw_refuse(err, "plugin %s: has no handle%s", path,
                         api->handle_batch ? ", and handle_batch needs a batch_max" : "");
    return 0;
}

/* Reads batch_of from a plugin's table. Plugins built with an older header do not have this member;
 * the default, LW_BATCH_KEYS, is used for them. Returns -1 with *err if the value of batch_of is
 * not valid. */
static int read_batch_of(struct lw_handler *h, const char *path, struct lw_err *err) {
    static const enum lw_batch_of kinds[] = {[LATCHWORK_BATCH_KEYS] = LW_BATCH_KEYS,
                                             [LATCHWORK_BATCH_ONE_KEY] = LW_BATCH_ONE_KEY,
                                             [LATCHWORK_BATCH_ANY] = LW_BATCH_ANY};
    h->batch_of = LW_BATCH_KEYS;
    if (h->api->size < offsetof(struct latchwork_handler, batch_of) + sizeof h->api->batch_of)
        return 0;
    unsigned of = h->api->batch_of;
    if (of >= sizeof kinds / sizeof *kinds)
        return lw_refuse(err, "plugin %s: batch_of is %u, which this Latchwork does not know", path,
                         of);
    if (of && !h->api->batch_max)
        return lw_refuse(err, "plugin %s: has batch_of but no batch_max; set both or neither",
                         path);
    h->batch_of = kinds[of];
    return 0;
}

static int load(struct lw_handler *h, const char *path, struct lw_err *err) {
    if (access(path, R_OK)) return lw_refuse(err, "plugin %s: %s", path, strerror(errno));
    char here[4096];
    /* Put "./" before a path without a slash, because dlopen() would otherwise search the system's
     * library folders. */
    int n = snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (n < 0 || (size_t)n >= sizeof here)
        return lw_refuse(err, "plugin %.200s…: the path is too long", path);
    h->object = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (!h->object) return lw_refuse(err, "plugin %s: cannot be loaded: %s", path, dlerror());
    h->api = dlsym(h->object, "latchwork_handler");
    if (!h->api)
        return lw_refuse(
            err,
            "plugin %s: exports no object \"latchwork_handler\" (declare it with LATCHWORK_EXPORT)",
            path);
    return check_api(h->api, path, err) ? -1 : read_batch_of(h, path, err);
}

static int init(struct lw_handler *h, const char *path, struct lw_err *err) {
    h->batch_max = h->api->batch_max ? h->api->batch_max : 1;
    if (!h->api->init) return h->inited = true, 0;
    const json_t *config = config_of(h);
    char *text = config ? json_dumps(config, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char why[512] = "";
    int r = h->api->init(&h->host, text ? text : "null", &h->self, why, sizeof why);
    free(text);
    why[sizeof why - 1] = '\0';
    if (r) return lw_fail(err, "plugin %s: init failed (%d)%s%s", path, r, why[0] ? ": " : "", why);
    h->inited = true;
    return 0;
}

static void close_handler(struct lw_handler *h) {
    if (h->inited && h->api->close) h->api->close(h->self);
    while (h->settings) {
        struct setting *s = h->settings;
        h->settings = s->next;
        free(s);
    }
    /* The shared object is not unloaded, because threads of the plugin's libraries, or exit
     * handlers, may still run its code. */
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static struct lw_handler *open_handler(const struct lw_config *c, int worker, struct lw_err *err) {
    (void)worker;
    struct lw_handler *h = lw_alloc(sizeof *h);
    h->host =
        (struct latchwork_host){LATCHWORK_ABI, sizeof h->host, host_log, lw_boot_ms, host_setting};
    h->c = c;
    pthread_mutex_init(&h->lock, NULL);
    const char *path = json_string_value(json_object_get(c->handler.json, "path"));
    if (load(h, path, err) == 0 && init(h, path, err) == 0) return h;
    close_handler(h);
    return NULL;
}

/* --- running ---------------------------------------------------------------------------------- */

static struct lw_slot *open_slot(struct lw_handler *h, int slot, struct lw_err *err) {
    (void)slot, (void)err;
    struct lw_slot *s = lw_alloc(sizeof *s);
    s->views = lw_alloc(h->batch_max * sizeof *s->views);
    s->messages = lw_alloc(h->batch_max * sizeof *s->messages);
    s->answer = lw_alloc(h->batch_max * sizeof *s->answer);
    s->answers = lw_alloc(h->batch_max * sizeof(struct latchwork_answer *));
    for (size_t i = 0; i < h->batch_max; i++) s->answers[i] = &s->answer[i];
    return s;
}

static void close_slot(struct lw_handler *h, struct lw_slot *s) {
    for (size_t i = 0; i < h->batch_max; i++) free(s->views[i].headers);
    free(s->views);
    free(s->messages);
    free(s->answer);
    free(s->answers);
    free(s);
}

static size_t batch_max(const struct lw_handler *h) { return h->batch_max; }

static enum lw_batch_of batch_of(const struct lw_handler *h) { return h->batch_of; }

static void view_headers(struct view *v, const struct lw_job *job) {
    if (v->room < job->n_headers) {
        v->headers = lw_realloc(v->headers, job->n_headers * sizeof *v->headers);
        v->room = job->n_headers;
    }
    for (size_t i = 0; i < job->n_headers; i++) {
        const struct lw_header *from = &job->headers[i];
        v->headers[i] =
            (struct latchwork_header){from->name.p, from->name.n, from->value.p, from->value.n};
    }
}

static void view(struct view *v, struct lw_job *job) {
    v->job = job;
    v->lease = (struct latchwork_lease){sizeof v->lease, job->fence, lease_deadline_ms,
                                        lease_cancelled, lease_retry_after};
    view_headers(v, job);
    v->message = (struct latchwork_message){
        .size = sizeof v->message,
        .partition = job->partition,
        .identity = job->identity,
        .topic = job->topic,
        .offset = job->offset,
        .timestamp_ms = job->timestamp_ms,
        .key = job->key.p,
        .key_len = job->key.n,
        .payload = job->payload.p,
        .payload_len = job->payload.n,
        .headers = v->headers,
        .n_headers = job->n_headers,
        .attempt = job->attempt,
        .lease = &v->lease,
    };
}

/* Returns true if a message that the plugin gave back has timed out while its lease was live. The
 * plugin cannot know whether the message was cancelled because of its lease or of its timeout. A
 * timeout must count an attempt: a message that always takes too long would otherwise run for
 * ever. */
static bool timed_out(const struct lw_job *job) {
    int64_t now = lw_boot_ms();
    return now >= job->give_up_ms && !lw_lease_over(job->lease, now);
}

static void answered(struct lw_job *job, int outcome) {
    job->reason[LW_REASON_MAX - 1] = '\0';
    bool mistaken = outcome == LATCHWORK_RETRY && job->wait_ms < 0;
    if (mistaken)
        snprintf(job->reason, sizeof job->reason,
                 "plugin asked for a retry after a negative time; expected 0 to %d ms",
                 LW_RETRY_AFTER_MAX_MS);
    if (mistaken || outcome != LATCHWORK_RETRY) {
        job->wait_ms = 0;
        job->uncounted = false;
    }
    if (outcome == LATCHWORK_BACK && timed_out(job)) {
        outcome = LATCHWORK_RETRY;
        snprintf(job->reason, sizeof job->reason, "timed out");
    }
    switch (outcome) {
    case LATCHWORK_DONE: job->outcome = LW_DONE; break;
    case LATCHWORK_RETRY: job->outcome = LW_RETRY; break;
    case LATCHWORK_DEAD: job->outcome = LW_DEAD; break;
    case LATCHWORK_BACK: job->outcome = LW_BACK; break;
    default:
        job->outcome = LW_RETRY;
        snprintf(job->reason, sizeof job->reason, "plugin returned the unknown outcome %d",
                 outcome);
    }
    bool why = job->outcome == LW_RETRY || job->outcome == LW_DEAD;
    if (!why)
        job->reason[0] = '\0';
    else if (!job->reason[0])
        snprintf(job->reason, sizeof job->reason, "%s",
                 job->outcome == LW_DEAD ? "plugin gave the message up"
                                         : "plugin asked for a retry");
}

static void run(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n) {
    if (jobs[0]->suspect) {
        assert(n == 1);
        lw_plugin_host_run(h->c, jobs[0]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        view(&s->views[i], jobs[i]);
        jobs[i]->reason[0] = '\0';
        s->messages[i] = &s->views[i].message;
        s->answer[i] = (struct latchwork_answer){sizeof s->answer[i], LATCHWORK_RETRY,
                                                 jobs[i]->reason, sizeof jobs[i]->reason};
    }
    if (h->api->batch_max) {
        h->api->handle_batch(h->self, s->messages, s->answers, n);
    } else {
        for (size_t i = 0; i < n; i++)
            s->answer[i].outcome =
                h->api->handle(h->self, s->messages[i], jobs[i]->reason, sizeof jobs[i]->reason);
    }
    for (size_t i = 0; i < n; i++) answered(jobs[i], s->answer[i].outcome);
}

_Static_assert(sizeof(struct latchwork_header) == 4 * sizeof(void *),
               "plugins walk arrays of headers: their size is frozen");

const struct lw_handler_type lw_handler_plugin = {
    .name = "plugin",
    .runs_in_worker = true,
    .check = check,
    .open = open_handler,
    .slot_open = open_slot,
    .batch_max = batch_max,
    .batch_of = batch_of,
    .run = run,
    .slot_close = close_slot,
    .close = close_handler,
};
