/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the state of this process to a service manager such as systemd, by the protocol of
 * sd_notify(3): datagrams of NAME=VALUE lines to the socket that $NOTIFY_SOCKET names. If this
 * variable is not set, no manager listens, and nothing is sent. The protocol is implemented here
 * because it takes a few lines, while libsystemd would be one more library. Only one thread may use
 * a struct lw_notify. */
#ifndef LW_BASE_NOTIFY_H
#define LW_BASE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct lw_notify {
    int fd; /* socket to the service manager; -1 if none listens */
    struct sockaddr_un to;
    socklen_t n_to;
    /* time after which the service manager treats this process as hung if it gets no WATCHDOG=1; 0
     * if the manager does not watch this process */
    int64_t watchdog_ms;
    bool failing; /* true if the last message could not be sent and this was already logged */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment, so
 * that no child process uses them. If the socket cannot be used, logs a warning and fills in `n` as
 * if no manager listened. Close `n` with lw_notify_close(). */
void lw_notify_open(struct lw_notify *n);
/* Sends one message to the manager, and waits at most a second for a manager that does not read.
 * Returns false if the message could not be sent, and logs a warning at the first of several
 * failures in a row. Returns true if no manager listens. */
bool lw_notify_send(struct lw_notify *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void lw_notify_close(struct lw_notify *n);

#endif
