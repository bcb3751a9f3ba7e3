/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin `crash`, for tests of how a worker survives a misbehaving plugin. The payload says
 * what the plugin does: segv, abort, exit, exit0, hang (until cancelled), stuck (ignores the
 * cancellation), child (leaves a process behind, and names it), retry, later:MS (a retry that
 * counts no attempt), dead, back, odd (an unknown outcome), sleep:MS. After any other payload the
 * outcome is done. If a payload starts with "once:", the plugin misbehaves only at attempt 1. */
#include <latchwork/handler.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void nap(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static int act(const char *what, const struct latchwork_message *m, char *reason,
               size_t reason_size) {
    if (strcmp(what, "segv") == 0) raise(SIGSEGV);
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "exit") == 0) exit(3);
    if (strcmp(what, "exit0") == 0) exit(0);
    if (strcmp(what, "odd") == 0) return 77;
    if (strcmp(what, "retry") == 0 || strcmp(what, "dead") == 0) {
        snprintf(reason, reason_size, "the payload says %s", what);
        return what[0] == 'd' ? LATCHWORK_DEAD : LATCHWORK_RETRY;
    }
    if (strncmp(what, "later:", 6) == 0) return latchwork_retry_after(m, atoll(what + 6), 0);
    while (strcmp(what, "stuck") == 0) nap(1000);
    if (strcmp(what, "child") == 0) {
        pid_t pid = fork();
        if (pid == 0)
            for (;;) nap(1000);
        snprintf(reason, reason_size, "%d", (int)pid);
        return LATCHWORK_RETRY;
    }
    if (strcmp(what, "hang") == 0) {
        while (!latchwork_cancelled(m)) nap(2);
        return LATCHWORK_BACK;
    }
    if (strcmp(what, "back") == 0) return LATCHWORK_BACK;
    if (strncmp(what, "sleep:", 6) == 0) nap(strtol(what + 6, NULL, 10));
    return LATCHWORK_DONE;
}

static int handle(void *self, const struct latchwork_message *m, char *reason, size_t reason_size) {
    (void)self;
    char what[64];
    snprintf(what, sizeof what, "%.*s", (int)(m->payload_len < 63 ? m->payload_len : 63),
             m->payload ? (const char *)m->payload : "");
    int once = strncmp(what, "once:", 5) == 0;
    if (once && m->attempt > 1) return LATCHWORK_DONE;
    return act(once ? what + 5 : what, m, reason, reason_size);
}

LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {LATCHWORK_HANDLER_INIT,
                                                                     .handle = handle};
