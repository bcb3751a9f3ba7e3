/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/denied.h"

#include "base/bytes.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum lw_denied what(const char *error) {
    static const char *const within[] = {"ERR ACL failure in script", "NOPERM",
                                         "ERR The user executing the script can't"};
    if (lw_begins(error, "NOAUTH") || lw_begins(error, "WRONGPASS")) return LW_DENIED_LOGIN;
    for (size_t i = 0; i < sizeof within / sizeof *within; i++)
        if (lw_begins(error, within[i]))
            return strstr(error, " access ") ? LW_DENIED_KEY : LW_DENIED_COMMAND;
    return LW_DENIED_NOTHING;
}

static void add_name(char *out, const char *name, size_t n) {
    size_t has = strlen(out);
    if (has + n + sizeof " or " > LW_DENIED_NAMES) return;
    snprintf(out + has, LW_DENIED_NAMES - has, "%s%.*s", has ? " or " : "", (int)n, name);
}

/* Reads the command from an error like "… run the 'zadd' command …". */
static bool quoted(const char *error, char *out) {
    const char *at = strstr(error, " run the '");
    if (!at) return false;
    at += strlen(" run the '");
    add_name(out, at, strcspn(at, "'"));
    for (char *c = out; *c; c++) *c = *c == '|' ? ' ' : (char)toupper((unsigned char)*c);
    return true;
}

/* Reads the command from an error like "… in LPUSH script: …". The function pcall_ of
 * queue/lua/parts/epoch.lua raises such errors. */
static bool caught(const char *error, char *out) {
    const char *end = NULL, *at = error;
    /* take the last match, because the error's own text may contain " script: " too */
    while ((at = strstr(at, " script: "))) end = at++;
    at = end;
    while (at && at > error && isupper((unsigned char)at[-1])) at--;
    if (!at || at == end || at - error < 4 || strncmp(at - 4, " in ", 4) != 0) return false;
    add_name(out, at, (size_t)(end - at));
    return true;
}

/* Adds the commands that one line of the script calls. For example, it adds ZADD if the line
 * contains "call('ZADD', lanes". */
static void in_line(const char *text, long line, char *out) {
    while (text && --line > 0) text = (text = strchr(text, '\n')) ? text + 1 : NULL;
    for (size_t end = text ? strcspn(text, "\n") : 0, i = 0; i < end; i++) {
        size_t n = 0;
        while (isupper((unsigned char)text[i + 1 + n])) n++;
        if (i && text[i - 1] == '(' && text[i] == '\'' && n >= 3 && text[i + 1 + n] == '\'')
            add_name(out, text + i + 1, n);
    }
}

enum lw_denied lw_denied(const char *error, const struct lw_script *script,
                         char command[LW_DENIED_NAMES]) {
    enum lw_denied denied = what(error);
    command[0] = '\0';
    if (denied == LW_DENIED_NOTHING || denied == LW_DENIED_LOGIN || quoted(error, command) ||
        caught(error, command))
        return denied;
    const char *line = strstr(error, "@user_script:");
    if (line && script)
        in_line(script->text, strtol(line + strlen("@user_script:"), NULL, 10), command);
    return denied;
}
