/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what `latchwork queue` and `latchwork dead` share: options, connections to the shards,
 * filters, the conversion of messages to text and JSON, and jobs (bulk commands, which run one at a
 * time, and are numbered and recorded).
 *
 * A struct ops belongs to one thread. The functions may block, but every wait has a limit. No
 * function blocks Redis for long, because each request or script reads only a small part of the
 * data. Unless its comment says something else, a function returns 0, or -1 with `err` filled. */
#ifndef LW_OPS_OPS_H
#define LW_OPS_OPS_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/redis/command.h"
#include "base/redis/connection.h"
#include "config/config.h"
#include "config/shard.h"
#include "ops/script.h"
#include "queue/envelope.h"
#include "queue/lane.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { OPS_FAILED = 1, OPS_USAGE = 2 };
enum { OPS_NO_LIMIT = -1 };
enum {
    OPS_LIST_MAX = 256,
    OPS_BATCH = 16,
    OPS_PAGE = 32,
    OPS_PAGE_FIRST = 2,
    /* maximum number of messages granted to a holder at once; must be equal to AHEAD_MAX in
     * consumer/worker/shard.h */
    OPS_AHEAD = 64,
    OPS_DEAD_ID = 320 /* room for the id of a dead letter */
};

/* --- what is asked for ------------------------------------------------------------------------ */

struct ops_args {
    bool json, raw, execute, again, stop_on_error, reverse;
    bool no_backup; /* true: the command drops without a backup, which only the API can request */
    int64_t limit;  /* value of --limit; -1: not given */
    double rate;    /* maximum rate in messages per second; 0: no limit */
    const char *sort;
    /* The members from `keys` to `to` hold the filters that the options set. */
    const char *keys[OPS_LIST_MAX], *where[OPS_LIST_MAX];
    size_t n_keys, n_where;
    const char *match, *topic, *reason, *error;
    int64_t partition, attempts, older_ms; /* values of the filters; -1: not given */
    /* `from` and `to` are the limits of the range to read; each is a time, or @OFFSET */
    const char *from, *to;
    const char *to_topic, *backup;
    int64_t over_ms; /* value of --over in ms; 0: not given */
    int64_t watch_s; /* value of --watch; 0: not given */
    /* `resume` is the number of the job to resume; 0: no job is resumed */
    int64_t resume;
    /* values of --from-list, --list-redis and --list-key; NULL: the option is not given */
    const char *from_list, *list_redis, *list_key;
    bool try_handler;
    /* `fleet` is true if the command is about the fleet instead of a group, `each` if it is about
     * limits.group. The limits that it sets follow; 0: not given, OPS_NO_LIMIT: lifted */
    bool fleet, each;
    int64_t running, per_second, burst;
    char **words; /* the arguments of the command line after the verb */
    int n_words;
};

/* What is known about a message that the command line names: it is not found yet, it is found, or
 * it was reported as missing. */
enum ops_met { OPS_NOT_MET, OPS_MET, OPS_TOLD /* OPS_TOLD: not found, and reported as missing */ };

struct ops_log;

struct ops_shard {
    int index;
    char prefix[LW_SHARD_PREFIX]; /* prefix of the names of the shard's keys */
    struct lw_redis *redis;
    bool shares; /* true: the shard uses the connection of another shard on the same server */
    /* true while a cursor of this server is in use; another server does not know the cursor, so the
     * command fails if the shard moves to another server */
    bool in_scan;
};

/* Lets another thread follow the progress of a running command, and stop the command. Only the
 * command's thread writes the numbers. If a command has a watch, the command's job prints
 * nothing. */
struct ops_watch {
    /* If another thread sets `cancel`, the command stops at its next step with the error
     * "cancelled". */
    atomic_bool cancel;
    /* `until_ms` is the time on the boot clock at which the command stops; 0: no limit. It must not
     * change while the command runs. */
    int64_t until_ms;
    /* `ran_out` is true if the command stopped because of until_ms. Read it after the command has
     * ended. */
    bool ran_out;
    _Atomic int64_t number; /* number of the job; 0: the job has no number yet */
    /* `scanned` is the number of elements (messages or lanes) that were read, and `to_scan` the
     * total number of elements to read (0: unknown). */
    _Atomic int64_t scanned, to_scan;
    /* `taken` is the number of elements that were chosen, `done` the number of these that were
     * changed, and `problems` the number of these that could not be changed. */
    _Atomic int64_t taken, done, problems;
    /* If `told` is not NULL, it is called with the result for each chosen element. The texts are
     * valid only during the call. `problem` is true if the element could not be changed. */
    void (*told)(void *ctx, const char *name, const char *result, bool problem);
    void *ctx;
};

struct ops {
    const char *noun, *verb; /* words of the command, such as "queue" and "ls" */
    struct ops_args args;
    struct lw_config *c;
    struct ops_shard *shards;
    struct lw_commands cmd;         /* the command that is being built */
    const struct lw_script *script; /* the script that the command in `cmd` calls, or NULL */
    struct lw_err err;
    unsigned char *met;  /* one element of enum ops_met per word; NULL: words are not tracked */
    json_t *resumed;     /* owns the options of the resumed job if they come from its record */
    struct ops_job *job; /* the job in progress (ops/job.h); NULL: there is none */
    bool terminal;       /* true if stdout is a terminal */
    /* `asked_ms` is the wall time relative to which a time such as "1h" (one hour ago) is computed:
     * the start of the command or, for a resumed job, the start of that job. */
    int64_t asked_ms;
    /* `scanned` and `to_scan` show the progress of a job: the number of elements that were read,
     * and the total number of elements to read, which is 0 if it is unknown. */
    int64_t scanned, to_scan;
    int64_t names; /* number of names of lanes that were read */
    /* the topic of dead letters, open for reading from its first use until ops_disconnect(); NULL:
     * not open */
    struct ops_log *letters;
    /* `cut` is true if older records of the topic of dead letters were left out */
    bool cut;
    /* The members from `quiet` on are only for commands that run inside another program (the API,
     * top). */
    /* `quiet` is true if the command must install no signal handlers, write nothing to stderr, and
     * write JSON to the buffer of ops_out_to(). */
    bool quiet;
    const char *who; /* name of the operator, for the audit; NULL: the user of this process */
    /* `connect_ms` and `answer_ms` are the time limits for connecting and for a reply; 0: the
     * default limits */
    int64_t connect_ms, answer_ms;
    /* `watch` is the watch of this command; NULL: no other thread follows the command */
    struct ops_watch *watch;
    /* `deadline_ms` is the time on the boot clock after which nothing more is sent; 0: no limit */
    int64_t deadline_ms;
};

/* Renews the lease of the current job, if there is one, and reports the progress of the command to
 * the watch. Functions that read lanes or messages call ops_tick() regularly, so that a long
 * search does not cost the job its lease. Returns 0, or -1 if the command must stop: because the
 * watch requires it, or because the lease could not be renewed. */
int ops_tick(struct ops *o);

/* Records an action of an operator in the audit, for actions that are not jobs. `did` names the
 * action; `n` is the number of lanes or messages. */
int ops_audit(struct ops *o, const char *did, int64_t n);
/* Writes the operator's name to `out`: `who` if it is set, otherwise "USER@HOST". */
void ops_who(const struct ops *o, char *out, size_t size);

/* --- shards (ops/shard.c) --------------------------------------------------------------------- */

int ops_connect(struct ops *o); /* connects to all shards */
/* Connects only to the lane's shard and, with limits, to shard 0; use no other shard then. */
int ops_connect_lane(struct ops *o, struct lw_bytes lane);
void ops_disconnect(struct ops *o);
struct ops_shard *ops_shard_of(struct ops *o, struct lw_bytes lane);
/* To send a command, build it with ops_begin() or ops_script() and lw_arg…(&o->cmd, …), then call
 * ops_ask(), which sends it and returns the reply. If the request fails, or if the reply is an
 * error, ops_ask() returns NULL. */
void ops_begin(struct ops *o, const char *name);
void ops_script(struct ops *o, const struct lw_script *s, int n_keys);
/* Appends words, which are not copied: ops_words(o, "COUNT", "10"). */
#define ops_words(o, ...) ops_add_words(o, (const char *const[]){__VA_ARGS__, NULL})
void ops_add_words(struct ops *o, const char *const *words);
/* Appends the names of keys of the shard: ops_keys(o, sh, "epoch", "lanes"). */
#define ops_keys(o, sh, ...) ops_add_keys(o, sh, (const char *const[]){__VA_ARGS__, NULL})
void ops_add_keys(struct ops *o, const struct ops_shard *sh, const char *const *names);
/* Appends the name of a key that ends with `rest`, such as the name of a lane. */
void ops_key(struct ops *o, const struct ops_shard *sh, const char *name, struct lw_bytes rest);
redisReply *ops_ask(struct ops *o, struct ops_shard *sh);
/* Works like ops_ask(), but fails if the reply is not of the given REDIS_REPLY_… type. */
redisReply *ops_ask_for(struct ops *o, struct ops_shard *sh, int type);
/* Sets the error for a malformed reply to the command that was built last. `expected` and the
 * arguments after it describe the form that the reply should have (base/redis/reply.h). Always
 * returns -1. */
int ops_malformed(struct ops *o, const struct ops_shard *sh, const redisReply *r,
                  const char *expected, ...) __attribute__((format(printf, 4, 5)));
/* Sends a command that reads a stream, such as XRANGE. Works like ops_ask_for(), but returns only
 * an array of entries, each [ID, [name, value, ...]] of strings. */
redisReply *ops_ask_entries(struct ops *o, struct ops_shard *sh);
int ops_ask_int(struct ops *o, struct ops_shard *sh, long long *out);
/* Returns the number of elements to request next (2 to OPS_PAGE). `bytes` is the total size of the
 * last `asked` elements; if messages are large, fewer are requested, so that Redis is not blocked
 * for long. */
int64_t ops_page_size(int64_t asked, size_t bytes);

/* --- messages (ops/message.c) ----------------------------------------------------------------- */

/* A decoded message from a waiting list or from the dead letters. */
struct ops_message {
    struct lw_bytes raw; /* the envelope as it was stored */
    struct lw_envelope e;
    struct lw_bytes lane;
    bool bad; /* true: the envelope could not be decoded, and `e` is empty */
    /* true: the message was read from a topic that the application does not consume, so its state
     * is unknown */
    bool foreign;
    int shard;
    char state; /* state of a waiting message: 'w', 'f' or '?', as page.lua answers it */
    int64_t attempts, due_ms;
    /* The members from `id` on are set only for dead letters. */
    /* id of the dead letter: "SHARD:STREAM-ID" in Redis, or the place of its record in the topic,
     * TOPIC/PARTITION/OFFSET */
    char id[OPS_DEAD_ID];
    bool in_topic; /* true: the dead letter is in the topic dead.to, not in Redis */
    struct lw_bytes reason, original, edited_by;
    /* `first_ms` and `taken_ms` are 0 if unknown. `taken_ms` is the time at which a dead letter in
     * a topic was replayed, or an edited copy of it was stored in Redis. */
    int64_t first_ms, last_ms, edited_ms, taken_ms;
};

void ops_identity(const struct lw_envelope *e, char *out, size_t size);
/* Writes the name by which the scripts edit.lua, put.lua and drop.lua know a dead letter: its id in
 * the stream `dead`, or its identity if it is in a topic. Returns out. */
const char *ops_dead_entry(const struct ops_message *m, char out[OPS_DEAD_ID]);
/* Returns true if the text can be the name of a topic. */
bool ops_topic_ok(const char *name);
/* Parses an identity, such as "orders/3/1042", or "orders/3/1042#1" for a replay. Returns 0, or -1
 * if the text is no identity. */
int ops_identity_parse(const char *text, char topic[256], int32_t *partition, int64_t *offset,
                       int64_t *replay);
/* Decodes an envelope into a message, which borrows `raw`. Free the message with
 * ops_message_clear(). */
bool ops_message_read(struct ops_message *m, struct lw_bytes raw);
void ops_message_clear(struct ops_message *m);
/* Returns the message as JSON: first the members that kcat -J writes, then the members that only
 * Latchwork has. payload_max is the maximum number of payload bytes (SIZE_MAX: no limit). If the
 * payload is cut, the member "payload_size" contains the size of the whole payload. */
json_t *ops_message_json(const struct ops_message *m, size_t payload_max);
/* Decodes base64 (RFC 4648, with padding) and appends the bytes to out. Returns -1 if the text is
 * malformed. */
int ops_base64_decode(const char *s, size_t n, struct lw_buf *out);
/* For import: converts a message in the form of ops_message_json() to an envelope and appends it to
 * out. */
int ops_message_from_json(const json_t *o, int64_t now_ms, struct lw_buf *out, struct lw_err *err);
/* Copies the primary key of a record, which is found as configured (lw_key_of()), and the name of
 * the record's lane into `scratch`. *key and *lane point to these copies. Returns -1 with *err if
 * the record has no valid key. */
int ops_lane_of(const struct ops *o, const struct lw_envelope *e, struct lw_buf *scratch,
                struct lw_bytes *key, struct lw_bytes *lane, struct lw_err *err);

/* --- lanes (ops/lane.c) ----------------------------------------------------------------------- */

/* The message that a holder runs, as the holder's last renewal told it (renew.lua). */
struct ops_run {
    char identity[320];
    int attempt;
    int64_t since_ms; /* when its handler began, ms since 1970 by the worker's clock */
};
/* Returns {"identity","attempt","since_ms"}, or JSON null if `run` is NULL. */
json_t *ops_run_json(const struct ops_run *run);
/* Appends a description for people, such as "orders/3/1042, attempt 2, for 3 min". If `run` is
 * NULL, says why it is not known. */
void ops_run_text(const struct ops_run *run, int64_t now_ms, struct lw_buf *out);

struct ops_lane {
    struct lw_bytes name;
    int shard;
    /* `n` is the number of elements in the lane's list, finished messages included; -1: the Redis
     * key of the waiting list is not a list */
    int64_t n;
    /* `has_head` is true if a message waits. Then the members from `head` to `due_ms` describe the
     * oldest waiting message. */
    bool has_head;
    char head[320]; /* identity of the oldest message */
    /* `topic` is the topic of the oldest message. Filters use `topic`, `partition`, `first_ms` and
     * `attempts`. */
    char topic[256];
    int64_t partition, first_ms, attempts, due_ms;
    struct lw_bytes lock; /* value of the lock; empty if nobody holds the lane */
    int64_t left_ms;      /* ms until the lock ends; -1: the lock never ends */
    int64_t now_ms;       /* time of the answer by Redis' clock */
    bool paused;
    bool runs;          /* true: `run` is the message that the holder runs */
    struct ops_run run; /* not set if `runs` is false */
};
/* Returns true if the lane has a holder. *worker and *fence become the holder's id and the fence of
 * its hold. A lock whose value begins with "backoff" has no holder: such a lock only delays the
 * head. */
bool ops_lane_held(const struct ops_lane *l, struct lw_bytes *worker, uint64_t *fence);

/* Why no message of a lane runs, although some wait (ops/why.c). */
struct ops_why {
    /* "paused", "quarantine", "backoff", "fleet" (its limits, or it is paused), "group" (it is
     * paused), "place" or "token" of the group, "handler", or "unknown"; NULL: a message runs, or
     * none waits */
    const char *reason;
    char text[240]; /* for people, without a full stop */
};
/* Needs connections to the lane's shard and, with limits, to shard 0. */
int ops_why(struct ops *o, const struct ops_lane *l, struct ops_why *out);
/* Returns {"reason","text"}, or JSON null without a reason. */
json_t *ops_why_json(const struct ops_why *why);

/* Writes a lane in the form of `queue ls` with and without --json (ops/lane_text.c). */
json_t *ops_lane_json(const struct ops_lane *l);
/* Returns the age of the lane's oldest message in ms, or -1 if no message waits. */
int64_t ops_lane_age(const struct ops_lane *l);
void ops_holder_text(const struct ops_lane *l, struct lw_buf *out);
/* ops_pause() pauses the named lane, and ops_resume() resumes it (ops/pause.c). ops_pause() sets
 * *changed to true if the lane was not paused before, and ops_resume() if the lane was paused. */
int ops_pause(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed);
int ops_resume(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, bool *changed);
/* Ends the lock of the lane, whoever holds it, and records it in the audit. *fence becomes the
 * raised fence, and the lock's old value is appended to `was`. If nobody held the lock, *fence
 * becomes 0. */
int ops_break(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, uint64_t *fence,
              struct lw_buf *was);

/* The type of a callback for one lane. It returns 0 to continue, 1 to stop, and -1 on failure. */
typedef int ops_lane_fn(struct ops *o, const struct ops_lane *l, void *ctx);
/* Reads the named lanes of one shard, at most OPS_BATCH of them, and calls fn for each in order. */
int ops_look(struct ops *o, struct ops_shard *sh, const struct lw_bytes *lanes, size_t n,
             ops_lane_fn *fn, void *ctx);
/* Calls fn for each lane that has waiting messages or is paused, and whose name passes the filters.
 * With --key, calls fn for each named lane instead, whatever its state. Without --key, all lanes
 * are read, and fn may be called twice for a lane, because cursors are used. Returns 0 after the
 * last lane, 1 if fn stopped the reading, or -1 with o->err on failure. */
int ops_each_lane(struct ops *o, ops_lane_fn *fn, void *ctx);
enum { OPS_CURSOR = 32 };
/* Reads some lanes of one shard: the lanes with waiting messages or, if `idle` is true, the paused
 * lanes without waiting messages. Begin with the cursor "0"; the cursor is "0" again after the last
 * lane. A call reads about `count` names, or more if the set is small. */
int ops_lane_page(struct ops *o, struct ops_shard *sh, bool idle, char cursor[OPS_CURSOR],
                  int64_t count, ops_lane_fn *fn, void *ctx);
typedef int ops_message_fn(struct ops *o, struct ops_message *m, void *ctx);
/* Calls fn for every message in the waiting list of a lane, oldest first, while workers continue.
 * m->state says whether the message still waits. If a message is added or removed during the
 * reading, fn may or may not get this message. */
int ops_each_waiting(struct ops *o, int shard, struct lw_bytes lane, ops_message_fn *fn, void *ctx);
/* Calls fn for every waiting message that passes the filters, in all lanes. */
int ops_each_message(struct ops *o, ops_message_fn *fn, void *ctx);

/* --- filters (ops/filter.c) ------------------------------------------------------------------- */

/* Checks the texts of the filters. Returns -1 if one of them is malformed. */
int ops_filter_check(struct ops *o, struct lw_err *err);
/* Returns true if the text matches the glob pattern (* ? [set] and \\). */
bool ops_glob(struct lw_bytes pattern, struct lw_bytes text);
bool ops_lane_matches(const struct ops *o, struct lw_bytes lane);
/* Applies the filters for topic, partition, age and attempts to a lane's oldest message. Returns
 * true if the message passes all of these filters. */
bool ops_lane_head_matches(const struct ops *o, const struct ops_lane *l);
bool ops_message_matches(const struct ops *o, const struct ops_message *m);
bool ops_has_filter(const struct ops *o); /* true if any filter is set */
/* The reasons that are passed to ops_tell_missing(). */
#define OPS_NO_LETTER "no dead letter has this id or identity"
#define OPS_NO_RECORD "no record has this identity"
#define OPS_NOT_WAITING "no waiting message has this identity"
/* These functions are for commands whose arguments name messages. ops_message_matches() marks the
 * argument that names the message, even if another filter rejects the message. ops_mark_word()
 * marks an argument as found or as reported. After all messages were read, ops_tell_missing()
 * returns the number of arguments that were not found. It also reports each of them on stderr with
 * the reason `why`, unless the argument was reported before or the command is quiet. For a resumed
 * job ops_tell_missing() reports nothing and returns 0, because the job may have processed the
 * missing messages before it was interrupted. */
void ops_mark_word(const struct ops *o, const char *word, enum ops_met met);
int ops_tell_missing(struct ops *o, const char *why);

/* --- output (ops/out.c) ----------------------------------------------------------------------- */

/* Prints a JSON value in one line, and takes over the caller's reference. */
void ops_put_json(json_t *o);
/* Sets the buffer to which this thread prints its lines from now on; NULL means stdout. */
void ops_out_to(struct lw_buf *b);
/* Sets the member `name` of the object `o` to the text `b`. If `b` is not UTF-8, sets the member
 * NAME_base64 to the base64 of `b` instead. If b.p is NULL, the value of the member is null. */
void ops_set_bytes(json_t *o, const char *name, struct lw_bytes b);
/* Appends b in printable form, in at most `most` columns; control characters become '?'. A text
 * that is cut ends with "…". */
void ops_text(struct lw_buf *out, struct lw_bytes b, size_t most);
/* Prints the line "NAME TEXT" of a description, with the text as ops_text() writes it. */
void ops_put_text(const char *name, struct lw_bytes b, size_t most);
/* Formats an age, such as "3 min", or "-" if the age is negative. */
const char *ops_age(int64_t ms, char out[16]);
const char *ops_when(int64_t wall_ms, char out[32]);
struct ops_column {
    const char *name;
    bool right;
};
/* A table with aligned columns. Initialize it, add cells in order, then print it. Printing also
 * frees the table. */
struct ops_table {
    const struct ops_column *columns;
    size_t n_columns, n_cells, cap;
    char **cells;
};
void ops_cell(struct ops_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ops_cell_bytes(struct ops_table *t, struct lw_bytes b, size_t most);
void ops_table_print(struct ops_table *t);

#endif
