/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether this worker is ready and makes progress and, if not, why. The reason goes to
 * the board, for health checks and metrics, and to the log. */
#include "consumer/process/private.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    CHECK_MS = 500,
    /* TELL_MS: if the worker has not been ready, or has made no progress, for this long, it logs
     * why */
    TELL_MS = 5000,
    TELL_AGAIN_MS = 30000, /* time after which the worker logs the reason again */
    /* QUIET_MS: a worker that is ready logs why it makes no progress only if its counts have not
     * changed for this long */
    QUIET_MS = 10000,
};

/* Limits the worker's new grants according to the health of its handler. A handler that cannot work
 * gets no new message. A handler on trial gets a few, and chooses. */
void process_limit(struct process *p) {
    static const enum lw_grant_limit limit[] = {
        [LW_WELL] = LW_GRANT_ALL, [LW_ON_TRIAL] = LW_GRANT_FEW, [LW_UNABLE] = LW_GRANT_NONE};
    if (p->type->health) lw_worker_limit(p->logic, limit[p->type->health(p->handler, NULL, 0)]);
}

static bool handler_trouble(struct process *p, char *why, size_t size) {
    return p->type->health && p->type->health(p->handler, why, size) != LW_WELL;
}

/* Returns true if there is a shard to which no connection can be made, or whose hints Redis
 * refuses, and then writes the reason to `why`. The worker's logic does not notice such
 * failures. */
static bool link_trouble(struct process *p, char *why, size_t size) {
    for (int s = 0; s < p->c->redis.shards; s++) {
        const char *wire = lw_wire_trouble(p->links[s].wire),
                   *hints = lw_hints_refused(p->links[s].hints);
        if (wire)
            snprintf(why, size, "redis shard %d: not connected: %s", s, wire);
        else if (hints)
            snprintf(why, size, "redis shard %d: hints of waiting messages are refused: %s", s,
                     hints);
        if (wire || hints) return true;
    }
    return false;
}

/* Writes to `why` the first reason why this worker is not ready or makes no progress, or "" if
 * there is none. Returns true if the worker is not ready. */
static bool find_trouble(struct process *p, char *why, size_t size) {
    enum lw_kafka_state kafka = LW_KAFKA_JOINING;
    char remark[sizeof p->self->why.text] = "kafka: not connected yet";
    if (p->source) kafka = lw_source_state(p->source, remark, sizeof remark);
    atomic_store(&p->self->kafka, (uint32_t)kafka + 1);
    bool served = lw_worker_ready(p->logic);
    bool joined = kafka == LW_KAFKA_JOINED;
    if (joined && (link_trouble(p, why, size) || (served && handler_trouble(p, why, size))))
        return true;
    if (!joined || !lw_worker_why(p->logic, why, size)) snprintf(why, size, "%s", remark);
    return !joined || !served;
}

static uint64_t progress(const struct process *p) {
    const struct lw_counts *c = &p->self->counts;
    return atomic_load(&c->received) + atomic_load(&c->done) + atomic_load(&c->dead) +
           atomic_load(&c->parked) + atomic_load(&c->drained);
}

static void tell(struct process *p, const char *why, bool trouble, int64_t now) {
    struct process_state *s = &p->state;
    uint64_t moves = progress(p);
    if (moves != s->moves) s->moved_ms = now;
    s->moves = moves;
    if (!why[0]) {
        if (s->told) lw_info("serving again after %lld ms", (long long)(now - s->since_ms));
        s->told = false;
        s->since_ms = 0;
        return;
    }
    if (!s->since_ms) s->since_ms = now;
    bool quiet = trouble || now - s->moved_ms >= QUIET_MS;
    if (!quiet || now - s->since_ms < TELL_MS || (s->told && now - s->told_ms < TELL_AGAIN_MS))
        return;
    lw_log(trouble ? LW_LOG_WARN : LW_LOG_INFO, "%s: %s", trouble ? "not ready" : "no progress",
           why);
    s->told = true;
    s->told_ms = now;
}

void process_look(struct process *p) {
    int64_t now = lw_boot_ms();
    if (now - p->state.looked_ms < CHECK_MS) return;
    p->state.looked_ms = now;
    char why[sizeof p->self->why.text] = "";
    bool trouble = find_trouble(p, why, sizeof why);
    atomic_store(&p->self->ready, !trouble);
    lw_note_set(&p->self->why, why);
    /* a worker without a partition waits for one, which is no lack of progress */
    char logic[sizeof why];
    bool standby = !trouble && !lw_worker_why(p->logic, logic, sizeof logic);
    if (!p->stopping) tell(p, standby ? "" : why, trouble, now);
}
