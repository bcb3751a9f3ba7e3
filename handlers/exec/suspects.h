/* SPDX-License-Identifier: Apache-2.0 */
/* suspects: which message kills processes?
 *
 * When a process dies with several messages, nobody can know which of them is at fault, so none is charged
 * with an attempt. Each of them becomes a suspect, that may only run in smaller company next time: a quarter
 * of what it ran in, so after three deaths at most even the one among 64 runs alone. A death of a message that
 * ran alone costs it an attempt, and it stays a suspect that runs alone. Any answer ends the suspicion. */
#ifndef LW_HANDLERS_EXEC_SUSPECTS_H
#define LW_HANDLERS_EXEC_SUSPECTS_H

#include <stdint.h>

struct suspect;

struct suspects {
    struct suspect *table;
    int n;
};

enum { ANY_COMPANY = 1 << 30 };

/* How many messages a process may have at most while it has this one; ANY_COMPANY: it is no suspect. */
int suspects_limit(const struct suspects *s, const char *identity);
/* A process died with this message, and had `company` messages in all. */
void suspects_add(struct suspects *s, const char *identity, int company);
void suspects_drop(struct suspects *s, const char *identity);
void suspects_close(struct suspects *s);

#endif
