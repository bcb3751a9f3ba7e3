/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the envelope. Random messages must survive a round trip. A truncated envelope must be
 * refused. A changed envelope must be refused, or be exactly the encoding of its new content. */
#include "queue/envelope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned seed;

static unsigned below(unsigned n) { return (unsigned)rand_r(&seed) % n; }

/* Returns random bytes of a random length, which is sometimes 0. If may_be_null is true, the
 * pointer to the bytes is sometimes NULL. */
static struct lw_bytes some_bytes(char *pool, bool may_be_null) {
    if (may_be_null && below(5) == 0) return (struct lw_bytes){0};
    size_t n = below(4) == 0 ? 0 : below(40);
    char *p = pool + below(200);
    for (size_t i = 0; i < n; i++) p[i] = (char)below(256);
    return lw_bytes(p, n);
}

static int64_t some_number(void) {
    switch (below(4)) {
    case 0: return 0;
    case 1: return INT64_MAX;
    case 2: return below(100);
    default: return (int64_t)below(1u << 30) << below(30);
    }
}

static void make(struct lw_envelope *e, struct lw_header *headers, char pool[][256]) {
    static const char *const topics[] = {"orders", "a", "A-b_c.9"};
    e->topic = lw_bytes_of(topics[below(3)]);
    e->partition = below(3) ? (int32_t)below(1000) : INT32_MAX;
    e->offset = some_number();
    e->replay = some_number();
    e->first_ms = some_number();
    e->timestamp_ms = below(3) ? some_number() : -1;
    e->key = some_bytes(pool[0], true);
    e->dedup = some_bytes(pool[1], false);
    e->payload = some_bytes(pool[2], true);
    e->headers = headers;
    e->n_headers = below(6);
    for (size_t i = 0; i < e->n_headers; i++) {
        headers[i].name = some_bytes(pool[3 + i], false);
        headers[i].value = some_bytes(pool[9 + i], true);
    }
}

static void assert_same(struct lw_bytes a, struct lw_bytes b) {
    assert_int_equal(a.p == NULL, b.p == NULL);
    assert_true(lw_bytes_eq(a, b));
}

static void assert_equal(const struct lw_envelope *a, const struct lw_envelope *b) {
    assert_same(a->topic, b->topic);
    assert_int_equal(a->partition, b->partition);
    assert_true(a->offset == b->offset && a->replay == b->replay && a->first_ms == b->first_ms &&
                a->timestamp_ms == b->timestamp_ms);
    assert_same(a->key, b->key);
    assert_true(lw_bytes_eq(a->dedup, b->dedup));
    assert_same(a->payload, b->payload);
    assert_int_equal(a->n_headers, b->n_headers);
    for (size_t i = 0; i < a->n_headers; i++) {
        assert_same(a->headers[i].name, b->headers[i].name);
        assert_same(a->headers[i].value, b->headers[i].value);
    }
}

/* Copies the envelope to a buffer of exactly its length, so that the sanitizer notices a read past
 * the end, and decodes the copy. */
static int decode_copy(const char *p, size_t n, struct lw_buf *again) {
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, p, n);
    struct lw_envelope e;
    struct lw_err err = {0};
    int r = lw_envelope_decode(lw_bytes(copy, n), &e, &err);
    assert_int_equal(r == 0, err.text[0] == '\0');
    if (r == 0 && again) lw_envelope_encode(&e, again);
    lw_envelope_clear(&e);
    free(copy);
    return r;
}

static void test_round_trip(void **state) {
    (void)state;
    char pool[16][256];
    struct lw_header headers[6];
    seed = 11;
    for (int i = 0; i < 3000; i++) {
        struct lw_envelope in, out;
        struct lw_buf b = {0};
        struct lw_err err = {0};
        make(&in, headers, pool);
        lw_envelope_encode(&in, &b);
        if (lw_envelope_decode(lw_bytes(b.p, b.n), &out, &err))
            fail_msg("round %d: %s", i, err.text);
        assert_equal(&in, &out);
        lw_envelope_clear(&out);
        lw_buf_free(&b);
    }
}

static void test_every_truncation_is_refused(void **state) {
    (void)state;
    char pool[16][256];
    struct lw_header headers[6];
    seed = 12;
    for (int i = 0; i < 100; i++) {
        struct lw_envelope in;
        struct lw_buf b = {0};
        make(&in, headers, pool);
        lw_envelope_encode(&in, &b);
        for (size_t n = 0; n < b.n; n++) assert_int_equal(decode_copy(b.p, n, NULL), -1);
        lw_buf_add(&b, "x", 1);
        assert_int_equal(decode_copy(b.p, b.n, NULL), -1);
        lw_buf_free(&b);
    }
}

/* A changed envelope that is still accepted must be the encoding of its content, so that each
 * content has only one form. */
static void test_mutations(void **state) {
    (void)state;
    char pool[16][256];
    struct lw_header headers[6];
    int accepted = 0, refused = 0;
    seed = 13;
    for (int i = 0; i < 20000; i++) {
        struct lw_envelope in;
        struct lw_buf b = {0}, again = {0};
        make(&in, headers, pool);
        lw_envelope_encode(&in, &b);
        static const char likely[] = "0123456789- \n\xff";
        for (unsigned k = below(3) + 1; k--;)
            b.p[below((unsigned)b.n)] =
                below(2) ? (char)below(256) : likely[below(sizeof likely - 1)];
        if (decode_copy(b.p, b.n, &again) == 0) {
            accepted++;
            assert_true(lw_bytes_eq(lw_bytes(again.p, again.n), lw_bytes(b.p, b.n)));
        } else {
            refused++;
        }
        lw_buf_free(&again);
        lw_buf_free(&b);
    }
    assert_true(accepted > 1000 && refused > 1000);
}

static void test_line_as_the_scripts_read_it(void **state) {
    (void)state;
    struct lw_header h[2] = {{lw_bytes("t", 1), lw_bytes("v\0w", 3)}, {lw_bytes("n", 1), {0}}};
    struct lw_envelope e = {.topic = lw_bytes_of("orders"),
                            .partition = 3,
                            .offset = 1042,
                            .first_ms = 7,
                            .timestamp_ms = -1,
                            .key = lw_bytes("k", 1),
                            .dedup = lw_bytes("d", 1),
                            .headers = h,
                            .n_headers = 2};
    static const char want[] =
        "1 orders 3 1042 0 7 -1 1 1 2 -1\ndk\1\0\0\0t\3\0\0\0v\0w\1\0\0\0n\xff\xff\xff\xff";
    struct lw_buf b = {0};
    lw_envelope_encode(&e, &b);
    assert_int_equal(b.n, sizeof want - 1);
    assert_memory_equal(b.p, want, b.n);
    lw_buf_free(&b);
}

static void expect_refused(const char *text, const char *why) {
    struct lw_envelope e;
    struct lw_err err = {0};
    assert_int_equal(lw_envelope_decode(lw_bytes_of(text), &e, &err), -1);
    assert_string_equal(err.text, why);
    assert_null(e.headers);
}

static void test_reasons(void **state) {
    (void)state;
    expect_refused("", "broken envelope at byte 0: not version 1");
    expect_refused("2 t 0 0 0 0 0 0 0 0 0\n", "broken envelope at byte 0: not version 1");
    expect_refused("1 a/b 0 0 0 0 0 0 0 0 0\n", "broken envelope at byte 2: no topic name");
    expect_refused("1 t 2147483648 0 0 0 0 0 0 0 0\n", "broken envelope at byte 4: no partition");
    expect_refused("1 t 0 9223372036854775808 0 0 0 0 0 0 0\n",
                   "broken envelope at byte 6: no offset");
    expect_refused("1 t 0 01 0 0 0 0 0 0 0\n", "broken envelope at byte 6: no offset");
    expect_refused("1 t 0 0 0 0 -0 0 0 0 0\n", "broken envelope at byte 12: no timestamp");
    expect_refused("1 t 0 0 0 0 0 -2 0 0 0\n",
                   "broken envelope at byte 14: no length of the key, or one past the end");
    expect_refused("1 t 0 0 0 0 0 0 0 2000000 0\n",
                   "broken envelope at byte 18: no number of headers, or too many");
    expect_refused("1 t 0 0 0 0 0 0 0 1000000 0\n",
                   "broken envelope at byte 28: more headers than bytes");
    expect_refused("1 t 0 0 0 0 0 3 0 0 0\nkk",
                   "broken envelope at byte 22: the key goes past the end");
    expect_refused("1 t 0 0 0 0 0 0 0 0 0\nx",
                   "broken envelope at byte 22: something follows the payload");
    struct lw_envelope e;
    assert_int_equal(lw_envelope_decode((struct lw_bytes){0}, &e, NULL), -1);
}

static void test_large(void **state) {
    (void)state;
    enum { BIG = 1 << 20, MANY = 20000 };
    char *big = lw_alloc(BIG);
    struct lw_header *headers = lw_alloc(MANY * sizeof *headers);
    for (int i = 0; i < MANY; i++)
        headers[i] = (struct lw_header){lw_bytes("h", 1), lw_bytes("v", 1)};
    struct lw_envelope in = {.topic = lw_bytes_of("t"),
                             .key = lw_bytes(big, BIG),
                             .payload = lw_bytes(big, BIG),
                             .headers = headers,
                             .n_headers = MANY},
                       out;
    struct lw_buf b = {0};
    struct lw_err err = {0};
    lw_envelope_encode(&in, &b);
    assert_int_equal(lw_envelope_decode(lw_bytes(b.p, b.n), &out, &err), 0);
    assert_equal(&in, &out);
    lw_envelope_clear(&out);
    lw_buf_free(&b);
    free(headers);
    free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_mutations),  cmocka_unit_test(test_line_as_the_scripts_read_it),
        cmocka_unit_test(test_reasons),    cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests_name("envelope", tests, NULL, NULL);
}
