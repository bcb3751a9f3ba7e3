/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the log lines about single messages. They never show the payload. They show the key in the
 * form that log.keys sets. */

#include "consumer/worker/private.h"

#include <xxhash.h>

/* Formats a key in the form that log.keys sets. */
void tell_key(const struct lw_worker *w, struct lw_bytes key, char out[LW_KEY_TEXT]) {
    assert(out && (key.p || !key.n));
    snprintf(out, LW_KEY_TEXT, "(log.keys: none)");
    if (w->c->log.keys == LW_KEYS_HASH)
        snprintf(out, LW_KEY_TEXT, "with key hash %016" PRIx64,
                 (uint64_t)XXH3_64bits(key.p ? key.p : "", key.n));
    else if (w->c->log.keys == LW_KEYS_PLAIN)
        lw_key_plain(key, out);
}

void tell_end(struct lw_worker *w, const struct run *r, enum lw_log_level level, const char *what) {
    check_run(r);
    assert(what);
    const struct lw_job *j = &r->job;
    char key[LW_KEY_TEXT], hash[24];
    if (!lw_log_on(level)) return;
    struct lw_log_field f[8];
    int n = 0;
    f[n++] = (struct lw_log_field){"id", j->identity, 0};
    if (w->c->log.keys == LW_KEYS_HASH) {
        snprintf(hash, sizeof hash, "%016" PRIx64,
                 (uint64_t)XXH3_64bits(j->key.p ? j->key.p : "", j->key.n));
        f[n++] = (struct lw_log_field){"key_hash", hash, 0};
    } else if (w->c->log.keys == LW_KEYS_PLAIN) {
        lw_key_plain(j->key, key);
        f[n++] = (struct lw_log_field){"key", key, 0};
    }
    f[n++] = (struct lw_log_field){"attempt", NULL, j->attempt};
    f[n++] = (struct lw_log_field){"fence", NULL, (long long)j->fence};
    f[n++] = (struct lw_log_field){"duration_ms", NULL, j->took_us / 1000};
    const char *between = j->reason[0] ? ": " : "";
    /* dead letters have a limit of their own, so that many retries do not hide them */
    if (level == LW_LOG_DEBUG)
        lw_log_with(level, f, n, "%s %s%s%s", j->identity, what, between, j->reason);
    else if (level == LW_LOG_INFO)
        lw_some(200, level, f, n, "%s %s%s%s", j->identity, what, between, j->reason);
    else
        lw_some(200, level, f, n, "%s %s%s%s", j->identity, what, between, j->reason);
}
