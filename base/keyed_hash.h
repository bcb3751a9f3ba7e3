/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of text that strangers choose, such as keys of messages. It is BLAKE2b with a secret, so
 * that nobody without the secret can find two texts with the same hash. */
#ifndef LW_BASE_KEYED_HASH_H
#define LW_BASE_KEYED_HASH_H

#include "base/bytes.h"

#include <stdint.h>

enum { LW_HASH_SECRET = 16, LW_HASH_BYTES = 16 };

struct lw_keyed_hash;

/* Fills in a new secret. Returns 0, or -1 if the kernel has no random bytes. */
int lw_hash_secret(uint8_t out[LW_HASH_SECRET]);
/* Returns NULL if OpenSSL does not offer BLAKE2b, as in FIPS mode. */
struct lw_keyed_hash *lw_keyed_hash_open(const uint8_t secret[LW_HASH_SECRET]);
/* `h` may be NULL. */
void lw_keyed_hash_close(struct lw_keyed_hash *h);
/* Hashes two texts. "a" and "bc" have another hash than "ab" and "c". One thread at a time. */
void lw_keyed_hash(struct lw_keyed_hash *h, struct lw_bytes first, struct lw_bytes second,
                   uint8_t out[LW_HASH_BYTES]);

#endif
