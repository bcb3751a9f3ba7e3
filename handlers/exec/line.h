/* SPDX-License-Identifier: Apache-2.0 */
/* The lines between the worker and an exec handler: one JSON object each
 * (doc/reference/exec-protocol.md). Nothing here does I/O. */
#ifndef LW_HANDLERS_EXEC_LINE_H
#define LW_HANDLERS_EXEC_LINE_H

#include "handlers/handler.h"

/* Appends the request for n jobs of one key, ended by a newline: one object, or {"batch":[…]} if n
 * > 1. `deadline_ms`, in ms since 1970, is when the first job times out; 0: never. The timeouts of
 * the other jobs begin later. */
void lw_exec_request(struct lw_buf *out, struct lw_job *const *jobs, size_t n, int64_t deadline_ms);
/* Appends {"cancel":"id"} and a newline. */
void lw_exec_cancel(struct lw_buf *out, const struct lw_job *job);

struct lw_exec_answer {
    struct lw_bytes id;
    enum lw_outcome outcome;
    struct lw_bytes reason; /* reason of the outcome; p is NULL if the handler gave none */
};

/* What a line of the handler says. The caller initializes the structure with {0}. The texts stay
 * valid until the line is freed or the next line is read. */
struct lw_exec_said {
    int hello; /* the version in {"hello":1}; 0: the line is an answer */
    struct lw_exec_answer *answers;
    size_t n, cap;
    /* if the line is malformed: id of the message that it answers; p is NULL if the id cannot be
     * read */
    struct lw_bytes id;
    json_t *document;
};

/* Reads a line (without its newline). Returns -1 with the reason in `err` if it is malformed; then
 * nothing in it counts, except `id`. */
int lw_exec_read(struct lw_exec_said *said, struct lw_bytes line, struct lw_err *err);
void lw_exec_said_free(struct lw_exec_said *said);
/* Returns the id of the message that an unfinished line seems to answer; p is NULL if it is
 * unknown. */
struct lw_bytes lw_exec_begun(struct lw_bytes line);

#endif
