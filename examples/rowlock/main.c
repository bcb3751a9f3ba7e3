/* SPDX-License-Identifier: Apache-2.0 */
/* This example holds several rows (table, id) under one lock. Any number of processes of this
 * program transfer money between accounts.
 *
 *     rowlock redis://127.0.0.1:6379 ROUNDS FILE
 *
 * FILE contains the balances of eight accounts, which begin with 100 each. A transfer locks the two
 * rows that it changes, and may name them in any order without a deadlock. The sum of the balances
 * stays 800, unless a process is killed between the two writes of a transfer. Other processes then
 * wait for the two rows until the lease of the killed process has ended. */
#include <latchwork/lock.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ACCOUNTS = 8, START = 100 };

static void transfer(int file, int from, int to, long amount) {
    long balance[ACCOUNTS] = {0};
    for (int i = 0; i < 2; i++) {
        int account = i ? to : from;
        off_t at = (off_t)(account * sizeof(long));
        /* An account that is not in the file yet begins with the balance START. */
        if (pread(file, &balance[account], sizeof(long), at) != sizeof(long))
            balance[account] = START;
        balance[account] += i ? amount : -amount;
        if (pwrite(file, &balance[account], sizeof(long), at) != sizeof(long)) exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: rowlock URL ROUNDS FILE\n"), 2;
    struct latchwork_error error;
    struct latchwork_client *client = latchwork_client_open(argv[1], NULL, &error);
    int file = open(argv[3], O_RDWR);
    if (!client || file < 0)
        return fprintf(stderr, "rowlock: %s\n", client ? "FILE can't be opened" : error.text), 2;
    srand((unsigned)getpid());
    for (int i = atoi(argv[2]); i > 0; i--) {
        int from = rand() % ACCOUNTS, to = (from + 1 + rand() % (ACCOUNTS - 1)) % ACCOUNTS;
        char a[16], b[16];
        snprintf(a, sizeof a, "%d", from);
        snprintf(b, sizeof b, "%d", to);
        const struct latchwork_row rows[] = {{"accounts", a}, {"accounts", b}};
        struct latchwork_lock *lock = latchwork_rows_open(client, NULL, rows, 2, NULL, &error);
        struct latchwork_hold *hold;
        if (latchwork_lock_acquire(lock, 60000, &hold, &error) != LATCHWORK_LOCK_OK)
            return fprintf(stderr, "rowlock: %s\n", error.text), 1;
        transfer(file, from, to, 1 + rand() % 5);
        if (latchwork_hold_release(hold, &error) != LATCHWORK_LOCK_OK)
            fprintf(stderr, "rowlock: %s\n", error.text);
        latchwork_lock_close(lock);
    }
    latchwork_client_close(client);
    return 0;
}
