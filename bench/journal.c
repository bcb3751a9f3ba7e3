/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18, PATH_BYTES = 4096 };

struct bench_thread {
    struct bench_thread *next;
    FILE *file;
};

static _Atomic uint64_t serials;
static _Thread_local struct bench_thread *mine;
static _Thread_local uint64_t mine_of;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "journal: %s: %s\n", what, strerror(errno));
    exit(1);
}

int64_t bench_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void *map_progress(const char *dir) {
    char path[PATH_BYTES];
    int fd = -1;
    if (dir) {
        snprintf(path, sizeof path, "%s/%d.progress", dir, (int)getpid());
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd == -1 || ftruncate(fd, sizeof(struct bench_progress))) fail(path);
    }
    void *p = mmap(NULL, sizeof(struct bench_progress), PROT_READ | PROT_WRITE,
                   MAP_SHARED | (dir ? 0 : MAP_ANONYMOUS), fd, 0);
    if (p == MAP_FAILED) fail("mmap");
    if (fd != -1) close(fd);
    return p;
}

void bench_journal_open(struct bench_journal *j, const char *dir, bool lines) {
    *j = (struct bench_journal){
        .dir = dir, .lines = dir && lines, .serial = ++serials, .progress = map_progress(dir)};
    pthread_mutex_init(&j->lock, NULL);
}

static FILE *my_file(struct bench_journal *j) {
    if (mine_of == j->serial) return mine->file;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%d-%ld.journal", j->dir, (int)getpid(),
             (long)syscall(SYS_gettid));
    struct bench_thread *t = calloc(1, sizeof *t);
    if (!t || !(t->file = fopen(path, "ae"))) fail(path);
    setvbuf(t->file, NULL, _IOFBF, BUFFER_BYTES);
    pthread_mutex_lock(&j->lock);
    t->next = j->threads;
    j->threads = t;
    pthread_mutex_unlock(&j->lock);
    mine = t;
    mine_of = j->serial;
    return t->file;
}

static void work(int64_t us) {
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {}
}

static void note(struct bench_progress *p, int64_t start, int64_t end) {
    int64_t none = 0, last = atomic_load_explicit(&p->last_us, memory_order_relaxed);
    if (!atomic_load_explicit(&p->first_us, memory_order_relaxed))
        atomic_compare_exchange_strong(&p->first_us, &none, start);
    while (last < end && !atomic_compare_exchange_weak(&p->last_us, &last, end)) {}
    atomic_fetch_add_explicit(&p->handled, 1, memory_order_release);
}

int64_t bench_work(int64_t work_us) {
    int64_t start_us = bench_us();
    if (work_us > 0) work(work_us);
    return start_us;
}

void bench_record(struct bench_journal *j, int64_t start_us, int64_t end_us, const void *key,
                  size_t n_key, int32_t partition, int64_t offset) {
    if (j->lines && fprintf(my_file(j), "%" PRId64 " %" PRId64 " %.*s %d %" PRId64 "\n", start_us,
                            end_us, (int)n_key, (const char *)key, (int)partition, offset) < 0)
        fail("writing");
    note(j->progress, start_us, end_us);
}

void bench_handle(struct bench_journal *j, int64_t work_us, const void *key, size_t n_key,
                  int32_t partition, int64_t offset) {
    int64_t start_us = bench_work(work_us);
    bench_record(j, start_us, work_us > 0 ? bench_us() : start_us, key, n_key, partition, offset);
}

void bench_journal_close(struct bench_journal *j) {
    for (struct bench_thread *t = j->threads, *next; t; t = next) {
        next = t->next;
        if (fclose(t->file)) fail("writing");
        free(t);
    }
    munmap(j->progress, sizeof *j->progress);
    pthread_mutex_destroy(&j->lock);
    *j = (struct bench_journal){0};
}
