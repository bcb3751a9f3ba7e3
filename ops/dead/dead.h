/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork dead` and the API do with the dead letters kept in Redis. Each verb of
 * the command is a function; related verbs are in one file. */
#ifndef LW_OPS_DEAD_DEAD_H
#define LW_OPS_DEAD_DEAD_H

#include "ops/ops.h"

/* Calls fn for every dead letter that passes the filters. If the command has arguments and all of
 * them are IDs of dead letters, reads only these dead letters. Otherwise reads all dead letters,
 * shard after shard, the oldest of each shard first. Returns 0 after the last dead letter,
 * -1 with o->err on failure, or the value of `fn` if it is not 0, which ends the reading. */
int dead_each(struct ops *o, ops_message_fn *fn, void *ctx);
/* Calls fn with the dead letter that one element of XRANGE's reply describes, and returns the value
 * of fn. Returns 0 without a call if that dead letter does not pass the filters. */
int dead_tell(struct ops *o, struct ops_shard *sh, const redisReply *entry, ops_message_fn *fn,
              void *ctx);
enum { DEAD_ID = 48 };
/* Reads a page, that is, at most `count` dead letters of one shard, oldest or newest first
 * (ops/dead/page.c). Calls fn for each of them that passes the filters. The page begins after the
 * ID `at`, or with the first dead letter if `at` is "". The function sets `at` to the ID of the
 * last dead letter that it looked at. *more becomes true if there may be another page. Returns 0
 * after the page, -1 with o->err on failure, or the value of fn if it is not 0, which ends the
 * reading. */
int dead_page(struct ops *o, struct ops_shard *sh, bool newest, char at[DEAD_ID], int64_t count,
              bool *more, ops_message_fn *fn, void *ctx);

/* Checks a new payload for a dead letter (ops/dead/edit.c). If the old payload was JSON, the new
 * one must be JSON, too; otherwise returns -1 with *err. */
int dead_payload_check(const struct ops_message *m, struct lw_bytes payload, struct lw_err *err);
enum { DEAD_FULL_ID = 64 };
/* Gives a dead letter another payload, and adds an entry to the audit. Returns -1 with o->err on
 * failure. Sets `id` to the letter's new id, "SHARD:STREAM-ID", or to "" if the letter was not
 * changed, for instance because another operator has changed it since it was read. If the letter
 * was changed and only the entry in the audit failed, returns -1 with `id` set to the new id. */
int dead_store(struct ops *o, const struct ops_message *m, struct lw_bytes payload,
               char id[DEAD_FULL_ID]);

int dead_ls(struct ops *o);
int dead_show(struct ops *o);
int dead_export(struct ops *o);
int dead_replay(struct ops *o);
int dead_drop(struct ops *o);
int dead_edit(struct ops *o);

#endif
