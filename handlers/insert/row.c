/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a payload into the values of a row. */
#include "handlers/insert/insert.h"

#include <jansson.h> /* defines JSON_PARSER_MAX_DEPTH */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* --- times ------------------------------------------------------------------------------------ */

/* The first and the last second of the years 1 and 9999 */
static const int64_t first_s = -62135596800, last_s = 253402300799;

/* Sets *us to the time in µs that a number stands for. Returns false if it is no number, or a time
 * outside the years 1 to 9999. */
static bool read_time(enum lw_as as, const struct lw_json_value *v, int64_t *us) {
    int64_t per = as == LW_AS_EPOCH_S ? 1000000 : as == LW_AS_EPOCH_MS ? 1000 : 1, integer;
    double real;
    if (v->kind == LW_JSON_INTEGER) {
        if (!lw_json_integer(v->raw, &integer)) return false;
        int64_t s = integer / (1000000 / per);
        if (s < first_s || s > last_s) return false;
        *us = integer * per;
        return *us >= first_s * 1000000;
    }
    if (v->kind != LW_JSON_REAL || !lw_json_real(v->raw, &real)) return false;
    real = round(real * (double)per);
    if (real < (double)first_s * 1e6 || real >= (double)(last_s + 1) * 1e6) return false;
    *us = (int64_t)real;
    return true;
}

struct lw_json_value lw_row_value(const struct lw_column *c, const struct lw_json_value *v,
                                  char text[LW_TIME_TEXT]) {
    int64_t us;
    struct tm tm;
    if (c->as == LW_AS_IS || !read_time(c->as, v, &us)) return *v;
    int64_t rest = (us % 1000000 + 1000000) % 1000000;
    time_t s = (time_t)((us - rest) / 1000000);
    gmtime_r(&s, &tm);
    int n = snprintf(text, LW_TIME_TEXT, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
                     (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
                     (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100,
                     (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100, (unsigned)rest);
    return (struct lw_json_value){.kind = LW_JSON_STRING, .raw = lw_bytes(text, (size_t)n)};
}

/* --- rows ------------------------------------------------------------------------------------- */

void lw_reader_init(struct lw_reader *r, const struct lw_insert *in) {
    *r = (struct lw_reader){.paths = lw_alloc(in->n_columns * sizeof *r->paths)};
    for (size_t i = 0; i < in->n_columns; i++)
        lw_json_path_init(&r->paths[i], in->columns[i].pointer);
}

void lw_reader_free(struct lw_reader *r) {
    free(r->paths);
    lw_buf_free(&r->scratch);
    *r = (struct lw_reader){0};
}

static int check_value(const struct lw_column *c, const struct lw_json_value *v,
                       struct lw_err *err) {
    static const char *const units[] = {"", "s", "ms", "µs"};
    bool none = v->kind == LW_JSON_NOTHING || v->kind == LW_JSON_NULL;
    int64_t us;
    if (c->primary && none)
        return lw_fail(err, "primary key column \"%s\": %s at %s", c->name,
                       v->kind ? "null" : "nothing", c->pointer);
    if (c->as != LW_AS_IS && !none && !read_time(c->as, v, &us))
        return lw_fail(err,
                       "column \"%s\": no time in %s since 1970 at %s; it must be a number, in the "
                       "years 1 to 9999",
                       c->name, units[c->as], c->pointer);
    return 0;
}

int lw_row_read(const struct lw_insert *in, struct lw_reader *reader, const struct lw_job *job,
                struct lw_json_value *values, struct lw_column_set *absent, struct lw_err *err) {
    const struct lw_json_rules rules = {.depth_max = JSON_PARSER_MAX_DEPTH};
    *absent = (struct lw_column_set){0};
    if (!job->payload.p) return lw_fail(err, "the message has no payload, so there is no row");
    if (lw_json_scan(job->payload, rules, reader->paths, in->n_columns, values, &reader->scratch,
                     err))
        return -1;
    for (size_t i = 0; i < in->n_columns; i++) {
        if (check_value(&in->columns[i], &values[i], err)) {
            *absent = (struct lw_column_set){0};
            return -1;
        }
        if (values[i].kind == LW_JSON_NOTHING && in->missing != LW_MISSING_NULL)
            lw_set_add(absent, i);
    }
    return 0;
}
