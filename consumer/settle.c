/* settle: what became of the messages that ran, and who goes on in their lanes. */
#include "consumer/state.h"

#include <stdlib.h>

/* Exponential, with jitter between half and all of it, so that what failed together is not tried together. */
static int64_t backoff(struct lw_worker *w, const struct run *r) {
    int64_t ms = w->c->retry.backoff_ms;
    for (int i = 0; i < r->tries && ms < w->c->retry.backoff_max_ms; i++) ms *= 2;
    if (ms > w->c->retry.backoff_max_ms) ms = w->c->retry.backoff_max_ms;
    if (ms < 2) return ms;
    return ms / 2 + (int64_t)(w->io->random(w->ctx) % (uint64_t)(ms / 2 + 1));
}

/* Two letters a message: what happened, how to go on (settle.lua). */
static const char outcome_letter[] = {[V_DONE] = 'd', [V_RETRY] = 'r', [V_BACK] = 'b', [V_DEAD] = 'x', [V_SENT] = 's'};
static const char mode_letter[] = {[KEEP] = 'k', [NEXT] = 'n', [DROP] = '-'};

static void encode_one(struct lw_worker *w, struct lw_commands *c, const struct settle_item *it, int group, int next_group) {
    struct run *r = it->run;
    char what[2] = {outcome_letter[it->verdict], mode_letter[it->mode]};
    lw_arg_i64(c, group), lw_arg_i64(c, r->msg->offset), lw_arg_i64(c, (int64_t)r->lease.token), lw_arg_copy(c, what, 2);
    if (it->verdict == V_RETRY) lw_arg_i64(c, it->backoff_ms);
    if (it->verdict == V_DEAD) lw_arg_text(c, r->job.reason);
    if (it->verdict == V_RETRY || it->verdict == V_BACK || it->verdict == V_DEAD) {
        w->scratch.n = 0;
        msg_envelope(w, r->msg, &w->scratch);
        lw_arg_copy(c, w->scratch.p, w->scratch.n);
    }
    if (it->mode == KEEP) lw_arg_i64(c, next_group), lw_arg_i64(c, it->next_offset);
    if (!w->c->dedup.business) return;
    if (it->mode == KEEP) lw_arg(c, it->next->dedup);
    lw_arg(c, r->msg->dedup);
}

void settle_encode(struct lw_worker *w, struct shard *sh) {
    struct lw_commands *c = &sh->commands;
    static _Thread_local struct group groups[2 * BATCH];
    int of[BATCH], of_next[BATCH], n = 0;
    for (int i = 0; i < sh->n_settle; i++) {
        struct settle_item *it = &sh->settle[i];
        of[i] = group_of(groups, &n, it->run->msg->part, it->run->msg->offset);
        of_next[i] = it->mode == KEEP ? group_of(groups, &n, it->next_part, it->next_offset) : 0;
    }
    pipe_script(sh, &lw_script_settle, 6 + 2 * n + sh->n_settle);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_lanes), lw_arg_text(c, sh->key_floor), lw_arg_text(c, sh->key_fence);
    lw_arg_text(c, sh->key_ready), lw_arg_text(c, sh->key_dead);
    arg_groups(sh, groups, n);
    for (int i = 0; i < sh->n_settle; i++) arg_lock(sh, sh->settle[i].run->lane->id);
    lw_arg_text(c, sh->epoch), lw_arg_i64(c, w->c->lock.ttl_ms), lw_arg_i64(c, w->c->lock.ttl_ms / 2);
    lw_arg_text(c, w->c->retry.order == LW_ORDER_SKIP ? "skip" : "block");
    if (w->c->dedup.business)
        lw_arg_i64(c, w->c->dedup.window_s);
    else
        lw_arg_text(c, "");
    lw_arg_join(c, lw_bytes_of(w->set.id), ".", lw_bytes("", 0)), lw_arg_i64(c, n);
    for (int i = 0; i < n; i++) lw_arg_text(c, groups[i].part->name);
    for (int i = 0; i < sh->n_settle; i++) encode_one(w, c, &sh->settle[i], of[i], of_next[i]);
}

void settle_choose(struct lw_worker *w, struct settle_item *it) {
    struct run *r = it->run;
    struct msg *chain = lane_first(w, r->lane);
    bool over = r->n >= w->c->lock.max_run || w->stopping;
    it->mode = DROP;
    it->next = NULL;
    if (over) return;
    if (r->kind == LANE || !chain) {
        it->mode = NEXT;
    } else if (it->verdict == V_DONE || it->verdict == V_DEAD || it->verdict == V_SENT) {
        it->mode = KEEP;
        it->next = chain;
        it->next_part = chain->part;
        it->next_offset = chain->offset;
    }
}

void settle_build(struct lw_worker *w, struct shard *sh) {
    while (sh->finished && sh->n_settle < BATCH) {
        struct run *r = sh->finished;
        sh->finished = r->next;
        if (!sh->finished) sh->finished_tail = &sh->finished;
        r->next = NULL;
        r->state = SETTLING;
        r->lane->in_call = true;
        struct settle_item *it = &sh->settle[sh->n_settle++];
        *it = (struct settle_item){.run = r, .verdict = r->verdict};
        if (r->verdict == V_RETRY) it->backoff_ms = backoff(w, r);
        settle_choose(w, it);
    }
    if (!sh->n_settle) return;
    pipe_call(sh, CALL_SETTLE);
    settle_encode(w, sh);
}

/* Once more, with what is true then; done is done however often it is said. */
static void settle_later(struct shard *sh, struct run *r) {
    r->state = FINISHED;
    r->next = NULL;
    *sh->finished_tail = r;
    sh->finished_tail = &r->next;
}

void settle_back(struct lw_worker *w, struct shard *sh) {
    (void)w;
    for (int i = 0; i < sh->n_settle; i++) {
        sh->settle[i].run->lane->in_call = false;
        settle_later(sh, sh->settle[i].run);
    }
    sh->n_settle = 0;
}

static void account(struct lw_worker *w, struct run *r, enum verdict v, bool stale) {
    if (r->accounted) return;
    r->accounted = true;
    if (v == V_DONE)
        count(&w->counts->done);
    else if (stale)
        count(&w->counts->stale);
    else if (v == V_DEAD || v == V_SENT)
        count(&w->counts->dead);
    if ((v == V_DONE || v == V_DEAD || v == V_SENT) && w->set.board && atomic_load(&w->set.board->n_suspects) > 0)
        lw_board_forget(w->set.board, r->job.identity);
}

static struct msg *msg_of_envelope(struct lw_worker *w, struct lw_bytes raw) {
    struct lw_envelope e;
    struct lw_err err = {0};
    char *own = lw_memdup(raw.p, raw.n);
    if (lw_envelope_decode(lw_bytes(own, raw.n), &e, &err) != 0) {
        lw_error("a waiting list holds what is not a message: %s", err.text);
        free(own);
        return NULL;
    }
    struct msg *m = msg_new(w);
    m->part = part_get(w, e.topic.p, e.topic.n, e.partition);
    m->offset = e.offset;
    m->first_ms = e.first_ms;
    m->timestamp_ms = e.timestamp_ms;
    m->key = e.key;
    m->payload = e.payload;
    m->dedup = e.dedup;
    m->headers = e.headers;
    m->n_headers = e.n_headers;
    m->own = own;
    m->raw = lw_bytes(own, raw.n);
    m->bytes = raw.n;
    return m;
}

/* A head was handed over by settle or claim: "N<fence> <attempts>" and its envelope. */
void head_granted(struct lw_worker *w, struct shard *sh, struct lane *l, uint64_t token, const redisReply *answer,
                  const redisReply *envelope, int n, struct run *again) {
    char *rest;
    uint64_t fence = strtoull(answer->str + 1, &rest, 10);
    struct msg *m = envelope->type == REDIS_REPLY_STRING ? msg_of_envelope(w, lw_bytes(envelope->str, envelope->len)) : NULL;
    if (!m) { /* the lock ends by itself; the list keeps what it holds */
        if (again) {
            l->run = NULL;
            run_free(w, again);
        }
        return;
    }
    m->tag = l->tag;
    run_grant(w, l, m, LANE, token, fence, atoi(rest), n, sh->sent_ms, again);
}

/* The janitor would see the end of a short backoff late. */
static void look_then(struct lw_worker *w, struct shard *sh, int64_t backoff_ms) {
    int64_t due = now_ms(w) + backoff_ms + 2;
    if (!sh->due_ms || due < sh->due_ms) sh->due_ms = due;
}

static void answered(struct lw_worker *w, struct shard *sh, struct settle_item *it, const redisReply *answer, const redisReply *envelope) {
    struct run *r = it->run;
    struct lane *l = r->lane;
    struct msg *m = r->msg;
    const char *a = answer->str ? answer->str : "";
    bool stale = a[0] == 'S' || a[0] == 'B';
    l->in_call = false;
    account(w, r, it->verdict, stale);
    if (it->verdict == V_DONE || ((it->verdict == V_DEAD || it->verdict == V_SENT) && !stale)) {
        part_mark(w, m->part, m->offset, LW_OFF_DONE);
    } else if (!stale) {
        part_mark(w, m->part, m->offset, LW_OFF_QUEUED);
    } else if (r->kind == FAST && msg_current(m)) { /* not done, and no longer ours: asks again, before anything newer */
        r->msg = NULL;
        lane_push_front(w, l, m);
    }
    switch (a[0]) {
    case 'K': {
        struct msg *next = lane_first(w, l);
        if (!next || next->part != it->next_part || next->offset != it->next_offset) {
            settle_later(sh, r);
            break;
        }
        char *rest;
        uint64_t fence = strtoull(a + 1, &rest, 10);
        lane_pop(w, l);
        run_grant(w, l, next, FAST, r->lease.token, fence, atoi(rest), r->n + 1, sh->sent_ms, r);
        break;
    }
    case 'P':
        if (l->head && l->head->part == it->next_part && l->head->offset == it->next_offset) {
            part_mark(w, it->next_part, it->next_offset, LW_OFF_DONE);
            msg_free(w, lane_pop(w, l));
        }
        settle_later(sh, r);
        break;
    case 'N': head_granted(w, sh, l, r->lease.token, answer, envelope, r->n + 1, r); break;
    default:
        if (a[0] == 'L' && it->backoff_ms) look_then(w, sh, it->backoff_ms);
        if (a[0] == 'B') l->not_before_ms = now_ms(w) + HOLD_BAD_MS;
        l->run = NULL;
        run_free(w, r);
    }
}

void settle_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    int n = sh->n_settle;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != (size_t)(2 * n + 1)) {
        lw_error("shard %d: settle answered nonsense", sh->index);
        settle_back(w, sh);
        return;
    }
    sh->n_settle = 0;
    for (int i = 0; i < n; i++) {
        struct lane *l = sh->settle[i].run->lane;
        answered(w, sh, &sh->settle[i], r->element[2 * i], r->element[2 * i + 1]);
        lane_wake(w, l);
    }
    if (r->element[2 * n]->type == REDIS_REPLY_INTEGER)
        count_n(&w->counts->dropped, (uint64_t)r->element[2 * n]->integer);
}
