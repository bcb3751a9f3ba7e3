/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out from the text of an error reply which right a Redis user lacks.
 *
 * Outside of a script the reply begins with NOPERM and names the command. Inside a script the reply
 * begins with ERR. Redis 7.2 and later name the command in that reply, too. Redis 7.0 only gives
 * the number of the script's line that failed, and the command is looked up in the script's text.
 * No version names the key. */
#ifndef LW_BASE_REDIS_DENIED_H
#define LW_BASE_REDIS_DENIED_H

#include "base/redis/script.h"

#include <stddef.h>

enum lw_denied {
    LW_DENIED_NOTHING, /* the error does not report a missing right */
    LW_DENIED_COMMAND,
    LW_DENIED_KEY,
    LW_DENIED_LOGIN, /* the login is missing or wrong: NOAUTH, WRONGPASS */
};

enum { LW_DENIED_NAMES = 64 };

/* Classifies an error reply. `script` is the script that was called, or NULL. `command` gets the
 * name of the denied command, or of the command whose key was denied. It is "A or B" if several
 * commands are possible, and "" if the command is not known. */
enum lw_denied lw_denied(const char *error, const struct lw_script *script,
                         char command[LW_DENIED_NAMES]);

#endif
