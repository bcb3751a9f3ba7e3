/* SPDX-License-Identifier: Apache-2.0 */
/* What `latchwork queue` and `latchwork dead` share: what they are asked for, the connections to the shards, filters, messages as people
 * and programs see them, and jobs (bulk commands: one at a time, numbered, recorded).
 *
 * All of it blocks, in one thread, with a bound on every wait; nothing blocks Redis: cursors, pages and small scripts. Functions return 0,
 * or -1 after they have filled `err`. */
#ifndef LW_OPS_OPS_H
#define LW_OPS_OPS_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/redis/command.h"
#include "config/config.h"
#include "ops/script.h"
#include "queue/envelope.h"
#include "queue/lane.h"

#include <hiredis/hiredis.h>
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
    OPS_AHEAD = 64 /* as AHEAD_MAX of consumer/worker/limits.h */
};

/* ---- what is asked for ---- */

struct ops_args {
    bool json, raw, execute, again, stop_on_error, reverse;
    int64_t limit; /* -1: not given */
    double rate;   /* a second; 0: no limit */
    const char *sort;
    /* filters */
    const char *keys[OPS_LIST_MAX], *where[OPS_LIST_MAX];
    size_t n_keys, n_where;
    const char *match, *topic, *reason, *error;
    int64_t partition, attempts, older_ms; /* -1: not given */
    const char *from, *to;                 /* times, or @OFFSET */
    const char *to_topic, *backup;
    int64_t over_ms; /* 0: not given */
    int64_t resume;  /* a job's number; 0: none */
    bool try_handler;
    char **words; /* behind the verb */
    int n_words;
};

/* Whether a message that the command line names was found. */
enum ops_met { OPS_NOT_MET, OPS_MET, OPS_TOLD /* not found, and already reported */ };

struct ops_shard {
    int index;
    char prefix[160]; /* lw:{NAME.SHARD}: */
    redisContext *redis;
    bool shares; /* the context is another shard's, of the same server */
};

struct ops {
    const char *noun, *verb; /* "queue", "ls" */
    struct ops_args args;
    struct lw_config *c;
    struct ops_shard *shards;
    struct lw_commands cmd;         /* the one that is being built */
    const struct lw_script *script; /* that it calls, or NULL */
    struct lw_err err;
    unsigned char *met;       /* enum ops_met, one per word; NULL: not tracked */
    json_t *resumed;          /* the words of the job that goes on, where the command line has none */
    struct ops_job *job;      /* ops/job.h: the one that is under way; NULL: none */
    bool terminal;            /* stdout is one */
    int64_t asked_ms;         /* wall time that times such as "1h" (ago) refer to: the start, also of a job that goes on */
    int64_t scanned, to_scan; /* how far the reading is, for the progress of a job; to_scan 0: not known */
    /* Where a command is run inside another program (the API, top): */
    bool quiet;                    /* no signals are taken, nothing goes to stderr; output as JSON, and to where ops_out_to() says */
    const char *who;               /* for the audit, NULL: the user of this process */
    int64_t connect_ms, answer_ms; /* 0: the usual waits */
    int64_t deadline_ms;           /* boot clock, 0: none; nothing is asked behind it */
};

/* Called by what reads, now and then: a job that looks for long, and finds little, still says that it lives. */
int ops_tick(struct ops *o);

/* What an operator did beside jobs, for those who ask later (queue audit): n of what the words name. */
int ops_audit(struct ops *o, const char *did, int64_t n);
void ops_who(const struct ops *o, char *out, size_t size); /* "USER@HOST" */

/* ---- shards (ops/shard.c) ---- */

int ops_connect(struct ops *o);
void ops_disconnect(struct ops *o);
struct ops_shard *ops_shard_of(struct ops *o, struct lw_bytes lane);
/* A command is built by ops_begin (or ops_script) and lw_arg…(&o->cmd, …), and sent by ops_ask: NULL where it failed, also by an error
 * reply. */
void ops_begin(struct ops *o, const char *name);
void ops_script(struct ops *o, const struct lw_script *s, int n_keys);
void ops_key(struct ops *o, const struct ops_shard *sh, const char *name, struct lw_bytes rest); /* PREFIX name rest */
redisReply *ops_ask(struct ops *o, struct ops_shard *sh);
/* The same, of one type; another one is an error. */
redisReply *ops_ask_for(struct ops *o, struct ops_shard *sh, int type);
int ops_ask_int(struct ops *o, struct ops_shard *sh, long long *out);
/* How many elements to ask for next (2 to OPS_PAGE), after `asked` of them had `bytes` in all, so that large messages do not hold up Redis.
 */
int64_t ops_page_size(int64_t asked, size_t bytes);

/* ---- messages (ops/message.c) ---- */

/* A message in a list or among the dead, decoded. */
struct ops_message {
    struct lw_bytes raw; /* the envelope */
    struct lw_envelope e;
    struct lw_bytes lane;
    bool bad;     /* the envelope can't be read: e is empty */
    bool foreign; /* read from a topic that the application does not consume: nothing is known of its state */
    int shard;
    char state; /* waiting: 'w', 'f' or '?' as in page.lua */
    int64_t attempts, due_ms;
    /* dead letters */
    char id[64]; /* "SHARD:STREAM-ID" */
    struct lw_bytes reason, original, edited_by;
    int64_t first_ms, last_ms, edited_ms;
};

void ops_identity(const struct lw_envelope *e, char *out, size_t size);
/* "orders/3/1042" or "orders/3/1042#1" */
int ops_identity_parse(const char *text, char topic[256], int32_t *partition, int64_t *offset, int64_t *replay);
bool ops_message_read(struct ops_message *m, struct lw_bytes raw); /* borrows raw; ops_message_clear() */
void ops_message_clear(struct ops_message *m);
/* With kcat -J's names, and ours behind them. payload_max: bytes of the payload, SIZE_MAX all ("payload_size" says how many there are). */
json_t *ops_message_json(const struct ops_message *m, size_t payload_max);
/* The reverse, for import: an envelope appended to out. */
int ops_message_from_json(const json_t *o, int64_t now_ms, struct lw_buf *out, struct lw_err *err);
/* The primary key of a record by the rule of the configuration, into *key, and its lane's name into *lane; both live in `e` or in scratch.
 * -1 where the rule finds none: such a message has no lane to go to. */
int ops_lane_of(const struct ops *o, const struct lw_envelope *e, struct lw_buf *scratch, struct lw_bytes *key, struct lw_bytes *lane,
                struct lw_err *err);

/* ---- lanes (ops/lane.c) ---- */

struct ops_lane {
    struct lw_bytes name;
    int shard;
    int64_t n;       /* elements of its list; some may be finished; -1: its name holds another type */
    bool has_head;   /* of the oldest that waits: */
    char head[320];  /* its identity */
    char topic[256]; /* and what filters ask for */
    int64_t partition, first_ms, attempts, due_ms;
    struct lw_bytes lock; /* the lock's value, empty: nobody holds it */
    int64_t left_ms;      /* until it ends, -1: never */
    int64_t now_ms;       /* of Redis */
    bool paused;
};
/* "backoff": locked until its head may be tried again. Otherwise a worker holds it: its id, and the fence. */
bool ops_lane_held(const struct ops_lane *l, struct lw_bytes *worker, uint64_t *fence);

/* As queue ls shows it, with --json and without (ops/lane_text.c). */
json_t *ops_lane_json(const struct ops_lane *l);
int64_t ops_lane_age(const struct ops_lane *l); /* of its oldest message, in ms; -1: none waits */
void ops_holder_text(const struct ops_lane *l, struct lw_buf *out);
/* By the lane's name (ops/pause.c). *changed: it was not so before. */
int ops_pause(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed);
int ops_resume(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed);

/* Lanes by name, one call for all of them in a shard (OPS_BATCH at most); fn for each in order. */
typedef int ops_lane_fn(struct ops *o, const struct ops_lane *l, void *ctx); /* 1: enough; -1: failed */
int ops_look(struct ops *o, struct ops_shard *sh, const struct lw_bytes *lanes, size_t n, ops_lane_fn *fn, void *ctx);
/* All lanes that have waiters or are paused and whose name the filters let pass: those named by --key, or all by cursors, in which case a
 * lane may come twice. 1 where fn had enough. */
int ops_each_lane(struct ops *o, ops_lane_fn *fn, void *ctx);
/* A part of them: those of one shard that have waiters, or (idle) that are paused and have none. Begin with the cursor "0"; it is "0" again
 * at the end. About `count` names are looked at, more where the set is small. */
enum { OPS_CURSOR = 32 };
int ops_lane_page(struct ops *o, struct ops_shard *sh, bool idle, char cursor[OPS_CURSOR], int64_t count, ops_lane_fn *fn, void *ctx);
/* All that waits in a lane, oldest first, while it goes on: what comes and goes meanwhile may be among them or not. */
typedef int ops_message_fn(struct ops *o, struct ops_message *m, void *ctx);
int ops_each_waiting(struct ops *o, int shard, struct lw_bytes lane, ops_message_fn *fn, void *ctx);
/* The same over all lanes and for the messages that the filters let pass. */
int ops_each_message(struct ops *o, ops_message_fn *fn, void *ctx);

/* ---- filters (ops/filter.c) ---- */

int ops_filter_check(struct ops *o, struct lw_err *err); /* texts that are no filters */
bool ops_lane_matches(const struct ops *o, struct lw_bytes lane);
bool ops_lane_head_matches(const struct ops *o, const struct ops_lane *l); /* topic, partition, age and attempts of its oldest */
bool ops_message_matches(const struct ops *o, const struct ops_message *m);
bool ops_has_filter(const struct ops *o); /* anything that leaves something out */
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

void ops_put_json(json_t *o);                                       /* one line; takes the reference */
void ops_out_to(struct lw_buf *b);                                  /* where this thread's lines go from now on; NULL: stdout */
void ops_set_bytes(json_t *o, const char *name, struct lw_bytes b); /* name, or name_base64 where it is not UTF-8; null where b is */
/* Printable, at most `most` columns or bytes; what a terminal could take for a command is '?'. */
void ops_text(struct lw_buf *out, struct lw_bytes b, size_t most);
const char *ops_age(int64_t ms, char out[16]); /* "3 m", "-" where negative */
const char *ops_when(int64_t wall_ms, char out[32]);
struct ops_column {
    const char *name;
    bool right;
};
/* Rows of cells, aligned: begin, cells in order, then print, which also frees. */
struct ops_table {
    const struct ops_column *columns;
    size_t n_columns, n_cells, cap;
    char **cells;
};
void ops_cell(struct ops_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ops_cell_bytes(struct ops_table *t, struct lw_bytes b, size_t most);
void ops_table_print(struct ops_table *t);

#endif
