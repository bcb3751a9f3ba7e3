/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/worker/refusal.h"

#include "base/redis/denied.h"
#include "consumer/worker/private.h"
#include "consumer/worker/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SAY_MS = 10000, OLD_MS = 5000 };

static const struct {
    const char *name; /* where the right is missing */
    const struct lw_script *script;
} calls[] = {
    [CALL_LOAD] = {"loading the scripts", NULL},
    [CALL_INFO] = {"the look at the server", NULL},
    [CALL_TIME] = {"the look at the server's clock", NULL},
    [CALL_ENTER] = {"script enter", &lw_script_enter},
    [CALL_REPAIR] = {"script repair", &lw_script_repair},
    [CALL_WATCH] = {"script watch", &lw_script_watch},
    [CALL_SETTLE] = {"script settle", &lw_script_settle},
    [CALL_GATE] = {"script gate", &lw_script_gate},
    [CALL_CLAIM] = {"script claim", &lw_script_claim},
    [CALL_HINTS] = {"script hints", &lw_script_hints},
    [CALL_TEND] = {"script tend", &lw_script_tend},
    [CALL_FLOOR] = {"script floor", &lw_script_floor},
    [CALL_VANISHED] = {"the look for deleted lists", NULL},
    [CALL_UNPARK] = {"script unpark", &lw_script_unpark},
    [CALL_LIFT] = {"script lift", &lw_script_lift},
    [CALL_ALIVE] = {"the heartbeat", NULL},
};

static void write_text(const struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error) {
    char command[LW_DENIED_NAMES];
    struct refusal *r = &sh->refusal;
    switch (lw_denied(error, calls[kind].script, command)) {
    case LW_DENIED_COMMAND:
        snprintf(r->text, sizeof r->text, "this Redis user may not run %s (in %s)", *command ? command : "a command", calls[kind].name);
        break;
    case LW_DENIED_KEY:
        snprintf(r->text, sizeof r->text, "this Redis user may not use a key of %s (in %s); it needs ~lw:{%s.[0-9]*}:*",
                 *command ? command : "a command", calls[kind].name, w->c->name);
        break;
    default: snprintf(r->text, sizeof r->text, "Redis refuses this worker: %.*s", (int)strcspn(error, "\r\n"), error);
    }
}

bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error) {
    char command[LW_DENIED_NAMES], before[sizeof sh->refusal.text];
    int64_t now = now_ms(w);
    if (lw_denied(error, NULL, command) == LW_DENIED_NOTHING) return false;
    memcpy(before, sh->refusal.text, sizeof before);
    write_text(w, sh, kind, error);
    if (!sh->refusal.last_ms) sh->refusal.since_ms = now;
    sh->refusal.kind = kind;
    sh->refusal.last_ms = now;
    if (strcmp(before, sh->refusal.text) == 0 && now - sh->refusal.said_ms < SAY_MS) return true;
    sh->refusal.said_ms = now;
    lw_warn("shard %d: a right is missing: %s; retrying; `latchwork check --acl USER -c FILE` prints all rights that it needs", sh->index,
            sh->refusal.text);
    return true;
}

void refusal_over(struct lw_worker *w, struct shard *sh, enum call_kind kind) {
    if (!sh->refusal.last_ms || sh->refusal.kind != kind) return;
    lw_info("shard %d: Redis has given the right back after %" PRId64 " ms", sh->index, now_ms(w) - sh->refusal.since_ms);
    sh->refusal.last_ms = 0;
    sh->refusal.text[0] = '\0';
}

/* Refused calls are retried within seconds, or each quarter of a TTL. A call that nothing asks for any more is not retried. */
const char *refusal_text(const struct shard *sh, int64_t ttl_ms, int64_t now) {
    bool lasts = sh->refusal.last_ms && now - sh->refusal.last_ms < OLD_MS + ttl_ms;
    return lasts ? sh->refusal.text : NULL;
}
