/* SPDX-License-Identifier: Apache-2.0 */
#include "base/notify.h"

#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { MESSAGE_MAX = 1024 };

/* Reads the address in $NOTIFY_SOCKET, which is an absolute path, or a name that begins with @ and
 * stands for a name in the abstract namespace. */
static bool take_address(struct lw_notify *n, const char *name) {
    size_t size = strlen(name);
    bool abstract = name[0] == '@';
    if (!name[1] || (name[0] != '/' && !abstract) || size >= sizeof n->to.sun_path) {
        lw_warn("service manager: NOTIFY_SOCKET is \"%.200s\", expected an absolute path or @NAME "
                "of at most %zu bytes; it is not notified",
                name, sizeof n->to.sun_path - 1);
        return false;
    }
    n->to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(n->to.sun_path, name, size);
    if (abstract) n->to.sun_path[0] = '\0';
    n->n_to = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (abstract ? 0 : 1));
    return true;
}

/* Returns the interval within which the watchdog of the service manager expects a message, or 0 if
 * there is no watchdog or if it watches another process. */
static int64_t watchdog_ms(void) {
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!us || (pid && strtoll(pid, NULL, 10) != getpid())) return 0;
    long long ms = strtoll(us, NULL, 10) / 1000;
    return ms > 0 ? ms : 0;
}

void lw_notify_open(struct lw_notify *n) {
    const char *name = getenv("NOTIFY_SOCKET");
    *n = (struct lw_notify){.fd = -1};
    if (name && *name && take_address(n, name)) {
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct timeval limit = {.tv_sec = 1};
        if (n->fd == -1)
            lw_warn("service manager: can't open a socket: %s; systemd is not notified",
                    strerror(errno));
        else if (setsockopt(n->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == -1)
            lw_warn("service manager: can't limit sending to 1 s: %s; it may block",
                    strerror(errno));
        n->watchdog_ms = watchdog_ms();
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

bool lw_notify_send(struct lw_notify *n, const char *fmt, ...) {
    char text[MESSAGE_MAX];
    va_list args;
    if (n->fd == -1) return true;
    va_start(args, fmt);
    int size = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (size < 0) return false;
    if (size >= (int)sizeof text) size = (int)sizeof text - 1;
    bool sent =
        sendto(n->fd, text, (size_t)size, MSG_NOSIGNAL, (struct sockaddr *)&n->to, n->n_to) == size;
    if (!sent && !n->failing)
        lw_warn("service manager: can't tell it the state of the run: %s; retrying",
                strerror(errno));
    n->failing = !sent;
    return sent;
}

void lw_notify_close(struct lw_notify *n) {
    if (n->fd != -1) close(n->fd);
    n->fd = -1;
}
