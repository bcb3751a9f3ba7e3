/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a service manager such as systemd how this process stands, by the protocol of sd_notify(3):
 * datagrams of NAME=VALUE lines to the socket that $NOTIFY_SOCKET names. The protocol is written
 * out here because it takes a few lines, and libsystemd would be one more library. Without that
 * variable nobody listens, and nothing is sent. Only one thread may use a struct lw_notify. */
#ifndef LW_BASE_NOTIFY_H
#define LW_BASE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct lw_notify {
    int fd; /* socket to the manager; -1: nobody listens */
    struct sockaddr_un to;
    socklen_t n_to;
    /* the manager acts if WATCHDOG=1 does not come for this long; 0: the manager does not watch */
    int64_t watchdog_ms;
    bool failing; /* the last message could not be sent, which was logged */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment, so
 * that no child takes them for its own. Logs a warning if the socket cannot be used; `n` is then as
 * if nobody listened. Close it with lw_notify_close(). */
void lw_notify_open(struct lw_notify *n);
/* Sends one message. Waits at most a second for a manager that does not read. Returns false if the
 * message could not be sent, and logs a warning at the first failure in a row; returns true if
 * nobody listens. */
bool lw_notify_send(struct lw_notify *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void lw_notify_close(struct lw_notify *n);

#endif
