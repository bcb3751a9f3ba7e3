/* `latchwork dead`: the dead letters that Redis keeps. A verb a function; each is a file's. */
#ifndef LW_TOOLS_CMD_DEAD_H
#define LW_TOOLS_CMD_DEAD_H

#include "tools/ops.h"

int lw_cmd_dead(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */

/* Every dead letter that the filters let pass, oldest first, shard after shard, in pages. 1 where fn had enough. */
int dead_each(struct ops *o, ops_message_fn *fn, void *ctx);

int dead_ls(struct ops *o);
int dead_show(struct ops *o);
int dead_export(struct ops *o);
int dead_replay(struct ops *o);
int dead_drop(struct ops *o);
int dead_edit(struct ops *o);

#endif
