/* SPDX-License-Identifier: Apache-2.0 */
/* Declares a temporary store for the test of an insert handler: a new SQLite file, or a new schema
 * in the configured PostgreSQL database. The store has the configured tables without their rows. */
#include "cli/handler/private.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char file[] = "store.db";

static int copy_statements(sqlite3 *from, sqlite3 *to, struct lw_err *err) {
    static const char tables[] =
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE "
        "'!'"
        " AND name NOT LIKE 'latchwork!_%' ESCAPE '!' ORDER BY type = 'table' DESC, rowid";
    sqlite3_stmt *st = NULL;
    int r = sqlite3_prepare_v2(from, tables, -1, &st, NULL);
    if (r != SQLITE_OK) return lw_fail(err, "%s", sqlite3_errmsg(from));
    while ((r = sqlite3_step(st)) == SQLITE_ROW)
        if (sqlite3_exec(to, (const char *)sqlite3_column_text(st, 0), NULL, NULL, NULL) !=
            SQLITE_OK)
            break;
    const char *why = r == SQLITE_ROW ? sqlite3_errmsg(to) : sqlite3_errmsg(from);
    if (r != SQLITE_DONE) lw_fail(err, "%s", why);
    sqlite3_finalize(st);
    return r == SQLITE_DONE ? 0 : -1;
}

/* Creates the tables, indexes and triggers of the configured database in the test's database. If
 * the configured database does not exist yet, nothing is created. */
static int copy_tables(const char *from_path, const char *to_path, struct lw_err *err) {
    sqlite3 *from = NULL, *to = NULL;
    struct lw_err why = {0};
    int bad = 0;
    if (sqlite3_open_v2(from_path, &from, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_open_v2(to_path, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
            SQLITE_OK)
        bad = lw_fail(&why, "cannot open: %s", sqlite3_errmsg(to ? to : from));
    else
        bad = copy_statements(from, to, &why);
    sqlite3_close(from);
    sqlite3_close(to);
    return bad ? lw_fail(err, "handler.store: the tables of %s cannot be copied for the test: %s",
                         from_path, why.text)
               : 0;
}

static int open_file(struct handler_scratch *s, const char *path, struct lw_err *err) {
    const char *tmp = getenv("TMPDIR");
    if (!tmp || strlen(tmp) > 200) tmp = "/tmp";
    snprintf(s->folder, sizeof s->folder, "%s/latchwork-handler-XXXXXX", tmp);
    if (!mkdtemp(s->folder)) {
        int e = errno;
        s->folder[0] = '\0';
        return lw_fail(err, "cannot create a folder for the test's store in %s: %s", tmp,
                       strerror(e));
    }
    snprintf(s->store, sizeof s->store, "sqlite:%s/%s", s->folder, file);
    return access(path, F_OK) ? 0 : copy_tables(path, s->store + strlen("sqlite:"), err);
}

int handler_scratch_open(struct handler_scratch *s, const struct lw_config *c, struct lw_err *err) {
    *s = (struct handler_scratch){.folder = ""};
    if (strcmp(c->handler.type, "insert") != 0) return 0;
    const char *store = json_string_value(json_object_get(c->handler.json, "store"));
    bool sqlite = strncmp(store, "sqlite:", 7) == 0;
    int bad = sqlite ? open_file(s, store + 7, err) : handler_scratch_open_schema(s, c, store, err);
    if (bad) handler_scratch_close(s);
    return bad;
}

void handler_scratch_close(struct handler_scratch *s) {
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    handler_scratch_close_schema(s);
    for (size_t i = 0; s->folder[0] && i < sizeof ends / sizeof *ends; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s%s", s->folder, file, ends[i]);
        unlink(path);
    }
    if (s->folder[0]) rmdir(s->folder);
    *s = (struct handler_scratch){.folder = ""};
}
