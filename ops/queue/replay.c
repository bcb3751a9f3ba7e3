/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork queue replay`. */
#include "ops/queue/queue.h"
#include "ops/job.h"
#include "ops/kafka.h"
#include "ops/out_of_lane.h"

#include <string.h>

static int replay(struct ops *o, struct ops_message *m, void *ctx) {
    struct ops_job *j = ctx;
    char identity[320];
    ops_identity(&m->e, identity, sizeof identity);
    (void)o;
    if (!m->lane.p) return ops_job_problem(j, identity, "it has no key and therefore no lane");
    struct lw_envelope e = m->e;
    e.replay = j->number;
    return ops_job_put(j, &e, m->lane, !m->foreign, NULL);
}

int queue_replay(struct ops *o) {
    struct ops_job j;
    if (!ops_has_filter(o)) {
        fputs("latchwork queue replay: no messages named; use IDENTITY, --key, --topic, or --from "
              "and --to\n",
              stderr);
        return OPS_USAGE;
    }
    if (o->args.n_words && (o->args.from || o->args.to)) {
        fputs("latchwork queue replay: use either IDENTITY or --from and --to\n", stderr);
        return OPS_USAGE;
    }
    if (o->args.try_handler) return ops_try(o, ops_read_kafka);
    if (o->args.to_topic) return ops_to_topic(o, ops_read_kafka);
    if (ops_job_begin(o, &j, OPS_PUT)) return OPS_FAILED;
    return ops_job_end(&j, ops_read_kafka(o, replay, &j));
}
