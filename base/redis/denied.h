/* SPDX-License-Identifier: Apache-2.0 */
/* Tells which right a Redis user lacks, from the text of an error reply.
 *
 * Outside of a script the reply begins with NOPERM and names the command. Inside a script it begins
 * with ERR. Redis 7.2 and later name the command in that reply. Redis 7.0 names only the line of
 * the script, and the command is found in that line. No version names the key. */
#ifndef LW_BASE_REDIS_DENIED_H
#define LW_BASE_REDIS_DENIED_H

#include "base/redis/script.h"

#include <stddef.h>

enum lw_denied {
    LW_DENIED_NOTHING, /* the error is no denial */
    LW_DENIED_COMMAND,
    LW_DENIED_KEY,
    LW_DENIED_LOGIN, /* the login is missing or wrong: NOAUTH, WRONGPASS */
};

enum { LW_DENIED_NAMES = 64 };

/* `script` is the script that was called, or NULL. `command` gets the command that was denied, or
 * that has a denied key: "A or B" if it is one of several, "" if it is not known. */
enum lw_denied lw_denied(const char *error, const struct lw_script *script,
                         char command[LW_DENIED_NAMES]);

#endif
