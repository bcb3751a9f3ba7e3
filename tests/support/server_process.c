/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/server_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOG_TAIL = 4096, OPEN_MAX = 8 };

bool lw_test_dir_make(char dir[LW_TEST_DIR], const char *name) {
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(dir, LW_TEST_DIR, "%s/lw-%s-XXXXXX", tmp && *tmp ? tmp : "/tmp", name);
    bool fits = n > 0 && n <= LW_TEST_DIR - LW_TEST_SOCKET_NAME;
    if (fits && mkdtemp(dir)) return true;
    fprintf(stderr, "%s: %s\n", dir,
            fits ? strerror(errno) : "TMPDIR is too long for a socket's path; set a shorter one");
    dir[0] = '\0';
    return false;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void lw_test_dir_remove(const char *dir) {
    if (dir[0] && nftw(dir, remove_one, OPEN_MAX, FTW_DEPTH | FTW_PHYS))
        fprintf(stderr, "%s is left: %s\n", dir, strerror(errno));
}

void lw_test_log_show(const char *dir, const char *log) {
    char path[LW_TEST_DIR + 64], tail[LOG_TAIL];
    snprintf(path, sizeof path, "%s/%s", dir, log);
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (fseek(f, -(long)sizeof tail, SEEK_END) != 0) rewind(f);
    size_t n = fread(tail, 1, sizeof tail, f);
    fwrite(tail, 1, n, stderr);
    fclose(f);
}

void lw_test_exec(pid_t parent, int sig, const char *program, char *const *argv) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, sig);
    /* Exit if the parent died before the call of prctl(), because the kernel then does not send the
     * signal `sig`. */
    if (getppid() != parent) _exit(127);
    execvp(program, argv);
    fprintf(stderr, "%s: cannot be run: %s\n", program, strerror(errno));
    _exit(127);
}

int lw_test_bound(int *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) ||
        getsockname(fd, (struct sockaddr *)&a, &n)) {
        perror("no free port of 127.0.0.1");
        abort();
    }
    *port = ntohs(a.sin_port);
    return fd;
}

int lw_test_free_port(void) {
    int port;
    close(lw_test_bound(&port));
    return port;
}
