/* SPDX-License-Identifier: Apache-2.0 */
/* The commands BITFIELD (overflow WRAP only), SETBIT and GETBIT of the fake Redis. */
#include "tests/sim/redis/store_internal.h"

#include <stdlib.h>

store_fn store_cmd_bitfield, store_cmd_bitfield_ro, store_cmd_setbit, store_cmd_getbit;

static const long long BITS_MAX = 512LL * 1024 * 1024 * 8;

enum bit_what { BIT_GET, BIT_SET, BIT_INCRBY };
struct bit_op {
    enum bit_what what;
    bool is_signed;
    unsigned bits;
    uint64_t offset;
    long long value;
};

/* Reads a number of `bits` bits that begins at bit `offset`. Bit 0 is the highest bit of byte 0.
 * Bits past the end of the string count as 0. */
static uint64_t read_bits(const struct blob *b, uint64_t offset, unsigned bits) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bits; i++, offset++) {
        uint64_t at = offset >> 3;
        unsigned bit = b && at < b->len ? (unsigned char)b->data[at] >> (7 - (offset & 7)) & 1 : 0;
        v = v << 1 | bit;
    }
    return v;
}

static void write_bits(struct blob *b, uint64_t offset, unsigned bits, uint64_t v) {
    for (unsigned i = 0; i < bits; i++, offset++) {
        unsigned char *byte = (unsigned char *)&b->data[offset >> 3],
                      mask = (unsigned char)(1u << (7 - (offset & 7)));
        if (v >> (bits - 1 - i) & 1)
            *byte |= mask;
        else
            *byte &= (unsigned char)~mask;
    }
}

static long long as_integer(uint64_t v, const struct bit_op *op) {
    if (op->is_signed && op->bits < 64 && v >> (op->bits - 1) & 1) v |= ~UINT64_C(0) << op->bits;
    return (long long)v;
}

static redisReply *parse_offset(struct slice a, bool hash, unsigned bits, uint64_t *offset) {
    static const char bad[] = "ERR bit offset is not an integer or out of range";
    long long v;
    bool times = hash && a.n > 0 && a.p[0] == '#';
    if (times) a.p++, a.n--;
    if (!parse_int(a, &v)) return reply_error("%s", bad);
    if (times && __builtin_mul_overflow(v, (long long)bits, &v)) return reply_error("%s", bad);
    if (v < 0 || v >= BITS_MAX) return reply_error("%s", bad);
    *offset = (uint64_t)v;
    return NULL;
}

static redisReply *parse_kind(struct slice a, struct bit_op *op) {
    long long bits;
    struct slice rest = {a.p + 1, a.n - 1};
    bool ok = a.n > 1 && (a.p[0] == 'i' || a.p[0] == 'u') && parse_int(rest, &bits) && bits >= 1 &&
              bits <= (a.p[0] == 'i' ? 64 : 63);
    if (!ok)
        return reply_error("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is "
                           "not supported but i64 is.");
    op->is_signed = a.p[0] == 'i';
    op->bits = (unsigned)bits;
    return NULL;
}

/* Parses one operation of BITFIELD (GET, SET or INCRBY) at argv[*i], and moves *i past the
 * operation. Returns NULL, or an error reply if the operation is malformed. */
static redisReply *parse_op(int argc, const struct slice *argv, int *i, struct bit_op *op) {
    int left = argc - *i - 1;
    if (slice_is(argv[*i], "get") && left >= 2)
        op->what = BIT_GET;
    else if (slice_is(argv[*i], "set") && left >= 3)
        op->what = BIT_SET;
    else if (slice_is(argv[*i], "incrby") && left >= 3)
        op->what = BIT_INCRBY;
    else
        return reply_syntax();
    redisReply *bad = parse_kind(argv[*i + 1], op);
    if (!bad) bad = parse_offset(argv[*i + 2], true, op->bits, &op->offset);
    if (bad) return bad;
    if (op->what != BIT_GET && !parse_int(argv[*i + 3], &op->value)) return reply_not_integer();
    *i += op->what == BIT_GET ? 3 : 4;
    return NULL;
}

static redisReply *parse_ops(int argc, const struct slice *argv, struct bit_op *ops,
                             size_t *count) {
    for (int i = 2; i < argc;) {
        if (slice_is(argv[i], "overflow") && i + 1 < argc) {
            if (slice_is(argv[i + 1], "sat") || slice_is(argv[i + 1], "fail"))
                return reply_error("ERR the fake knows OVERFLOW WRAP only");
            if (!slice_is(argv[i + 1], "wrap"))
                return reply_error("ERR Invalid OVERFLOW type specified");
            i += 2;
            continue;
        }
        redisReply *bad = parse_op(argc, argv, &i, &ops[*count]);
        if (bad) return bad;
        ++*count;
    }
    return NULL;
}

/* Returns the entry of a string, extended if necessary so that the string contains bit `last`.
 * Creates the key if it is missing. Returns NULL if the key has another type. */
static struct entry *string_for_bits(struct store *s, struct slice key, uint64_t last) {
    struct entry *e = entry_find(s, key);
    if (e && e->type != STORE_STRING) return NULL;
    if (!e) {
        e = entry_add(s, key, STORE_STRING);
        e->str = blob_new("", 0);
    }
    e->str = blob_writable(e->str, (size_t)(last >> 3) + 1);
    return e;
}

static redisReply *run_op(struct entry *e, const struct bit_op *op) {
    uint64_t old = read_bits(e ? e->str : NULL, op->offset, op->bits);
    if (op->what == BIT_GET) return reply_int(as_integer(old, op));
    uint64_t new = op->what == BIT_SET ? (uint64_t)op->value : old + (uint64_t)op->value;
    if (op->bits < 64) new &= (UINT64_C(1) << op->bits) - 1;
    write_bits(e->str, op->offset, op->bits, new);
    return reply_int(as_integer(op->what == BIT_SET ? old : new, op));
}

static redisReply *run_ops(struct store *s, struct slice key, const struct bit_op *ops,
                           size_t count) {
    bool writes = false;
    uint64_t last = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t end = ops[i].offset + ops[i].bits - 1;
        writes = writes || ops[i].what != BIT_GET;
        if (ops[i].what != BIT_GET && end > last) last = end;
    }
    struct entry *e = writes ? string_for_bits(s, key, last) : entry_find(s, key);
    if ((writes && !e) || (e && e->type != STORE_STRING)) return reply_wrong_type();
    redisReply *r = reply_array(count);
    for (size_t i = 0; i < count; i++) r->element[i] = run_op(e, &ops[i]);
    return r;
}

redisReply *store_cmd_bitfield(struct store *s, int argc, const struct slice *argv) {
    struct bit_op *ops = store_alloc((size_t)argc * sizeof *ops);
    size_t count = 0;
    redisReply *r = parse_ops(argc, argv, ops, &count);
    if (!r) r = run_ops(s, argv[1], ops, count);
    free(ops);
    return r;
}

redisReply *store_cmd_bitfield_ro(struct store *s, int argc, const struct slice *argv) {
    struct bit_op *ops = store_alloc((size_t)argc * sizeof *ops);
    size_t count = 0;
    redisReply *r = parse_ops(argc, argv, ops, &count);
    for (size_t i = 0; !r && i < count; i++) {
        if (ops[i].what != BIT_GET)
            r = reply_error("ERR BITFIELD_RO only supports the GET subcommand");
    }
    if (!r) r = run_ops(s, argv[1], ops, count);
    free(ops);
    return r;
}

redisReply *store_cmd_setbit(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    uint64_t offset;
    redisReply *bad = parse_offset(argv[2], false, 0, &offset);
    if (bad) return bad;
    if (argv[3].n != 1 || (argv[3].p[0] != '0' && argv[3].p[0] != '1'))
        return reply_error("ERR bit is not an integer or out of range");
    struct entry *e = string_for_bits(s, argv[1], offset);
    if (!e) return reply_wrong_type();
    uint64_t old = read_bits(e->str, offset, 1);
    write_bits(e->str, offset, 1, argv[3].p[0] == '1');
    return reply_int((long long)old);
}

redisReply *store_cmd_getbit(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    uint64_t offset;
    redisReply *bad = parse_offset(argv[2], false, 0, &offset);
    if (bad) return bad;
    const struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != STORE_STRING) return reply_wrong_type();
    return reply_int((long long)read_bits(e ? e->str : NULL, offset, 1));
}
