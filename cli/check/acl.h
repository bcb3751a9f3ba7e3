/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the ACL rule that gives a Redis user only the rights that Latchwork needs. `check --acl`
 * prints the whole rule. If rights are missing, `check --connect` prints the parts of the rule that
 * give these rights. */
#ifndef LW_CLI_CHECK_ACL_H
#define LW_CLI_CHECK_ACL_H

#include "base/bytes.h"

#include <stdbool.h>

enum { LW_ACL_PATTERN = 96 };

/* Writes the pattern for the key names of an application, without the "~" of an ACL rule. The
 * application's name is copied unchanged, because no character that a name may have is special in a
 * pattern. */
void lw_acl_pattern(const char *name, char out[LW_ACL_PATTERN]);

/* Appends to `out` the rule that allows a command, such as "+get" or "+script|load". `args` has the
 * form of the member `args` in struct lw_redis_right. */
void lw_acl_allow(struct lw_buf *out, const char *command, const char *args);

/* Returns false if an ACL rule cannot or must not name this user. cli/check/acl.c explains why. */
bool lw_acl_may_name(const char *user);

/* Appends the command "ACL SETUSER …" and a line break to `out`. The command replaces all rights of
 * the user and leaves its passwords as they are. `name` is the name of the application; if `name`
 * is NULL, the command is for the user of the lock library. */
void lw_acl_line(struct lw_buf *out, const char *user, const char *name);

#endif
