/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that makes the wall clock of a process run ahead of the true time. The
 * file $LW_CLOCK_FILE contains the number of seconds (an int64_t), which may change at any time.
 * Monotonic clocks stay true. libfaketime 0.9.10 cannot be used, because it hangs in a redis-server
 * with jemalloc: libfaketime allocates memory while the allocator asks for the time. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))
static volatile int64_t *ahead;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("LW_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) abort();
    ahead = p;
    close(fd);
}

VISIBLE int clock_gettime(clockid_t id, struct timespec *t) {
    int r = (int)syscall(SYS_clock_gettime, id, t);
    if (r == 0 && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        t->tv_sec += *ahead;
    return r;
}
VISIBLE int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int r = clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return r;
}
VISIBLE time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
