/* SPDX-License-Identifier: Apache-2.0 */
#include "base/who.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

void lw_who(char *out, size_t size) {
    char host[128] = "";
    const struct passwd *p = getpwuid(geteuid());
    gethostname(host, sizeof host - 1);
    snprintf(out, size, "%s@%s", p ? p->pw_name : "?", *host ? host : "?");
}
