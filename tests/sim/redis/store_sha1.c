/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-1 (FIPS 180-4), for the ids of scripts. */
#include "tests/sim/redis/store_internal.h"

#include <string.h>

static uint32_t rotate(uint32_t x, unsigned n) { return x << n | x >> (32 - n); }

static void expand(uint32_t w[80], const unsigned char block[64]) {
    for (unsigned i = 0; i < 16; i++) {
        const unsigned char *b = block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
}

static void take_block(uint32_t h[5], const unsigned char block[64]) {
    uint32_t w[80];
    expand(w, block);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

void sha1_hex(const void *data, size_t len, char out[41]) {
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const unsigned char *p = data;
    size_t left = len;
    for (; left >= 64; left -= 64, p += 64) take_block(h, p);
    unsigned char tail[128] = {0};
    if (left > 0) memcpy(tail, p, left);
    tail[left] = 0x80;
    size_t blocks = left < 56 ? 1 : 2;
    uint64_t bits = (uint64_t)len * 8;
    for (unsigned i = 0; i < 8; i++) tail[blocks * 64 - 1 - i] = (unsigned char)(bits >> (8 * i));
    for (size_t i = 0; i < blocks; i++) take_block(h, tail + 64 * i);
    static const char hex[] = "0123456789abcdef";
    for (unsigned i = 0; i < 40; i++) out[i] = hex[h[i / 8] >> (28 - 4 * (i % 8)) & 15];
    out[40] = '\0';
}
