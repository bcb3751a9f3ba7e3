/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork dead replay` and `drop`. */
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
 * replay number makes the replay a message of its own, which runs although the marks of the
 * original say that the original is finished. */
static int replay(struct ops *o, struct ops_message *m, void *ctx) {
    struct ops_job *j = ctx;
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane;
    struct lw_err err = {0};
    int stop;
    if (m->bad) {
        stop = ops_job_problem(j, m->id, "not replayed: not a message of this version");
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
        stop = ops_job_put(j, &e, lane, false, m);
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
    return ops_job_drop(ctx, m);
}

int dead_drop(struct ops *o) {
    struct ops_job j;
    int status = wants(o);
    if (status) return status;
    if (ops_job_begin(o, &j, OPS_REMOVE)) return OPS_FAILED;
    return ops_job_end(&j, dead_each(o, drop, &j));
}
