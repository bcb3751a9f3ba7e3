/* SPDX-License-Identifier: Apache-2.0 */
/* What an error of PostgreSQL means for the messages of the statement. */
#include "handlers/insert/postgres/postgres.h"

struct meaning {
    const char *prefix; /* first characters of the SQLSTATE */
    enum lw_pg_class class;
};

/* Meanings of SQLSTATEs. The first prefix that matches decides. */
static const struct meaning meanings[] = {
    {"22", LW_PG_ROW}, /* data exception: a value that does not fit the type */
    {"23", LW_PG_ROW}, /* violation of an integrity constraint */
    {"44", LW_PG_ROW}, /* violation of a view's WITH CHECK OPTION */
    {"54", LW_PG_ROW}, /* program limit exceeded, for example by an index row that is too large */
    {"P0", LW_PG_ROW}, /* error raised by a trigger with RAISE */
    {"38", LW_PG_ROW}, /* error inside a function in another language, such as a trigger */
    {"39", LW_PG_ROW}, /* error in the call of a function in another language */
    {"40001", LW_PG_AGAIN}, /* serialization failure */
    {"40P01", LW_PG_AGAIN}, /* deadlock between two transactions */
    {"55P03", LW_PG_BUSY},  /* lock not available */
    /* query canceled: by the role's statement_timeout, or by hand; maybe only this row is slow */
    {"57014", LW_PG_UNKNOWN},
    {"08", LW_PG_AWAY},    /* connection exceptions, and PgBouncer's own errors */
    {"25006", LW_PG_AWAY}, /* the server is a standby, which is read-only */
    {"57", LW_PG_AWAY},    /* operator intervention: shutdown, crash recovery, startup */
    {"53", LW_PG_AWAY},    /* insufficient resources: disk full, too many connections */
    {"58", LW_PG_AWAY},    /* system error, such as an I/O error */
    {"28", LW_PG_AWAY},    /* wrong password or missing role */
    {"3D", LW_PG_AWAY},    /* missing database */
    {"3F", LW_PG_AWAY},    /* missing schema */
    /* The rest is LW_PG_UNKNOWN, and so is class 42: a missing table or a revoked right concerns
     * all messages, and a policy for rows (42501) only some. */
};

enum lw_pg_class lw_pg_class_of(const char *state, bool in_function, bool raised) {
    /* If a name or right is missing inside a function or trigger, the row is at fault, because the
     * function or trigger may work for other rows. */
    if (in_function && strncmp(state, "42", 2) == 0) return LW_PG_ROW;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        enum lw_pg_class class = meanings[i].class;
        if (strncmp(state, meanings[i].prefix, strlen(meanings[i].prefix)) != 0) continue;
        /* A trigger may raise any SQLSTATE for a row that it does not like. A real deadlock or lock
         * timeout inside a trigger keeps its meaning. */
        return raised && class != LW_PG_ROW ? LW_PG_UNKNOWN : class;
    }
    return LW_PG_UNKNOWN;
}
