/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Closes every descriptor but `keep`, so that the warden holds none of the worker's sockets
 * open. */
static void close_all_but(int keep) {
    if (keep > 0) close_range(0, (unsigned)keep - 1, 0);
    close_range((unsigned)keep + 1, ~0U, 0);
}

/* The warden's main loop. It runs in a fork of a process with several threads, so it may call only
 * async-signal-safe functions. */
static _Noreturn void watch(int fd, _Atomic pid_t *groups, int n) {
    setsid();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "lw-warden");
    close_all_but(fd);
    char c;
    ssize_t r;
    do r = read(fd, &c, 1);
    while (r > 0 || (r < 0 && errno == EINTR));
    for (int i = 0; i < n; i++) {
        pid_t g = atomic_load(&groups[i]);
        if (g > 1) kill(-g, SIGKILL);
    }
    _exit(0);
}

int lw_warden_open(struct lw_warden *w, int seats, struct lw_err *err) {
    *w = (struct lw_warden){.pipe = -1, .n = seats};
    size_t size = (size_t)seats * sizeof *w->groups;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return lw_fail(err, "exec: shared memory: %s", strerror(errno));
    w->groups = shared;
    int p[2];
    if (pipe2(p, O_CLOEXEC)) {
        lw_fail(err, "exec: pipe: %s", strerror(errno));
        munmap(shared, size);
        return -1;
    }
    w->pid = fork();
    if (w->pid == 0) watch(p[0], w->groups, seats);
    int e = errno;
    close(p[0]);
    w->pipe = p[1];
    if (w->pid > 0) return 0;
    close(p[1]);
    munmap(shared, size);
    return lw_fail(err, "exec: cannot start the warden: %s", strerror(e));
}

void lw_warden_close(struct lw_warden *w) {
    if (w->pid <= 0) return;
    close(w->pipe);
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) {}
    munmap(w->groups, (size_t)w->n * sizeof *w->groups);
    *w = (struct lw_warden){.pipe = -1};
}
