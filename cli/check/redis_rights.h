/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the rights that `check --connect` checks and `check --acl` prints. */
#ifndef LW_CLI_CHECK_REDIS_RIGHTS_H
#define LW_CLI_CHECK_REDIS_RIGHTS_H

#include <stddef.h>

enum {
    LW_RIGHT_WORKER = 1,
    LW_RIGHT_OPERATOR = 2, /* commands of operators, and the HTTP API */
    LW_RIGHT_LANES = LW_RIGHT_WORKER | LW_RIGHT_OPERATOR,
    LW_RIGHT_LOCK = 4, /* the lock library and `lock --redis` */
};
struct lw_redis_right {
    const char *command;
    int roles;        /* which callers need it (LW_RIGHT_…); 0: none */
    const char *args; /* arguments of a sample call, the subcommand first, separated by one space; K stands for a key */
};
extern const struct lw_redis_right lw_redis_rights[];
extern const size_t lw_n_redis_rights;
extern const char *const lw_redis_names[]; /* first parts of key names; the last element is NULL */

#endif
