/* SPDX-License-Identifier: Apache-2.0 */
/* tend: the step that checks lanes when their time has come, notes in Redis that this worker is
 * alive (the heartbeat), and checks the server's life and clock regularly. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

enum { TEND_BATCH = 256 };

void tend_now(struct shard *sh, int64_t now) {
    assert(now > 0);
    sh->tend.at_ms = now;
}

void tend_by(struct shard *sh, int64_t due_ms) {
    assert(due_ms > 0);
    if (!sh->tend.due_ms || due_ms < sh->tend.due_ms) sh->tend.due_ms = due_ms;
}

static void tend_call(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY && !pipe_in_flight(sh));
    sh->tend.due_ms = 0;
    if (shard_quarantined(sh, now)) return;
    pipe_script(sh, CALL_TEND, &lw_script_tend, 3);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_lanes), pipe_text(sh, sh->key_ready);
    pipe_text(sh, epoch_id(sh)), pipe_number(sh, TEND_BATCH);
    pipe_number(sh, w->c->lock.ttl_ms), pipe_number(sh, w->c->lock.ttl_ms / 2);
}

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY && !pipe_in_flight(sh));
    if (now < sh->tend.at_ms) {
        if (sh->tend.due_ms && now >= sh->tend.due_ms) tend_call(w, sh, now);
        return;
    }
    int64_t period = w->c->lock.ttl_ms / 4;
    assert(period > 0);
    sh->tend.at_ms = now + period - (int64_t)(w->io->random(w->ctx) % (uint64_t)(period / 4 + 1));
    pipe_command(sh, CALL_TIME, "TIME");
    info_build(sh);
    pipe_command(sh, CALL_ALIVE, "ZADD");
    pipe_text(sh, sh->key_workers), pipe_number(sh, w->io->wall_ms(w->ctx));
    pipe_text(sh, w->set.id);
    /* CALL_ALIVE is made of two commands. The second one removes workers that have been silent for
     * a long time from the list of live workers. */
    pipe_command(sh, CALL_ALIVE, "ZREMRANGEBYSCORE");
    pipe_text(sh, sh->key_workers), pipe_text(sh, "-inf");
    pipe_number(sh, w->io->wall_ms(w->ctx) - 10 * w->c->lock.ttl_ms - 60000);
    tend_call(w, sh, now);
    vanished_build(w, sh);
}
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == READY && r);
    if (r->type != REDIS_REPLY_INTEGER) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh, lw_malformed(why, r, "tend.lua", "an integer"));
        return;
    }
    /* if the batch was full, more lanes may be due */
    if (r->integer >= TEND_BATCH) tend_now(sh, now_ms(w));
}
