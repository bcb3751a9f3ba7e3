/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the fake Redis with a real redis-server. Both get the same random commands and scripts,
 * and must give the same replies and end with the same data.
 * usage: sim_store_diff [SEQUENCES [FIRST_SEED]]
 * By default the program runs 300 sequences of 200 commands. A failure names the seed with which it
 * can be repeated. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/redis/script.h"
#include "tests/sim/redis/store.h"
#include "tests/sim/redis/store_diff_gen.h"
#include "tests/support/redis_server.h"

enum { STEPS = 200, SEQUENCES = 300, OOM_PREPARE = 80, NOISE = 30 };

struct pair {
    redisContext *real;
    struct store *fake;
    uint64_t seed;
    char why[256]; /* text that describes the first difference */
};

static unsigned passed, failed;

/* --- replies ---------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *canonical(const redisReply *r, enum diff_mode mode);

/* Whether a text is a number but no integer of 64 bits. Redis 8 writes 0.1 for what earlier servers
 * write as 0.10000000000000001. */
static bool is_double(const redisReply *r, double *number) {
    char *end;
    if (r->len == 0 || !strchr("-.0123456789", r->str[0])) return false;
    *number = strtod(r->str, &end);
    if (end != r->str + r->len) return false;
    errno = 0;
    (void)strtoll(r->str, &end, 10);
    return errno == ERANGE || end != r->str + r->len;
}

static void put_bytes(FILE *out, const redisReply *r, size_t n) {
    double number;
    if (n == r->len && is_double(r, &number)) {
        fprintf(out, "%.17g", number);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)r->str[i];
        if (c < ' ' || c > '~' || c == '\\')
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

static void put_array(FILE *out, const redisReply *r, enum diff_mode mode) {
    size_t stride = mode == DIFF_PAIRS && r->elements % 2 == 0 ? 2 : 1, n = r->elements / stride;
    char **texts = calloc(n + 1, sizeof *texts);
    if (!texts) abort();
    for (size_t i = 0; i < n; i++) {
        size_t size;
        FILE *one = open_memstream(&texts[i], &size);
        for (size_t j = 0; j < stride; j++) {
            char *text = canonical(r->element[i * stride + j], mode);
            fprintf(one, "%s ", text);
            free(text);
        }
        fclose(one);
    }
    if (mode == DIFF_UNORDERED || mode == DIFF_PAIRS) qsort(texts, n, sizeof *texts, by_text);
    fputc('[', out);
    for (size_t i = 0; i < n; i++) {
        fputs(texts[i], out);
        free(texts[i]);
    }
    fputc(']', out);
    free(texts);
}

/* Returns a reply as text for the comparison. The text contains only the first word of an error. In
 * mode DIFF_SHAPE it contains only the types. */
static char *canonical(const redisReply *r, enum diff_mode mode) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) abort();
    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        mode == DIFF_SHAPE ? fputs(":int", out) : fprintf(out, ":%lld", r->integer);
        break;
    case REDIS_REPLY_NIL: fputs("nil", out); break;
    case REDIS_REPLY_ERROR:
        fputc('-', out);
        put_bytes(out, r, strcspn(r->str, " "));
        break;
    case REDIS_REPLY_ARRAY: put_array(out, r, mode); break;
    default:
        fputc(r->type == REDIS_REPLY_STATUS ? '+' : '$', out);
        if (mode != DIFF_SHAPE) put_bytes(out, r, r->len);
    }
    fclose(out);
    return text;
}

static bool near_in_time(const redisReply *a, const redisReply *b) {
    if (a->type != REDIS_REPLY_INTEGER || b->type != REDIS_REPLY_INTEGER || a->integer < 0 ||
        b->integer < 0)
        return false;
    double x = (double)a->integer, y = (double)b->integer;
    return fabs(x - y) <= fmin(fmax(x, y) / 100, 20000);
}

static bool same(struct pair *p, const redisReply *real, const redisReply *fake,
                 enum diff_mode mode) {
    if (mode == DIFF_TIME && near_in_time(real, fake)) return true;
    char *a = canonical(real, mode), *b = canonical(fake, mode);
    bool equal = strcmp(a, b) == 0;
    if (!equal) {
        snprintf(p->why, sizeof p->why, "real %.100s, fake %.100s", a, b);
        const redisReply *error = real->type == REDIS_REPLY_ERROR ? real : fake;
        if (error->type == REDIS_REPLY_ERROR)
            printf("  error of the %s one: %s\n", error == real ? "real" : "fake", error->str);
    }
    free(a);
    free(b);
    return equal;
}

/* --- running on both -------------------------------------------------------------------------- */

static int64_t wall_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void nap(unsigned ms) {
    struct timespec t = {.tv_nsec = ms * 1000000L};
    nanosleep(&t, NULL);
}

static void lost(const struct pair *p) {
    printf("the real server does not answer: %s\n", p->real->errstr);
    exit(1);
}

static void send_step(struct pair *p, const struct diff_step *step) {
    if (redisAppendCommandArgv(p->real, step->argc, (const char **)(uintptr_t)step->argv,
                               step->len) != REDIS_OK)
        lost(p);
}

static redisReply *receive(struct pair *p) {
    void *reply;
    if (redisGetReply(p->real, &reply) != REDIS_OK) lost(p);
    return reply;
}

static bool check_step(struct pair *p, const struct diff_step *step) {
    redisReply *real = receive(p), *fake = store_call(p->fake, step->argc, step->argv, step->len);
    bool ok = same(p, real, fake, step->mode);
    freeReplyObject(real);
    freeReplyObject(fake);
    if (ok) return true;
    printf("seed %llu: %s\n  after ", (unsigned long long)p->seed, p->why);
    diff_print(step);
    return false;
}

static bool both(struct pair *p, const struct diff_step *step) {
    store_set_time_us(p->fake, wall_us());
    send_step(p, step);
    return check_step(p, step);
}

static bool both_words(struct pair *p, enum diff_mode mode, const char *key, size_t key_len,
                       const char *const *words) {
    struct diff_step *step = calloc(1, sizeof *step);
    if (!step) abort();
    for (; *words; words++) {
        diff_add(step, *words);
        if (step->argc != 1 || !key) continue;
        step->argv[step->argc] = key;
        step->len[step->argc++] = key_len;
    }
    step->mode = mode;
    bool ok = both(p, step);
    free(step);
    return ok;
}

#define BOTH(p, mode, key, key_len, ...) \
    both_words(p, mode, key, key_len, (const char *const[]){__VA_ARGS__, NULL})

/* Sends `count` steps as one pipeline to both servers and compares the replies. Returns false at
 * the first difference. */
static bool run_batch(struct pair *p, const struct diff_step *steps, int count) {
    store_set_time_us(p->fake, wall_us());
    for (int i = 0; i < count; i++) send_step(p, &steps[i]);
    for (int i = 0; i < count; i++) {
        if (check_step(p, &steps[i])) continue;
        for (i++; i < count; i++) freeReplyObject(receive(p));
        return false;
    }
    if (count == 0 || steps[count - 1].sleep_ms == 0) return true;
    nap(steps[count - 1].sleep_ms);
    /* A real server includes an expired key in DBSIZE until a command names the key. So the test
     * names the key of the last step with EXISTS. */
    return BOTH(p, DIFF_EXACT, steps[count - 1].argv[1], steps[count - 1].len[1], "EXISTS");
}

static bool run_steps(struct pair *p, const struct diff_step *steps, int count) {
    for (int from = 0; from < count;) {
        int to = from;
        while (to < count && steps[to].sleep_ms == 0) to++;
        if (to < count) to++;
        if (!run_batch(p, steps + from, to - from)) return false;
        from = to;
    }
    return true;
}

/* --- the data --------------------------------------------------------------------------------- */

static bool peeks_agree(const struct store *s, const char *key, size_t n,
                        const redisReply *content) {
    const char *v = "";
    size_t len = 0;
    double score;
    switch (store_type(s, key, n)) {
    case STORE_STRING:
        return store_peek_string(s, key, n, &v, &len) && len == content->len &&
               memcmp(v, content->str, len) == 0;
    case STORE_LIST:
        return store_length(s, key, n) == content->elements &&
               store_peek_list(s, key, n, content->elements - 1, &v, &len) &&
               len == content->element[content->elements - 1]->len;
    case STORE_HASH:
        return store_length(s, key, n) * 2 == content->elements &&
               store_peek_hash(s, key, n, content->element[0]->str, content->element[0]->len, &v,
                               &len) &&
               len == content->element[1]->len;
    case STORE_SET: return store_length(s, key, n) == content->elements;
    case STORE_ZSET:
        return store_length(s, key, n) * 2 == content->elements &&
               store_peek_zset(s, key, n, 0, &v, &len, &score) && len == content->element[0]->len &&
               store_peek_score(s, key, n, v, len, &score);
    case STORE_STREAM: return store_length(s, key, n) == content->elements;
    case STORE_NONE: break;
    }
    return false;
}

static bool check_peeks(struct pair *p, const char *key, size_t n, const char *const *words) {
    const char *argv[8] = {words[0], key};
    size_t len[8] = {strlen(words[0]), n};
    int argc = 2;
    for (words++; *words; words++) {
        argv[argc] = *words;
        len[argc++] = strlen(*words);
    }
    redisReply *content = store_call(p->fake, argc, argv, len);
    bool ok = peeks_agree(p->fake, key, n, content);
    freeReplyObject(content);
    if (!ok)
        printf("seed %llu: a look at %s shows something else than its command\n",
               (unsigned long long)p->seed, key);
    return ok;
}

static bool check_content(struct pair *p, const char *key, size_t n) {
    static const char *const how[][5] = {
        [STORE_NONE] = {"EXISTS"},
        [STORE_STRING] = {"GET"},
        [STORE_LIST] = {"LRANGE", "0", "-1"},
        [STORE_HASH] = {"HGETALL"},
        [STORE_SET] = {"SMEMBERS"},
        [STORE_ZSET] = {"ZRANGE", "0", "-1", "WITHSCORES"},
        [STORE_STREAM] = {"XRANGE", "-", "+"},
    };
    enum store_type type = store_type(p->fake, key, n);
    enum diff_mode mode = type == STORE_HASH  ? DIFF_PAIRS
                          : type == STORE_SET ? DIFF_UNORDERED
                                              : DIFF_EXACT;
    return BOTH(p, DIFF_EXACT, key, n, "TYPE") && BOTH(p, DIFF_TIME, key, n, "PTTL") &&
           both_words(p, mode, key, n, how[type]) && check_peeks(p, key, n, how[type]);
}

static bool check_data(struct pair *p) {
    static const char *const all[] = {"SCAN", "0", "COUNT", "10000"};
    if (!BOTH(p, DIFF_EXACT, NULL, 0, "DBSIZE") ||
        !BOTH(p, DIFF_UNORDERED, NULL, 0, "SCAN", "0", "COUNT", "10000"))
        return false;
    redisReply *keys = store_call(p->fake, 4, all, NULL);
    bool ok = keys->element[1]->elements == store_dbsize(p->fake);
    for (size_t i = 0; ok && i < keys->element[1]->elements; i++) {
        const redisReply *key = keys->element[1]->element[i];
        ok = check_content(p, key->str, key->len);
    }
    freeReplyObject(keys);
    return ok;
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Replaces the fake Redis with a copy in the middle of a sequence. The original then gets other
 * commands, which must not change the copy, and is closed. */
static void swap_for_copy(struct pair *p, uint64_t *random, struct diff_step *step) {
    struct store *original = p->fake;
    p->fake = store_copy(original);
    for (int i = 0; i < NOISE; i++) {
        diff_next(random, false, step);
        freeReplyObject(store_call(original, step->argc, step->argv, step->len));
    }
    store_close(original);
}

static void empty_both(struct pair *p) {
    store_close(p->fake);
    p->fake = store_open(p->seed);
    for (int i = 0; i < 2; i++) {
        redisReply *r = redisCommand(p->real, i == 0 ? "FLUSHALL" : "SCRIPT FLUSH");
        if (!r || r->type != REDIS_REPLY_STATUS) lost(p);
        freeReplyObject(r);
    }
}

static bool run_sequence(struct pair *p, struct diff_step *steps) {
    uint64_t random = p->seed * UINT64_C(0x2545f4914f6cdd1d);
    empty_both(p);
    for (int i = 0; i < STEPS; i++) diff_next(&random, true, &steps[i]);
    if (!run_steps(p, steps, STEPS / 2)) return false;
    swap_for_copy(p, &random, &steps[0]);
    return run_steps(p, steps + STEPS / 2, STEPS / 2) && check_data(p);
}

static void count(bool ok) { ok ? passed++ : failed++; }

static bool run_sequences(struct pair *p, uint64_t first, unsigned many, struct diff_step *steps) {
    for (unsigned i = 0; i < many; i++) {
        p->seed = first + i;
        bool ok = run_sequence(p, steps);
        count(ok);
        if (!ok) return false;
    }
    return true;
}

/* --- the table of commands, and whether the tests reached each of them ------------------------ */

static bool has_flag(const redisReply *flags, const char *name) {
    for (size_t i = 0; i < flags->elements; i++) {
        if (strcmp(flags->element[i]->str, name) == 0) return true;
    }
    return false;
}

static void check_table(struct pair *p) {
    const struct store_command *c;
    for (size_t i = 0; (c = store_command(i)); i++) {
        redisReply *r = redisCommand(p->real, "COMMAND INFO %s", c->name);
        if (!r || r->type != REDIS_REPLY_ARRAY || r->elements != 1) lost(p);
        const redisReply *row = r->element[0];
        bool known = row->type == REDIS_REPLY_ARRAY && row->elements > 2;
        unsigned flags = 0;
        if (known && has_flag(row->element[2], "write")) flags |= STORE_WRITE;
        if (known && has_flag(row->element[2], "denyoom")) flags |= STORE_DENYOOM;
        if (known && has_flag(row->element[2], "noscript")) flags |= STORE_NOSCRIPT;
        /* In COMMAND INFO the subcommands of SCRIPT have the flag noscript, but SCRIPT itself does
         * not. */
        if (strcmp(c->name, "script") == 0) flags |= STORE_NOSCRIPT;
        /* Later servers take more arguments, and allow in scripts what the fake still refuses. */
        long long arity = known ? row->element[1]->integer : 0;
        bool same_arity = arity == c->arity || (arity < 0 && -arity <= c->arity);
        bool ok = known && same_arity && (flags | (c->flags & STORE_NOSCRIPT)) == c->flags;
        if (!ok && known)
            printf("%s: real arity %lld flags %u, fake %d %u\n", c->name, arity, flags, c->arity,
                   c->flags);
        count(ok);
        freeReplyObject(r);
    }
}

static void check_reached(bool print) {
    const struct store_command *c;
    for (size_t i = 0; (c = store_command(i)); i++) {
        uint64_t runs = store_command_runs(i);
        if (print) printf("%s%s %llu", i == 0 ? "runs: " : ", ", c->name, (unsigned long long)runs);
        count(runs > 0);
        if (runs == 0) printf("\n%s was never run\n", c->name);
    }
    if (print) putchar('\n');
}

/* --- at maxmemory ----------------------------------------------------------------------------- */

static void set_maxmemory(struct pair *p, bool full) {
    redisReply *r = redisCommand(p->real, "CONFIG SET maxmemory %d", full ? 1 : 0);
    if (!r || r->type != REDIS_REPLY_STATUS) lost(p);
    freeReplyObject(r);
    store_set_oom(p->fake, full);
}

static void wrap(const char *script, const struct diff_step *inner, struct diff_step *step) {
    *step = (struct diff_step){.mode = inner->mode};
    diff_add(step, "EVAL");
    diff_add(step, script);
    diff_add(step, "0");
    for (int i = 0; i < inner->argc && step->argc < DIFF_ARGS; i++) {
        step->argv[step->argc] = inner->argv[i];
        step->len[step->argc++] = inner->len[i];
    }
}

static bool refused_alike(struct pair *p, uint64_t *random, const char *command,
                          struct diff_step *steps) {
    static const char *const scripts[] = {
        "return redis.call(unpack(ARGV))",
        "return redis.pcall(unpack(ARGV))",
        "#!lua\nreturn redis.call(unpack(ARGV))",
        "#!lua flags=no-writes\nreturn redis.call(unpack(ARGV))",
        "#!lua flags=allow-oom\nreturn redis.call(unpack(ARGV))",
        "redis.call('del', 'nothing') return redis.call(unpack(ARGV))",
        "redis.pcall('set', 'q', 1) return redis.call(unpack(ARGV))",
        "redis.call('get', 'q') return redis.call(unpack(ARGV))",
    };
    struct diff_step *wrapped = &steps[1];
    diff_command(random, command, &steps[0]);
    bool ok = both(p, &steps[0]);
    if (strcmp(command, "brpoplpush") == 0) return ok; /* only Redis 8 lets scripts call it */
    for (size_t i = 0; ok && i < sizeof scripts / sizeof scripts[0]; i++) {
        wrap(scripts[i], &steps[0], wrapped);
        ok = both(p, wrapped);
    }
    return ok;
}

static bool check_oom(struct pair *p, struct diff_step *steps) {
    const struct store_command *c;
    uint64_t random = p->seed;
    for (size_t i = 0; (c = store_command(i)); i++) {
        empty_both(p);
        for (int j = 0; j < OOM_PREPARE; j++) diff_next(&random, false, &steps[j]);
        bool ok = run_steps(p, steps, OOM_PREPARE);
        set_maxmemory(p, true);
        ok = ok && refused_alike(p, &random, c->name, steps);
        set_maxmemory(p, false);
        ok = ok && check_data(p);
        count(ok);
        if (!ok) {
            printf("at maxmemory: %s\n", c->name);
            return false;
        }
    }
    return true;
}

/* --- the program's scripts -------------------------------------------------------------------- */

/* Checks that both servers compile each script of the program, and that the replies of both have
 * the same types when the script is called without arguments. */
static void check_scripts(struct pair *p) {
    for (size_t i = 0; i < LW_SCRIPTS; i++) {
        const char *text = lw_scripts[i]->text;
        bool ok = BOTH(p, DIFF_EXACT, NULL, 0, "SCRIPT", "LOAD", text) &&
                  BOTH(p, DIFF_SHAPE, NULL, 0, "EVAL", text, "0");
        count(ok);
        if (!ok) printf("the script %s\n", lw_scripts[i]->name);
    }
}

/* --- what only the fake has ------------------------------------------------------------------- */

static redisReply *fake_words(struct store *s, int argc, const char *const *argv) {
    return store_call(s, argc, argv, NULL);
}
#define FAKE(s, ...)                                                                  \
    fake_words(s, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)), \
               (const char *const[]){__VA_ARGS__})

static bool is_int(redisReply *r, long long v) {
    bool ok = r->type == REDIS_REPLY_INTEGER && r->integer == v;
    freeReplyObject(r);
    return ok;
}

static bool is_text(redisReply *r, int type, const char *start) {
    bool ok = r->type == type && strncmp(r->str, start, strlen(start)) == 0;
    freeReplyObject(r);
    return ok;
}

/* Copies one line of the INFO reply to `out`. */
static void info_line(struct store *s, const char *section, const char *name, char out[64]) {
    redisReply *r = FAKE(s, "INFO", section);
    const char *at = strstr(r->str, name);
    snprintf(out, 64, "%.*s", at ? (int)strcspn(at, "\r") : 0, at ? at : "");
    freeReplyObject(r);
}

static bool virtual_time(void) {
    struct store *s = store_open(1);
    store_set_time_us(s, 5000000);
    freeReplyObject(FAKE(s, "SET", "k", "v", "PX", "100"));
    bool ok = is_int(FAKE(s, "PTTL", "k"), 100) && store_expires_ms(s, "k", 1) == 5100;
    store_set_time_us(s, 5100000);
    ok = ok && is_int(FAKE(s, "EXISTS", "k"), 1);
    store_set_time_us(s, 5101000);
    ok = ok && store_dbsize(s) == 0 && store_type(s, "k", 1) == STORE_NONE &&
         is_int(FAKE(s, "PTTL", "k"), -2);
    ok = ok && is_text(FAKE(s, "XADD", "x", "*", "f", "v"), REDIS_REPLY_STRING, "5101-0");
    ok = ok && is_text(FAKE(s, "XADD", "x", "*", "f", "v"), REDIS_REPLY_STRING, "5101-1");
    ok = ok && is_text(FAKE(s, "EVAL", "return redis.call('TIME')[2]", "0"), REDIS_REPLY_STRING,
                       "101000");
    store_close(s);
    return ok;
}

static bool lives(void) {
    char id[4][64];
    struct store *s = store_open(7), *c;
    freeReplyObject(FAKE(s, "SET", "k", "v"));
    freeReplyObject(FAKE(s, "SCRIPT", "LOAD", "return 1"));
    const char *sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    info_line(s, "server", "run_id:", id[0]);
    c = store_copy(s);
    store_restart(c, true);
    bool ok = store_dbsize(c) == 1 &&
              is_text(FAKE(c, "EVALSHA", sha, "0"), REDIS_REPLY_ERROR, "NOSCRIPT");
    ok = ok && is_int(FAKE(s, "EVALSHA", sha, "0"), 1);
    info_line(c, "server", "run_id:", id[1]);
    store_flushall(s);
    info_line(s, "server", "run_id:", id[2]);
    ok = ok && store_dbsize(s) == 0 && is_int(FAKE(s, "EVALSHA", sha, "0"), 1) &&
         strcmp(id[0], id[2]) == 0 && strlen(id[0]) == 47;
    store_restart(s, false);
    info_line(s, "server", "run_id:", id[3]);
    ok = ok && strcmp(id[0], id[1]) != 0 && strcmp(id[1], id[3]) != 0 && strcmp(id[0], id[3]) != 0;
    info_line(s, "replication", "master_replid:", id[0]);
    info_line(s, "replication", "role:", id[1]);
    info_line(s, "memory", "maxmemory_policy:", id[2]);
    ok = ok && strlen(id[0]) == 54 && strcmp(id[1], "role:master") == 0 &&
         strcmp(id[2], "maxmemory_policy:noeviction") == 0;
    store_close(s);
    store_close(c);
    return ok;
}

static void report(const char *what, bool ok) {
    count(ok);
    if (!ok) printf("%s: failed\n", what);
}

int main(int argc, char **argv) {
    static const char *const args[] = {"--hz", "500", NULL};
    unsigned many = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : SEQUENCES;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct lw_test_redis *server = lw_test_redis_start(args);
    struct pair p = {.real = server ? lw_test_redis_connect(server) : NULL,
                     .fake = store_open(1),
                     .seed = first};
    struct diff_step *steps = calloc(STEPS, sizeof *steps);
    if (!p.real || !steps) return 1;
    report("virtual time", virtual_time());
    report("lives", lives());
    check_table(&p);
    check_scripts(&p);
    bool ok = run_sequences(&p, first, many, steps) && check_oom(&p, steps);
    if (many >= SEQUENCES) check_reached(ok);
    free(steps);
    store_close(p.fake);
    redisFree(p.real);
    lw_test_redis_stop(server);
    printf("%u passed, %u failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
