/* run: a granted message goes to the handlers and comes back with an outcome. */
#include "consumer/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { RESEND_MS = 1000 };

struct run *run_new(struct lw_worker *w) {
    struct run *r = w->free_runs;
    if (r)
        w->free_runs = r->next;
    else
        r = lw_alloc(sizeof *r);
    /* the lease stays readable for a renewal under way (lock/lease.h), so only what belongs to a run is reset */
    r->lane = NULL;
    r->msg = NULL;
    r->stale = r->late = r->in_repair = r->submitted = false;
    r->resend_ms = 0;
    r->next = NULL;
    r->job.reason[0] = 0;
    return r;
}

void run_free(struct lw_worker *w, struct run *r) {
    lw_leases_remove(w->leases, &r->lease);
    if (r->msg) msg_free(w, r->msg);
    r->msg = NULL;
    r->next = w->free_runs;
    w->free_runs = r;
}

static void identify(struct run *r) {
    const struct msg *m = r->msg;
    char *p = r->job.identity;
    size_t n = strlen(m->part->topic);
    if (n > 255) n = 255;
    memcpy(p, m->part->topic, n);
    p[n++] = '/';
    n += lw_decimal(m->part->partition, p + n);
    p[n++] = '/';
    n += lw_decimal(m->offset, p + n);
    p[n] = 0;
}

static void prepare(struct lw_worker *w, struct run *r) {
    const struct msg *m = r->msg;
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
    j->attempt = r->tries + 1;
    j->lease = &r->lease.held;
    j->give_up_ms = INT64_MAX;
    j->alone = false;
    j->reason[0] = 0;
    (void)w;
}

static void submit(struct lw_worker *w, struct run *r) {
    if (w->n_start == w->cap_start) {
        w->cap_start = w->cap_start ? w->cap_start * 2 : BATCH;
        w->start = lw_realloc(w->start, w->cap_start * sizeof(struct lw_job *));
    }
    r->submitted = true;
    w->in_handler++;
    w->start[w->n_start++] = &r->job;
}

static void wait_in_line(struct lw_worker *w, struct run *r) {
    r->next = NULL;
    *w->waiting_tail = r;
    w->waiting_tail = &r->next;
}

/* A grant: of the gate (FAST), or of a head (LANE); `again`: the same acquisition goes on with its next message. */
void run_grant(struct lw_worker *w, struct lane *l, struct msg *m, enum run_kind kind, uint64_t token, uint64_t fence, int tries, int n,
               int64_t sent_ms, struct run *again) {
    struct run *r = again;
    int64_t now = now_ms(w), deadline = sent_ms + w->c->lock.ttl_ms;
    if (fence > w->max_fence) w->max_fence = fence;
    if (r) {
        if (r->msg) msg_free(w, r->msg);
        r->job.reason[0] = 0;
        r->submitted = false;
        r->resend_ms = 0;
        lw_leases_extend(w->leases, &r->lease, deadline);
    } else {
        r = run_new(w);
        r->lane = l;
        assert(!l->run);
        l->run = r;
        r->lease.shard = l->shard;
        r->lease.lane = l->id;
        r->lease.token = token;
        lw_leases_add(w->leases, &r->lease, deadline);
    }
    r->msg = m;
    r->job.fence = fence;
    r->kind = kind;
    r->n = n;
    r->tries = tries;
    r->state = RUNNING;
    r->accounted = false;
    w->in_flight++;
    prepare(w, r);
    if (tries > 0) count(&w->counts->reruns);
    if (kind == LANE) count(&w->counts->drained);
    if (deadline <= now || w->stopping) { /* rule 4 */
        run_finish(w, r, V_BACK);
        return;
    }
    if (m->dead_reason) {
        snprintf(r->job.reason, sizeof r->job.reason, "%s", m->dead_reason);
        r->job.outcome = LW_DEAD;
        r->submitted = false;
        lw_worker_finished(w, &r->job);
        return;
    }
    if (w->set.board && atomic_load(&w->set.board->n_suspects) > 0) {
        enum lw_suspicion s = lw_board_ask(w->set.board, r->job.identity, r->job.reason);
        if (s == LW_BLAMED) {
            lw_board_counted(w->set.board, r->job.identity);
            lw_warn("%s: %s; counted as attempt %d", r->job.identity, r->job.reason, r->job.attempt);
            r->job.outcome = LW_RETRY;
            lw_worker_finished(w, &r->job);
            return;
        }
        r->job.alone = s == LW_SUSPECT;
    }
    if (r->job.alone || w->waiting || w->running_alone)
        wait_in_line(w, r);
    else
        submit(w, r);
}

void run_finish(struct lw_worker *w, struct run *r, enum verdict v) {
    struct shard *sh = &w->shards[r->lane->shard];
    assert(r->state == RUNNING || r->state == SENDING);
    r->state = FINISHED;
    r->verdict = v;
    w->in_flight--;
    w->finished_since++;
    r->next = NULL;
    *sh->finished_tail = r;
    sh->finished_tail = &r->next;
}

static void send_letter(struct lw_worker *w, struct run *r) {
    const struct msg *m = r->msg;
    struct lw_header *h = lw_alloc((m->n_headers + 4) * sizeof *h);
    if (m->n_headers) memcpy(h, m->headers, m->n_headers * sizeof *h);
    char attempts[24];
    size_t n = m->n_headers, digits = lw_decimal(r->job.attempt, attempts);
    h[n++] = (struct lw_header){lw_bytes_of("latchwork-origin"), lw_bytes_of(r->job.identity)};
    h[n++] = (struct lw_header){lw_bytes_of("latchwork-reason"), lw_bytes_of(r->job.reason)};
    h[n++] = (struct lw_header){lw_bytes_of("latchwork-attempts"), lw_bytes(attempts, digits)};
    struct lw_letter letter = {w->c->dead.topic, m->key, m->payload, h, n, r};
    struct lw_err err = {0};
    if (w->io->letter(w->ctx, &letter, &err) == 0) {
        if (r->resend_ms) w->n_resend--;
        r->resend_ms = 0;
    } else {
        if (!r->resend_ms) w->n_resend++;
        r->resend_ms = now_ms(w) + RESEND_MS;
        lw_error("dead letter %s could not be sent to %s: %s; trying again", r->job.identity, w->c->dead.topic, err.text);
    }
    free(h);
}

/* The attempts are over, or the handler says it is hopeless. */
static void die(struct lw_worker *w, struct run *r) {
    lw_warn("%s is a dead letter after %d attempts: %s", r->job.identity, r->job.attempt, r->job.reason);
    if (w->c->dead.to == LW_DEAD_TOPIC) { /* rule 8: acknowledged before it counts */
        r->state = SENDING;
        send_letter(w, r);
    } else {
        run_finish(w, r, V_DEAD);
    }
}

static void left_handler(struct lw_worker *w, struct run *r) {
    if (!r->submitted) return;
    r->submitted = false;
    w->in_handler--;
    if (r->job.alone) w->running_alone = false;
}

/* Time may have passed since the grant (a rebalance blocks the loop): rule 4 again, and what lost its epoch meanwhile is not started at
 * all. */
void run_flush(struct lw_worker *w) {
    int64_t now = w->n_start ? now_ms(w) : 0;
    size_t n = 0;
    for (size_t i = 0; i < w->n_start; i++) {
        struct run *r = (struct run *)(void *)w->start[i];
        if (r->stale) {
            struct lane *l = r->lane;
            left_handler(w, r);
            stale_remove(w, r);
            lane_wake(w, l);
        } else if (atomic_load(&r->lease.held.cancelled) || atomic_load(&r->lease.held.deadline_ms) <= now) {
            left_handler(w, r);
            run_finish(w, r, V_BACK);
        } else {
            w->start[n++] = w->start[i];
        }
    }
    w->n_start = 0;
    if (n) w->io->run(w->ctx, w->start, n);
}

void lw_worker_finished(struct lw_worker *w, struct lw_job *job) {
    struct run *r = (struct run *)(void *)job;
    left_handler(w, r);
    if (r->stale) {
        struct lane *l = r->lane;
        if (job->outcome == LW_DONE) {
            r->late = true;
            w->shards[l->shard].n_late++;
        } else {
            stale_remove(w, r);
            lane_wake(w, l);
        }
        return;
    }
    switch (job->outcome) {
    case LW_DONE: run_finish(w, r, V_DONE); break;
    case LW_BACK: run_finish(w, r, V_BACK); break;
    case LW_DEAD: die(w, r); break;
    case LW_RETRY:
        if (job->attempt >= w->c->retry.max_attempts) {
            die(w, r);
        } else {
            count(&w->counts->retried);
            lw_info("%s: attempt %d failed: %s", job->identity, job->attempt, job->reason);
            run_finish(w, r, V_RETRY);
        }
        break;
    }
}

void lw_worker_sent(struct lw_worker *w, void *run, bool ok, const char *reason) {
    struct run *r = run;
    if (r->stale) {
        struct lane *l = r->lane;
        stale_remove(w, r);
        lane_wake(w, l);
    } else if (ok) {
        run_finish(w, r, V_SENT);
    } else {
        r->resend_ms = now_ms(w) + RESEND_MS;
        w->n_resend++;
        lw_error("dead letter %s was refused by %s: %s; trying again", r->job.identity, w->c->dead.topic, reason);
    }
}

static void resend_letters(struct lw_worker *w) {
    int64_t now = now_ms(w);
    for (int s = 0; s < w->n_shards; s++)
        for (struct lane *l = w->shards[s].lanes; l; l = l->hh.next) {
            struct run *r = l->run;
            if (!r || r->state != SENDING || !r->resend_ms || r->resend_ms > now) continue;
            if (w->stopping) {
                w->n_resend--;
                r->resend_ms = 0;
                run_finish(w, r, V_BACK);
            } else {
                send_letter(w, r);
            }
        }
}

void run_tend(struct lw_worker *w) {
    while (w->waiting && !w->running_alone) {
        struct run *r = w->waiting;
        if (r->job.alone && w->in_handler) break;
        w->waiting = r->next;
        if (!w->waiting) w->waiting_tail = &w->waiting;
        r->next = NULL;
        if (w->stopping || atomic_load(&r->lease.held.cancelled)) {
            run_finish(w, r, V_BACK);
            continue;
        }
        w->running_alone = r->job.alone;
        submit(w, r);
    }
    if (w->n_resend) resend_letters(w);
}

static bool leave_line(struct lw_worker *w, struct run *r) {
    for (struct run **at = &w->waiting; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            if (!*at) w->waiting_tail = at;
            return true;
        }
    return false;
}

/* The epoch is gone under a run: its handler goes on until it notices, and its key waits for it here. */
void run_to_stale(struct lw_worker *w, struct run *r) {
    struct lane *l = r->lane;
    l->run = NULL;
    w->in_flight--;
    lw_leases_remove(w->leases, &r->lease);
    atomic_store(&r->lease.held.cancelled, true);
    if (r->resend_ms) { /* no answer of its topic is awaited */
        w->n_resend--;
        r->resend_ms = 0;
        run_free(w, r);
        lane_wake(w, l);
    } else if (r->state == RUNNING && leave_line(w, r)) {
        run_free(w, r);
        lane_wake(w, l);
    } else {
        r->stale = true;
        r->next = l->stale;
        l->stale = r;
    }
}

void stale_remove(struct lw_worker *w, struct run *r) {
    struct lane *l = r->lane;
    for (struct run **at = &l->stale; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    if (r->late) w->shards[l->shard].n_late--;
    run_free(w, r);
}
