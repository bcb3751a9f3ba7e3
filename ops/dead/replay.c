/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork dead replay` and `drop`. */
#include "base/clock.h"
#include "ops/dead/dead.h"
#include "ops/job.h"
#include "ops/out_of_lane.h"

#include <stdlib.h>
#include <string.h>

static int wants(struct ops *o) {
    if (ops_has_filter(o)) return 0;
    fprintf(
        stderr,
        "latchwork dead %s: no dead letters named; use ID, --key, --match '*' or another filter\n",
        o->verb);
    return OPS_USAGE;
}

/* Puts the dead letter back into its lane with a new replay number and without its business id. The
 * script `put` records that a letter in a topic was taken. The replay number makes the replay a
 * message of its own, which runs although the marks of the original say that the original is
 * finished. */
static int replay(struct ops *o, struct ops_message *m, void *ctx) {
    struct ops_job *j = ctx;
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane;
    struct lw_err err = {0};
    int stop;
    if (m->bad) {
        stop = ops_job_problem(j, m->id, "not replayed: not a message of this version");
    } else if (!dead_is_ours(o, m)) {
        stop = ops_job_problem(j, m->id,
                               "not replayed: it is no dead letter of this application; `queue "
                               "replay` with its id runs the record as it is");
    } else if (ops_lane_of(o, &m->e, &scratch, &key, &lane, &err)) {
        stop = ops_job_problem(
            j, m->id, err.text[0] ? err.text : "not replayed: it has no key and therefore no lane");
    } else if (ops_shard_of(o, lane)->index != m->shard) {
        stop = ops_job_problem(j, m->id,
                               "not replayed: its key was edited and belongs to another shard; "
                               "export it, import the export with --again, then drop it here");
    } else {
        struct lw_envelope e = m->e;
        e.replay = j->number;
        e.key = key;
        e.dedup = lw_bytes("", 0);
        if (m->in_topic) e.first_ms = lw_wall_ms();
        /* a letter of a replay has an original without an owner, whose state may have expired */
        stop = ops_job_put(j, &e, lane, m->in_topic && !m->e.replay, m);
    }
    lw_buf_free(&scratch);
    return stop;
}

int dead_replay(struct ops *o) {
    struct ops_job j;
    int status = wants(o);
    if (status) return status;
    if (o->args.try_handler) return ops_try(o, dead_each);
    if (o->args.to_topic) return ops_to_topic(o, dead_each);
    if (ops_job_begin(o, &j, OPS_PUT)) return OPS_FAILED;
    return ops_job_end(&j, dead_each(o, replay, &j));
}

static int drop(struct ops *o, struct ops_message *m, void *ctx) {
    (void)o;
    if (!m->in_topic) return ops_job_drop(ctx, m);
    return ops_job_problem(ctx, m->id, "not dropped: it is in a topic, whose retention deletes it");
}

int dead_drop(struct ops *o) {
    struct ops_job j;
    int status = wants(o);
    if (status) return status;
    if (ops_job_begin(o, &j, OPS_REMOVE)) return OPS_FAILED;
    return ops_job_end(&j, (o->args.n_words ? dead_each : dead_each_in_redis)(o, drop, &j));
}
