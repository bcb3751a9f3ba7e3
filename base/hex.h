/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of bytes to hexadecimal text. */
#ifndef LW_BASE_HEX_H
#define LW_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/* Writes n bytes as 2n lower-case hex digits, followed by a NUL. */
static inline void lw_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

#endif
