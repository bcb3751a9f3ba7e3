/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the folder of `latchwork dev`, fills it with a configuration, and removes it. */
#include "cli/dev/private.h"

#include "base/bytes.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_FOLDERS = 8 };

const char *const dev_topics[DEV_TOPICS] = {"orders-web", "orders-shop"};

/* Chooses the parent of the folder: TMPDIR or /tmp. A unix socket's name may have at most 107
 * bytes, and becomes part of a URL and of JSON, so a TMPDIR that is too long or has special
 * characters is not used. */
static const char *place(void) {
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp == '/' && strlen(tmp) < 32 && !strpbrk(tmp, "\"\\$%?@#") ? tmp : "/tmp";
}

int dev_home_make(struct dev_home *h, struct lw_err *err) {
    snprintf(h->folder, sizeof h->folder, "%s/latchwork-dev-XXXXXX", place());
    if (!mkdtemp(h->folder)) return lw_fail(err, "%s: no folder can be made: %s", place(), strerror(errno));
    snprintf(h->socket, sizeof h->socket, "%s/redis.sock", h->folder);
    snprintf(h->database, sizeof h->database, "%s/orders.db", h->folder);
    snprintf(h->config, sizeof h->config, "%s/latchwork.json", h->folder);
    snprintf(h->log, sizeof h->log, "%s/latchwork.log", h->folder);
    snprintf(h->journal, sizeof h->journal, "%s/journal", h->folder);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at) {
    (void)st, (void)flag, (void)at;
    remove(path); /* ignore a failure, so that the other files are still removed */
    return 0;
}

void dev_home_remove(const struct dev_home *h) { nftw(h->folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT); }

/* The group notices a dead worker after session.timeout.ms, for which the dev broker accepts no less
 * than 6 s. The leases of a dead worker end after lock.ttl_ms. fetch.wait.max.ms is short, because the dev
 * broker answers a fetch that finds nothing only when that time is over, even if records come meanwhile. */
static const char format[] =
    "{\n"
    "  \"name\": \"" DEV_NAME "\",\n"
    "  \"workers\": %d,\n"
    "  \"kafka\": {\n"
    "    \"topics\": [\"%s\", \"%s\"],\n"
    "    \"properties\": { \"bootstrap.servers\": \"%s\", \"session.timeout.ms\": \"6000\",\n"
    "                    \"heartbeat.interval.ms\": \"500\", \"fetch.wait.max.ms\": \"50\" }\n"
    "  },\n"
    "  \"redis\": { \"url\": \"unix://%s\" },\n"
    "  \"key\": { \"from\": \"json:/id\" },\n"
    "  \"lock\": { \"ttl_ms\": 3000 },\n"
    "  \"handler\": {\n"
    "    \"type\": \"insert\", \"store\": \"sqlite:%s\", \"table\": \"orders\", \"create\": true, \"threads\": 2,\n"
    "    \"columns\": { \"id\": \"/id\", \"customer\": \"/customer\", \"amount\": \"/amount\" },\n"
    "    \"primary_key\": [\"id\"], \"on_conflict\": \"ignore\"\n"
    "  },\n"
    "  \"shutdown\": { \"grace_ms\": 3000 }\n"
    "}\n";

int dev_home_configure(const struct dev_home *h, const struct dev_options *o, const char *brokers, char **text, struct lw_err *err) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, format, o->workers, dev_topics[0], dev_topics[1], brokers, h->socket, h->database);
    lw_buf_add(&b, "", 1);
    *text = b.p;
    FILE *f = fopen(h->config, "w");
    bool written = f && fputs(b.p, f) >= 0;
    if (f && fclose(f)) written = false;
    return written ? 0 : lw_fail(err, "%s: %s", h->config, strerror(errno));
}
