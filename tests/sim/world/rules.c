/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/rules.h"

#include "tests/sim/world/inside.h"
#include "tests/sim/world/operator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { IDS = 40, STUBBORN_MS = 40000, ITEMS = 256 };

struct of_record {
    bool started, said_dead;
    /* failed: number of attempts that failed, or of which the plugin's process died.
     * recorded: number of attempts that Redis has recorded. */
    int failed, recorded;
    int dedup;
    int64_t rests_until_ms; /* earliest time at which a message that came back may run again */
    bool rests;             /* Redis has recorded that the message came back */
    int64_t first_ms;       /* when Redis recorded that the message failed for the first time */
    char id[12];
};

struct rules {
    struct of_record record[PARTS][MAX_RECORDS];
    struct lw_header header;
    uint64_t hold[KEYS]; /* the lease of each key's most recent run */
    int overtakes[KEYS];
    /* Number of times in a row that a worker's handler gave back a message of a key. */
    int backs[KEYS][WORKERS];
    /* Time of the last start of each key, or of the last rebalance after which its messages had to
     * be read again. */
    int64_t started_ms[KEYS];
    int poisoned; /* index of the worker that a poison message kills next; -1: none */
    struct lw_board *board[WORKERS];
    struct retry {
        int item, part, index;
        enum lw_outcome outcome;
    } retry[ITEMS]; /* messages that the present settle puts back into waiting lists */
    int n_retries;
};

static struct of_record *record(const struct world *w, int part, int index) {
    return &w->rules->record[part][index];
}
static bool is_poison(int part, int index) { return (index * 7 + part) % 50 == 13; }
static bool is_refused(const struct world *w, int key) { return w->f->refused && key < KEYS / 2; }
static bool is_stubborn(int part, int index) { return (index * 3 + part) % 40 == 11; }
static bool live(const struct world *w, const struct exec *x) {
    return atomic_load(&x->job->lease->deadline_ms) > w->now_ms &&
           !atomic_load(&x->job->lease->cancelled);
}

/* --- a run ------------------------------------------------------------------------------------ */

void rules_open(struct world *w) {
    static struct lw_err err;
    static char id[] = "id";
    struct rules *u = w->rules = lw_alloc(sizeof *u);
    struct lw_config *c = &w->config;
    u->poisoned = -1;
    c->dedup.business = w->f->dedup;
    c->dedup.id = (struct lw_rule){LW_KEY_HEADER, id};
    c->dedup.window_s = w->f->dedup ? 100000 : 0;
    for (int k = 0; k < KEYS; k++) u->started_ms[k] = w->now_ms;
    if (w->f->refused) {
        c->queue.max_waiting = 4 * MAX_RECORDS; /* a full queue would be a reason to stand still */
        c->retry.backoff_ms = 2000;
        c->retry.backoff_max_ms = 8000;
    }
    for (int i = 0; w->f->poison && i < WORKERS; i++) u->board[i] = lw_board_open(1, &err);
    for (int p = 0; p < PARTS; p++) {
        for (int i = 0; w->f->dedup && i < w->part[p].n; i++) {
            struct of_record *r = record(w, p, i);
            r->dedup = rnd_below(w, IDS);
            snprintf(r->id, sizeof r->id, "id%d", r->dedup);
        }
    }
}

void rules_close(struct world *w) {
    for (int i = 0; i < WORKERS; i++) lw_board_close(w->rules->board[i]);
    free(w->rules);
}

bool rules_step(struct world *w) {
    struct rules *u = w->rules;
    if (u->poisoned < 0) return false;
    struct sim_worker *me = &w->w[u->poisoned];
    if (me->lw && world_revoking(w, me)) return false;
    if (me->lw) world_kill(w, me, 200 + rnd_below(w, 2500));
    u->poisoned = -1;
    return true;
}

void rules_assigned(struct world *w, int part) {
    const struct sim_part *p = &w->part[part];
    for (int i = 0; i < p->n; i++) w->rules->started_ms[p->key[i]] = w->now_ms;
}

void rules_arrives(struct world *w, int part, int index, struct lw_record *r) {
    if (!w->f->dedup) return;
    w->rules->header =
        (struct lw_header){lw_bytes_of("id"), lw_bytes_of(record(w, part, index)->id)};
    r->headers = &w->rules->header;
    r->n_headers = 1;
}

/* --- the worker's process --------------------------------------------------------------------- */

struct lw_board *rules_board(const struct world *w, int worker) {
    return w->rules->board[worker];
}

void rules_death(struct world *w, const struct sim_worker *me) {
    struct lw_board *b = rules_board(w, me->index);
    if (!b) return;
    for (int i = 0, n = 0; i < w->n_exec; i++) {
        const struct exec *x = &w->exec[i];
        if (x->worker != me->index || x->queued) continue;
        lw_seat_take(&b->workers[0].seats[n++], x->job->identity, x->job->key, w->now_ms);
    }
    lw_board_suspect(b, 0);
}

/* --- Redis ------------------------------------------------------------------------------------ */

static int64_t number(const char *p, size_t n) {
    char t[24];
    snprintf(t, sizeof t, "%.*s", (int)(n > 20 ? 20 : n), p);
    return strtoll(t, NULL, 10);
}

struct place {
    int part, index; /* `index` is -1 for a replay */
    char tp[40];
};

/* Returns the message that a call of a script names by the three bytes at `at`: the number of a
 * group of arguments, which describes a segment, and the index within the segment. The first group
 * begins with the argument groups[1], and len[1] is the length of that argument. */
static struct place place_of(const struct world *w, const unsigned char *at, char **groups,
                             const size_t *len) {
    int g = 1 + 4 * (at[0] - 1);
    struct place p = {.index = -1};
    snprintf(p.tp, sizeof p.tp, "%.*s", (int)len[g], groups[g]);
    p.part = p.tp[2] - '0';
    if (strchr(p.tp, '#')) return p;
    p.index = record_at(&w->part[p.part],
                        LW_SEGMENT * number(groups[g + 1], len[g + 1]) + at[1] * 256 + at[2]);
    return p;
}

static bool is_script(const char *sha, int argc, char **argv) {
    return argc > 2 && sha[0] && !strcmp(argv[0], "EVALSHA") && !strcmp(argv[1], sha);
}

/* Notes the attempts that a call of settle may record, before the call is executed. */
void rules_before(struct world *w, const struct server *s, int argc, char **argv,
                  const size_t *len) {
    struct rules *u = w->rules;
    u->n_retries = 0;
    if (!is_script(w->settle_sha, argc, argv)) return;
    int a = 2 + (int)number(argv[2], len[2]), n = (int)len[a + 8] / 7;
    const unsigned char *item = (const unsigned char *)argv[a + 8],
                        *at = (const unsigned char *)argv[a + 9];
    for (int i = 0; i < n; i++, item += 7) {
        const unsigned char *last = at + 3 * (item[1] - 1);
        at += 3 * (item[1] + item[4]);
        if (!item[1] || lw_outcome_ends(item[2])) continue;
        struct place p = place_of(w, last, argv + a + 10, len + a + 10);
        if (p.index >= 0 && !finished_in(s, p.tp, w->part[p.part].offset[p.index]))
            u->retry[u->n_retries++] = (struct retry){i, p.part, p.index, item[2]};
    }
}

/* A worker may learn much later that a handler has ended, or die and be followed by another one. */
static void check_age(struct world *w, const struct of_record *r) {
    enum { SLACK_MS = 8000 };
    if (!w->losses && w->now_ms - r->first_ms > 1000 * w->config.retry.max_age_s + SLACK_MS)
        world_bad(w, "a message counts no attempt %" PRId64 " ms after it failed first",
                  w->now_ms - r->first_ms);
}

void rules_after(struct world *w, const redisReply *r) {
    struct rules *u = w->rules;
    if (r->type != REDIS_REPLY_ARRAY) return;
    for (int i = 0; i < u->n_retries; i++) {
        struct of_record *back = record(w, u->retry[i].part, u->retry[i].index);
        if (r->element[1]->str[u->retry[i].item] == LW_SETTLED_STALE) continue;
        enum lw_outcome outcome = u->retry[i].outcome;
        back->recorded += outcome == LW_RETRY;
        back->rests = w->f->later ? outcome != LW_BACK : outcome == LW_BACK;
        if (outcome != LW_BACK && !back->first_ms) back->first_ms = w->now_ms;
        if (outcome == LW_LATER) check_age(w, back);
    }
}

void rules_lost_data(struct world *w) { w->losses++; }

/* --- oracles ---------------------------------------------------------------------------------- */

static void check_attempt(struct world *w, const struct exec *x, const struct of_record *r) {
    int attempt = x->job->attempt, most = w->config.retry.max_attempts;
    if (attempt < 1 || attempt > most)
        world_bad(w, "%s runs as attempt %d of %d", x->job->identity, attempt, most);
    if (attempt > 1 + r->failed)
        world_bad(w, "%s runs as attempt %d after %d failures", x->job->identity, attempt,
                  r->failed);
    if (!w->losses && live(w, x) && attempt != 1 + r->recorded)
        world_bad(w, "%s runs as attempt %d, %d are recorded", x->job->identity, attempt,
                  r->recorded);
}

static bool waits(const struct server *s, int key) {
    char list[40];
    const char *v;
    size_t n;
    int len = snprintf(list, sizeof list, "lw:{t.%d}:wait:k%d", s->shard, key);
    for (size_t i = 0; store_peek_list(s->store, list, (size_t)len, i, &v, &n); i++) {
        char text[80], tp[40];
        int part;
        int64_t offset, replay;
        snprintf(text, sizeof text, "%.*s", (int)(n < 79 ? n : 79), v);
        if (sscanf(text, "1 t %d %" SCNd64 " %" SCNd64, &part, &offset, &replay) != 3) continue;
        int k = snprintf(tp, sizeof tp, "t:%d", part);
        if (replay) snprintf(tp + k, sizeof tp - (size_t)k, "#%" PRId64, replay);
        if (!finished_in(s, tp, offset)) return true;
    }
    return false;
}

/* Checks that a hold of the fast path starts at most lock.max_run messages while other messages of
 * its key wait. */
static void check_fair(struct world *w, const struct exec *x) {
    int *n = &w->rules->overtakes[x->key], shard = inside_shard(x->job);
    if (!live(w, x)) return;
    uint64_t hold = inside_hold(x->job) * WORKERS + (uint64_t)x->worker;
    if (hold != w->rules->hold[x->key]) *n = 0;
    w->rules->hold[x->key] = hold;
    if (!inside_is_fast(x->job) || w->vanished[x->key] || !waits(w->master[shard], x->key))
        *n = 0;
    else if (++*n > w->config.lock.max_run)
        world_bad(w, "%s is the %dth to overtake who waits for key %d; max_run is %d",
                  x->job->identity, *n, x->key, w->config.lock.max_run);
}

/* A message that was in a handler when the worker died must not run inside the worker again. */
static void check_suspect(struct world *w, const struct exec *x) {
    const struct lw_board *b = rules_board(w, x->worker);
    if (b && !x->job->suspect && lw_board_is_suspect(b, x->job->identity))
        world_bad(w, "%s runs inside worker %d, which it may kill", x->job->identity, x->worker);
}

static bool same_id(const struct world *w, int part, int index, int p, int i) {
    return (p != part || i != index) && w->part[p].key[i] == w->part[part].key[index] &&
           record(w, p, i)->dedup == record(w, part, index)->dedup;
}

/* Returns true if another message with the same business id has had its effect. If `shard` is not
 * negative, the Redis of this shard must also know that the other message is finished. */
static bool has_twin(const struct world *w, int part, int index, int shard) {
    char tp[20];
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < w->part[p].n; i++) {
            snprintf(tp, sizeof tp, "t:%d", p);
            if (!same_id(w, part, index, p, i) || !w->part[p].stored[i]) continue;
            if (shard < 0 || finished_in(w->master[shard], tp, w->part[p].offset[i])) return true;
        }
    return false;
}

static bool loses_leases(const struct faults *f) {
    return f->crash > 0 || f->pause > 0 || f->wipe > 0 || f->failover > 0 || f->clock > 0;
}

/* Notes when a message that was given back may run again. The wait grows each time that the
 * worker's handler gives back a message of the key under a live lease. Any other outcome resets the
 * wait. */
static void rest(struct world *w, const struct exec *x, struct of_record *r) {
    int *times = &w->rules->backs[x->key][x->worker];
    int64_t ms = 0;
    if (live(w, x)) ++*times;
    for (int i = 1; live(w, x) && i < *times && ms < 1000; i++) ms = ms ? 2 * ms : 10;
    r->rests = false;
    r->rests_until_ms = w->now_ms + (ms < 1000 ? ms : 1000);
}

static void check_rest(struct world *w, const struct exec *x, const struct of_record *r) {
    if (r->rests && live(w, x) && w->now_ms < r->rests_until_ms)
        world_bad(w, "%s came back and runs again %" PRId64 " ms too early", x->job->identity,
                  r->rests_until_ms - w->now_ms);
}

/* Checks that an innocent key does not stand still while messages of other keys fail. What the
 * world needs to read a partition up to a message and to run it is small against the backoff. */
static void check_innocent(struct world *w, const struct exec *x) {
    int64_t stood = w->now_ms - w->rules->started_ms[x->key];
    w->rules->started_ms[x->key] = w->now_ms;
    if (w->f->refused && !is_refused(w, x->key) && stood > 2 * w->config.retry.backoff_max_ms)
        world_bad(w, "key %d stood still for %" PRId64 " ms while others failed", x->key, stood);
}

void rules_start(struct world *w, const struct exec *x, int index) {
    int part = x->job->partition;
    struct of_record *r = record(w, part, index);
    check_fair(w, x);
    check_suspect(w, x);
    check_innocent(w, x);
    if (operator_replay(x->job)) return;
    r->started = true;
    check_attempt(w, x, r);
    if (w->f->dedup && !loses_leases(w->f) && live(w, x) &&
        has_twin(w, part, index, inside_shard(x->job)))
        world_bad(w, "%s runs, though another with its business id is done", x->job->identity);
    if (w->f->stubborn || w->f->later) check_rest(w, x, r);
    if (w->f->poison && is_poison(part, index) && !x->job->suspect) w->rules->poisoned = x->worker;
}

enum lw_outcome rules_finish(struct world *w, const struct exec *x, int index,
                             enum lw_outcome wish) {
    int part = x->job->partition;
    if (operator_replay(x->job)) return wish;
    struct of_record *r = record(w, part, index);
    if (w->f->stubborn && is_stubborn(part, index) && w->faults_on &&
        w->now_ms < 100000 + STUBBORN_MS) {
        rest(w, x, r);
        return LW_BACK;
    }
    if (w->f->later && wish == LW_DONE && is_stubborn(part, index) && w->faults_on &&
        w->now_ms < 100000 + STUBBORN_MS)
        wish = LW_RETRY, x->job->uncounted = true;
    if (w->f->later) {
        x->job->wait_ms = wish == LW_RETRY ? 300 + rnd_below(w, 3000) : 0;
        if (live(w, x)) { /* else another run of it counts, which may have ended before */
            r->rests = false;
            r->rests_until_ms = w->now_ms + x->job->wait_ms;
        }
    }
    /* the process of the plugin dies, in which the message runs */
    if (w->f->poison && is_poison(part, index) && x->job->suspect && live(w, x)) wish = LW_RETRY;
    if (w->f->refused && wish != LW_BACK)
        wish = is_refused(w, x->key) && w->faults_on ? LW_RETRY : LW_DONE;
    if (wish != LW_BACK) w->rules->backs[x->key][x->worker] = 0;
    r->failed += wish == LW_RETRY;
    r->said_dead |= wish == LW_DEAD;
    return wish;
}

void rules_died(struct world *w, int part, int index) {
    const struct of_record *r = record(w, part, index);
    if (r->said_dead || w->losses) return;
    if (r->recorded + 1 < w->config.retry.max_attempts)
        world_bad(w, "t/%d/%" PRId64 " is a dead letter after %d attempts", part,
                  w->part[part].offset[index], r->recorded + 1);
}

bool rules_twin_forgot(const struct world *w, int part, int index) {
    return w->losses && w->f->dedup && has_twin(w, part, index, -1);
}

bool rules_forgot(const struct world *w) { return w->losses && w->f->dedup; }

/* Returns true if a newer record of the record's key follows in its partition. */
static bool has_newer(const struct sim_part *p, int index) {
    for (int i = index + 1; i < p->n; i++)
        if (p->key[i] == p->key[index]) return true;
    return false;
}

bool rules_gone(const struct world *w, int part, int index) {
    if (w->config.queue.on_busy == LW_BUSY_LATEST) return has_newer(&w->part[part], index);
    return w->f->dedup && has_twin(w, part, index, -1);
}
