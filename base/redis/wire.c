/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/wire.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/redis/login.h"
#include "base/redis/stream.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 2000,
    /* time limit for the finder's answer; one search exceeds it only if the resolver of host names
     * hangs, but the finder searches for one shard after the other */
    FIND_MS = 10000,
    ANSWER_MS = 5000,
    BACKOFF_MS = 50,
    BACKOFF_MAX_MS = 2000,
    /* if a connection lasted at least this long, the wire reconnects at once, without backoff */
    STEADY_MS = 2000,
    ASK_MS = 1000,       /* time between two questions for the master while the wire is up */
    TAKE_MS = 50,        /* time between two looks for the answer */
    COMPLAIN_MS = 10000, /* minimum time between log lines about failed attempts */
    /* maximum number of reads per call of lw_wire_serve(), so that one connection cannot starve the
     * others */
    READS = 16,
    /* maximum capacity, in bytes, with which an output buffer is kept after its pipeline; a larger
     * buffer is freed */
    KEEP_OUT = 1 << 20,
    WHY_SIZE = 512,
};

enum state { WAITING, FINDING, CONNECTING, LOGIN, UP };

struct lw_wire {
    struct lw_wire_setup set;
    char *name, *client_name;
    enum state state;
    /* finding, with which the wire asks the finder for the server; NULL if the server's address is
     * configured */
    struct lw_finding *finding;
    struct lw_redis_url found;     /* the server that the finder named last */
    const struct lw_redis_url *at; /* the server of the current attempt */
    struct lw_stream stream;
    /* commands of the login, of which the last `unanswered` have no answer yet */
    struct lw_redis_login login;
    /* number of the current connection; if the number changes during a call, the connection was
     * closed */
    unsigned life;
    redisReader *reader;
    struct lw_buf out;
    size_t out_at; /* number of bytes of `out` that are already written */
    size_t unanswered;
    /* error of a write in lw_wire_send(), which the next lw_wire_serve() reports; "" if there was
     * none */
    struct lw_err failed;
    /* time, on the boot clock, at which the current attempt to connect is given up, or at which an
     * unanswered pipeline is given up unless it makes progress; INT64_MAX if there is no limit */
    int64_t deadline_ms;
    int64_t retry_ms, backoff_ms, up_ms, complained_ms;
    /* time of the next question for the master, or of the next look for its answer (`asked`);
     * INT64_MAX if an old server serves nobody after a failover */
    int64_t ask_ms;
    bool asked;
    int64_t anew_ms; /* last time that lw_wire_connect() closed a connection, on the boot clock */
    unsigned attempts;
    /* reason why the last attempt to connect failed; "" if none has failed since the wire was last
     * up */
    char trouble[WHY_SIZE];
};

static int64_t or_default(int64_t v, int64_t def) { return v > 0 ? v : def; }

struct lw_wire *lw_wire_open(const struct lw_wire_setup *setup) {
    struct lw_wire *w = lw_alloc(sizeof *w);
    w->set = *setup;
    w->set.connect_ms = or_default(setup->connect_ms, CONNECT_MS);
    w->set.answer_ms = or_default(setup->answer_ms, ANSWER_MS);
    w->set.backoff_max_ms = or_default(setup->backoff_max_ms, BACKOFF_MAX_MS);
    w->name = lw_strdup(setup->name);
    struct lw_buf client = {0};
    if (setup->owner) lw_buf_addf(&client, "latchwork:%s:%s%c", setup->owner, setup->name, 0);
    w->client_name = client.p;
    w->at = setup->url;
    if (setup->finder) w->finding = lw_finding_open(setup->finder, setup->shard), w->at = &w->found;
    w->stream.fd = -1;
    w->deadline_ms = INT64_MAX;
    w->complained_ms = INT64_MIN;
    return w;
}

/* --- dropping and retrying -------------------------------------------------------------------- */

static void drop(struct lw_wire *w) {
    lw_stream_close(&w->stream);
    if (w->reader) redisReaderFree(w->reader);
    w->reader = NULL;
    if (w->out.cap > KEEP_OUT) lw_buf_free(&w->out);
    w->out.n = w->out_at = 0;
    w->unanswered = 0;
    w->failed.text[0] = '\0';
    w->deadline_ms = INT64_MAX;
    w->state = WAITING;
    w->life++;
}

/* Returns a random duration between ms / 2 and ms. */
static int64_t jitter(int64_t ms) {
    return ms / 2 + (int64_t)lw_random((uint64_t)(ms - ms / 2 + 1));
}

static void schedule(struct lw_wire *w) {
    int64_t now = lw_boot_ms();
    if (w->up_ms && now - w->up_ms >= STEADY_MS) w->backoff_ms = 0;
    w->up_ms = 0;
    w->retry_ms = w->backoff_ms ? now + jitter(w->backoff_ms) : now;
    w->backoff_ms = w->backoff_ms ? w->backoff_ms * 2 : BACKOFF_MS;
    if (w->backoff_ms > w->set.backoff_max_ms) w->backoff_ms = w->set.backoff_max_ms;
}

static void complain(struct lw_wire *w, bool placed, const char *why) {
    int64_t now = lw_boot_ms();
    if (w->complained_ms != INT64_MIN && now - w->complained_ms < COMPLAIN_MS) return;
    w->complained_ms = now;
    char where[WHY_SIZE];
    long long wait_ms = w->retry_ms > now ? (long long)(w->retry_ms - now) : 0;
    if (placed)
        lw_warn("%s: Redis at %s: %s; reconnecting in %lld ms", w->name,
                lw_redis_url_where(w->at, where, sizeof where), why, wait_ms);
    else
        lw_warn("%s: Redis: %s; reconnecting in %lld ms", w->name, why, wait_ms);
}

static void broken(struct lw_wire *w, const char *what) {
    /* copy the text, because it may be part of the connection, which drop() closes */
    char why[WHY_SIZE];
    snprintf(why, sizeof why, "%s", what);
    bool was_up = w->state == UP, placed = w->state != FINDING;
    if (!was_up) memcpy(w->trouble, why, sizeof why);
    if (!was_up && placed && w->finding) lw_finding_doubt(w->finding);
    drop(w);
    schedule(w);
    if (was_up)
        w->set.down(w->set.ctx, why);
    else
        complain(w, placed, why);
}

/* Closes the connection after a failed read or write. */
static void cut(struct lw_wire *w, const char *why) {
    struct lw_err early = {0};
    if (w->state == LOGIN) lw_redis_login_broken(w->at, why, &early);
    broken(w, early.text[0] ? early.text : why);
}

void lw_wire_connect(struct lw_wire *w) {
    if (w->state == WAITING) return;
    int64_t now = lw_boot_ms();
    /* if lw_wire_connect() has closed no connection in the last STEADY_MS, the next attempt follows
     * at once */
    if (now - w->anew_ms >= STEADY_MS) w->backoff_ms = 0;
    w->anew_ms = now;
    drop(w);
    schedule(w);
}

void lw_wire_close(struct lw_wire *w) {
    if (!w) return;
    drop(w);
    lw_buf_free(&w->out);
    lw_finding_close(w->finding);
    lw_redis_url_free(&w->found);
    free(w->name), free(w->client_name);
    free(w);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void progress(struct lw_wire *w) {
    w->deadline_ms = w->unanswered ? lw_boot_ms() + w->set.answer_ms : INT64_MAX;
}

/* Writes as many bytes as the stream accepts without blocking. An error is kept in w->failed. */
static void flush(struct lw_wire *w) {
    bool wrote = false;
    while (w->out_at < w->out.n) {
        ssize_t n =
            lw_stream_write(&w->stream, w->out.p + w->out_at, w->out.n - w->out_at, &w->failed);
        if (n < 0) return;
        if (n == 0) break;
        w->out_at += (size_t)n;
        wrote = true;
    }
    if (w->state == UP && wrote) progress(w);
    if (w->out_at < w->out.n) return;
    if (w->out.cap > KEEP_OUT) lw_buf_free(&w->out);
    w->out.n = w->out_at = 0;
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
    flush(w);
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

/* --- connecting ------------------------------------------------------------------------------- */

static void dial(struct lw_wire *w) {
    struct lw_err why = {0};
    w->state = CONNECTING;
    w->deadline_ms = lw_boot_ms() + w->set.connect_ms;
    if (lw_stream_start(&w->stream, w->at, w->attempts++, NULL, &why)) broken(w, why.text);
}

static void go_on_finding(struct lw_wire *w) {
    struct lw_err why = {0};
    struct lw_redis_url found;
    int r = lw_finding_take(w->finding, &found, &why);
    if (r < 0) broken(w, why.text);
    if (r <= 0) return;
    lw_redis_url_free(&w->found);
    w->found = found;
    dial(w);
}

static void begin(struct lw_wire *w) {
    if (!w->finding) {
        dial(w);
        return;
    }
    w->state = FINDING;
    w->deadline_ms = lw_boot_ms() + FIND_MS;
    lw_finding_ask(w->finding);
    go_on_finding(w);
}

static void ask_later(struct lw_wire *w) {
    w->asked = false;
    /* all wires of a process ask at the same time, so that one search answers all of them */
    w->ask_ms = w->finding && lw_finding_lags(w->finding) ? (lw_boot_ms() / ASK_MS + 1) * ASK_MS
                                                          : INT64_MAX;
}

/* Asks the Sentinels whether the server is still the master. After a failover, an old master that
 * is alive grants leases until they make it a replica, and never says that it is old. */
static void ask_again(struct lw_wire *w) {
    struct lw_err err = {0};
    struct lw_redis_url named;
    int r = w->asked ? lw_finding_take(w->finding, &named, &err) : 0;
    if (!r) {
        if (!w->asked) lw_finding_ask(w->finding);
        w->asked = true;
        w->ask_ms = lw_boot_ms() + TAKE_MS;
        return;
    }
    ask_later(w);
    /* the connection stays up while no Sentinel answers */
    if (r < 0) return;
    bool same = named.port == w->found.port && strcmp(named.host, w->found.host) == 0;
    char where[WHY_SIZE / 2], why[WHY_SIZE];
    snprintf(why, sizeof why, "the Sentinels name another master, %s",
             lw_redis_url_where(&named, where, sizeof where));
    lw_redis_url_free(&named);
    if (!same) broken(w, why);
}

static void now_up(struct lw_wire *w) {
    w->state = UP;
    w->up_ms = lw_boot_ms();
    ask_later(w);
    w->deadline_ms = INT64_MAX;
    w->complained_ms = INT64_MIN;
    w->trouble[0] = '\0';
    w->set.up(w->set.ctx);
}

static void login(struct lw_wire *w) {
    struct lw_commands c = {0};
    lw_redis_login(w->at, w->client_name, &w->login);
    for (size_t i = 0; i < w->login.n; i++) {
        lw_cmd(&c, w->login.command[i].word[0]);
        for (int k = 1; k < w->login.command[i].n; k++)
            lw_arg_text(&c, w->login.command[i].word[k]);
    }
    w->reader = lw_or_abort(redisReaderCreate());
    w->state = LOGIN;
    if (c.n)
        put(w, &c);
    else
        now_up(w);
    lw_commands_free(&c);
}

static void go_on_connecting(struct lw_wire *w) {
    struct lw_err why = {0};
    int r = lw_stream_go_on(&w->stream, w->at, &why);
    if (r < 0) broken(w, why.text);
    if (r > 0) login(w);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* If the reply says that the server no longer serves the shard, closes the connection and returns
 * true. Returns false for any other reply. If set.hands_on_moved is true, an error which says that
 * the shard's slot is elsewhere does not close the connection, and the function returns false. */
static bool deposed(struct lw_wire *w, const redisReply *r) {
    const char *says =
        w->at->only_master && r->type == REDIS_REPLY_ERROR ? lw_redis_deposed(r->str) : NULL;
    if (!says) return false;
    if (w->set.hands_on_moved && lw_redis_moved(r->str)) {
        lw_finding_doubt(w->finding);
        return false;
    }
    char why[WHY_SIZE];
    snprintf(why, sizeof why, "%s (%.*s)", says, (int)strcspn(r->str, "\r\n"), r->str);
    lw_finding_doubt(w->finding);
    broken(w, why);
    return true;
}

static void take_reply(struct lw_wire *w, const redisReply *r) {
    if (!w->unanswered) {
        broken(w, "an answer to nothing");
        return;
    }
    w->unanswered--;
    if (w->state == UP && deposed(w, r)) return;
    if (w->state == UP) {
        progress(w);
        w->set.reply(w->set.ctx, r);
        return;
    }
    struct lw_err why = {0};
    if (lw_redis_login_answer(&w->login, w->login.n - 1 - w->unanswered, r, &why))
        broken(w, why.text);
    else if (!w->unanswered)
        now_up(w);
}

/* Handles the replies that were read. Returns false if this has closed the connection. */
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
    char in[LW_STREAM_READ_SIZE];
    for (int i = 0; i < READS; i++) {
        struct lw_err why = {0};
        ssize_t n = lw_stream_read(&w->stream, in, sizeof in, &why);
        if (n < 0) cut(w, why.text);
        if (n <= 0) return;
        if (redisReaderFeed(w->reader, in, (size_t)n) != REDIS_OK) {
            broken(w, w->reader->errstr);
            return;
        }
        if (!take_replies(w)) return;
        /* A short read means that the socket is empty. With TLS it only means that a TLS record has
         * ended. */
        if (!w->stream.ssl && n < (ssize_t)sizeof in) return;
    }
}

/* --- the event loop's side -------------------------------------------------------------------- */

struct pollfd lw_wire_poll(const struct lw_wire *w) {
    if (w->state == WAITING) return (struct pollfd){.fd = -1};
    if (w->state == FINDING)
        return (struct pollfd){.fd = lw_finding_fd(w->finding), .events = POLLIN};
    return (struct pollfd){.fd = w->stream.fd,
                           .events = lw_stream_events(&w->stream, w->out_at < w->out.n)};
}

int64_t lw_wire_due_ms(const struct lw_wire *w) {
    if (w->state == WAITING) return w->retry_ms;
    if (w->failed.text[0]) return 0;
    return w->state == UP && w->ask_ms < w->deadline_ms ? w->ask_ms : w->deadline_ms;
}

static void serve_connection(struct lw_wire *w, short revents) {
    unsigned life = w->life;
    /* read first, because replies may have arrived before the connection ended */
    if (revents & (POLLIN | POLLHUP | POLLERR | w->stream.wants)) read_some(w);
    if (w->life != life) return;
    if (revents & (POLLOUT | w->stream.wants) && !w->failed.text[0]) flush(w);
    if (w->failed.text[0]) cut(w, w->failed.text);
}

static void give_up(struct lw_wire *w) {
    char why[WHY_SIZE];
    if (w->state == UP)
        snprintf(why, sizeof why, "no answer in %lld ms", (long long)w->set.answer_ms);
    else if (w->state == FINDING)
        snprintf(why, sizeof why,
                 "the search for its address did not end in %d ms: Sentinels or cluster nodes do "
                 "not answer, or the resolver of host names hangs",
                 (int)FIND_MS);
    else
        snprintf(why, sizeof why, "no connection in %lld ms", (long long)w->set.connect_ms);
    broken(w, why);
}

void lw_wire_serve(struct lw_wire *w, short revents) {
    if (w->state == WAITING) {
        if (lw_boot_ms() >= w->retry_ms) begin(w);
        return;
    }
    if (w->state == FINDING && revents)
        go_on_finding(w);
    else if (w->state == CONNECTING && revents)
        go_on_connecting(w);
    else if (w->state > CONNECTING && (revents || w->failed.text[0]))
        serve_connection(w, revents);
    int64_t now = lw_boot_ms();
    if (w->deadline_ms != INT64_MAX && now >= w->deadline_ms)
        give_up(w);
    else if (w->state == UP && now >= w->ask_ms)
        ask_again(w);
}
