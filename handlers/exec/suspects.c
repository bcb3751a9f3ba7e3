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
#include "handlers/exec/private.h"

#include "handlers/handler.h"

#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

enum { MOST = 4096 }; /* maximum number of suspects; one more replaces the oldest */

struct suspect {
    UT_hash_handle hh;
    int limit;
    char identity[LW_IDENTITY_MAX];
};

static struct suspect *find(const struct suspects *s, const char *identity) {
    struct suspect *found = NULL;
    if (s->n) HASH_FIND_STR(s->table, identity, found);
    return found;
}

int suspects_limit(const struct suspects *s, const char *identity) {
    const struct suspect *found = find(s, identity);
    return found ? found->limit : ANY_COMPANY;
}

static void forget(struct suspects *s, struct suspect *one) {
    HASH_DEL(s->table, one);
    free(one);
    s->n--;
}

void suspects_add(struct suspects *s, const char *identity, int company) {
    struct suspect *one = find(s, identity);
    int limit = company > 4 ? company / 4 : 1;
    if (one) {
        if (limit < one->limit) one->limit = limit;
        return;
    }
    if (s->n >= MOST) forget(s, s->table);
    one = lw_alloc(sizeof *one);
    one->limit = limit;
    snprintf(one->identity, sizeof one->identity, "%s", identity);
    HASH_ADD_STR(s->table, identity, one);
    s->n++;
}

void suspects_drop(struct suspects *s, const char *identity) {
    struct suspect *one = find(s, identity);
    if (one) forget(s, one);
}

void suspects_close(struct suspects *s) {
    while (s->table) forget(s, s->table);
}
