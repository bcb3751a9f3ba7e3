/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a payload into the values of a row. */
#include "handlers/insert/insert.h"

#include <jansson.h> /* defines JSON_PARSER_MAX_DEPTH */
#include <stdlib.h>

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

int lw_row_read(const struct lw_insert *in, struct lw_reader *reader, bool fit,
                const struct lw_job *job, struct lw_json_value *values, struct lw_err *err) {
    const struct lw_json_rules rules = {.depth_max = JSON_PARSER_MAX_DEPTH, .fit = fit};
    if (!job->payload.p) return lw_fail(err, "no payload to make a row from");
    if (lw_json_scan(job->payload, rules, reader->paths, in->n_columns, values, &reader->scratch,
                     err))
        return -1;
    for (size_t i = 0; i < in->n_columns; i++) {
        const struct lw_column *c = &in->columns[i];
        if (c->primary && (values[i].kind == LW_JSON_NOTHING || values[i].kind == LW_JSON_NULL))
            return lw_fail(err, "primary key column \"%s\": %s at %s", c->name,
                           values[i].kind ? "null" : "nothing", c->pointer);
    }
    return 0;
}
