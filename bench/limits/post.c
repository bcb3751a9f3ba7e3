/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the http handler alone, without Kafka and Redis. The result is the upper limit for a
 * worker with this handler. It also shows how much a request of this handler costs, compared with
 * the same request of a load driver such as wrk. */
#include "bench/limits/tool.h"

#include "cli/check/check.h"
#include "handlers/feed.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { AT_ONCE_MAX = 1000, BODY = 200 };

static const char about[] =
    "usage: post --messages N [options]\n"
    "Sends N messages to the server at LW_WEB_URL, as the http handler of a worker does. Prints "
    "{\"messages\", \"first_us\", \"last_us\",\n"
    "\"own_cpu_us\" a message}. Start it with build/bench/web, which sets LW_WEB_URL.\n\n";

static struct lw_job_lease lease = {.deadline_ms = INT64_MAX / 2};

struct post {
    struct lw_handler *handler;
    struct lw_feed *feed;
    int notify; /* an eventfd that is written when messages have ended */
    char body[BODY + 1];
    int64_t messages, begun, ended;
    struct lw_job *jobs;
};

static struct lw_config *read_config(int64_t at_once) {
    struct lw_problems problems = {.check_handler = lw_config_check_handler};
    const char *url = getenv("LW_WEB_URL");
    char text[1024];
    if (!url) tool_die("LW_WEB_URL is not set; start post with build/bench/web");
    int n =
        snprintf(text, sizeof text,
                 "{\"name\":\"post\",\"kafka\":{\"topics\":[\"t\"],\"properties\":{\"bootstrap."
                 "servers\":\"127.0.0.1:1\"}},"
                 "\"redis\":{\"url\":\"redis://127.0.0.1:1/"
                 "0\"},\"handler\":{\"type\":\"http\",\"url\":\"%s\",\"in_flight\":%" PRId64 "}}",
                 url, at_once);
    struct lw_config *c = lw_config_parse("post", text, (size_t)n, NULL, 0, &problems);
    if (!c)
        tool_die("the configuration is refused: %.*s", (int)problems.errors.n, problems.errors.p);
    return c;
}

static void *serve(void *arg) {
    struct post *p = arg;
    lw_handler_http.serve(p->handler, p->feed);
    return NULL;
}

/* Makes a new message in place of a message that has ended. The new messages take 100,000 keys in
 * turn, as many as the benchmark's topic m300000-k100000 has. */
static void begin(struct post *p, struct lw_job *job) {
    static char keys[AT_ONCE_MAX * 2][24];
    char *key = keys[job - p->jobs];
    lw_job_begin(job, &lease);
    snprintf(job->identity, sizeof job->identity, "m300000-k100000/%d/%" PRId64,
             (int)(p->begun % 8), p->begun / 8);
    int n = snprintf(key, sizeof keys[0], "k-%" PRId64, p->begun % 100000);
    job->topic = "m300000-k100000";
    job->partition = (int32_t)(p->begun % 8);
    job->offset = p->begun / 8;
    job->timestamp_ms = 1700000000000 + p->begun;
    job->key = lw_bytes(key, (size_t)n);
    job->payload = lw_bytes(p->body, BODY);
    job->attempt = 1;
    job->fence = (uint64_t)++p->begun;
}

static void submit(struct post *p, struct lw_job **jobs, size_t n) {
    size_t k = 0;
    while (k < n && p->begun < p->messages) begin(p, jobs[k++]);
    if (k) lw_feed_submit(p->feed, jobs, k);
}

/* Reaps the messages that have ended, and submits the same number of new messages, but never more
 * than --messages in all. */
static void exchange(struct post *p) {
    struct lw_job *jobs[AT_ONCE_MAX];
    size_t n;
    do {
        n = lw_feed_reap(p->feed, jobs, AT_ONCE_MAX);
        for (size_t i = 0; i < n; i++)
            if (jobs[i]->outcome != LW_DONE) tool_die("%s: %s", jobs[i]->identity, jobs[i]->reason);
        p->ended += (int64_t)n;
        submit(p, jobs, n);
    } while (n == AT_ONCE_MAX);
}

static void await(struct post *p) {
    struct pollfd wait = {.fd = p->notify, .events = POLLIN};
    uint64_t n;
    if (poll(&wait, 1, 10000) != 1) tool_die("no answer within 10 s");
    if (read(p->notify, &n, sizeof n) < 0) tool_die("the eventfd cannot be read");
}

static void run(struct post *p, size_t ahead) {
    struct lw_job *first[AT_ONCE_MAX * 2];
    pthread_t thread;
    p->jobs = lw_alloc(ahead * sizeof *p->jobs);
    for (size_t i = 0; i < ahead; i++) first[i] = &p->jobs[i];
    if (pthread_create(&thread, NULL, serve, p)) tool_die("no thread can be started");
    submit(p, first, ahead);
    while (p->ended < p->messages) {
        await(p);
        exchange(p);
    }
    lw_feed_stop(p->feed, LW_FEED_LAST);
    pthread_join(thread, NULL);
    free(p->jobs);
}

int main(int argc, char **argv) {
    struct post p = {.messages = -1};
    int64_t at_once = 64, first_us;
    struct lw_err err;
    const struct tool_option options[] = {
        {"messages", "how many", NULL, &p.messages, 1, INT64_MAX},
        {"in-flight", "requests at once", NULL, &at_once, 1, AT_ONCE_MAX},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    struct lw_config *c = read_config(at_once);
    memset(p.body, 'x', BODY);
    p.notify = eventfd(0, EFD_CLOEXEC);
    p.handler = lw_handler_http.open(c, 0, &err);
    if (!p.handler) tool_die("%s", err.text);
    p.feed = lw_feed_open(
        &(struct lw_feed_setup){.timeout_ms = c->handler.timeout_ms, .notify_fd = p.notify}, &err);
    if (!p.feed || p.notify < 0) tool_die("no eventfd can be made");
    first_us = tool_now_us();
    run(&p, (size_t)(2 * at_once));
    printf("{\"messages\": %" PRId64 ", \"first_us\": %" PRId64 ", \"last_us\": %" PRId64
           ", \"own_cpu_us\": %.2f}\n",
           p.ended, first_us, tool_now_us(), (double)tool_own_cpu_us() / (double)p.ended);
    lw_feed_close(p.feed);
    lw_handler_http.close(p.handler);
    lw_config_free(c);
    return 0;
}
