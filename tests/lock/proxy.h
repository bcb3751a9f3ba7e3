/* SPDX-License-Identifier: Apache-2.0 */
/* A proxy in front of Redis that can lose a reply: instead of passing the reply on, it closes the
 * connection. So the command has run, but its reply is lost.
 *
 * One thread relays data between unix sockets. All bytes of one read from Redis count as one reply.
 * After a call of lw_proxy_lose(n), the n-th reply is lost. With n = 1 it is the next reply. */
#ifndef LW_TEST_LOCK_PROXY_H
#define LW_TEST_LOCK_PROXY_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LW_PROXY_MAX = 64 };

struct lw_proxy {
    char path[108], target[108];
    int listen_fd;
    pthread_t thread;
    atomic_bool stop;
    /* Number of the reply that will be lost; 1 is the next reply. 0: no reply will be lost. */
    atomic_int lose;
    int n, client[LW_PROXY_MAX], server[LW_PROXY_MAX];
};

static inline int lw_proxy_socket(const char *path, bool listening) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (listening ? bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 16)
                             : connect(fd, (struct sockaddr *)&a, sizeof a))) {
        perror("proxy");
        if (fd >= 0) close(fd);
        return -1;
    }
    return fd;
}

static inline void lw_proxy_close_pair(struct lw_proxy *p, int i) {
    close(p->client[i]);
    close(p->server[i]);
    p->n--;
    p->client[i] = p->client[p->n];
    p->server[i] = p->server[p->n];
}

/* Reads once from `from`, and sends the bytes to `to`. Returns false if the caller must close both
 * connections. */
static inline bool lw_proxy_relay(struct lw_proxy *p, int from, int to, bool is_reply) {
    char bytes[65536];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    if (is_reply && atomic_load(&p->lose) && atomic_fetch_sub(&p->lose, 1) == 1) return false;
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static inline void *lw_proxy_run(void *arg) {
    struct lw_proxy *p = arg;
    while (!atomic_load(&p->stop)) {
        struct pollfd fd[1 + 2 * LW_PROXY_MAX] = {{.fd = p->listen_fd, .events = POLLIN}};
        int n = p->n;
        for (int i = 0; i < n; i++) {
            fd[1 + 2 * i] = (struct pollfd){.fd = p->client[i], .events = POLLIN};
            fd[2 + 2 * i] = (struct pollfd){.fd = p->server[i], .events = POLLIN};
        }
        if (poll(fd, (nfds_t)(1 + 2 * n), 50) <= 0) continue;
        for (int i = n - 1; i >= 0; i--) {
            bool good = true;
            if (fd[1 + 2 * i].revents) good = lw_proxy_relay(p, p->client[i], p->server[i], false);
            if (good && fd[2 + 2 * i].revents)
                good = lw_proxy_relay(p, p->server[i], p->client[i], true);
            if (!good) lw_proxy_close_pair(p, i);
        }
        if (!fd[0].revents || p->n == LW_PROXY_MAX) continue;
        int client = accept(p->listen_fd, NULL, NULL),
            redis = client < 0 ? -1 : lw_proxy_socket(p->target, false);
        if (redis >= 0) {
            p->client[p->n] = client;
            p->server[p->n++] = redis;
        } else if (client >= 0) {
            close(client);
        }
    }
    while (p->n) lw_proxy_close_pair(p, 0);
    return NULL;
}

static inline bool lw_proxy_start(struct lw_proxy *p, const char *target) {
    memset(p, 0, sizeof *p);
    snprintf(p->target, sizeof p->target, "%s", target);
    snprintf(p->path, sizeof p->path, "%.100s.proxy", target);
    p->listen_fd = lw_proxy_socket(p->path, true);
    return p->listen_fd >= 0 && pthread_create(&p->thread, NULL, lw_proxy_run, p) == 0;
}
static inline void lw_proxy_lose(struct lw_proxy *p, int which) { atomic_store(&p->lose, which); }
static inline void lw_proxy_stop(struct lw_proxy *p) {
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    close(p->listen_fd);
    unlink(p->path);
}

#endif
