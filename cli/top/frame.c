/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the display of `latchwork top`: as lines for a terminal of any size, and as JSON. */
#include "base/clock.h"
#include "cli/top/private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_MAX_BYTES = 4096 };

static const char *const sort_names[TOP_SORTS] = {"waiting", "age", "attempts"};

/* --- lines ------------------------------------------------------------------------------------ */

/* Returns the width of a text in columns, which is the number of bytes that begin a UTF-8
 * character. */
static size_t columns(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void cut(char *s, size_t most) {
    size_t n = 0;
    for (; *s; s++)
        if (((unsigned char)*s & 0xc0) != 0x80 && n++ == most) {
            *s = '\0';
            return;
        }
}

static void add_line(struct top_frame *f, enum top_style style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add_line(struct top_frame *f, enum top_style style, const char *fmt, ...) {
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    cut(text, (size_t)f->width);
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->line = lw_realloc(f->line, f->cap * sizeof *f->line);
    }
    f->line[f->n++] = (struct top_line){lw_strdup(text), style};
}

void top_frame_free(struct top_frame *f) {
    for (size_t i = 0; i < f->n; i++) free(f->line[i].text);
    free(f->line);
    *f = (struct top_frame){.width = f->width};
}

/* Appends a cell of w columns and a space. If w is negative, the text is aligned to the right. */
static void cell(struct lw_buf *line, int w, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void cell(struct lw_buf *line, int w, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t most = (size_t)abs(w);
    cut(text, most);
    int pad = (int)(most - columns(text));
    if (w < 0)
        lw_buf_addf(line, "%*s%s ", pad, "", text);
    else
        lw_buf_addf(line, "%s%*s ", text, pad, "");
}

static void end_line(struct top_frame *f, enum top_style style, struct lw_buf *line) {
    while (style != TOP_SELECTED && line->n && line->p[line->n - 1] == ' ') line->n--;
    add_line(f, style, "%.*s", (int)line->n, line->p ? line->p : "");
    line->n = 0;
}

/* Writes a number with commas to `out`: 1234567 as "1,234,567". */
static const char *count(int64_t n, char out[32]) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRId64, n), at = 0;
    for (int i = 0; i < len; i++) {
        out[at++] = digits[i];
        if ((len - i) % 3 == 1 && i + 1 < len && digits[i] != '-') out[at++] = ',';
    }
    out[at] = '\0';
    return out;
}

static const char *rate(double v, char out[32]) {
    if (v < 0) return "-";
    if (v < 10) {
        snprintf(out, 32, "%.1f/s", v);
        return out;
    }
    char n[32];
    snprintf(out, 32, "%.29s/s", count((int64_t)(v + 0.5), n));
    return out;
}

static const char *bytes_text(struct lw_bytes b, char *out, size_t size) {
    struct lw_buf text = {0};
    ops_text(&text, b, size - 8);
    snprintf(out, size, "%.*s", (int)text.n, text.p ? text.p : "");
    lw_buf_free(&text);
    return out;
}

/* Writes a time in µs with a suitable unit to `out`, such as "850 µs", "12.3 ms" or "4.5 s", and
 * returns `out`. Returns "-" for a negative time, which means that the time is unknown. */
static const char *span(int64_t us, char out[32]) {
    if (us < 0) return "-";
    if (us < 1000)
        snprintf(out, 32, "%" PRId64 " µs", us);
    else if (us < 1000000)
        snprintf(out, 32, "%.3g ms", (double)us / 1000);
    else
        snprintf(out, 32, "%.3g s", (double)us / 1000000);
    return out;
}

/* --- the head --------------------------------------------------------------------------------- */

static void draw_percentiles(const struct top_fleet *e, struct top_frame *f) {
    char a[32], b[32], c[32], d[32];
    if (e->handler_p50_us < 0 && e->end_to_end_p50_us < 0)
        add_line(f, TOP_PLAIN, "%s", "");
    else
        add_line(f, TOP_PLAIN, "handler p50 %s  p99 %s  end to end p50 %s  p99 %s",
                 span(e->handler_p50_us, a), span(e->handler_p99_us, b),
                 span(e->end_to_end_p50_us, c), span(e->end_to_end_p99_us, d));
}

static void draw_head(const struct top *t, const struct top_view *v, struct top_frame *f) {
    const struct top_fleet *e = &t->fleet;
    char when[32], a[32], b[32], c[32], d[32], w[32], age[16];
    bool about;
    int64_t waiting = top_waiting(t, &about), oldest = top_oldest_ms(t);
    struct lw_buf line = {0};
    lw_buf_addf(&line, "latchwork top  %s  %s  every %.3g s  by %s", t->o->c->name,
                ops_when(t->at_ms, when) + 11, (double)v->interval_ms / 1000, sort_names[t->sort]);
    if (t->o->args.match) lw_buf_addf(&line, "  filter: %s", t->filter.p);
    lw_buf_add(&line, "", 1);
    cut(line.p, (size_t)f->width);
    add_line(f, TOP_BAR, "%s%*s", line.p, (int)((size_t)f->width - columns(line.p)), "");
    line.n = 0;
    add_line(f, TOP_PLAIN, "in %s  out %s  committed %s  lag %s  waiting %s%s  oldest %s",
             rate(e->on ? e->in : -1, a), rate(e->on ? e->out : -1, b), rate(t->commit_rate, c),
             e->on ? count(e->lag, d) : "-", about ? "at least " : "", count(waiting, w),
             ops_age(oldest ? t->at_ms - oldest : -1, age));
    lw_buf_addf(&line, "lanes %s  paused %s  dead %s  workers ", count(t->n_lanes, a),
                count(t->paused, b), count(t->dead, c));
    if (e->on)
        lw_buf_addf(&line, "%d/%d ready  in handler %s  done %s", e->ready, e->workers,
                    count(e->in_handler, a), count(e->done, b));
    else
        lw_buf_addf(&line, "%" PRId64, t->known_workers);
    end_line(f, TOP_PLAIN, &line);
    lw_buf_free(&line);
    if (!t->up)
        add_line(f, TOP_WARN, "%s; retrying", t->why);
    else if (v->message)
        add_line(f, TOP_WARN, "%s", v->message);
    else if (e->on)
        draw_percentiles(e, f);
    else
        add_line(f, TOP_PLAIN, "%s", e->why);
}

/* --- tables ----------------------------------------------------------------------------------- */

static int key_width(const struct top_frame *f) {
    int w = f->width - (8 + 7 + 8 + 22 + 7 + 5) - (f->width >= 110 ? 25 : 0);
    return w < 8 ? 8 : w > 48 ? 48 : w;
}

static void draw_lane(const struct top_frame *f, const struct ops_lane *l, const struct top *t,
                      struct lw_buf *line) {
    char text[256], age[16];
    struct lw_bytes worker;
    uint64_t fence;
    struct lw_buf holder = {0};
    bool held = ops_lane_held(l, &worker, &fence);
    ops_holder_text(l, &holder);
    lw_buf_add(&holder, "", 1);
    cell(line, key_width(f), "%s", bytes_text(l->name, text, sizeof text));
    if (l->n < 0)
        cell(line, -8, "broken");
    else
        cell(line, -8, "%s", count(l->n, text));
    cell(line, -7, "%s", ops_age(l->has_head ? t->at_ms - l->first_ms : -1, age));
    cell(line, -8, "%" PRId64, l->attempts);
    cell(line, 22, "%s", holder.p);
    cell(line, -7, "%s", ops_age(held ? l->now_ms - (int64_t)(fence / 1000) : -1, age));
    if (f->width >= 110) cell(line, 24, "%s", l->has_head ? l->head : "-");
    lw_buf_free(&holder);
}

static void draw_lanes(const struct top *t, struct top_view *v, struct top_frame *f, size_t rows) {
    struct lw_buf line = {0};
    cell(&line, key_width(f), "KEY"), cell(&line, -8, "WAITING"), cell(&line, -7, "AGE"),
        cell(&line, -8, "ATTEMPTS"), cell(&line, 22, "HOLDER");
    cell(&line, -7, "SINCE");
    if (f->width >= 110) cell(&line, 24, "OLDEST");
    end_line(f, TOP_HEAD, &line);
    if (rows) rows--;
    if (v->selected != SIZE_MAX) {
        if (v->selected >= t->n_lane) v->selected = t->n_lane ? t->n_lane - 1 : 0;
        if (v->first > v->selected) v->first = v->selected;
        if (rows && v->selected >= v->first + rows) v->first = v->selected - rows + 1;
    }
    if (v->first >= t->n_lane) v->first = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t at = v->first + i;
        if (at < t->n_lane) {
            draw_lane(f, &t->lane[at].l, t, &line);
            end_line(f, at == v->selected ? TOP_SELECTED : TOP_PLAIN, &line);
        } else {
            add_line(f, TOP_PLAIN, "%s",
                     i || t->n_lane     ? ""
                     : t->o->args.match ? "no lane that matches the filter has waiting messages"
                                        : "no message waits");
        }
    }
    lw_buf_free(&line);
}

static void draw_workers(const struct top *t, struct top_frame *f, size_t rows) {
    struct lw_buf line = {0};
    char a[32], age[16];
    if (!rows) return;
    cell(&line, -6, "WORKER"), cell(&line, -8, "PID"), cell(&line, 9, "STATE"),
        cell(&line, -10, "IN HANDLER"), cell(&line, -9, "WAITING");
    cell(&line, -10, "DONE/S"), cell(&line, -6, "STARTS"), cell(&line, -8, "TURNED");
    end_line(f, TOP_HEAD, &line);
    if (!t->n_worker && rows > 1) add_line(f, TOP_PLAIN, "only the supervisor knows more of them");
    for (size_t i = 0; i < t->n_worker && i + 1 < rows; i++) {
        const struct top_worker *w = &t->worker[i];
        if (i + 2 == rows && t->n_worker > i + 1) {
            add_line(f, TOP_PLAIN, "and %zu more: /api/v1/workers", t->n_worker - i);
            break;
        }
        cell(&line, -6, "%d", w->index), cell(&line, -8, "%d", w->pid),
            cell(&line, 9, "%s", w->state);
        cell(&line, -10, "%" PRId64, w->in_handler), cell(&line, -9, "%" PRId64, w->waiting),
            cell(&line, -10, "%s", rate(w->done_rate, a));
        cell(&line, -6, "%" PRId64, w->starts), cell(&line, -8, "%s", ops_age(w->turned_ms, age));
        end_line(f, TOP_PLAIN, &line);
    }
    lw_buf_free(&line);
}

static void draw_dead(const struct top *t, struct top_frame *f, size_t rows) {
    struct lw_buf line = {0};
    char age[16];
    if (!rows) return;
    cell(&line, -7, "DIED"), cell(&line, 22, "IDENTITY"), cell(&line, 16, "KEY"),
        cell(&line, -8, "ATTEMPTS"), cell(&line, 40, "WHY");
    end_line(f, TOP_HEAD, &line);
    for (size_t i = 0; i + 1 < rows; i++) {
        if (i >= t->n_died) {
            add_line(f, TOP_PLAIN, "%s", i ? "" : "no dead letters in Redis");
            continue;
        }
        const struct top_dead *d = &t->died[i];
        cell(&line, -7, "%s", ops_age(d->at_ms ? t->at_ms - d->at_ms : -1, age)),
            cell(&line, 22, "%s", d->identity), cell(&line, 16, "%s", d->key);
        cell(&line, -8, "%" PRId64, d->attempts), cell(&line, 200, "%s", d->reason);
        end_line(f, TOP_PLAIN, &line);
    }
    lw_buf_free(&line);
}

static void draw_help(struct top_frame *f) {
    static const char *const text[] = {
        "",
        "  up, down, j, k, home, end   choose a lane",
        "  /    show only lanes and dead letters whose key contains this text,",
        "       or matches this pattern (* ? [a-z])",
        "  s    sort lanes by what waits, by age of their oldest, by its attempts",
        "  space  refresh now",
        "  ?    this page; any key leaves it",
        "  q    quit",
        "",
        "  Capitals change the marked lane. Each asks first, and y confirms:",
        "  P    pause: new messages are parked, and none of the lane runs",
        "  R    resume",
        "  B    break its lock: its holder is refused from now on,",
        "       and the lane moves on",
        "  D    drop its waiting messages, at most 10,000; a backup is written first",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) add_line(f, TOP_PLAIN, "%s", text[i]);
}

void top_draw(const struct top *t, struct top_view *v, struct top_frame *f) {
    top_frame_free(f);
    f->width = v->width;
    draw_head(t, v, f);
    size_t height = v->height < 6 ? 6 : (size_t)v->height, room = height - f->n - 1;
    if (v->help) {
        draw_help(f);
    } else {
        size_t most = room / 4 < 5 ? 5 : room / 4;
        size_t workers = room < 10                ? 0
                         : t->n_worker + 1 < most ? (t->n_worker ? t->n_worker + 1 : 2)
                                                  : most;
        size_t dead = room < 14 ? 0 : t->n_died + 1 < most ? (t->n_died ? t->n_died + 1 : 2) : most;
        draw_lanes(t, v, f, room - workers - dead);
        draw_workers(t, f, workers);
        draw_dead(t, f, dead);
    }
    while (f->n + 1 > height) free(f->line[--f->n].text);
    while (f->n + 1 < height) add_line(f, TOP_PLAIN, "%s", "");
    add_line(f, TOP_BAR, "%-*s", f->width,
             v->footer
                 ? v->footer
                 : "? help  / filter  s sort  q quit    P pause  R resume  B break lock  D drop");
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *rate_json(double v) { return v < 0 ? json_null() : json_real(v); }

static json_t *workers_json(const struct top *t) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_worker; i++) {
        const struct top_worker *w = &t->worker[i];
        json_array_append_new(
            list, json_pack("{s:i,s:i,s:s,s:I,s:I,s:I,s:I,s:o}", "worker", w->index, "pid", w->pid,
                            "state", w->state, "starts", (json_int_t)w->starts, "waiting",
                            (json_int_t)w->waiting, "in_handler", (json_int_t)w->in_handler,
                            "turned_ms_ago", (json_int_t)w->turned_ms, "done_per_second",
                            rate_json(w->done_rate)));
    }
    return list;
}

static json_t *dead_json(const struct top *t) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_died; i++) {
        const struct top_dead *d = &t->died[i];
        json_array_append_new(
            list, json_pack("{s:s,s:s,s:o,s:o,s:I,s:I}", "id", d->id, "identity", d->identity,
                            "key", json_string(d->key), "reason", json_string(d->reason),
                            "attempts", (json_int_t)d->attempts, "died_ms", (json_int_t)d->at_ms));
    }
    return list;
}

static json_t *span_json(const struct top_fleet *e, int64_t us) {
    return e->on && us >= 0 ? json_integer(us) : json_null();
}

json_t *top_json(const struct top *t) {
    const struct top_fleet *e = &t->fleet;
    json_t *keys = json_array();
    bool about;
    int64_t waiting = top_waiting(t, &about), oldest = top_oldest_ms(t);
    for (size_t i = 0; i < t->n_lane && i < 20; i++)
        json_array_append_new(keys, ops_lane_json(&t->lane[i].l));
    json_t *o = json_pack(
        "{s:s,s:I,s:b,s:b,s:o,s:o,s:o,s:o,s:I,s:b,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o}", "name",
        t->o->c->name, "at_ms", (json_int_t)t->at_ms, "redis", (int)t->up, "supervisor", (int)e->on,
        "in_per_second", rate_json(e->on ? e->in : -1), "out_per_second",
        rate_json(e->on ? e->out : -1), "committed_per_second", rate_json(t->commit_rate), "lag",
        e->on ? json_integer(e->lag) : json_null(), "waiting", (json_int_t)waiting,
        "waiting_is_at_least", (int)about, "oldest_age_ms",
        (json_int_t)(oldest ? t->at_ms - oldest : -1), "lanes", (json_int_t)t->n_lanes, "paused",
        (json_int_t)t->paused, "dead", (json_int_t)t->dead, "workers_ready",
        (json_int_t)(e->on ? e->ready : t->known_workers), "hot_keys", keys, "workers",
        workers_json(t), "failures", dead_json(t));
    json_object_set_new(o, "handler_p50_us", span_json(e, e->handler_p50_us));
    json_object_set_new(o, "handler_p99_us", span_json(e, e->handler_p99_us));
    json_object_set_new(o, "end_to_end_p50_us", span_json(e, e->end_to_end_p50_us));
    json_object_set_new(o, "end_to_end_p99_us", span_json(e, e->end_to_end_p99_us));
    if (!t->up) json_object_set_new(o, "redis_error", json_string(t->why));
    if (!e->on) json_object_set_new(o, "supervisor_error", json_string(e->why));
    return o;
}
