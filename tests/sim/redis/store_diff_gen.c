/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/redis/store_diff_gen.h"

#include "base/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/redis/store.h"

static int below(uint64_t *state, int n) { return (int)(lw_random_next(state) % (unsigned)n); }
static bool one_in(uint64_t *state, int n) { return below(state, n) == 0; }

#define PICK(state, table) (table)[below((state), (int)(sizeof(table) / sizeof(table)[0]))]

static void add_n(struct diff_step *step, const char *p, size_t n) {
    if (step->argc == DIFF_ARGS || step->used + n + 1 > sizeof step->text) abort();
    char *to = step->text + step->used;
    memcpy(to, p, n);
    to[n] = '\0';
    step->used += n + 1;
    step->argv[step->argc] = to;
    step->len[step->argc++] = n;
}

void diff_add(struct diff_step *step, const char *arg) { add_n(step, arg, strlen(arg)); }

__attribute__((format(printf, 2, 3))) static void addf(struct diff_step *step, const char *fmt,
                                                       ...) {
    char text[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    diff_add(step, text);
}

/* --- kinds of arguments ----------------------------------------------------------------------- */

static void add_key(uint64_t *state, struct diff_step *step, char family) {
    static const char families[] = "slhzexb";
    if (one_in(state, 12)) family = families[below(state, (int)sizeof families - 1)];
    char key[4] = {family, ':', (char)('0' + below(state, 3)), '\0'};
    add_n(step, key, one_in(state, 3) ? 4 : 3); /* a third of the keys end with a NUL byte */
}

static void add_value(uint64_t *state, struct diff_step *step) {
    static const char *const words[] = {"a",  "b",   "",           "hello world",         "10",
                                        "-3", "007", "x\xff\x01y", "9223372036854775806", "1.5"};
    char big[200];
    int kind = below(state, 12);
    if (kind == 0) {
        memset(big, 'a' + below(state, 3), sizeof big);
        add_n(step, big, 60 + (size_t)below(state, 140));
    } else if (kind == 1)
        add_n(step, "nul\0in\r\nit", 10);
    else if (kind < 6)
        addf(step, "%d", below(state, 50) - 10);
    else
        diff_add(step, PICK(state, words));
}

static void add_field(uint64_t *state, struct diff_step *step) {
    static const char *const names[] = {"f1", "f2", "f3", "f4", "7", "", "b\x80z", "f10"};
    diff_add(step, PICK(state, names));
}

static void add_score(uint64_t *state, struct diff_step *step) {
    static const char *const scores[] = {
        "inf",  "-inf", "1.5", "-0.25", "1e3", "1700000000123456", "3.0000000000000004",
        "0x10", "-0"};
    if (one_in(state, 5))
        diff_add(step, PICK(state, scores));
    else
        addf(step, "%d", below(state, 20) - 5);
}

static void add_bound(uint64_t *state, struct diff_step *step) {
    static const char *const bounds[] = {"-inf", "+inf", "inf", "(-inf", "(1.5", "(inf"};
    if (one_in(state, 3))
        diff_add(step, PICK(state, bounds));
    else
        addf(step, "%s%d", one_in(state, 3) ? "(" : "", below(state, 20) - 6);
}

static void add_id(uint64_t *state, struct diff_step *step, bool adding) {
    if (adding && one_in(state, 6))
        addf(step, "%d-*", below(state, 40));
    else if (!adding && one_in(state, 2))
        diff_add(step, one_in(state, 2) ? "-" : "+");
    else if (one_in(state, 3))
        addf(step, "%s%d", !adding && one_in(state, 3) ? "(" : "", below(state, 40));
    else
        addf(step, "%d-%d", below(state, 40), below(state, 4));
}

static void add_bit_kind(uint64_t *state, struct diff_step *step) {
    bool is_signed = one_in(state, 2);
    addf(step, "%c%d", is_signed ? 'i' : 'u', 1 + below(state, is_signed ? 64 : 63));
}

static void add_bit_ops(uint64_t *state, struct diff_step *step, bool writes) {
    for (int i = below(state, 4); i >= 0; i--) {
        int what = writes ? below(state, 4) : 0;
        if (what == 3) {
            diff_add(step, "overflow");
            diff_add(step, "Wrap");
            continue;
        }
        diff_add(step, what == 0 ? "GET" : what == 1 ? "SET" : "INCRBY");
        add_bit_kind(state, step);
        addf(step, "%s%d", one_in(state, 2) ? "#" : "", below(state, 90));
        if (what == 0) continue;
        if (one_in(state, 3))
            addf(step, "%lld", (long long)lw_random_next(state));
        else
            addf(step, "%d", below(state, 9) - 4);
    }
}

static void add_set_options(uint64_t *state, struct diff_step *step) {
    if (one_in(state, 4)) diff_add(step, one_in(state, 2) ? "NX" : "xx");
    if (one_in(state, 6)) diff_add(step, "GET");
    if (one_in(state, 8)) diff_add(step, "KEEPTTL");
    if (one_in(state, 4)) {
        bool ms = one_in(state, 2);
        diff_add(step, ms ? "PX" : "ex");
        diff_add(step, one_in(state, 6) ? "0" : ms ? "5000000" : "5000");
    }
}

static void add_zadd_options(uint64_t *state, struct diff_step *step) {
    static const char *const options[] = {"NX", "XX", "GT", "LT", "CH", "ch", "INCR"};
    while (one_in(state, 3)) diff_add(step, PICK(state, options));
}

static void add_limit(uint64_t *state, struct diff_step *step) {
    diff_add(step, "LIMIT");
    addf(step, "%d", below(state, 5) - 1);
    addf(step, "%d", below(state, 6) - 1);
}

static void add_zrange_options(uint64_t *state, struct diff_step *step) {
    bool by_score = one_in(state, 2);
    if (by_score)
        add_bound(state, step), add_bound(state, step);
    else
        addf(step, "%d", below(state, 12) - 6), addf(step, "%d", below(state, 12) - 6);
    if (by_score) diff_add(step, "BYSCORE");
    if (one_in(state, 3)) diff_add(step, "REV");
    if (one_in(state, by_score ? 2 : 12)) add_limit(state, step);
    if (one_in(state, 2)) diff_add(step, "WITHSCORES");
}

/* Adds a random option to some EXPIRE commands. GT and LT compare times of expiry, and the fake
 * Redis and the real one convert a relative time at slightly different moments. So a command with
 * GT or LT gets a time from a wide range, in which two times are hardly ever close together. */
static void add_expire_option(uint64_t *state, struct diff_step *step) {
    static const char *const options[] = {"NX", "XX", "GT", "LT", "gt"};
    if (!one_in(state, 3)) return;
    const char *name = step->argv[0], *option = PICK(state, options);
    if ((option[0] | 32) != 'n' && option[0] != 'X' && !strstr(name, "at")) {
        step->argc--;
        addf(step, "%d%s", 10000 + below(state, 1000000000), name[0] == 'p' ? "000" : "");
    }
    diff_add(step, option);
}

/* Adds one random argument of a kind, which is a letter. The form of a command is a string with one
 * such letter per argument. The letters after '*' are repeated one to four times. */
static void add_kind(uint64_t *state, struct diff_step *step, char kind) {
    static const char *const sides[] = {"LEFT", "right"};
    switch (kind) {
    case 's':
    case 'l':
    case 'h':
    case 'z':
    case 'e':
    case 'x':
    case 'b': add_key(state, step, kind); break;
    case 'k': add_key(state, step, "slhzexb"[below(state, 7)]); break;
    case 'v': add_value(state, step); break;
    case 'f': add_field(state, step); break;
    case 'i': addf(step, "%d", below(state, 14) - 6); break;
    case 'c': addf(step, "%d", below(state, 4)); break;
    case 'S': add_score(state, step); break;
    case 'B': add_bound(state, step); break;
    case 'o': addf(step, "%d", below(state, 200)); break;
    case '1': addf(step, "%d", below(state, 2)); break;
    case 'L': diff_add(step, PICK(state, sides)); break;
    case 'P':
        diff_add(step, one_in(state, 8) ? "-5" : one_in(state, 8) ? "7000000" : "5000000");
        break;
    case 'E': diff_add(step, one_in(state, 8) ? "0" : one_in(state, 8) ? "7000" : "5000"); break;
    case 'A':
        diff_add(step, one_in(state, 5)   ? "1000"
                       : one_in(state, 5) ? "9000000000000"
                                          : "8000000000000");
        break;
    case 'a': diff_add(step, one_in(state, 5) ? "1" : "8000000000"); break;
    case 'X': add_expire_option(state, step); break;
    case 'Q': add_id(state, step, true); break;
    case 'q': add_id(state, step, false); break;
    case 'w': diff_add(step, "0.001"); break;
    case 'W': add_bit_ops(state, step, true); break;
    case 'G': add_bit_ops(state, step, false); break;
    case 'O': add_set_options(state, step); break;
    case 'Z': add_zadd_options(state, step); break;
    case 'R': add_zrange_options(state, step); break;
    case 'M':
        if (one_in(state, 3))
            diff_add(step, "maxlen"), diff_add(step, "="), addf(step, "%d", below(state, 5));
        break;
    case 'N':
        if (one_in(state, 3)) diff_add(step, "COUNT"), addf(step, "%d", below(state, 4));
        break;
    case 'Y':
        if (one_in(state, 3)) diff_add(step, "withscores");
        if (one_in(state, 3)) add_limit(state, step);
        break;
    case 'C':
        if (one_in(state, 3)) addf(step, "%d", below(state, 4));
        break;
    case 'D': diff_add(step, "0"), diff_add(step, "COUNT"), diff_add(step, "1000"); break;
    case 'J':
        if (one_in(state, 2))
            diff_add(step, "MATCH"), diff_add(step, one_in(state, 2) ? "[l-s]*" : "?:1*");
        break;
    default: abort();
    }
}

/* --- commands --------------------------------------------------------------------------------- */

static const struct form {
    const char *name, *kinds;
    unsigned weight;
    enum diff_mode mode;
} forms[] = {
    {"ping", "", 1, DIFF_EXACT},
    {"time", "", 1, DIFF_SHAPE},
    {"info", "", 1, DIFF_SHAPE},
    {"dbsize", "", 2, DIFF_EXACT},
    {"flushall", "", 1, DIFF_EXACT},
    {"scan", "DJ", 3, DIFF_UNORDERED},
    {"script", "", 4, DIFF_EXACT},
    {"eval", "", 60, DIFF_EXACT},
    {"evalsha", "", 6, DIFF_EXACT},
    {"del", "*k", 6, DIFF_EXACT},
    {"unlink", "*k", 2, DIFF_EXACT},
    {"exists", "*k", 4, DIFF_EXACT},
    {"expire", "kEX", 3, DIFF_EXACT},
    {"pexpire", "kPX", 4, DIFF_EXACT},
    {"expireat", "kaX", 2, DIFF_EXACT},
    {"pexpireat", "kAX", 3, DIFF_EXACT},
    {"ttl", "k", 3, DIFF_TIME},
    {"pttl", "k", 4, DIFF_TIME},
    {"pexpiretime", "k", 2, DIFF_TIME},
    {"persist", "k", 2, DIFF_EXACT},
    {"type", "k", 4, DIFF_EXACT},
    {"get", "s", 8, DIFF_EXACT},
    {"set", "svO", 14, DIFF_EXACT},
    {"setnx", "sv", 3, DIFF_EXACT},
    {"setex", "sEv", 3, DIFF_EXACT},
    {"psetex", "sPv", 3, DIFF_EXACT},
    {"mget", "*k", 4, DIFF_EXACT},
    {"getrange", "sii", 5, DIFF_EXACT},
    {"setrange", "sov", 5, DIFF_EXACT},
    {"append", "sv", 3, DIFF_EXACT},
    {"strlen", "s", 3, DIFF_EXACT},
    {"incr", "s", 5, DIFF_EXACT},
    {"decr", "s", 3, DIFF_EXACT},
    {"incrby", "si", 5, DIFF_EXACT},
    {"bitfield", "bW", 14, DIFF_EXACT},
    {"bitfield_ro", "bG", 5, DIFF_EXACT},
    {"setbit", "bo1", 5, DIFF_EXACT},
    {"getbit", "bo", 4, DIFF_EXACT},
    {"hset", "h*fv", 10, DIFF_EXACT},
    {"hsetnx", "hfv", 4, DIFF_EXACT},
    {"hget", "hf", 5, DIFF_EXACT},
    {"hmget", "h*f", 5, DIFF_EXACT},
    {"hgetall", "h", 4, DIFF_PAIRS},
    {"hkeys", "h", 3, DIFF_UNORDERED},
    {"hvals", "h", 3, DIFF_UNORDERED},
    {"hdel", "h*f", 5, DIFF_EXACT},
    {"hincrby", "hfi", 5, DIFF_EXACT},
    {"hexists", "hf", 3, DIFF_EXACT},
    {"hlen", "h", 3, DIFF_EXACT},
    {"sadd", "e*f", 6, DIFF_EXACT},
    {"srem", "e*f", 5, DIFF_EXACT},
    {"sismember", "ef", 4, DIFF_EXACT},
    {"smismember", "e*f", 4, DIFF_EXACT},
    {"smembers", "e", 4, DIFF_UNORDERED},
    {"scard", "e", 3, DIFF_EXACT},
    {"lpush", "l*v", 8, DIFF_EXACT},
    {"rpush", "l*v", 8, DIFF_EXACT},
    {"lpushx", "l*v", 2, DIFF_EXACT},
    {"rpushx", "l*v", 2, DIFF_EXACT},
    {"lpop", "lC", 5, DIFF_EXACT},
    {"rpop", "lC", 5, DIFF_EXACT},
    {"llen", "l", 3, DIFF_EXACT},
    {"lindex", "li", 5, DIFF_EXACT},
    {"lrange", "lii", 5, DIFF_EXACT},
    {"lrem", "liv", 6, DIFF_EXACT},
    {"lset", "liv", 5, DIFF_EXACT},
    {"ltrim", "lii", 4, DIFF_EXACT},
    {"rpoplpush", "ll", 5, DIFF_EXACT},
    {"lmove", "llLL", 6, DIFF_EXACT},
    {"brpoplpush", "llw", 1, DIFF_EXACT},
    {"zadd", "zZ*Sf", 14, DIFF_EXACT},
    {"zincrby", "zSf", 5, DIFF_EXACT},
    {"zrem", "z*f", 5, DIFF_EXACT},
    {"zscore", "zf", 4, DIFF_EXACT},
    {"zmscore", "z*f", 4, DIFF_EXACT},
    {"zcard", "z", 3, DIFF_EXACT},
    {"zcount", "zBB", 4, DIFF_EXACT},
    {"zrank", "zf", 4, DIFF_EXACT},
    {"zrange", "zR", 10, DIFF_EXACT},
    {"zrangebyscore", "zBBY", 8, DIFF_EXACT},
    {"zremrangebyscore", "zBB", 3, DIFF_EXACT},
    {"xadd", "xMQ*fv", 8, DIFF_EXACT},
    {"xdel", "x*Q", 3, DIFF_EXACT},
    {"xlen", "x", 3, DIFF_EXACT},
    {"xrange", "xqqN", 5, DIFF_EXACT},
};

enum { FORMS = sizeof forms / sizeof forms[0] };

static void add_form(uint64_t *state, const struct form *form, struct diff_step *step) {
    step->mode = form->mode;
    diff_add(step, form->name);
    for (const char *kind = form->kinds; *kind; kind++) {
        if (*kind != '*') {
            add_kind(state, step, *kind);
            continue;
        }
        for (int i = below(state, 4); i >= 0; i--) {
            for (const char *again = kind + 1; *again; again++) add_kind(state, step, *again);
        }
        return;
    }
}

/* Spoils a command: replaces an argument with a wrong word, adds a word, or removes the last
 * argument. */
static void spoil(uint64_t *state, struct diff_step *step) {
    static const char *const rubbish[] = {"",
                                          "abc",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "9223372036854775808",
                                          "-1",
                                          "(5",
                                          "nan",
                                          "#3",
                                          "xx",
                                          "1.0",
                                          " 1",
                                          "+1",
                                          "01",
                                          "(nan",
                                          "inf",
                                          "-",
                                          "0",
                                          "u64",
                                          "i0",
                                          "1 "};
    int at = 1 + below(state, step->argc);
    if (at == step->argc || step->argc == 1) {
        if (step->argc < DIFF_ARGS) diff_add(step, PICK(state, rubbish));
    } else if (one_in(state, 3)) {
        step->argc--;
    } else {
        const char *word = PICK(state, rubbish);
        step->argv[at] = word;
        step->len[at] = strlen(word);
    }
}

static bool may_spoil(const char *name) {
    /* LSET of Redis 8.0 cuts an index of 64 bits to 32. */
    static const char *const never[] = {"scan",    "brpoplpush", "info", "eval",
                                        "evalsha", "script",     "time", "lset"};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        if (strcmp(never[i], name) == 0) return false;
    }
    return true;
}

static const struct form *pick_form(uint64_t *state) {
    unsigned total = 0;
    for (size_t i = 0; i < FORMS; i++) total += forms[i].weight;
    unsigned at = (unsigned)below(state, (int)total);
    for (size_t i = 0;; i++) {
        if (at < forms[i].weight) return &forms[i];
        at -= forms[i].weight;
    }
}

/* --- scripts ---------------------------------------------------------------------------------- */

static const char *const plain_scripts[] = {
    "return 3.7",
    "return -3.7",
    "return 'text'",
    "return true",
    "return false",
    "return nil",
    "return",
    "return {1, 2, nil, 4}",
    "return {1, {2, 'x', {}}, false, true, 2.5}",
    "return {ok = 'fine'}",
    "return {err = 'MINE is this'}",
    "return {a = 1}",
    "return {{ok = 'a'}, {err = 'B c'}}",
    "return redis.error_reply('lone')",
    "return redis.error_reply('CODE text')",
    "return redis.error_reply('-CODE text')",
    "return redis.status_reply('st')",
    "return redis.status_reply(1)",
    "error('boom')",
    "error({err = 'MINE boom'})",
    "return {pcall(error, 'x')}",
    "return nosuch",
    "nosuch = 1",
    "local ok, e = pcall(function() return nosuch end) return {ok, type(e)}",
    "local ok = pcall(function() nosuch = 1 end) return ok",
    "return redis.sha1hex('abc')",
    "return redis.sha1hex(string.rep('abc', 50))",
    "return {#KEYS, #ARGV}",
    "return KEYS",
    "return ARGV",
    "return redis.call()",
    "return redis.call('nosuch')",
    "return redis.call('get')",
    "return redis.call('get', {})",
    "return redis.pcall('nosuch').err ~= nil",
    "return redis.call('eval', 'return 1', 0)",
    "return redis.log(redis.LOG_DEBUG, 'x')",
    "return redis.log(9, 'x')",
    "return type(redis.call('get', 'nokey'))",
    "return type(redis.call('time'))",
    "return redis.call('set', 's:n', 1.5)",
    "return {redis.call('set', 's:n', 1e15), redis.call('get', 's:n')}",
    "return {redis.call('set', 's:n', 1e20), redis.call('get', 's:n')}",
    "return {redis.call('set', 's:n', 0.1), redis.call('get', 's:n')}",
    "return {redis.call('incrby', 's:c', 5), redis.call('incrby', 's:c', 4503599627370496) + 1}",
    ("return {bit.band(0xff, 0x0f0f), bit.bor(1, 2), bit.bxor(5, 1), bit.lshift(1, 31), "
     "bit.rshift(-1, 28), bit.bnot(0)}"),
    "return tostring(1e15) .. tostring(2^53) .. tostring(12345678901234)",
    "return string.format('%d %s %5.1f', 3, 'x', 2.25)",
    "return {tonumber('10'), tonumber('zz'), tonumber('0x10')}",
    "return table.concat({1, 2, 3}, ',')",
    "return {unpack({1, 2, 3}, 2)}",
    "return {redis.call('set', 's:0', 'v').ok, redis.call('ping').ok}",
    "syntax error here",
    "#!lua\nreturn 1",
    "#!lua flags=allow-oom\nreturn redis.call('set', 's:0', 'x')",
    "#!lua flags=no-writes\nreturn redis.call('set', 's:0', 'x')",
    "#!lua flags=no-writes,allow-oom\nreturn redis.call('get', 's:0')",
    "#!lua flags=rubbish\nreturn 1",
    "#!lua rubbish\nreturn 1",
    "#!js\nreturn 1",
    "#!lua",
};

static const char *const around_one[] = {
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return 'failed' end "
    "return r",
    "local ok, r = pcall(redis.call, unpack(ARGV)) if not ok then return {type(r), string.match(r, "
    "'^%u+')} end return r",
    "local r = redis.call(unpack(ARGV)) return r",
};

static const char *const around_first_two[] = {
    "local a = redis.pcall(unpack(ARGV)) local b = redis.pcall(unpack(ARGV)) return {a, b}",
    "local a = redis.call(unpack(ARGV)) redis.call('del', KEYS[1]) return {a, "
    "redis.pcall(unpack(ARGV))}",
    "local a = redis.pcall(unpack(ARGV)) return {type(a), type(a) == 'table' and #a or 0, "
    "redis.call('exists', KEYS[1])}",
};

static void add_script_call(uint64_t *state, struct diff_step *step) {
    struct diff_step *inner = malloc(sizeof *inner);
    if (!inner) abort();
    const struct form *form;
    do {
        form = pick_form(state);
    } while (strcmp(form->name, "evalsha") == 0 || strcmp(form->name, "info") == 0 ||
             strcmp(form->name, "brpoplpush") == 0); /* only Redis 8 lets scripts call it */
    inner->argc = 0;
    inner->used = 0;
    add_form(state, form, inner);
    if (may_spoil(form->name) && one_in(state, 15)) spoil(state, inner);
    bool two = form->mode == DIFF_EXACT && one_in(state, 3);
    diff_add(step, two ? PICK(state, around_first_two) : PICK(state, around_one));
    diff_add(step, "1");
    add_n(step, inner->argc > 1 ? inner->argv[1] : "k", inner->argc > 1 ? inner->len[1] : 1);
    for (int i = 0; i < inner->argc && step->argc < DIFF_ARGS; i++)
        add_n(step, inner->argv[i], inner->len[i]);
    step->mode = form->mode;
    free(inner);
}

static void make_eval(uint64_t *state, struct diff_step *step) {
    step->argc = 0;
    step->used = 0;
    step->mode = DIFF_EXACT;
    diff_add(step, "EVAL");
    if (!one_in(state, 3)) {
        add_script_call(state, step);
        return;
    }
    diff_add(step, PICK(state, plain_scripts));
    static const char *const counts[] = {"0", "0", "1", "2", "3", "-1", "x"};
    diff_add(step, PICK(state, counts));
    add_value(state, step);
    add_value(state, step);
}

static void make_evalsha(uint64_t *state, struct diff_step *step) {
    /* The first hash is the SHA-1 of the script "return 1", and the second is the same in capitals.
     * The others name no script. */
    static const char *const shas[] = {"e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
                                       "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB",
                                       "0000000000000000000000000000000000000000", "short"};
    diff_add(step, PICK(state, shas));
    diff_add(step, "0");
}

static void make_script(uint64_t *state, struct diff_step *step) {
    int what = below(state, 6);
    if (what < 3) {
        diff_add(step, "LOAD");
        diff_add(step, what == 0 ? PICK(state, plain_scripts) : "return 1");
    } else if (what < 5) {
        diff_add(step, "exists");
        diff_add(step, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        diff_add(step, "nothing");
    } else
        diff_add(step, "flush");
}

static void make_short_lived(uint64_t *state, struct diff_step *step) {
    static const char *const commands[] = {"set", "pexpire", "psetex"};
    const char *command = PICK(state, commands);
    diff_add(step, command);
    add_key(state, step, "slhzexb"[below(state, 7)]);
    if (command[0] == 's') add_value(state, step), diff_add(step, "px");
    diff_add(step, "2");
    if (command[1] == 's') add_value(state, step);
    step->sleep_ms = 4;
}

static const struct form *find_form(const char *name) {
    for (size_t i = 0; i < FORMS; i++) {
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    }
    fprintf(stderr, "store diff: no form for the command %s\n", name);
    exit(1);
}

void diff_command(uint64_t *state, const char *name, struct diff_step *step) {
    step->argc = 0;
    step->used = 0;
    step->sleep_ms = 0;
    add_form(state, find_form(name), step);
    if (strcmp(name, "script") == 0) make_script(state, step);
    if (strcmp(name, "evalsha") == 0) make_evalsha(state, step);
    if (strcmp(name, "eval") == 0) make_eval(state, step);
}

void diff_next(uint64_t *state, bool may_sleep, struct diff_step *step) {
    step->argc = 0;
    step->used = 0;
    step->sleep_ms = 0;
    step->mode = DIFF_EXACT;
    if (may_sleep && one_in(state, 100)) {
        make_short_lived(state, step);
        return;
    }
    const char *name = pick_form(state)->name;
    if (strcmp(name, "flushall") == 0 && !one_in(state, 4)) name = "ping";
    diff_command(state, name, step);
    if (may_spoil(name) && one_in(state, 15)) spoil(state, step);
}

void diff_print(const struct diff_step *step) {
    for (int i = 0; i < step->argc; i++) {
        putchar('"');
        for (size_t j = 0; j < step->len[i]; j++) {
            unsigned char c = (unsigned char)step->argv[i][j];
            if (c < ' ' || c > '~' || c == '"' || c == '\\')
                printf("\\x%02x", c);
            else
                putchar(c);
        }
        printf(i + 1 < step->argc ? "\" " : "\"\n");
    }
}
