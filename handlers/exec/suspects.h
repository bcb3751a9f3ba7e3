/* SPDX-License-Identifier: Apache-2.0 */
/* suspects: which message kills processes?
 *
 * When a process dies with several messages, nobody can know which of them is at fault, so none is
 * charged with an attempt. Each of them becomes a suspect: the next process that runs it may have
 * only a quarter as many messages. So after at most three deaths, even one of 64 runs alone. If a
 * process dies with a single message, that message is charged with an attempt and stays a suspect
 * that runs alone. Any answer ends the suspicion. */
#ifndef LW_HANDLERS_EXEC_SUSPECTS_H
#define LW_HANDLERS_EXEC_SUSPECTS_H

#include <stdint.h>

struct suspect;

struct suspects {
    struct suspect *table;
    int n;
};

enum { ANY_COMPANY = 1 << 30 };

/* Returns the maximum number of messages in a process that has this message, which counts too;
 * ANY_COMPANY: the message is no suspect. */
int suspects_limit(const struct suspects *s, const char *identity);
/* Makes a message a suspect. Its process has died, and `company` is the number of messages any of
 * which may be at fault. */
void suspects_add(struct suspects *s, const char *identity, int company);
void suspects_drop(struct suspects *s, const char *identity);
void suspects_close(struct suspects *s);

#endif
