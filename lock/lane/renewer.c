/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/lane/renewer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/redis/reply.h"
#include "base/redis/script.h"
#include "base/redis/wire.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    TICK_MIN_MS = 5,
    TICK_MAX_MS = 200,
    BACKOFF_MAX_MS = 2000,
    BACKOFF_MIN_MS = 50,
    COMPLAIN_MS = 10000
};

enum asked { NOTHING, LOAD, RENEW };

struct shard {
    struct lw_renewer *renewer;
    int index;
    struct lw_wire *wire;
    enum asked asked;
    bool loaded;
    char sha[41];
    struct lw_due due[LW_RENEW_BATCH];
    size_t n_due;
    int64_t sent_ms;
    char epoch[64]; /* the id of the epoch that the request in flight names */
    int64_t complained_ms;
    struct lw_commands commands;
};

struct lw_renewer {
    struct lw_renewer_setup set;
    int64_t tick_ms;
    int stop_fd;
    pthread_t thread;
    struct pollfd *fds; /* one element per shard, then one element for stop_fd */
    struct shard shards[];
};

static void lost(struct lw_renewer *r, size_t n) {
    if (n && r->set.lost) atomic_fetch_add_explicit(r->set.lost, n, memory_order_relaxed);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void load(struct shard *sh) {
    struct lw_commands *c = &sh->commands;
    lw_commands_reset(c);
    lw_cmd(c, "SCRIPT"), lw_arg_text(c, "LOAD"), lw_arg_text(c, lw_script_renew.text);
    sh->asked = LOAD;
    lw_wire_send(sh->wire, c);
}

static void arg_token(struct lw_commands *c, const char *worker_id, uint64_t token) {
    char text[24];
    size_t n = lw_decimal((int64_t)token, text);
    lw_arg_join(c, lw_bytes_of(worker_id), ".", lw_bytes(text, n));
}

static void encode(struct shard *sh) {
    const struct lw_renewer_setup *set = &sh->renewer->set;
    struct lw_bytes prefix = lw_bytes_of(set->prefix(set->ctx, sh->index));
    struct lw_commands *c = &sh->commands;
    lw_commands_reset(c);
    lw_cmd(c, "EVALSHA"), lw_arg_text(c, sh->sha), lw_arg_i64(c, 1 + (int64_t)sh->n_due);
    lw_arg_join(c, prefix, "epoch", lw_bytes("", 0));
    for (size_t i = 0; i < sh->n_due; i++)
        lw_arg_join(c, prefix, "lock:", lw_bytes(sh->due[i].lane, sh->due[i].n_lane));
    lw_arg_text(c, sh->epoch), lw_arg_i64(c, set->ttl_ms);
    for (size_t i = 0; i < sh->n_due; i++) {
        arg_token(c, set->worker_id, sh->due[i].token);
        lw_arg_text(c, sh->due[i].run);
    }
}

static void renew(struct shard *sh) {
    const struct lw_renewer_setup *set = &sh->renewer->set;
    if (sh->asked != NOTHING || !lw_wire_is_up(sh->wire)) return;
    if (!sh->loaded) {
        load(sh);
        return;
    }
    /* the time is read before the request is sent, so that this worker's deadline is never later
     * than that of Redis */
    sh->sent_ms = lw_boot_ms();
    if (!set->epoch(set->ctx, sh->index, sh->epoch, sizeof sh->epoch)) return;
    sh->n_due = lw_leases_due(set->leases, sh->index, sh->sent_ms, sh->due, LW_RENEW_BATCH);
    if (!sh->n_due) return;
    encode(sh);
    sh->asked = RENEW;
    lw_wire_send(sh->wire, &sh->commands);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void complain(struct shard *sh, const char *what, const char *next) {
    int64_t now = lw_boot_ms();
    if (sh->complained_ms && now - sh->complained_ms < COMPLAIN_MS) return;
    sh->complained_ms = now;
    lw_warn("shard %d, renewals: %s; %s", sh->index, what, next);
}

/* Cancels the leases of the epoch that the request named. If the main loop has joined another epoch
 * since the request was sent, cancels nothing, because the leases then belong to the new epoch. */
static void epoch_lost(struct shard *sh) {
    const struct lw_renewer_setup *set = &sh->renewer->set;
    char now[sizeof sh->epoch];
    bool same = set->epoch(set->ctx, sh->index, now, sizeof now) && strcmp(now, sh->epoch) == 0;
    if (same) lw_leases_cancel_shard(set->leases, sh->index);
}

static void take_renewal(struct shard *sh, const redisReply *r) {
    const struct lw_renewer_setup *set = &sh->renewer->set;
    if (r->type == REDIS_REPLY_STATUS && r->len == sh->n_due) {
        lost(sh->renewer, lw_leases_renewed(set->leases, sh->due, sh->n_due, r->str, sh->sent_ms));
        /* if the batch is full, more leases may be due */
        if (sh->n_due == LW_RENEW_BATCH) renew(sh);
    } else if (r->type == REDIS_REPLY_STRING && strcmp(r->str, "LOST") == 0) {
        epoch_lost(sh);
    } else if (r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOSCRIPT", 8) == 0) {
        sh->loaded = false;
        renew(sh);
    } else {
        char why[LW_REPLY_TEXT];
        complain(sh,
                 r->type == REDIS_REPLY_ERROR
                     ? r->str
                     : lw_malformed(why, r, "renew.lua", "a status of %zu letters", sh->n_due),
                 "retrying");
    }
}

static void on_reply(void *ctx, const redisReply *r) {
    struct shard *sh = ctx;
    enum asked asked = sh->asked;
    sh->asked = NOTHING;
    if (asked == RENEW) {
        take_renewal(sh, r);
    } else if (r->type == REDIS_REPLY_STRING && r->len == sizeof sh->sha - 1) {
        memcpy(sh->sha, r->str, sizeof sh->sha);
        sh->loaded = true;
        renew(sh);
    } else {
        char why[LW_REPLY_TEXT];
        complain(
            sh,
            r->type == REDIS_REPLY_ERROR
                ? r->str
                : lw_malformed(why, r, "SCRIPT LOAD", "a string of %zu bytes", sizeof sh->sha - 1),
            "retrying");
    }
}

static void on_up(void *ctx) {
    struct shard *sh = ctx;
    /* the new connection may lead to another server, which does not have the script */
    sh->loaded = false;
    renew(sh);
}

static void on_down(void *ctx, const char *why) {
    struct shard *sh = ctx;
    char what[300];
    snprintf(what, sizeof what, "connection to Redis lost: %s", why);
    complain(sh, what, "reconnecting");
    sh->asked = NOTHING;
}

/* --- the thread ------------------------------------------------------------------------------- */

static int64_t sleep_ms(const struct lw_renewer *r, int64_t tick_at_ms) {
    int64_t until = tick_at_ms;
    for (int s = 0; s < r->set.shards; s++) {
        int64_t due = lw_wire_due_ms(r->shards[s].wire);
        if (due < until) until = due;
    }
    int64_t left = until - lw_boot_ms();
    return left < 0 ? 0 : left > TICK_MAX_MS ? TICK_MAX_MS : left;
}

static void tick(struct lw_renewer *r) {
    lost(r, lw_leases_fence(r->set.leases, lw_boot_ms()));
    for (int s = 0; s < r->set.shards; s++) renew(&r->shards[s]);
}

static void *thread_main(void *arg) {
    struct lw_renewer *r = arg;
    int n = r->set.shards;
    int64_t tick_at_ms = 0;
    for (;;) {
        for (int s = 0; s < n; s++) r->fds[s] = lw_wire_poll(r->shards[s].wire);
        r->fds[n] = (struct pollfd){.fd = r->stop_fd, .events = POLLIN};
        if (poll(r->fds, (nfds_t)n + 1, (int)sleep_ms(r, tick_at_ms)) < 0 && errno != EINTR)
            lw_error("renewals: poll: %s", strerror(errno));
        if (r->fds[n].revents) return NULL;
        for (int s = 0; s < n; s++) lw_wire_serve(r->shards[s].wire, r->fds[s].revents);
        if (lw_boot_ms() < tick_at_ms) continue;
        tick(r);
        tick_at_ms = lw_boot_ms() + r->tick_ms;
    }
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

static void open_shard(struct lw_renewer *r, int index) {
    struct shard *sh = &r->shards[index];
    sh->renewer = r;
    sh->index = index;
    char name[40];
    snprintf(name, sizeof name, "shard %d, renewals", index);
    struct lw_wire_setup s = {
        .finder = r->set.finder,
        .shard = index,
        .name = name,
        .owner = r->set.worker_id,
        .connect_ms = clamp(r->set.ttl_ms / 4, 1, INT64_MAX),
        .answer_ms = clamp(r->set.ttl_ms / 4, 1, INT64_MAX),
        /* the maximum backoff is so short that another attempt is possible before the self-fence */
        .backoff_max_ms = clamp(r->set.ttl_ms / 8, BACKOFF_MIN_MS, BACKOFF_MAX_MS),
        .up = on_up,
        .reply = on_reply,
        .down = on_down,
        .ctx = sh,
    };
    sh->wire = lw_wire_open(&s);
}

static void free_renewer(struct lw_renewer *r) {
    for (int s = 0; s < r->set.shards; s++) {
        lw_wire_close(r->shards[s].wire);
        lw_commands_free(&r->shards[s].commands);
    }
    if (r->stop_fd >= 0) close(r->stop_fd);
    free(r->fds);
    free(r);
}

struct lw_renewer *lw_renewer_open(const struct lw_renewer_setup *setup, struct lw_err *err) {
    struct lw_renewer *r = lw_alloc(sizeof *r + (size_t)setup->shards * sizeof(struct shard));
    r->set = *setup;
    r->tick_ms = clamp(setup->ttl_ms / 12, TICK_MIN_MS, TICK_MAX_MS);
    r->fds = lw_alloc(((size_t)setup->shards + 1) * sizeof *r->fds);
    for (int s = 0; s < setup->shards; s++) open_shard(r, s);
    r->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int e = r->stop_fd < 0 ? errno : lw_thread_start(&r->thread, thread_main, r);
    if (!e) return r;
    lw_fail(err, "the thread that renews leases can't be started: %s", strerror(e));
    free_renewer(r);
    return NULL;
}

void lw_renewer_close(struct lw_renewer *r) {
    if (!r) return;
    uint64_t one = 1;
    if (write(r->stop_fd, &one, sizeof one) != sizeof one)
        lw_error("renewals: can't stop the thread: eventfd: %s", strerror(errno));
    /* the thread blocks only in poll() and in the resolver, so pthread_join() returns soon */
    pthread_join(r->thread, NULL);
    free_renewer(r);
}
