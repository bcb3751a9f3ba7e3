/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/wire.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECT_MS = 2000,
    ANSWER_MS = 5000,
    BACKOFF_MS = 50,
    BACKOFF_MAX_MS = 2000,
    STEADY_MS = 2000,    /* after a connection that lasted this long, reconnect at once */
    COMPLAIN_MS = 10000, /* log failed attempts at most once per this period */
    READ_SIZE = 64 << 10,
    READS = 16,         /* maximum reads per serve, so that other connections get their turn */
    KEEP_OUT = 1 << 20, /* free an output buffer larger than this after its pipeline is sent */
    KEEPALIVE_IDLE_S = 10,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_COUNT = 3,
    WHY_SIZE = 256,
};

enum state { WAITING, CONNECTING, LOGIN, UP };

struct lw_wire {
    struct lw_wire_setup set;
    char *name;
    enum state state;
    int fd;
    unsigned life; /* number of connections so far; a reader that holds an older number knows that its connection is gone */
    redisReader *reader;
    struct lw_buf out;
    size_t out_at; /* bytes of `out` already written */
    size_t unanswered;
    int send_errno;      /* set when a write fails within lw_wire_send(); the next serve reports it */
    int64_t deadline_ms; /* by when the attempt must succeed, or the next progress be made; INT64_MAX: none */
    int64_t retry_ms, backoff_ms, up_ms, complained_ms;
    int64_t anew_ms; /* time of the last lw_wire_connect() that dropped a connection */
    unsigned attempts;
    uint64_t random;
    char trouble[WHY_SIZE]; /* why the last attempt failed; "": it has not */
};

static int64_t or_default(int64_t v, int64_t def) { return v > 0 ? v : def; }

struct lw_wire *lw_wire_open(const struct lw_wire_setup *setup) {
    struct lw_wire *w = lw_alloc(sizeof *w);
    w->set = *setup;
    w->set.connect_ms = or_default(setup->connect_ms, CONNECT_MS);
    w->set.answer_ms = or_default(setup->answer_ms, ANSWER_MS);
    w->set.backoff_max_ms = or_default(setup->backoff_max_ms, BACKOFF_MAX_MS);
    w->name = lw_strdup(setup->name);
    w->fd = -1;
    w->deadline_ms = INT64_MAX;
    w->complained_ms = INT64_MIN;
    if (getrandom(&w->random, sizeof w->random, 0) != sizeof w->random) w->random = (uint64_t)lw_boot_us();
    return w;
}

/* --- dropping and trying again ------------------------------------------------------------------------------------------------ */

static void drop(struct lw_wire *w) {
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    if (w->reader) redisReaderFree(w->reader);
    w->reader = NULL;
    if (w->out.cap > KEEP_OUT) lw_buf_free(&w->out);
    w->out.n = w->out_at = 0;
    w->unanswered = 0;
    w->send_errno = 0;
    w->deadline_ms = INT64_MAX;
    w->state = WAITING;
    w->life++;
}

static int64_t jitter(struct lw_wire *w, int64_t ms) { /* A random time between half of ms and all of it. */
    w->random = w->random * 6364136223846793005U + 1442695040888963407U;
    return ms / 2 + (int64_t)((w->random >> 33) % (uint64_t)(ms - ms / 2 + 1));
}

static void schedule(struct lw_wire *w) {
    int64_t now = lw_boot_ms();
    if (w->up_ms && now - w->up_ms >= STEADY_MS) w->backoff_ms = 0;
    w->up_ms = 0;
    w->retry_ms = w->backoff_ms ? now + jitter(w, w->backoff_ms) : now;
    w->backoff_ms = w->backoff_ms ? w->backoff_ms * 2 : BACKOFF_MS;
    if (w->backoff_ms > w->set.backoff_max_ms) w->backoff_ms = w->set.backoff_max_ms;
}

static void complain(struct lw_wire *w, const char *why) {
    int64_t now = lw_boot_ms();
    if (w->complained_ms != INT64_MIN && now - w->complained_ms < COMPLAIN_MS) return;
    w->complained_ms = now;
    const struct lw_redis_url *u = w->set.url;
    if (u->path)
        lw_warn("%s: Redis at %s: %s; retrying", w->name, u->path, why);
    else
        lw_warn("%s: Redis at %s:%d: %s; retrying", w->name, u->host, u->port, why);
}

static void broken(struct lw_wire *w, const char *what) {
    char why[WHY_SIZE]; /* a copy, because `what` may live in the connection that is dropped now */
    snprintf(why, sizeof why, "%s", what);
    bool was_up = w->state == UP;
    if (!was_up) memcpy(w->trouble, why, sizeof why);
    drop(w);
    schedule(w);
    if (was_up)
        w->set.down(w->set.ctx, why);
    else
        complain(w, why);
}

void lw_wire_connect(struct lw_wire *w) {
    if (w->state == WAITING) return;
    int64_t now = lw_boot_ms();
    if (now - w->anew_ms >= STEADY_MS) w->backoff_ms = 0; /* requested connections that are far apart are made at once */
    w->anew_ms = now;
    drop(w);
    schedule(w);
}

void lw_wire_close(struct lw_wire *w) {
    if (!w) return;
    drop(w);
    lw_buf_free(&w->out);
    free(w->name);
    free(w);
}

/* --- writing -------------------------------------------------------------------------------------------------------------------- */

static void progress(struct lw_wire *w) { w->deadline_ms = w->unanswered ? lw_boot_ms() + w->set.answer_ms : INT64_MAX; }

/* Writes as much as the socket takes. Returns 0, or an errno value. */
static int flush(struct lw_wire *w) {
    bool wrote = false;
    while (w->out_at < w->out.n) {
        ssize_t n = send(w->fd, w->out.p + w->out_at, w->out.n - w->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return errno;
        if (n < 0) break;
        w->out_at += (size_t)n;
        wrote = true;
    }
    if (w->state == UP && wrote) progress(w);
    if (w->out_at < w->out.n) return 0;
    if (w->out.cap > KEEP_OUT) lw_buf_free(&w->out);
    w->out.n = w->out_at = 0;
    return 0;
}

static void add_count(struct lw_buf *b, char kind, size_t n) {
    char text[32] = {kind};
    size_t len = 1 + lw_decimal((int64_t)n, text + 1);
    text[len++] = '\r';
    text[len++] = '\n';
    lw_buf_add(b, text, len);
}

static void encode(struct lw_buf *b, const struct lw_commands *c) {
    for (int i = 0; i < c->n; i++) {
        add_count(b, '*', (size_t)c->cmd[i].argc);
        for (int k = c->cmd[i].first; k < c->cmd[i].first + c->cmd[i].argc; k++) {
            add_count(b, '$', c->len[k]);
            lw_buf_add(b, c->argv[k], c->len[k]);
            lw_buf_add(b, "\r\n", 2);
        }
    }
}

static void put(struct lw_wire *w, const struct lw_commands *c) {
    encode(&w->out, c);
    w->unanswered += (size_t)c->n;
    w->send_errno = flush(w);
}

void lw_wire_send(struct lw_wire *w, const struct lw_commands *c) {
    assert(w->state == UP);
    if (!c->n) return;
    bool first = !w->unanswered;
    put(w, c);
    if (first) progress(w);
}

bool lw_wire_is_up(const struct lw_wire *w) { return w->state == UP; }

const char *lw_wire_trouble(const struct lw_wire *w) { return w->trouble[0] ? w->trouble : NULL; }

/* --- connecting ----------------------------------------------------------------------------------------------------------------- */

static int connect_fd(struct lw_wire *w, int family, const struct sockaddr *address, socklen_t size) {
    w->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->fd < 0) return errno;
    if (family != AF_UNIX) {
        setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        setsockopt(w->fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
        setsockopt(w->fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){KEEPALIVE_IDLE_S}, sizeof(int));
        setsockopt(w->fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){KEEPALIVE_INTERVAL_S}, sizeof(int));
        setsockopt(w->fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){KEEPALIVE_COUNT}, sizeof(int));
    }
    return connect(w->fd, address, size) && errno != EINPROGRESS ? errno : 0;
}

static int connect_unix(struct lw_wire *w, const char *path) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof un.sun_path) return ENAMETOOLONG;
    memcpy(un.sun_path, path, strlen(path) + 1);
    return connect_fd(w, AF_UNIX, (const struct sockaddr *)&un, sizeof un);
}

/* Connects to the host's next address: each attempt takes another one. Returns NULL, or what went
 * wrong. */
static const char *connect_host(struct lw_wire *w, const char *host, int port) {
    char service[12];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    int r = getaddrinfo(host, service, &hints, &list);
    if (r) return gai_strerror(r);
    unsigned n = 0;
    for (struct addrinfo *a = list; a; a = a->ai_next) n++;
    struct addrinfo *a = list;
    for (unsigned i = w->attempts % n; i > 0; i--) a = a->ai_next;
    r = connect_fd(w, a->ai_family, a->ai_addr, a->ai_addrlen);
    freeaddrinfo(list);
    return r ? strerror(r) : NULL;
}

static void start(struct lw_wire *w) {
    const struct lw_redis_url *u = w->set.url;
    w->state = CONNECTING;
    w->deadline_ms = lw_boot_ms() + w->set.connect_ms;
    const char *why;
    if (u->path) {
        int r = connect_unix(w, u->path);
        why = r ? strerror(r) : NULL;
    } else {
        why = connect_host(w, u->host, u->port);
    }
    w->attempts++;
    if (why) broken(w, why);
}

static void now_up(struct lw_wire *w) {
    w->state = UP;
    w->up_ms = lw_boot_ms();
    w->deadline_ms = INT64_MAX;
    w->complained_ms = INT64_MIN;
    w->trouble[0] = '\0';
    w->set.up(w->set.ctx);
}

static void login(struct lw_wire *w) {
    struct lw_redis_login login;
    struct lw_commands c = {0};
    lw_redis_login(w->set.url, &login);
    for (size_t i = 0; i < login.n; i++) {
        lw_cmd(&c, login.command[i].word[0]);
        for (int k = 1; k < login.command[i].n; k++) lw_arg_text(&c, login.command[i].word[k]);
    }
    w->reader = redisReaderCreate();
    if (!w->reader) abort(); /* as every allocation of the program does that fails */
    w->state = LOGIN;
    if (c.n)
        put(w, &c);
    else
        now_up(w);
    lw_commands_free(&c);
}

static void connected(struct lw_wire *w) {
    int e = 0;
    socklen_t size = sizeof e;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &e, &size)) e = errno;
    if (e)
        broken(w, strerror(e));
    else
        login(w);
}

/* --- reading -------------------------------------------------------------------------------------------------------------------- */

static void take_reply(struct lw_wire *w, const redisReply *r) {
    if (!w->unanswered) {
        broken(w, "an answer to nothing");
        return;
    }
    w->unanswered--;
    if (w->state == UP) {
        progress(w);
        w->set.reply(w->set.ctx, r);
    } else if (r->type == REDIS_REPLY_ERROR) {
        broken(w, r->str);
    } else if (!w->unanswered) {
        now_up(w);
    }
}

/* Returns false if the connection is gone afterwards. */
static bool take_replies(struct lw_wire *w) {
    unsigned life = w->life;
    void *r;
    while (redisReaderGetReply(w->reader, &r) == REDIS_OK) {
        if (!r) return true;
        take_reply(w, r);
        freeReplyObject(r);
        if (w->life != life) return false;
    }
    broken(w, w->reader->errstr);
    return false;
}

static void read_some(struct lw_wire *w) {
    char in[READ_SIZE];
    for (int i = 0; i < READS; i++) {
        ssize_t n = recv(w->fd, in, sizeof in, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            broken(w, n ? strerror(errno) : "closed by the server");
            return;
        }
        if (redisReaderFeed(w->reader, in, (size_t)n) != REDIS_OK) {
            broken(w, w->reader->errstr);
            return;
        }
        if (!take_replies(w) || n < (ssize_t)sizeof in) return;
    }
}

/* --- the event loop's side ------------------------------------------------------------------------------------------------------ */

struct pollfd lw_wire_poll(const struct lw_wire *w) {
    struct pollfd p = {.fd = w->fd, .events = w->state == CONNECTING ? POLLOUT : POLLIN};
    if (w->out_at < w->out.n) p.events |= POLLOUT;
    return p;
}

int64_t lw_wire_due_ms(const struct lw_wire *w) {
    if (w->state == WAITING) return w->retry_ms;
    return w->send_errno ? 0 : w->deadline_ms;
}

static void serve_connection(struct lw_wire *w, short revents) {
    unsigned life = w->life;
    if (revents & (POLLIN | POLLHUP | POLLERR))
        read_some(w); /* read first, so that replies sent before a hang-up are delivered before it is reported */
    if (w->life != life) return;
    if (revents & POLLOUT && !w->send_errno) w->send_errno = flush(w);
    if (w->send_errno) broken(w, strerror(w->send_errno));
}

static void give_up(struct lw_wire *w) {
    char why[WHY_SIZE];
    if (w->state == UP)
        snprintf(why, sizeof why, "no answer in %lld ms", (long long)w->set.answer_ms);
    else
        snprintf(why, sizeof why, "no connection in %lld ms", (long long)w->set.connect_ms);
    broken(w, why);
}

void lw_wire_serve(struct lw_wire *w, short revents) {
    if (w->state == WAITING) {
        if (lw_boot_ms() >= w->retry_ms) start(w);
        return;
    }
    if (w->state == CONNECTING && revents)
        connected(w);
    else if (w->state > CONNECTING && (revents || w->send_errno))
        serve_connection(w, revents);
    if (w->deadline_ms != INT64_MAX && lw_boot_ms() >= w->deadline_ms) give_up(w);
}
