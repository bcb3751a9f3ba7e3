/* SPDX-License-Identifier: Apache-2.0 */

#include "consumer/worker/private.h"
#include "base/redis/denied.h"

enum {
    HOLD_MS = 2000,      /* time after a refusal in which nothing is admitted */
    SAY_SAME_MS = 10000, /* minimum time between two log lines about the same refusal */
    SAY_MS = 1000,       /* minimum time between two log lines about different refusals */
};

static const struct {
    const char *name; /* name of a kind of call in log lines */
    const struct lw_script *script;
} calls[] = {
    [CALL_LOAD] = {"loading the scripts", NULL},
    [CALL_INFO] = {"the look at the server", NULL},
    [CALL_TIME] = {"the look at the server's clock", NULL},
    [CALL_OWNER] = {"the look at the epoch", NULL},
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

/* Asserts that a refusal has a text, and that its times are in order. */
static inline void check_refusal(const struct refusal *r) {
    assert(!r->last_ms || r->text[0]);
    assert(!r->last_ms || r->since_ms <= r->last_ms);
    assert(r->said_ms <= r->last_ms);
}

static void write_text(const struct lw_worker *w, struct shard *sh, enum call_kind kind,
                       const char *error) {
    assert(error && kind < sizeof calls / sizeof *calls);
    assert(calls[kind].name);
    char command[LW_DENIED_NAMES], *text = sh->refusal.text;
    size_t size = sizeof sh->refusal.text;
    enum lw_denied denied = lw_denied(error, calls[kind].script, command);
    if (denied == LW_DENIED_COMMAND)
        snprintf(text, size, "this Redis user may not run %s (in %s)",
                 *command ? command : "a command", calls[kind].name);
    else if (denied == LW_DENIED_KEY)
        snprintf(text, size,
                 "this Redis user may not use a key%s%s (in %s); it needs ~lw:{%s.[0-9]*}:*",
                 *command ? " of " : "", command, calls[kind].name, w->c->name);
    else
        snprintf(text, size, "Redis refuses this worker: %.*s", (int)strcspn(error, "\r\n"), error);
}

bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error) {
    char command[LW_DENIED_NAMES], before[sizeof sh->refusal.text];
    int64_t now = now_ms(w);
    check_refusal(&sh->refusal);
    if (lw_denied(error, NULL, command) == LW_DENIED_NOTHING) return false;
    memcpy(before, sh->refusal.text, sizeof before);
    write_text(w, sh, kind, error);
    if (!sh->refusal.last_ms) sh->refusal.since_ms = now;
    sh->refusal.kind = kind;
    sh->refusal.allowed = false;
    sh->refusal.last_ms = now;
    check_refusal(&sh->refusal);
    if (now - sh->refusal.said_ms < (strcmp(before, sh->refusal.text) == 0 ? SAY_SAME_MS : SAY_MS))
        return true;
    sh->refusal.said_ms = now;
    lw_warn("shard %d: a right is missing: %s; retrying; `latchwork check --acl USER -c FILE` "
            "prints all rights that it needs",
            sh->index, sh->refusal.text);
    return true;
}

void refusal_allowed(struct shard *sh, enum call_kind kind) {
    if (sh->refusal.last_ms && sh->refusal.kind == kind) sh->refusal.allowed = true;
}

/* Ends the refusal if it is over, and logs its end. A refusal is over if Redis has refused no call
 * for HOLD_MS, and a call of the refused kind has succeeded since the last refusal. A success alone
 * proves little, because a script may need the missing right only for some messages. A refused call
 * is tried again within HOLD_MS or, if it is a periodic one, each quarter of a TTL. If no message
 * needs the call any more, it is not tried again. The refusal is then over after HOLD_MS plus a
 * TTL. */
void refusal_look(struct lw_worker *w, struct shard *sh, int64_t now) {
    check_refusal(&sh->refusal);
    int64_t quiet_ms = now - sh->refusal.last_ms;
    if (!sh->refusal.last_ms || quiet_ms < HOLD_MS ||
        (!sh->refusal.allowed && quiet_ms < HOLD_MS + w->c->lock.ttl_ms))
        return;
    lw_info("shard %d: Redis accepts all commands again after %" PRId64 " ms", sh->index,
            now - sh->refusal.since_ms);
    sh->refusal.last_ms = sh->refusal.said_ms = 0;
    sh->refusal.text[0] = '\0';
}

bool refusal_holds(const struct shard *sh, int64_t now) {
    return sh->refusal.last_ms && now - sh->refusal.last_ms < HOLD_MS;
}

const char *refusal_text(const struct shard *sh) {
    check_refusal(&sh->refusal);
    return sh->refusal.last_ms ? sh->refusal.text : NULL;
}
