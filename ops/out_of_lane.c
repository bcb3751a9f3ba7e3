/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/out_of_lane.h"

#include "base/clock.h"
#include "kafka/source.h"
#include "ops/job.h"

#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY = 64, ACK_MS = 60000, CLOSE_MS = 5000 };

/* --- to a topic ------------------------------------------------------------------------------- */

struct sending {
    struct ops_job *j;
    struct lw_sink *sink;
};
struct letter {
    struct sending *s;
    char identity[320];
};

static void answered(void *ctx, enum lw_letter_end how, const char *reason) {
    struct letter *l = ctx;
    if (how == LW_SENT)
        ops_job_done(l->s->j, l->identity, 'T', "");
    else if (ops_job_problem(l->s->j, l->identity, reason))
        l->s->j->stopped = true;
    free(l);
}

static int send_one(struct ops *o, struct ops_message *m, void *ctx) {
    struct sending *s = ctx;
    char identity[320];
    ops_identity(&m->e, identity, sizeof identity);
    if (m->bad) return ops_job_problem(s->j, m->id, "not a message of this version");
    int stop = ops_job_take(s->j);
    if (stop < 0 || s->j->stopped) return -1;
    if (s->j->dry) return ops_job_done(s->j, identity, 'T', "") || stop;
    struct letter *l = lw_alloc(sizeof *l);
    l->s = s;
    snprintf(l->identity, sizeof l->identity, "%s", identity);
    struct lw_header *h = lw_alloc((m->e.n_headers + 1) * sizeof *h);
    if (m->e.n_headers) memcpy(h, m->e.headers, m->e.n_headers * sizeof *h);
    h[m->e.n_headers] =
        (struct lw_header){lw_bytes_of("latchwork-origin"), lw_bytes_of(l->identity)};
    int bad = lw_sink_send(s->sink, o->args.to_topic, m->e.key, m->e.payload, h, m->e.n_headers + 1,
                           answered, l, &o->err);
    free(h);
    if (bad) {
        free(l);
        return -1;
    }
    lw_sink_wait(s->sink, UNDER_WAY, ACK_MS);
    return stop || s->j->stopped;
}

int ops_to_topic(struct ops *o, ops_each_fn *each) {
    static struct ops_job j;
    if (ops_job_begin(o, &j, OPS_PUT)) return OPS_FAILED;
    struct sending s = {.j = &j};
    if (!j.dry) s.sink = lw_sink_open(o->c, &o->err);
    int stop = j.dry || s.sink ? each(o, send_one, &s) : -1;
    if (s.sink) {
        lw_sink_wait(s.sink, 0, ACK_MS);
        /* lw_sink_close() waits up to CLOSE_MS for the answers to messages in flight */
        lw_sink_close(s.sink, CLOSE_MS);
    }
    return ops_job_end(&j, stop);
}
