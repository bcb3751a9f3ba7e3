/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork queue`: lanes and what waits in them. A verb a function; each is a file's. */
#ifndef LW_CLI_QUEUE_QUEUE_H
#define LW_CLI_QUEUE_QUEUE_H

struct ops;

int lw_cmd_queue(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */

int queue_ls(struct ops *o);
int queue_show(struct ops *o);
int queue_pause(struct ops *o);
int queue_resume(struct ops *o);
int queue_export(struct ops *o);
int queue_stats(struct ops *o);
int queue_replay(struct ops *o);
int queue_audit(struct ops *o);
int queue_drop(struct ops *o);
int queue_import(struct ops *o);

#endif
