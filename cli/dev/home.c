/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the folder of `latchwork dev`, fills it with a configuration, and removes it. */
#include "cli/dev/private.h"

#include "base/bytes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OPEN_FOLDERS = 8, PAGE_PORT = 9464 };

const char *const dev_topics[DEV_TOPICS] = {"orders-web", "orders-shop"};
const char *const dev_tenants[DEV_TENANTS] = {"acme", "birch", "cedar"};

/* Returns the parent of the folder: TMPDIR or /tmp. The folder contains a unix socket, whose name
 * may have at most 107 bytes and becomes part of a URL and of JSON. So TMPDIR is not used if it is
 * too long or has special characters. */
static const char *place(void) {
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp == '/' && strlen(tmp) < 32 && !strpbrk(tmp, "\"\\$%?@#") ? tmp : "/tmp";
}

/* Returns true if no other `latchwork dev` runs on this machine. Only the first one uses the usual
 * port of the web page. A test of the port itself would not be enough, because the workers open the
 * port some seconds later. Instead this function binds an abstract unix socket. The socket needs no
 * file, and is closed when this process and its children have ended. */
static bool first_here(void) {
    static const char name[] = "\0latchwork-dev-page";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(at.sun_path, name, sizeof name - 1);
    return s >= 0 && !bind(s, (struct sockaddr *)&at,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof name - 1));
}

/* Returns `port` if it is free, otherwise another free port, or 0 if there is none. Another program
 * may take the port before the workers open it, but this is unlikely, because there are thousands
 * of free ports. */
static int free_port(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, found = 0;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (s >= 0 && !bind(s, (struct sockaddr *)&at, sizeof at) && !listen(s, 1) &&
        !getsockname(s, (struct sockaddr *)&at, &size))
        found = ntohs(at.sin_port);
    if (s >= 0) close(s);
    return found || !port ? found : free_port(0);
}

static int make_token(char out[33], struct lw_err *err) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return lw_fail(err, "getrandom failed: %s", strerror(errno));
    lw_hex(bytes, sizeof bytes, out);
    return 0;
}

int dev_home_make(struct dev_home *h, struct lw_err *err) {
    h->page_port = free_port(first_here() ? PAGE_PORT : 0);
    if (make_token(h->token, err)) return -1;
    snprintf(h->folder, sizeof h->folder, "%s/latchwork-dev-XXXXXX", place());
    if (!mkdtemp(h->folder))
        return lw_fail(err, "%s: cannot create a folder: %s", place(), strerror(errno));
    snprintf(h->socket, sizeof h->socket, "%s/redis.sock", h->folder);
    snprintf(h->database, sizeof h->database, "%s/orders.db", h->folder);
    snprintf(h->config, sizeof h->config, "%s/latchwork.json", h->folder);
    snprintf(h->log, sizeof h->log, "%s/latchwork.log", h->folder);
    snprintf(h->journal, sizeof h->journal, "%s/journal", h->folder);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at) {
    (void)st, (void)flag, (void)at;
    remove(path); /* a failure is ignored, so that the other files are still removed */
    return 0;
}

void dev_home_remove(const struct dev_home *h) {
    nftw(h->folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* The group notices a dead worker after session.timeout.ms, for which the dev broker accepts no
 * value below 6 s. The leases of a dead worker end after lock.ttl_ms. fetch.wait.max.ms is short,
 * because the dev broker answers a fetch without records only at the end of that time, even if
 * records arrive earlier. */
static const char common[] =
    "{\n"
    "  \"name\": \"" DEV_NAME "\",\n"
    "  \"workers\": %d,\n"
    "  \"http\": { \"listen\": \"127.0.0.1:%d\", \"token\": \"%s\" },\n"
    "  \"kafka\": {\n"
    "    \"topics\": [\"%s\", \"%s\"],\n"
    "    \"properties\": { \"bootstrap.servers\": \"%s\", \"session.timeout.ms\": \"6000\",\n"
    "                    \"heartbeat.interval.ms\": \"500\", \"fetch.wait.max.ms\": \"50\" }\n"
    "  },\n"
    "  \"redis\": { \"url\": \"unix://%s\" },\n";
static const char inserting[] =
    "  \"lock\": { \"ttl_ms\": 3000 },\n"
    "  \"key\": { \"from\": \"json:/id\" },\n"
    "  \"handler\": {\n"
    "    \"type\": \"insert\", \"store\": \"sqlite:%s\", \"table\": \"orders\", \"create\": true, "
    "\"threads\": 2,\n"
    "    \"columns\": { \"id\": \"/id\", \"customer\": \"/customer\", \"amount\": \"/amount\" },\n"
    "    \"primary_key\": [\"id\"], \"on_conflict\": \"ignore\"\n"
    "  },\n";
/* handler.timeout_ms and lock.ttl_ms are long, so that an order whose request hangs ends only when
 * the user breaks the lock of its key, even on a machine under load. */
static const char calling[] =
    "  \"lock\": { \"ttl_ms\": 15000 },\n"
    "  \"key\": { \"from\": \"json:/customer\" },\n"
    "  \"handler\": { \"type\": \"http\", \"url\": \"http://127.0.0.1:%d/orders\", \"in_flight\": "
    "16, \"timeout_ms\": 3600000 },\n";
static const char limiting[] =
    "  \"group\": { \"from\": \"json:/tenant\" },\n"
    "  \"limits\": { \"group\": { \"running\": 8, \"per_second\": 20 } },\n";
static const char end[] = "  \"shutdown\": { \"grace_ms\": 3000 }\n"
                          "}\n";

int dev_home_configure(const struct dev_home *h, const struct dev_options *o,
                       const struct dev_shared *shared, char **text, struct lw_err *err) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, common, o->workers, h->page_port, h->token, dev_topics[0], dev_topics[1],
                shared->brokers, h->socket);
    if (shared->service_port)
        lw_buf_addf(&b, calling, shared->service_port);
    else
        lw_buf_addf(&b, inserting, h->database);
    if (o->tenants) lw_buf_add(&b, limiting, sizeof limiting - 1);
    lw_buf_add(&b, end, sizeof end);
    *text = b.p;
    FILE *f = fopen(h->config, "w");
    bool written = f && fputs(b.p, f) >= 0;
    if (f && fclose(f)) written = false;
    return written ? 0 : lw_fail(err, "%s: %s", h->config, strerror(errno));
}
