/* SPDX-License-Identifier: Apache-2.0 */
/* Shows locks, breaks them, and gives a TTL to locks that have none. */
#include "lock/one.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHOWN_MAX = 10000 };

/* Parses the value of a lock, which has the form TOKEN:FENCE or is a token alone. A token may have
 * the form LABEL/HEX. */
static void read_value(struct latchwork_lock_info *i, const char *p, size_t n, bool plain) {
    i->token = p;
    i->token_len = n;
    const char *colon = plain ? NULL : memrchr(p, ':', n);
    if (!colon) return;
    char digits[24];
    size_t n_fence = n - (size_t)(colon - p) - 1;
    if (n_fence == 0 || n_fence >= sizeof digits || strspn(colon + 1, "0123456789") < n_fence)
        return;
    memcpy(digits, colon + 1, n_fence);
    digits[n_fence] = '\0';
    i->fence = strtoull(digits, NULL, 10);
    /* Usually a fence is the time of its grant in µs, so the time of the grant is derived from the
     * fence. If Redis' clock was set back, the fence is larger than that time, so the derived time
     * is too late. */
    i->since_ms = (int64_t)(i->fence / 1000);
    i->token_len = (size_t)(colon - p);
    const char *slash = memrchr(p, '/', i->token_len);
    if (!slash) return;
    i->label = p;
    i->label_len = (size_t)(slash - p);
}

static redisReply *ask(struct latchwork_client *c, const char *word, struct lw_bytes key,
                       const char *const *more, struct latchwork_error *error) {
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_text(&call, word);
    if (key.p) lw_call_key(&call, key);
    for (; more && *more; more++) lw_call_text(&call, *more);
    return lw_client_call(c, &call, error);
}

static bool ask_number(struct latchwork_client *c, const char *word, struct lw_bytes key,
                       int64_t *out, struct latchwork_error *error) {
    redisReply *r = ask(c, word, key, NULL, error);
    if (!r) return false;
    *out = r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
    freeReplyObject(r);
    return true;
}

struct look {
    struct latchwork_client *client;
    latchwork_lock_seen *seen;
    void *ctx;
    bool stopped;
    int64_t shown;
    struct latchwork_error *error;
    /* the number of skipped keys that are not locks, and the first of them; NULL: they are not
     * counted */
    struct lw_foreign *foreign;
};

static void show(struct look *k, struct latchwork_lock_info *info) {
    info->size = sizeof *info;
    k->shown++;
    if (k->seen(k->ctx, info)) k->stopped = true;
}

static bool show_string(struct look *k, struct latchwork_lock_info *info, struct lw_bytes key,
                        bool plain) {
    redisReply *r = ask(k->client, "GET", key, NULL, k->error);
    if (!r) return false;
    bool good = ask_number(k->client, "PTTL", key, &info->left_ms, k->error);
    if (good && r->type == REDIS_REPLY_STRING && info->left_ms != -2) {
        read_value(info, r->str, (size_t)r->len, plain);
        show(k, info);
    }
    freeReplyObject(r);
    return good;
}

/* Asks the server that stores `key` for the server's time. */
static bool now_ms(struct look *k, struct lw_bytes key, int64_t *out) {
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_text(&call, "TIME");
    call.slot = lw_slot(key.p, key.n);
    redisReply *r = lw_client_call(k->client, &call, k->error);
    if (!r) return false;
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
        *out = strtoll(r->element[0]->str, NULL, 10) * 1000 +
               strtoll(r->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(r);
    return true;
}

static bool show_leases(struct look *k, struct latchwork_lock_info *info, struct lw_bytes key) {
    int64_t now = 0;
    if (!now_ms(k, key, &now)) return false;
    char last[16];
    snprintf(last, sizeof last, "%d", SHOWN_MAX - 1);
    redisReply *r = ask(k->client, "ZRANGE", key,
                        (const char *const[]){"0", last, "WITHSCORES", NULL}, k->error);
    if (!r) return false;
    for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements && !k->stopped; i += 2) {
        info->left_ms = strtoll(r->element[i + 1]->str, NULL, 10) - now;
        if (info->left_ms <= 0) continue;
        read_value(info, r->element[i]->str, (size_t)r->element[i]->len, false);
        show(k, info);
    }
    freeReplyObject(r);
    return true;
}

enum latchwork_result lw_one_show(struct latchwork_lock *l, latchwork_lock_seen *seen, void *ctx,
                                  struct latchwork_error *error) {
    struct look k = {.client = l->client, .seen = seen, .ctx = ctx, .error = error};
    enum latchwork_kind kind =
        l->o.kind == LATCHWORK_KIND_REENTRANT || l->o.kind == LATCHWORK_KIND_FAIR
            ? LATCHWORK_KIND_MUTEX
            : l->o.kind;
    struct latchwork_lock_info info = {.kind = kind, .name = l->name, .name_len = l->n_name};
    bool plain = l->o.flags & LATCHWORK_FLAG_PLAIN;
    int64_t readers = 0;
    if (l->key[LW_KEY_WAIT].p &&
        !ask_number(l->client, "ZCARD", l->key[LW_KEY_WAIT], &info.waiting, error))
        return LATCHWORK_LOCK_ERROR;
    if (l->key[LW_KEY_READ_WAIT].p &&
        !ask_number(l->client, "ZCARD", l->key[LW_KEY_READ_WAIT], &readers, error))
        return LATCHWORK_LOCK_ERROR;
    info.waiting += readers;
    bool good;
    if (l->o.kind == LATCHWORK_KIND_SEMAPHORE) {
        good = show_leases(&k, &info, l->key[LW_KEY_LOCK]);
    } else if (l->key[LW_KEY_READERS].p) {
        /* Show a read/write lock as two locks: the writer's and the readers'. */
        info.kind = LATCHWORK_KIND_WRITE;
        good = show_string(&k, &info, l->key[LW_KEY_LOCK], false);
        info = (struct latchwork_lock_info){.kind = LATCHWORK_KIND_READ,
                                            .name = l->name,
                                            .name_len = l->n_name,
                                            .waiting = info.waiting};
        good = good && (k.stopped || show_leases(&k, &info, l->key[LW_KEY_READERS]));
    } else {
        good = show_string(&k, &info, l->key[LW_KEY_LOCK], plain);
    }
    if (!good) return LATCHWORK_LOCK_ERROR;
    return k.shown
               ? LATCHWORK_LOCK_OK
               : lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NOT_HELD, "nobody holds it");
}

enum latchwork_result lw_one_end(struct latchwork_lock *l, uint64_t *fence,
                                 struct latchwork_error *error) {
    if (l->client->flags & LATCHWORK_FLAG_NO_SCRIPTS)
        return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_NO_SCRIPTS,
                            "breaking a lock needs scripts, which the client may not use");
    struct lw_bytes wait = l->key[l->key[LW_KEY_WAIT].p ? LW_KEY_WAIT : LW_KEY_LOCK];
    bool readers = l->key[LW_KEY_READERS].p;
    struct lw_call c;
    lw_call_script(&c, &lw_lock_script_break, readers ? 4 : 3);
    lw_call_key(&c, l->key[LW_KEY_FENCE]);
    lw_call_add(&c, wait.p, wait.n);
    lw_call_add(&c, l->key[LW_KEY_LOCK].p, l->key[LW_KEY_LOCK].n);
    if (readers) lw_call_add(&c, l->key[LW_KEY_READERS].p, l->key[LW_KEY_READERS].n);
    lw_call_number(&c, (int64_t)atomic_load(&l->seen));
    lw_call_number(&c, l->fence_keep_ms);
    lw_call_text(&c, lw_one_queues(l) ? "q" : "");
    redisReply *r = lw_client_call(l->client, &c, error);
    if (!r) return LATCHWORK_LOCK_ERROR;
    bool broken = r->type == REDIS_REPLY_STRING;
    if (broken) {
        uint64_t raised = lw_lock_saw(l, strtoull(r->str, NULL, 10));
        if (fence) *fence = raised;
    }
    freeReplyObject(r);
    if (broken) return LATCHWORK_LOCK_OK;
    if (c.sent_again)
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_UNKNOWN,
                            "an answer was lost with its connection, and nobody holds it now: "
                            "perhaps broken by this very call");
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NOT_HELD, "nobody holds it");
}

enum latchwork_result lw_one_give_ttl(struct latchwork_lock *l, int64_t ttl_ms,
                                      struct latchwork_error *error) {
    int64_t left = 0;
    if (!ask_number(l->client, "PTTL", l->key[LW_KEY_LOCK], &left, error))
        return LATCHWORK_LOCK_ERROR;
    if (left != -1)
        return lw_lock_fail(
            error, LATCHWORK_LOCK_BUSY, left == -2 ? LATCHWORK_E_NOT_HELD : LATCHWORK_E_HAS_TTL,
            left == -2 ? "there is no such lock" : "it has a TTL: %lld ms left", (long long)left);
    char ms[24];
    snprintf(ms, sizeof ms, "%lld", (long long)ttl_ms);
    redisReply *r =
        ask(l->client, "PEXPIRE", l->key[LW_KEY_LOCK], (const char *const[]){ms, NULL}, error);
    if (!r) return LATCHWORK_LOCK_ERROR;
    freeReplyObject(r);
    return LATCHWORK_LOCK_OK;
}

/* --- listing ---------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    enum latchwork_kind kind;
    const char *waiting[2];
} families[] = {
    {"lock", LATCHWORK_KIND_MUTEX, {"wait", "queue"}},
    {"write", LATCHWORK_KIND_WRITE, {"queue", "read-queue"}},
    {"read", LATCHWORK_KIND_READ, {"queue", "read-queue"}},
    {"permits", LATCHWORK_KIND_SEMAPHORE, {"wait", NULL}},
};

static bool add_waiting(struct look *k, const char *key, size_t n_prefix, const char *what,
                        int64_t *sum) {
    if (!what) return true;
    struct lw_buf t = {0};
    lw_buf_try(&t, key, n_prefix);
    lw_buf_try(&t, what, strlen(what));
    int64_t n = 0;
    struct latchwork_error error = {0};
    if (t.failed) lw_lock_no_memory(&error);
    bool good = !t.failed && (ask_number(k->client, "ZCARD", lw_bytes(t.p, t.n), &n, &error) ||
                              error.code == LATCHWORK_E_TYPE);
    lw_buf_free(&t);
    if (!good && k->error) *k->error = error;
    *sum += n;
    return good;
}

/* Shows the lock that is stored in the key lwl:{NAME}:WHAT. Ignores keys with other names. */
static bool list_own(struct look *k, struct lw_bytes key) {
    const char *colon = memrchr(key.p, ':', key.n);
    if (!colon || key.n < 8 || memcmp(key.p, "lwl:{", 5) || colon < key.p + 6 || colon[-1] != '}')
        return true;
    size_t prefix = (size_t)(colon - key.p) + 1, n_what = key.n - prefix;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        if (strlen(families[f].what) != n_what || memcmp(colon + 1, families[f].what, n_what))
            continue;
        struct latchwork_lock_info info = {
            .kind = families[f].kind, .name = key.p + 5, .name_len = prefix - 7};
        if (!add_waiting(k, key.p, prefix, families[f].waiting[0], &info.waiting) ||
            !add_waiting(k, key.p, prefix, families[f].waiting[1], &info.waiting))
            return false;
        bool leases = info.kind == LATCHWORK_KIND_READ || info.kind == LATCHWORK_KIND_SEMAPHORE;
        return leases ? show_leases(k, &info, key) : show_string(k, &info, key, false);
    }
    return true;
}

static bool list_key(struct look *k, struct lw_bytes key) {
    struct latchwork_lock_info info = {
        .kind = LATCHWORK_KIND_MUTEX, .name = key.p, .name_len = key.n};
    return show_string(k, &info, key, false);
}

/* Shows the lock that is stored in one key. Counts and skips a key of another Redis type, because
 * it is no lock of this library. */
static bool list_one(struct look *k, struct lw_bytes key, unsigned flags) {
    struct latchwork_error error = {0}, *wanted = k->error;
    k->error = &error;
    bool good = (flags & LATCHWORK_FLAG_KEYS ? list_key : list_own)(k, key);
    k->error = wanted;
    if (good) return true;
    if (error.code == LATCHWORK_E_TYPE) {
        if (k->foreign && !k->foreign->n++)
            snprintf(k->foreign->first, sizeof k->foreign->first, "%.*s", (int)key.n, key.p);
        return true;
    }
    if (wanted) *wanted = error;
    return false;
}

static bool list_page(struct look *k, const redisReply *page, unsigned flags) {
    for (size_t i = 0; i < page->elements && !k->stopped; i++) {
        struct lw_bytes key = lw_bytes(page->element[i]->str, (size_t)page->element[i]->len);
        if (!list_one(k, key, flags)) return false;
    }
    return true;
}

enum latchwork_result latchwork_lock_list(struct latchwork_client *c, const char *glob,
                                          unsigned flags, latchwork_lock_seen *seen, void *ctx,
                                          struct latchwork_error *error) {
    return lw_lock_list(c, glob, flags, seen, ctx, NULL, error);
}

static redisReply *scan(struct latchwork_client *c, int slot, const char *cursor, const char *match,
                        struct latchwork_error *error) {
    const char *words[] = {"SCAN", cursor, "MATCH", match, "COUNT", "500"};
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) lw_call_text(&call, words[i]);
    call.slot = slot;
    return lw_client_call(c, &call, error);
}

/* Shows the locks of one server. In a cluster, that server is the owner of `slot`. */
static bool list_server(struct look *k, int slot, const char *match, unsigned flags) {
    char cursor[32] = "0";
    bool good = true;
    do {
        redisReply *r = scan(k->client, slot, cursor, match, k->error);
        good = r != NULL;
        if (!r) break;
        if (r->type == REDIS_REPLY_ARRAY && r->elements == 2) {
            snprintf(cursor, sizeof cursor, "%s", r->element[0]->str);
            good = list_page(k, r->element[1], flags);
        } else {
            cursor[0] = '0', cursor[1] = '\0';
        }
        freeReplyObject(r);
    } while (good && !k->stopped && strcmp(cursor, "0"));
    return good;
}

static bool list_masters(struct look *k, const char *match, unsigned flags) {
    int slot[LW_PEERS_MAX];
    size_t n = lw_peers_slots(k->client, slot, LW_PEERS_MAX, k->error);
    bool good = n > 0;
    for (size_t i = 0; good && !k->stopped && i < n; i++)
        good = list_server(k, slot[i], match, flags);
    return good;
}

enum latchwork_result lw_lock_list(struct latchwork_client *c, const char *glob, unsigned flags,
                                   latchwork_lock_seen *seen, void *ctx, struct lw_foreign *foreign,
                                   struct latchwork_error *error) {
    struct look k = {.client = c, .seen = seen, .ctx = ctx, .error = error, .foreign = foreign};
    if (!lw_client_ok(c, error)) return LATCHWORK_LOCK_ERROR;
    if (!seen) return lw_lock_wrong(error, "seen is NULL");
    struct lw_buf t = {0};
    lw_buf_tryf(&t, flags & LATCHWORK_FLAG_KEYS ? "%s" : "lwl:{%s}:*", glob ? glob : "*");
    char *match = lw_buf_take(&t);
    if (!match) return lw_lock_no_memory(error);
    bool all = c->table && c->slot == LW_ANY_SLOT;
    bool good = all ? list_masters(&k, match, flags) : list_server(&k, LW_ANY_SLOT, match, flags);
    free(match);
    return good ? LATCHWORK_LOCK_OK : LATCHWORK_LOCK_ERROR;
}
