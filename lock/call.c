/* SPDX-License-Identifier: Apache-2.0 */
/* Sends calls to Redis and translates error replies into error codes and advice. */
#include "lock/client.h"

#include "base/clock.h"
#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* maximum number of times that a call is sent again after a node refused it */
enum { HOPS_MAX = 32 };

enum latchwork_result lw_lock_fail(struct latchwork_error *error, enum latchwork_result result,
                                   int code, const char *fmt, ...) {
    if (!error) return result;
    error->code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error->text, sizeof error->text, fmt, ap);
    va_end(ap);
    return result;
}

enum latchwork_result lw_lock_no_memory(struct latchwork_error *error) {
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_MEMORY, "out of memory");
}

int lw_broken_code(enum lw_redis_error error) {
    return error == LW_REDIS_MEMORY ? LATCHWORK_E_MEMORY : LATCHWORK_E_CONNECT;
}

const char *latchwork_result_name(enum latchwork_result result) {
    static const char *const names[] = {"ok", "busy", "lost", "error"};
    return (unsigned)result < sizeof names / sizeof *names ? names[result] : "unknown";
}

const char *latchwork_code_name(int code) {
    static const char *const names[] = {
        [LATCHWORK_E_NONE] = "none",
        [LATCHWORK_E_BUSY] = "busy",
        [LATCHWORK_E_NO_TTL] = "no_ttl",
        [LATCHWORK_E_NOT_OWNER] = "not_owner",
        [LATCHWORK_E_EXPIRED] = "expired",
        [LATCHWORK_E_UNKNOWN] = "unknown",
        [LATCHWORK_E_ARGUMENT] = "argument",
        [LATCHWORK_E_FORK] = "fork",
        [LATCHWORK_E_CLOSED] = "closed",
        [LATCHWORK_E_CONNECT] = "connect",
        [LATCHWORK_E_TIMEOUT] = "timeout",
        [LATCHWORK_E_POOL] = "pool",
        [LATCHWORK_E_DENIED] = "denied",
        [LATCHWORK_E_TYPE] = "type",
        [LATCHWORK_E_FULL] = "full",
        [LATCHWORK_E_READONLY] = "readonly",
        [LATCHWORK_E_NO_SCRIPTS] = "no_scripts",
        [LATCHWORK_E_REPLY] = "reply",
        [LATCHWORK_E_MAJORITY] = "majority",
        [LATCHWORK_E_UNSUPPORTED] = "unsupported",
        [LATCHWORK_E_NOT_HELD] = "not_held",
        [LATCHWORK_E_HAS_TTL] = "has_ttl",
        [LATCHWORK_E_MEMORY] = "memory",
        [LATCHWORK_E_SYSTEM] = "system",
    };
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "other";
}

const char *latchwork_version(void) { return LATCHWORK_VERSION; }
int latchwork_version_number(void) { return LATCHWORK_VERSION_NUMBER; }

static bool fill_random(unsigned char *p, size_t n, struct latchwork_error *error) {
    for (size_t got = 0; got < n;) {
        ssize_t r = getrandom(p + got, n - got, 0);
        if (r < 0 && errno != EINTR) {
            lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_SYSTEM,
                         "no random bytes for a token: getrandom: %s", strerror(errno));
            return false;
        }
        if (r > 0) got += (size_t)r;
    }
    return true;
}

/* Writes random hex digits. Each thread keeps a stock of random bytes from the kernel. A child of
 * fork() discards the stock that it inherited, because the parent uses the same bytes. */
bool lw_random_hex(char *out, size_t size, struct latchwork_error *error) {
    static _Thread_local unsigned char stock[256];
    static _Thread_local size_t left;
    static _Thread_local unsigned of;
    size_t n = size / 2;
    assert(size % 2 == 1 && n <= sizeof stock);
    if (left < n || of != lw_forks()) {
        left = 0;
        if (!fill_random(stock, sizeof stock, error)) return false;
        left = sizeof stock;
        of = lw_forks();
    }
    unsigned char *bytes = stock + sizeof stock - left;
    lw_hex(bytes, n, out);
    left -= n;
    return true;
}

/* --- building --------------------------------------------------------------------------------- */

void lw_call_script(struct lw_call *call, const struct lw_script *script, int n_keys) {
    call->script = script;
    call->n = call->n_numbers = call->again = 0;
    call->slot = LW_ANY_SLOT;
    call->sent_again = false;
    call->sent_ms = 0;
    if (!script) return;
    lw_call_add(call, "EVALSHA", 7);
    lw_call_add(call, script->sha1, 40);
    lw_call_number(call, n_keys);
}

void lw_call_add(struct lw_call *call, const char *p, size_t n) {
    assert(call->n < LW_CALL_ARGS);
    call->arg[call->n] = p;
    call->size[call->n++] = n;
}

void lw_call_key(struct lw_call *call, struct lw_bytes key) {
    if (call->slot == LW_ANY_SLOT) call->slot = lw_slot(key.p, key.n);
    lw_call_add(call, key.p, key.n);
}

void lw_call_text(struct lw_call *call, const char *s) { lw_call_add(call, s, strlen(s)); }

void lw_call_number(struct lw_call *call, int64_t n) {
    assert(call->n_numbers < LW_CALL_NUMBERS);
    char *text = call->number[call->n_numbers++];
    int size = snprintf(text, sizeof call->number[0], "%" PRId64, n);
    lw_call_add(call, text, (size_t)size);
}

/* --- sending ---------------------------------------------------------------------------------- */

void lw_call_encode(struct lw_call *call, struct lw_buf *out) {
    char *bytes = NULL;
    int n = redisFormatCommandArgv(&bytes, call->n, call->arg, call->size);
    out->failed = out->failed || n < 0;
    lw_buf_try(out, bytes, n < 0 ? 0 : (size_t)n);
    free(bytes);
}

/* Sends a call. If an allocation fails, sends nothing and returns false with *error. */
static bool send_call(struct lw_redis *redis, struct lw_call *call, struct latchwork_error *error) {
    char *bytes = NULL;
    int n = redisFormatCommandArgv(&bytes, call->n, call->arg, call->size);
    if (n < 0) return lw_lock_no_memory(error), false;
    call->sent_ms = lw_boot_ms();
    lw_redis_send(redis, bytes, (size_t)n);
    free(bytes);
    return true;
}

bool lw_is_no_script(const redisReply *reply) {
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

redisReply *lw_next_reply(struct latchwork_client *c, struct lw_redis *redis,
                          struct latchwork_error *error) {
    redisReply *reply = lw_redis_reply(redis);
    if (reply) {
        bool found = c->servers && c->servers->kind != LW_REDIS_LIST;
        if (found && reply->type == REDIS_REPLY_ERROR && lw_redis_deposed(reply->str))
            lw_redis_break(redis, LW_REDIS_BROKEN, lw_redis_deposed(reply->str));
        return reply;
    }
    if (redis->err == LW_REDIS_LATE)
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_TIMEOUT,
                     "Redis at %s: no answer in time (command_ms)", c->where);
    else
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, lw_broken_code(redis->err),
                     "Redis at %s: the connection broke: %s", c->where, redis->why);
    return NULL;
}

/* Sends the call and returns its reply. If `asking` is true, sends ASKING first, because the slot
 * is being moved to this node. */
static redisReply *exchange(struct latchwork_client *c, struct lw_redis *redis,
                            struct lw_call *call, bool asking, struct latchwork_error *error) {
    if (asking) {
        lw_redis_append(redis, "ASKING");
        redisReply *reply = lw_next_reply(c, redis, error);
        if (!reply || reply->type == REDIS_REPLY_ERROR) return reply;
        freeReplyObject(reply);
    }
    return send_call(redis, call, error) ? lw_next_reply(c, redis, error) : NULL;
}

static redisReply *exchange_script(struct latchwork_client *c, struct lw_redis *redis,
                                   struct lw_call *call, bool asking,
                                   struct latchwork_error *error) {
    redisReply *reply = exchange(c, redis, call, asking, error);
    if (!reply || !call->script || !lw_is_no_script(reply)) return reply;
    freeReplyObject(reply);
    /* EVAL with the script's text also stores the script in Redis, so the next call can use
     * EVALSHA. */
    call->arg[0] = "EVAL", call->size[0] = 4;
    call->arg[1] = call->script->text, call->size[1] = strlen(call->script->text);
    return exchange(c, redis, call, asking, error);
}

redisReply *lw_call_on(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call,
                       struct latchwork_error *error) {
    return exchange_script(c, redis, call, false, error);
}

redisReply *lw_call_asking(struct latchwork_client *c, struct lw_redis *redis, struct lw_call *call,
                           struct latchwork_error *error) {
    return exchange_script(c, redis, call, true, error);
}

/* Prepares the call to be sent to another server: EVALSHA replaces EVAL. If that server does not
 * have the script, exchange_script() sends the script's text. */
static void rewind_call(struct lw_call *call) {
    if (!call->script) return;
    call->arg[0] = "EVALSHA", call->size[0] = 7;
    call->arg[1] = call->script->sha1, call->size[1] = 40;
}

/* Prepares a call for being sent again, although the server may have executed it already. */
static void send_again(struct lw_call *call) {
    call->sent_again = true;
    if (call->again) call->arg[call->again] = "1", call->size[call->again] = 1;
    rewind_call(call);
}

static int64_t pause_ms(int hop) { return (hop < 5 ? 2 << hop : 50) + (int64_t)lw_random(10); }

/* Decides whether a refused call is sent again. Pauses first if the call will go to the same
 * server. */
static bool go_on(struct latchwork_client *c, const struct lw_turn *turn, int hop,
                  int64_t until_ms) {
    if (hop >= HOPS_MAX || lw_boot_ms() >= until_ms || atomic_load(&c->interrupted)) return false;
    if (turn->wait) lw_sleep_ms(pause_ms(hop));
    return true;
}

static redisReply *call_in_cluster(struct latchwork_client *c, struct lw_call *call,
                                   struct latchwork_error *error) {
    struct lw_turn turn = {0};
    int64_t until_ms = lw_boot_ms() + c->command_ms;
    int slot = call->slot == LW_ANY_SLOT ? c->slot : call->slot;
    for (int hop = 0, broken = 0;; hop++) {
        uint64_t ask = turn.ask;
        struct lw_redis *redis =
            ask ? lw_client_get_at(c, ask, error) : lw_client_get(c, slot, error);
        if (!redis) return NULL;
        redisReply *reply = exchange_script(c, redis, call, ask, error);
        bool turned = reply && reply->type == REDIS_REPLY_ERROR &&
                      lw_peer_turned(c, redis, reply->str, slot, &turn);
        lw_client_put(c, redis);
        if (reply && (!turned || !go_on(c, &turn, hop, until_ms)))
            return lw_take_reply(c, reply, error);
        if (!reply && broken++) return NULL;
        if (!reply) turn = (struct lw_turn){0};
        (!reply || turn.half_done ? send_again : rewind_call)(call);
        if (reply) freeReplyObject(reply);
    }
}

static redisReply *call_one_server(struct latchwork_client *c, struct lw_call *call,
                                   struct latchwork_error *error) {
    for (int attempt = 0;; attempt++) {
        struct lw_redis *redis = lw_client_get(c, LW_ANY_SLOT, error);
        if (!redis) return NULL;
        redisReply *reply = lw_call_on(c, redis, call, error);
        lw_client_put(c, redis);
        if (reply) return lw_take_reply(c, reply, error);
        send_again(call);
        if (attempt) return NULL;
    }
}

redisReply *lw_client_call(struct latchwork_client *c, struct lw_call *call,
                           struct latchwork_error *error) {
    if (!lw_client_ok(c, error)) return NULL;
    return (c->table ? call_in_cluster : call_one_server)(c, call, error);
}

/* --- errors ----------------------------------------------------------------------------------- */

static const struct {
    const char *begins;
    int code;
    const char *advice;
} meanings[] = {
    {"NOAUTH", LATCHWORK_E_DENIED, "; give user and password in the url"},
    {"WRONGPASS", LATCHWORK_E_DENIED, "; check user and password in the url"},
    {"ERR invalid password", LATCHWORK_E_DENIED, "; check the password in the url"},
    {"NOPERM", LATCHWORK_E_DENIED,
     "; the user needs ~lwl:* &lwl:* and the commands of the lock library"},
    {"WRONGTYPE", LATCHWORK_E_TYPE,
     "; the name is used for something that is not this kind of lock"},
    {"OOM", LATCHWORK_E_FULL, "; raise maxmemory, or free some memory"},
    {"READONLY", LATCHWORK_E_READONLY, "; this is a replica: name the master"},
    {"LOADING", LATCHWORK_E_READONLY, "; try again when it is up"},
    {"MASTERDOWN", LATCHWORK_E_READONLY, "; try again when the master is up"},
    {"MISCONF", LATCHWORK_E_READONLY, "; Redis can't save: see its log"},
    {"ERR unknown command", LATCHWORK_E_NO_SCRIPTS,
     "; if scripts are forbidden, open the client with LATCHWORK_FLAG_NO_SCRIPTS"},
    {"NOREPLICAS", LATCHWORK_E_READONLY, "; try again when its replicas are up"},
    {"MOVED ", LATCHWORK_E_READONLY, "; its slot is on another node of the cluster"},
    {"ASK ", LATCHWORK_E_READONLY, "; its slot is being moved: try again"},
    {"TRYAGAIN", LATCHWORK_E_READONLY, "; its slot is being moved: try again"},
    {"CLUSTERDOWN", LATCHWORK_E_READONLY, "; try again when the cluster is up"},
    {"ERR Could not find scripting engine", LATCHWORK_E_NO_SCRIPTS,
     "; load the server's Lua module, or open the client with LATCHWORK_FLAG_NO_SCRIPTS"},
};

static int meaning_of(const char *text) {
    /* If a command fails inside a script, Redis wraps the error in a text that differs between
     * versions, for example "ERR Error running script …: @user_script:3: OOM command…". */
    if (strstr(text, "WRONGTYPE ")) return 4;
    if (strstr(text, "OOM command not allowed")) return 5;
    if (strncmp(text, "NOPERM", 6) == 0 && (strstr(text, "'eval") || strstr(text, "'EVAL")))
        return 10;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (strncmp(text, meanings[i].begins, strlen(meanings[i].begins)) == 0) return (int)i;
    return -1;
}

redisReply *lw_take_reply(struct latchwork_client *c, redisReply *reply,
                          struct latchwork_error *error) {
    if (reply->type != REDIS_REPLY_ERROR) return reply;
    int i = meaning_of(reply->str);
    bool moves = i < 0 && lw_redis_deposed(reply->str);
    const char *advice = i >= 0  ? meanings[i].advice
                         : moves ? "; its slot is being moved: try again"
                                 : "";
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR,
                 i >= 0  ? meanings[i].code
                 : moves ? (int)LATCHWORK_E_READONLY
                         : (int)LATCHWORK_E_REPLY,
                 "Redis at %s: %.300s%s", c->where, reply->str, advice);
    freeReplyObject(reply);
    return NULL;
}

bool lw_may_pass(const struct latchwork_error *error) {
    static const char *const passing[] = {": BUSY ", ": TRYAGAIN ", ": CLUSTERDOWN "};
    if (error->code == LATCHWORK_E_REPLY)
        for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
            if (strstr(error->text, passing[i])) return true;
    return error->code == LATCHWORK_E_CONNECT || error->code == LATCHWORK_E_TIMEOUT ||
           error->code == LATCHWORK_E_POOL || error->code == LATCHWORK_E_FULL ||
           error->code == LATCHWORK_E_READONLY || error->code == LATCHWORK_E_MAJORITY;
}
