/* SPDX-License-Identifier: Apache-2.0 */
/* Tests commit metadata. Decoding must return what was encoded. If not all ranges fit, the highest
 * must be left out. Any other text must be rejected. */
#include "queue/commit_meta.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>

static uint64_t rng;
static uint64_t rnd(uint64_t below) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (rng >> 16) % below;
}

enum { MANY = 6000 };
static struct lw_range in[MANY], out[MANY];
static char text[LW_META_MAX + 1];

static size_t make_ranges(int64_t committed, size_t n, uint64_t step) {
    int64_t at = committed + (int64_t)rnd(2);
    for (size_t i = 0; i < n; i++) {
        in[i].lo = at + (i > 0) + (int64_t)rnd(step);
        in[i].hi = in[i].lo + 1 + (int64_t)rnd(step);
        at = in[i].hi;
    }
    return n;
}

static int decode(int64_t committed, const char *s, size_t len, struct lw_err *err) {
    memset(out, 0xee, sizeof out);
    err->text[0] = 0;
    return lw_meta_decode(committed, s, len, out, MANY, err);
}

static void test_round_trip(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        rng = seed * 0x9e3779b97f4a7c15u;
        int64_t committed = (int64_t)rnd(seed % 3 ? 1000 : (uint64_t)1 << 46);
        size_t n = make_ranges(committed, rnd(seed % 10 ? 40 : MANY),
                               (uint64_t)1 << (1 + rnd(seed % 7 ? 5 : 40)));
        struct lw_err err;
        size_t len = lw_meta_encode(committed, in, n, LW_META_MAX, "", text);
        assert_true(len <= LW_META_MAX);
        assert_int_equal(strlen(text), len); /* the text contains no NUL */
        int got = decode(committed, text, len, &err);
        assert_true(got >= 0 && (size_t)got <= n);
        /* only the highest ranges may be left out, so the input begins with the decoded ranges */
        assert_memory_equal(in, out, (size_t)got * sizeof *in);
        if (len + 40 < LW_META_MAX) assert_int_equal(got, n);
        /* a range may be left out only if the text is full or has the maximum number of ranges */
        if (n > (size_t)got) assert_true(len > LW_META_MAX - 40 || got == LW_META_RANGES);
        assert_int_equal(decode(committed + 1, text, len, &err), n ? -1 : 0);
    }
}

static void test_limits(void **state) {
    (void)state;
    struct lw_err err;
    assert_int_equal(lw_meta_encode(5, NULL, 0, LW_META_MAX, "", text), 0);
    assert_string_equal(text, "");
    assert_int_equal(decode(5, "", 0, &err), 0);
    in[0] = (struct lw_range){INT64_MAX - 2, INT64_MAX};
    size_t len = lw_meta_encode(0, in, 1, LW_META_MAX, "", text);
    assert_int_equal(decode(0, text, len, &err), 1);
    assert_memory_equal(in, out, sizeof *in);
    /* Ranges that touch must be encoded as one range. */
    in[0] = (struct lw_range){10, 12}, in[1] = (struct lw_range){12, 13},
    in[2] = (struct lw_range){15, 16};
    len = lw_meta_encode(9, in, 3, LW_META_MAX, "", text);
    assert_int_equal(decode(9, text, len, &err), 2);
    assert_true(out[0].lo == 10 && out[0].hi == 13 && out[1].lo == 15 && out[1].hi == 16);
    /* If the caller's array is too small for all ranges, it must get the lowest ranges. */
    struct lw_range one[1];
    assert_int_equal(lw_meta_decode(9, text, len, one, 1, &err), 1);
    assert_true(one[0].lo == 10 && one[0].hi == 13);
}

/* The metadata must name the fleet, with ranges and without, even if the caller allows only as
 * many bytes as the fleet's name needs. If the checksum is wrong, neither the ranges nor the
 * fleet's name may be accepted. */
static void test_fleet(void **state) {
    (void)state;
    static const char fleet[] = "0123456789abcdef";
    char who[LW_META_FLEET + 1];
    struct lw_err err;
    rng = 45;
    size_t n = make_ranges(777, 20, 50), len = lw_meta_encode(777, in, n, LW_META_MAX, fleet, text);
    assert_int_equal(decode(777, text, len, &err), n);
    assert_memory_equal(in, out, n * sizeof *in);
    assert_true(lw_meta_fleet(777, text, len, who));
    assert_string_equal(who, fleet);
    assert_false(lw_meta_fleet(778, text, len, who));
    for (size_t i = 0; i < len; i++) {
        text[i] ^= 1;
        assert_int_equal(decode(777, text, len, &err), -1);
        assert_false(lw_meta_fleet(777, text, len, who));
        text[i] ^= 1;
    }
    for (size_t k = 1; k < len; k++) assert_int_equal(decode(777, text, k, &err), -1);
    len = lw_meta_encode(777, NULL, 0, 32, fleet, text);
    assert_int_equal(len, 30);
    assert_int_equal(decode(777, text, len, &err), 0);
    assert_true(lw_meta_fleet(777, text, len, who));
    assert_int_equal(lw_meta_encode(777, in, n, 29, fleet, text), 0);
    len = lw_meta_encode(777, in, n, LW_META_MAX, "", text);
    assert_false(lw_meta_fleet(777, text, len, who));
}

/* A broker may accept only short texts. Then only the lowest ranges must be encoded, in no more
 * bytes than the caller allows. */
static void test_less_room(void **state) {
    (void)state;
    rng = 44;
    size_t n = make_ranges(777, 200, 50);
    for (size_t max = 0; max <= LW_META_MAX; max += 1 + max / 20) {
        struct lw_err err;
        size_t len = lw_meta_encode(777, in, n, max, "", text);
        assert_true(len <= max && strlen(text) == len);
        int got = decode(777, text, len, &err);
        assert_true(got >= 0 && (got > 0) == (len > 0));
        assert_memory_equal(in, out, (size_t)got * sizeof *in);
        assert_true(max < 20 || got > 0);
    }
}

/* Every version of Latchwork must be able to read this text, because earlier versions have stored
 * such texts in Kafka. */
static void test_form_is_fixed(void **state) {
    (void)state;
    in[0] = (struct lw_range){1044, 1050}, in[1] = (struct lw_range){1400, 1401};
    lw_meta_encode(1042, in, 2, LW_META_MAX, "", text);
    assert_string_equal(text, "lw1:AgbeAgE:2e573833");
}

static void test_every_bit_flipped(void **state) {
    (void)state;
    rng = 42;
    size_t len = lw_meta_encode(777, in, make_ranges(777, 25, 50), LW_META_MAX, "", text);
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            struct lw_err err;
            text[i] ^= (char)(1 << bit);
            assert_int_equal(decode(777, text, len, &err), -1);
            assert_true(strstr(err.text, i < 4 ? "foreign" : "corrupt") != NULL);
            text[i] ^= (char)(1 << bit);
        }
    }
    struct lw_err err;
    assert_int_equal(decode(777, text, len, &err), 25);
}

static void test_truncated_or_grown(void **state) {
    (void)state;
    rng = 43;
    size_t len = lw_meta_encode(777, in, make_ranges(777, 25, 50), LW_META_MAX, "", text);
    struct lw_err err;
    for (size_t n = 1; n < len; n++) {
        /* the buffer has exactly the length of the text, so that ASan notices a read past the
         * end */
        char *exact = malloc(n);
        memcpy(exact, text, n);
        assert_int_equal(decode(777, exact, n, &err), -1);
        assert_true(err.text[0]);
        free(exact);
    }
    strcat(text, "0");
    assert_int_equal(decode(777, text, len + 1, &err), -1);
}

static void test_foreign(void **state) {
    (void)state;
    static const char *const foreign[] = {"x",
                                          "lw",
                                          "lw3:AgbeAgE:00000000",
                                          "{\"offset\":1}",
                                          "some-host.example",
                                          "LW1:A",
                                          "\xff\xfe\0",
                                          "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                                          " lw1:AgY:1234"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct lw_err err;
        assert_int_equal(decode(0, foreign[i], i == 7 ? 15 : strlen(foreign[i]), &err), -1);
        assert_non_null(strstr(err.text, "foreign"));
    }
    struct lw_err err;
    assert_int_equal(decode(0, "lw1:", 4, &err), -1);
    assert_int_equal(decode(0, "lw1::00000000", 13, &err), -1);
    assert_int_equal(decode(-1, "lw1:AgY:00000000", 16, &err), -1);
}

/* Adds a correct checksum to content that no correct writer makes, and decodes the text. */
static int decode_signed(const char *body, int64_t committed, struct lw_err *err) {
    char buf[8 + 200];
    for (int i = 0; i < 8; i++) buf[i] = (char)((uint64_t)committed >> (8 * i));
    snprintf(text, sizeof text, "lw1:%s", body);
    size_t len = strlen(text);
    memcpy(buf + 8, text, len);
    snprintf(text + len, sizeof text - len, ":%08" PRIx32, XXH32(buf, 8 + len, 0));
    return decode(committed, text, strlen(text), err);
}

static void test_impossible_content(void **state) {
    (void)state;
    struct lw_err err;
    /* This text (gap 2, length 6) is accepted, so each text below is refused for its own fault. */
    assert_int_equal(decode_signed("AgY", 0, &err), 1);
    assert_true(out[0].lo == 2 && out[0].hi == 8);
    static const char *const bad[] = {
        "AgA",              /* a range of length 0 */
        "AgYAAQ",           /* two ranges that touch */
        "Ag",               /* a gap without a length */
        "AgYC",             /* a complete range, and then a gap without a length */
        "AoA",              /* a varint whose last byte is missing */
        "Av___________wE",  /* a range of length 2^64 - 1 */
        "Av7_________fw",   /* a range of length 2^63 - 2, which ends past the largest offset */
        "gICAgICAgICAAQE",  /* a gap of 2^63, so that the range begins past the largest offset */
        "AoGAgICAgICAgAI",  /* a varint of 65 bits */
        "AoGAgICAgICAgIAA", /* a varint of 11 bytes */
        "A",                /* a single base64 digit, which is less than a byte */
        "AgZ",              /* a last digit with unused bits that are not 0 */
        "Ag=Y",             /* padding inside the text */
        "Ag+/",             /* digits that the URL-safe base64 alphabet does not have */
        "Ag Y",             /* a space inside the text */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(decode_signed(bad[i], 0, &err), -1);
        assert_non_null(strstr(err.text, "corrupt"));
    }
}

/* Decodes random bytes with a correct checksum. If ranges are decoded, they must be sorted,
 * disjoint and above the committed offset. */
static void test_random_content(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        rng = seed * 0x9e3779b97f4a7c15u;
        char body[41];
        size_t n = 1 + rnd(40);
        for (size_t i = 0; i < n; i++)
            body[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[rnd(64)];
        body[n] = 0;
        int64_t committed = (int64_t)rnd((uint64_t)1 << 40);
        struct lw_err err;
        int got = decode_signed(body, committed, &err);
        int64_t from = committed - 1;
        for (int i = 0; i < got; i++) {
            assert_true(out[i].lo > from && out[i].hi > out[i].lo);
            from = out[i].hi;
        }
        if (got < 0) assert_true(err.text[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),         cmocka_unit_test(test_limits),
        cmocka_unit_test(test_less_room),          cmocka_unit_test(test_fleet),
        cmocka_unit_test(test_form_is_fixed),      cmocka_unit_test(test_every_bit_flipped),
        cmocka_unit_test(test_truncated_or_grown), cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_impossible_content), cmocka_unit_test(test_random_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
