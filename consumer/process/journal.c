/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/process/journal.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

int lw_journal_open(int *fd, struct lw_err *err) {
    const char *name = getenv("LATCHWORK_JOURNAL");
    *fd = -1;
    if (!name || !*name) return 0;
    *fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return *fd < 0 ? lw_fail(err, "LATCHWORK_JOURNAL: %s: %s", name, strerror(errno)) : 0;
}

static void add_hex(struct lw_buf *line, struct lw_bytes key) {
    static const char digit[] = "0123456789abcdef";
    if (!key.n) lw_buf_add(line, "-", 1);
    for (size_t i = 0; i < key.n; i++) {
        unsigned char c = (unsigned char)key.p[i];
        lw_buf_add(line, (char[]){digit[c >> 4], digit[c & 15]}, 2);
    }
}

static void append(int fd, const char *what, const struct lw_job *job, const char *outcome) {
    struct lw_buf line = {0};
    lw_buf_addf(&line, "%s %" PRId64 " %d %s ", what, lw_boot_us(), (int)getpid(), job->identity);
    add_hex(&line, job->key);
    lw_buf_addf(&line, " %" PRIu64 " %d%s%s\n", job->fence, job->attempt, outcome ? " " : "",
                outcome ? outcome : "");
    ssize_t n;
    do n = write(fd, line.p, line.n);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)line.n)
        lw_error("journal: a line is incomplete: %s", n < 0 ? strerror(errno) : "disk full?");
    lw_buf_free(&line);
}

void lw_journal_start(int fd, const struct lw_job *job) {
    if (fd >= 0) append(fd, "start", job, NULL);
}

void lw_journal_end(int fd, const struct lw_job *job) {
    if (fd >= 0) append(fd, "end", job, lw_outcome_word(job->outcome));
}

void lw_journal_close(int fd) {
    if (fd >= 0) close(fd);
}
