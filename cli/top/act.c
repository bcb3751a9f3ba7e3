/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the actions that operators start in `latchwork top` by typing capital letters. The
 * actions call the functions of the other commands. */
#include "base/clock.h"
#include "ops/queue/queue.h"
#include "cli/top/private.h"
#include "ops/lane_lock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DROP_MAX = 10000 };

static void add_name(struct lw_buf *said, struct lw_bytes lane) { ops_text(said, lane, 60); }

static bool ready(struct top *t, struct lw_buf *said) {
    t->o->err = (struct lw_err){0};
    if (t->o->shards || ops_connect(t->o) == 0) return true;
    lw_buf_addf(said, "%s", t->o->err.text);
    ops_disconnect(t->o);
    return false;
}

void top_pause(struct top *t, struct lw_bytes lane, bool resume, struct lw_buf *said) {
    const char *verb = resume ? "resume" : "pause";
    bool changed = false;
    char *name = lw_memdup(lane.p, lane.n);
    if (!ready(t, said)) {
        free(name);
        return;
    }
    struct ops_args was = t->o->args;
    t->o->args.match = NULL;
    t->o->args.words = &name, t->o->args.n_words = 1;
    t->o->noun = "queue", t->o->verb = verb;
    struct ops_shard *sh = ops_shard_of(t->o, lane);
    int bad = resume ? ops_resume(t->o, sh, lane, &changed) : ops_pause(t->o, sh, lane, &changed);
    if (!bad && changed) bad = ops_audit(t->o, verb, 1);
    t->o->args = was;
    t->o->verb = NULL;
    free(name);
    if (bad) {
        lw_buf_addf(said, "%s", t->o->err.text);
        return;
    }
    add_name(said, lane);
    lw_buf_addf(said, ": %s",
                resume    ? changed ? "resumed" : "was not paused"
                : changed ? "paused"
                          : "was paused");
}

void top_break(struct top *t, struct lw_bytes lane, struct lw_buf *said) {
    struct latchwork_lock_options options = {LATCHWORK_LOCK_INIT};
    struct latchwork_error error = {0};
    struct lw_buf was = {0};
    uint64_t fence = 0;
    char by[160], host[64] = "?";
    const char *user = getenv("USER");
    gethostname(host, sizeof host - 1);
    snprintf(by, sizeof by, "%s@%s", user && *user ? user : "?", host);
    struct lw_lane_lock *l = lw_lane_lock_open(t->o->c, lane, &options, &error);
    enum latchwork_result result =
        l ? lw_lane_lock_break(l, by, &fence, &was, &error) : LATCHWORK_LOCK_ERROR;
    lw_lane_lock_close(l);
    lw_buf_free(&was);
    if (result == LATCHWORK_LOCK_ERROR) {
        lw_buf_addf(said, "%s", error.text);
        return;
    }
    add_name(said, lane);
    if (result == LATCHWORK_LOCK_OK)
        lw_buf_addf(said, ": broken; the fence is %" PRIu64 " now", fence);
    else
        lw_buf_addf(said, ": nobody holds it");
}

/* Shows only the last line of the command's output, which has the sums, because the earlier lines
 * are each about a single message. */
static void tell_sums(const struct lw_buf *lines, struct lw_buf *said) {
    const char *last = lines->n > 2 ? memrchr(lines->p, '\n', lines->n - 2) : NULL;
    last = last ? last + 1 : lines->p;
    json_t *sum = last ? json_loads(last, JSON_DISABLE_EOF_CHECK, NULL) : NULL, *n;
    const char *word, *between = ": ";
    json_object_foreach(json_object_get(sum, "results"), word, n) {
        lw_buf_addf(said, "%s%" JSON_INTEGER_FORMAT " %s", between, json_integer_value(n), word);
        between = ", ";
    }
    if (!strcmp(between, ": ")) lw_buf_addf(said, ": nothing to drop");
    json_decref(sum);
}

void top_drop(struct top *t, struct lw_bytes lane, struct lw_buf *said) {
    struct ops *o = t->o;
    struct lw_buf lines = {0};
    char backup[64], *name = lw_memdup(lane.p, lane.n);
    if (memchr(name, 0, lane.n) || !ready(t, said)) {
        if (!said->n) lw_buf_addf(said, "a key that holds a NUL: see latchwork queue drop --match");
        free(name);
        return;
    }
    struct ops_args was = o->args;
    snprintf(backup, sizeof backup, "latchwork-top-drop-%" PRId64 ".jsonl", lw_wall_ms());
    o->args.match = NULL;
    o->args.keys[0] = name, o->args.n_keys = 1;
    o->args.limit = DROP_MAX;
    o->args.execute = o->args.json = true;
    o->args.backup = backup;
    o->noun = "queue", o->verb = "drop";
    ops_out_to(&lines);
    queue_drop(o);
    ops_out_to(NULL);
    lw_buf_add(&lines, "", 1);
    o->args = was;
    add_name(said, lane);
    if (o->err.text[0])
        lw_buf_addf(said, ": %s", o->err.text);
    else
        tell_sums(&lines, said);
    if (!o->err.text[0]) lw_buf_addf(said, "; backup: %s", backup);
    lw_buf_free(&lines);
    free(name);
}
