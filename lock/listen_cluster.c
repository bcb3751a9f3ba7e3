/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that listens for releases on the nodes of a cluster. It has an ear, which is a
 * connection, to each node that owns the slot of a line.
 *
 *     line without ear → ear at the owner of its slot → SSUBSCRIBE → up → [message → wake]…
 *     → slot moves, or ear breaks → line without ear
 *
 * The sockets are non-blocking, so that a slow node does not delay the messages of other nodes.
 * Only looking up the host name of a node may block the thread. The thread never reads the slot map
 * from Redis: waiters read the map when they try to take a lock. */
#include "lock/listen.h"

#include "base/clock.h"
#include "base/redis/login.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    /* Maximum number of nodes to which there are ears. Waiters for locks on other nodes are not
     * notified of releases, and try at intervals. */
    EARS_MAX = 256,
    /* Time in ms for which a line without waiters keeps its subscription, because a thread may soon
     * wait for the same lock again. */
    LINGER_MS = 1000,
    /* Pause, in ms, after a node has refused a subscription, or if a line can get no ear now. */
    RETRY_MS = 100,
    /* After a connection broke, its ear pauses. The mean pause, in ms, doubles from REST_MS to
     * REST_MAX_MS. The actual pause is a random time from 50 to 150 % of the mean. */
    REST_MS = 50,
    REST_MAX_MS = 2000,
    TURN_MAX_MS = 60000,
};

struct lw_ear {
    uint64_t peer;
    struct lw_redis_url at;
    struct lw_redis *redis; /* connection to the node; NULL: not connected */
    struct lw_redis_login login;
    size_t greeted;     /* number of login commands that the node has answered */
    struct lw_text out; /* bytes that are waiting to be written to the socket */
    /* true if the ear subscribes to the client's plain channel instead of sharded channels */
    bool plain;
    bool up;    /* true while the subscription to the plain channel works */
    bool asked; /* true while PING is in flight */
    /* Time on the boot clock at which bytes last came, or, if no bytes have come yet, at which the
     * ear began to connect. */
    int64_t heard_ms;
    int64_t rest_until_ms, rest_ms;
    size_t lines; /* number of lines that use this ear */
    /* List of the lines whose SSUBSCRIBE is in flight, in the order of sending. */
    struct lw_line *first_asked, *last_asked;
};

struct ears {
    struct lw_waking *waking;
    size_t n;
    struct lw_ear *ear[EARS_MAX];
};

/* --- channels --------------------------------------------------------------------------------- */

/* Finds the part of the line's name that determines the slot: the text between the first braces, or
 * the whole name. Returns false if this part cannot be put into braces, because it contains '}'.
 * Then the line has no channel, because the name of a channel must contain this part in braces. */
static bool tag_of(const struct lw_line *line, const char **tag, size_t *n) {
    const char *open = memchr(line->name, '{', line->n_name), *end = line->name + line->n_name;
    const char *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
    bool braces = close && close > open + 1;
    *tag = braces ? open + 1 : line->name;
    *n = braces ? (size_t)(close - open - 1) : line->n_name;
    return braces || !memchr(line->name, '}', line->n_name);
}

/* Writes the name of the line's channel in the form that lock/lua/parts/waiting.lua uses. */
static void add_channel(const struct lw_waking *k, const struct lw_line *line,
                        struct lw_text *out) {
    const char *tag;
    size_t n;
    tag_of(line, &tag, &n);
    lw_text_addf(out, "lwl:wake:{");
    lw_text_add(out, tag, n);
    lw_text_addf(out, "}:%s", k->client->sharded_id);
}

static void add_command(struct lw_text *out, const char *word, const char *channel, size_t n) {
    lw_text_addf(out, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(word), word, n);
    lw_text_add(out, channel, n);
    lw_text_add(out, "\r\n", 2);
}

static void say(struct lw_waking *k, struct lw_ear *ear, const char *word,
                const struct lw_line *line) {
    struct lw_text channel = {0};
    add_channel(k, line, &channel);
    add_command(&ear->out, word, channel.p, channel.n);
    ear->out.failed = ear->out.failed || channel.failed;
    lw_text_free(&channel);
}

/* --- lines; the waking's mutex is held -------------------------------------------------------- */

static void set_up(struct lw_line *line, bool up) {
    if (line->up == up) return;
    line->up = up;
    /* Let the first waiter try to take the lock. If the subscription has ended, the announcement of
     * a release may have been missed. If it has begun, the attempt adds this client to the lock's
     * list of waiters in Redis. */
    lw_line_wake(line);
}

static void push_asked(struct lw_ear *ear, struct lw_line *line) {
    line->asked = true;
    line->asked_after = NULL;
    if (ear->last_asked)
        ear->last_asked->asked_after = line;
    else
        ear->first_asked = line;
    ear->last_asked = line;
}

static struct lw_line *pop_asked(struct lw_ear *ear) {
    struct lw_line *line = ear->first_asked;
    if (!line) return NULL;
    ear->first_asked = line->asked_after;
    if (!ear->first_asked) ear->last_asked = NULL;
    line->asked = false;
    return line;
}

/* Removes the line from its ear. The line must have no SSUBSCRIBE in flight at that ear. */
static void detach(struct lw_line *line, int64_t retry_ms) {
    if (line->ear) line->ear->lines--;
    line->ear = NULL;
    line->retry_ms = retry_ms;
    set_up(line, false);
}

/* Calls visit() for every line. visit() may free the line that it is called for. */
static void each_line(struct lw_waking *k, void (*visit)(void *ctx, struct lw_line *line),
                      void *ctx) {
    for (int i = 0; i < LW_LINE_BUCKETS; i++)
        for (struct lw_line *line = k->bucket[i], *next; line; line = next) {
            next = line->next;
            visit(ctx, line);
        }
}

static struct lw_ear *ear_at(const struct ears *e, uint64_t peer) {
    for (size_t i = 0; i < e->n; i++)
        if (e->ear[i]->peer == peer) return e->ear[i];
    return NULL;
}

static void attach(struct lw_waking *k, struct lw_line *line, struct lw_ear *ear) {
    line->ear = ear;
    ear->lines++;
    if (ear->plain) {
        set_up(line, ear->up);
    } else {
        say(k, ear, "SSUBSCRIBE", line);
        push_asked(ear, line);
    }
}

/* The state of one pass over all lines. The pass gives an ear to each line that needs one. */
struct pass {
    struct ears *ears;
    int64_t now, next_ms; /* start of this pass, and of the next one (boot clock) */
    bool moved;
    uint64_t wanted; /* id of a peer to which an ear must be opened; 0: none */
};

static void due(struct pass *p, int64_t at_ms) {
    if (at_ms < p->next_ms) p->next_ms = at_ms;
}

static void tidy(struct pass *p, struct lw_line *line) {
    struct lw_waking *k = p->ears->waking;
    int64_t at_ms = line->empty_ms + LINGER_MS;
    due(p, p->now < at_ms ? at_ms : p->now + RETRY_MS);
    if (p->now < at_ms || line->asked) return;
    if (line->ear && !line->ear->plain) say(k, line->ear, "SUNSUBSCRIBE", line);
    detach(line, 0);
    *lw_line_find(k, line->name, line->n_name) = line->next;
    free(line);
}

static void find_ear(struct pass *p, struct lw_line *line) {
    struct lw_waking *k = p->ears->waking;
    uint64_t owner = lw_peer_known(k->client, line->slot);
    struct lw_ear *ear = owner ? ear_at(p->ears, owner) : NULL;
    const char *tag;
    size_t n;
    if (!owner || !tag_of(line, &tag, &n) || (!ear && p->ears->n == EARS_MAX)) {
        due(p, line->retry_ms = p->now + RETRY_MS);
    } else if (ear && ear->redis) {
        attach(k, line, ear);
    } else if (ear && p->now < ear->rest_until_ms) {
        due(p, line->retry_ms = ear->rest_until_ms);
    } else {
        p->wanted = owner;
    }
}

static void visit(void *ctx, struct lw_line *line) {
    struct pass *p = ctx;
    if (!line->first) {
        tidy(p, line);
        return;
    }
    if (p->moved && line->ear && !line->asked) {
        uint64_t owner = lw_peer_known(p->ears->waking->client, line->slot);
        /* SUNSUBSCRIBE is not needed: a node that loses a slot ends the slot's subscriptions. */
        if (owner && owner != line->ear->peer) detach(line, 0);
    }
    if (line->ear) return;
    if (p->now < line->retry_ms)
        due(p, line->retry_ms);
    else
        find_ear(p, line);
}

/* --- ears ------------------------------------------------------------------------------------- */

static void add_words(struct lw_text *out, const char *const *word, int n) {
    lw_text_addf(out, "*%d\r\n", n);
    for (int i = 0; i < n; i++) lw_text_addf(out, "$%zu\r\n%s\r\n", strlen(word[i]), word[i]);
}

static void loses(void *ctx, struct lw_line *line) {
    struct lw_ear *ear = ctx;
    if (line->ear == ear) line->asked = false, detach(line, 0);
}

/* Closes the ear's connection. The ear connects again after a pause. The lines that used this ear
 * have no ear until the next pass over all lines. */
static void shut(struct ears *e, struct lw_ear *ear) {
    int64_t now = lw_boot_ms();
    lw_redis_close(ear->redis);
    ear->redis = NULL;
    ear->up = ear->asked = false;
    lw_text_free(&ear->out);
    ear->rest_ms = ear->rest_ms ? 2 * ear->rest_ms : REST_MS;
    if (ear->rest_ms > REST_MAX_MS) ear->rest_ms = REST_MAX_MS;
    ear->rest_until_ms = now + ear->rest_ms / 2 + (int64_t)lw_random((uint64_t)ear->rest_ms);
    pthread_mutex_lock(&e->waking->mutex);
    ear->first_asked = ear->last_asked = NULL;
    each_line(e->waking, loses, ear);
    pthread_mutex_unlock(&e->waking->mutex);
    atomic_store(&e->waking->changed, true);
}

static void free_ear(struct lw_ear *ear) {
    if (ear->redis) lw_redis_close(ear->redis);
    lw_redis_url_free(&ear->at);
    lw_text_free(&ear->out);
    free(ear);
}

/* Begins to connect the ear. The login and, for plain channels, the subscription are stored in
 * ear->out, and sent as soon as the connection is established. */
static void dial(struct ears *e, struct lw_ear *ear) {
    struct latchwork_client *c = e->waking->client;
    struct lw_err why = {0};
    ear->redis = lw_redis_start(&ear->at, &why);
    ear->greeted = 0;
    ear->heard_ms = lw_boot_ms();
    if (!ear->redis) {
        ear->rest_ms = REST_MAX_MS;
        ear->rest_until_ms = ear->heard_ms + REST_MAX_MS;
        return;
    }
    lw_redis_login(&ear->at, c->name, &ear->login);
    for (size_t i = 0; i < ear->login.n; i++)
        add_words(&ear->out, ear->login.command[i].word, ear->login.command[i].n);
    ear->plain = atomic_load(&e->waking->plain);
    if (!ear->plain) return;
    char channel[sizeof "lwl:wake:" + LW_CLIENT_ID];
    int n = snprintf(channel, sizeof channel, "lwl:wake:%s", c->id);
    add_command(&ear->out, "SUBSCRIBE", channel, (size_t)n);
}

/* Opens an ear at a peer. If the ear cannot be opened, the next pass over all lines tries again. */
static void open_ear(struct ears *e, uint64_t peer) {
    struct lw_ear *ear = ear_at(e, peer);
    if (!ear) {
        ear = calloc(1, sizeof *ear);
        if (!ear) return;
        ear->peer = peer;
        if (!lw_peer_url(e->waking->client, peer, &ear->at)) {
            free(ear);
            return;
        }
        e->ear[e->n++] = ear;
    }
    dial(e, ear);
}

/* Gives each line with waiters an ear, and frees the lines that have been without waiters for
 * LINGER_MS. Returns the time on the boot clock at which this function must be called again. */
static int64_t look_after_lines(struct ears *e) {
    struct lw_waking *k = e->waking;
    struct pass p = {.ears = e};
    for (int opened = 0;; opened++) {
        p.moved = atomic_exchange(&k->moved, false) || p.moved;
        atomic_store(&k->changed, false);
        p.now = lw_boot_ms();
        p.next_ms = p.now + TURN_MAX_MS;
        p.wanted = 0;
        pthread_mutex_lock(&k->mutex);
        each_line(k, visit, &p);
        pthread_mutex_unlock(&k->mutex);
        if (!p.wanted) return p.next_ms;
        if (opened == EARS_MAX) return p.now + RETRY_MS;
        size_t before = e->n;
        open_ear(e, p.wanted);
        /* if the peer is gone or no memory was left for the ear, try again later */
        if (e->n == before && !ear_at(e, p.wanted)) return p.now + RETRY_MS;
    }
}

/* Frees the ears that no line uses. An ear stays while it pauses, and until it has received nothing
 * for LINGER_MS, because a line may soon use it again. */
static void drop_ears(struct ears *e, int64_t now) {
    for (size_t i = 0; i < e->n;) {
        struct lw_ear *ear = e->ear[i];
        bool unused = !ear->lines && now >= ear->rest_until_ms && now - ear->heard_ms > LINGER_MS;
        if (unused) {
            free_ear(ear);
            e->ear[i] = e->ear[--e->n];
        } else {
            i++;
        }
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static bool is_word(const redisReply *r, const char *word) {
    return r->type == REDIS_REPLY_STRING && !strcmp(r->str, word);
}

/* The ear and the slot for which a node has ended the subscriptions. */
struct ended {
    struct lw_ear *ear;
    int slot;
};
static void ends(void *ctx, struct lw_line *line) {
    const struct ended *e = ctx;
    if (line->ear == e->ear && line->slot == e->slot && !line->asked) detach(line, 0);
}

static void hears(void *ctx, struct lw_line *line) {
    if (line->ear == ctx) set_up(line, true);
}

/* Handles the confirmation of a subscription. A node confirms subscriptions in the order of the
 * requests. Returns false if the confirmation does not name the channel of the oldest SSUBSCRIBE in
 * flight. */
static bool confirm(struct lw_waking *k, struct lw_ear *ear, const redisReply *channel) {
    struct lw_line *line = pop_asked(ear);
    struct lw_text wanted = {0};
    if (!line) return false;
    add_channel(k, line, &wanted);
    bool same = !wanted.failed && channel->type == REDIS_REPLY_STRING && wanted.n == channel->len &&
                !memcmp(wanted.p, channel->str, wanted.n);
    lw_text_free(&wanted);
    if (same) set_up(line, true);
    return same;
}

/* Handles a pushed message. The caller holds the mutex of the struct lw_waking. Returns false if
 * the message is malformed. Then the caller must close the connection. */
static bool take_push(struct lw_waking *k, struct lw_ear *ear, const redisReply *r) {
    if (is_word(r->element[0], "pong")) return true;
    if (r->elements != 3) return false;
    if (is_word(r->element[0], "ssubscribe")) return confirm(k, ear, r->element[1]);
    if (is_word(r->element[0], "smessage") || is_word(r->element[0], "message")) {
        if (r->element[2]->type != REDIS_REPLY_STRING) return false;
        lw_line_wake(*lw_line_find(k, r->element[2]->str, (size_t)r->element[2]->len));
    } else if (is_word(r->element[0], "sunsubscribe") &&
               r->element[1]->type == REDIS_REPLY_STRING) {
        struct ended ended = {ear, lw_slot(r->element[1]->str, (size_t)r->element[1]->len)};
        each_line(k, ends, &ended);
        atomic_store(&k->changed, true);
    } else if (is_word(r->element[0], "subscribe")) {
        ear->up = true;
        each_line(k, hears, ear);
    }
    return true;
}

/* Handles the refusal of a subscription. Returns false if the connection must be closed. */
static bool refused(struct lw_waking *k, struct lw_ear *ear, const char *text) {
    struct lw_turn turn;
    bool turned = lw_peer_turned(k->client, ear->redis, text, LW_ANY_SLOT, &turn);
    if (!turned) {
        /* The server is too old for sharded channels, or the user has no right to use them. */
        atomic_store(&k->plain, true);
        return false;
    }
    pthread_mutex_lock(&k->mutex);
    struct lw_line *line = pop_asked(ear);
    if (line) detach(line, turn.wait || turn.ask ? lw_boot_ms() + RETRY_MS : 0);
    pthread_mutex_unlock(&k->mutex);
    atomic_store(&k->changed, true);
    return line;
}

static bool take_reply(struct lw_waking *k, struct lw_ear *ear, const redisReply *r) {
    struct lw_err ignored = {0};
    if (ear->greeted < ear->login.n)
        return !lw_redis_login_answer(&ear->login, ear->greeted++, r, &ignored);
    if (r->type == REDIS_REPLY_ERROR) return refused(k, ear, r->str);
    /* On a connection without a subscription, the answer to PING is a status. */
    if (r->type == REDIS_REPLY_STATUS) return true;
    if (r->type != REDIS_REPLY_ARRAY || !r->elements) return false;
    pthread_mutex_lock(&k->mutex);
    bool good = take_push(k, ear, r);
    if (good) ear->rest_ms = 0;
    pthread_mutex_unlock(&k->mutex);
    return good;
}

static bool read_in(struct lw_waking *k, struct lw_ear *ear) {
    bool good = true;
    if (lw_redis_read(ear->redis)) ear->heard_ms = lw_boot_ms(), ear->asked = false;
    for (redisReply *reply; good && (reply = lw_redis_parsed(ear->redis));) {
        good = take_reply(k, ear, reply);
        freeReplyObject(reply);
    }
    return good && !ear->redis->err;
}

static bool write_out(struct lw_ear *ear) {
    struct lw_err why = {0};
    if (ear->out.failed) return false;
    ssize_t n = ear->out.n ? lw_stream_write(&ear->redis->stream, ear->out.p, ear->out.n, &why) : 0;
    if (n < 0) return false;
    memmove(ear->out.p, ear->out.p + n, n ? ear->out.n - (size_t)n : 0);
    ear->out.n -= (size_t)n;
    return true;
}

/* Sends PING to a node that was silent for LW_SILENT_MS. Returns false if the node has not answered
 * PING in time, or if connecting took too long. */
static bool is_alive(struct lw_waking *k, struct lw_ear *ear, bool ready) {
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    int64_t silent_ms = lw_boot_ms() - ear->heard_ms;
    if (!ready || ear->greeted < ear->login.n) return silent_ms < k->client->connect_ms;
    if (silent_ms < LW_SILENT_MS) return true;
    if (ear->asked) return silent_ms < 2 * LW_SILENT_MS;
    lw_text_add(&ear->out, ping, sizeof ping - 1);
    return ear->asked = true;
}

/* Reads and writes as much as the ear's socket allows without blocking. Closes the connection if it
 * is broken, or if the client has changed to plain channels since the ear connected. */
static void work_on(struct ears *e, struct lw_ear *ear, short events) {
    struct lw_err why = {0};
    int ready = lw_stream_go_on(&ear->redis->stream, &ear->at, &why);
    bool good = ready >= 0 && ear->plain == atomic_load(&e->waking->plain) &&
                is_alive(e->waking, ear, ready);
    if (good && ready && events) good = read_in(e->waking, ear);
    if (good && ready) good = write_out(ear);
    if (!good) shut(e, ear);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void wait_for_events(struct ears *e, int64_t until_ms, short *events) {
    struct pollfd fd[EARS_MAX + 1] = {{.fd = e->waking->rouse_fd, .events = POLLIN}};
    uint64_t ignored;
    for (size_t i = 0; i < e->n; i++) {
        const struct lw_ear *ear = e->ear[i];
        fd[i + 1] = (struct pollfd){.fd = ear->redis ? ear->redis->stream.fd : -1};
        if (ear->redis) fd[i + 1].events = lw_stream_events(&ear->redis->stream, ear->out.n > 0);
    }
    int64_t left = until_ms - lw_boot_ms(), most = e->n ? LINGER_MS : TURN_MAX_MS;
    poll(fd, e->n + 1, (int)(left < 0 ? 0 : left < most ? left : most));
    for (size_t i = 0; i < e->n; i++) events[i] = fd[i + 1].revents;
    /* Reading the eventfd resets it. */
    if (fd[0].revents && read(e->waking->rouse_fd, &ignored, sizeof ignored) < 0) return;
}

void *lw_listen_in_cluster(void *arg) {
    struct lw_waking *k = arg;
    struct ears e = {.waking = k};
    short events[EARS_MAX];
    int64_t next_ms = 0;
    while (!atomic_load(&k->stopping)) {
        if (atomic_load(&k->changed) || atomic_load(&k->moved) || lw_boot_ms() >= next_ms)
            next_ms = look_after_lines(&e);
        wait_for_events(&e, atomic_load(&k->changed) ? 0 : next_ms, events);
        for (size_t i = 0; i < e.n; i++)
            if (e.ear[i]->redis) work_on(&e, e.ear[i], events[i]);
        drop_ears(&e, lw_boot_ms());
    }
    for (size_t i = 0; i < e.n; i++) free_ear(e.ear[i]);
    return NULL;
}
