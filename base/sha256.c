/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <openssl/evp.h>
#include <stdlib.h>

void lw_sha256(struct lw_bytes first, struct lw_bytes second, uint8_t out[LW_SHA256]) {
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c || !EVP_DigestInit_ex(c, EVP_sha256(), NULL) || !EVP_DigestUpdate(c, first.p, first.n) ||
        !EVP_DigestUpdate(c, second.p, second.n) || !EVP_DigestFinal_ex(c, out, NULL))
        abort(); /* only without memory: a hash that is not computed must not look like one */
    EVP_MD_CTX_free(c);
}
