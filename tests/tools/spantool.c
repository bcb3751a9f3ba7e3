/* SPDX-License-Identifier: Apache-2.0 */
/* Sends spans as the process of a supervisor does, without Kafka and Redis.
 *
 *     spantool CONFIG.json SPANS SECONDS GIVE_UP_MS
 *
 * Ends SPANS jobs on each of two workers. All outcomes occur among the jobs, and some jobs have no
 * parent span or no payload. lw_tracing_run() sends the spans in a process of its own, which gets
 * SIGTERM after SECONDS, or sooner if all spans are sent. The tool prints a line of JSON: how many
 * spans were made, were sent, were lost for each reason, and were left in the workers' rings
 * (consumer/spans.h). If spans cannot be sent, the first retry comes after 100 ms, and a span that
 * could not be sent for GIVE_UP_MS is given up. */
#include "base/clock.h"
#include "base/log.h"
#include "consumer/process/tracer.h"
#include "handlers/span.h"
#include "monitor/tracing/tracing.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, SHAPES = 8 };

static struct lw_header header(const char *name, const char *value) {
    return (struct lw_header){lw_bytes_of(name), lw_bytes_of(value)};
}

static void set_outcome(struct lw_job *j, int shape) {
    static const enum lw_outcome outcomes[] = {LW_DONE, LW_RETRY, LW_DEAD, LW_BACK};
    j->outcome = outcomes[shape % 4];
    if (j->outcome == LW_RETRY) snprintf(j->reason, sizeof j->reason, "\"busy\"\n\xff\xc3\xa4");
    if (j->outcome == LW_DEAD) snprintf(j->reason, sizeof j->reason, "no such customer: \xc3\xa4");
}

/* Makes and ends job number i. The number decides whether the job has a parent span, whether
 * its key is text, whether it has a payload, and which outcome it has. */
static void one(struct lw_tracer *t, int64_t i) {
    struct lw_header headers[] = {
        header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        header("tracestate", "vendor=1,other=t61rcWkgMzE")};
    struct lw_job_lease lease = {0};
    int shape = (int)(i % SHAPES);
    struct lw_job j = {.topic = "orders",
                       .partition = 7,
                       .offset = i,
                       .timestamp_ms = 1763671234567,
                       .attempt = 2,
                       .fence = UINT64_C(1) << 53};
    snprintf(j.identity, sizeof j.identity, "orders/7/%" PRId64, i);
    j.headers = headers, j.n_headers = shape < 4 ? 2 : 0;
    j.key = shape == 5 ? lw_bytes("\xff\x00", 2) : lw_bytes_of("c-17");
    if (shape != 6) j.payload = lw_bytes_of("{\"id\": 1}");
    lw_job_begin(&j, &lease);
    lw_tracer_begin(t, &j, &(struct lw_waited){lw_wall_ms() - 40, shape == 7, shape == 3});
    set_outcome(&j, shape);
    j.took_us = 1500;
    if (j.span) j.span->ended_us = lw_boot_us(), j.span->begun_us = j.span->ended_us - j.took_us;
    lw_tracer_end(t, &j);
    free(j.span);
}

static size_t left(const struct lw_board *b) {
    return lw_span_count(&b->spans[0]) + lw_span_count(&b->spans[1]);
}

static int send_all(const struct lw_config *c, struct lw_board *b, int64_t until_ms,
                    int64_t give_up_ms) {
    /* a last request may take as long as any other, however slow this machine is */
    const struct lw_tracing_times times = {.linger_ms = 50,
                                           .backoff_ms = 100,
                                           .backoff_max_ms = 400,
                                           .give_up_ms = give_up_ms,
                                           .last_ms = INT64_MAX};
    int status;
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    /* Block SIGTERM until lw_tracing_run() is ready for it and unblocks it. */
    sigprocmask(SIG_BLOCK, &term, NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(lw_tracing_run(c, b, &times));
    if (pid < 0) return -1;
    while (left(b) && lw_boot_ms() < until_ms) lw_sleep_ms(10);
    kill(pid, SIGTERM);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void print(const struct lw_board *b, int64_t made) {
    uint64_t full = atomic_load(&b->workers[0].counts.spans_dropped) +
                    atomic_load(&b->workers[1].counts.spans_dropped);
    printf(
        "{\"made\":%" PRId64 ",\"sent\":%" PRIu64 ",\"full\":%" PRIu64 ",\"unreachable\":%" PRIu64
        ",\"refused\":%" PRIu64 ",\"rejected\":%" PRIu64 ",\"left\":%zu}\n",
        made, atomic_load(&b->spans_sent), full, atomic_load(&b->spans_lost[LW_SPAN_UNREACHABLE]),
        atomic_load(&b->spans_lost[LW_SPAN_REFUSED]), atomic_load(&b->spans_lost[LW_SPAN_REJECTED]),
        left(b));
}

int main(int argc, char **argv) {
    struct lw_problems problems = {0};
    struct lw_err err = {0};
    if (argc != 5)
        return fputs("usage: spantool CONFIG.json SPANS SECONDS GIVE_UP_MS\n", stderr), 2;
    struct lw_config *c = lw_config_load(argv[1], NULL, 0, &problems);
    if (!c) return fprintf(stderr, "%.*s", (int)problems.errors.n, problems.errors.p), 2;
    struct lw_board *b = lw_board_open(WORKERS, &err);
    if (!b || lw_board_add_spans(b, &err)) return fprintf(stderr, "%s\n", err.text), 1;
    int64_t spans = atoll(argv[2]);
    lw_log_setup(LW_LOG_INFO, false, "tracing");
    for (int w = 0; w < WORKERS; w++) {
        struct lw_tracer *t = lw_tracer_open(c, b, w, "cluster", (uint64_t)w);
        if (!t) return fputs("the configuration has no tracing.endpoint\n", stderr), 2;
        for (int64_t i = 0; i < spans; i++) one(t, i + w * spans);
        lw_tracer_close(t);
    }
    int status = send_all(c, b, lw_boot_ms() + 1000 * atoll(argv[3]), atoll(argv[4]));
    print(b, WORKERS * spans);
    lw_problems_free(&problems);
    lw_config_free(c);
    lw_board_close(b);
    return status;
}
