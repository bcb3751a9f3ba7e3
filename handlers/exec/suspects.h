/* SPDX-License-Identifier: Apache-2.0 */
/* suspects: which message kills processes?
 *
 * When a process dies with several messages, nobody can know which of them is at fault, so no
 * message is charged with an attempt. Each message that the process had read becomes a suspect. A
 * process that gets such a suspect may have only a quarter as many messages at a time as the dead
 * process had read, but at least one. After at most three deaths, even a message among 64 runs
 * alone. If a process dies with a single message, that message is charged with an attempt and
 * remains a suspect that runs alone. A message that is answered, with any outcome, is no longer a
 * suspect. */
#ifndef LW_HANDLERS_EXEC_SUSPECTS_H
#define LW_HANDLERS_EXEC_SUSPECTS_H

#include <stdint.h>

struct suspect;

struct suspects {
    struct suspect *table;
    int n;
};

enum { ANY_COMPANY = 1 << 30 };

/* Returns how many messages a process may have at most if this message is one of them. Returns
 * ANY_COMPANY if the message is no suspect. */
int suspects_limit(const struct suspects *s, const char *identity);
/* Makes a message a suspect after its process has died. `company` is the number of messages of the
 * process that may be at fault. */
void suspects_add(struct suspects *s, const char *identity, int company);
void suspects_drop(struct suspects *s, const char *identity);
void suspects_close(struct suspects *s);

#endif
