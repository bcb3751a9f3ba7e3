/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the lane scripts on a private redis-server, built so that a test reads like the protocol.
 *
 * Calling sequence: main calls lt_run_tests() with tests made by LT(); each test gets a struct lt whose server was flushed and whose
 * epoch was entered, quarantine over. lt_gate(), lt_settle()… return what was answered as letters, "RWD" say, or the word that refused
 * the whole call ("LOST"), or the first word of an error with a minus ("-OOM"). Valid until the next call.
 *
 * The scripts are called as a user whose ACL knows only keys of the shard's tag, so a script that touches any other name fails its test.
 * The fences that a call takes must be above all those of calls before it, their last be what is stored, and no lane be granted more
 * messages than there are fences; the shape of each answer (how many letters, heads, attempts) is looked at too, in every call.
 *
 * The same tests run in variants: each script forgotten before each call (SCRIPT FLUSH), each call but gate at maxmemory, and each call
 * sent twice with the same arguments, as after a lost reply: the second must answer what the protocol says and change nothing. */
#ifndef LW_TEST_LANES_H
#define LW_TEST_LANES_H

#include "base/bytes.h"
#include "base/redis/script.h"
#include "tests/support/redis_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LT_TAG "lw:{t.0}:"

enum { LT_PLAIN = 1, LT_FLUSHED = 2, LT_FULL = 4, LT_TWICE = 8, LT_ALL = 15 };
/* Long enough that nothing expires while a test runs. */
enum { LT_TTL_MS = 600000, LT_HANDOFF_MS = 300000, LT_BATCH_MAX = 256, LT_ANSWERS_MAX = 2048, LT_ARGS_MAX = 6000, LT_TOKENS_MAX = 64 };

struct lt_args {
    char *p[LT_ARGS_MAX];
    size_t size[LT_ARGS_MAX];
    int n;
};

struct lt {
    struct lw_test_redis *server;
    redisContext *admin, *user; /* user: what the scripts are called as */
    unsigned variant;

    /* what the next calls say; lt_setup() restores them */
    char epoch[64];
    int64_t off_ms; /* added to the expected time */
    int64_t ttl_ms, window_s;
    bool skip, drop;  /* retry.order skip, on_busy drop */
    int64_t new_from; /* of all partitions, with drop; -1: not known */
    int taken;        /* hints that leave claimed:w */
    int most;         /* of tend, hints */
    int reserve;      /* fences a lane may need */
    int want;         /* heads of each lane, of claim */
    char bounds[64];  /* in bytes, of claim and settle: "LANE CALL MET" */
    int narrow;       /* the bytes to read at once are 0 those of all messages of a segment, 1 of its first only, 2 none */

    /* the last call and its answer */
    const struct lw_script *script;
    struct lt_args keys, args;
    char token[64]; /* of gate and claim */
    redisReply *reply;
    char answers[LT_ANSWERS_MAX + 1], named[LT_ANSWERS_MAX + 1], text[70000];
    uint64_t fence, fence_seen; /* the first that the last call took; the last of all that calls took */
    int n_items, n_messages;    /* of the call */
    struct {
        int n_messages, n_named, first_head, n_heads;
        int first_grant; /* of its messages, named and heads, from 1; over all items */
    } item[LT_BATCH_MAX];
    struct {
        int grant, in_lane; /* number of its grant over all lanes, from 1, and in its lane, from 0; grant 0: none */
    } granted[LT_ANSWERS_MAX];
    struct {
        char token[64];
        uint64_t fence;
    } values[LT_TOKENS_MAX]; /* what gate and claim wrote into locks last, by token */
    int n_values;
};

struct lt_msg {
    const char *topic;
    int32_t partition;
    int64_t offset;
    struct lw_bytes lane;
    const char *token, *dedup;
    bool bare;   /* gate is not given its envelope */
    size_t size; /* of its payload; 0: a short one */
    bool behind; /* gate with drop: the caller runs one of the lane */
    /* for settle */
    const char *outcome, *mode, *reason; /* mode: next, drop, keep, Keep, more, heads */
    const struct lt_msg *next;           /* the one message that is named */
    int64_t backoff_ms;
};

/* An item of settle: the finished messages of a lane, the last with the outcome; `named` behind them. Lane and token are the first's. */
struct lt_item {
    const struct lt_msg *done;
    size_t n_done;
    char mode; /* as in settle.lua */
    const struct lt_msg *named;
    size_t n_named;
    int want, before;
    const char *value; /* of the lock; NULL: what the token wrote last */
};

/* A message of topic orders; outcome done, mode next. */
struct lt_msg lt_msg(int32_t partition, int64_t offset, const char *lane, const char *token);
struct lt_msg lt_msg_bytes(int32_t partition, int64_t offset, struct lw_bytes lane, const char *token);
/* The same message with another outcome and mode. */
struct lt_msg lt_with(struct lt_msg m, const char *outcome, const char *mode);

/* LT_BATCH_MAX lanes, "lane 0" and so on, with `each` messages each, of token t1: eight partitions, in each of which a segment ends among
 * them. m has room for all. */
void lt_full_batch(struct lt_msg *m, int each);

/* One token a call, the first's. Messages of one lane that stand side by side are one item; `bare` is that of its first. */
const char *lt_gate(struct lt *l, const struct lt_msg *m, size_t n);
/* A message is an item of its own, and wants one head. */
const char *lt_settle(struct lt *l, const struct lt_msg *m, size_t n);
const char *lt_settle_items(struct lt *l, const struct lt_item *items, size_t n);
const char *lt_claim(struct lt *l, const struct lt_msg *m, size_t n); /* the lane of each counts, and the first's token */
const char *lt_renew(struct lt *l, const struct lt_msg *m, size_t n);
const char *lt_tend(struct lt *l);  /* the number as text */
const char *lt_hints(struct lt *l); /* lanes, joined by spaces */
/* Numbers: committed and from, as the scripts want them; ranges (lo, hi) of topic:partition for repair. */
const char *lt_floor(struct lt *l, const char *tp, int64_t committed, int64_t from);
struct lt_range {
    const char *tp;
    int64_t lo, hi;
};
const char *lt_repair(struct lt *l, const char *tp, int64_t committed, int64_t from, const struct lt_range *ranges, size_t n);

/* Bytes first to last, four states each, of a segment. */
struct lt_look {
    const char *tp;
    int64_t segment;
    int first, last;
};
const char *lt_watch(struct lt *l, const struct lt_look *looks, size_t n); /* the floors, joined by spaces, '-' for none; or "LOST" */
struct lw_bytes lt_states(const struct lt *l, int i);                      /* the bytes of look i */

struct lt_enter {
    const char *candidate, *life, *history, *jumped, *host;
    int64_t ttl_ms, grace_ms, offset_ms;
    uint64_t fence;
    const char *field, *value; /* of the schema */
    int64_t old_ms;
};
struct lt_entered {
    char id[64], field[64], theirs[64];
    int64_t now_ms, not_before_ms, ttl_ms;
    bool first; /* no commit of the group is known */
};
/* "OK" or "REFUSED". */
const char *lt_enter(struct lt *l, const struct lt_enter *e, struct lt_entered *out);

/* Of message i of the last answer of gate; of what was granted first to item i of settle, lane i of claim. */
uint64_t lt_fence(const struct lt *l, int i);
int lt_attempts(const struct lt *l, int i);
int lt_attempts_of(const struct lt *l, int i, int k); /* of the k-th grant of item i, from 0 */
/* "PARTITION/OFFSET" of the envelopes that were handed over to item i, oldest first, "" if none. */
const char *lt_heads(struct lt *l, int i);
struct lw_bytes lt_head_bytes(const struct lt *l, int i, int k);
int64_t lt_duplicates(const struct lt *l); /* settle, claim */

/* What is in Redis, seen as the administrator. A failing command fails the test. */
int64_t lt_int(struct lt *l, const char *fmt, ...);
const char *lt_text(struct lt *l, const char *fmt, ...); /* "(nil)" for nothing */
int lt_state(struct lt *l, struct lt_msg m);
void lt_set_state(struct lt *l, struct lt_msg m, int state);
const char *lt_waiting(struct lt *l, struct lt_msg m); /* PARTITION/OFFSET of its lane's list, oldest first */
const char *lt_lock(struct lt *l, struct lt_msg m);    /* the token, "(nil)" when free */
void lt_free_lock(struct lt *l, struct lt_msg m);      /* as if the lease had run out */
int64_t lt_now_ms(struct lt *l);
/* All keys and values as text, the caller's to free. exact: with fences, scores and stream ids; these change when a call is repeated. */
char *lt_dump(struct lt *l, bool exact);
void lt_assert_unchanged(struct lt *l, char *before, bool exact); /* frees before */
void lt_encode(const struct lt_msg *m, struct lw_buf *out);
/* The call that was built last, sent by hand. */
const char *lt_call_again(struct lt *l);

/* For tests that start their own server, which becomes the struct's: NULL if it could not be reached. lt_close ends both. */
struct lt *lt_open(struct lw_test_redis *server);
void lt_close(struct lt *l);

int lt_setup(void **state);
#define LT(f) cmocka_unit_test_setup(f, lt_setup)
int lt_run_tests(const struct CMUnitTest *tests, size_t n, unsigned variants);
#define LT_RUN(tests, variants) lt_run_tests(tests, sizeof(tests) / sizeof *(tests), variants)

#endif
