#include "tests/support/lanes.h"

#include "base/clock.h"
#include "queue/envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 2 * LT_BATCH_MAX };
static const char *const life_epoch = "e1";

/* --- building a call ---------------------------------------------------------------------------------------------------------- */

static void add(struct lt_args *a, const void *p, size_t n) {
    assert_true(a->n < LT_ARGS_MAX);
    a->p[a->n] = lw_memdup(p, n);
    a->size[a->n++] = n;
}
static void add_text(struct lt_args *a, const char *s) { add(a, s, strlen(s)); }
__attribute__((format(printf, 2, 3))) static void addf(struct lt_args *a, const char *fmt, ...) {
    char s[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    add_text(a, s);
}

static void clear(struct lt_args *a) {
    for (int i = 0; i < a->n; i++) free(a->p[i]);
    a->n = 0;
}

static void begin(struct lt *l, const struct lw_script *script) {
    clear(&l->keys);
    clear(&l->args);
    l->script = script;
    l->stride = 1;
}

/* kind: "lock:" or "wait:"; the lane's bytes follow as they are. */
static void key_of_lane(struct lt *l, const char *kind, struct lw_bytes lane) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, LT_TAG "%s", kind);
    lw_buf_add(&b, lane.p, lane.n);
    add(&l->keys, b.p, b.n);
    lw_buf_free(&b);
}

struct group {
    const char *topic;
    int32_t partition;
    int64_t segment;
};

static int group_of(struct group *groups, int *n, const struct lt_msg *m) {
    for (int i = 0; i < *n; i++)
        if (strcmp(groups[i].topic, m->topic) == 0 && groups[i].partition == m->partition && groups[i].segment == m->offset / 16384)
            return i + 1;
    assert_true(*n < GROUPS_MAX);
    groups[(*n)++] = (struct group){m->topic, m->partition, m->offset / 16384};
    return *n;
}

/* The keys of segments, and the arguments that name their partitions: first how many. */
static void add_segment(struct lt *l, const struct group *g) {
    addf(&l->keys, LT_TAG "state:%s:%d:%" PRId64, g->topic, g->partition, g->segment);
    addf(&l->keys, LT_TAG "tries:%s:%d:%" PRId64, g->topic, g->partition, g->segment);
    addf(&l->args, "%s:%d", g->topic, g->partition);
}

static void add_lanes(struct lt *l, const struct lt_msg *m, size_t n) {
    for (size_t i = 0; i < n; i++) {
        key_of_lane(l, "lock:", m[i].lane);
        key_of_lane(l, "wait:", m[i].lane);
    }
}

void lt_encode(const struct lt_msg *m, struct lw_buf *out) {
    struct lw_envelope e = {.topic = lw_bytes_of(m->topic),
                            .partition = m->partition,
                            .offset = m->offset,
                            .first_ms = 1,
                            .timestamp_ms = -1,
                            .key = m->lane,
                            .dedup = lw_bytes_of(m->dedup),
                            .payload = lw_bytes_of("payload\n1 other 2 3 ")};
    lw_envelope_encode(&e, out);
}

static void add_envelope(struct lt *l, const struct lt_msg *m) {
    struct lw_buf b = {0};
    lt_encode(m, &b);
    add(&l->args, b.p, b.n);
    lw_buf_free(&b);
}

struct lt_msg lt_msg_bytes(int32_t partition, int64_t offset, struct lw_bytes lane, const char *token) {
    return (struct lt_msg){.topic = "orders",
                           .partition = partition,
                           .offset = offset,
                           .lane = lane,
                           .token = token,
                           .dedup = "",
                           .outcome = "done",
                           .mode = "next",
                           .reason = ""};
}
struct lt_msg lt_msg(int32_t partition, int64_t offset, const char *lane, const char *token) {
    return lt_msg_bytes(partition, offset, lw_bytes_of(lane), token);
}
struct lt_msg lt_with(struct lt_msg m, const char *outcome, const char *mode) {
    m.outcome = outcome;
    m.mode = mode;
    return m;
}

/* --- sending it --------------------------------------------------------------------------------------------------------------- */

static redisReply *reply_of(redisContext *c, void *r) {
    if (!r) fail_msg("redis: %s", c->errstr);
    return r;
}

static void load(struct lt *l, const struct lw_script *s, char sha[41]) {
    redisReply *r = reply_of(l->user, redisCommand(l->user, "SCRIPT LOAD %s", s->text));
    if (r->type != REDIS_REPLY_STRING || r->len != 40) fail_msg("SCRIPT LOAD %s: %s", s->name, r->str ? r->str : "?");
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

static void config_maxmemory(struct lt *l, const char *bytes) { lt_text(l, "CONFIG SET maxmemory %s", bytes); }

/* Gate is the one script that maxmemory refuses: test_gate has a test of that. */
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

static void take_text(struct lt *l, const char *s) { snprintf(l->answers, sizeof l->answers, "%.*s", (int)strcspn(s, " "), s); }

static void take_letters(struct lt *l) {
    uint64_t before = l->fence_seen;
    size_t n = 0;
    for (size_t i = 0; i + (size_t)l->stride <= l->reply->elements; i += (size_t)l->stride) {
        const redisReply *r = l->reply->element[i];
        assert_int_equal(r->type, REDIS_REPLY_STRING);
        assert_true(n < LT_BATCH_MAX && r->len > 0);
        l->answers[n++] = r->str[0];
        if (strchr("RNK", r->str[0])) {
            uint64_t fence = lt_fence(l, (int)n - 1);
            if (fence <= l->fence_seen) fail_msg("%s: fence %" PRIu64 " after %" PRIu64, l->script->name, fence, l->fence_seen);
            l->fence_seen = fence;
        }
    }
    l->answers[n] = '\0';
    if (l->fence_seen > before && strtoull(lt_text(l, "GET " LT_TAG "fence"), NULL, 10) != l->fence_seen)
        fail_msg("%s: gave fence %" PRIu64 ", stored %s", l->script->name, l->fence_seen, l->text);
}

static void send_and_take(struct lt *l) {
    if (l->reply) freeReplyObject(l->reply);
    l->reply = send_once(l);
    memset(l->answers, 0, sizeof l->answers);
    bool letters = l->script == &lw_script_gate || l->script == &lw_script_settle || l->script == &lw_script_claim;
    if (l->reply->type == REDIS_REPLY_ERROR) {
        l->answers[0] = '-';
        snprintf(l->answers + 1, sizeof l->answers - 1, "%.*s", (int)strcspn(l->reply->str, " "), l->reply->str);
    } else if (l->reply->type == REDIS_REPLY_ARRAY && letters) {
        take_letters(l);
    } else if (l->reply->type == REDIS_REPLY_INTEGER) {
        snprintf(l->answers, sizeof l->answers, "%lld", l->reply->integer);
    } else if (l->reply->type == REDIS_REPLY_STRING || l->reply->type == REDIS_REPLY_STATUS) {
        take_text(l, l->reply->str);
    }
}

/* What the same call answers when it is sent once more: see "Rules of the wire" in the protocol. */
static char answer_again(const struct lt *l, char first) {
    if (l->script == &lw_script_gate && strchr("UX", first)) return 'D';
    if (l->script == &lw_script_settle && strchr("LB", first)) return 'S';
    return first;
}

static void assert_same_heads(const struct lt *l, const redisReply *first) {
    if (l->stride != 2 || first->type != REDIS_REPLY_ARRAY) return;
    for (size_t i = 1; i < first->elements; i += 2) {
        assert_int_equal(first->element[i]->len, l->reply->element[i]->len);
        assert_memory_equal(first->element[i]->str, l->reply->element[i]->str, first->element[i]->len);
    }
}

/* The reply was lost, the call is sent again. The caller sees the first answer, with the later fences. */
static void twice(struct lt *l) {
    char first[sizeof l->answers];
    memcpy(first, l->answers, sizeof first);
    redisReply *first_reply = l->reply;
    l->reply = NULL;
    char *before = lt_dump(l, false);
    send_and_take(l);
    bool letters = first_reply->type == REDIS_REPLY_ARRAY && l->answers[0];
    for (size_t i = 0; letters && first[i]; i++) {
        if (l->answers[i] == answer_again(l, first[i])) continue;
        fail_msg("%s, message %zu: %c, and when sent again %c", l->script->name, i, first[i], l->answers[i]);
    }
    if (l->script != &lw_script_tend && !letters) assert_string_equal(first, l->answers);
    assert_same_heads(l, first_reply);
    lt_assert_unchanged(l, before, false);
    memcpy(l->answers, first, sizeof first);
    freeReplyObject(l->reply);
    l->reply = first_reply;
}

static const char *run(struct lt *l) {
    send_and_take(l);
    if (l->variant == LT_TWICE && l->script != &lw_script_hints) twice(l); /* hints are popped: twice is more of them */
    return l->answers;
}

const char *lt_call_again(struct lt *l) {
    send_and_take(l);
    return l->answers;
}

/* --- the scripts -------------------------------------------------------------------------------------------------------------- */

static void add_clock(struct lt *l) {
    addf(&l->args, "%" PRId64, lt_now_ms(l) + l->off_ms);
    addf(&l->args, "%" PRId64, l->ttl_ms / 4);
}

/* "t12" is what tokens begin with, and a number. */
static size_t prefix_of(const char *token) {
    size_t n = strlen(token);
    while (n && token[n - 1] >= '0' && token[n - 1] <= '9') n--;
    return n;
}

/* Gate numbers its tokens itself: the test's own must follow each other in the order of the call. */
static int first_number(const struct lt_msg *const *m, size_t n) {
    size_t prefix = prefix_of(m[0]->token);
    int first = atoi(m[0]->token + prefix);
    for (size_t i = 0; i < n; i++) {
        char want[64];
        snprintf(want, sizeof want, "%.*s%d", (int)prefix, m[0]->token, first + (int)i);
        if (strcmp(m[i]->token, want) != 0)
            fail_msg("token %s where gate makes %s: number the messages in order of segment", m[i]->token, want);
    }
    return first;
}

/* Gate wants the messages of a segment side by side; the answers come back in the test's order. */
static void arrange(const struct lt_msg *m, size_t n, const int *of, int n_groups, const struct lt_msg **sorted, size_t *place) {
    size_t at = 0;
    for (int g = 1; g <= n_groups; g++)
        for (size_t i = 0; i < n; i++)
            if (of[i] == g) {
                place[i] = at;
                sorted[at++] = &m[i];
            }
}

static void put_back(struct lt *l, size_t n, const size_t *place) {
    if (strlen(l->answers) != n || l->reply->type != REDIS_REPLY_ARRAY) return;
    char answers[LT_BATCH_MAX + 1];
    struct redisReply *element[LT_BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        answers[i] = l->answers[place[i]];
        element[i] = l->reply->element[place[i]];
    }
    memcpy(l->answers, answers, n);
    memcpy(l->reply->element, element, n * sizeof element[0]);
}

const char *lt_gate(struct lt *l, const struct lt_msg *m, size_t n) {
    static struct group groups[GROUPS_MAX];
    const struct lt_msg *sorted[LT_BATCH_MAX];
    size_t place[LT_BATCH_MAX];
    int of[LT_BATCH_MAX], count[GROUPS_MAX] = {0}, n_groups = 0;
    bool dedup = false;
    for (size_t i = 0; i < n; i++) {
        of[i] = group_of(groups, &n_groups, &m[i]);
        count[of[i] - 1]++;
        dedup |= m[i].dedup[0] != 0;
    }
    arrange(m, n, of, n_groups, sorted, place);
    begin(l, &lw_script_gate);
    static const char *const names[] = {"epoch", "lanes", "floor", "fence"};
    for (size_t i = 0; i < 4; i++) addf(&l->keys, LT_TAG "%s", names[i]);
    add_text(&l->args, l->epoch);
    add_clock(l);
    addf(&l->args, "%" PRId64, l->ttl_ms);
    add_text(&l->args, l->drop ? "drop" : "park");
    addf(&l->args, "%.*s", (int)prefix_of(sorted[0]->token), sorted[0]->token);
    addf(&l->args, "%d", first_number(sorted, n));
    add_text(&l->args, dedup ? "1" : "0");
    addf(&l->args, "%d", n_groups);
    for (int i = 0; i < n_groups; i++) {
        add_segment(l, &groups[i]);
        addf(&l->args, "%d", count[i]);
    }
    for (size_t i = 0; i < n; i++) {
        key_of_lane(l, "lock:", sorted[i]->lane);
        addf(&l->args, "%" PRId64, sorted[i]->offset);
        add_envelope(l, sorted[i]);
        if (dedup) add_text(&l->args, sorted[i]->dedup);
    }
    run(l);
    put_back(l, n, place);
    return l->answers;
}

static void settle_item(struct lt *l, const struct lt_msg *m, int group, int next_group) {
    char what[3] = {m->outcome[0], m->mode[0] == 'd' ? '-' : m->mode[0], 0};
    if (strcmp(m->outcome, "dead") == 0) what[0] = 'x';
    addf(&l->args, "%d", group);
    addf(&l->args, "%" PRId64, m->offset);
    add_text(&l->args, m->token);
    add_text(&l->args, what);
    if (what[0] == 'r') addf(&l->args, "%" PRId64, m->backoff_ms);
    if (what[0] == 'x') add_text(&l->args, m->reason);
    if (strchr("rbx", what[0])) add_envelope(l, m);
    if (what[1] == 'k') {
        addf(&l->args, "%d", next_group);
        addf(&l->args, "%" PRId64, m->next ? m->next->offset : 0);
    }
    if (!l->window_s) return;
    if (what[1] == 'k') add_text(&l->args, m->next ? m->next->dedup : "");
    add_text(&l->args, m->dedup);
}

const char *lt_settle(struct lt *l, const struct lt_msg *m, size_t n) {
    static struct group groups[GROUPS_MAX];
    int of[LT_BATCH_MAX], of_next[LT_BATCH_MAX], n_groups = 0;
    for (size_t i = 0; i < n; i++) {
        of[i] = group_of(groups, &n_groups, &m[i]);
        of_next[i] = m[i].next ? group_of(groups, &n_groups, m[i].next) : 0;
    }
    begin(l, &lw_script_settle);
    l->stride = 2;
    static const char *const names[] = {"epoch", "lanes", "floor", "fence", "ready", "dead"};
    for (size_t i = 0; i < 6; i++) addf(&l->keys, LT_TAG "%s", names[i]);
    add_text(&l->args, l->epoch);
    addf(&l->args, "%" PRId64, l->ttl_ms);
    addf(&l->args, "%d", LT_HANDOFF_MS);
    add_text(&l->args, l->skip ? "skip" : "block");
    if (l->window_s)
        addf(&l->args, "%" PRId64, l->window_s);
    else
        add_text(&l->args, "");
    add_text(&l->args, ""); /* a message names its whole token here */
    addf(&l->args, "%d", n_groups);
    for (int i = 0; i < n_groups; i++) add_segment(l, &groups[i]);
    for (size_t i = 0; i < n; i++) {
        key_of_lane(l, "lock:", m[i].lane);
        settle_item(l, &m[i], of[i], of_next[i]);
    }
    return run(l);
}

const char *lt_claim(struct lt *l, const struct lt_msg *m, size_t n) {
    begin(l, &lw_script_claim);
    l->stride = 2;
    static const char *const names[] = {"epoch", "lanes", "fence", "ready", "claimed:w"};
    for (size_t i = 0; i < 5; i++) addf(&l->keys, LT_TAG "%s", names[i]);
    add_text(&l->args, l->epoch);
    add_clock(l);
    addf(&l->args, "%" PRId64, l->ttl_ms);
    addf(&l->args, "%d", LT_HANDOFF_MS);
    add_text(&l->args, l->skip ? "skip" : "block");
    addf(&l->args, "%d", l->taken);
    add_lanes(l, m, n);
    for (size_t i = 0; i < n; i++) {
        add(&l->args, m[i].lane.p, m[i].lane.n);
        add_text(&l->args, m[i].token);
    }
    return run(l);
}

const char *lt_renew(struct lt *l, const struct lt_msg *m, size_t n) {
    begin(l, &lw_script_renew);
    add_text(&l->keys, LT_TAG "epoch");
    add_text(&l->args, l->epoch);
    addf(&l->args, "%" PRId64, l->ttl_ms);
    for (size_t i = 0; i < n; i++) {
        key_of_lane(l, "lock:", m[i].lane);
        add_text(&l->args, m[i].token);
    }
    return run(l);
}

const char *lt_tend(struct lt *l) {
    begin(l, &lw_script_tend);
    add_text(&l->keys, LT_TAG "epoch"), add_text(&l->keys, LT_TAG "lanes"), add_text(&l->keys, LT_TAG "ready");
    add_text(&l->args, l->epoch);
    addf(&l->args, "%d", l->most);
    addf(&l->args, "%" PRId64, l->ttl_ms);
    addf(&l->args, "%d", LT_HANDOFF_MS);
    return run(l);
}

const char *lt_hints(struct lt *l) {
    begin(l, &lw_script_hints);
    add_text(&l->keys, LT_TAG "epoch"), add_text(&l->keys, LT_TAG "ready"), add_text(&l->keys, LT_TAG "claimed:w");
    add_text(&l->args, l->epoch);
    addf(&l->args, "%d", l->most);
    addf(&l->args, "%" PRId64, l->ttl_ms);
    run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    size_t n = 0;
    l->text[0] = '\0';
    for (size_t i = 0; i < l->reply->elements; i++)
        n += (size_t)snprintf(l->text + n, sizeof l->text - n, "%s%s", i ? " " : "", l->reply->element[i]->str);
    return l->text;
}

const char *lt_watch(struct lt *l, const struct lt_look *looks, size_t n) {
    begin(l, &lw_script_watch);
    l->stride = 2;
    add_text(&l->keys, LT_TAG "epoch"), add_text(&l->keys, LT_TAG "floor");
    add_text(&l->args, l->epoch);
    for (size_t i = 0; i < n; i++) {
        addf(&l->keys, LT_TAG "state:%s:%" PRId64, looks[i].tp, looks[i].segment);
        add_text(&l->args, looks[i].tp);
        addf(&l->args, "%d", looks[i].first);
        addf(&l->args, "%d", looks[i].last);
    }
    run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    size_t at = 0;
    l->text[0] = '\0';
    for (size_t i = 0; i < l->reply->elements; i += 2) {
        const redisReply *f = l->reply->element[i];
        at += (size_t)snprintf(l->text + at, sizeof l->text - at, "%s%s", i ? " " : "", f->len ? f->str : "-");
    }
    return l->text;
}

const char *lt_floor(struct lt *l, const char *tp, int64_t committed, int64_t from) {
    begin(l, &lw_script_floor);
    add_text(&l->keys, LT_TAG "epoch"), add_text(&l->keys, LT_TAG "floor");
    add_text(&l->args, l->epoch), add_text(&l->args, tp);
    addf(&l->args, "%" PRId64, committed);
    addf(&l->args, "%" PRId64, from);
    return run(l);
}

const char *lt_repair(struct lt *l, const char *tp, int64_t committed, int64_t from, const struct lt_range *ranges, size_t n) {
    begin(l, &lw_script_repair);
    add_text(&l->keys, LT_TAG "epoch"), add_text(&l->keys, LT_TAG "floor");
    add_text(&l->args, l->epoch), add_text(&l->args, "1"), add_text(&l->args, tp);
    addf(&l->args, "%" PRId64, committed);
    addf(&l->args, "%" PRId64, from);
    for (size_t i = 0; i < n; i++) {
        add_text(&l->args, ranges[i].tp);
        addf(&l->args, "%" PRId64, ranges[i].lo);
        addf(&l->args, "%" PRId64, ranges[i].hi);
    }
    return run(l);
}

static void entered_of(const redisReply *r, struct lt_entered *out) {
    *out = (struct lt_entered){0};
    if (strcmp(r->element[0]->str, "REFUSED") == 0) {
        assert_int_equal(r->elements, 3);
        snprintf(out->field, sizeof out->field, "%s", r->element[1]->str);
        snprintf(out->theirs, sizeof out->theirs, "%s", r->element[2]->str);
        return;
    }
    assert_int_equal(r->elements, 5);
    snprintf(out->id, sizeof out->id, "%s", r->element[1]->str);
    out->now_ms = atoll(r->element[2]->str);
    out->not_before_ms = atoll(r->element[3]->str);
    out->ttl_ms = atoll(r->element[4]->str);
}

const char *lt_enter(struct lt *l, const struct lt_enter *e, struct lt_entered *out) {
    begin(l, &lw_script_enter);
    add_text(&l->keys, LT_TAG "epoch"), add_text(&l->keys, LT_TAG "fence"), add_text(&l->keys, LT_TAG "lanes");
    add_text(&l->args, e->candidate), add_text(&l->args, e->life);
    addf(&l->args, "%" PRId64, e->ttl_ms);
    addf(&l->args, "%" PRId64, e->grace_ms);
    add_text(&l->args, e->jumped ? e->jumped : ""), add_text(&l->args, e->host);
    addf(&l->args, "%" PRId64, e->offset_ms);
    addf(&l->args, "%" PRIu64, e->fence);
    if (e->field) add_text(&l->args, e->field), add_text(&l->args, e->value);
    run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    entered_of(l->reply, out);
    take_text(l, l->reply->element[0]->str);
    return l->answers;
}

/* --- answers ------------------------------------------------------------------------------------------------------------------ */

static const char *answer(const struct lt *l, int i) { return l->reply->element[i * l->stride]->str; }
struct lw_bytes lt_states(const struct lt *l, int i) {
    const redisReply *r = l->reply->element[2 * i + 1];
    return lw_bytes(r->str, r->len);
}
uint64_t lt_fence(const struct lt *l, int i) { return strtoull(answer(l, i) + 1, NULL, 10); }
int lt_attempts(const struct lt *l, int i) {
    const char *space = strchr(answer(l, i), ' ');
    assert_non_null(space);
    return atoi(space + 1);
}
int64_t lt_duplicates(const struct lt *l) {
    const redisReply *r = l->reply->element[l->reply->elements - 1];
    assert_int_equal(r->type, REDIS_REPLY_INTEGER);
    return r->integer;
}

/* --- running ------------------------------------------------------------------------------------------------------------------ */

static unsigned variant_now;

static void make_user(struct lt *l) {
    lt_text(l, "ACL SETUSER lane on nopass ~lw:{t.0}:* +@all");
    redisReply *r = reply_of(l->user, redisCommand(l->user, "AUTH lane any"));
    if (r->type != REDIS_REPLY_STATUS) fail_msg("AUTH: %s", r->str);
    freeReplyObject(r);
}

static int start(void **state) {
    struct lt *l = lw_alloc(sizeof *l);
    *state = l;
    l->variant = variant_now;
    static const char *const args[] = {"--maxmemory-policy", "noeviction", NULL};
    l->server = lw_test_redis_start(args);
    if (!l->server) return -1;
    l->admin = lw_test_redis_connect(l->server);
    l->user = lw_test_redis_connect(l->server);
    if (!l->admin || !l->user) return -1;
    make_user(l);
    return 0;
}

static int stop(void **state) {
    struct lt *l = *state;
    clear(&l->keys);
    clear(&l->args);
    if (l->reply) freeReplyObject(l->reply);
    if (l->admin) redisFree(l->admin);
    if (l->user) redisFree(l->user);
    lw_test_redis_stop(l->server);
    free(l);
    return 0;
}

int lt_setup(void **state) {
    struct lt *l = *state;
    lt_text(l, "CONFIG SET maxmemory 0");
    lt_text(l, "FLUSHALL");
    l->fence_seen = 0;
    l->off_ms = l->window_s = 0;
    l->ttl_ms = LT_TTL_MS;
    l->skip = l->drop = false;
    l->taken = 0;
    l->most = 100;
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
