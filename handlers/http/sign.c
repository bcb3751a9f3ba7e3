/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/sign.h"

#include "base/redis/command.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

enum { DIGEST = 32, ENCODED = 4 * ((DIGEST + 2) / 3) };

static const char prefix[] = "whsec_";

/* Returns the number of '=' at the end of a base64 text. */
static size_t padding(const char *text, size_t n) {
    return n && text[n - 1] == '=' ? (n > 1 && text[n - 2] == '=' ? 2 : 1) : 0;
}

static bool is_base64(const char *text, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return n % 4 == 0 && strspn(text, digits) == n - padding(text, n);
}

bool sign_key_read(const char *text, struct sign_key *out) {
    unsigned char bytes[SIGN_KEY_MAX + 6];
    if (strncmp(text, prefix, sizeof prefix - 1) != 0) return false;
    text += sizeof prefix - 1;
    size_t n = strlen(text), key = n / 4 * 3 - padding(text, n);
    if (!is_base64(text, n) || n / 4 * 3 < SIGN_KEY_MIN || key < SIGN_KEY_MIN || key > SIGN_KEY_MAX)
        return false;
    if (EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)n) < 0) return false;
    memcpy(out->p, bytes, key);
    out->n = key;
    OPENSSL_cleanse(bytes, sizeof bytes);
    return true;
}

int signer_open(struct signer *s, struct lw_err *err) {
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                           OSSL_PARAM_construct_end()};
    if (!s->n) return 0;
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    s->mac = mac ? EVP_MAC_CTX_new(mac) : NULL;
    EVP_MAC_free(mac);
    if (s->mac && EVP_MAC_CTX_set_params(s->mac, params)) return 0;
    return lw_refuse(err, "handler.hmac_key: this OpenSSL has no HMAC-SHA256");
}

void signer_close(struct signer *s) {
    EVP_MAC_CTX_free(s->mac);
    OPENSSL_cleanse(s->keys, sizeof s->keys);
    *s = (struct signer){0};
}

static void update(const struct signer *s, struct lw_bytes part) {
    if (part.n) EVP_MAC_update(s->mac, (const unsigned char *)part.p, part.n);
}

static void add_one(const struct signer *s, const struct sign_key *key, struct lw_buf *out,
                    struct lw_bytes id, struct lw_bytes time, struct lw_bytes body) {
    unsigned char digest[DIGEST], text[ENCODED + 1];
    size_t n = 0;
    lw_or_abort(EVP_MAC_init(s->mac, key->p, key->n, NULL) ? s->mac : NULL);
    update(s, id);
    update(s, lw_bytes(".", 1));
    update(s, time);
    update(s, lw_bytes(".", 1));
    update(s, body);
    lw_or_abort(EVP_MAC_final(s->mac, digest, &n, sizeof digest) ? s->mac : NULL);
    EVP_EncodeBlock(text, digest, (int)n);
    lw_buf_add(out, "v1,", 3);
    lw_buf_add(out, text, ENCODED);
}

void signer_add(const struct signer *s, struct lw_buf *out, struct lw_bytes id, int64_t now_s,
                struct lw_bytes body) {
    char digits[24];
    size_t n = lw_decimal(now_s, digits);
    for (size_t i = 0; i < s->n; i++) {
        if (i) lw_buf_add(out, " ", 1);
        add_one(s, &s->keys[i], out, id, lw_bytes(digits, n), body);
    }
}
