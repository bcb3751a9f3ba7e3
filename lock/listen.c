/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that listens for releases on one server, over one connection that is subscribed to the
 * client's channel. */
#include "lock/listen.h"

#include "base/clock.h"

#include <poll.h>
#include <stdio.h>

enum { BACKOFF_MS = 50, BACKOFF_MAX_MS = 2000 };

/* Waits until the connection is readable. Returns 1 if it is, 0 after `ms` milliseconds, and -1 if
 * the thread must stop. */
static int readable(struct lw_waking *k, int fd, int64_t ms) {
    struct pollfd p[2] = {{.fd = k->rouse_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int n = poll(p, fd < 0 ? 1 : 2, (int)ms);
    if (p[0].revents) return -1;
    return n > 0 && p[1].revents;
}

static struct lw_redis *subscribe(struct lw_waking *k) {
    struct latchwork_error error;
    struct latchwork_client *c = k->client;
    struct lw_redis *redis = lw_client_connect(c, 0, c->connect_ms, c->command_ms, &error);
    if (!redis) return NULL;
    char channel[sizeof "lwl:wake:" + LW_CLIENT_ID];
    snprintf(channel, sizeof channel, "lwl:wake:%s", c->id);
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_add(&call, "SUBSCRIBE", 9);
    lw_call_text(&call, channel);
    redisReply *reply = lw_call_on(c, redis, &call, &error);
    bool good = reply && reply->type == REDIS_REPLY_ARRAY;
    if (reply) freeReplyObject(reply);
    if (good) return redis;
    lw_redis_close(redis);
    return NULL;
}

static void take_message(struct lw_waking *k, const redisReply *r) {
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 ||
        r->element[0]->type != REDIS_REPLY_STRING || r->element[2]->type != REDIS_REPLY_STRING ||
        strcmp(r->element[0]->str, "message"))
        return; /* this reply is the answer to PING */
    pthread_mutex_lock(&k->mutex);
    lw_line_wake(*lw_line_find(k, r->element[2]->str, (size_t)r->element[2]->len));
    pthread_mutex_unlock(&k->mutex);
}

static bool take_messages(struct lw_waking *k, struct lw_redis *redis) {
    lw_redis_read(redis);
    for (redisReply *reply; (reply = lw_redis_parsed(redis));) {
        take_message(k, reply);
        freeReplyObject(reply);
    }
    return !redis->err;
}

/* Listens until the connection breaks. If the connection is silent for LW_SILENT_MS, sends PING; if
 * the silence lasts, treats the connection as broken. Returns false if the thread must stop. */
static bool listen_on(struct lw_waking *k, struct lw_redis *redis) {
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    bool asked = false;
    for (;;) {
        int got = readable(k, redis->stream.fd, LW_SILENT_MS);
        if (got < 0) return false;
        if (got == 0 && asked) return true;
        if (got == 0) lw_redis_send(redis, ping, sizeof ping - 1);
        asked = got == 0;
        if (redis->err || (got && !take_messages(k, redis))) return true;
    }
}

static void everybody_looks(struct lw_waking *k, bool up) {
    atomic_store(&k->up, up);
    pthread_mutex_lock(&k->mutex);
    /* Wake the first waiter of each line. When the subscription begins, earlier messages may have
     * been missed; when it ends, no further messages will come. */
    for (int i = 0; i < LW_LINE_BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i]; line; line = line->next) lw_line_wake(line);
    pthread_mutex_unlock(&k->mutex);
}

void *lw_listen(void *arg) {
    struct lw_waking *k = arg;
    int64_t backoff_ms = BACKOFF_MS;
    for (;;) {
        struct lw_redis *redis = subscribe(k);
        bool go_on = true;
        if (redis) {
            backoff_ms = BACKOFF_MS;
            everybody_looks(k, true);
            go_on = listen_on(k, redis);
            lw_redis_close(redis);
            everybody_looks(k, false);
        }
        if (!go_on ||
            readable(k, -1, backoff_ms / 2 + (int64_t)lw_random((uint64_t)backoff_ms)) < 0)
            return NULL;
        backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
    }
}
