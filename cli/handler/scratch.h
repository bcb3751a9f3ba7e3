/* SPDX-License-Identifier: Apache-2.0 */
/* A store for the test of an insert handler: a SQLite file of its own, or a schema of its own in
 * the configured PostgreSQL. It has the configured tables and none of their rows. */
#ifndef LW_CLI_HANDLER_SCRATCH_H
#define LW_CLI_HANDLER_SCRATCH_H

#include "config/config.h"

struct handler_scratch {
    char folder[256];     /* folder of the SQLite file; "" if there is none */
    struct pg_conn *conn; /* connection to PostgreSQL; NULL if there is none */
    char schema[64];
    char store[300]; /* value to use for handler.store; "": the configured one */
    char table[256]; /* value to use for handler.table; "": the configured one */
};

/* Makes the store if the handler is of type insert; otherwise does nothing. */
int handler_scratch_open(struct handler_scratch *s, const struct lw_config *c, struct lw_err *err);
void handler_scratch_close(struct handler_scratch *s); /* removes the store */

/* The part for PostgreSQL (scratch_postgres.c). Only scratch.c calls it. */
int handler_scratch_open_schema(struct handler_scratch *s, const struct lw_config *c,
                                const char *url, struct lw_err *err);
void handler_scratch_close_schema(struct handler_scratch *s);

#endif
