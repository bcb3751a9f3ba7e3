/* SPDX-License-Identifier: Apache-2.0 */
/* Commit metadata: ranges that are decoded are sorted, disjoint and above the committed offset, and
 * come back the same when they are encoded again. A corrupt text must never name an offset that
 * nobody finished, but the fuzzer can compute checksums, so only the form is checked here. */
#include "queue/commit_meta.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <xxhash.h>

/* Decodes a text, and encodes the ranges again. */
static void check(int64_t committed, const char *text, size_t n) {
    static struct lw_range ranges[LW_META_RANGES], again[LW_META_RANGES];
    char fleet[LW_META_FLEET + 1] = "", out[LW_META_MAX + 1];
    struct lw_err err = {0};
    int got = lw_meta_decode(committed, text, n, ranges, LW_META_RANGES, &err);
    HOLDS(got >= 0 || err.text[0]);
    bool named = lw_meta_fleet(committed, text, n, fleet) && strlen(fleet) == LW_META_FLEET;
    if (got <= 0) return;
    for (int i = 0; i < got; i++) {
        HOLDS(ranges[i].lo < ranges[i].hi);
        HOLDS(i ? ranges[i].lo > ranges[i - 1].hi : ranges[i].lo >= committed);
    }
    size_t length =
        lw_meta_encode(committed, ranges, (size_t)got, LW_META_MAX, named ? fleet : "", out);
    HOLDS(length <= LW_META_MAX);
    if (!length) return;
    int back = lw_meta_decode(committed, out, length, again, LW_META_RANGES, &err);
    HOLDS(back >= 0 && back <= got);
    HOLDS(!memcmp(ranges, again, (size_t)back * sizeof *again));
}

/* Appends the checksum that the text needs, which no fuzzer would guess. */
static size_t sign(int64_t committed, char *text, size_t n) {
    unsigned char buf[8 + LW_META_MAX];
    for (int i = 0; i < 8; i++) buf[i] = (unsigned char)((uint64_t)committed >> (8 * i));
    memcpy(buf + 8, text, n);
    return n + (size_t)sprintf(text + n, ":%08x", XXH32(buf, 8 + n, 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t committed = 0;
    char text[LW_META_MAX + 16];
    if (size < sizeof committed || size > LW_META_MAX) return -1;
    memcpy(&committed, data, sizeof committed);
    size -= sizeof committed;
    memcpy(text, data + sizeof committed, size);
    check(committed, text, size);
    check(committed, text, sign(committed, text, size));
    return 0;
}
