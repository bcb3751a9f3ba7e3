/* SPDX-License-Identifier: Apache-2.0 */
/* The ACL rule of a Redis user with the least rights, as `check --acl` prints it and the messages of `check --connect` quote it. */
#ifndef LW_CLI_CHECK_ACL_H
#define LW_CLI_CHECK_ACL_H

#include "base/bytes.h"

#include <stdbool.h>

enum { LW_ACL_PATTERN = 96 };

/* The pattern of the key names of an application, without the "~". A name has no characters that a pattern would read as others. */
void lw_acl_pattern(const char *name, char out[LW_ACL_PATTERN]);

/* The rule that allows a command: "+get", "+script|load". `args` is that of struct lw_redis_right. */
void lw_acl_allow(struct lw_buf *out, const char *command, const char *args);

/* False if a rule could not name this user, or must not: see cli/check/acl.c. */
bool lw_acl_may_name(const char *user);

/* "ACL SETUSER …" and a line break. It replaces all rights of the user and leaves its passwords as they are. `name`: of the
 * application; NULL: the user of the lock library. */
void lw_acl_line(struct lw_buf *out, const char *user, const char *name);

#endif
