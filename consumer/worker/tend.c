/* SPDX-License-Identifier: Apache-2.0 */
/* tend: the step that checks lanes when their time has come (the janitor), notes in Redis that this
 * worker is alive (the heartbeat), and checks the server's life and clock regularly. */
#include "consumer/worker/tend.h"

#include "consumer/worker/epoch.h"
#include "consumer/worker/move.h"
#include "consumer/worker/pipe.h"
#include "consumer/worker/private.h"
#include "consumer/worker/shard.h"
#include "consumer/worker/vanished.h"

#include <assert.h>

enum { TEND_BATCH = 256 };

void tend_now(struct shard *sh, int64_t now) { sh->tend.at_ms = now; }

void tend_by(struct shard *sh, int64_t due_ms) {
    if (!sh->tend.due_ms || due_ms < sh->tend.due_ms) sh->tend.due_ms = due_ms;
}

static void tend_call(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY && !sh->pipe.open);
    struct lw_commands *c = &sh->pipe.commands;
    sh->tend.due_ms = 0;
    if (shard_quiet(w, sh, now)) return;
    pipe_call(sh, CALL_TEND);
    pipe_script(sh, &lw_script_tend, 3);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_lanes), lw_arg_text(c, sh->key_ready);
    lw_arg_text(c, sh->epoch.id), lw_arg_i64(c, TEND_BATCH), lw_arg_i64(c, w->c->lock.ttl_ms),
        lw_arg_i64(c, w->c->lock.ttl_ms / 2);
}

void tend_build(struct lw_worker *w, struct shard *sh, int64_t now) {
    assert(sh->phase == READY && !sh->pipe.open);
    if (now < sh->tend.at_ms) {
        if (sh->tend.due_ms && now >= sh->tend.due_ms) tend_call(w, sh, now);
        return;
    }
    int64_t period = w->c->lock.ttl_ms / 4;
    sh->tend.at_ms = now + period - (int64_t)(w->io->random(w->ctx) % (uint64_t)(period / 4 + 1));
    struct lw_commands *c = &sh->pipe.commands;
    pipe_call(sh, CALL_TIME);
    lw_cmd(c, "TIME");
    pipe_call(sh, CALL_INFO);
    lw_cmd(c, "INFO"), lw_arg_text(c, "server"), lw_arg_text(c, "replication"),
        lw_arg_text(c, "stats"), lw_arg_text(c, "memory");
    move_build(sh);
    pipe_call(sh, CALL_ALIVE);
    lw_cmd(c, "ZADD"), lw_arg_text(c, sh->key_workers), lw_arg_i64(c, w->io->wall_ms(w->ctx)),
        lw_arg_text(c, w->set.id);
    /* CALL_ALIVE is made of two commands. The second one removes workers that have been silent for
     * a long time from the list of live workers. */
    pipe_call(sh, CALL_ALIVE);
    lw_cmd(c, "ZREMRANGEBYSCORE"), lw_arg_text(c, sh->key_workers), lw_arg_text(c, "-inf");
    lw_arg_i64(c, w->io->wall_ms(w->ctx) - 10 * w->c->lock.ttl_ms - 60000);
    tend_call(w, sh, now);
    vanished_build(w, sh);
}
void tend_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    assert(sh->phase == READY);
    /* if the batch was full, more lanes may be due */
    if (r->type == REDIS_REPLY_INTEGER && r->integer >= TEND_BATCH) tend_now(sh, now_ms(w));
}
