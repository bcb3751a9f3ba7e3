/* SPDX-License-Identifier: Apache-2.0 */
/* Declares a temporary store for the test of an insert handler: a new SQLite file, or a new schema
 * in the configured PostgreSQL database. The store has the configured tables without their rows. */
#ifndef LW_CLI_HANDLER_SCRATCH_H
#define LW_CLI_HANDLER_SCRATCH_H

#include "config/config.h"

struct handler_scratch {
    char folder[256];     /* folder of the SQLite file; "": the store is not SQLite */
    struct pg_conn *conn; /* connection to PostgreSQL; NULL: the store is not PostgreSQL */
    char schema[64];
    char store[300]; /* value to use for handler.store; "": the configured value */
    char table[256]; /* value to use for handler.table; "": the configured value */
};

/* Creates the store if the handler is of type insert; otherwise does nothing. Returns -1 with *err
 * on failure. */
int handler_scratch_open(struct handler_scratch *s, const struct lw_config *c, struct lw_err *err);
void handler_scratch_close(struct handler_scratch *s); /* removes the temporary store */

/* scratch_postgres.c defines these functions, which create and remove the schema in PostgreSQL.
 * Only scratch.c calls them. */
int handler_scratch_open_schema(struct handler_scratch *s, const struct lw_config *c,
                                const char *url, struct lw_err *err);
void handler_scratch_close_schema(struct handler_scratch *s);

#endif
