/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's Redis: which life of it we talk to, the epoch we joined, and what an epoch's end means.
 *
 *     DOWN --connected--> HELLO --same life--> READY <-------------------.
 *                           '--new or none--> ENTERING --OK--> REPAIRING-'       any --LOST, other life, clock jumped--> ENTERING
 *
 * By the rule "life first" a new connection carries nothing but HELLO until the server's life (run_id, master_replid) compares equal. */
#include "consumer/worker/state.h"

#include "queue/epoch.h"
#include "queue/lane.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static char *key_of(struct shard *sh, const char *name, const char *more) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, "%s%s%s%c", sh->prefix, name, more, 0);
    return b.p;
}

void shard_init(struct lw_worker *w, struct shard *sh, int index) {
    sh->index = index;
    struct lw_buf b = {0};
    lw_buf_addf(&b, LW_LANE_TAG "%c", w->c->name, index, 0);
    sh->prefix = b.p;
    sh->n_prefix = strlen(b.p);
    sh->key_epoch = key_of(sh, "epoch", "");
    sh->key_lanes = key_of(sh, "lanes", "");
    sh->key_floor = key_of(sh, "floor", "");
    sh->key_fence = key_of(sh, "fence", "");
    sh->key_ready = key_of(sh, "ready", "");
    sh->key_dead = key_of(sh, "dead", "");
    sh->key_workers = key_of(sh, "workers", "");
    sh->key_vanished = key_of(sh, "vanished", "");
    sh->key_claimed = key_of(sh, "claimed:", w->set.id);
    gate_open(sh);
    settle_open(sh);
}

void shard_free(struct lw_worker *w, struct shard *sh) {
    (void)w;
    char *names[] = {sh->prefix,    sh->key_epoch, sh->key_lanes,   sh->key_floor,   sh->key_fence,
                     sh->key_ready, sh->key_dead,  sh->key_workers, sh->key_claimed, sh->key_vanished};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) free(names[i]);
    lw_commands_free(&sh->pipe.commands);
    hints_free(sh);
    free(sh->meta);
}

static void set_epoch(struct lw_worker *w, struct shard *sh, const char *id) {
    pthread_mutex_lock(&w->epoch_mutex);
    snprintf(sh->epoch, sizeof sh->epoch, "%s", id);
    pthread_mutex_unlock(&w->epoch_mutex);
}

bool shard_quiet(struct lw_worker *w, struct shard *sh, int64_t now) {
    (void)w;
    if (sh->quiet_until_ms && now >= sh->quiet_until_ms) sh->quiet_until_ms = 0;
    return sh->quiet_until_ms != 0 || sh->first.waits;
}

/* --- hello: the life and the clock of the server ----------------------------------------------------------------------------------- */

void hello_build(struct lw_worker *w, struct shard *sh, bool with_scripts) {
    pipe_begin(w, sh);
    pipe_call(sh, CALL_TIME); /* first: what stands before it would look like distance */
    lw_cmd(&sh->pipe.commands, "TIME");
    if (with_scripts)
        for (int i = 0; i < LW_SCRIPTS; i++) {
            pipe_call(sh, CALL_LOAD);
            lw_cmd(&sh->pipe.commands, "SCRIPT");
            lw_arg_text(&sh->pipe.commands, "LOAD");
            lw_arg_text(&sh->pipe.commands, lw_scripts[i]->text);
        }
    pipe_call(sh, CALL_INFO);
    lw_cmd(&sh->pipe.commands, "INFO");
    lw_arg_text(&sh->pipe.commands, "server");
    lw_arg_text(&sh->pipe.commands, "replication");
    lw_arg_text(&sh->pipe.commands, "stats");
    lw_arg_text(&sh->pipe.commands, "memory");
    sh->phase = HELLO;
    pipe_send(w, sh);
}

void lw_worker_connected(struct lw_worker *w, int shard) {
    struct shard *sh = &w->shards[shard];
    if (sh->phase != DOWN) return;
    sh->loaded = false;
    hello_build(w, sh, true);
}

/* What changed without harm (a replica was attached) is remembered: the next look compares with that. */
static bool same_life(struct shard *sh) {
    if (!lw_life_same(&sh->life, &sh->new_life)) return false;
    if (strcmp(sh->life.id, sh->new_life.id) != 0)
        lw_info("shard %d: Redis has another replication id, and was no replica meanwhile: nothing is lost", sh->index);
    sh->life = sh->new_life;
    return true;
}

void life_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    if (r->type != REDIS_REPLY_STRING) return;
    char policy[64], version[64];
    lw_life_read(&sh->new_life, r->str);
    if (lw_info_field(r->str, "maxmemory_policy", policy, sizeof policy) && strcmp(policy, "noeviction") != 0) {
        char why[256];
        snprintf(why, sizeof why, "shard %d: Redis has maxmemory-policy %s, which deletes locks and waiting messages; set noeviction",
                 sh->index, policy);
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    }
    if (lw_info_field(r->str, "redis_version", version, sizeof version) && atoi(version) < 7) {
        char why[256];
        snprintf(why, sizeof why, "shard %d: Redis %s is too old; 7.0 is needed", sh->index, version);
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
    }
    /* the periodic look, in a pipeline of a turn */
    if (sh->phase == READY && !same_life(sh)) shard_lost(w, sh, "the server is another, or restarted");
}

void time_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 || !r->element[0]->str || !r->element[1]->str) return;
    int64_t redis_ms = strtoll(r->element[0]->str, NULL, 10) * 1000 + strtoll(r->element[1]->str, NULL, 10) / 1000, now = now_ms(w);
    int64_t trip = now - sh->pipe.sent_ms;
    if (trip > w->c->lock.ttl_ms / 8) { /* too slow to tell; ask again */
        sh->checking = true;
        return;
    }
    sh->checking = false;
    sh->new_offset_ms = redis_ms - (now - trip / 2);
    sh->wall_offset_ms = redis_ms - (w->io->wall_ms(w->ctx) - trip / 2);
    if (!sh->epoch[0] || sh->phase != READY) return;
    if (llabs(sh->new_offset_ms - sh->offset_ms) > w->c->lock.ttl_ms / 4) {
        snprintf(sh->jumped, sizeof sh->jumped, "%s", sh->epoch);
        shard_lost(w, sh, "its clock jumped");
    } else {
        sh->offset_ms = sh->new_offset_ms;
    }
}

void hello_done(struct lw_worker *w, struct shard *sh) {
    if (sh->checking) {
        hello_build(w, sh, false);
        return;
    }
    if (!sh->epoch[0]) {
        sh->offset_ms = sh->new_offset_ms;
        sh->phase = ENTERING;
    } else if (!same_life(sh)) {
        shard_lost(w, sh, "the server is another, or restarted");
    } else if (llabs(sh->new_offset_ms - sh->offset_ms) > w->c->lock.ttl_ms / 4) {
        snprintf(sh->jumped, sizeof sh->jumped, "%s", sh->epoch);
        shard_lost(w, sh, "its clock jumped");
    } else {
        sh->offset_ms = sh->new_offset_ms;
        sh->phase = sh->repaired ? READY : REPAIRING;
        if (!sh->repaired) repair_restart(sh);
    }
}

/* --- the end of an epoch ----------------------------------------------------------------------------------------------------------- */

/* The rule "epoch ends, grants end": forgets this shard's leases only, but rewinds all partitions. Handlers that run on go to the stale
 * list and block their key here. */
void shard_lost(struct lw_worker *w, struct shard *sh, const char *why) {
    if (!sh->epoch[0]) return;
    lw_warn("shard %d: epoch %s is lost: %s; going back to the watermark", sh->index, sh->epoch, why);
    atomic_fetch_add_explicit(&w->counts->epochs_lost, 1, memory_order_relaxed);
    set_epoch(w, sh, "");
    lw_leases_cancel_shard(w->leases, sh->index);
    pipe_forget(w, sh);
    struct lane *l, *tmp;
    HASH_ITER(hh, sh->lanes, l, tmp) {
        if (!l->hold) continue;
        l->in_call = false;
        hold_to_stale(w, l->hold);
    }
    hints_forget(sh);
    for (size_t i = 0; i < w->n_assigned; i++) w->assigned[i]->floor_sent[sh->index] = -1;
    parts_rewind(w, true);
    w->confirm = true;
    sh->quiet_until_ms = 0;
    first_begin(sh, false);
    sh->n_meta = 0;
    repair_restart(sh);
    /* from a connection of its own: what the old one still has on the way is refused by the epoch */
    sh->phase = DOWN;
    sh->loaded = sh->checking = false;
    w->io->connect(w->ctx, sh->index);
}

/* --- enter ------------------------------------------------------------------------------------------------------------------------ */

static void schema(struct lw_worker *w, struct lw_commands *c) {
    lw_arg_text(c, "version"), lw_arg_i64(c, LW_SCHEMA_VERSION);
    lw_arg_text(c, "shards"), lw_arg_i64(c, w->n_shards);
    lw_arg_text(c, "key_rule"), lw_arg_text(c, w->c->key.from_text);
    lw_arg_text(c, "group_id"), lw_arg_text(c, w->c->kafka.group_id);
    if (w->set.cluster_id[0]) lw_arg_text(c, "kafka_cluster"), lw_arg_text(c, w->set.cluster_id);
}

/* How long leases of the epochs known so far may still live. A wiped Redis does not know that others use a longer TTL than this worker, and
 * they may be cut off. It is asked for one quarantine only: then all these leases are over, and what counts is what enter answers now. */
static int64_t old_leases_ms(struct lw_worker *w, const struct shard *sh) {
    int64_t left = sh->old_until_ms - now_ms(w);
    return left > sh->ttl_ms ? left : sh->ttl_ms;
}

void enter_build(struct lw_worker *w, struct shard *sh) {
    pipe_begin(w, sh);
    struct lw_commands *c = &sh->pipe.commands;
    pipe_call(sh, CALL_ENTER);
    pipe_script(sh, &lw_script_enter, 3);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_fence), lw_arg_text(c, sh->key_lanes);
    char id[LW_EPOCH_ID];
    lw_epoch_id(w->io->wall_ms(w->ctx), w->io->random(w->ctx), w->io->random(w->ctx), id);
    lw_arg_copy(c, id, strlen(id));
    sh->life = sh->new_life;
    lw_arg_text(c, sh->life.id);
    lw_arg_i64(c, w->c->lock.ttl_ms), lw_arg_i64(c, w->set.grace_ms);
    lw_arg_text(c, sh->jumped);
    lw_arg_text(c, w->set.host), lw_arg_i64(c, sh->wall_offset_ms), lw_arg_i64(c, (int64_t)w->max_fence);
    lw_arg_text(c, sh->life.history);
    lw_arg_i64(c, old_leases_ms(w, sh));
    schema(w, c);
    pipe_send(w, sh);
}

void enter_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements < 3) {
        lw_worker_disconnected(w, sh->index, "enter answered nonsense");
        return;
    }
    if (strcmp(r->element[0]->str, "OK") != 0 || r->elements < 6) {
        char why[700];
        snprintf(why, sizeof why,
                 "shard %d: the fleet of \"%s\" uses %s %s, this worker differs; give this application another name, or "
                 "configure it alike",
                 sh->index, w->c->name, r->element[1]->str, r->element[2]->str);
        w->io->stop(w->ctx, LW_EXIT_REFUSED, why);
        return;
    }
    set_epoch(w, sh, r->element[1]->str);
    if (!sh->index) rival_epoch(w, sh->epoch);
    sh->jumped[0] = 0;
    w->joined = true;
    int64_t now = now_ms(w), redis_now = strtoll(r->element[2]->str, NULL, 10), not_before = strtoll(r->element[3]->str, NULL, 10);
    sh->ttl_ms = strtoll(r->element[4]->str, NULL, 10);
    sh->old_until_ms = now + (not_before > redis_now ? not_before - redis_now : 0);
    if (not_before > redis_now) {
        sh->quiet_until_ms = now + (not_before - redis_now) + 1;
        lw_info("shard %d: epoch %s: quiet for %" PRId64 " ms, until no lease from before can be live", sh->index, sh->epoch,
                not_before - redis_now);
    }
    first_begin(sh, r->element[5]->str[0] == '1');
    sh->tend_ms = now; /* look after lanes at once: a dead fleet may have left some */
    sh->phase = REPAIRING;
    sh->repaired = false;
    repair_restart(sh);
}

/* --- repair ------------------------------------------------------------------------------------------------------------------------ */

void repair_restart(struct shard *sh) {
    sh->repair_part = sh->repair_at = 0;
    sh->repair_floors_sent = false;
}

/* How many ranges a call may carry. */
static int repair_room(const struct lw_worker *w) { return w->set.repair_batch ? w->set.repair_batch : REPAIR_BATCH; }

void repairs_restart(struct lw_worker *w) {
    for (int s = 0; s < w->n_shards; s++) repair_restart(&w->shards[s]);
}

static void arg_part(struct lw_commands *c, const struct part *p) { lw_arg_text(c, p->name); }

/* One call: the floors first, then as many finished ranges as a call takes. READY when there is nothing left to say. */
void repair_build(struct lw_worker *w, struct shard *sh) {
    pipe_begin(w, sh);
    struct lw_commands *c = &sh->pipe.commands;
    int floors = 0, offsets = 0;
    if (!sh->repair_floors_sent)
        for (size_t i = 0; i < w->n_assigned; i++) floors += w->assigned[i]->committed >= 0;
    while (sh->repair_part < w->n_assigned && sh->n_repair < repair_room(w) && offsets < REPAIR_OFFSETS) {
        struct part *p = w->assigned[sh->repair_part];
        if (sh->repair_at >= p->n_kept) {
            sh->repair_part++;
            sh->repair_at = 0;
            continue;
        }
        struct kept k = p->kept[sh->repair_at++];
        if ((int)(k.tag % (uint32_t)w->n_shards) != sh->index) continue;
        struct repair_item *last = sh->n_repair ? &sh->repair[sh->n_repair - 1] : NULL;
        if (last && last->part == p && last->hi == k.offset)
            last->hi++;
        else
            sh->repair[sh->n_repair++] = (struct repair_item){.part = p, .gen = p->gen, .lo = k.offset, .hi = k.offset + 1};
        offsets++;
    }
    if (!floors && !sh->n_repair) {
        sh->phase = READY;
        sh->repaired = true;
        return;
    }
    pipe_call(sh, CALL_REPAIR);
    pipe_script(sh, &lw_script_repair, 2);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_floor), lw_arg_text(c, sh->epoch), lw_arg_i64(c, floors);
    if (floors)
        for (size_t i = 0; i < w->n_assigned; i++) {
            struct part *p = w->assigned[i];
            if (p->committed < 0) continue;
            arg_part(c, p), lw_arg_i64(c, p->committed), lw_arg_i64(c, p->log_begin);
        }
    for (int i = 0; i < sh->n_repair; i++)
        arg_part(c, sh->repair[i].part), lw_arg_i64(c, sh->repair[i].lo), lw_arg_i64(c, sh->repair[i].hi);
    sh->repair_floors_sent = true;
    pipe_send(w, sh);
}

/* A handler outlived its epoch and was done: what it did may be written back within the quarantine, where its key's order allows; until
 * that is decided, the rule "epoch ends, grants end" blocks the key here. */
static void collect_of(struct lw_worker *w, struct shard *sh, struct hold *h, bool quiet) {
    for (struct run *r = h->first, *next; r; r = next) {
        next = r->next;
        if (!r->late || r->in_repair) continue;
        struct part *p = r->msg->part;
        if (p->gen && quiet && lw_offsets_next(p->offsets) < r->msg->offset) continue; /* what comes before it is not known yet */
        if (!p->gen || !quiet || !part_closed(p, r->msg) || sh->n_repair == REPAIR_BATCH) {
            late_remove(w, r); /* the last one takes the hold along */
            continue;
        }
        r->in_repair = true;
        sh->repair[sh->n_repair++] =
            (struct repair_item){.part = p, .gen = p->gen, .lo = r->msg->offset, .hi = r->msg->offset + 1, .late = r};
    }
}

static void collect_late(struct lw_worker *w, struct shard *sh) {
    struct lane *l, *tmp;
    bool quiet = shard_quiet(w, sh, now_ms(w));
    HASH_ITER(hh, sh->lanes, l, tmp) {
        for (struct hold *h = l->stale, *next; h; h = next) {
            next = h->next;
            collect_of(w, sh, h, quiet);
        }
    }
}

void repair_begin(struct shard *sh) { sh->n_repair = 0; }

void repair_forget(struct shard *sh) {
    for (int i = 0; i < sh->n_repair; i++)
        if (sh->repair[i].late) sh->repair[i].late->in_repair = false;
}

void late_count(struct shard *sh, int by) {
    assert(by > 0 || sh->n_late > 0);
    sh->n_late += (size_t)by;
}

void repair_meta(struct shard *sh, struct part *p, int64_t offset) {
    if (sh->n_meta == sh->cap_meta) {
        sh->cap_meta = sh->cap_meta ? sh->cap_meta * 2 : 64;
        sh->meta = lw_realloc(sh->meta, sh->cap_meta * sizeof sh->meta[0]);
    }
    sh->meta[sh->n_meta++] = (struct repair_item){.part = p, .gen = p->gen, .lo = offset, .hi = offset + 1, .meta = true};
}

static void meta_drop(struct shard *sh, size_t n) {
    sh->n_meta -= n;
    if (sh->n_meta) memmove(sh->meta, sh->meta + n, sh->n_meta * sizeof sh->meta[0]);
}

/* The oldest come first, and stay in the list until Redis has answered OK: a key whose later record were written back without an earlier
 * one would run the earlier one again, and an older effect would be its last. A call is taken whole or not at all. */
void late_build(struct lw_worker *w, struct shard *sh) {
    if (sh->n_repair) return;
    for (size_t i = 0; i < sh->n_meta && sh->n_repair < repair_room(w); i++) sh->repair[sh->n_repair++] = sh->meta[i];
    if (sh->n_late) collect_late(w, sh);
    if (!sh->n_repair) return;
    struct lw_commands *c = &sh->pipe.commands;
    pipe_call(sh, CALL_REPAIR);
    pipe_script(sh, &lw_script_repair, 2);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_floor), lw_arg_text(c, sh->epoch), lw_arg_i64(c, 0);
    for (int i = 0; i < sh->n_repair; i++)
        arg_part(c, sh->repair[i].part), lw_arg_i64(c, sh->repair[i].lo), lw_arg_i64(c, sh->repair[i].hi);
}

void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    bool ok = r->str && strcmp(r->str, "OK") == 0, forget = false;
    size_t metas = 0;
    for (int i = 0; i < sh->n_repair; i++) {
        struct repair_item *it = &sh->repair[i];
        if (it->late) {
            if (ok && it->part->gen == it->gen) part_mark(w, it->part, it->lo, LW_OFF_DONE);
            if (ok) owed_add(w, it->late), owed_pay(w, it->part, it->lo);
            it->late->in_repair = false;
            late_remove(w, it->late);
        } else if (it->meta) {
            metas++;
            if (ok && it->part->gen == it->gen) part_mark(w, it->part, it->lo, LW_OFF_DONE);
        } else {
            forget |= !ok;
        }
    }
    sh->n_repair = 0;
    if (ok)
        meta_drop(sh, metas);
    else
        sh->n_meta = 0; /* too late for those, too */
    if (forget) {       /* too late: what Redis does not know runs again */
        for (size_t i = 0; i < w->n_assigned; i++) w->assigned[i]->n_kept = 0;
        parts_rewind(w, false);
        w->confirm = true; /* the metadata of the last commit still calls it finished */
    }
}

/* --- janitor, heartbeat, life ------------------------------------------------------------------------------------------------------ */

enum { TEND_BATCH = 256 };

void tend_now(struct shard *sh, int64_t now) { sh->tend_ms = now; }

void tend_by(struct shard *sh, int64_t due_ms) {
    if (!sh->due_ms || due_ms < sh->due_ms) sh->due_ms = due_ms;
}

static void tend_call(struct lw_worker *w, struct shard *sh, int64_t now) {
    struct lw_commands *c = &sh->pipe.commands;
    sh->due_ms = 0;
    if (shard_quiet(w, sh, now)) return;
    pipe_call(sh, CALL_TEND);
    pipe_script(sh, &lw_script_tend, 3);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_lanes), lw_arg_text(c, sh->key_ready);
    lw_arg_text(c, sh->epoch), lw_arg_i64(c, TEND_BATCH), lw_arg_i64(c, w->c->lock.ttl_ms), lw_arg_i64(c, w->c->lock.ttl_ms / 2);
}

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now) {
    if (now < sh->tend_ms) {
        if (sh->due_ms && now >= sh->due_ms) tend_call(w, sh, now);
        return;
    }
    int64_t period = w->c->lock.ttl_ms / 4;
    sh->tend_ms = now + period - (int64_t)(w->io->random(w->ctx) % (uint64_t)(period / 4 + 1));
    struct lw_commands *c = &sh->pipe.commands;
    pipe_call(sh, CALL_TIME);
    lw_cmd(c, "TIME");
    pipe_call(sh, CALL_INFO);
    lw_cmd(c, "INFO"), lw_arg_text(c, "server"), lw_arg_text(c, "replication"), lw_arg_text(c, "stats"), lw_arg_text(c, "memory");
    pipe_call(sh, CALL_ALIVE);
    lw_cmd(c, "ZADD"), lw_arg_text(c, sh->key_workers), lw_arg_i64(c, w->io->wall_ms(w->ctx)), lw_arg_text(c, w->set.id);
    pipe_call(sh, CALL_ALIVE); /* workers long gone */
    lw_cmd(c, "ZREMRANGEBYSCORE"), lw_arg_text(c, sh->key_workers), lw_arg_text(c, "-inf");
    lw_arg_i64(c, w->io->wall_ms(w->ctx) - 10 * w->c->lock.ttl_ms - 60000);
    tend_call(w, sh, now);
    vanished_build(w, sh);
}
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    if (r->type == REDIS_REPLY_INTEGER && r->integer >= TEND_BATCH) tend_now(sh, now_ms(w)); /* more of them */
}
