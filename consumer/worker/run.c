/* SPDX-License-Identifier: Apache-2.0 */
/* run: the step in which a granted message goes to the handlers and comes back with an outcome. */

#include "consumer/worker/private.h"
#include "queue/dead_headers.h"

enum { RESEND_MS = 1000 };

/* If a handler repeatedly gives messages back under a live lease, their lane rests. Otherwise the
 * handler would get the same messages again at once, without end. */
enum { BACK_MIN_MS = 10, BACK_MAX_MS = 1000, BACK_SLOTS = 4096, BACK_FORGET_MS = 60000 };

static void run_finish(struct lw_worker *w, struct run *r, enum lw_outcome v);

/* Changes the state of a run, and asserts that the change is legal. A run begins in state AHEAD,
 * and a withdrawn run ends in it. */
static void run_to(struct run *r, enum run_state to) {
    assert(r->state <= FINISHED && to <= FINISHED);
    static const bool legal[4][4] = {
        [AHEAD] = {[RUNNING] = true},
        [RUNNING] = {[SENDING] = true, [FINISHED] = true},
        [SENDING] = {[FINISHED] = true},
    };
    assert(legal[r->state][to]);
    r->state = to;
}

size_t runs_finished(struct lw_worker *w) {
    size_t n = w->runs.finished_since;
    w->runs.finished_since = 0;
    w->runs.last_finished = NULL;
    return n;
}

void run_free(struct lw_worker *w, struct run *r) {
    assert(r->state <= FINISHED && !r->in_repair);
    if (r->msg) msg_free(w, r->msg);
    if (r->job.span) free(r->job.span);
    r->msg = NULL;
    r->next = w->runs.free;
    w->runs.free = r;
}

struct msg *run_take_msg(struct run *r) {
    assert(r->msg);
    struct msg *m = r->msg;
    r->msg = NULL;
    return m;
}

void run_link(struct run *before, struct run *r) {
    assert(r->state == AHEAD && !r->linked);
    r->linked = lw_job_then(&before->job, &r->job);
}

static void identify(struct run *r) {
    assert(r->msg->offset >= 0);
    const struct msg *m = r->msg;
    char *p = r->job.identity;
    size_t n = strlen(m->part->topic);
    if (n > 255) n = 255;
    memcpy(p, m->part->topic, n);
    p[n++] = '/';
    n += lw_decimal(m->part->partition, p + n);
    p[n++] = '/';
    n += lw_decimal(m->offset, p + n);
    if (m->part->replay) {
        p[n++] = '#';
        n += lw_decimal(m->part->replay, p + n);
    }
    p[n] = 0;
}

struct run *run_new(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence,
                    struct tried tried) {
    assert(m && m->part && tried.n >= 0);
    struct run *r = w->runs.free;
    if (r)
        w->runs.free = r->next;
    else
        r = lw_alloc(sizeof *r);
    r->hold = h;
    r->msg = m;
    r->state = AHEAD;
    r->tried = tried;
    r->linked = r->submitted = r->accounted = r->late = r->in_repair = r->dropped = false;
    r->resend_ms = r->rest_ms = 0;
    r->next = NULL;
    struct lw_job *j = &r->job;
    identify(r);
    j->topic = m->part->topic;
    j->partition = m->part->partition;
    j->offset = m->offset;
    j->timestamp_ms = m->timestamp_ms;
    j->key = m->key;
    j->payload = m->payload;
    j->headers = m->headers;
    j->n_headers = m->n_headers;
    j->attempt = tried.n + 1;
    j->fence = fence;
    lw_job_begin(j, &h->lease.held);
    if (w->io->trace)
        w->io->trace(w->ctx, j, &(struct lw_waited){m->first_ms, m->part->replay, h->kind == LANE});
    if (fence > w->runs.max_fence) w->runs.max_fence = fence;
    return r;
}

static void enters_handler(struct lw_worker *w, struct run *r) {
    assert(!r->submitted);
    r->submitted = true;
    w->runs.in_handler++;
    if (w->c->group.on) fair_enters(w, r);
    if (w->limits.on) group_running(w, r->msg->group, 1);
    lw_hist_add(&w->counts->waited, &lw_bounds_end_to_end,
                1000 * (w->io->wall_ms(w->ctx) - r->msg->first_ms));
}

static void submit(struct lw_worker *w, struct run *r) {
    assert(w->runs.n_start <= w->runs.cap_start);
    w->runs.start =
        lw_more(w->runs.start, w->runs.n_start, &w->runs.cap_start, sizeof(struct lw_job *));
    assert(r->state == RUNNING);
    enters_handler(w, r);
    w->runs.start[w->runs.n_start++] = &r->job;
    hold_link(w, r);
}

static void to_running(struct run *r) {
    run_to(r, RUNNING);
    r->linked = false;
}

void run_start(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(!r->hold->stale);
    int64_t now = now_ms(w);
    assert(!r->hold->lost);
    to_running(r);
    w->runs.in_flight++;
    /* by the rule "no late start", a message whose lease is over is given back */
    if (atomic_load(&r->hold->lease.held.deadline_ms) <= now || w->stopping) {
        run_finish(w, r, LW_BACK);
        return;
    }
    if (r->msg->dead_reason) {
        snprintf(r->job.reason, sizeof r->job.reason, "%s", r->msg->dead_reason);
        r->job.outcome = LW_DEAD;
        lw_worker_finished(w, &r->job);
        return;
    }
    if (w->limits.on && !limit_start(w, r->msg->group)) {
        run_finish(w, r, LW_BACK);
        return;
    }
    r->job.suspect = w->set.board && atomic_load(&w->set.board->n_suspects) > 0 &&
                     lw_board_is_suspect(w->set.board, r->job.identity);
    submit(w, r);
}

/* Notes that the thread that ran the previous message has started this one. */
static void started_behind(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(r->linked);
    to_running(r);
    enters_handler(w, r);
}

static void run_finish(struct lw_worker *w, struct run *r, enum lw_outcome v) {
    check_hold(r->hold);
    struct hold *h = r->hold;
    assert(!h->lost && !r->submitted && h->n_open > 0 && w->runs.in_flight > 0);
    run_to(r, FINISHED);
    r->outcome = v;
    hold_run_ended(h, v != LW_DONE);
    if (h->n_finished == 1) hold_waits_from(h, now_ms(w));
    w->runs.in_flight--;
    struct run *next = r->next;
    if (w->runs.last_finished != h || v != LW_DONE) w->runs.finished_since++;
    w->runs.last_finished = h;
    if (v != LW_DONE) {
        hold_cut(w, h);
    } else if (next && next->linked) {
        started_behind(w, next);
        w->runs.in_flight++;
    } else if (next && (!h->more || next->next)) {
        run_start(w, next);
    }
    if (h->stale)
        hold_maybe_end(w, h);
    else
        hold_to_settle(w, h);
}

/* Stores a dead letter in Redis, because its topic will never accept it. Otherwise the message
 * would block its lane and the commit for ever. */
static void keep_letter(struct lw_worker *w, struct run *r, const char *why) {
    check_run(r);
    assert(r->state == SENDING && why);
    if (r->resend_ms) w->runs.n_resend--;
    r->resend_ms = 0;
    count(&w->counts->letters_kept);
    lw_warn_some(20,
                 "dead letter %s: topic %s rejected it for good: %s; stored in Redis instead, see "
                 "`latchwork dead show`",
                 r->job.identity, w->c->dead.topic, why);
    run_finish(w, r, LW_DEAD);
}

static void send_letter(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(r->state == SENDING);
    const struct msg *m = r->msg;
    struct lw_header *h = lw_alloc((m->n_headers + LW_DEAD_HEADERS) * sizeof *h);
    if (m->n_headers) memcpy(h, m->headers, m->n_headers * sizeof *h);
    struct lw_dead_headers about = {.topic = lw_bytes_of(m->part->topic),
                                    .partition = m->part->partition,
                                    .offset = m->offset,
                                    .timestamp_ms = m->timestamp_ms,
                                    .identity = lw_bytes_of(r->job.identity),
                                    .reason = lw_bytes_of(r->job.reason),
                                    .attempts = r->job.attempt};
    size_t n = m->n_headers + lw_dead_headers_write(&about, h + m->n_headers);
    struct lw_dead_letter letter = {w->c->dead.topic, m->key, m->payload, h, n, r};
    struct lw_err err = {0};
    int bad = w->io->letter(w->ctx, &letter, &err);
    if (bad > 0) {
        keep_letter(w, r, err.text);
    } else if (!bad) {
        if (r->resend_ms) w->runs.n_resend--;
        r->resend_ms = 0;
    } else {
        if (!r->resend_ms) w->runs.n_resend++;
        r->resend_ms = now_ms(w) + RESEND_MS;
        lw_some(20, LW_LOG_ERROR, NULL, 0,
                "dead letter %s could not be sent to %s: %s; retrying in %d ms", r->job.identity,
                w->c->dead.topic, err.text, RESEND_MS);
    }
    free(h);
}

/* Ends the message as dead, because no attempts are left or the handler says that another attempt
 * is pointless. */
static void die(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(r->state == RUNNING);
    tell_end(w, r, LW_LOG_WARN, "is a dead letter");
    if (w->c->dead.to == LW_DEAD_TOPIC) {
        /* by the rule "letter before done", the topic must first acknowledge the dead letter */
        run_to(r, SENDING);
        send_letter(w, r);
    } else {
        run_finish(w, r, LW_DEAD);
    }
}

/* Returns true if a retry counts no attempt: nothing of it was sent, or its handler said so and the
 * message failed for the first time less than retry.max_age_s ago. */
static bool counts_none(struct lw_worker *w, const struct run *r) {
    if (r->job.unsent) return true;
    if (!r->job.uncounted || !r->tried.first_ms) return r->job.uncounted;
    int64_t now = connection_redis_ms(w, &w->shards[r->hold->lane->shard]);
    return now - r->tried.first_ms < 1000 * w->c->retry.max_age_s;
}

static void retry(struct lw_worker *w, struct run *r) {
    bool later = counts_none(w, r);
    if (!later && r->job.attempt >= w->c->retry.max_attempts) {
        die(w, r);
        return;
    }
    count(&w->counts->retried);
    tell_end(w, r, LW_LOG_INFO,
             later ? "comes back later, without an attempt" : "failed and is tried again");
    run_finish(w, r, later ? LW_LATER : LW_RETRY);
}

static void left_handler(struct lw_worker *w, struct run *r) {
    if (!r->submitted) return;
    assert(w->runs.in_handler > 0);
    r->submitted = false;
    w->runs.in_handler--;
    if (w->c->group.on) fair_leaves(w, r);
    if (w->limits.on) group_running(w, r->msg->group, -1);
}

/* Returns true if `m` is a newer message of the run's key and partition. It will run, or one that
 * is newer still: it is not finished, or the run would not be granted, and it is in Kafka. Of
 * messages of several partitions none is known to be the newer one. */
static bool newer(const struct run *r, const struct msg *m) {
    return m->part == r->msg->part && m->offset > r->msg->offset && !m->dead_reason;
}

/* Returns the newer message for which a run is dropped, or NULL. A message of the lane that has no
 * grant yet is as good as one with a grant. */
static const struct msg *newer_of(const struct run *r) {
    if (r->msg->part->replay || r->msg->dead_reason) return NULL;
    for (const struct run *next = r->next; next; next = next->next)
        if (newer(r, next->msg)) return next->msg;
    const struct msg *m = r->hold->lane->head;
    for (int n = 0; m && n < AHEAD_MAX; m = m->next, n++)
        if (newer(r, m)) return m;
    return NULL;
}

/* With queue.on_busy `latest`: ends a run for which a newer message is known, before a handler has
 * got it. Returns true if it has ended. */
static bool drop(struct lw_worker *w, struct run *r) {
    const struct msg *m = newer_of(r);
    if (!m) return false;
    r->dropped = true;
    snprintf(r->job.reason, sizeof r->job.reason,
             "a newer message of its key waits, at offset %" PRId64, m->offset);
    left_handler(w, r);
    run_finish(w, r, LW_DONE);
    return true;
}

/* Gives started runs to the handlers. With queue.on_busy `latest`, a run for which a newer message
 * is known ends here, and run_finish() appends the next one to the list. Applies the rule "no late
 * start" again, because time may have passed since the grant, for example when a rebalance blocked
 * the loop. A message whose epoch was lost since the grant is not started. */
void run_flush(struct lw_worker *w) {
    int64_t now = w->runs.n_start ? now_ms(w) : 0;
    size_t n = 0;
    for (size_t i = 0; i < w->runs.n_start; i++) {
        struct run *r = (struct run *)(void *)w->runs.start[i];
        if (r->hold->lost) {
            left_handler(w, r);
            late_remove(w, r);
        } else if (lw_lease_over(r->job.lease, now)) {
            left_handler(w, r);
            run_finish(w, r, LW_BACK);
        } else if (w->c->queue.on_busy != LW_BUSY_LATEST || !drop(w, r)) {
            w->runs.start[n++] = w->runs.start[i];
        }
    }
    w->runs.n_start = 0;
    if (n) w->io->run(w->ctx, w->runs.start, n);
}

/* Handles a run whose handler ended after the epoch. If the run is done, repair may still write it
 * back, and the run that was linked behind it goes on. If the run is not done, it is removed, and
 * the run that was linked behind it is given back. */
static void finished_late(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(r->hold->lost && r->state == RUNNING);
    struct run *next = r->next;
    if (next && r->job.outcome == LW_DONE) {
        started_behind(w, next);
    } else if (next) {
        run_to(r, FINISHED);
        r->outcome = LW_BACK;
        hold_cut(w, r->hold);
    }
    if (r->job.outcome == LW_DONE) {
        r->late = true;
        late_count(&w->shards[r->hold->lane->shard], 1);
    } else {
        late_remove(w, r);
    }
}

static void tell_back(const struct run *r, uint32_t times) {
    assert(times > 1);
    /* a message that no handler got says nothing about the handler */
    if (!r->job.took_us) return;
    lw_warn_some(1,
                 "%s: the handler gave its key's messages back %" PRIu32
                 " times in a row under a live lease; no attempt is counted; the key "
                 "waits %" PRId64
                 " ms now, at most %d ms later; return retry or dead for a message that can't run",
                 r->job.identity, times, r->rest_ms, BACK_MAX_MS);
}

/* Returns how long the lane rests after a handler gave a message back. Returns 0 if the lease is
 * over or the worker is stopping. If the handler named a time, returns that time. Otherwise the
 * rest depends on how often in a row handlers gave messages of the lane back. The first time causes
 * no rest, because the lease may have been about to end. The second time causes a rest of
 * BACK_MIN_MS. Each further rest is twice as long as the one before, up to BACK_MAX_MS. */
static int64_t rest_of(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(r->state == RUNNING);
    int64_t now = now_ms(w);
    if (w->stopping || lw_lease_over(r->job.lease, now)) return 0;
    if (!w->runs.given_back)
        w->runs.given_back = lw_alloc(BACK_SLOTS * sizeof w->runs.given_back[0]);
    if (r->job.wait_ms > 0) return r->job.wait_ms;
    struct given_back *g = &w->runs.given_back[r->hold->lane->tag % BACK_SLOTS];
    if (now - g->at_ms > BACK_FORGET_MS) g->times = 0;
    g->at_ms = now;
    if (++g->times == 1) return 0;
    int64_t ms = BACK_MIN_MS;
    for (uint32_t i = 2; i < g->times && ms < BACK_MAX_MS; i++) ms *= 2;
    r->rest_ms = ms < BACK_MAX_MS ? ms : BACK_MAX_MS;
    tell_back(r, g->times);
    return r->rest_ms;
}

static void took_it(struct lw_worker *w, const struct run *r) {
    if (w->runs.given_back) w->runs.given_back[r->hold->lane->tag % BACK_SLOTS].times = 0;
}

uint64_t lw_worker_in_handler(const struct lw_worker *w) { return w->runs.in_handler; }

void lw_worker_finished(struct lw_worker *w, struct lw_job *job) {
    check_run((struct run *)(void *)job);
    struct run *r = (struct run *)(void *)job;
    left_handler(w, r);
    if (job->outcome != LW_BACK) took_it(w, r);
    if (r->hold->lost) {
        finished_late(w, r);
        return;
    }
    switch (job->outcome) {
    case LW_DEAD_SENT:
    case LW_LATER: assert(!"no handler answers so"); break;
    case LW_DONE: run_finish(w, r, LW_DONE); break;
    case LW_BACK:
        r->rest_ms = rest_of(w, r);
        run_finish(w, r, LW_BACK);
        break;
    case LW_DEAD: die(w, r); break;
    case LW_RETRY: retry(w, r); break;
    }
}

void lw_worker_sent(struct lw_worker *w, void *run, enum lw_letter_end how, const char *reason) {
    check_run(run);
    assert(((struct run *)run)->state == SENDING);
    struct run *r = run;
    if (r->hold->lost) {
        late_remove(w, r);
    } else if (how == LW_SENT) {
        run_finish(w, r, LW_DEAD_SENT);
    } else if (how == LW_SENT_NEVER) {
        keep_letter(w, r, reason);
    } else {
        r->resend_ms = now_ms(w) + RESEND_MS;
        w->runs.n_resend++;
        lw_some(20, LW_LOG_ERROR, NULL, 0,
                "dead letter %s was rejected by %s: %s; retrying in %d ms", r->job.identity,
                w->c->dead.topic, reason, RESEND_MS);
    }
}

static void resend_letters(struct lw_worker *w) {
    assert(w->runs.n_resend > 0);
    int64_t now = now_ms(w);
    struct lane *l, *tmp;
    for (int s = 0; s < w->n_shards; s++)
        HASH_ITER(hh, w->shards[s].lanes, l, tmp) {
            struct run *r = l->hold ? l->hold->first : NULL;
            while (r && r->state == FINISHED) r = r->next;
            if (!r || r->state != SENDING || !r->resend_ms || r->resend_ms > now) continue;
            if (w->stopping || (r->msg->part->leaving && l->hold->kind == FAST)) {
                w->runs.n_resend--;
                r->resend_ms = 0;
                run_finish(w, r, LW_BACK);
            } else {
                send_letter(w, r);
            }
        }
}

void run_step(struct lw_worker *w) {
    if (w->runs.n_resend) resend_letters(w);
    run_flush(w);
}

bool run_lost(struct lw_worker *w, struct run *r) {
    check_run(r);
    assert(w->runs.in_flight > 0);
    w->runs.in_flight--;
    if (r->state != SENDING || !r->resend_ms) return false;
    w->runs.n_resend--;
    r->resend_ms = 0;
    return true;
}

static bool leaves(const struct run *r, const struct part *p) {
    check_run(r);
    return r->msg->part == p && r->hold->kind == FAST && !r->hold->lost;
}

void run_leave(struct lw_worker *w, const struct part *p) {
    size_t n = w->runs.n_start;
    w->runs.n_start = 0;
    for (size_t i = 0; i < n; i++) {
        struct run *r = (struct run *)(void *)w->runs.start[i];
        if (leaves(r, p)) {
            left_handler(w, r);
            /* run_finish() adds nothing to w->runs.start, so this loop over that list stays
             * valid */
            run_finish(w, r, LW_BACK);
        } else {
            w->runs.start[w->runs.n_start++] = w->runs.start[i];
        }
    }
}

/* Removes a run that has ended and whose hold was lost. */
void late_remove(struct lw_worker *w, struct run *r) {
    check_run(r);
    check_hold(r->hold);
    struct hold *h = r->hold;
    assert(h->lost && h->n_open > 0);
    if (r->late) late_count(&w->shards[h->lane->shard], -1);
    hold_remove(w, h, r);
    hold_maybe_end(w, h);
}
