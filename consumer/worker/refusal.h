/* SPDX-License-Identifier: Apache-2.0 */
/* refusal: the part of the worker that handles error replies by which Redis denies a right to the
 * worker's user. For a short time after each such reply, nothing is admitted on the shard. The
 * worker is not ready until the refusal is over (refusal.c says when). */
#ifndef LW_CONSUMER_WORKER_REFUSAL_H
#define LW_CONSUMER_WORKER_REFUSAL_H

#include "consumer/worker/pipe.h"

#include <stdbool.h>
#include <stdint.h>

struct refusal { /* only refusal.c changes this struct */
    enum call_kind kind;
    bool allowed; /* true: a call of this `kind` has succeeded since the refusal */
    /* `since_ms` and `last_ms` are the times of the first and of the last refused call of the
     * present refusal. `last_ms` is 0 if there is no refusal now. */
    int64_t since_ms, last_ms;
    int64_t said_ms;
    char text[240];
};

/* Handles an error reply to a call of the kind `kind`. Returns false if the error denies no right.
 * Otherwise remembers the refusal, and logs it from time to time. */
bool refusal_take(struct lw_worker *w, struct shard *sh, enum call_kind kind, const char *error);
/* Call this function when a call of this kind has succeeded. If there is a refusal of the same
 * kind, the function notes the success in it. */
void refusal_allowed(struct shard *sh, enum call_kind kind);
/* Ends the refusal by Redis after enough time has passed without a refused call. Call this function
 * once per turn. */
void refusal_look(struct lw_worker *w, struct shard *sh, int64_t now);
/* Returns true while nothing may be admitted because of a refusal. */
bool refusal_holds(const struct shard *sh, int64_t now);
/* Returns a text that describes the refusal, or NULL if there is no refusal. */
const char *refusal_text(const struct shard *sh);

#endif
