/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host.h"

#include <ctype.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void lw_host(char out[LW_HOST_MAX]) {
    char name[65] = "?", boot_id[40] = "";
    gethostname(name, sizeof name - 1);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot_id, sizeof boot_id - 1);
        boot_id[n > 0 ? strcspn(boot_id, "\n") : 0] = '\0';
        close(fd);
    }
    snprintf(out, LW_HOST_MAX, "%s/%s", name, boot_id);
}

const char *lw_host_name(char out[LW_HOST_NAME]) {
    memset(out, 0, LW_HOST_NAME);
    /* a name that is too long may be truncated, but `out` stays NUL-terminated */
    if (gethostname(out, LW_HOST_NAME - 1)) out[0] = 0;
    for (char *p = out; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p)) *p = '-';
    return *out ? out : "host";
}

void lw_who(char *out, size_t size) {
    char host[128] = "";
    const struct passwd *p = getpwuid(geteuid());
    gethostname(host, sizeof host - 1);
    snprintf(out, size, "%s@%s", p ? p->pw_name : "?", *host ? host : "?");
}
