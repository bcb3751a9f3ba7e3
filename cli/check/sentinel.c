/* SPDX-License-Identifier: Apache-2.0 */
/* Asks each Sentinel for the state of the master. If one Sentinel fails, that is only a warning,
 * because the other Sentinels may be enough. If no Sentinel works, lw_check_redis() reports a
 * problem. */
#include "base/redis/connection.h"
#include "base/redis/reply.h"
#include "cli/check/servers.h"

#include <stdlib.h>
#include <string.h>

enum { WHERE_SIZE = 160, USUAL = 3 };

#define WARN(where, fmt, ...) lw_problem_warn(&r->problems, "sentinel %s: " fmt, where, __VA_ARGS__)

/* Returns the value of a field of the Sentinel's reply, which is a list of names and values.
 * Returns "" if the field is missing. */
static const char *field(const redisReply *a, const char *name) {
    for (size_t i = 0; i + 1 < a->elements; i += 2)
        if (a->element[i]->type == REDIS_REPLY_STRING &&
            a->element[i + 1]->type == REDIS_REPLY_STRING && !strcmp(a->element[i]->str, name))
            return a->element[i + 1]->str;
    return "";
}

/* Stores the answer of a Sentinel, and warns of every state that would prevent a failover. */
static void take(const char *where, const redisReply *a, struct lw_check_report *r) {
    long others = strtol(field(a, "num-other-sentinels"), NULL, 10),
         replicas = strtol(field(a, "num-slaves"), NULL, 10);
    long quorum = strtol(field(a, "quorum"), NULL, 10);
    lw_buf_addf(&r->notes, "sentinel %s: master %s:%s, %ld replica%s, %ld Sentinel%s, quorum %ld\n",
                where, field(a, "ip"), field(a, "port"), replicas, replicas == 1 ? "" : "s",
                others + 1, others ? "s" : "", quorum);
    if (strstr(field(a, "flags"), "down"))
        WARN(where, "it takes the master for down (%s)", field(a, "flags"));
    if (replicas < 1)
        WARN(where, "it knows no replica of %s: nothing could take over", field(a, "name"));
    if (others + 1 < USUAL)
        WARN(where, "it knows %ld other Sentinels: a fail-over needs a majority; run at least %d",
             others, (int)USUAL);
    if (quorum > others + 1)
        WARN(where, "its quorum, %ld, is more than the Sentinels that it knows (%ld)", quorum,
             others + 1);
}

static void ask(struct lw_redis *c, const char *where, const char *master,
                struct lw_check_report *r) {
    char why[LW_REPLY_TEXT];
    redisReply *a = lw_redis_ask(c, "SENTINEL MASTER %s", master);
    if (!a)
        WARN(where, "SENTINEL MASTER: %s", c->why);
    else if (a->type == REDIS_REPLY_ARRAY)
        take(where, a, r);
    else
        WARN(where, "SENTINEL MASTER %s: %s", master,
             a->type == REDIS_REPLY_ERROR
                 ? a->str
                 : lw_malformed(why, a, "SENTINEL MASTER", "an array of fields and values"));
    if (a) freeReplyObject(a);
}

void lw_check_sentinels(const struct lw_redis_servers *servers, struct lw_check_report *r) {
    for (size_t i = 0; servers->kind == LW_REDIS_SENTINEL && i < servers->n; i++) {
        char where[WHERE_SIZE];
        struct lw_err why = {0};
        lw_redis_url_where(&servers->at[i], where, sizeof where);
        struct lw_redis *c =
            lw_redis_open(&servers->at[i], "latchwork:check", r->wait_ms, r->wait_ms, &why);
        if (c)
            ask(c, where, servers->master, r);
        else
            WARN(where, "%s", why.text);
        lw_redis_close(c);
    }
}
