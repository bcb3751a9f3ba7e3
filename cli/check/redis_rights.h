/* SPDX-License-Identifier: Apache-2.0 */
/* The rights that `check --connect` checks. */
#ifndef LW_CLI_CHECK_REDIS_RIGHTS_H
#define LW_CLI_CHECK_REDIS_RIGHTS_H

#include <stddef.h>

enum { LW_RIGHT_WORKER = 1, LW_RIGHT_OPERATOR = 2 };
struct lw_redis_right {
    const char *command;
    int roles;        /* the callers (LW_RIGHT_…); 0: nobody needs it */
    const char *args; /* arguments of a sample call, separated by one space; K is a key */
};
extern const struct lw_redis_right lw_redis_rights[];
extern const size_t lw_n_redis_rights;
extern const char *const lw_redis_names[]; /* the last is NULL */

#endif
