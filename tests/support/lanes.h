/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that call the lane scripts on a private redis-server, so that a test reads like a
 * description of the protocol.
 *
 * main() calls lt_run_tests() with tests made by LT(). Each test gets a struct lt with an empty
 * server, whose epoch has been entered and has no quarantine. lt_gate(), lt_settle() and similar
 * functions return the letters of the script's answer, for example "RWD". If the script refused the
 * whole call, they return its answer, for example "LOST". After an error, they return a minus and
 * the first word of the error, for example "-OOM". The returned text is valid until the next call.
 *
 * The scripts are called as a Redis user whose ACL allows only keys with the prefix of the shard,
 * so a script that accesses any other key fails its test. The answer to every call is also checked.
 * Its fences must be higher than all fences of earlier calls, and its last fence must be stored. No
 * lane may get more grants than there are fences. The answer must have the right number of letters,
 * heads and attempts.
 *
 * A test can run in four variants, and LT_RUN() names the variants in which a list of tests runs.
 * In LT_PLAIN, nothing special happens. In LT_FLUSHED, each script is removed from Redis before
 * each call (SCRIPT FLUSH). In LT_FULL, each call except gate is made at maxmemory. In LT_TWICE,
 * each call is sent twice with the same arguments, as after a lost reply. The second call must then
 * answer as the protocol says, and change nothing. There are two exceptions: the script `hints`,
 * which would remove further hints, and the script `floor` if its work is not finished. */
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
/* The TTLs are so long that nothing expires while a test runs. */
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
    /* The connection `admin` has all rights. Scripts are called on the connection `user`. */
    redisContext *admin, *user;
    unsigned variant;

    /* The following members are arguments of the next calls. lt_setup() sets them to their
     * defaults. */
    char epoch[64];
    int64_t off_ms; /* offset, in ms, added to the Redis time that the call expects */
    int64_t ttl_ms, window_s;
    bool skip;   /* retry.order is skip */
    int taken;   /* number of hints to remove from the list claimed:w */
    int most;    /* maximum number of lanes per call of tend, or of hints per call of hints */
    int reserve; /* number of fences that each call reserves */
    int want;    /* for claim: maximum number of heads per lane */
    /* For claim and settle, three sizes in bytes: the maximum granted in a lane, the maximum that a
     * call reads from waiting lists, and the largest envelope that the caller has seen. */
    char bounds[64];
    /* `narrow` chooses the bytes of a segment that a call tells the script to read at once. 0 means
     * the bytes of all messages of the call, and 1 means the byte of the first message. 2 means no
     * bytes: the script then reads each page when it needs the page. */
    int narrow;

    /* The following members describe the last call and its answer. */
    const struct lw_script *script;
    struct lt_args keys, args;
    char token[64]; /* token of the last call of gate or claim */
    redisReply *reply;
    char answers[LT_ANSWERS_MAX + 1], named[LT_ANSWERS_MAX + 1], text[70000];
    /* `fence` is the smallest fence that the last call took. `fence_seen` is the largest fence that
     * any call has taken. */
    uint64_t fence, fence_seen;
    int n_items, n_messages; /* number of items and of messages in the call */
    struct {
        int n_messages, n_named, first_head, n_heads;
        /* The number of the item's first grant. The grants of all items are numbered from 1. Each
         * head, and each named message that is granted, is one grant. */
        int first_grant;
    } item[LT_BATCH_MAX];
    struct {
        /* `grant` is the number of the grant, counted from 1 over all lanes; 0 means not granted.
         * `in_lane` is the number of the grant within its lane, counted from 0. */
        int grant, in_lane;
    } granted[LT_ANSWERS_MAX];
    struct {
        char token[64];
        uint64_t fence;
    } values
        /* for each token, the fence that gate or claim last wrote into a lock with this token */
        [LT_TOKENS_MAX];
    int n_values;
};

struct lt_msg {
    const char *topic;
    int32_t partition;
    int64_t offset;
    struct lw_bytes lane;
    const char *token, *dedup;
    const char *run;   /* what renew notes as running; NULL: nothing */
    bool bare;         /* true if the call of gate contains no envelope of this message */
    bool parks;        /* true if gate must park the message even if its lane is free */
    const char *group; /* group of the message; NULL: none */
    size_t size;       /* size of the payload; 0 means a short payload */
    /* Only settle uses the members below. */
    /* `mode` is a value of enum lw_go as a word: next, drop, keep, Keep (for LW_GO_KEEP_ALONE),
     * more or heads. */
    const char *outcome, *mode, *reason;
    const struct lt_msg *next; /* the only message that the item of settle names */
    int64_t backoff_ms;
};

/* An item of settle: the finished messages of a lane, and the messages that the item names. All
 * finished messages have the outcome done, except the last one, which may have another outcome. The
 * item has the lane and the token of the first message. */
struct lt_item {
    const struct lt_msg *done;
    size_t n_done;
    char mode; /* letter of the mode (LW_GO_… in queue/codes.h) */
    const struct lt_msg *named;
    size_t n_named;
    int want, before;
    /* value of the lock; NULL: the value of the lock that was last taken with the token */
    const char *value;
};

/* Makes a message of the topic `orders` with outcome done and mode next. */
struct lt_msg lt_msg(int32_t partition, int64_t offset, const char *lane, const char *token);
struct lt_msg lt_msg_bytes(int32_t partition, int64_t offset, struct lw_bytes lane,
                           const char *token);
/* Returns a copy of the message with the given outcome and mode. */
struct lt_msg lt_with(struct lt_msg m, const char *outcome, const char *mode);

/* Fills m with messages of LT_BATCH_MAX lanes ("lane 0" and so on), `each` messages per lane, all
 * with token t1. The messages are in eight partitions, and each partition has messages in two
 * segments. */
void lt_full_batch(struct lt_msg *m, int each);

/* Calls gate with the token of the first message. Adjacent messages of the same lane become one
 * item. If the first message of an item is `bare`, the item has no envelopes. */
const char *lt_gate(struct lt *l, const struct lt_msg *m, size_t n);
/* Calls settle with one item per message. Each item asks for one head. */
const char *lt_settle(struct lt *l, const struct lt_msg *m, size_t n);
const char *lt_settle_items(struct lt *l, const struct lt_item *items, size_t n);
/* Calls claim for the lane of each message, with the token of the first message. */
const char *lt_claim(struct lt *l, const struct lt_msg *m, size_t n);
const char *lt_renew(struct lt *l, const struct lt_msg *m, size_t n);
/* Calls the script `tend`, and returns as text the number of lanes that the script looked at. */
const char *lt_tend(struct lt *l);
/* Calls the script `hints`, and returns the lanes of the hints in its answer, joined by spaces. */
const char *lt_hints(struct lt *l);
/* lt_floor() and lt_repair() call the scripts `floor` and `repair`. `tp` is the partition as
 * topic:partition. `committed`, `from` and `ranges` are arguments of the scripts. A range contains
 * the offsets from lo to hi. */
const char *lt_floor(struct lt *l, const char *tp, int64_t committed, int64_t from);
struct lt_range {
    const char *tp;
    int64_t lo, hi;
};
const char *lt_repair(struct lt *l, const char *tp, int64_t committed, int64_t from,
                      const struct lt_range *ranges, size_t n);

/* Names the bytes of a segment from number `first` to number `last`. Each byte contains four
 * states. */
struct lt_look {
    const char *tp;
    int64_t segment;
    int first, last;
};
/* Calls the script `watch`, and returns the floors of the partitions, joined by spaces, or "LOST".
 * A '-' stands for a floor that does not exist. */
const char *lt_watch(struct lt *l, const struct lt_look *looks, size_t n);
/* Returns the bytes that lt_watch() has read for looks[i]. */
struct lw_bytes lt_states(const struct lt *l, int i);

struct lt_enter {
    const char *candidate, *life, *history, *jumped, *host;
    int64_t ttl_ms, offset_ms;
    uint64_t fence;
    const char *field, *value; /* name and value of one field of the schema */
    int64_t old_ms;
};
struct lt_entered {
    char id[64], field[64], theirs[64];
    int64_t now_ms, not_before_ms, ttl_ms;
    bool first; /* true while no commit of the group is known */
};
/* Calls the script enter. Returns "OK" or "REFUSED". */
const char *lt_enter(struct lt *l, const struct lt_enter *e, struct lt_entered *out);

/* lt_fence() and lt_attempts() return values from the last answer. After gate, the values belong to
 * message i; after settle, to the first grant of item i; after claim, to lane i. */
uint64_t lt_fence(const struct lt *l, int i);
int lt_attempts(const struct lt *l, int i);
/* Returns when message i, which claim handed over, failed for the first time; 0: it has not. */
int64_t lt_first_ms(const struct lt *l, int i);
/* Returns the number of attempts of grant k of item i. k is counted from 0. */
int lt_attempts_of(const struct lt *l, int i, int k);
/* Returns "PARTITION/OFFSET" of each envelope in the answer to item i, oldest first, or "" if there
 * is none. */
const char *lt_heads(struct lt *l, int i);
struct lw_bytes lt_head_bytes(const struct lt *l, int i, int k);
/* Returns the number of duplicates that the last settle or claim dropped. */
int64_t lt_duplicates(const struct lt *l);

/* The following functions read or change Redis as the administrator. If a command fails, the test
 * fails. */
int64_t lt_int(struct lt *l, const char *fmt, ...);
/* Executes a Redis command, and returns its reply if it is a string or a status. Returns "(nil)"
 * for any other reply, such as nil. */
const char *lt_text(struct lt *l, const char *fmt, ...);
int lt_state(struct lt *l, struct lt_msg m);
void lt_set_state(struct lt *l, struct lt_msg m, int state);
/* Returns PARTITION/OFFSET of each message in the waiting list of m's lane, oldest first. */
const char *lt_waiting(struct lt *l, struct lt_msg m);
/* Returns the token of the lock of m's lane, or "(nil)" if no one holds the lock. */
const char *lt_lock(struct lt *l, struct lt_msg m);
/* Removes the lock of m's lane, as if the lease had ended. */
void lt_free_lock(struct lt *l, struct lt_msg m);
int64_t lt_now_ms(struct lt *l);
/* Returns all keys and values as text, which the caller frees. If `exact` is true, the text also
 * includes fences, scores and stream ids, which change when a call is repeated. */
char *lt_dump(struct lt *l, bool exact);
/* Compares the present data with `before`, the result of an earlier lt_dump(). Fails if they
 * differ. Frees `before`. */
void lt_assert_unchanged(struct lt *l, char *before, bool exact);
void lt_encode(const struct lt_msg *m, struct lw_buf *out);
/* Sends the last call again with exactly the same arguments. */
const char *lt_call_again(struct lt *l);

/* The following functions are for tests that start a server themselves. lt_open() becomes the owner
 * of the server, and returns NULL if it cannot connect. lt_close() also stops the server. */
struct lt *lt_open(struct lw_test_redis *server);
void lt_close(struct lt *l);

int lt_setup(void **state);
#define LT(f) cmocka_unit_test_setup(f, lt_setup)
int lt_run_tests(const struct CMUnitTest *tests, size_t n, unsigned variants);
#define LT_RUN(tests, variants) lt_run_tests(tests, sizeof(tests) / sizeof *(tests), variants)

#endif
