/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork dead` and the API do with dead letters, which are in Redis or in a topic
 * (dead.to). With a topic, Redis may still have some: older ones, edited ones, and those that the
 * topic refused. Each verb of the command is a function; related verbs are in one file. */
#ifndef LW_OPS_DEAD_DEAD_H
#define LW_OPS_DEAD_DEAD_H

#include "ops/ops.h"

/* Calls fn for every dead letter that passes the filters. If the command has arguments and all of
 * them are IDs of dead letters, reads only these dead letters. Otherwise reads all dead letters in
 * Redis, shard after shard, the oldest of each shard first, and then those in the topic, the oldest
 * of each partition first. Without --from, only the newest 10,000 records of the topic are read,
 * and o->cut says whether there are older ones. Returns 0 after the last dead letter, -1 with
 * o->err on failure, or the value of `fn` if it is not 0, which ends the reading. */
int dead_each(struct ops *o, ops_message_fn *fn, void *ctx);
/* The same, for the dead letters in Redis alone. */
int dead_each_in_redis(struct ops *o, ops_message_fn *fn, void *ctx);
/* Calls fn with the dead letter that one element of XRANGE's reply describes, and returns the value
 * of fn. Returns 0 without a call if that dead letter does not pass the filters. */
int dead_tell(struct ops *o, struct ops_shard *sh, const redisReply *entry, ops_message_fn *fn,
              void *ctx);
/* The places that hold dead letters are numbered: first the shards, and then the topic, if
 * dead.to is one. */
int dead_places(const struct ops *o);
bool dead_place_is_topic(const struct ops *o, int place);
enum { DEAD_PLACE = 4096, DEAD_MISPLACED = 2 };
/* Reads a page of the dead letters of one place, oldest or newest first (ops/dead/page.c): of a
 * shard at most `count`; of the topic as many records as can be read in some seconds, until fn
 * wants no more. Calls fn for each of them that passes the filters. In a page of the topic, the
 * letters of different partitions are in no order, and fn is called for some more after it has
 * returned 1. The page begins after the place `at`, or with the first dead letter if `at` is "".
 * The function sets `at`, digits and '-', to where the next page begins. *more becomes true if
 * there may be another page. Returns 0 after the page, -1 with o->err on failure, 1 if the reading
 * ended because fn wants no more or the time is up, or DEAD_MISPLACED if no page ends at `at`. */
int dead_page(struct ops *o, int place, bool newest, char at[DEAD_PLACE], int64_t count, bool *more,
              ops_message_fn *fn, void *ctx);

/* --- dead letters in a topic (ops/dead/topic.c), for the functions above ---------------------- */

/* Returns true if the word is the id of a dead letter in the topic: the place of its record,
 * TOPIC/PARTITION/OFFSET. */
bool dead_id_in_topic(const struct ops *o, const char *word, int32_t *partition, int64_t *offset);
int dead_one_in_topic(struct ops *o, const char *word, ops_message_fn *fn, void *ctx);
int dead_each_in_topic(struct ops *o, ops_message_fn *fn, void *ctx);
int dead_page_in_topic(struct ops *o, bool newest, char at[DEAD_PLACE], bool *more,
                       ops_message_fn *fn, void *ctx);
/* Returns false if the dead letter is in the topic but is no dead letter of this application:
 * somebody else wrote it, or its message is of a topic that the application does not consume. */
bool dead_is_ours(const struct ops *o, const struct ops_message *m);
/* Asks Redis whether a dead letter in the topic was taken before, and sets m->taken_ms. */
int dead_look_taken(struct ops *o, struct ops_message *m);

/* Checks a new payload for a dead letter (ops/dead/edit.c). If the old payload was JSON, the new
 * one must be JSON, too; otherwise returns -1 with *err. */
int dead_payload_check(const struct ops_message *m, struct lw_bytes payload, struct lw_err *err);
/* Gives a dead letter another payload, and adds an entry to the audit. Of a dead letter in a topic,
 * the edited copy is stored in Redis, and the letter counts as taken; if it was taken before, that
 * is an error, unless o->args.again is set. Returns -1 with o->err on failure. Sets `id` to the
 * letter's new id, "SHARD:STREAM-ID", or to "" if the letter was not changed, for instance because
 * another operator has changed it since it was read. If the letter was changed and only the entry
 * in the audit failed, returns -1 with `id` set to the new id. */
int dead_store(struct ops *o, const struct ops_message *m, struct lw_bytes payload,
               char id[OPS_DEAD_ID]);

int dead_ls(struct ops *o);
int dead_show(struct ops *o);
int dead_export(struct ops *o);
int dead_replay(struct ops *o);
int dead_drop(struct ops *o);
int dead_edit(struct ops *o);

#endif
