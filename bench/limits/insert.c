/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of a row in the insert handler alone. Batches of jobs are passed directly to
 * the handler's function `run`, without Kafka or Redis. */
#include "bench/limits/tool.h"

#include "base/clock.h"
#include "handlers/handler.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char about[] =
    "usage: insert --store FILE --messages N [options]\n"
    "Writes rows from JSON messages of about 200 bytes into a new database through the insert "
    "handler; one in ten has the primary key of\n"
    "another. Prints {\"messages\", \"first_us\", \"last_us\", \"own_cpu_us\" a message}. Under "
    "`valgrind --tool=callgrind\n"
    "--toggle-collect=lw_sqlite_run` it counts the instructions of the same rows in every run.\n\n";

enum { BATCH_MAX = 256, PAYLOAD_MAX = 512, KEY_MAX = 32 };

struct one {
    struct lw_job job;
    struct lw_job_lease lease;
    char payload[PAYLOAD_MAX], key[KEY_MAX];
};

static struct lw_config *configure(const char *store) {
    struct lw_config *c = lw_alloc(sizeof *c);
    c->name = (char *)"bench";
    c->handler.threads = 1;
    c->handler.json =
        json_pack("{s:s, s:s+, s:s, s:{s:s, s:s, s:s}, s:[s], s:s, s:b}", "type", "insert", "store",
                  "sqlite:", store, "table", "events", "columns", "seq", "/seq", "id", "/id",
                  "amount", "/amount", "primary_key", "seq", "on_conflict", "ignore", "create", 1);
    if (!c->handler.json) tool_die("the configuration cannot be made");
    return c;
}

static void fill(struct one *o, int64_t offset, uint64_t *random) {
    static const char pad[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnop"
                              "qrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    int64_t seq = offset && tool_draw(random) % 10 == 0
                      ? (int64_t)(tool_draw(random) % (uint64_t)offset)
                      : offset;
    uint64_t key = tool_draw(random) % 10000;
    memset(&o->job, 0, sizeof o->job);
    snprintf(o->job.identity, sizeof o->job.identity, "t/0/%" PRId64, offset);
    int k = snprintf(o->key, sizeof o->key, "k%" PRIu64, key);
    int n =
        snprintf(o->payload, sizeof o->payload,
                 "{\"seq\":%" PRId64 ",\"id\":\"k%" PRIu64
                 "\",\"amount\":%d,\"price\":%d.25,\"pad\":\"%s\"}",
                 seq, key, (int)(tool_draw(random) % 10000), (int)(tool_draw(random) % 100), pad);
    o->job.topic = "t";
    o->job.offset = offset;
    o->job.key = lw_bytes(o->key, (size_t)k);
    o->job.payload = lw_bytes(o->payload, (size_t)n);
    o->job.attempt = 1;
    o->job.lease = &o->lease;
    o->job.give_up_ms = INT64_MAX;
    o->job.fence = (uint64_t)(1 + offset);
    atomic_store(&o->lease.deadline_ms, INT64_MAX);
}

int main(int argc, char **argv) {
    const char *path = NULL;
    int64_t messages = -1, batch = BATCH_MAX, seed = 1;
    const struct tool_option options[] = {
        {"store", "the database, a file that does not exist yet", &path, NULL, 0, 0},
        {"messages", "how many", NULL, &messages, 1, 100000000},
        {"seed", "of what is made", NULL, &seed, 0, INT64_MAX},
        {"batch", "messages a transaction", NULL, &batch, 1, BATCH_MAX},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    if (access(path, F_OK) == 0) tool_die("%s is there already; start from an empty table", path);
    struct lw_config *c = configure(path);
    struct lw_err err = {0};
    struct lw_handler *h = lw_handler_insert.open(c, 0, &err);
    struct lw_slot *s = h ? lw_handler_insert.slot_open(h, 0, &err) : NULL;
    if (!s) tool_die("%s", err.text);
    struct one *all = lw_alloc((size_t)batch * sizeof *all);
    struct lw_job *jobs[BATCH_MAX];
    uint64_t random = (uint64_t)seed;
    int64_t cpu_us = tool_own_cpu_us(), first_us = tool_now_us();
    for (int64_t from = 0; from < messages; from += batch) {
        size_t n = (size_t)(messages - from < batch ? messages - from : batch);
        for (size_t i = 0; i < n; i++) {
            fill(&all[i], from + (int64_t)i, &random);
            jobs[i] = &all[i].job;
        }
        lw_handler_insert.run(h, s, jobs, n);
        for (size_t i = 0; i < n; i++)
            if (jobs[i]->outcome != LW_DONE)
                tool_die("message %" PRId64 ": %s", jobs[i]->offset, jobs[i]->reason);
        lw_handler_insert.passed(h, "t", 0, from + (int64_t)n);
    }
    int64_t last_us = tool_now_us();
    cpu_us = tool_own_cpu_us() - cpu_us;
    printf("{\"messages\":%" PRId64 ",\"first_us\":%" PRId64 ",\"last_us\":%" PRId64
           ",\"own_cpu_us\":%.3f}\n",
           messages, first_us, last_us, (double)cpu_us / (double)messages);
    free(all);
    lw_handler_insert.slot_close(h, s);
    lw_handler_insert.close(h);
    json_decref(c->handler.json);
    free(c);
    return 0;
}
