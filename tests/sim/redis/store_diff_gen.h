/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random commands and small scripts, with which sim_store_diff compares the fake Redis
 * with a real redis-server. */
#ifndef LW_SIM_STORE_DIFF_GEN_H
#define LW_SIM_STORE_DIFF_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ways in which two replies are compared. */
enum diff_mode {
    DIFF_EXACT,
    DIFF_UNORDERED, /* the order of the elements of an array does not matter */
    DIFF_PAIRS,     /* the order of the pairs (name and value) in an array does not matter */
    DIFF_TIME,      /* integers are times, which may differ a little */
    DIFF_SHAPE      /* only the types of the replies are compared */
};

enum { DIFF_ARGS = 64, DIFF_TEXT = 65536 };

struct diff_step {
    int argc;
    const char *argv[DIFF_ARGS];
    size_t len[DIFF_ARGS];
    enum diff_mode mode;
    unsigned sleep_ms; /* time for which the caller sleeps after the step, in ms */
    char text[DIFF_TEXT];
    size_t used;
};

/* Makes the next random step. If may_sleep is true, the step may give a key a short expiry and
 * sleep until the key has expired. */
void diff_next(uint64_t *state, bool may_sleep, struct diff_step *step);
/* Makes one well-formed call of the named command. */
void diff_command(uint64_t *state, const char *name, struct diff_step *step);
void diff_add(struct diff_step *step, const char *arg);
void diff_print(const struct diff_step *step);

#endif
