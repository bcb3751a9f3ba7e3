/* SPDX-License-Identifier: Apache-2.0 */
/* sign: signatures of requests as defined by Standard Webhooks: HMAC-SHA256 over "ID.SECONDS.BODY",
 * in base64. A signer may be used by one thread at a time. The functions of this file do no I/O. */
#ifndef LW_HANDLERS_HTTP_SIGN_H
#define LW_HANDLERS_HTTP_SIGN_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>

enum { SIGN_KEYS_MAX = 4, SIGN_KEY_MIN = 24, SIGN_KEY_MAX = 64 };

struct sign_key {
    unsigned char p[SIGN_KEY_MAX];
    size_t n;
};

struct evp_mac_ctx_st;

struct signer {
    struct sign_key keys[SIGN_KEYS_MAX];
    size_t n; /* number of keys; 0: requests are not signed */
    struct evp_mac_ctx_st *mac;
};

/* Reads a key in the form "whsec_" and 24 to 64 bytes in base64. Returns false if the text has
 * another form. */
bool sign_key_read(const char *text, struct sign_key *out);
/* Prepares a signer whose keys are set. Returns -1 with *err if OpenSSL has no HMAC-SHA256. */
int signer_open(struct signer *s, struct lw_err *err);
void signer_close(struct signer *s); /* frees the signer's memory and wipes its keys */
/* Appends one signature "v1,BASE64" per key, separated by spaces. */
void signer_add(const struct signer *s, struct lw_buf *out, struct lw_bytes id, int64_t now_s,
                struct lw_bytes body);

#endif
