/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork dead ls`, `show` and `export`. */
#include "base/clock.h"
#include "ops/dead/dead.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LS_LIMIT = 100, HEAD_BYTES = 256 };

struct listing {
    int64_t left, shown;
    struct ops_table t;
    FILE *out;
};

static const struct ops_column columns[] = {{"ID", false}, {"IDENTITY", false}, {"KEY", false},
                                            {"AGO", true}, {"ATTEMPTS", true},  {"REASON", false}};

static int list(struct ops *o, struct ops_message *m, void *ctx) {
    struct listing *l = ctx;
    if (!l->left) return 1;
    l->left--;
    l->shown++;
    if (dead_look_taken(o, m)) return -1;
    if (o->args.json) {
        ops_put_json(ops_message_json(m, HEAD_BYTES));
        return 0;
    }
    char identity[320] = "?", age[16];
    if (!m->bad) ops_identity(&m->e, identity, sizeof identity);
    ops_cell(&l->t, "%s", m->id);
    ops_cell(&l->t, "%s", identity);
    ops_cell_bytes(&l->t, m->bad || !m->e.key.p ? lw_bytes_of("-") : m->e.key, 32);
    ops_cell(&l->t, "%s", ops_age(m->last_ms ? lw_wall_ms() - m->last_ms : -1, age));
    ops_cell(&l->t, "%" PRId64, m->attempts);
    struct lw_buf reason = {0};
    lw_buf_addf(&reason, "%s", m->taken_ms ? "(replayed or edited) " : "");
    lw_buf_add(&reason, m->reason.p, m->reason.n);
    ops_cell_bytes(&l->t, lw_bytes(reason.p, reason.n), 60);
    lw_buf_free(&reason);
    return 0;
}

int dead_ls(struct ops *o) {
    struct listing l = {.left = o->args.limit < 0 ? LS_LIMIT
                                : o->args.limit   ? o->args.limit
                                                  : INT64_MAX,
                        .t = {.columns = columns, .n_columns = sizeof columns / sizeof *columns}};
    int stop = dead_each(o, list, &l);
    if (!o->args.json && stop >= 0) ops_table_print(&l.t);
    if (stop > 0 && o->args.limit < 0)
        fprintf(stderr, "only the oldest %" PRId64 "; use --limit 0 to see all\n", l.shown);
    return stop < 0 ? OPS_FAILED : 0;
}

/* --- show ------------------------------------------------------------------------------------- */

static int temporary(struct lw_bytes b) {
    char name[] = "/tmp/latchwork-XXXXXX";
    int fd = mkstemp(name);
    if (fd < 0) return -1;
    unlink(name);
    bool written = write(fd, b.p ? b.p : "", b.n) == (ssize_t)b.n && write(fd, "\n", 1) == 1 &&
                   lseek(fd, 0, SEEK_SET) == 0;
    if (written) return fd;
    close(fd);
    return -1;
}

/* Prints the difference between the original payload and the edited payload in the form of
 * diff(1). */
static void put_diff(struct lw_bytes was, struct lw_bytes is) {
    int a = temporary(was), b = temporary(is);
    fflush(stdout);
    pid_t pid = a < 0 || b < 0 ? -1 : fork();
    if (pid == 0) {
        char x[32], y[32];
        snprintf(x, sizeof x, "/dev/fd/%d", a);
        snprintf(y, sizeof y, "/dev/fd/%d", b);
        execlp("diff", "diff", "-u", "--label", "before", "--label", "edited", x, y, (char *)NULL);
        _exit(127);
    }
    if (pid > 0) waitpid(pid, NULL, 0);
    if (a >= 0) close(a);
    if (b >= 0) close(b);
}

static void put_head(const struct ops_message *m) {
    char identity[320] = "(not a message of this version)", when[32];
    if (!m->bad) ops_identity(&m->e, identity, sizeof identity);
    printf("id       %s\nidentity %s\n", m->id, identity);
    if (m->e.key.p) ops_put_text("key", m->e.key, 1000);
    printf("attempts %" PRId64 "\n", m->attempts);
    if (m->first_ms) printf("first    %s\n", ops_when(m->first_ms, when));
    if (m->last_ms) printf("died     %s\n", ops_when(m->last_ms, when));
    if (m->taken_ms) printf("taken    %s (replayed or edited)\n", ops_when(m->taken_ms, when));
    ops_put_text("reason", m->reason, 1000);
}

static void put_headers(const struct ops_message *m) {
    for (size_t i = 0; i < m->e.n_headers; i++) {
        const struct lw_header *h = &m->e.headers[i];
        struct lw_buf text = {0};
        ops_text(&text, h->name, 100);
        lw_buf_add(&text, ": ", 2);
        ops_text(&text, h->value.p ? h->value : lw_bytes_of("null"), 200);
        printf("header   %.*s\n", (int)text.n, text.p);
        lw_buf_free(&text);
    }
}

static void put_payload(const struct ops_message *m, bool raw) {
    struct lw_bytes payload = m->bad ? m->raw : m->e.payload;
    printf("payload  %zu bytes\n", payload.n);
    if (raw) {
        fwrite(payload.p ? payload.p : "", 1, payload.n, stdout);
        putchar('\n');
    } else {
        ops_put_text("", payload.p ? payload : lw_bytes_of("null"), 4000);
    }
}

static int show(struct ops *o, struct ops_message *m, void *ctx) {
    struct listing *l = ctx;
    struct ops_message was = {0};
    char when[32];
    if (dead_look_taken(o, m)) return -1;
    bool edited = m->original.p && ops_message_read(&was, m->original);
    if (o->args.json) {
        json_t *j = ops_message_json(m, SIZE_MAX);
        if (edited) ops_set_bytes(j, "original_payload", was.e.payload);
        ops_put_json(j);
    } else {
        if (l->shown++) putchar('\n');
        put_head(m);
        put_headers(m);
        if (m->edited_by.p) {
            ops_put_text("edited by", m->edited_by, 200);
            printf("edited   %s\n", ops_when(m->edited_ms, when));
        }
        put_payload(m, o->args.raw);
        if (edited && !m->bad) put_diff(was.e.payload, m->e.payload);
    }
    ops_message_clear(&was);
    return 0;
}

int dead_show(struct ops *o) {
    struct listing l = {0};
    int stop = dead_each(o, show, &l);
    if (stop == 0 && ops_tell_missing(o, OPS_NO_LETTER)) return OPS_FAILED;
    return stop < 0 ? OPS_FAILED : 0;
}

/* --- export ----------------------------------------------------------------------------------- */

static int put(struct ops *o, struct ops_message *m, void *ctx) {
    struct listing *l = ctx;
    (void)o;
    if (!l->left) return 1;
    l->left--;
    ops_put_json(ops_message_json(m, SIZE_MAX));
    return ferror(stdout) ? 1 : 0;
}

int dead_export(struct ops *o) {
    struct listing l = {.left = o->args.limit > 0 ? o->args.limit : INT64_MAX};
    int stop = dead_each(o, put, &l);
    if (stop == 0 && ops_tell_missing(o, OPS_NO_LETTER)) return OPS_FAILED;
    return stop < 0 ? OPS_FAILED : 0;
}
