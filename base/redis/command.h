/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the Redis commands of one pipeline without an allocation per command. Arguments point to
 * bytes that stay valid until the pipeline is sent, or into an arena that is reused for each
 * pipeline. */
#ifndef LW_BASE_REDIS_COMMAND_H
#define LW_BASE_REDIS_COMMAND_H

#include "base/bytes.h"

#include <stdint.h>

struct lw_chunk;

struct lw_command {
    /* index of the command's first argument in argv and len, and number of its arguments */
    int first, argc;
};

struct lw_commands {
    struct lw_command *cmd;
    const char **argv;
    size_t *len;
    int n, n_args, cap, cap_args;
    struct lw_chunk *chunk;
};

/* Removes all commands, and keeps their memory for the next pipeline. */
void lw_commands_reset(struct lw_commands *c);
void lw_commands_free(struct lw_commands *c);

/* begins a command, to which the functions below append */
void lw_cmd(struct lw_commands *c, const char *name);
/* Appends an argument to the command begun last. The bytes must stay valid until the pipeline is
 * sent. */
void lw_arg(struct lw_commands *c, struct lw_bytes b);
void lw_arg_text(struct lw_commands *c, const char *s);
void lw_arg_i64(struct lw_commands *c, int64_t v);
void lw_arg_join(struct lw_commands *c, struct lw_bytes a, const char *b,
                 struct lw_bytes d); /* appends the concatenation of a, b and d as one argument */
void lw_arg_copy(struct lw_commands *c, const char *p, size_t n);
/* Appends an argument of n bytes to the command begun last, and returns the memory that the caller
 * fills. */
char *lw_arg_room(struct lw_commands *c, size_t n);

/* Writes v as decimal text into `out`, which has room for 21 bytes. Returns the length. */
size_t lw_decimal(int64_t v, char *out);

#endif
