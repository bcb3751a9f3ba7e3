/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/lanes_build.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const life_epoch = "e1";

/* --- building a call -------------------------------------------------------------------------- */

void lt_add(struct lt_args *a, const void *p, size_t n) {
    assert_true(a->n < LT_ARGS_MAX);
    a->p[a->n] = lw_memdup(p, n);
    a->size[a->n++] = n;
}
void lt_add_text(struct lt_args *a, const char *s) { lt_add(a, s, strlen(s)); }
void lt_addf(struct lt_args *a, const char *fmt, ...) {
    char s[400];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    assert_true(n >= 0 && (size_t)n < sizeof s);
    lt_add_text(a, s);
}

void lt_clear(struct lt_args *a) {
    for (int i = 0; i < a->n; i++) free(a->p[i]);
    a->n = 0;
}

void lt_begin(struct lt *l, const struct lw_script *script) {
    lt_clear(&l->keys);
    lt_clear(&l->args);
    l->script = script;
    l->n_items = l->n_messages = 0;
}

void lt_add_lane(struct lt *l, const char *kind, struct lw_bytes lane) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, LT_TAG "%s", kind);
    lw_buf_add(&b, lane.p, lane.n);
    lt_add(&l->keys, b.p, b.n);
    lw_buf_free(&b);
}

/* --- sending it ------------------------------------------------------------------------------- */

static redisReply *reply_of(redisContext *c, void *r) {
    if (!r) fail_msg("redis: %s", c->errstr);
    return r;
}

static void load(struct lt *l, const struct lw_script *s, char sha[41]) {
    redisReply *r = reply_of(l->user, redisCommand(l->user, "SCRIPT LOAD %s", s->text));
    if (r->type != REDIS_REPLY_STRING || r->len != 40)
        fail_msg("SCRIPT LOAD %s: %s", s->name, r->str ? r->str : "?");
    memcpy(sha, r->str, 41);
    freeReplyObject(r);
}

static redisReply *evalsha(struct lt *l, const char *sha) {
    static const char *argv[2 * LT_ARGS_MAX + 3];
    static size_t size[2 * LT_ARGS_MAX + 3];
    char n_keys[12];
    snprintf(n_keys, sizeof n_keys, "%d", l->keys.n);
    argv[0] = "EVALSHA", argv[1] = sha, argv[2] = n_keys;
    for (int i = 0; i < 3; i++) size[i] = strlen(argv[i]);
    memcpy(argv + 3, l->keys.p, (size_t)l->keys.n * sizeof *argv);
    memcpy(size + 3, l->keys.size, (size_t)l->keys.n * sizeof *size);
    memcpy(argv + 3 + l->keys.n, l->args.p, (size_t)l->args.n * sizeof *argv);
    memcpy(size + 3 + l->keys.n, l->args.size, (size_t)l->args.n * sizeof *size);
    return reply_of(l->user, redisCommandArgv(l->user, 3 + l->keys.n + l->args.n, argv, size));
}

static void config_maxmemory(struct lt *l, const char *bytes) {
    lt_text(l, "CONFIG SET maxmemory %s", bytes);
}

/* Sends the call once. In the variant LT_FULL, every call except that of gate is sent at maxmemory.
 * Redis would refuse the call of gate, which test_gate tests. */
static redisReply *send_once(struct lt *l) {
    char sha[41];
    load(l, l->script, sha);
    bool full = l->variant == LT_FULL && l->script != &lw_script_gate;
    if (l->variant == LT_FLUSHED) {
        lt_text(l, "SCRIPT FLUSH");
        redisReply *r = evalsha(l, sha);
        if (r->type != REDIS_REPLY_ERROR || strncmp(r->str, "NOSCRIPT ", 9) != 0)
            fail_msg("%s: ran though it was flushed", l->script->name);
        freeReplyObject(r);
        load(l, l->script, sha);
    }
    if (full) config_maxmemory(l, "1");
    redisReply *r = evalsha(l, sha);
    if (full) config_maxmemory(l, "0");
    return r;
}

static void take_text(struct lt *l, const char *s) {
    snprintf(l->answers, sizeof l->answers, "%.*s", (int)strcspn(s, " "), s);
}

/* --- answers of letters ----------------------------------------------------------------------- */

static bool is_gate(const struct lt *l) { return l->script == &lw_script_gate; }
static bool is_settle(const struct lt *l) { return l->script == &lw_script_settle; }
static bool is_claim(const struct lt *l) { return l->script == &lw_script_claim; }
static bool of_letters(const struct lt *l) { return is_gate(l) || is_settle(l) || is_claim(l); }
static const redisReply *tries_in(const struct lt *l, const redisReply *r) {
    return r->element[is_gate(l) ? 2 : is_settle(l) ? 4 : 3];
}
static const redisReply *heads_in(const struct lt *l, const redisReply *r) {
    return r->element[is_settle(l) ? 5 : 4];
}
static const redisReply *each_in(const struct lt *l, const redisReply *r) {
    return r->element[is_settle(l) ? 6 : 5];
}

static void copy_letters(const redisReply *r, char *out, int want) {
    assert_int_equal(r->type, REDIS_REPLY_STRING);
    assert_int_equal(r->len, want);
    assert_true(want <= LT_ANSWERS_MAX);
    memcpy(out, r->str, (size_t)want);
    out[want] = '\0';
}

/* Numbers the grants in the answer of gate, and returns the number of grants. Sets *most to the
 * largest number of grants in one lane. */
static int grants_of_gate(struct lt *l, int *most) {
    int at = 0, n = 0;
    for (int i = 0; i < l->n_items; i++) {
        int in_lane = 0;
        for (int k = 0; k < l->item[i].n_messages; k++, at++) {
            bool granted = strchr("RA", l->answers[at]) != NULL;
            l->granted[at].grant = granted ? ++n : 0;
            l->granted[at].in_lane = granted ? in_lane++ : 0;
        }
        if (in_lane > *most) *most = in_lane;
    }
    return n;
}

static int grants_of_heads(struct lt *l, int *most) {
    const redisReply *each = each_in(l, l->reply), *heads = heads_in(l, l->reply);
    int named = 0, first_head = 0, n = 0;
    assert_int_equal(each->len, l->n_items);
    for (int i = 0; i < l->n_items; i++) {
        int given = (unsigned char)each->str[i];
        l->item[i].first_grant = n + 1;
        l->item[i].first_head = first_head;
        l->item[i].n_heads = given;
        if (l->answers[i] == 'N') assert_true(given > 0);
        first_head += given;
        for (int k = 0; k < l->item[i].n_named; k++, named++) given += l->named[named] == 'A';
        n += given;
        if (given > *most) *most = given;
    }
    assert_int_equal(heads->elements, first_head);
    return n;
}

static void check_tries(const redisReply *tries, int n_grants) {
    long long last = 0;
    assert_int_equal(tries->elements % 3, 0);
    for (size_t i = 0; i < tries->elements; i += 3) {
        assert_int_equal(tries->element[i]->type, REDIS_REPLY_INTEGER);
        assert_true(tries->element[i]->integer > last && tries->element[i]->integer <= n_grants);
        last = tries->element[i]->integer;
        assert_true(tries->element[i + 1]->integer >= 0);
        assert_true(tries->element[i + 2]->integer > 0);
    }
}

static void check_fences(struct lt *l, int n_grants, int most) {
    l->fence = strtoull(l->reply->element[0]->str, NULL, 10);
    if (most > l->reserve)
        fail_msg("%s: a lane was given %d with %d fences", l->script->name, most, l->reserve);
    if (!n_grants && !is_gate(l)) {
        assert_int_equal(l->fence, 0);
        return;
    }
    if (l->fence <= l->fence_seen)
        fail_msg("%s: fence %" PRIu64 " after %" PRIu64 " was reserved", l->script->name, l->fence,
                 l->fence_seen);
    l->fence_seen = l->fence + (uint64_t)l->reserve - 1;
    if (strtoull(lt_text(l, "GET " LT_TAG "fence"), NULL, 10) != l->fence_seen)
        fail_msg("%s: took fences up to %" PRIu64 ", stored %s", l->script->name, l->fence_seen,
                 l->text);
}

static void remember_value(struct lt *l, const char *token) {
    int i = 0;
    while (i < l->n_values && strcmp(l->values[i].token, token) != 0) i++;
    if (i == LT_TOKENS_MAX) {
        memmove(l->values, l->values + 1, sizeof l->values - sizeof *l->values);
        i--;
    } else if (i == l->n_values) {
        l->n_values++;
    }
    snprintf(l->values[i].token, sizeof l->values[i].token, "%s", token);
    l->values[i].fence = l->fence;
}

void lt_value(const struct lt *l, const char *token, char *out, size_t size) {
    uint64_t fence = 0;
    for (int i = 0; i < l->n_values; i++)
        if (strcmp(l->values[i].token, token) == 0) fence = l->values[i].fence;
    snprintf(out, size, "%s:%" PRIu64, token, fence);
}

static int number_grants(struct lt *l, int *most) {
    return is_gate(l) ? grants_of_gate(l, most) : grants_of_heads(l, most);
}

static void take_letters(struct lt *l) {
    int n_named = 0, most = 0;
    for (int i = 0; i < l->n_items; i++) n_named += l->item[i].n_named;
    assert_int_equal(l->reply->elements, is_gate(l) ? 3 : is_settle(l) ? 7 : 6);
    copy_letters(l->reply->element[1], l->answers, is_gate(l) ? l->n_messages : l->n_items);
    if (is_settle(l)) copy_letters(l->reply->element[2], l->named, n_named);
    int n = number_grants(l, &most);
    check_tries(tries_in(l, l->reply), n);
    check_fences(l, n, most);
    if (n && !is_settle(l)) remember_value(l, l->token);
}

static void send_and_take(struct lt *l) {
    if (l->reply) freeReplyObject(l->reply);
    l->reply = send_once(l);
    memset(l->answers, 0, sizeof l->answers);
    memset(l->named, 0, sizeof l->named);
    if (l->reply->type == REDIS_REPLY_ERROR) {
        l->answers[0] = '-';
        snprintf(l->answers + 1, sizeof l->answers - 1, "%.*s", (int)strcspn(l->reply->str, " "),
                 l->reply->str);
    } else if (l->reply->type == REDIS_REPLY_ARRAY && of_letters(l)) {
        take_letters(l);
    } else if (l->reply->type == REDIS_REPLY_INTEGER) {
        snprintf(l->answers, sizeof l->answers, "%lld", l->reply->integer);
    } else if (l->reply->type == REDIS_REPLY_STRING || l->reply->type == REDIS_REPLY_STATUS) {
        take_text(l, l->reply->str);
    }
}

/* A call that was answered with `first` is sent again. Returns the answer that it must get then
 * ("Clocks and lost replies" in doc/explanation/protocol.md). A duplicate is finished
 * by then, and the lease of a lane that settle released is gone. */
static char answer_again(const struct lt *l, char first) {
    if (is_gate(l) && first == 'U') return 'D';
    if (is_settle(l) && strchr("LB", first)) return 'S';
    return first;
}

/* Compares, for each lane, the heads in the answer to the first call with those in the answer to
 * the repeated call, oldest first. The heads must be the same up to the end of the shorter list.
 * One list may be longer, because finished messages count against the number of messages that a
 * call may read. */
static void assert_same_heads(const struct lt *l, const redisReply *first) {
    const redisReply *was = heads_in(l, first), *now = heads_in(l, l->reply);
    int at = 0;
    for (int i = 0; i < l->n_items; i++) {
        int n = (unsigned char)each_in(l, first)->str[i];
        for (int k = 0; k < n && k < l->item[i].n_heads; k++) {
            const redisReply *a = was->element[at + k],
                             *b = now->element[l->item[i].first_head + k];
            assert_int_equal(a->len, b->len);
            assert_memory_equal(a->str, b->str, a->len);
        }
        at += n;
    }
}

/* Sends the same call again, as a worker does after a lost reply. The test then sees the letters of
 * the first answer. It sees the fences of the second answer, because the locks now contain them. */
static void twice(struct lt *l) {
    static char first[sizeof l->answers], named[sizeof l->named];
    memcpy(first, l->answers, sizeof first);
    memcpy(named, l->named, sizeof named);
    redisReply *first_reply = l->reply;
    l->reply = NULL;
    char *before = lt_dump(l, false);
    send_and_take(l);
    bool letters = of_letters(l) && first_reply->type == REDIS_REPLY_ARRAY;
    for (size_t i = 0; letters && first[i]; i++) {
        if (l->answers[i] == answer_again(l, first[i])) continue;
        fail_msg("%s, message %zu: %c, and when sent again %c", l->script->name, i, first[i],
                 l->answers[i]);
    }
    if (l->script != &lw_script_tend && !letters) assert_string_equal(first, l->answers);
    if (letters) assert_string_equal(named, l->named);
    if (letters && !is_gate(l)) assert_same_heads(l, first_reply);
    lt_assert_unchanged(l, before, false);
    memcpy(l->answers, first, sizeof first);
    freeReplyObject(l->reply);
    l->reply = first_reply;
    if (letters) number_grants(l, &(int){0});
}

const char *lt_run(struct lt *l) {
    send_and_take(l);
    /* The script `floor` answers 0 if it has more to do. The second call then continues the work,
     * so it is not a repetition. */
    bool more = l->script == &lw_script_floor && !strcmp(l->answers, "0");
    /* The script `hints` removes the hints that it returns, so a repeated call would remove
     * more. */
    if (l->variant == LT_TWICE && l->script != &lw_script_hints && !more) twice(l);
    return l->answers;
}

const char *lt_call_again(struct lt *l) {
    send_and_take(l);
    return l->answers;
}

/* --- answers, seen by a test ------------------------------------------------------------------ */

struct lw_bytes lt_states(const struct lt *l, int i) {
    const redisReply *r = l->reply->element[2 * i + 1];
    return lw_bytes(r->str, r->len);
}
uint64_t lt_fence(const struct lt *l, int i) {
    return l->fence + (is_gate(l) ? (uint64_t)l->granted[i].in_lane : 0);
}
/* Returns one of the numbers that the reply has for a message that failed before, or 0. */
static long long tried(const struct lt *l, int grant, size_t which) {
    const redisReply *tries = tries_in(l, l->reply);
    for (size_t t = 0; t < tries->elements; t += 3)
        if (tries->element[t]->integer == grant) return tries->element[t + which]->integer;
    return 0;
}
int lt_attempts_of(const struct lt *l, int i, int k) {
    int grant = is_gate(l) ? l->granted[i].grant : l->item[i].first_grant + k;
    return (int)tried(l, grant, 1);
}
int64_t lt_first_ms(const struct lt *l, int i) { return tried(l, l->item[i].first_grant, 2); }
int lt_attempts(const struct lt *l, int i) { return lt_attempts_of(l, i, 0); }
int64_t lt_duplicates(const struct lt *l) {
    const redisReply *r = l->reply->element[is_settle(l) ? 3 : 2];
    assert_int_equal(r->type, REDIS_REPLY_INTEGER);
    return r->integer;
}
struct lw_bytes lt_head_bytes(const struct lt *l, int i, int k) {
    assert_true(k < l->item[i].n_heads);
    const redisReply *r = heads_in(l, l->reply)->element[l->item[i].first_head + k];
    return lw_bytes(r->str, r->len);
}

/* --- running ---------------------------------------------------------------------------------- */

static unsigned variant_now = LT_PLAIN;

static void make_user(struct lt *l) {
    lt_text(l, "ACL SETUSER lane on nopass ~lw:{t.0}:* +@all");
    redisReply *r = reply_of(l->user, redisCommand(l->user, "AUTH lane any"));
    if (r->type != REDIS_REPLY_STATUS) fail_msg("AUTH: %s", r->str);
    freeReplyObject(r);
}

struct lt *lt_open(struct lw_test_redis *server) {
    struct lt *l = lw_alloc(sizeof *l);
    l->variant = variant_now;
    l->server = server;
    l->admin = server ? lw_test_redis_connect(server) : NULL;
    l->user = server ? lw_test_redis_connect(server) : NULL;
    if (l->admin && l->user) {
        make_user(l);
        return l;
    }
    lt_close(l);
    return NULL;
}

static int start(void **state) {
    static const char *const args[] = {"--maxmemory-policy", "noeviction", NULL};
    *state = lt_open(lw_test_redis_start(args));
    return *state ? 0 : -1;
}

void lt_close(struct lt *l) {
    if (!l) return;
    lt_clear(&l->keys);
    lt_clear(&l->args);
    if (l->reply) freeReplyObject(l->reply);
    if (l->admin) redisFree(l->admin);
    if (l->user) redisFree(l->user);
    lw_test_redis_stop(l->server);
    free(l);
}

static int stop(void **state) {
    lt_close(*state);
    return 0;
}

int lt_setup(void **state) {
    struct lt *l = *state;
    lt_text(l, "CONFIG SET maxmemory 0");
    lt_text(l, "FLUSHALL");
    l->fence_seen = 0;
    l->off_ms = l->window_s = 0;
    l->ttl_ms = LT_TTL_MS;
    l->skip = false;
    l->taken = l->n_values = 0;
    l->most = 100;
    l->reserve = 8;
    l->want = 1;
    snprintf(l->bounds, sizeof l->bounds, "1048576 2097152 0");
    l->narrow = 0;
    snprintf(l->epoch, sizeof l->epoch, "%s", life_epoch);
    lt_int(l, "HSET " LT_TAG "epoch id %s life life ttl_ms %d not_before 0", life_epoch, LT_TTL_MS);
    return 0;
}

static const char *variant_name(unsigned v) {
    switch (v) {
    case LT_PLAIN: return "plain";
    case LT_FLUSHED: return "scripts flushed";
    case LT_FULL: return "at maxmemory";
    default: return "each call sent twice";
    }
}

int lt_run_tests(const struct CMUnitTest *tests, size_t n, unsigned variants) {
    int failed = 0;
    for (unsigned v = LT_PLAIN; v <= LT_TWICE; v *= 2) {
        if (!(variants & v)) continue;
        variant_now = v;
        failed += _cmocka_run_group_tests(variant_name(v), tests, n, start, stop);
    }
    return failed;
}
