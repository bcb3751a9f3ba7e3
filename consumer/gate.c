/* gate: new messages ask for their lane: run now, wait in Redis, or done before. */
#include "consumer/state.h"

#include <assert.h>
#include <stdlib.h>

enum { REST_MS = 20 };

/* Segments of a call: each (partition, segment) once. */
int group_of(struct group *g, int *n, struct part *p, int64_t offset) {
    int64_t segment = offset / SEGMENT;
    for (int i = *n - 1; i >= 0; i--)
        if (g[i].part == p && g[i].segment == segment) return i + 1;
    g[*n] = (struct group){p, segment};
    return ++*n;
}

void arg_groups(struct shard *sh, const struct group *g, int n) {
    for (int i = 0; i < n; i++) {
        char name[350];
        size_t len = strlen(g[i].part->name);
        memcpy(name, g[i].part->name, len);
        name[len++] = ':';
        len += lw_decimal(g[i].segment, name + len);
        lw_arg_join(&sh->commands, lw_bytes(sh->prefix, sh->n_prefix), "state:", lw_bytes(name, len));
        lw_arg_join(&sh->commands, lw_bytes(sh->prefix, sh->n_prefix), "tries:", lw_bytes(name, len));
    }
}

void arg_lock(struct shard *sh, struct lw_bytes lane) { lw_arg_join(&sh->commands, lw_bytes(sh->prefix, sh->n_prefix), "lock:", lane); }

void arg_lane(struct shard *sh, struct lw_bytes lane) {
    arg_lock(sh, lane);
    lw_arg_join(&sh->commands, lw_bytes(sh->prefix, sh->n_prefix), "wait:", lane);
}

void arg_token(struct lw_worker *w, struct shard *sh, uint64_t token) {
    char text[24];
    size_t n = lw_decimal((int64_t)token, text);
    lw_arg_join(&sh->commands, lw_bytes_of(w->set.id), ".", lw_bytes(text, n));
}

void gate_encode(struct lw_worker *w, struct shard *sh) {
    struct lw_commands *c = &sh->commands;
    static _Thread_local struct group groups[2 * BATCH];
    int count[BATCH] = {0}, n = 0;
    for (int i = 0; i < sh->n_gate; i++) count[group_of(groups, &n, sh->gate[i].msg->part, sh->gate[i].msg->offset) - 1]++;
    pipe_script(sh, &lw_script_gate, 4 + 2 * n + sh->n_gate);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_lanes), lw_arg_text(c, sh->key_floor), lw_arg_text(c, sh->key_fence);
    arg_groups(sh, groups, n);
    for (int i = 0; i < sh->n_gate; i++) arg_lock(sh, sh->gate[i].lane->id);
    lw_arg_text(c, sh->epoch), lw_arg_i64(c, now_ms(w) + sh->offset_ms), lw_arg_i64(c, w->c->lock.ttl_ms / 4),
        lw_arg_i64(c, w->c->lock.ttl_ms);
    lw_arg_text(c, w->c->queue.on_busy == LW_BUSY_DROP ? "drop" : "park");
    lw_arg_join(c, lw_bytes_of(w->set.id), ".", lw_bytes("", 0)), lw_arg_i64(c, (int64_t)sh->gate[0].token);
    lw_arg_text(c, w->c->dedup.business ? "1" : "0"), lw_arg_i64(c, n);
    for (int i = 0; i < n; i++) lw_arg_text(c, groups[i].part->name), lw_arg_i64(c, count[i]);
    for (int i = 0; i < sh->n_gate; i++) {
        struct msg *m = sh->gate[i].msg;
        lw_arg_i64(c, m->offset);
        w->scratch.n = 0;
        msg_envelope(w, m, &w->scratch);
        lw_arg_copy(c, w->scratch.p, w->scratch.n);
        if (w->c->dedup.business) lw_arg(c, m->dedup);
    }
}

/* The messages of a segment stand together, and tokens follow each other: so neither is named for each message. */
static void arrange(struct lw_worker *w, struct shard *sh) {
    static _Thread_local struct group groups[2 * BATCH];
    static _Thread_local struct gate_item sorted[BATCH];
    int of[BATCH], start[BATCH + 1] = {0}, n = 0;
    for (int i = 0; i < sh->n_gate; i++) {
        of[i] = group_of(groups, &n, sh->gate[i].msg->part, sh->gate[i].msg->offset);
        start[of[i]]++;
    }
    for (int g = 1; g <= n; g++) start[g] += start[g - 1];
    for (int i = 0; i < sh->n_gate; i++) sorted[start[of[i] - 1]++] = sh->gate[i];
    for (int i = 0; i < sh->n_gate; i++) {
        sh->gate[i] = sorted[i];
        sh->gate[i].token = ++w->next_token;
    }
}

void gate_build(struct lw_worker *w, struct shard *sh, size_t most) {
    int64_t now = now_ms(w);
    size_t bytes = 0;
    if (most > BATCH) most = BATCH;
    struct lane *again = NULL, **again_tail = &again;
    while (sh->gate_head && (size_t)sh->n_gate < most && bytes < (4u << 20)) {
        struct lane *l = sh->gate_head;
        sh->gate_head = l->gate_next;
        if (!sh->gate_head) sh->gate_tail = &sh->gate_head;
        l->queued = false;
        if (!lane_may_gate(w, l, now)) {
            if (l->head && l->not_before_ms > now) { /* later */
                l->queued = true;
                l->gate_next = NULL;
                *again_tail = l;
                again_tail = &l->gate_next;
            } else {
                lane_maybe_free(w, l);
            }
            continue;
        }
        struct msg *m = lane_pop(w, l);
        l->in_call = true;
        bytes += m->bytes;
        sh->gate[sh->n_gate++] = (struct gate_item){.lane = l, .msg = m};
    }
    if (again) {
        if (!sh->gate_head) sh->gate_rest_ms = now + REST_MS;
        *sh->gate_tail = again;
        sh->gate_tail = again_tail;
    }
    if (!sh->n_gate) return;
    arrange(w, sh);
    pipe_call(sh, CALL_GATE);
    gate_encode(w, sh);
}

/* The call did not execute, or was refused: its messages stand first in their lanes again. */
void gate_back(struct lw_worker *w, struct shard *sh) {
    for (int i = sh->n_gate - 1; i >= 0; i--) {
        struct lane *l = sh->gate[i].lane;
        struct msg *m = sh->gate[i].msg;
        l->in_call = false;
        if (msg_current(m))
            lane_push_front(w, l, m);
        else
            msg_free(w, m);
        lane_wake(w, l);
    }
    sh->n_gate = 0;
}

static void answered(struct lw_worker *w, struct shard *sh, struct gate_item *it, const char *a) {
    struct lane *l = it->lane;
    struct msg *m = it->msg;
    l->in_call = false;
    switch (a[0]) {
    case 'R': {
        char *rest;
        uint64_t fence = strtoull(a + 1, &rest, 10);
        int tries = atoi(rest);
        if (l->run) { /* the call executed after the run's lease had ended: never two runs of a key here; this lock ends by itself */
            if (!msg_current(m)) break;
            lane_push_front(w, l, m);
            return;
        }
        if (msg_current(m)) {
            run_grant(w, l, m, FAST, it->token, fence, tries, 1, sh->sent_ms, NULL);
        } else { /* the partition went while the call was out: give it back */
            run_grant(w, l, m, FAST, it->token, fence, tries, 1, INT64_MIN / 2, NULL);
        }
        return;
    }
    case 'D':
        part_mark(w, m->part, m->offset, LW_OFF_DONE);
        count(&w->counts->redelivered);
        break;
    case 'W':
        part_mark(w, m->part, m->offset, LW_OFF_QUEUED);
        count(&w->counts->parked);
        break;
    case 'X':
    case 'U':
        part_mark(w, m->part, m->offset, LW_OFF_DONE);
        count(&w->counts->dropped);
        break;
    default:
        if (now_ms(w) >= l->not_before_ms)
            lw_error("a Redis name of lane \"%.*s\" holds another type; looking again every second", (int)l->id.n, l->id.p);
        l->not_before_ms = now_ms(w) + HOLD_BAD_MS;
        if (msg_current(m)) {
            lane_push_front(w, l, m);
            return;
        }
    }
    msg_free(w, m);
}

void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != (size_t)sh->n_gate) {
        lw_error("shard %d: gate answered nonsense", sh->index);
        gate_back(w, sh);
        return;
    }
    int n = sh->n_gate;
    sh->n_gate = 0;
    sh->oom_until_ms = 0;
    for (int i = 0; i < n; i++) {
        struct lane *l = sh->gate[i].lane;
        answered(w, sh, &sh->gate[i], r->element[i]->str ? r->element[i]->str : "");
        lane_wake(w, l);
    }
}
