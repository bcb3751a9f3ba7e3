/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/one.h"

#include "base/clock.h"
#include "base/redis/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct lw_shape {
    enum latchwork_kind kind;
    /* `queues` is true if waiters have tickets. `shared` is true if each lease is a member of a
     * zset, and not a string. */
    bool queues, shared;
    int leases; /* index of the key that contains the leases */
    /* Endings of the names of the keys. The names begin with lwl:{NAME}: unless the caller chose
     * other names. */
    const char *names[LW_LOCK_KEYS];
};

static const struct lw_shape shapes[] = {
    {LATCHWORK_KIND_MUTEX, false, false, LW_KEY_LOCK, {"lock", "fence", "wait"}},
    {LATCHWORK_KIND_REENTRANT, false, false, LW_KEY_LOCK, {"lock", "fence", "wait"}},
    {LATCHWORK_KIND_FAIR, true, false, LW_KEY_LOCK, {"lock", "fence", "queue", "alive"}},
    {LATCHWORK_KIND_READ,
     true,
     true,
     LW_KEY_READERS,
     {"write", "fence", "queue", "alive", "read", "read-queue"}},
    {LATCHWORK_KIND_WRITE,
     true,
     false,
     LW_KEY_LOCK,
     {"write", "fence", "queue", "alive", "read", "read-queue"}},
    {LATCHWORK_KIND_SEMAPHORE, false, true, LW_KEY_LOCK, {"permits", "fence", "wait"}},
};

bool lw_one_queues(const struct latchwork_lock *l) { return l->shape->queues; }
bool lw_one_tells(const struct latchwork_lock *l) {
    return l->key[LW_KEY_WAIT].p && !(l->o.flags & LATCHWORK_FLAG_PLAIN);
}
struct lw_bytes lw_one_wait_name(const struct latchwork_lock *l) {
    if (l->o.kind == LATCHWORK_KIND_READ) return l->key[LW_KEY_READ_WAIT];
    return l->key[LW_KEY_WAIT].p ? l->key[LW_KEY_WAIT] : l->key[LW_KEY_LOCK];
}
static bool has_readers(const struct latchwork_lock *l) { return l->key[LW_KEY_READERS].p != NULL; }
static bool is_plain(const struct latchwork_lock *l) { return l->o.flags & LATCHWORK_FLAG_PLAIN; }
static bool no_scripts(const struct latchwork_lock *l) {
    return l->client->flags & LATCHWORK_FLAG_NO_SCRIPTS;
}

static void add_key(struct lw_call *c, const struct latchwork_lock *l, int key) {
    const struct lw_bytes *b = &l->key[l->key[key].p ? key : LW_KEY_LOCK];
    lw_call_key(c, *b);
}

/* --- taking ----------------------------------------------------------------------------------- */

void lw_one_granted(struct lw_take *t, const char *fence, int64_t sent_ms) {
    struct latchwork_hold *h = t->hold;
    h->fence = strtoull(fence, NULL, 10);
    if (is_plain(t->lock))
        snprintf(h->value, sizeof h->value, "%s", h->token);
    else
        snprintf(h->value, sizeof h->value, "%s:%s", h->token, fence);
    lw_hold_leased(h, sent_ms, t->lock->o.ttl_ms);
}

static void begin_take(struct lw_call *c, struct lw_take *t) {
    /* Append the arguments that are common to the take scripts of all kinds. */
    lw_call_text(c, t->hold->token);
    lw_call_number(c, t->lock->o.ttl_ms);
    lw_call_number(c, (int64_t)atomic_load(&t->lock->seen));
    lw_call_number(c, t->lock->fence_keep_ms);
}

static void add_again(struct lw_call *c, struct lw_take *t) {
    lw_call_text(c, t->uncertain ? "1" : "0");
    c->again = c->n - 1;
}

static void queue_take(struct lw_call *c, struct lw_take *t) {
    struct latchwork_lock *l = t->lock;
    int n = has_readers(l) ? 6 : 4;
    lw_call_script(c, &lw_lock_script_queue_take, n);
    for (int i = 0; i < n; i++) add_key(c, l, i);
    begin_take(c, t);
    lw_call_text(c, l->o.kind == LATCHWORK_KIND_READ ? "r" : "w");
    lw_call_text(c, t->wait ? t->waiter : "");
    lw_call_text(c, t->ticket);
    lw_call_number(c, LW_LIVE_MS);
    add_again(c, t);
}

static void counted_take(struct lw_call *c, struct lw_take *t) {
    struct latchwork_lock *l = t->lock;
    bool permits = l->o.kind == LATCHWORK_KIND_SEMAPHORE;
    lw_call_script(c, permits ? &lw_lock_script_permit_take : &lw_lock_script_mutex_take, 3);
    for (int i = 0; i < 3; i++) add_key(c, l, i);
    begin_take(c, t);
    lw_call_number(c, permits ? l->o.permits : is_plain(l));
    lw_call_text(c, t->wait && l->key[LW_KEY_WAIT].p ? t->client : "");
    lw_call_text(c, t->more ? "1" : "0");
    if (permits)
        add_again(c, t);
    else
        lw_call_number(c, l->o.give_ttl_ms);
}

static enum lw_took malformed(const struct lw_take *t, const redisReply *r, const char *script,
                              struct latchwork_error *error) {
    char name[64], why[LW_REPLY_TEXT];
    snprintf(name, sizeof name, "%s.lua", script);
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_REPLY, "Redis at %s: %s",
                 t->lock->client->where,
                 lw_malformed(why, r, name, "string, integer or [integer, string]"));
    return LW_FAILED;
}

int64_t lw_one_left_ms(int64_t pttl) { return pttl == 0 || pttl == -2 ? 1 : pttl; }

static enum lw_took took(struct lw_take *t, const redisReply *r, const struct lw_call *c,
                         struct latchwork_error *error) {
    if (r->type == REDIS_REPLY_STRING) {
        lw_one_granted(t, r->str, c->sent_ms);
        return LW_TAKEN;
    }
    if (r->type == REDIS_REPLY_ARRAY) {
        if (r->elements != 2 || r->element[0]->type != REDIS_REPLY_INTEGER ||
            r->element[1]->type != REDIS_REPLY_STRING)
            return malformed(t, r, c->script->name, error);
        t->left_ms = r->element[0]->integer;
        snprintf(t->ticket, sizeof t->ticket, "%s", r->element[1]->str);
        return LW_HELD;
    }
    if (r->type != REDIS_REPLY_INTEGER) return malformed(t, r, c->script->name, error);
    t->left_ms = lw_one_left_ms(r->integer);
    return LW_HELD;
}

enum lw_took lw_one_take(struct lw_take *t, struct latchwork_error *error) {
    if (no_scripts(t->lock)) return lw_watch_take(t, error);
    struct lw_call c;
    (lw_one_queues(t->lock) ? queue_take : counted_take)(&c, t);
    redisReply *r = lw_client_call(t->lock->client, &c, error);
    t->uncertain = t->uncertain || c.sent_again;
    if (!r) return LW_FAILED;
    enum lw_took result = took(t, r, &c, error);
    freeReplyObject(r);
    return result;
}

/* --- giving back ------------------------------------------------------------------------------ */

static void add_queue_keys(struct lw_call *c, const struct latchwork_lock *l,
                           const struct lw_script *script) {
    lw_call_script(c, script, has_readers(l) ? 5 : 3);
    add_key(c, l, LW_KEY_LOCK);
    for (int i = LW_KEY_WAIT; i < (has_readers(l) ? LW_LOCK_KEYS : LW_KEY_READERS); i++)
        add_key(c, l, i);
}

void lw_one_leave(struct lw_take *t) {
    struct latchwork_lock *l = t->lock;
    struct lw_call c;
    if (lw_one_queues(l)) {
        add_queue_keys(&c, l, &lw_lock_script_queue_leave);
        lw_call_text(&c, t->waiter);
        lw_call_text(&c, l->o.kind == LATCHWORK_KIND_READ ? "r" : "w");
    } else if (no_scripts(l)) {
        lw_call_script(&c, NULL, 0);
        lw_call_add(&c, "ZREM", 4);
        add_key(&c, l, LW_KEY_WAIT);
        lw_call_text(&c, t->client);
    } else {
        lw_call_script(&c, &lw_lock_script_leave, 1);
        add_key(&c, l, LW_KEY_WAIT);
        lw_call_text(&c, t->client);
    }
    /* Ignore an error: a waiter that stays in Redis' list is harmless, and is removed later. */
    struct latchwork_error ignored;
    redisReply *r = lw_client_call(l->client, &c, &ignored);
    if (r) freeReplyObject(r);
}

static void drop_call(struct latchwork_hold *h, struct lw_call *c) {
    struct latchwork_lock *l = h->lock;
    if (lw_one_queues(l)) {
        add_queue_keys(c, l, &lw_lock_script_queue_drop);
        lw_call_text(c, h->value);
        lw_call_text(c, l->o.kind == LATCHWORK_KIND_READ ? "r" : "w");
        return;
    }
    bool permits = l->o.kind == LATCHWORK_KIND_SEMAPHORE, hint = l->hint.p != NULL;
    lw_call_script(c, permits ? &lw_lock_script_permit_drop : &lw_lock_script_mutex_drop,
                   hint ? 4 : 2);
    add_key(c, l, LW_KEY_LOCK);
    add_key(c, l, LW_KEY_WAIT);
    if (hint) {
        lw_call_add(c, l->hint_if.p, l->hint_if.n);
        lw_call_add(c, l->hint_to.p, l->hint_to.n);
    }
    lw_call_text(c, h->value);
    if (hint) lw_call_add(c, l->hint.p, l->hint.n);
}

enum latchwork_result lw_one_release(struct latchwork_hold *h, struct latchwork_error *error) {
    bool sent_again = false;
    int done;
    if (no_scripts(h->lock)) {
        done = lw_watch_drop(h, &sent_again, error);
    } else {
        struct lw_call c;
        drop_call(h, &c);
        redisReply *r = lw_client_call(h->lock->client, &c, error);
        sent_again = c.sent_again;
        done = r ? r->type == REDIS_REPLY_INTEGER && r->integer == 1 : -1;
        if (r) freeReplyObject(r);
    }
    if (done < 0) return LATCHWORK_LOCK_ERROR;
    return done ? LATCHWORK_LOCK_OK : lw_hold_not_ours(h, sent_again, error);
}

/* --- keeping ---------------------------------------------------------------------------------- */

static void keep_call(struct latchwork_hold *h, int64_t ttl_ms, struct lw_call *c) {
    const struct lw_shape *s = h->lock->shape;
    lw_call_script(c, s->shared ? &lw_lock_script_share_keep : &lw_lock_script_string_keep, 1);
    add_key(c, h->lock, s->leases);
    lw_call_text(c, h->value);
    lw_call_number(c, ttl_ms);
}

static enum latchwork_result keep(struct latchwork_hold *h, int64_t ttl_ms,
                                  struct latchwork_error *error) {
    int done;
    int64_t sent_ms = 0;
    if (no_scripts(h->lock)) {
        done = lw_watch_keep(h, ttl_ms, &sent_ms, error);
    } else {
        struct lw_call c;
        keep_call(h, ttl_ms, &c);
        redisReply *r = lw_client_call(h->lock->client, &c, error);
        sent_ms = c.sent_ms;
        done = r ? r->type == REDIS_REPLY_INTEGER && r->integer == 1 : -1;
        if (r) freeReplyObject(r);
    }
    if (done < 0) return LATCHWORK_LOCK_ERROR;
    if (!done) return lw_hold_not_ours(h, false, error);
    if (ttl_ms) lw_hold_leased(h, sent_ms, ttl_ms);
    return LATCHWORK_LOCK_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void free_names(struct latchwork_lock *l) {
    for (int i = 0; i < LW_LOCK_KEYS; i++) free((void *)(uintptr_t)l->key[i].p);
    free((void *)(uintptr_t)l->hint_if.p);
    free((void *)(uintptr_t)l->hint_to.p);
    free((void *)(uintptr_t)l->hint.p);
}

static const struct lw_lock_ops one = {.acquire = lw_one_acquire,
                                       .release = lw_one_release,
                                       .keep = keep,
                                       .keep_call = keep_call,
                                       .lock_fini = free_names,
                                       .show = lw_one_show,
                                       .end = lw_one_end,
                                       .give_ttl = lw_one_give_ttl};

/* Returns the text of `t` as a name, which the caller must free. If an allocation failed, the name
 * is NULL, and *memory becomes true. */
static struct lw_bytes name_of(struct lw_buf *t, bool *memory) {
    size_t n = t->n;
    char *p = lw_buf_take(t);
    *memory = *memory || !p;
    return lw_bytes(p, p ? n : 0);
}

static struct lw_bytes copy(const char *p, size_t n, bool *memory) {
    struct lw_buf t = {0};
    lw_buf_try(&t, p, n);
    return p ? name_of(&t, memory) : lw_bytes(NULL, 0);
}

static struct lw_bytes own_name(const struct latchwork_lock *l, const char *what, bool *memory) {
    struct lw_buf t = {0};
    lw_buf_try(&t, "lwl:{", 5);
    lw_buf_try(&t, l->name, l->n_name);
    lw_buf_tryf(&t, "}:%s", what);
    return name_of(&t, memory);
}

/* Returns a name for a key that must be in the same Cluster slot as a lock with a name chosen by
 * the user. The returned name contains the hash tag of the user's name, or the whole user's name if
 * that has no hash tag. */
static struct lw_bytes beside_name(const struct latchwork_lock *l, const char *what, bool *memory) {
    struct lw_bytes key = lw_bytes(l->name, l->n_name);
    const char *open = !key.p ? NULL : memchr(key.p, '{', key.n);
    const char *close = open ? memchr(open, '}', key.n - (size_t)(open - key.p)) : NULL;
    if (!close || close == open + 1) return own_name(l, what, memory);
    struct lw_buf t = {0};
    lw_buf_try(&t, "lwl:", 4);
    lw_buf_try(&t, open, (size_t)(close - open) + 1);
    lw_buf_try(&t, ":", 1);
    lw_buf_try(&t, key.p, key.n);
    lw_buf_tryf(&t, ":%s", what);
    return name_of(&t, memory);
}

static bool take_custom(struct latchwork_lock *l, const struct latchwork_lock_names *n,
                        bool *memory) {
    bool hint = n->hint.p || n->hint_if.p || n->hint_to.p;
    if (n->size < sizeof *n || !n->lock.p || !n->lock.n || !n->fence.p || !n->fence.n) return false;
    if (hint && !(n->hint.p && n->hint_if.p && n->hint_to.p)) return false;
    l->key[LW_KEY_LOCK] = copy(n->lock.p, n->lock.n, memory);
    l->key[LW_KEY_FENCE] = copy(n->fence.p, n->fence.n, memory);
    l->key[LW_KEY_WAIT] = copy(n->wait.p, n->wait.n, memory);
    l->hint_if = copy(n->hint_if.p, n->hint_if.n, memory);
    l->hint_to = copy(n->hint_to.p, n->hint_to.n, memory);
    l->hint = copy(n->hint.p, n->hint.n, memory);
    /* If the names were chosen by the user, programs other than this library may also use the fence
     * counter, so it must never expire. */
    l->fence_keep_ms = 0;
    return true;
}

/* Sets the names of the lock's keys. Returns NULL, or a text that says which option is wrong. Sets
 * *memory to true if an allocation failed. */
static const char *take_names(struct latchwork_lock *l, bool *memory) {
    const struct latchwork_lock_names *names = l->o.names;
    bool mutex = l->o.kind == LATCHWORK_KIND_MUTEX || l->o.kind == LATCHWORK_KIND_REENTRANT;
    l->o.names = NULL;
    if (!mutex && (names || is_plain(l)))
        return "PLAIN and custom names are for mutex and reentrant locks";
    if (!mutex && no_scripts(l))
        return "this kind of lock needs scripts, which the client may not use: mutex and reentrant "
               "locks do without";
    if (names && is_plain(l)) return "either PLAIN or custom names";
    if (names)
        return take_custom(l, names, memory) ? NULL
                                             : "custom names: size, lock and fence must be set, "
                                               "and all of the hint or nothing";
    for (int i = 0; i < LW_LOCK_KEYS && l->shape->names[i]; i++)
        if (!is_plain(l))
            l->key[i] = own_name(l, l->shape->names[i], memory);
        else
            l->key[i] = i == LW_KEY_LOCK ? copy(l->name, l->n_name, memory)
                                         : beside_name(l, l->shape->names[i], memory);
    return NULL;
}

/* Computes the slot of the lock's keys. Returns false if the client is connected to a cluster and
 * the keys are in several slots. */
static bool take_slot(struct latchwork_lock *l) {
    const struct lw_bytes *const more[] = {&l->hint_if, &l->hint_to};
    bool same = true;
    l->slot = lw_slot(l->key[LW_KEY_LOCK].p, l->key[LW_KEY_LOCK].n);
    for (int i = 0; i < LW_LOCK_KEYS; i++)
        same = same && (!l->key[i].p || lw_slot(l->key[i].p, l->key[i].n) == l->slot);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        same = same && (!more[i]->p || lw_slot(more[i]->p, more[i]->n) == l->slot);
    return same || !l->client->table;
}

struct latchwork_lock *latchwork_lock_open(struct latchwork_client *client, const char *name,
                                           const struct latchwork_lock_options *options,
                                           struct latchwork_error *error) {
    if (!lw_client_ok(client, error)) return NULL;
    struct latchwork_lock *l = lw_lock_new(&one, name, options, client->label, error);
    if (!l) return NULL;
    l->client = client;
    l->renewer = lw_client_renewer;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].kind == l->o.kind) l->shape = &shapes[i];
    bool memory = false;
    const char *wrong =
        l->shape ? take_names(l, &memory) : "this function does not open locks of this kind";
    if (!wrong && !memory && !take_slot(l))
        wrong = "in a cluster all names must be in one slot: put the same {tag} into each of them";
    if (!wrong && !memory) return l;
    if (memory)
        lw_lock_no_memory(error);
    else
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR,
                     l->shape && no_scripts(l) ? LATCHWORK_E_NO_SCRIPTS : LATCHWORK_E_ARGUMENT,
                     "%s", wrong);
    lw_lock_unref(l);
    return NULL;
}
