/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/key.h"

#include "base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

void lw_key_plain(struct lw_bytes key, char out[LW_KEY_TEXT]) {
    size_t n = key.n < LW_KEY_SHOWN ? key.n : LW_KEY_SHOWN, at = 0;
    json_t *text = memchr(key.p ? key.p : "", 0, n) ? NULL : json_stringn(key.p ? key.p : "", n);
    if (text) {
        snprintf(out, LW_KEY_TEXT, "%s", json_string_value(text));
        json_decref(text);
        return;
    }
    at = (size_t)snprintf(out, LW_KEY_TEXT, "0x");
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, LW_KEY_TEXT - at, "%02x", (unsigned char)key.p[i]);
    assert(at < LW_KEY_TEXT);
}

bool lw_key_field(enum lw_log_keys how, struct lw_bytes key, uint64_t hash, char text[LW_KEY_TEXT],
                  struct lw_log_field *out) {
    if (how == LW_KEYS_NONE) return false;
    snprintf(text, LW_KEY_TEXT, "%016" PRIx64, hash);
    if (how == LW_KEYS_PLAIN) lw_key_plain(key, text);
    *out = (struct lw_log_field){how == LW_KEYS_PLAIN ? "key" : "key_hash", text, 0};
    return true;
}
