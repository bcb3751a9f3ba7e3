/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork dead`: the dead letters that Redis keeps. A verb a function; each is a file's. */
#ifndef LW_CLI_DEAD_DEAD_H
#define LW_CLI_DEAD_DEAD_H

#include "cli/options.h"
#include "ops/ops.h"

extern const struct cli_command cli_dead;

/* Every dead letter that the filters let pass, oldest first, shard after shard, in pages. 1 where fn had enough. */
int dead_each(struct ops *o, ops_message_fn *fn, void *ctx);
/* An element of XRANGE's answer, to fn where the filters let it pass. */
int dead_tell(struct ops *o, struct ops_shard *sh, const redisReply *entry, ops_message_fn *fn, void *ctx);
/* A page of one shard's (cli/dead/page.c), oldest first or newest first, from behind `at` ("": from the end) on; `at` becomes the last that
 * was looked at. Not before `since` ("": no bound). *more: there may be others. */
enum { DEAD_ID = 48 };
int dead_page(struct ops *o, struct ops_shard *sh, bool newest, char at[DEAD_ID], const char *since, int64_t count, bool *more,
              ops_message_fn *fn, void *ctx);

int dead_ls(struct ops *o);
int dead_show(struct ops *o);
int dead_export(struct ops *o);
int dead_replay(struct ops *o);
int dead_drop(struct ops *o);
int dead_edit(struct ops *o);

#endif
