/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork queue` and the API do with lanes and their waiting messages. Each verb
 * of the command has a function; the functions of related verbs are in one file. */
#ifndef LW_OPS_QUEUE_QUEUE_H
#define LW_OPS_QUEUE_QUEUE_H

struct ops;

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
int queue_import_list(struct ops *o); /* implements `queue import --from-list` */

#endif
