/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the table of the rights that `check --connect` checks and `check --acl` prints. */
#ifndef LW_CLI_CHECK_REDIS_RIGHTS_H
#define LW_CLI_CHECK_REDIS_RIGHTS_H

#include <stddef.h>

enum {
    LW_RIGHT_WORKER = 1,
    LW_RIGHT_OPERATOR = 2, /* the right is for commands of operators, and for the HTTP API */
    LW_RIGHT_LANES = LW_RIGHT_WORKER | LW_RIGHT_OPERATOR,
    LW_RIGHT_LOCK = 4, /* the right is for the lock library and `lock --redis` */
};
struct lw_redis_right {
    const char *command;
    int roles; /* the callers that need the command (LW_RIGHT_…); 0: no caller */
    /* arguments of a sample call, separated by single spaces, beginning with the subcommand if the
     * command has subcommands; K stands for a key */
    const char *args;
};
extern const struct lw_redis_right lw_redis_rights[];
extern const size_t lw_n_redis_rights;
/* the first parts of key names; the last element is NULL */
extern const char *const lw_redis_names[];

#endif
