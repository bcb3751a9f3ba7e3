/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the lane scripts on a private redis-server. The functions are made so that a test reads
 * like the protocol.
 *
 * Calling sequence: main calls lt_run_tests() with tests made by LT(). Each test gets a struct
 * lt whose server was flushed, and whose epoch was entered and has no quarantine. lt_gate(),
 * lt_settle()… return the answer's letters, as in "RWD"; if the whole call was refused, the word
 * that says so ("LOST"); after an error, its first word with a minus ("-OOM"). The text is valid
 * until the next call.
 *
 * The scripts are called as a user whose ACL knows only keys of the shard's tag, so a script
 * that touches any other name fails its test. Every call is also checked: its fences are above
 * all fences of earlier calls, the last of them is stored, no lane is granted more messages than
 * there are fences, and the answer has the right form (number of letters, heads, attempts).
 *
 * The same tests run in three more variants. In the first, each script is forgotten before each
 * call (SCRIPT FLUSH). In the second, each call except gate is made at maxmemory. In the third,
 * each call is sent twice with the same arguments, as after a lost reply: the second call must
 * answer as the protocol says, and change nothing. */
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
/* All times are so long that nothing expires while a test runs. */
enum {
    LT_TTL_MS = 600000,
    LT_HANDOFF_MS = 300000,
    LT_BATCH_MAX = 256,
    LT_ANSWERS_MAX = 2048,
    LT_ARGS_MAX = 6000,
    LT_TOKENS_MAX = 64
};

struct lt_args {
    char *p[LT_ARGS_MAX];
    size_t size[LT_ARGS_MAX];
    int n;
};

struct lt {
    struct lw_test_redis *server;
    redisContext *admin, *user; /* user: the connection on which scripts are called */
    unsigned variant;

    /* arguments of the next calls; lt_setup() resets them */
    char epoch[64];
    int64_t off_ms; /* added to the Redis time that the call expects */
    int64_t ttl_ms, window_s;
    bool skip, drop; /* settings retry.order: skip, queue.on_busy: drop */
    /* with queue.on_busy drop: first offset of every partition that is new in this epoch; -1:
     * unknown */
    int64_t new_from;
    int taken;       /* number of hints to remove from claimed:w */
    int most;        /* maximum number of lanes per call of tend, or of hints per call of hints */
    int reserve;     /* number of fences that a lane may need */
    int want;        /* for claim: maximum number of heads per lane */
    char bounds[64]; /* for claim and settle: bounds in bytes, "LANE CALL MET" as in claim.lua */
    /* which bytes of a segment are read at once: 0 those of all its messages, 1 that of the first
     * message, 2 none */
    int narrow;

    /* The following members describe the last call and its answer. */
    const struct lw_script *script;
    struct lt_args keys, args;
    char token[64]; /* token of the last gate or claim */
    redisReply *reply;
    char answers[LT_ANSWERS_MAX + 1], named[LT_ANSWERS_MAX + 1], text[70000];
    /* first fence that the last call took; last fence that any call took */
    uint64_t fence, fence_seen;
    int n_items, n_messages; /* number of items and of messages of the call */
    struct {
        int n_messages, n_named, first_head, n_heads;
        /* number of the item's first grant, counted from 1 over all items; named messages and heads
         * count, too */
        int first_grant;
    } item[LT_BATCH_MAX];
    struct {
        /* number of the grant, counted from 1 over all lanes (0: not granted), and from 0 within
         * its lane */
        int grant, in_lane;
    } granted[LT_ANSWERS_MAX];
    struct {
        char token[64];
        uint64_t fence;
    } values
        [LT_TOKENS_MAX]; /* for each token, the value that gate or claim last wrote into locks */
    int n_values;
};

struct lt_msg {
    const char *topic;
    int32_t partition;
    int64_t offset;
    struct lw_bytes lane;
    const char *token, *dedup;
    bool bare;   /* true if gate gets no envelope of this message */
    size_t size; /* size of the payload; 0: a short payload */
    /* for gate with queue.on_busy drop: the caller already runs a message of the lane */
    bool behind;
    /* Only settle uses the members below. */
    /* mode: a value of enum lw_go as a word: next, drop, keep, Keep (keep alone), more or heads */
    const char *outcome, *mode, *reason;
    const struct lt_msg *next; /* the single message that the item names */
    int64_t backoff_ms;
};

/* An item of settle: the finished messages of a lane, and the messages that the item names. All
 * finished messages have the outcome done, except the last one, which may have another outcome.
 * The item has the lane and the token of the first message. */
struct lt_item {
    const struct lt_msg *done;
    size_t n_done;
    char mode; /* letter of the mode (LW_GO_… in queue/codes.h) */
    const struct lt_msg *named;
    size_t n_named;
    int want, before;
    const char *value; /* value of the lock; NULL: the value last written with the token */
};

/* Makes a message of topic orders with outcome done and mode next. */
struct lt_msg lt_msg(int32_t partition, int64_t offset, const char *lane, const char *token);
struct lt_msg lt_msg_bytes(int32_t partition, int64_t offset, struct lw_bytes lane,
                           const char *token);
/* Returns the same message with another outcome and mode. */
struct lt_msg lt_with(struct lt_msg m, const char *outcome, const char *mode);

/* Fills m with messages of LT_BATCH_MAX lanes ("lane 0" and so on), `each` per lane, all with
 * token t1. The messages are in eight partitions, and in each partition a segment ends among
 * them. */
void lt_full_batch(struct lt_msg *m, int each);

/* Calls gate with the token of the first message. Neighbours of the same lane become one item.
 * If the first message of an item is `bare`, the item has no envelopes. */
const char *lt_gate(struct lt *l, const struct lt_msg *m, size_t n);
/* Calls settle with one item per message. Each item asks for one head. */
const char *lt_settle(struct lt *l, const struct lt_msg *m, size_t n);
const char *lt_settle_items(struct lt *l, const struct lt_item *items, size_t n);
/* Claims the lane of each message, with the token of the first message. */
const char *lt_claim(struct lt *l, const struct lt_msg *m, size_t n);
const char *lt_renew(struct lt *l, const struct lt_msg *m, size_t n);
/* calls tend; returns its answer, the number of lanes, as text */
const char *lt_tend(struct lt *l);
/* calls hints; returns the lanes that hints name, joined by spaces */
const char *lt_hints(struct lt *l);
/* lt_floor() and lt_repair() pass on what the scripts expect: topic:partition, the offsets
 * `committed` and `from`, and for repair the ranges of offsets from lo to hi. */
const char *lt_floor(struct lt *l, const char *tp, int64_t committed, int64_t from);
struct lt_range {
    const char *tp;
    int64_t lo, hi;
};
const char *lt_repair(struct lt *l, const char *tp, int64_t committed, int64_t from,
                      const struct lt_range *ranges, size_t n);

/* Names the bytes from `first` to `last` of a segment. Each byte holds four states. */
struct lt_look {
    const char *tp;
    int64_t segment;
    int first, last;
};
/* returns the floors, joined by spaces, with '-' for none; or "LOST" */
const char *lt_watch(struct lt *l, const struct lt_look *looks, size_t n);
/* returns the bytes that lt_watch() read for looks[i] */
struct lw_bytes lt_states(const struct lt *l, int i);

struct lt_enter {
    const char *candidate, *life, *history, *jumped, *host;
    int64_t ttl_ms, grace_ms, offset_ms;
    uint64_t fence;
    const char *field, *value; /* one field of the schema */
    int64_t old_ms;
    const char *from, *from_history; /* the node that had the slot before */
    bool patient;
};
struct lt_entered {
    char id[64], field[64], theirs[64];
    int64_t now_ms, not_before_ms, ttl_ms;
    bool first; /* true while no commit of the group is known */
};
/* Calls enter. Returns "OK", "REFUSED" or "UNVOUCHED". */
const char *lt_enter(struct lt *l, const struct lt_enter *e, struct lt_entered *out);

/* lt_fence() and lt_attempts() return values of the last answer: for gate those of message i;
 * for settle those of the first grant of item i; for claim those of lane i. */
uint64_t lt_fence(const struct lt *l, int i);
int lt_attempts(const struct lt *l, int i);
int lt_attempts_of(const struct lt *l, int i, int k); /* attempts of grant k (from 0) of item i */
/* Returns "PARTITION/OFFSET" of the envelopes that item i was given, oldest first, or "" if it
 * was given none. */
const char *lt_heads(struct lt *l, int i);
struct lw_bytes lt_head_bytes(const struct lt *l, int i, int k);
/* returns how many duplicates the last settle or claim dropped */
int64_t lt_duplicates(const struct lt *l);

/* The following functions read Redis as the administrator. If a command fails, the test fails. */
int64_t lt_int(struct lt *l, const char *fmt, ...);
const char *lt_text(struct lt *l, const char *fmt, ...); /* returns "(nil)" if Redis has no value */
int lt_state(struct lt *l, struct lt_msg m);
void lt_set_state(struct lt *l, struct lt_msg m, int state);
/* returns PARTITION/OFFSET of the messages in its lane's list, oldest first */
const char *lt_waiting(struct lt *l, struct lt_msg m);
/* returns the token of its lane's lock; "(nil)" if the lane is free */
const char *lt_lock(struct lt *l, struct lt_msg m);
/* removes the lock, as if the lease had ended */
void lt_free_lock(struct lt *l, struct lt_msg m);
int64_t lt_now_ms(struct lt *l);
/* Returns all keys and values as text, which the caller frees. exact: also includes fences,
 * scores and stream ids, which change when a call is repeated. */
char *lt_dump(struct lt *l, bool exact);
/* compares the data with a dump, and frees the dump */
void lt_assert_unchanged(struct lt *l, char *before, bool exact);
void lt_encode(const struct lt_msg *m, struct lw_buf *out);
/* Sends the last call again, exactly as it was built. */
const char *lt_call_again(struct lt *l);

/* Functions for tests that start their own server. lt_open() takes over the server, and returns
 * NULL if it cannot connect. lt_close() ends the server, too. */
struct lt *lt_open(struct lw_test_redis *server);
void lt_close(struct lt *l);

int lt_setup(void **state);
#define LT(f) cmocka_unit_test_setup(f, lt_setup)
int lt_run_tests(const struct CMUnitTest *tests, size_t n, unsigned variants);
#define LT_RUN(tests, variants) lt_run_tests(tests, sizeof(tests) / sizeof *(tests), variants)

#endif
