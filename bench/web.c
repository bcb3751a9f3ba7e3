/* SPDX-License-Identifier: Apache-2.0 */
/* A web server that answers 204 to every request, on one thread, and a command that runs beside the
 * server.
 *
 *     web [--delay-us N] COMMAND [ARGUMENT…]
 *
 * The server listens on a free port of the loopback, and sets LW_WEB_URL=http://127.0.0.1:PORT/ in
 * the environment of the command. The server ends when the command ends, with the command's exit
 * status. A request may arrive in pieces; the end of its body is found by Content-Length. With a
 * delay, each response is sent N µs after its request, as by a service that works for this time.
 *
 * The last line of the output is {"answers": N, "web_us": N}: the number of responses, and the CPU
 * time of the server alone, in µs per response. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 4096, ROOM = 1 << 16, EVENTS = 256, LATE = 1 << 13 };

/* at[FD] holds the bytes of the unanswered request of the connection with file descriptor FD. */
static struct {
    /* `have` is the number of bytes in `text`. `skip` is the number of bytes of a body that have
     * not arrived yet. */
    size_t have, skip;
    char *text;
    unsigned life; /* number of earlier connections that had this file descriptor */
} at[FDS];

/* Delayed responses, oldest first. The oldest response is always due first, because all responses
 * have the same delay. */
static struct late {
    long long due_us;
    int fd, answers;
    unsigned life;
} late[LATE];
static size_t first_late, end_late;
static long long delay_us;

static long long n_answers;

static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";

/* Returns the length of the body according to the Content-Length header; 0 if there is none. */
static size_t body_length(const char *head, const char *end) {
    static const char name[] = "content-length:";
    for (const char *line = head; line < end; line++) {
        if (strncasecmp(line, name, sizeof name - 1) == 0)
            return strtoul(line + sizeof name - 1, NULL, 10);
        line = memchr(line, '\n', (size_t)(end - line));
        if (!line) break;
    }
    return 0;
}

/* Consumes the head of one request or, if bytes of the last body are missing, bytes of that body.
 * Adds 1 to *answers when a request is complete. Returns the number of bytes consumed, or 0 if the
 * head is not complete yet. */
static size_t take(int fd, const char *p, size_t n, int *answers) {
    if (at[fd].skip) {
        size_t some = n < at[fd].skip ? n : at[fd].skip;
        at[fd].skip -= some;
        *answers += !at[fd].skip;
        return some;
    }
    const char *end = memmem(p, n, "\r\n\r\n", 4);
    if (!end) return 0;
    at[fd].skip = body_length(p, end + 2);
    *answers += !at[fd].skip;
    return (size_t)(end + 4 - p);
}

static bool send_answers(int fd, int n) {
    n_answers += n;
    char out[64 * (sizeof answer - 1)];
    while (n > 0) {
        int some = n < 64 ? n : 64;
        for (int i = 0; i < some; i++)
            memcpy(out + (size_t)i * (sizeof answer - 1), answer, sizeof answer - 1);
        size_t bytes = (size_t)some * (sizeof answer - 1);
        if (write(fd, out, bytes) != (ssize_t)bytes) return false;
        n -= some;
    }
    return true;
}

static long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static bool send_later(int fd, int answers) {
    if (end_late - first_late == LATE) return false;
    late[end_late++ % LATE] = (struct late){now_us() + delay_us, fd, answers, at[fd].life};
    return true;
}

/* Reads the bytes that have arrived, and answers all complete requests. Returns false if the
 * connection has ended. */
static bool serve(int fd) {
    if (!at[fd].text) at[fd].text = malloc(ROOM);
    if (!at[fd].text || at[fd].have == ROOM) return false;
    ssize_t n = read(fd, at[fd].text + at[fd].have, ROOM - at[fd].have);
    if (n <= 0) return false;
    size_t have = at[fd].have + (size_t)n, done = 0, some;
    int answers = 0;
    while (done < have && (some = take(fd, at[fd].text + done, have - done, &answers)))
        done += some;
    memmove(at[fd].text, at[fd].text + done, have - done);
    at[fd].have = have - done;
    return delay_us && answers ? send_later(fd, answers) : send_answers(fd, answers);
}

static void hang_up(int fd) {
    at[fd].life++;
    close(fd);
}

/* Sends the responses that are due. Returns the time in µs until the next response is due, or -1 if
 * there is none. */
static long long send_due(void) {
    for (; first_late != end_late; first_late++) {
        const struct late *l = &late[first_late % LATE];
        long long left_us = l->due_us - now_us();
        if (left_us > 0) return left_us;
        if (l->life == at[l->fd].life && !send_answers(l->fd, l->answers)) hang_up(l->fd);
    }
    return -1;
}

static void watch(int epoll, int fd) {
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev)) perror("web: epoll_ctl"), exit(1);
}

static void welcome(int epoll, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
    if (fd < 0) return;
    if (fd >= FDS) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    at[fd].have = at[fd].skip = 0;
    watch(epoll, fd);
}

static int listen_somewhere(char *url, size_t size) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        perror("web: listen"), exit(1);
    snprintf(url, size, "http://127.0.0.1:%d/", ntohs(a.sin_port));
    return fd;
}

static pid_t start(char **argv, const char *url) {
    pid_t pid = fork();
    if (pid) return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setenv("LW_WEB_URL", url, 1);
    execvp(argv[0], argv);
    perror(argv[0]);
    _exit(127);
}

static int end(int status) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double us = 1e6 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    printf("{\"answers\": %lld, \"web_us\": %.3f}\n", n_answers,
           n_answers ? us / (double)n_answers : 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv) {
    char url[64];
    sigset_t set;
    if (argc > 2 && !strcmp(argv[1], "--delay-us")) {
        delay_us = atoll(argv[2]);
        argv += 2, argc -= 2;
    }
    if (argc < 2) return fprintf(stderr, "usage: web [--delay-us N] COMMAND [ARGUMENT...]\n"), 2;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set), sigaddset(&set, SIGCHLD), sigprocmask(SIG_BLOCK, &set, NULL);
    int listener = listen_somewhere(url, sizeof url), over = signalfd(-1, &set, SFD_CLOEXEC),
        epoll = epoll_create1(EPOLL_CLOEXEC);
    pid_t child = start(argv + 1, url);
    watch(epoll, listener), watch(epoll, over);
    for (;;) {
        struct epoll_event events[EVENTS];
        long long wait_us = send_due();
        struct timespec wait = {wait_us / 1000000, wait_us % 1000000 * 1000};
        int n = epoll_pwait2(epoll, events, EVENTS, wait_us < 0 ? NULL : &wait, NULL), status;
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                welcome(epoll, listener);
            else if (fd == over && waitpid(child, &status, WNOHANG) == child)
                return end(status);
            else if (fd != over && !serve(fd))
                hang_up(fd);
        }
    }
}
