/* SPDX-License-Identifier: Apache-2.0 */
/* This example uses a lock on several independent Redis servers. Any number of processes of this
 * program increment a counter in a file.
 *
 *     redlock ROUNDS FILE URL URL URL…
 *
 * FILE contains two numbers: the counter, and the largest fence so far. If a holder was paused
 * until its lease had ended, its fence may be smaller than the fence in FILE. The program then
 * leaves the counter unchanged. Only this check keeps the counter correct: the lock does not stop a
 * holder whose lease has ended. (With a database, the program would make the check in its UPDATE …
 * WHERE fence < ?. With a file, a safe check would need a lock on the file. This program assumes
 * instead that no process is paused between pread and pwrite.) */
#include <latchwork/lock.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int add_one(int file, unsigned long fence) {
    unsigned long value[2] = {0};
    if (pread(file, value, sizeof value, 0) < 0 || value[1] >= fence) return 0;
    value[0]++;
    value[1] = fence;
    return pwrite(file, value, sizeof value, 0) == sizeof value;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: redlock ROUNDS FILE URL…\n"), 2;
    struct latchwork_error error;
    struct latchwork_redlock *redlock =
        latchwork_redlock_open((const char *const *)argv + 3, (size_t)argc - 3, NULL, &error);
    struct latchwork_lock_options options = {LATCHWORK_LOCK_INIT, .ttl_ms = 3000};
    struct latchwork_lock *lock =
        redlock ? latchwork_redlock_lock_open(redlock, "counter", &options, &error) : NULL;
    int file = open(argv[2], O_RDWR);
    if (!lock || file < 0)
        return fprintf(stderr, "redlock: %s\n", lock ? "FILE can't be opened" : error.text), 2;
    for (int i = atoi(argv[1]); i > 0;) {
        struct latchwork_hold *hold;
        if (latchwork_lock_acquire(lock, 60000, &hold, &error) != LATCHWORK_LOCK_OK)
            return fprintf(stderr, "redlock: %s\n", error.text), 1;
        if (add_one(file, latchwork_hold_fence(hold))) i--;
        if (latchwork_hold_release(hold, &error) != LATCHWORK_LOCK_OK)
            fprintf(stderr, "redlock: %s\n", error.text);
    }
    latchwork_lock_close(lock);
    latchwork_redlock_close(redlock);
    return 0;
}
