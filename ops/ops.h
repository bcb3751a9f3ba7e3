/* SPDX-License-Identifier: Apache-2.0 */
/* What `latchwork queue` and `latchwork dead` share: their options, the connections to the shards,
 * filters, messages as people and programs see them, and jobs (bulk commands: one at a time,
 * numbered, recorded).
 *
 * Everything blocks, in one thread, with a limit on every wait. Nothing blocks Redis for long: it
 * uses cursors, pages and small scripts. Functions return 0, or -1 with `err` filled. */
#ifndef LW_OPS_OPS_H
#define LW_OPS_OPS_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/redis/command.h"
#include "base/redis/connection.h"
#include "config/config.h"
#include "ops/script.h"
#include "queue/envelope.h"
#include "queue/lane.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { OPS_FAILED = 1, OPS_USAGE = 2 };
enum {
    OPS_LIST_MAX = 256,
    OPS_BATCH = 16,
    OPS_PAGE = 32,
    OPS_PAGE_FIRST = 2,
    OPS_AHEAD = 64 /* same as AHEAD_MAX of consumer/worker/limits.h */
};

/* ---- what is asked for ---- */

struct ops_args {
    bool json, raw, execute, again, stop_on_error, reverse;
    int64_t limit; /* -1: not given */
    double rate;   /* per second; 0: no limit */
    const char *sort;
    /* The filters. */
    const char *keys[OPS_LIST_MAX], *where[OPS_LIST_MAX];
    size_t n_keys, n_where;
    const char *match, *topic, *reason, *error;
    int64_t partition, attempts, older_ms; /* -1: not given */
    const char *from, *to;                 /* each a time, or @OFFSET */
    const char *to_topic, *backup;
    int64_t over_ms; /* 0: not given */
    int64_t resume;  /* number of the job to resume; 0: none */
    bool try_handler;
    char **words; /* the words behind the verb */
    int n_words;
};

/* Whether a message that the command line names was found. */
enum ops_met { OPS_NOT_MET, OPS_MET, OPS_TOLD /* not found, and already reported */ };

struct ops_shard {
    int index;
    char prefix[160]; /* lw:{NAME.SHARD}: */
    struct lw_redis *redis;
    bool shares; /* uses the connection of another shard on the same server */
};

struct ops {
    const char *noun, *verb; /* "queue", "ls" */
    struct ops_args args;
    struct lw_config *c;
    struct ops_shard *shards;
    struct lw_commands cmd;         /* the command being built */
    const struct lw_script *script; /* the script that it calls, or NULL */
    struct lw_err err;
    unsigned char *met;       /* enum ops_met, one per word; NULL: not tracked */
    json_t *resumed;          /* the words of the resumed job, if the command line has none */
    struct ops_job *job;      /* ops/job.h: the job in progress; NULL: none */
    bool terminal;            /* stdout is a terminal */
    int64_t asked_ms;         /* wall time to which times such as "1h" (ago) refer: the start of the command, or of the resumed job */
    int64_t scanned, to_scan; /* progress of reading, for a job; to_scan 0: unknown */
    /* For commands that run inside another program (the API, top). */
    bool quiet;                    /* take no signals and write nothing to stderr; output is JSON and goes to where ops_out_to() says */
    const char *who;               /* the operator, for the audit; NULL: the user of this process */
    int64_t connect_ms, answer_ms; /* 0: the usual limits */
    int64_t deadline_ms;           /* boot clock, 0: none; nothing is requested after it */
};

/* Readers call it regularly, so that a job that searches for long and finds little still renews its
 * lease. */
int ops_tick(struct ops *o);

/* Records in the audit what an operator did without a job: `did` to n of what the words name. */
int ops_audit(struct ops *o, const char *did, int64_t n);
void ops_who(const struct ops *o, char *out, size_t size); /* "USER@HOST" */

/* ---- shards (ops/shard.c) ---- */

int ops_connect(struct ops *o);
void ops_disconnect(struct ops *o);
struct ops_shard *ops_shard_of(struct ops *o, struct lw_bytes lane);
/* ops_begin() (or ops_script()) and lw_arg…(&o->cmd, …) build a command, and ops_ask() sends it. It
 * returns NULL on failure, also for an error reply. */
void ops_begin(struct ops *o, const char *name);
void ops_script(struct ops *o, const struct lw_script *s, int n_keys);
/* appends PREFIX, name and rest as one argument */
void ops_key(struct ops *o, const struct ops_shard *sh, const char *name, struct lw_bytes rest);
redisReply *ops_ask(struct ops *o, struct ops_shard *sh);
/* Like ops_ask(), but a reply of another type is an error. */
redisReply *ops_ask_for(struct ops *o, struct ops_shard *sh, int type);
int ops_ask_int(struct ops *o, struct ops_shard *sh, long long *out);
/* How many elements to ask for next (2 to OPS_PAGE), after `asked` of them had `bytes` in all, so that large messages do not hold up Redis.
 */
int64_t ops_page_size(int64_t asked, size_t bytes);

/* ---- messages (ops/message.c) ---- */

/* A message in a waiting list or among the dead letters, decoded. */
struct ops_message {
    struct lw_bytes raw; /* the envelope */
    struct lw_envelope e;
    struct lw_bytes lane;
    bool bad;     /* the envelope cannot be read, so e is empty */
    bool foreign; /* read from a topic that the application does not consume, so nothing is known of its state */
    int shard;
    char state; /* of a waiting message: 'w', 'f' or '?' as in page.lua */
    int64_t attempts, due_ms;
    /* Of dead letters. */
    char id[64]; /* "SHARD:STREAM-ID" */
    struct lw_bytes reason, original, edited_by;
    int64_t first_ms, last_ms, edited_ms;
};

void ops_identity(const struct lw_envelope *e, char *out, size_t size);
/* Parses "orders/3/1042" or "orders/3/1042#1". */
int ops_identity_parse(const char *text, char topic[256], int32_t *partition, int64_t *offset, int64_t *replay);
bool ops_message_read(struct ops_message *m, struct lw_bytes raw); /* borrows raw; free it with ops_message_clear() */
void ops_message_clear(struct ops_message *m);
/* As JSON with kcat -J's names, then ours. payload_max: maximum bytes of the payload, SIZE_MAX: all
 * ("payload_size" says how many there are). */
json_t *ops_message_json(const struct ops_message *m, size_t payload_max);
/* The reverse, for import: appends an envelope to out. */
int ops_message_from_json(const json_t *o, int64_t now_ms, struct lw_buf *out, struct lw_err *err);
/* Finds the primary key of a record by the configured rule (*key) and the name of its lane (*lane);
 * both point into `e` or scratch. Returns -1 if the rule finds none: such a message has no lane. */
int ops_lane_of(const struct ops *o, const struct lw_envelope *e, struct lw_buf *scratch, struct lw_bytes *key, struct lw_bytes *lane,
                struct lw_err *err);

/* ---- lanes (ops/lane.c) ---- */

struct ops_lane {
    struct lw_bytes name;
    int shard;
    int64_t n;       /* number of elements in its list, some perhaps finished; -1: its name holds another type */
    bool has_head;   /* Of its oldest message: */
    char head[320];  /* the identity, */
    char topic[256]; /* and what filters look at */
    int64_t partition, first_ms, attempts, due_ms;
    struct lw_bytes lock; /* the lock's value; empty: nobody holds it */
    int64_t left_ms;      /* time until the lock ends; -1: never */
    int64_t now_ms;       /* Redis' time */
    bool paused;
};
/* Returns false for "backoff", a lock until the head may be tried again. Otherwise a worker holds
 * the lane: gives its id and the fence. */
bool ops_lane_held(const struct ops_lane *l, struct lw_bytes *worker, uint64_t *fence);

/* As queue ls shows it, with and without --json (ops/lane_text.c). */
json_t *ops_lane_json(const struct ops_lane *l);
int64_t ops_lane_age(const struct ops_lane *l); /* of its oldest message, in ms; -1: none waits */
void ops_holder_text(const struct ops_lane *l, struct lw_buf *out);
/* Pause and resume by the lane's name (ops/pause.c). *changed: its state was different before. */
int ops_pause(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed);
int ops_resume(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed);

/* Reads lanes by name, one call for all of them in a shard (OPS_BATCH at most); calls fn for each
 * in order. */
typedef int ops_lane_fn(struct ops *o, const struct ops_lane *l, void *ctx); /* returns 1 to stop, -1 on failure */
int ops_look(struct ops *o, struct ops_shard *sh, const struct lw_bytes *lanes, size_t n, ops_lane_fn *fn, void *ctx);
/* Calls fn for all lanes that have waiting messages or are paused, and whose name passes the
 * filters: those named by --key, or all by cursors, which may return a lane twice. Returns 1 if fn
 * stopped it. */
int ops_each_lane(struct ops *o, ops_lane_fn *fn, void *ctx);
/* Reads part of the lanes of one shard: those with waiting messages, or (idle) the paused ones
 * without. Begin with the cursor "0"; it is "0" again at the end. Reads about `count` names, more
 * if the set is small. */
enum { OPS_CURSOR = 32 };
int ops_lane_page(struct ops *o, struct ops_shard *sh, bool idle, char cursor[OPS_CURSOR], int64_t count, ops_lane_fn *fn, void *ctx);
/* Calls fn for every message that waits in a lane, oldest first, while workers go on. Messages that
 * come or go meanwhile may be included or not. */
typedef int ops_message_fn(struct ops *o, struct ops_message *m, void *ctx);
int ops_each_waiting(struct ops *o, int shard, struct lw_bytes lane, ops_message_fn *fn, void *ctx);
/* The same over all lanes, for the messages that pass the filters. */
int ops_each_message(struct ops *o, ops_message_fn *fn, void *ctx);

/* ---- filters (ops/filter.c) ---- */

int ops_filter_check(struct ops *o, struct lw_err *err); /* rejects texts that are not filters */
bool ops_lane_matches(const struct ops *o, struct lw_bytes lane);
/* applies the filters for topic, partition, age and attempts to its oldest message */
bool ops_lane_head_matches(const struct ops *o, const struct ops_lane *l);
bool ops_message_matches(const struct ops *o, const struct ops_message *m);
bool ops_has_filter(const struct ops *o); /* true if any filter leaves something out */
/* The words are IDs of messages. ops_message_matches() marks each word whose message it meets, whatever the
 * other filters say. After all messages were read, ops_tell_missing() reports each unmarked word on stderr
 * with the reason `why` ("no dead letter has this id") and returns how many there are. For a resumed job it
 * returns 0, because the job's first run has already handled the messages that are gone. */
#define OPS_NO_LETTER "no dead letter has this id or identity"
#define OPS_NO_RECORD "no record has this identity"
#define OPS_NOT_WAITING "no waiting message has this identity"
void ops_mark_word(const struct ops *o, const char *word, enum ops_met met);
int ops_tell_missing(struct ops *o, const char *why);

/* ---- output (ops/out.c) ---- */

void ops_put_json(json_t *o);                                       /* prints one line; takes the reference */
void ops_out_to(struct lw_buf *b);                                  /* where this thread's lines go from now on; NULL: stdout */
void ops_set_bytes(json_t *o, const char *name, struct lw_bytes b); /* sets name, or name_base64 if b is not UTF-8, or null */
/* Appends b in printable form, at most `most` columns or bytes; control characters become '?'. */
void ops_text(struct lw_buf *out, struct lw_bytes b, size_t most);
const char *ops_age(int64_t ms, char out[16]); /* "3 m"; "-" for a negative age */
const char *ops_when(int64_t wall_ms, char out[32]);
struct ops_column {
    const char *name;
    bool right;
};
/* An aligned table: begin, add cells in order, then print, which also frees it. */
struct ops_table {
    const struct ops_column *columns;
    size_t n_columns, n_cells, cap;
    char **cells;
};
void ops_cell(struct ops_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ops_cell_bytes(struct ops_table *t, struct lw_bytes b, size_t most);
void ops_table_print(struct ops_table *t);

#endif
