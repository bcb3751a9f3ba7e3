/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/redlock/redlock.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/redis/login.h"
#include "base/redis/reply.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    /* Fixed part of the maximum wait for a free bundle, in ms. A multiple of node_ms is added. */
    BUNDLE_WAIT_MS = 2000,
    /* If a server has not answered in time, no round (a question to all servers) waits for this
     * server during the next SILENT_MS ms. */
    SILENT_MS = 1000,
    /* If answers of a server have been missing for this time in ms, the connection to the server
     * is closed. */
    OWED_MAX_MS = 1000,
    OWED_MAX = 64,
};

/* --- bundles ---------------------------------------------------------------------------------- */

void lw_redlock_wait(struct latchwork_redlock *r, pthread_cond_t *cond, int64_t until_ms) {
    int64_t left = until_ms - lw_boot_ms();
    if (left > 0) lw_cond_wait_ms(cond, &r->mutex, left);
}

static int free_bundle(struct latchwork_redlock *r, int preferred, bool keeping) {
    if (keeping) return r->bundle[r->bundles].busy ? -1 : r->bundles;
    if (preferred >= 0 && preferred < r->bundles && !r->bundle[preferred].busy) return preferred;
    for (int i = 0; i < r->bundles; i++)
        if (!r->bundle[i].busy) return i;
    return -1;
}

static struct lw_bundle *get_bundle(struct lw_ask *a, struct latchwork_error *error) {
    struct latchwork_redlock *r = a->redlock;
    int64_t until_ms = lw_boot_ms() + BUNDLE_WAIT_MS + BUNDLE_WAIT_MS / 100 * r->node_ms;
    pthread_mutex_lock(&r->mutex);
    int i;
    while ((i = free_bundle(r, a->bundle, a->keeping)) < 0 && lw_boot_ms() < until_ms)
        lw_redlock_wait(r, &r->freed, until_ms);
    if (i >= 0) r->bundle[i].busy = true;
    pthread_mutex_unlock(&r->mutex);
    if (i < 0) {
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_POOL,
                     "Redlock: all %d connections stayed in use; allow more", r->bundles);
        return NULL;
    }
    a->bundle = i;
    return &r->bundle[i];
}

static void put_bundle(struct lw_ask *a, struct lw_bundle *bundle) {
    pthread_mutex_lock(&a->redlock->mutex);
    bundle->busy = false;
    pthread_cond_broadcast(&a->redlock->freed);
    pthread_mutex_unlock(&a->redlock->mutex);
}

/* --- what is known of servers ----------------------------------------------------------------- */

static void note_silence(struct latchwork_redlock *r, int i, bool silent) {
    pthread_mutex_lock(&r->mutex);
    r->node[i].silent_ms = silent ? lw_boot_ms() + SILENT_MS : 0;
    pthread_mutex_unlock(&r->mutex);
}
static bool is_silent(struct latchwork_redlock *r, int i) {
    pthread_mutex_lock(&r->mutex);
    bool silent = r->node[i].silent_ms > lw_boot_ms();
    pthread_mutex_unlock(&r->mutex);
    return silent;
}

/* Records when a server was started, at the latest. If this is the first reply to INFO, computes
 * the time from the uptime in the reply. Redis subtracts the second in which it started from the
 * current second, so the uptime may be almost a second too long, and a second is subtracted. If a
 * later reply has another run_id, the server counts as started at the time of that reply. */
static void note_run(struct latchwork_redlock *r, int i, const redisReply *info) {
    char id[LW_RUN_ID_MAX + 1], uptime[24];
    if (!lw_info_field(info->str, "run_id", id, sizeof id) || !*id) return;
    lw_info_field(info->str, "uptime_in_seconds", uptime, sizeof uptime);
    struct lw_node *node = &r->node[i];
    pthread_mutex_lock(&r->mutex);
    if (strcmp(node->run_id, id)) {
        bool first = !node->run_id[0];
        int64_t whole_s = first ? strtoll(uptime, NULL, 10) - 1 : 0;
        node->started_ms = lw_boot_ms() - (whole_s > 0 ? whole_s * 1000 : 0);
        memcpy(node->run_id, id, sizeof id);
    }
    pthread_mutex_unlock(&r->mutex);
}

static bool is_kept_out(struct lw_ask *a, int i, struct latchwork_error *why) {
    if (!a->taking || a->restart_ms <= 0) return false;
    pthread_mutex_lock(&a->redlock->mutex);
    int64_t started_ms = a->redlock->node[i].started_ms, left = 0;
    if (started_ms != INT64_MIN) left = started_ms + a->restart_ms - lw_boot_ms();
    pthread_mutex_unlock(&a->redlock->mutex);
    if (left <= 0) return false;
    lw_lock_fail(why, LATCHWORK_LOCK_ERROR, LATCHWORK_E_MAJORITY,
                 "Redis at %s was started a short time ago and may have lost locks: it is asked in "
                 "%lld ms again (restart_ms)",
                 a->redlock->node[i].client->where, (long long)left);
    return true;
}

/* --- links ------------------------------------------------------------------------------------ */

static void hang_up(struct lw_link *k) {
    if (k->redis) lw_redis_close(k->redis);
    lw_buf_free(&k->out);
    *k = (struct lw_link){.fresh = k->fresh};
}

static void note_error(struct lw_ask *a, const struct latchwork_error *error) {
    if (!a->why.code) a->why = *error;
}

static void settle(struct lw_ask *a, int i, enum lw_vote vote) {
    if (a->vote[i] != LW_VOTE_OPEN) return;
    a->vote[i] = vote;
    a->open--;
    if (vote == LW_VOTE_YES) a->yes++;
    if (vote == LW_VOTE_NO) a->no++;
}

static void say(struct lw_link *k, const char *const *words) {
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    for (; *words; words++) lw_call_text(&c, *words);
    lw_call_encode(&c, &k->out);
    k->greetings++;
}

/* Closes the connection after an allocation for the greeting or for the question failed. No part of
 * the question was sent. */
static void no_memory(struct lw_ask *a, struct lw_link *k) {
    struct latchwork_error why;
    lw_lock_no_memory(&why);
    note_error(a, &why);
    hang_up(k);
}

/* Writes the question to the link's buffer. If that fails, the server has no vote on this
 * question. */
static void ask_link(struct lw_ask *a, int i, struct lw_link *k, bool whole);

/* Returns true if the server may get the question before it has answered the greeting. Returns
 * false if the question asks for the lock, restart_ms is set, and the client does not know this
 * server's run_id yet: the server may have been restarted a moment ago, which only the answer to
 * the greeting shows. */
static bool is_known(struct lw_ask *a, int i) {
    if (!a->taking || a->restart_ms <= 0) return true;
    pthread_mutex_lock(&a->redlock->mutex);
    bool known = a->redlock->node[i].run_id[0];
    pthread_mutex_unlock(&a->redlock->mutex);
    return known;
}

/* The greeting loads all scripts of Redlock. Otherwise a server slower than the majority could
 * answer NOSCRIPT after the round is over, and would never execute the question. */
enum { LOADS = 4 };
static const struct lw_script *const loads[LOADS] = {
    &lw_lock_script_redlock_take, &lw_lock_script_redlock_raise, &lw_lock_script_redlock_drop,
    &lw_lock_script_string_keep};

static bool dial(struct lw_ask *a, int i, struct lw_link *k) {
    struct latchwork_client *c = a->redlock->node[i].client;
    hang_up(k);
    k->fresh = true;
    k->since_ms = lw_boot_ms();
    struct latchwork_error why;
    k->redis = lw_client_dial(c, &why);
    if (!k->redis) {
        note_error(a, &why);
        return false;
    }
    struct lw_redis_login login;
    lw_redis_login(&c->url, c->name, &login);
    for (size_t n = 0; n < login.n; n++) say(k, login.command[n].word);
    for (int n = 0; n < LOADS; n++)
        say(k, (const char *const[]){"SCRIPT", "LOAD", loads[n]->text, NULL});
    say(k, (const char *const[]){"INFO", "server", NULL});
    if (k->out.failed) return no_memory(a, k), false;
    /* Send the question without waiting for the answers to the greeting, so that even a slow server
     * gets the question. */
    if (a->vote[i] == LW_VOTE_OPEN && is_known(a, i)) ask_link(a, i, k, false);
    return true;
}

static void ask_link(struct lw_ask *a, int i, struct lw_link *k, bool whole) {
    struct latchwork_error why;
    if (is_kept_out(a, i, &why)) {
        note_error(a, &why);
        settle(a, i, LW_VOTE_NONE);
        return;
    }
    struct lw_call *c = a->call;
    c->arg[0] = whole ? "EVAL" : "EVALSHA", c->size[0] = strlen(c->arg[0]);
    c->arg[1] = whole ? c->script->text : c->script->sha1, c->size[1] = strlen(c->arg[1]);
    lw_call_encode(c, &k->out);
    if (k->out.failed) {
        no_memory(a, k);
        settle(a, i, LW_VOTE_NONE);
        return;
    }
    k->asked = true;
    k->whole = whole;
}

/* Handles a broken connection. If the connection is older than this round, a restart of the server
 * may have closed it, so the question is sent once more on a new connection. */
static void broke(struct lw_ask *a, int i, struct lw_link *k, int code, const char *reason) {
    struct latchwork_error why;
    lw_lock_fail(&why, LATCHWORK_LOCK_ERROR, code, "Redis at %s: the connection broke: %.200s",
                 a->redlock->node[i].client->where, reason);
    bool again = !k->fresh;
    a->in_doubt[i] = a->in_doubt[i] || k->asked;
    hang_up(k);
    if (again && dial(a, i, k)) return;
    note_error(a, &why);
    settle(a, i, LW_VOTE_NONE);
}

/* Returns true if the connection can be used now, and false if it is still being made or has
 * broken. */
static bool is_ready(struct lw_ask *a, int i, struct lw_link *k) {
    struct lw_err why = {0};
    int ready = lw_stream_go_on(&k->redis->stream, &a->redlock->node[i].client->url, &why);
    if (ready < 0) broke(a, i, k, why.memory ? LATCHWORK_E_MEMORY : LATCHWORK_E_CONNECT, why.text);
    return ready > 0;
}

static void send_out(struct lw_ask *a, int i, struct lw_link *k) {
    struct lw_err why = {0};
    if (!is_ready(a, i, k)) return;
    ssize_t n = lw_stream_write(&k->redis->stream, k->out.p, k->out.n, &why);
    if (n < 0) {
        broke(a, i, k, why.memory ? LATCHWORK_E_MEMORY : LATCHWORK_E_CONNECT, why.text);
        return;
    }
    memmove(k->out.p, k->out.p + n, k->out.n - (size_t)n);
    k->out.n -= (size_t)n;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* Handles one reply to the greeting. Returns false if the connection cannot be used. */
static bool greeted(struct lw_ask *a, int i, struct lw_link *k, redisReply *r) {
    k->greetings--;
    bool is_info = k->greetings == 0, good = r->type != REDIS_REPLY_ERROR;
    struct latchwork_client *c = a->redlock->node[i].client;
    if (is_info && r->type == REDIS_REPLY_STRING) note_run(a->redlock, i, r);
    /* A user without some rights can still use Redlock. Without CLIENT SETNAME the connection has
     * no name. Without SCRIPT LOAD a call is answered with NOSCRIPT, and is sent again with the
     * script's text. Without INFO a restart of the server is not noticed, and only the growing
     * fence protects the stores. */
    bool may_fail = k->greetings <= LOADS + 1;
    if (!good && may_fail) good = strncmp(r->str, "NOPERM", 6) == 0;
    if (!good) {
        struct latchwork_error why;
        lw_take_reply(c, r, &why);
        note_error(a, &why);
        hang_up(k);
        settle(a, i, LW_VOTE_NONE);
        return false;
    }
    freeReplyObject(r);
    struct latchwork_error why;
    if (is_info && a->vote[i] == LW_VOTE_OPEN && !k->asked) {
        ask_link(a, i, k, false);
    } else if (is_info && a->vote[i] == LW_VOTE_OPEN && is_kept_out(a, i, &why)) {
        /* a server that was restarted a short time ago has no vote */
        note_error(a, &why);
        settle(a, i, LW_VOTE_NONE);
    }
    return true;
}

static void answered(struct lw_ask *a, int i, struct lw_link *k, redisReply *r) {
    k->asked = false;
    if (lw_is_no_script(r) && !k->whole) {
        freeReplyObject(r);
        ask_link(a, i, k, true);
        return;
    }
    note_silence(a->redlock, i, false);
    if (r->type == REDIS_REPLY_ERROR) {
        struct latchwork_error why;
        lw_take_reply(a->redlock->node[i].client, r, &why);
        note_error(a, &why);
        settle(a, i, LW_VOTE_NONE);
        return;
    }
    if (a->taking && r->type == REDIS_REPLY_STRING) {
        uint64_t fence = strtoull(r->str, NULL, 10);
        if (fence > a->fence) a->fence = fence;
        settle(a, i, LW_VOTE_YES);
    } else {
        bool yes = !a->taking && r->type == REDIS_REPLY_INTEGER && r->integer == 1;
        if (a->taking && r->type == REDIS_REPLY_INTEGER && r->integer == -1) a->no_ttl = true;
        settle(a, i, yes ? LW_VOTE_YES : a->in_doubt[i] && a->dropping ? LW_VOTE_NONE : LW_VOTE_NO);
    }
    freeReplyObject(r);
}

static void read_in(struct lw_ask *a, int i, struct lw_link *k) {
    if (!is_ready(a, i, k)) return;
    lw_redis_read(k->redis);
    redisReply *reply;
    while (k->redis && (reply = lw_redis_parsed(k->redis))) {
        if (k->greetings) {
            if (!greeted(a, i, k, reply)) return;
        } else if (k->owed) {
            k->owed--;
            k->since_ms = lw_boot_ms();
            bool unknown = lw_is_no_script(reply);
            freeReplyObject(reply);
            if (unknown) {
                /* The round that could have sent the script's text may be over. So connect again,
                 * because the greeting loads all scripts. */
                broke(a, i, k, LATCHWORK_E_CONNECT, "its scripts were flushed");
                return;
            }
        } else if (k->asked) {
            answered(a, i, k, reply);
        } else {
            freeReplyObject(reply);
            broke(a, i, k, LATCHWORK_E_CONNECT, "an answer that nobody asked for");
            return;
        }
    }
    if (k->redis && k->redis->err) broke(a, i, k, lw_broken_code(k->redis->err), k->redis->why);
}

/* --- one ask ---------------------------------------------------------------------------------- */

/* Reads late answers to the questions of earlier rounds, and notices connections that the servers
 * have closed. */
static void catch_up(struct lw_ask *a, struct lw_bundle *bundle) {
    int n = a->redlock->n;
    struct pollfd fd[LATCHWORK_MAX_NODES];
    for (int i = 0; i < n; i++) {
        struct lw_link *k = &bundle->link[i];
        k->fresh = k->asked = false;
        fd[i] = (struct pollfd){.fd = k->redis ? k->redis->stream.fd : -1, .events = POLLIN};
    }
    if (poll(fd, (nfds_t)n, 0) <= 0) return;
    for (int i = 0; i < n; i++)
        if (fd[i].fd >= 0 && fd[i].revents) read_in(a, i, &bundle->link[i]);
}

static void begin(struct lw_ask *a, struct lw_bundle *bundle) {
    a->open = a->redlock->n;
    catch_up(a, bundle);
    int64_t now = lw_boot_ms();
    for (int i = 0; i < a->redlock->n; i++) {
        struct lw_link *k = &bundle->link[i];
        if (k->redis && (k->owed || k->greetings)) {
            if (now - k->since_ms > a->redlock->node_ms) note_silence(a->redlock, i, true);
            if (now - k->since_ms > OWED_MAX_MS || k->owed > OWED_MAX) hang_up(k);
        }
        if (a->vote[i] != LW_VOTE_OPEN) continue;
        if (!k->redis && !dial(a, i, k)) settle(a, i, LW_VOTE_NONE);
        if (k->redis && !k->asked && (!k->greetings || is_known(a, i))) ask_link(a, i, k, false);
    }
}

static bool is_decided(const struct lw_ask *a) {
    int n = a->redlock->n, majority = a->redlock->majority;
    if (a->yes >= majority) return true;
    if (a->yes + a->open >= majority) return false;
    /* A majority can no longer say yes. The reason is either that too many servers say no, or that
     * too few answer. The result is decided when it is certain which of these is the reason. */
    return a->no > n - majority || a->no + a->open <= n - majority;
}

/* Returns true if the round has ended, so that no more answers are awaited. A silent server is one
 * that did not answer in time recently. A round that releases a lock ends when every server that is
 * not silent has answered. Any other round ends when its result is decided and the question was
 * sent to every server that is not silent. */
static bool is_over(struct lw_ask *a, const struct lw_bundle *bundle) {
    if (!a->open) return true;
    if (!a->dropping && !is_decided(a)) return false;
    for (int i = 0; i < a->redlock->n; i++)
        if (a->vote[i] == LW_VOTE_OPEN && (a->dropping || !bundle->link[i].asked) &&
            !is_silent(a->redlock, i))
            return false;
    return true;
}

static void exchange(struct lw_ask *a, struct lw_bundle *bundle, int64_t until_ms) {
    int n = a->redlock->n;
    struct pollfd fd[LATCHWORK_MAX_NODES];
    for (;;) {
        for (int i = 0; i < n; i++) {
            struct lw_link *k = &bundle->link[i];
            if (k->redis && k->out.n) send_out(a, i, k);
            bool wanted = k->redis && a->vote[i] == LW_VOTE_OPEN;
            fd[i] = (struct pollfd){.fd = wanted ? k->redis->stream.fd : -1};
            if (wanted) fd[i].events = lw_stream_events(&k->redis->stream, k->out.n > 0);
        }
        int64_t left = until_ms - lw_boot_ms();
        if (is_over(a, bundle) || left <= 0) return;
        if (poll(fd, (nfds_t)n, (int)left) < 0 && errno != EINTR) return;
        for (int i = 0; i < n; i++)
            if (fd[i].fd >= 0 && fd[i].revents & (POLLIN | POLLERR | POLLHUP))
                read_in(a, i, &bundle->link[i]);
    }
}

/* Records which servers have not answered the question of this round. */
static void finish(struct lw_ask *a, struct lw_bundle *bundle, bool late) {
    for (int i = 0; i < a->redlock->n; i++) {
        struct lw_link *k = &bundle->link[i];
        if (k->asked) {
            if (!k->owed) k->since_ms = lw_boot_ms();
            k->owed++;
            k->asked = false;
        }
        if (late && a->vote[i] == LW_VOTE_OPEN) {
            struct latchwork_error why;
            lw_lock_fail(&why, LATCHWORK_LOCK_ERROR, LATCHWORK_E_TIMEOUT,
                         "Redis at %s: no answer in time (node_ms)",
                         a->redlock->node[i].client->where);
            note_error(a, &why);
            note_silence(a->redlock, i, true);
        }
    }
}

bool lw_redlock_ask(struct lw_ask *a, struct latchwork_error *error) {
    if (!lw_client_ok(a->redlock->node[0].client, error)) return false;
    struct lw_bundle *bundle = get_bundle(a, error);
    if (!bundle) return false;
    int64_t until_ms = lw_boot_ms() + a->redlock->node_ms;
    a->call->sent_ms = lw_boot_ms();
    begin(a, bundle);
    exchange(a, bundle, until_ms);
    finish(a, bundle, lw_boot_ms() >= until_ms);
    put_bundle(a, bundle);
    return true;
}

void lw_redlock_hang_up(struct latchwork_redlock *r) {
    for (int l = 0; r->bundle && l <= r->bundles; l++)
        for (int i = 0; i < r->n; i++) hang_up(&r->bundle[l].link[i]);
    free(r->bundle);
    r->bundle = NULL;
}
