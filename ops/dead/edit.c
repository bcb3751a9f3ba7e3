/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork dead edit`. */
#include "base/clock.h"
#include "base/json_place.h"
#include "ops/dead/dead.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAYLOAD_MAX = 64 << 20 };

static int read_all(const char *name, struct lw_buf *out) {
    char some[65536];
    ssize_t n = -1;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, some, sizeof some)) > 0 && out->n < PAYLOAD_MAX)
        lw_buf_add(out, some, (size_t)n);
    if (fd >= 0) close(fd);
    return n == 0 ? 0 : -1;
}

static int run_editor(const char *name) {
    const char *editor = getenv("VISUAL");
    if (!editor || !*editor) editor = getenv("EDITOR");
    if (!editor || !*editor) editor = "vi";
    struct lw_buf command = {0};
    lw_buf_addf(&command, "%s '%s'", editor, name);
    lw_buf_add(&command, "", 1);
    /* the editor is started by a shell, because $EDITOR may contain arguments */
    int status = system(command.p);
    lw_buf_free(&command);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static bool is_json(struct lw_bytes b, json_error_t *why) {
    json_t *v = b.p ? json_loadb(b.p, b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, why) : NULL;
    json_decref(v);
    return v != NULL;
}

int dead_payload_check(const struct ops_message *m, struct lw_bytes payload, struct lw_err *err) {
    json_error_t why;
    if (m->bad) return lw_fail(err, "%s is not a message of this version", m->id);
    if (!is_json(m->e.payload, &why) || is_json(payload, &why)) return 0;
    return lw_fail(
        err,
        "line %d, column %d: %s; expected JSON, because the payload was JSON; nothing was changed",
        why.line, lw_json_column(&why), why.text);
}

/* Encodes the message with the new payload. If the primary key is taken from the payload, the
 * message gets the key that the new payload contains. */
static void encode(struct ops *o, const struct ops_message *m, struct lw_bytes payload,
                   struct lw_buf *out) {
    struct lw_envelope e = m->e;
    e.payload = payload;
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane;
    struct lw_err err = {0};
    if (ops_lane_of(o, &e, &scratch, &key, &lane, &err) == 0) e.key = key;
    lw_envelope_encode(&e, out);
    lw_buf_free(&scratch);
}

/* Adds the arguments that describe a dead letter in a topic to the call of the script `edit`. */
static void add_fields(struct ops *o, const struct ops_message *m) {
    ops_words(o, o->args.again ? "any" : "", "reason"), lw_arg(&o->cmd, m->reason);
    lw_arg_text(&o->cmd, "attempts"), lw_arg_i64(&o->cmd, m->attempts);
    lw_arg_text(&o->cmd, "last_ms"), lw_arg_i64(&o->cmd, m->last_ms);
}

int dead_store(struct ops *o, const struct ops_message *m, struct lw_bytes payload,
               char id[OPS_DEAD_ID]) {
    char user[256];
    ops_who(o, user, sizeof user);
    struct lw_buf text = {0}, was = {0};
    id[0] = 0;
    if (!dead_is_ours(o, m))
        return lw_fail_conflict(
            &o->err, "%s: it is no dead letter of this application; nothing was written", m->id);
    encode(o, m, payload, &text);
    if (m->in_topic) lw_envelope_encode(&m->e, &was);
    struct ops_shard *sh = &o->shards[m->shard];
    ops_script(o, &lw_op_edit, 2);
    ops_keys(o, sh, "epoch", "dead");
    char entry[OPS_DEAD_ID];
    lw_arg_text(&o->cmd, ops_dead_entry(m, entry)),
        lw_arg(&o->cmd, m->in_topic ? lw_bytes(was.p, was.n) : m->raw),
        lw_arg(&o->cmd, lw_bytes(text.p, text.n));
    lw_arg_text(&o->cmd, user), lw_arg_i64(&o->cmd, lw_wall_ms());
    if (m->in_topic) add_fields(o, m);
    redisReply *r = ops_ask(o, sh);
    int bad = r ? 0 : -1;
    if (r && r->type == REDIS_REPLY_INTEGER && r->integer == 1)
        bad = lw_fail_conflict(&o->err,
                               "%s: it was replayed or edited before; nothing was written; use "
                               "--again to edit it again",
                               m->id);
    else if (r && r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_STATUS)
        bad = lw_fail_conflict(
            &o->err, "%s: it was removed or changed meanwhile; nothing was written", m->id);
    if (!bad) {
        snprintf(id, OPS_DEAD_ID, "%d:%s", m->shard, r->str);
        bad = ops_audit(o, "edit", 1);
    }
    if (r) freeReplyObject(r);
    lw_buf_free(&text);
    lw_buf_free(&was);
    return bad;
}

static int store(struct ops *o, const struct ops_message *m, struct lw_bytes payload,
                 bool *changed) {
    char id[OPS_DEAD_ID];
    int bad = dead_store(o, m, payload, id);
    *changed = id[0];
    if (bad) return bad;
    if (o->args.json)
        ops_put_json(json_pack("{ss ss}", "result", "edited", "id", id));
    else
        printf("%s is now %s; use dead replay to run it\n", m->id, id);
    return 0;
}

/* Writes the payload to a new temporary file, and puts the file's name into `name`. */
static int write_file(const struct ops_message *m, char name[PATH_MAX], struct lw_err *err) {
    const char *tmp = getenv("TMPDIR");
    snprintf(name, PATH_MAX, "%s/latchwork-edit-XXXXXX",
             tmp && *tmp == '/' && strlen(tmp) < 1000 && !strchr(tmp, '\'') ? tmp : "/tmp");
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) return lw_fail(err, "cannot create a temporary file: %s", strerror(errno));
    struct lw_bytes b = m->e.payload;
    bool ok = write(fd, b.p ? b.p : "", b.n) == (ssize_t)b.n;
    if (!close(fd) && ok) return 0;
    unlink(name);
    return lw_fail(err, "cannot write %s", name);
}

/* Appends the edited payload to `out`. Many editors add a line feed at the end, which is left out
 * unless the old payload ended with one. */
static int read_edited(const struct ops_message *m, const char *name, struct lw_buf *out,
                       struct lw_err *err) {
    struct lw_bytes was = m->e.payload;
    if (read_all(name, out)) return lw_fail(err, "cannot read %s", name);
    bool had = was.n && was.p[was.n - 1] == '\n';
    if (!had && out->n && out->p[out->n - 1] == '\n') out->n--;
    return 0;
}

static int store_edited(struct ops *o, const struct ops_message *m, const struct lw_buf *b,
                        bool *changed) {
    struct lw_bytes payload = lw_bytes(b->p ? b->p : "", b->n);
    if (lw_bytes_eq(payload, m->e.payload)) {
        puts(o->args.json ? "{\"result\":\"not changed\"}" : "not changed");
        return 0;
    }
    return dead_payload_check(m, payload, &o->err) ? -1 : store(o, m, payload, changed);
}

static int edit(struct ops *o, struct ops_message *m, void *ctx) {
    bool *found = ctx, changed = false;
    char name[PATH_MAX];
    struct lw_buf after = {0};
    *found = true;
    if (m->bad) return lw_fail(&o->err, "%s is not a message of this version", m->id);
    if (write_file(m, name, &o->err)) return -1;
    int bad = run_editor(name) ? lw_fail(&o->err, "the editor failed; nothing was changed")
                               : read_edited(m, name, &after, &o->err);
    bool edited = !bad;
    if (edited) bad = store_edited(o, m, &after, &changed);
    /* If an error prevented the storing of the edited payload, the file is kept, because the
     * operator may have worked on it for a long time. */
    if (bad && edited && !changed)
        fprintf(stderr, "your edit is in %s\n", name);
    else
        unlink(name);
    lw_buf_free(&after);
    return bad ? -1 : 1;
}

int dead_edit(struct ops *o) {
    bool found = false;
    int stop = dead_each(o, edit, &found);
    if (stop >= 0 && !found) lw_fail(&o->err, "%s: " OPS_NO_LETTER, o->args.words[0]);
    return stop < 0 ? OPS_FAILED : 0;
}
