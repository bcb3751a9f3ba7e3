/* The lines of the log about single messages. Their payload is never in them; their key as log.keys says. */
#include "consumer/state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <xxhash.h>

enum { KEY_SHOWN = 200 };

/* As it is where it is text; else in hex, as the log is text. Cut where it is long. */
static void plain(struct lw_bytes key, char *out, size_t size) {
    size_t n = key.n < KEY_SHOWN ? key.n : KEY_SHOWN, at = 0;
    json_t *text = memchr(key.p ? key.p : "", 0, n) ? NULL : json_stringn(key.p ? key.p : "", n);
    if (text) {
        snprintf(out, size, "%s", json_string_value(text));
        json_decref(text);
        return;
    }
    at = (size_t)snprintf(out, size, "0x");
    for (size_t i = 0; i < n; i++) at += (size_t)snprintf(out + at, size - at, "%02x", (unsigned char)key.p[i]);
}

void tell_end(struct lw_worker *w, const struct run *r, enum lw_log_level level, const char *what) {
    const struct lw_job *j = &r->job;
    char key[2 * KEY_SHOWN + 8], hash[24];
    if (!lw_log_on(level)) return;
    struct lw_log_field f[8];
    int n = 0;
    f[n++] = (struct lw_log_field){"id", j->identity, 0};
    if (w->c->log.keys == LW_KEYS_HASH) {
        snprintf(hash, sizeof hash, "%016" PRIx64, (uint64_t)XXH3_64bits(j->key.p ? j->key.p : "", j->key.n));
        f[n++] = (struct lw_log_field){"key_hash", hash, 0};
    } else if (w->c->log.keys == LW_KEYS_PLAIN) {
        plain(j->key, key, sizeof key);
        f[n++] = (struct lw_log_field){"key", key, 0};
    }
    f[n++] = (struct lw_log_field){"attempt", NULL, j->attempt};
    f[n++] = (struct lw_log_field){"fence", NULL, (long long)j->fence};
    f[n++] = (struct lw_log_field){"duration_ms", NULL, j->took_us / 1000};
    lw_log_with(level, f, n, "%s %s%s%s", j->identity, what, j->reason[0] ? ": " : "", j->reason);
}
