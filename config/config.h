/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of one application: a JSON file, `--set path=value` overrides and defaults, checked against one table of keys
 * (config/keys.c) that also makes `check`, the help and the reference page.
 *
 * lw_config_load() reads, expands ${VAR}, fills defaults and checks everything it can check without a server. It lists *all* problems
 * at once, one a line, each with a path ("lock.ttl_ms: …") or a line and column. The result is one block that never changes afterwards;
 * free it with lw_config_free(). Strings are UTF-8, NUL-terminated and owned by the configuration. Not thread-safe while loading. */
#ifndef LW_CONFIG_CONFIG_H
#define LW_CONFIG_CONFIG_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "base/redis/servers.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum lw_key_from { LW_KEY_MESSAGE, LW_KEY_HEADER, LW_KEY_JSON };
enum lw_key_missing { LW_MISSING_DEAD, LW_MISSING_SKIP, LW_MISSING_OWN };
enum lw_on_busy { LW_BUSY_PARK, LW_BUSY_DROP };
enum lw_retry_order { LW_ORDER_BLOCK, LW_ORDER_SKIP };
enum lw_log_keys { LW_KEYS_HASH, LW_KEYS_PLAIN, LW_KEYS_NONE };
enum lw_dead_to { LW_DEAD_REDIS, LW_DEAD_TOPIC };

/* Where a value comes from in a record: the message key, a header by name, or a JSON pointer into the payload. */
struct lw_rule {
    enum lw_key_from from;
    char *arg; /* header name, or RFC 6901 pointer; NULL for the message key */
};

struct lw_property {
    char *name, *value;
    bool secret; /* never show the value */
};

struct lw_config {
    char *path; /* of the file, as given */
    char *name;
    int workers;
    struct {
        char **topics;
        size_t n_topics;
        struct lw_property *properties; /* all of kafka.properties, with group.id and auto.offset.reset filled in */
        size_t n_properties;
        char *group_id;
        char *member_id;   /* names this supervisor in the group; NULL: use the host's name */
        bool dynamic;      /* kafka.member_id "off": workers are dynamic members */
        bool stay;         /* kafka.on_stop "stay": an orderly stop keeps the workers' group memberships */
        bool new_protocol; /* group.protocol "consumer": KIP-848 */
        bool reset_latest; /* auto.offset.reset is "latest": where a group without commits begins */
    } kafka;
    struct {
        char **urls; /* shard s lives on urls[s % n_urls]; none with Sentinels or a cluster */
        size_t n_urls;
        int shards;
        char *username, *password; /* login for URLs that have none; NULL: none */
        struct lw_tls tls;         /* for rediss://, and for servers found by Sentinels or in a cluster, if `on`: the section is given */
        int db;                    /* database number on a server that Sentinels name */
        struct {
            bool on;          /* the section is given */
            char **addresses; /* host[:port], as written */
            size_t n_addresses;
            char *master, *username, *password;
            struct lw_tls tls; /* on: its section is given */
        } sentinel;
        struct {
            bool on;      /* the key is given */
            char **nodes; /* host[:port], as written */
            size_t n_nodes;
        } cluster;
    } redis;
    struct {
        struct lw_rule from;
        char *from_text; /* the key rule as written; part of the schema that workers must share */
        enum lw_key_missing missing;
    } key;
    struct {
        int64_t ttl_ms;
        int max_run, run_ahead;
    } lock;
    struct {
        int64_t max_waiting; /* maximum per partition */
        enum lw_on_busy on_busy;
    } queue;
    struct {
        int max_attempts; /* including the first */
        int64_t backoff_ms, backoff_max_ms;
        enum lw_retry_order order;
    } retry;
    struct {
        enum lw_dead_to to;
        char *topic; /* NULL unless to a topic */
    } dead;
    struct {
        bool business; /* true if dedup.id is not "offset" and window_s > 0 */
        struct lw_rule id;
        int64_t window_s;
    } dedup;
    struct {
        char *type;
        json_t *json;       /* the whole handler section, expanded; owned by the configuration */
        json_t *shown;      /* `json` for people: secrets as "***", ${VAR} as written */
        int threads;        /* `threads`, or `processes` for exec */
        int in_flight;      /* exec: how many messages of different keys a process has at once */
        int batch;          /* exec: how many messages of a key go into one request */
        int64_t timeout_ms; /* 0: none */
    } handler;
    struct {
        int64_t grace_ms;
        int64_t revoke_ms; /* how long a rebalance may wait: grace_ms, within max.poll.interval.ms */
    } shutdown;
    struct {
        char *listen; /* as written */
        char *host;   /* a numeric address; NULL: nothing is served ("off") */
        int port;     /* 0: any free one */
        char *token;  /* the token that requests must carry to change anything; NULL: nobody may */
    } http;
    struct {
        enum lw_log_level level;
        bool json;
        enum lw_log_keys keys;
    } log;
};

/* One `--set path=value`. A value that parses as JSON is taken as JSON, anything else as a string. */
struct lw_override {
    const char *path, *value;
};
/* Appends the text of a --set to the n entries of `set`, which holds at most `max`. Cuts `text` at
 * its '=', so it must stay valid. Returns NULL, or what is wrong with it. */
const char *lw_override_add(struct lw_override *set, size_t *n, size_t max, char *text);

/* How many messages of different keys a worker runs at once. */
static inline int lw_config_at_once(const struct lw_config *c) {
    return c->handler.threads * (c->handler.in_flight > 1 ? c->handler.in_flight : 1);
}

/* Where problems go: lines of text, each ended by '\n', in `errors`; things worth knowing that are no errors in `warnings`.
 * Begin with {0}. `check_handler`, where set, is called once while loading, with what could be read (NULL strings are possible only in
 * `dead`, `dedup` and `handler`), so that the problems of the handler section are listed with all others: commands set it to
 * lw_config_check_handler (cli/check/check.h) or call lw_config_load_checked(). */
struct lw_problems {
    struct lw_buf errors, warnings;
    int n_errors, n_warnings;
    void (*check_handler)(const struct lw_config *c, struct lw_problems *problems);
};

/* Returns NULL, with problems->n_errors > 0, if anything is wrong. */
struct lw_config *lw_config_load(const char *path, const struct lw_override *set, size_t n_set, struct lw_problems *problems);
/* Parses a configuration given as text; `name` stands for the file in messages. */
struct lw_config *lw_config_parse(const char *name, const char *text, size_t n, const struct lw_override *set, size_t n_set,
                                  struct lw_problems *problems);
void lw_config_free(struct lw_config *c);
/* How to find the servers of the shards, and as whom to log in: all that the section `redis` says. The caller frees *out with
 * lw_redis_servers_free(). -1 with *err only when an allocation failed: loading has checked the rest. */
int lw_config_servers(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err);
/* Returns the number that lw_redis_servers_count() gives for the servers of this configuration. */
size_t lw_config_servers_count(const struct lw_config *c);
/* A connection to the server of a shard (base/redis/connection.h), logged in. NULL with *err, which names the server. */
struct lw_redis *lw_config_connect(const struct lw_config *c, int shard, const char *client_name, int64_t connect_ms, int64_t answer_ms,
                                   struct lw_err *err);
void lw_problem(struct lw_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lw_problem_warn(struct lw_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lw_problems_free(struct lw_problems *p);

/* Writes the effective configuration as JSON, secrets as "***". */
void lw_config_print(const struct lw_config *c, struct lw_buf *out);
/* Writes the reference page (Markdown) from the table of keys. */
void lw_config_reference(struct lw_buf *out);

#endif
