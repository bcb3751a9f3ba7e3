/* SPDX-License-Identifier: Apache-2.0 */
/* refusal: Redis denies this worker's user a right. The shard is out of service until the same call is allowed again. */
#ifndef LW_CONSUMER_WORKER_REFUSAL_H
#define LW_CONSUMER_WORKER_REFUSAL_H

#include "consumer/worker/pipe.h"

#include <stdbool.h>
#include <stdint.h>

struct refusal { /* refusal.c */
    enum call_kind kind;
    bool allowed;              /* such a call has succeeded since */
    int64_t since_ms, last_ms; /* the first of these refusals, and the last; last_ms 0: there is none */
    int64_t said_ms;
    char text[240];
};

/* An error reply to a call of this kind. False if it denies no right; otherwise it is remembered, and logged now and then. */
bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error);
void refusal_allowed(struct shard *sh, enum call_kind kind);           /* such a call has succeeded */
void refusal_look(struct lw_worker *w, struct shard *sh, int64_t now); /* once per turn: is it over? */
bool refusal_holds(const struct shard *sh, int64_t now);               /* admit nothing */
const char *refusal_text(const struct shard *sh);                      /* NULL: there is none */

#endif
