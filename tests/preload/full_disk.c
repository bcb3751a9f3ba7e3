/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the disk full for some files. LW_TEST_FULL is the beginning of their paths. While a file of
 * this name with ".full" at its end exists, each write to them fails with ENOSPC. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

static int is_full(int fd) {
    const char *disk = getenv("LW_TEST_FULL");
    char mark[4096], link[64], path[4096];
    if (!disk) return 0;
    snprintf(mark, sizeof mark, "%s.full", disk);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (access(mark, F_OK)) return 0;
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return strncmp(path, disk, strlen(disk)) == 0;
}

static ssize_t write_at(const char *name, int fd, const void *p, size_t n, off64_t at) {
    ssize_t (*real)(int, const void *, size_t, off64_t);
    if (is_full(fd)) return errno = ENOSPC, -1;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    return real(fd, p, n, at);
}

VISIBLE ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    return write_at("pwrite", fd, p, n, at);
}

VISIBLE ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) {
    return write_at("pwrite64", fd, p, n, at);
}
