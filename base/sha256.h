/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of text that strangers choose, such as keys of messages: nobody can find two texts with
 * the same hash, nor another text with the first 128 bits of a given one's hash. */
#ifndef LW_BASE_SHA256_H
#define LW_BASE_SHA256_H

#include "base/bytes.h"

#include <stdint.h>

enum { LW_SHA256 = 32 };

/* Hashes the two texts as if they were one. Thread-safe. */
void lw_sha256(struct lw_bytes first, struct lw_bytes second, uint8_t out[LW_SHA256]);

#endif
