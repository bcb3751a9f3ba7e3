/* SPDX-License-Identifier: Apache-2.0 */
#include "base/keyed_hash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct lw_keyed_hash {
    EVP_MAC *mac;
    EVP_MAC_CTX *ctx; /* has the secret, which each hash starts from */
};

int lw_hash_secret(uint8_t out[LW_HASH_SECRET]) {
    return getrandom(out, LW_HASH_SECRET, 0) == LW_HASH_SECRET ? 0 : -1;
}

struct lw_keyed_hash *lw_keyed_hash_open(const uint8_t secret[LW_HASH_SECRET]) {
    struct lw_keyed_hash *h = lw_alloc(sizeof *h);
    size_t size = LW_HASH_BYTES;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                           OSSL_PARAM_construct_end()};
    h->mac = EVP_MAC_fetch(NULL, "BLAKE2BMAC", NULL);
    h->ctx = h->mac ? EVP_MAC_CTX_new(h->mac) : NULL;
    if (h->ctx && EVP_MAC_init(h->ctx, secret, LW_HASH_SECRET, params)) return h;
    lw_keyed_hash_close(h);
    return NULL;
}

void lw_keyed_hash_close(struct lw_keyed_hash *h) {
    if (!h) return;
    EVP_MAC_CTX_free(h->ctx);
    EVP_MAC_free(h->mac);
    free(h);
}

void lw_keyed_hash(struct lw_keyed_hash *h, struct lw_bytes first, struct lw_bytes second,
                   uint8_t out[LW_HASH_BYTES]) {
    uint64_t n = first.n;
    size_t written;
    if (!EVP_MAC_init(h->ctx, NULL, 0, NULL) ||
        !EVP_MAC_update(h->ctx, (const unsigned char *)&n, sizeof n) ||
        (first.n && !EVP_MAC_update(h->ctx, (const unsigned char *)first.p, first.n)) ||
        (second.n && !EVP_MAC_update(h->ctx, (const unsigned char *)second.p, second.n)) ||
        !EVP_MAC_final(h->ctx, out, &written, LW_HASH_BYTES) || written != LW_HASH_BYTES)
        abort(); /* only without memory: a hash that is not computed must not look like one */
}
