/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the fake Redis reply with errors, in four ways. First, the server refuses a single command.
 * Second, for a period the server refuses nearly all commands (because it loads data, was demoted,
 * is busy with a script, or has a full disk) or is at maxmemory. Third, a script fails in the
 * middle, and Redis does not roll back what the script has written. Fourth, a command executes, but
 * its reply is malformed. */
#include "tests/sim/world/world.h"

#include <inttypes.h>
#include <stdio.h>

/* This text marks the error replies that errors.c makes on purpose. Any other error reply of the
 * fake Redis is a violation, except NOSCRIPT, OOM and the redirections of a cluster. */
#define BY_CHANCE "(by chance)"

enum { SCRIPT_CALLS = 24 }; /* a script fails at one of its first 24 calls */

static const char *const periods[] = {
    "READONLY You can't write against a read only replica. " BY_CHANCE,
    "LOADING Redis is loading the dataset in memory " BY_CHANCE,
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN "
    "NOSAVE. " BY_CHANCE,
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to "
    "disk. " BY_CHANCE,
    "CLUSTERDOWN The cluster is down " BY_CHANCE,
    "NOREPLICAS Not enough good replicas to write. " BY_CHANCE,
};
static const char *const singles[] = {
    "OOM command not allowed when used memory > 'maxmemory'. " BY_CHANCE,
    "NOPERM User worker has no permissions to run the 'evalsha' command " BY_CHANCE,
    "WRONGTYPE Operation against a key holding the wrong kind of value " BY_CHANCE,
    "NOSCRIPT No matching script. Please use EVAL. " BY_CHANCE,
    "ERR something that nobody has heard of " BY_CHANCE,
};
static const char *const within[] = {
    "NOPERM User worker has no permissions to run a command " BY_CHANCE,
    "WRONGTYPE Operation against a key holding the wrong kind of value " BY_CHANCE,
};
enum { PERIODS = sizeof periods / sizeof periods[0], SINGLES = sizeof singles / sizeof singles[0] };

bool errors_meant(const char *text) { return strstr(text, BY_CHANCE) != NULL; }

/* Sometimes begins a period of errors on a shard. Returns true if it began one. The world then
 * makes no other fault in this step. */
bool errors_begin(struct world *w) {
    struct errors *e = &w->errors[rnd_below(w, SHARDS)];
    int64_t until_ms = w->now_ms + 100 + rnd_below(w, 2000);
    if (rnd_unit(w) < 0.002 * w->f->full) {
        e->full_until_ms = until_ms;
        trace(w, "shard %d is at maxmemory until %" PRId64, (int)(e - w->errors), until_ms);
        return true;
    }
    if (rnd_unit(w) < 0.002 * w->f->refusals) {
        e->until_ms = until_ms;
        e->text = periods[rnd_below(w, PERIODS)];
        trace(w, "shard %d answers %.12s until %" PRId64, (int)(e - w->errors), e->text, until_ms);
        return true;
    }
    return false;
}

bool errors_full(const struct world *w, int shard) {
    return w->faults_on && w->now_ms < w->errors[shard].full_until_ms;
}

static redisReply *error_reply(struct world *w, const struct server *s, const char *command,
                               const char *text) {
    trace(w, "  redis %d: %s -> %.12s", s->shard, command, text);
    redisReply *r = calloc(1, sizeof *r);
    r->type = REDIS_REPLY_ERROR;
    r->len = strlen(text);
    r->str = lw_memdup(text, r->len);
    return r;
}

/* Returns the error with which the server refuses the command, or NULL if the server runs the
 * command. */
redisReply *errors_refuse(struct world *w, const struct server *s, const char *command) {
    const struct errors *e = &w->errors[s->shard];
    /* A server that refuses commands for a period still answers TIME and INFO. */
    bool looks = !strcmp(command, "TIME") || !strcmp(command, "INFO");
    if (!w->faults_on) return NULL;
    if (w->now_ms < e->until_ms && !looks) return error_reply(w, s, command, e->text);
    if (w->f->errors <= 0 || rnd_unit(w) >= 0.01 * w->f->errors) return NULL;
    int k = rnd_below(w, SINGLES + PERIODS);
    const char *text = k < SINGLES ? singles[k] : periods[k - SINGLES];
    if (!strncmp(text, "NOSCRIPT", 8) && strcmp(command, "EVALSHA") != 0) text = singles[0];
    return error_reply(w, s, command, text);
}

redisReply *errors_malform(struct world *w, const struct server *s, const char *command,
                           redisReply *r) {
    if (!w->faults_on || w->f->errors <= 0 || r->type == REDIS_REPLY_ERROR) return r;
    if (rnd_unit(w) >= 0.002 * w->f->errors) return r;
    freeReplyObject(r);
    r = error_reply(w, s, command, "QUEUED");
    r->type = REDIS_REPLY_STATUS;
    if (rnd_below(w, 2)) return r;
    freeReplyObject(r);
    r = calloc(1, sizeof *r);
    r->type = REDIS_REPLY_NIL;
    return r;
}

/* Sometimes makes the next script fail in the middle. */
void errors_tear(struct world *w, struct server *s) {
    bool now = w->faults_on && w->f->torn > 0 && rnd_unit(w) < 0.02 * w->f->torn;
    store_fail_script(s->store, now ? 1 + rnd_below(w, SCRIPT_CALLS) : 0,
                      now ? within[rnd_below(w, 2)] : NULL);
}
