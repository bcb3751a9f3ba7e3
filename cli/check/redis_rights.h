/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the table of the rights that `check --connect` checks and `check --acl` prints. */
#ifndef LW_CLI_CHECK_REDIS_RIGHTS_H
#define LW_CLI_CHECK_REDIS_RIGHTS_H

#include <stddef.h>

enum {
    LW_RIGHT_WORKER = 1,
    LW_RIGHT_OPERATOR = 2, /* role of commands of operators, and of the HTTP API */
    LW_RIGHT_LANES = LW_RIGHT_WORKER | LW_RIGHT_OPERATOR,
    LW_RIGHT_LOCK = 4, /* role of the lock library and `lock --redis` */
};
struct lw_redis_right {
    const char *command;
    int roles; /* the callers that need the command (LW_RIGHT_…); 0: no caller */
    /* `args` has the arguments of a sample call, separated by single spaces. If the command has
     * subcommands, the first argument is the subcommand. K stands for a key. */
    const char *args;
};
extern const struct lw_redis_right lw_redis_rights[];
extern const size_t lw_n_redis_rights;
/* Lists the names of the keys of lanes without their prefix; if an entry ends with ':', the names
 * continue after it. The last element is NULL. */
extern const char *const lw_redis_names[];

#endif
