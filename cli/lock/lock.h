/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork lock VERB …`: what its verbs share. Each verb has a file: exec.c, ls.c, show.c,
 * break.c.
 */
#ifndef LW_CLI_LOCK_LOCK_H
#define LW_CLI_LOCK_LOCK_H

#include "cli/options.h"
#include "ops/lane_lock.h"

#include <stdio.h>

enum { LOCK_EXIT_FAILED = 1, LOCK_EXIT_USAGE = 2, LOCK_EXIT_BUSY = 75 };

extern const struct cli_command cli_lock;

/* One command line. Strings are argv's. Either cli.config or redis is set; cli.tail is the command of exec. */
struct lock_args {
    struct cli_args cli;
    const char *key, *redis, *match;
    const char *tls_ca, *tls_cert, *tls_key, *tls_name;
    int64_t ttl_ms, wait_ms, kill_after_ms, set_ttl_ms; /* 0: not given */
    int64_t limit;                                      /* 0: none */
    bool plain, execute, paused, without_ttl;
};

int lock_exec(const struct lock_args *a);
int lock_ls(const struct lock_args *a);
int lock_show(const struct lock_args *a);
int lock_break(const struct lock_args *a);

/* Reports the error on stderr, with the verb before it. Returns the status: usage for invalid
 * calls, otherwise failed. */
int lock_failed(const struct lock_args *a, const struct latchwork_error *error);
void lock_say(const struct lock_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The configuration of -c; NULL with every problem on stderr. The handler section is not checked,
 * because no handler is needed. */
struct lw_config *lock_config(const struct lock_args *a);

/* A client for the Redis of --redis, with the options and variables that say how to log in. NULL with *error. */
struct latchwork_client *lock_client_open(const struct lock_args *a, struct latchwork_error *error);

/* What KEY names: a lane of an application, or a name in one Redis. */
struct lock_target {
    struct lw_config *config;
    struct lw_lane_lock *lane;
    struct latchwork_client *client;
    struct latchwork_lock *lock;
};
/* Returns 0, or the exit status after reporting the error. Call close after a failure, too. */
int lock_target_open(struct lock_target *t, const struct lock_args *a, const struct latchwork_lock_options *options);
void lock_target_close(struct lock_target *t);

/* --- telling -------------------------------------------------------------------------------------------------------------------------- */

/* A hold as it is printed. Borrowed. */
struct lock_row {
    struct lw_bytes key, token;
    const char *kind;        /* "lane", "backoff", "mutex", "read", "write", "semaphore", "plain" */
    int shard;               /* -1: none */
    struct lw_bytes holder;  /* p NULL: unknown */
    uint64_t fence;          /* 0: unknown */
    int64_t since_ms;        /* ms since 1970, by Redis' clock; 0 unknown */
    int64_t left_ms, now_ms; /* -1: no TTL; Redis' clock */
    int64_t waiting;
    bool paused;
};
/* Made from the library's information. For a lane's lock (tag given) the key is what follows the
 * tag. */
struct lock_row lock_row_of(const struct latchwork_lock_info *info, int64_t now_ms, bool plain, const char *tag, int shard);
/* Redis' clock, ms since 1970; this machine's if Redis cannot be asked. */
int64_t lock_redis_now_ms(struct latchwork_client *client);
void lock_print_json(const struct lock_row *r);
void lock_print_free(const char *key, int64_t waiting, bool paused); /* prints JSON that says that nobody holds it */
/* Prints JSON that says what break did or would do; fence 0 if it did nothing. */
void lock_print_broken(const char *key, const char *kind, struct lw_bytes holder, uint64_t fence, bool done);
void lock_print_head(void); /* prints the column headings */
void lock_print_row(const struct lock_row *r);
void lock_print_whole(const struct lock_row *r); /* prints one line per property */
/* Any bytes in printable form: control characters become '?'. Returns out. */
const char *lock_text(struct lw_bytes b, char *out, size_t size);
/* Returns 0, or failed if stdout could not be written. */
int lock_flush(const struct lock_args *a);

#endif
