/* SPDX-License-Identifier: Apache-2.0 */
/* What a Redis user lacks, out of the words of an error reply.
 *
 * Outside of a script the reply begins with NOPERM and names the command. Within a script it begins with ERR. From 7.2 on it names the
 * command; 7.0 does not, but it says the line of the script, and the command stands there. No version names the key. */
#ifndef LW_BASE_REDIS_DENIED_H
#define LW_BASE_REDIS_DENIED_H

#include "base/redis/script.h"

#include <stddef.h>

enum lw_denied {
    LW_DENIED_NOTHING, /* another error */
    LW_DENIED_COMMAND,
    LW_DENIED_KEY,
    LW_DENIED_LOGIN, /* NOAUTH, WRONGPASS */
};

enum { LW_DENIED_NAMES = 64 };

/* `script`: that was called; NULL: none. `command` is the command that was denied, or whose key was; "A or B" if it is one of several; ""
 * if it is not known. */
enum lw_denied lw_denied(const char *error, const struct lw_script *script, char command[LW_DENIED_NAMES]);

#endif
