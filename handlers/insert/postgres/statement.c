/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the statement, which is built once. For a table orders(id, amount) and on_conflict
 * "ignore" it is:
 *
 *     WITH t AS MATERIALIZED (SELECT set_config('lock_timeout', $2, true)),  -- until commit
 *     j AS (the messages, and whether each is known or stale, as far as this snapshot shows),
 *     w AS (j, and whether each may be written: `open`),
 *     f AS (INSERT INTO latchwork_fences … RETURNING the keys whose fence was accepted),
 *     s AS (INSERT INTO latchwork_seen the messages of these keys … RETURNING the new messages),
 *     d AS (the messages to be written),
 *     r AS (INSERT INTO orders …),
 *     c AS (INSERT INTO latchwork_count …)
 *     SELECT one letter per message, number of rows written
 *
 * Subqueries that return a single row find out whether a message is known. PostgreSQL runs them
 * once per message through the index. With a join instead, a planner with old statistics might read
 * the whole table. */
#include "handlers/insert/postgres/postgres.h"

#include <stdio.h>

/* Appends the quoted names of the columns of the primary key, each after the text `before`. */
static void add_key_names(struct lw_buf *sql, const struct lw_insert *in, const char *before) {
    const char *comma = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (!in->columns[i].primary) continue;
        lw_buf_addf(sql, "%s%s", comma, before);
        lw_pg_quote(sql, in->columns[i].name);
        comma = ", ";
    }
}

static void add_cast(struct lw_buf *sql, const struct lw_pg_column *c) {
    if (lw_pg_casts(c->form)) lw_buf_addf(sql, "::%s", c->type);
}

/* Appends the values of the primary key (c0, c1, …) with the casts that they need. */
static void add_key(struct lw_buf *sql, const struct lw_insert *in, const struct lw_pg_table *t) {
    const char *comma = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (!in->columns[i].primary) continue;
        lw_buf_addf(sql, "%sc%zu", comma, i);
        add_cast(sql, &t->columns[i]);
        comma = ", ";
    }
}

static void add_messages(struct lw_buf *sql, const struct lw_insert *in,
                         const struct lw_pg_table *t) {
    static const char *const types[] = {"bytea",  "bigint", "text",   "integer",
                                        "bigint", "bigint", "boolean"};
    lw_buf_addf(sql, " FROM t, ROWS FROM (");
    for (int i = LW_PG_P_KEYS; i < LW_PG_P_COLUMNS; i++)
        lw_buf_addf(sql, "%sunnest($%d::%s[])", i > LW_PG_P_KEYS ? ", " : "", i + 1,
                    types[i - LW_PG_P_KEYS]);
    for (size_t i = 0; i < in->n_columns; i++)
        lw_buf_addf(sql, ", unnest($%zu::%s[])", LW_PG_P_COLUMNS + i + 1,
                    lw_pg_casts(t->columns[i].form) ? "text" : t->columns[i].type);
    lw_buf_addf(sql,
                ") WITH ORDINALITY AS u(key, fence, topic, partition, \"offset\", replay, bad");
    for (size_t i = 0; i < in->n_columns; i++) lw_buf_addf(sql, ", c%zu", i);
    lw_buf_addf(sql, ", n)");
}

/* Appends the part of a query that finds the row with the message's primary key, as `o`. */
static void add_same_row(struct lw_buf *sql, const struct lw_insert *in,
                         const struct lw_pg_table *t) {
    lw_buf_addf(sql, " FROM %s AS o WHERE ROW(", t->name);
    add_key_names(sql, in, "o.");
    lw_buf_addf(sql, ") = ROW(");
    add_key(sql, in, t);
    lw_buf_addf(sql, ")");
}

/* Appends the column `there`: true if the table has a row with the message's primary key. */
static void add_there(struct lw_buf *sql, const struct lw_insert *in, const struct lw_pg_table *t) {
    lw_buf_addf(sql, ", coalesce((SELECT true");
    add_same_row(sql, in, t);
    lw_buf_addf(sql, " LIMIT 1), false) AS there");
}

/* Appends the queries j and w (see the top of this file). With on_conflict "dead" they also ask
 * whether the primary key exists already, in the table or in an earlier message of the
 * statement. */
static void add_questions(struct lw_buf *sql, const struct lw_insert *in,
                          const struct lw_pg_table *t) {
    lw_buf_addf(sql,
                "WITH t AS MATERIALIZED (SELECT set_config('lock_timeout', $%d, true)), j AS "
                "MATERIALIZED (SELECT u.*"
                ", coalesce((SELECT true FROM latchwork_seen AS o WHERE o.app = $1 AND o.topic = "
                "u.topic AND o.partition = u.partition"
                " AND o.\"offset\" = u.\"offset\" AND o.replay = u.replay), false) AS known"
                ", coalesce((SELECT o.fence > u.fence FROM latchwork_fences AS o WHERE o.hash = "
                "u.key), false) AS stale",
                LW_PG_P_LOCK_MS + 1);
    if (in->on_conflict == LW_CONFLICT_DEAD) add_there(sql, in, t);
    add_messages(sql, in, t);
    if (in->on_conflict == LW_CONFLICT_DEAD) {
        lw_buf_addf(sql, "), v AS MATERIALIZED (SELECT *, there OR n > min(n) FILTER (WHERE NOT "
                         "(known OR stale OR bad OR there))"
                         " OVER (PARTITION BY ");
        add_key(sql, in, t);
        lw_buf_addf(sql, ") AS twice FROM j), w AS MATERIALIZED (SELECT *, NOT (known OR stale OR "
                         "bad OR coalesce(twice, true)) AS open FROM v)");
    } else {
        lw_buf_addf(sql, "), w AS MATERIALIZED (SELECT *, false AS twice, NOT (known OR stale OR "
                         "bad) AS open FROM j)");
    }
}

/* Appends the queries f and s, which write fences and identities, and d, which selects the messages
 * whose rows are to be written. */
static void add_marks(struct lw_buf *sql) {
    lw_buf_addf(
        sql, ", f AS (INSERT INTO latchwork_fences AS o (hash, fence) SELECT key, fence FROM w "
             "WHERE open ORDER BY key"
             " ON CONFLICT (hash) DO UPDATE SET fence = excluded.fence WHERE o.fence <= "
             "excluded.fence RETURNING o.hash AS key)"
             ", s AS (INSERT INTO latchwork_seen (app, topic, partition, \"offset\", replay, fence)"
             " SELECT $1, topic, partition, \"offset\", replay, fence FROM w JOIN f USING (key) "
             "ORDER BY 2, 3, 4, 5"
             " ON CONFLICT DO NOTHING RETURNING topic, partition, \"offset\", replay)"
             ", d AS MATERIALIZED (SELECT w.* FROM w JOIN s USING (topic, partition, \"offset\", "
             "replay))");
}

static void add_conflict(struct lw_buf *sql, const struct lw_insert *in,
                         const struct lw_column_set *absent) {
    if (in->on_conflict == LW_CONFLICT_DEAD) return;
    if (in->on_conflict == LW_CONFLICT_IGNORE) {
        lw_buf_addf(sql, " ON CONFLICT DO NOTHING");
        return;
    }
    lw_buf_addf(sql, " ON CONFLICT (");
    add_key_names(sql, in, "");
    const char *before = ") DO UPDATE SET ";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (in->columns[i].primary) continue;
        if (lw_in_set(absent, i) && in->missing == LW_MISSING_KEEP) continue;
        lw_buf_addf(sql, "%s", before);
        lw_pg_quote(sql, in->columns[i].name);
        lw_buf_addf(sql, " = excluded."); /* of an absent column, this is the default */
        lw_pg_quote(sql, in->columns[i].name);
        before = ", ";
    }
    /* If every column belongs to the primary key or is absent, no column is left to update. */
    if (before[0] == ')') lw_buf_addf(sql, ") DO NOTHING");
}

/* Appends the value that an absent column has in the row that is there already, or NULL. PostgreSQL
 * refuses a new row without a required column before it looks whether the row is there. */
static void add_kept(struct lw_buf *sql, const struct lw_insert *in, const struct lw_pg_table *t,
                     size_t column) {
    lw_buf_addf(sql, "(SELECT o.");
    lw_pg_quote(sql, in->columns[column].name);
    add_same_row(sql, in, t);
    lw_buf_addf(sql, ")");
}

/* Appends the names of the columns that are written, or their values. */
static void add_written(struct lw_buf *sql, const struct lw_insert *in, const struct lw_pg_table *t,
                        const struct lw_column_set *absent, bool values) {
    bool keep = in->on_conflict == LW_CONFLICT_UPDATE && in->missing == LW_MISSING_KEEP;
    const char *comma = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        bool gone = lw_in_set(absent, i);
        if (gone && !(keep && t->columns[i].required)) continue;
        lw_buf_addf(sql, "%s", comma);
        comma = ", ";
        if (!values) {
            lw_pg_quote(sql, in->columns[i].name);
        } else if (gone) {
            add_kept(sql, in, t, i);
        } else {
            lw_buf_addf(sql, "c%zu", i);
            add_cast(sql, &t->columns[i]);
        }
    }
}

/* Appends the query named r, which writes the rows. One statement cannot update a row twice. So if
 * on_conflict is "update" and several messages have the same row, r writes only the last of these
 * messages. */
static void add_rows(struct lw_buf *sql, const struct lw_insert *in, const struct lw_pg_table *t,
                     const struct lw_column_set *absent) {
    bool update = in->on_conflict == LW_CONFLICT_UPDATE;
    lw_buf_addf(sql, ", r AS (INSERT INTO %s (", t->name);
    add_written(sql, in, t, absent, false);
    lw_buf_addf(sql, ") SELECT ");
    if (update) {
        lw_buf_addf(sql, "DISTINCT ON (");
        add_key(sql, in, t);
        lw_buf_addf(sql, ") ");
    }
    add_written(sql, in, t, absent, true);
    lw_buf_addf(sql, " FROM d ORDER BY ");
    add_key(sql, in, t);
    if (update) lw_buf_addf(sql, ", n DESC");
    add_conflict(sql, in, absent);
    lw_buf_addf(sql, " RETURNING 1)");
}

/* Appends the query named c, which adds to the counts in the table latchwork_count. With
 * on_conflict "update" every message is counted, even if a later message of the same statement
 * replaces its row. */
static void add_counts(struct lw_buf *sql, const struct lw_insert *in) {
    static const char written[] = "(SELECT count(*) FROM r)",
                      messages[] = "(SELECT count(*) FROM d)";
    lw_buf_addf(sql,
                ", c AS (INSERT INTO latchwork_count AS o (app, name, part, n) SELECT $1, x.name, "
                "$%d::integer, x.n FROM (",
                LW_PG_P_PART + 1);
    if (in->on_conflict == LW_CONFLICT_UPDATE)
        lw_buf_addf(sql, "SELECT 'updated', %s", messages);
    else
        lw_buf_addf(sql, "SELECT 'ignored', %s - %s UNION ALL SELECT 'inserted', %s", messages,
                    written, written);
    lw_buf_addf(sql, ") AS x(name, n) WHERE x.n > 0 ORDER BY x.name"
                     " ON CONFLICT (app, name, part) DO UPDATE SET n = o.n + excluded.n)");
}

char *lw_pg_statement(const struct lw_insert *in, const struct lw_pg_table *t,
                      const struct lw_column_set *absent) {
    struct lw_buf sql = {0};
    add_questions(&sql, in, t);
    add_marks(&sql);
    add_rows(&sql, in, t, absent);
    add_counts(&sql, in);
    lw_buf_addf(
        &sql,
        " SELECT string_agg(CASE WHEN w.known THEN 'k' WHEN w.stale THEN 's' WHEN w.bad THEN 'b' "
        "WHEN NOT w.open THEN 'd'"
        " WHEN d.n IS NOT NULL THEN 'w' WHEN f.key IS NOT NULL THEN 'k' ELSE 's' END, '' ORDER BY "
        "w.n),"
        " (SELECT count(*) FROM r) FROM w LEFT JOIN f ON f.key = w.key LEFT JOIN d ON d.n = w.n");
    char *text = lw_memdup(sql.p, sql.n);
    lw_buf_free(&sql);
    return text;
}
