/* SPDX-License-Identifier: Apache-2.0 */
/* A shard is one slot of a Redis Cluster, and a slot may be moved to another node, key by key.
 * While the slot moves, a script fails in the middle if it touches a key that has left, or one that
 * does not exist. Such calls are sent again until the owner says that it no longer owns the slot.
 * Then this worker connects to the new owner. The epoch goes on if all data was moved (the rule
 * "moved whole").
 *
 *     old owner A: WHOLE ------------> LEAVING --------> ELSEWHERE
 *                  (time: whole_ms)    (calls fail)
 *     new owner B: HELLO --> enter, with the life of A
 *                    --> the reply has our epoch      --> READY
 *                    --> the reply has another epoch, or no worker vouches --> lost */
#include "consumer/worker/move.h"

#include "base/redis/reply.h"
#include "base/redis/servers.h"
#include "base/redis/slot.h"
#include "consumer/worker/connection.h"
#include "consumer/worker/pipe.h"
#include "consumer/worker/private.h"
#include "consumer/worker/shard.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

enum {
    /* PAUSE_MS is the pause after the first refused call; each further refusal doubles the pause */
    PAUSE_MS = 5,
    PAUSE_MAX_MS = 80, /* longest pause after a refused call */
    ASK_AGAIN_MS = 50, /* time until a worker that cannot vouch sends enter again */
    /* UPTIME_SLACK_S is the possible error of an uptime that is computed from INFO, because INFO
     * gives times in whole seconds */
    UPTIME_SLACK_S = 2,
};

/* Asserts that the times in a struct move do not contradict each other or the other fields. */
static inline void check_move(const struct move *m) {
    assert(m->pause_ms >= 0 && m->pause_ms <= PAUSE_MAX_MS);
    assert(m->whole_ms <= m->owned_ms && m->owned_ms <= m->text_ms);
    assert(!m->whole_ms || m->seen.n);
    assert(!m->text_ms || m->text.n || m->seen.n);
}

void move_connected(struct shard *sh) {
    check_move(&sh->move);
    sh->move.fresh = true;
    sh->move.node = (struct lw_cluster_node){0};
    sh->move.rest_ms = 0;
}

void move_info(struct lw_worker *w, struct shard *sh, const char *info) {
    char mode[24], uptime[24];
    assert(info);
    lw_info_field(info, "redis_mode", mode, sizeof mode);
    sh->move.cluster = strcmp(mode, "cluster") == 0;
    lw_info_field(info, "uptime_in_seconds", uptime, sizeof uptime);
    int64_t up_s = strtoll(uptime, NULL, 10);
    sh->move.started_ms = now_ms(w) - (up_s > UPTIME_SLACK_S ? up_s - UPTIME_SLACK_S : 0) * 1000;
}

void move_build(struct shard *sh) {
    if (!sh->move.cluster) return;
    pipe_command(sh, CALL_NODES, "CLUSTER");
    pipe_text(sh, "NODES");
}

/* Notes the answer of the slot's owner to CLUSTER NODES. If the owner had all keys of the slot,
 * keeps the answer as `seen`. */
static void owner_told(struct shard *sh) {
    struct move *m = &sh->move;
    assert(m->node.slot != LW_SLOT_ELSEWHERE);
    assert(m->node.id[0] && m->text.n);
    m->owner = m->node;
    m->owned_ms = m->text_ms;
    if (m->node.slot != LW_SLOT_WHOLE) return;
    struct lw_buf was = m->seen;
    m->seen = m->text, m->text = was;
    m->whole_ms = m->text_ms;
    check_move(m);
}

void nodes_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    struct move *m = &sh->move;
    assert(sh->phase == HELLO || sh->phase == READY);
    if (!r->str || !lw_nodes_self(r->str, lw_slot(sh->prefix, sh->n_prefix), &m->node)) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh,
                       lw_malformed(why, r, "CLUSTER NODES",
                                    "a string with one line per node, one of them marked "
                                    "\"myself\""));
        return;
    }
    m->text.n = 0;
    lw_buf_add(&m->text, r->str, r->len), lw_buf_add(&m->text, "", 1);
    m->text_ms = pipe_sent_ms(sh);
    if (sh->phase != READY) return;
    bool stays =
        !strcmp(m->node.id, m->owner.id) && !strcmp(m->node.config_epoch, m->owner.config_epoch);
    if (stays && m->node.slot != LW_SLOT_ELSEWHERE)
        owner_told(sh);
    else
        connection_check(sh);
}

bool move_refused(struct lw_worker *w, struct shard *sh, const char *text) {
    struct move *m = &sh->move;
    if (!lw_redis_moved(text)) return false;
    int64_t now = now_ms(w);
    if (!m->pause_ms || now - m->rest_ms > 1000) {
        lw_info("shard %d: %.*s; its slot is being moved; its calls wait until that is over",
                sh->index, (int)strcspn(text, "\r\n"), text);
        m->pause_ms = PAUSE_MS / 2;
    }
    if (now >= m->rest_ms)
        m->pause_ms = m->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : m->pause_ms * 2;
    assert(m->pause_ms > 0);
    m->rest_ms = now + m->pause_ms;
    m->cluster = true;
    connection_check(sh);
    return true;
}

bool move_in_cluster(const struct shard *sh) { return sh->move.cluster; }

bool move_rests(const struct shard *sh, int64_t now) { return now < sh->move.rest_ms; }

bool move_unasked(const struct shard *sh) { return sh->move.cluster && !sh->move.node.id[0]; }

bool move_elsewhere(struct lw_worker *w, struct shard *sh) {
    struct move *m = &sh->move;
    assert(sh->phase == HELLO);
    check_move(m);
    if (!m->cluster || m->node.slot != LW_SLOT_ELSEWHERE) return false;
    bool known =
        epoch_joined(sh) && !m->left && lw_life_same(connection_old_life(sh), connection_life(sh));
    if (known && m->node.master && connection_life(sh)->history[0]) {
        m->left = true;
        lw_info("shard %d: its slot was moved away from node %.8s, %" PRId64
                " ms after it was last seen whole there",
                sh->index, m->node.id, m->whole_ms ? now_ms(w) - m->whole_ms : -1);
    }
    return true;
}

bool move_joins(const struct shard *sh) {
    const struct move *m = &sh->move;
    if (!m->cluster) return false;
    return m->fresh || strcmp(m->node.id, m->owner.id) != 0 ||
           strcmp(m->node.config_epoch, m->owner.config_epoch) != 0;
}

/* Returns true if the node that owns the slot now was already a master when the old owner last had
 * all keys of the slot. If so, this node was not a replica of the old owner. */
static bool was_master(const struct move *m) {
    return m->whole_ms && lw_nodes_master(m->seen.p, m->node.id);
}

struct lw_life move_from(struct lw_worker *w, const struct shard *sh) {
    const struct move *m = &sh->move;
    assert(sh->phase == ENTERING);
    check_move(m);
    bool knows = m->cluster && epoch_joined(sh) && m->left && was_master(m);
    /* The slot's new node has not restarted since the old owner still had all data of the slot. So
     * the new node has lost none of the data that moved to it. */
    bool kept = m->started_ms <= m->whole_ms;
    /* the old owner was known to own the slot so recently that no third node can have owned the
     * slot since then */
    bool direct = now_ms(w) - m->owned_ms <= epoch_ttl_ms(sh) / 2;
    return knows && kept && direct ? *connection_old_life(sh) : (struct lw_life){.id = ""};
}

bool move_patient(struct lw_worker *w, const struct shard *sh) {
    const struct move *m = &sh->move;
    if (!m->cluster || (m->unsure_ms && now_ms(w) - m->unsure_ms > w->c->lock.ttl_ms / 4))
        return false;
    return !epoch_joined(sh) || (strcmp(m->node.id, m->owner.id) != 0 && was_master(m));
}

void move_unsure(struct lw_worker *w, struct shard *sh) {
    int64_t now = now_ms(w);
    if (!sh->move.unsure_ms) {
        sh->move.unsure_ms = now;
        lw_info("shard %d: its slot came to node %.8s, and this worker cannot tell whether all its "
                "data came along; waiting %" PRId64
                " ms for one that can, then beginning a new epoch",
                sh->index, sh->move.node.id, w->c->lock.ttl_ms / 4);
    }
    sh->move.rest_ms = now + ASK_AGAIN_MS;
}

void move_joined(struct lw_worker *w, struct shard *sh, bool another) {
    struct move *m = &sh->move;
    (void)w;
    check_move(m);
    if (!m->cluster) return;
    if (another || strcmp(m->owner.id, m->node.id) != 0) m->whole_ms = 0;
    m->fresh = m->left = false;
    m->unsure_ms = 0;
    owner_told(sh);
}

void move_free(struct shard *sh) {
    lw_buf_free(&sh->move.text);
    lw_buf_free(&sh->move.seen);
}
