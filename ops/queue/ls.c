/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork queue ls` and `show`. */
#include "base/clock.h"
#include "ops/queue/queue.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LS_LIMIT = 100, HEAD_BYTES = 256 };

/* --- ls --------------------------------------------------------------------------------------- */

struct row {
    struct ops_lane l; /* the lane; its name and lock are owned copies */
};
struct rows {
    /* `row` is the array of rows. If `most` limits the number of rows, the rows form a heap while
     * lanes are read, and the row that would be shown last is at the top of the heap. */
    struct row *row;
    size_t n, cap, most;
    bool by_size, reverse;
    uint64_t lanes, waiting;
};

/* Compares two rows. Returns a number above 0 if row a is shown after row b. */
static int order(const struct rows *rs, const struct row *a, const struct row *b) {
    int64_t x = rs->by_size ? a->l.n : ops_lane_age(&a->l),
            y = rs->by_size ? b->l.n : ops_lane_age(&b->l);
    if (!rs->by_size)
        x = a->l.has_head ? -a->l.first_ms : INT64_MIN,
        y = b->l.has_head ? -b->l.first_ms : INT64_MIN;
    if (x != y) return (x < y) != rs->reverse ? 1 : -1;
    size_t n = a->l.name.n < b->l.name.n ? a->l.name.n : b->l.name.n;
    int c = memcmp(a->l.name.p, b->l.name.p, n);
    return c ? c : (a->l.name.n > b->l.name.n) - (a->l.name.n < b->l.name.n);
}

static void swap(struct row *a, struct row *b) {
    struct row t = *a;
    *a = *b;
    *b = t;
}

static void sift_up(struct rows *rs, size_t i) {
    for (; i && order(rs, &rs->row[i], &rs->row[(i - 1) / 2]) > 0; i = (i - 1) / 2)
        swap(&rs->row[i], &rs->row[(i - 1) / 2]);
}

static void sift_down(struct rows *rs, size_t i) {
    for (;;) {
        size_t last = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < rs->n; k++)
            if (order(rs, &rs->row[k], &rs->row[last]) > 0) last = k;
        if (last == i) return;
        swap(&rs->row[i], &rs->row[last]);
        i = last;
    }
}

static void row_free(struct row *r) {
    free((void *)(uintptr_t)r->l.name.p);
    free((void *)(uintptr_t)r->l.lock.p);
}

static int keep(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct rows *rs = ctx;
    if (!l->has_head && !l->paused && l->n >= 0 && !o->args.n_keys) return 0;
    if (!ops_lane_head_matches(o, l)) return 0;
    rs->lanes++;
    rs->waiting += l->n > 0 ? (uint64_t)l->n : 0;
    struct row r = {*l};
    if (rs->most && rs->n == rs->most && order(rs, &r, &rs->row[0]) > 0) return 0;
    r.l.name = lw_bytes(lw_memdup(l->name.p, l->name.n), l->name.n);
    r.l.lock = lw_bytes(lw_memdup(l->lock.p, l->lock.n), l->lock.n);
    if (rs->most && rs->n == rs->most) {
        row_free(&rs->row[0]);
        rs->row[0] = r;
        sift_down(rs, 0);
        return 0;
    }
    rs->row = lw_more(rs->row, rs->n, &rs->cap, sizeof *rs->row);
    rs->row[rs->n++] = r;
    sift_up(rs, rs->n - 1);
    return 0;
}

/* Turns the heap of rows into an array in the order of display. */
static void sort(struct rows *rs) {
    size_t n = rs->n;
    while (rs->n > 1) {
        swap(&rs->row[0], &rs->row[rs->n - 1]);
        rs->n--;
        sift_down(rs, 0);
    }
    rs->n = n;
}

static const struct ops_column ls_columns[] = {{"KEY", false},    {"WAITING", true},
                                               {"AGE", true},     {"ATTEMPTS", true},
                                               {"OLDEST", false}, {"HOLDER", false}};

static void add_row(struct ops_table *t, const struct ops_lane *l) {
    char age[16];
    struct lw_buf holder = {0};
    ops_holder_text(l, &holder);
    ops_cell_bytes(t, l->name, 40);
    if (l->n < 0)
        ops_cell(t, "broken");
    else
        ops_cell(t, "%" PRId64, l->n);
    ops_cell(t, "%s", ops_age(ops_lane_age(l), age));
    ops_cell(t, "%" PRId64, l->attempts);
    ops_cell(t, "%s", l->has_head ? l->head : "-");
    ops_cell_bytes(t, lw_bytes(holder.p, holder.n), 80);
    lw_buf_free(&holder);
}

int queue_ls(struct ops *o) {
    struct rows rs = {.most = o->args.limit < 0 ? LS_LIMIT : (size_t)o->args.limit,
                      .by_size = o->args.sort && strcmp(o->args.sort, "size") == 0,
                      .reverse = o->args.reverse};
    int bad = ops_each_lane(o, keep, &rs);
    sort(&rs);
    struct ops_table t = {.columns = ls_columns,
                          .n_columns = sizeof ls_columns / sizeof *ls_columns};
    size_t shown = 0;
    for (size_t i = 0; i < rs.n; i++) {
        /* a lane may have two rows, because a cursor may return the same lane more than once */
        bool twice = i && lw_bytes_eq(rs.row[i].l.name, rs.row[i - 1].l.name);
        if (twice || bad < 0) continue;
        shown++;
        if (o->args.json)
            ops_put_json(ops_lane_json(&rs.row[i].l));
        else
            add_row(&t, &rs.row[i].l);
    }
    if (!o->args.json && bad >= 0) {
        ops_table_print(&t);
        if (shown < rs.lanes)
            printf("%zu of %" PRIu64 " lanes; use --limit 0 to see all\n", shown, rs.lanes);
    }
    for (size_t i = 0; i < rs.n; i++) row_free(&rs.row[i]);
    free(rs.row);
    return bad < 0 ? OPS_FAILED : 0;
}

/* --- show ------------------------------------------------------------------------------------- */

struct showing {
    int64_t left; /* number of messages that are still to be shown; -1: no limit */
    struct ops_table t;
    uint64_t n;
    bool found;
};

static const struct ops_column show_columns[] = {
    {"IDENTITY", false}, {"AGE", true}, {"ATTEMPTS", true}, {"BYTES", true}, {"PAYLOAD", false}};

static void put_holder(const struct ops_lane *l, struct lw_bytes worker, uint64_t fence) {
    char when[32], age[16];
    int64_t since_ms = (int64_t)(fence / 1000);
    ops_put_text("holder", worker, 200);
    printf("since    %s, %s ago, fence %" PRIu64 "\n", ops_when(since_ms, when),
           ops_age(l->now_ms - since_ms, age), fence);
    if (l->left_ms < 0)
        puts("until    never: a worker did not write this lock");
    else
        printf("until    %s, in %s unless it is renewed\n", ops_when(l->now_ms + l->left_ms, when),
               ops_age(l->left_ms, age));
    struct lw_buf text = {0};
    ops_run_text(l->runs ? &l->run : NULL, l->now_ms, &text);
    printf("runs     %.*s\n", (int)text.n, text.p);
    lw_buf_free(&text);
}

static void put_backoff(const struct ops_lane *l) {
    char when[32], age[16];
    puts("holder   nobody (its oldest message failed and waits for its next attempt)");
    printf("until    %s, in %s\n", ops_when(l->now_ms + l->left_ms, when),
           ops_age(l->left_ms, age));
}

static void put_lane(const struct ops_lane *l, const struct ops_why *why) {
    struct lw_buf text = {0};
    struct lw_bytes worker;
    uint64_t fence;
    ops_text(&text, l->name, 200);
    printf("key      %.*s  (shard %d%s)\n", (int)text.n, text.p ? text.p : "", l->shard,
           l->paused ? ", paused" : "");
    lw_buf_free(&text);
    if (ops_lane_held(l, &worker, &fence))
        put_holder(l, worker, fence);
    else if (l->lock.n)
        put_backoff(l);
    else
        puts("holder   nobody");
    printf("waiting  %" PRId64 "\n", l->n);
    if (why->reason) printf("why      %s\n", why->text);
}

static int show_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct showing *s = ctx;
    struct ops_why why;
    s->found = l->n != 0 || l->lock.n || l->paused;
    if (ops_why(o, l, &why)) return -1;
    if (o->args.json) {
        json_t *j = ops_lane_json(l);
        json_object_set_new(j, "why", ops_why_json(&why));
        json_object_set_new(j, "type", json_string("lane"));
        ops_put_json(j);
    } else {
        put_lane(l, &why);
    }
    if (l->n >= 0) return 0;
    return lw_fail(&o->err, "the name of its waiting list holds another type; another program "
                            "writes to this Redis");
}

static int show_message(struct ops *o, struct ops_message *m, void *ctx) {
    struct showing *s = ctx;
    /* the message is finished, and the next claim or settle of the lane removes it from the list */
    if (m->state == 'f') return 0;
    if (!s->left) return 1;
    if (s->left > 0) s->left--;
    s->n++;
    if (o->args.json) {
        json_t *j = ops_message_json(m, o->args.raw ? SIZE_MAX : HEAD_BYTES);
        json_object_set_new(j, "type", json_string("message"));
        ops_put_json(j);
        return 0;
    }
    char identity[320] = "(not a message of this version)", age[16];
    if (!m->bad) ops_identity(&m->e, identity, sizeof identity);
    if (o->args.raw) {
        printf("\n%s\n", identity);
        fwrite(m->e.payload.p ? m->e.payload.p : "", 1, m->e.payload.n, stdout);
        putchar('\n');
        return 0;
    }
    ops_cell(&s->t, "%s", identity);
    ops_cell(&s->t, "%s", ops_age(m->bad ? -1 : lw_wall_ms() - m->e.first_ms, age));
    ops_cell(&s->t, "%" PRId64, m->attempts);
    ops_cell(&s->t, "%zu", m->bad ? m->raw.n : m->e.payload.n);
    ops_cell_bytes(&s->t,
                   m->bad           ? m->raw
                   : m->e.payload.p ? m->e.payload
                                    : lw_bytes_of("null"),
                   60);
    return 0;
}

int queue_show(struct ops *o) {
    struct showing s = {
        .left = o->args.limit > 0 ? o->args.limit : -1,
        .t = {.columns = show_columns, .n_columns = sizeof show_columns / sizeof *show_columns}};
    char room[LW_LANE_ROOM];
    struct lw_bytes lane = lw_lane_named(lw_bytes_of(o->args.words[0]), room, sizeof room);
    struct ops_shard *sh = ops_shard_of(o, lane);
    int bad = ops_look(o, sh, &lane, 1, show_lane, &s);
    if (bad >= 0) bad = ops_each_waiting(o, sh->index, lane, show_message, &s);
    if (!o->args.json && s.t.n_cells) {
        putchar('\n');
        ops_table_print(&s.t);
    }
    if (bad > 0) fprintf(stderr, "only the first %" PRIu64 "; use --limit 0 to see all\n", s.n);
    return bad < 0 ? OPS_FAILED : 0;
}
