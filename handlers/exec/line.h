/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that the worker and an exec handler exchange, each of which is a JSON object
 * (doc/reference/exec-protocol.md). The functions of this file do no I/O. */
#ifndef LW_HANDLERS_EXEC_LINE_H
#define LW_HANDLERS_EXEC_LINE_H

#include "handlers/handler.h"
#include "handlers/retry.h"

/* Appends the request for n jobs of one key, ended by a newline: one object, or {"batch":[…]} if
 * n > 1. `deadline_ms`, in ms since 1970, is the time at which the first job times out; 0 means
 * never. The time limit of each later job begins when the job before it is answered. */
void lw_exec_request(struct lw_buf *out, struct lw_job *const *jobs, size_t n, int64_t deadline_ms);
/* Appends {"cancel":"id"} and a newline. */
void lw_exec_cancel(struct lw_buf *out, const struct lw_job *job);

struct lw_exec_answer {
    struct lw_bytes id;
    enum lw_outcome outcome;
    struct lw_bytes reason; /* reason of the outcome; reason.p is NULL if the handler gave none */
    int64_t attempt;        /* the attempt that is answered; 0: the answer does not say it */
    struct lw_retry retry;  /* for the outcome retry: when the message comes back */
    /* The answer names its message, but is malformed. The outcome is a retry, and `reason` says
     * what is wrong. */
    bool malformed;
};

/* The content of a line that a handler wrote. The caller initializes the structure with {0}. The
 * texts stay valid until the structure is freed or the next line is read into it. */
struct lw_exec_said {
    int hello; /* the version in {"hello":1}; 0: the line is an answer */
    struct lw_exec_answer *answers;
    size_t n, cap;
    json_t *document, *faults; /* `faults` holds the reasons of malformed answers */
    struct lw_buf mended;      /* the line, where characters had to be replaced */
};

/* Reads a line (without its newline). A malformed answer that names its message costs only this
 * message: it is among the answers. Halves of surrogate pairs and bytes that are not UTF-8 are
 * replaced, because they do no harm in a reason. Returns -1 with the reason in `err` if the line,
 * or a member of its batch, names no message; the other answers of the batch are valid. */
int lw_exec_read(struct lw_exec_said *said, struct lw_bytes line, struct lw_err *err);
void lw_exec_said_free(struct lw_exec_said *said);
/* Returns the id of the message that an incomplete line seems to answer. If the id is unknown, p of
 * the returned struct is NULL. */
struct lw_bytes lw_exec_begun(struct lw_bytes line);

#endif
