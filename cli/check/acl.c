/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check/acl.h"

#include "cli/check/redis_rights.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Writes a pattern for the key names of all shards of the application, which begin with
 * "lw:{NAME.SHARD}:". In the pattern, the dot must be followed by a digit, so the pattern for
 * "orders" does not match the keys of "orders.eu". */
void lw_acl_pattern(const char *name, char out[LW_ACL_PATTERN]) {
    snprintf(out, LW_ACL_PATTERN, "lw:{%s.[0-9]*}:*", name);
}

static void add_lower(struct lw_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = (char)tolower((unsigned char)text[i]);
        lw_buf_add(out, &c, 1);
    }
}

/* Returns true if a command has subcommands. An ACL rule can allow some subcommands of such a
 * command and refuse the others, for example allow SCRIPT LOAD but not SCRIPT FLUSH. */
static bool has_subcommands(const char *command) {
    static const char *const names[] = {"SCRIPT", "CLIENT", "CLUSTER", "CONFIG", "ACL"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(command, names[i]) == 0) return true;
    return false;
}

void lw_acl_allow(struct lw_buf *out, const char *command, const char *args) {
    lw_buf_add(out, "+", 1);
    add_lower(out, command, strlen(command));
    if (!has_subcommands(command)) return;
    lw_buf_add(out, "|", 1);
    add_lower(out, args, strcspn(args, " "));
}

/* Returns true if the ACL rule may name this user. redis-cli splits the line at spaces and
 * interprets quotes and backslashes, so a name with such characters is refused. The user "default"
 * is refused, because most servers are administered by this user, and the rule would leave the user
 * only the rights of Latchwork. */
bool lw_acl_may_name(const char *user) {
    if (!*user || strcmp(user, "default") == 0) return false;
    for (const char *c = user; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("\"'\\", *c)) return false;
    return true;
}

static void add_commands(struct lw_buf *out, int roles) {
    for (size_t i = 0; i < lw_n_redis_rights; i++) {
        const struct lw_redis_right *r = &lw_redis_rights[i];
        /* AUTH is left out, because every user may call AUTH */
        if (!(r->roles & roles) || strcmp(r->command, "AUTH") == 0) continue;
        lw_buf_add(out, " ", 1);
        lw_acl_allow(out, r->command, r->args);
    }
}

void lw_acl_line(struct lw_buf *out, const char *user, const char *name) {
    char pattern[LW_ACL_PATTERN] = "lwl:* &lwl:*";
    if (name) lw_acl_pattern(name, pattern);
    lw_buf_addf(out, "ACL SETUSER %s on clearselectors resetkeys resetchannels -@all ~%s", user,
                pattern);
    add_commands(out, name ? LW_RIGHT_LANES : LW_RIGHT_LOCK);
    lw_buf_add(out, "\n", 1);
}
