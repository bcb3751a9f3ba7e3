/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of one application: a JSON file, `--set path=value` overrides, and defaults.
 * One table of keys (config/keys.c) says what is allowed; `check`, the help and the reference page
 * are made from the same table.
 *
 * lw_config_load() reads the file, expands ${VAR}, fills in defaults, and checks everything that
 * can be checked without a server. The function lists *all* problems at once, one per line, each
 * with a path ("lock.ttl_ms: …") or a line and column. The result is one block that never changes
 * afterwards; free it with lw_config_free(). Strings are UTF-8, NUL-terminated, and owned by the
 * configuration. Loading is not thread-safe. */
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
/* What the HTTP API shows of payloads. */
enum lw_payloads { LW_PAYLOADS_SHOW, LW_PAYLOADS_MASK, LW_PAYLOADS_HIDE };
enum lw_dead_to { LW_DEAD_REDIS, LW_DEAD_TOPIC };

/* The place of a value in a record: the message key, a header by name, or a JSON pointer into the
 * payload. */
struct lw_rule {
    enum lw_key_from from;
    char *arg; /* name of the header, or RFC 6901 pointer; NULL for the message key */
};

struct lw_property {
    char *name, *value;
    bool secret; /* the value is never shown */
};

/* A secret that HTTP requests carry, and the name under which the audit records who sent it. */
struct lw_token {
    char *name, *secret;
    bool write; /* the token may change things, and not only read */
};

struct lw_config {
    char *path; /* path of the file, as given */
    char *name;
    int workers;
    struct {
        char **topics;
        size_t n_topics;
        /* all of kafka.properties, with group.id and auto.offset.reset filled in */
        struct lw_property *properties;
        size_t n_properties;
        char *group_id;
        char *member_id; /* name of this supervisor in the group; NULL: the host's name */
        bool dynamic;    /* kafka.member_id is "off": workers are dynamic members */
        /* kafka.on_stop is "stay": workers keep their place in the group when they stop in good
         * order */
        bool stay;
        bool new_protocol; /* group.protocol is "consumer", the new group protocol of KIP-848 */
        /* auto.offset.reset is "latest": a group without commits begins at the end */
        bool reset_latest;
    } kafka;
    struct {
        char **urls; /* shard s lives on urls[s % n_urls]; NULL with Sentinels or a cluster */
        size_t n_urls;
        int shards;
        char *username, *password; /* login for URLs that have none; NULL: none */
        /* TLS settings for rediss:// URLs; if `on` (the section is given), also for servers found
         * by Sentinels or in a cluster. */
        struct lw_tls tls;
        int db; /* database number on a server that Sentinels name */
        struct {
            bool on;          /* the section redis.sentinel is given */
            char **addresses; /* addresses of Sentinels, host[:port], as written */
            size_t n_addresses;
            char *master, *username, *password;
            struct lw_tls tls; /* TLS settings for the Sentinels; `on`: the section is given */
        } sentinel;
        struct {
            bool on;      /* the section redis.cluster is given */
            char **nodes; /* addresses of cluster nodes, host[:port], as written */
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
        int64_t max_waiting; /* maximum number of waiting messages per partition */
        enum lw_on_busy on_busy;
    } queue;
    struct {
        int max_attempts; /* maximum number of attempts, including the first */
        int64_t backoff_ms, backoff_max_ms;
        enum lw_retry_order order;
    } retry;
    struct {
        enum lw_dead_to to;
        char *topic; /* topic for dead letters; NULL: dead letters stay in Redis */
    } dead;
    struct {
        bool business; /* true if dedup.id is not "offset" and window_s > 0 */
        struct lw_rule id;
        int64_t window_s;
    } dedup;
    struct {
        char *type;
        json_t *json;  /* the whole handler section, expanded; owned by the configuration */
        json_t *shown; /* `json` for people: with secrets as "***" and ${VAR} as written */
        /* number of messages of different keys that a worker runs at once (`threads`; `processes`
         * for exec; 1 for http) */
        int threads;
        /* exec: how many messages of different keys a process has at once; http: how many requests
         * a worker has */
        int in_flight;
        int batch;          /* exec and http: how many messages of a key go into one request */
        int64_t timeout_ms; /* maximum time of one handler run; 0: no limit */
    } handler;
    struct {
        int64_t grace_ms;
        /* maximum time that a rebalance waits for handlers: grace_ms, but less than
         * max.poll.interval.ms */
        int64_t revoke_ms;
    } shutdown;
    struct {
        char *listen;            /* http.listen as written */
        char *host;              /* numeric address to listen on; NULL: nothing is served ("off") */
        int port;                /* port to listen on; 0: any free port */
        struct lw_token *tokens; /* all tokens; http.token is the write token named "token" */
        size_t n_tokens;
        char **hosts; /* names that a request's Host may have beside those of this machine */
        size_t n_hosts;
        enum lw_payloads payloads;
        char **mask; /* JSON pointers to the values that LW_PAYLOADS_MASK hides */
        size_t n_mask;
    } http;
    struct {
        /* URL to which spans are posted, with its path; NULL: nothing is traced */
        char *endpoint;
        /* share of the messages without a trace of their own that begin a new one, 0 to 1 */
        double ratio;
        struct lw_property *headers; /* headers of each request; all of them count as secrets */
        size_t n_headers;
        int64_t timeout_ms; /* maximum time of one request */
        struct lw_tls tls;
        char *service;         /* name of the service in the spans; NULL: `name` */
        enum lw_log_keys keys; /* how a message's key stands in its span */
    } tracing;
    struct {
        enum lw_log_level level;
        bool json;
        enum lw_log_keys keys;
    } log;
};

/* One `--set path=value`. A value that parses as JSON is used as JSON, any other value as a
 * string. */
struct lw_override {
    const char *path, *value;
};
/* Appends the text of one --set to the n entries of `set`, which has room for `max`. The function
 * cuts `text` at the '=', and keeps pointers into the text. Returns NULL, or what is wrong with the
 * text. */
const char *lw_override_add(struct lw_override *set, size_t *n, size_t max, char *text);

/* Returns how many messages of different keys a worker runs at once. */
static inline int lw_config_at_once(const struct lw_config *c) {
    return c->handler.threads * (c->handler.in_flight > 1 ? c->handler.in_flight : 1);
}

/* The problems found while loading: lines of text, each ended by '\n'. A configuration with
 * `errors` is refused; `warnings` are only shown. The caller initializes the structure with {0}.
 * `check_handler`, if set, is called once while loading, with all that could be read (only strings
 * in `dead`, `dedup` and `handler` can be NULL), so that problems of the handler section are listed
 * with the others. Commands set `check_handler` to lw_config_check_handler (cli/check/check.h) or
 * call lw_config_load_checked(). */
struct lw_problems {
    struct lw_buf errors, warnings;
    int n_errors, n_warnings;
    void (*check_handler)(const struct lw_config *c, struct lw_problems *problems);
};

/* Loads a configuration. Returns NULL, with problems->n_errors > 0, if anything is wrong. */
struct lw_config *lw_config_load(const char *path, const struct lw_override *set, size_t n_set,
                                 struct lw_problems *problems);
/* Parses a configuration given as text; reported problems use `name` as the name of the file. */
struct lw_config *lw_config_parse(const char *name, const char *text, size_t n,
                                  const struct lw_override *set, size_t n_set,
                                  struct lw_problems *problems);
void lw_config_free(struct lw_config *c);
/* Fills in how to find the servers of the shards and how to log in, from the section `redis`. The
 * caller frees *out with lw_redis_servers_free(). Returns -1 with *err only if an allocation
 * failed, because loading has checked the rest. */
int lw_config_servers(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err);
/* Returns what lw_redis_servers_count() returns for the servers of this configuration. */
size_t lw_config_servers_count(const struct lw_config *c);
/* Connects to the server of a shard (base/redis/connection.h) and logs in. Returns NULL with *err,
 * which names the server. */
struct lw_redis *lw_config_connect(const struct lw_config *c, int shard, const char *client_name,
                                   int64_t connect_ms, int64_t answer_ms, struct lw_err *err);
void lw_problem(struct lw_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lw_problem_warn(struct lw_problems *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void lw_problems_free(struct lw_problems *p);

/* Writes the effective configuration as JSON, with secrets as "***". */
void lw_config_print(const struct lw_config *c, struct lw_buf *out);
/* Writes the reference page (Markdown) from the table of keys. */
void lw_config_reference(struct lw_buf *out);

#endif
