/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the functions and types that the verbs of `latchwork lock VERB …` share. The verbs are
 * in exec.c, ls.c, show.c and break.c. */
#ifndef LW_CLI_LOCK_LOCK_H
#define LW_CLI_LOCK_LOCK_H

#include "cli/options.h"
#include "ops/lane_lock.h"

#include <stdio.h>

enum { LOCK_EXIT_FAILED = 1, LOCK_EXIT_USAGE = 2, LOCK_EXIT_BUSY = 75 };

extern const struct cli_command cli_lock;

/* Holds the arguments of one command line. The strings belong to argv. Either cli.config or redis
 * is set; cli.tail is the command that the verb exec runs. */
struct lock_args {
    struct cli_args cli;
    const char *key, *redis, *match;
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
    /* `ttl_ms`, `wait_ms`, `kill_after_ms` and `set_ttl_ms` are the values of --ttl, --wait,
     * --kill-after and --set-ttl in ms; 0: not given */
    int64_t ttl_ms, wait_ms, kill_after_ms, set_ttl_ms;
    /* `limit` is the maximum number of locks to list; 0: no limit */
    int64_t limit;
    bool plain, cluster, execute, paused, without_ttl;
};

int lock_exec(const struct lock_args *a);
int lock_ls(const struct lock_args *a);
int lock_show(const struct lock_args *a);
int lock_break(const struct lock_args *a);

/* Reports the error on stderr, after the name of the verb. Returns the exit status for wrong usage
 * if the error says that the arguments were invalid, otherwise the exit status for a failure. */
int lock_failed(const struct lock_args *a, const struct latchwork_error *error);
void lock_say(const struct lock_args *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Loads the configuration that -c names. Returns NULL after reporting every problem on stderr. Does
 * not check the handler section, because no verb of `lock` needs a handler. */
struct lw_config *lock_config(const struct lock_args *a);

/* Opens a client for the Redis that --redis names, or for the cluster whose nodes --redis names.
 * The client logs in as the options and environment variables say. Returns NULL with *error on
 * failure. */
struct latchwork_client *lock_client_open(const struct lock_args *a, struct latchwork_error *error);

/* Describes the lock that KEY names. It is either the lock of a lane of an application, or a lock
 * of the library, in one Redis or in a cluster. */
struct lock_target {
    /* `config`, `ops`, `name` and `lane` are set only for the lock of a lane. `ops` is connected by
     * lock_lane_connect(). */
    struct lw_config *config;
    struct ops ops;
    struct lw_bytes name; /* of the lane, borrowed from argv or `room` */
    char room[LW_LANE_ROOM];
    struct lw_lane_lock *lane;
    struct latchwork_client *client;
    struct latchwork_lock *lock;
};
/* Opens the lock that KEY names. Returns 0 on success; otherwise reports the error and returns the
 * exit status. Call lock_target_close() even after a failure. */
int lock_target_open(struct lock_target *t, const struct lock_args *a,
                     const struct latchwork_lock_options *options);
void lock_target_close(struct lock_target *t);
/* Connects t->ops to the shard of the lane. Returns 0, or -1 with t->ops.err. */
int lock_lane_connect(struct lock_target *t);
/* Sets *error to the error of t->ops. Always returns LATCHWORK_LOCK_ERROR. */
enum latchwork_result lock_lane_failed(const struct lock_target *t, struct latchwork_error *error);

/* --- telling ---------------------------------------------------------------------------------- */

/* Describes one hold of a lock for printing. The strings are borrowed. */
struct lock_row {
    struct lw_bytes key, token;
    /* kind of the lock: "lane", "backoff", "mutex", "read", "write", "semaphore" or "plain" */
    const char *kind;
    int shard;              /* number of the lock's shard; -1: the lock belongs to no shard */
    struct lw_bytes holder; /* name of the holder; p is NULL if the holder is unknown */
    uint64_t fence;         /* fence of the hold; 0: unknown */
    int64_t since_ms;       /* start of the hold, ms since 1970 by Redis' clock; 0: unknown */
    /* `left_ms` is the number of ms until the hold ends (-1: the lock has no TTL). `now_ms` is the
     * time of the reply by Redis' clock. */
    int64_t left_ms, now_ms;
    int64_t waiting;
    bool paused;
    const struct ops_run *run; /* the message that the holder runs; NULL: not known */
    const struct ops_why *why; /* why no message of the lane runs; NULL: it is no lane */
};
/* Returns a row with the data that the library reports about a lock. `tag` is NULL unless the lock
 * belongs to a lane. For a lane, `tag` is the prefix of the shard's key names, and the row has the
 * lane's key, which is the lock's name without `tag` and "lock:". If the lock's name is already the
 * lane's key, `tag` is "". */
struct lock_row lock_row_of(const struct latchwork_lock_info *info, int64_t now_ms, bool plain,
                            const char *tag, int shard);
/* Returns the time of Redis' clock, ms since 1970, or of this machine's clock if Redis cannot be
 * asked. */
int64_t lock_redis_now_ms(struct latchwork_client *client);
void lock_print_json(const struct lock_row *r);
/* Prints JSON that says that nobody holds the lock. */
void lock_print_free(const char *key, int64_t waiting, bool paused, const struct ops_why *why);
/* Prints JSON that says which lock `lock break` has broken or would break. If the fence is 0, the
 * lock was not broken. */
void lock_print_broken(const char *key, const char *kind, struct lw_bytes holder, uint64_t fence,
                       bool done);
void lock_print_head(void); /* prints a line with the column headings */
void lock_print_row(const struct lock_row *r);
/* prints the lock in several lines, one per property */
void lock_print_whole(const struct lock_row *r);
/* Copies the bytes in printable form: control characters become '?'. Returns out. */
const char *lock_text(struct lw_bytes b, char *out, size_t size);
/* Flushes stdout. Returns 0, or the exit status of a failure if stdout could not be written. */
int lock_flush(const struct lock_args *a);

#endif
