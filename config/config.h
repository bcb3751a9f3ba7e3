/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of one application: a JSON file, `--set path=value` overrides, and defaults.
 * One table of keys (config/keys.c) defines what is allowed. The command `check`, the help and the
 * reference page use the same table.
 *
 * lw_config_load() reads the file, expands ${VAR}, fills in defaults, and checks everything that
 * can be checked without a server. It reports all problems that it finds, not only the first, one
 * per line, each with the path of its key ("lock.ttl_ms: …") or with a line and column. The
 * resulting struct lw_config never changes afterwards; free it with lw_config_free(). Its strings
 * are UTF-8 and NUL-terminated, and it owns them. Loading is not thread-safe. */
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
enum lw_on_busy { LW_BUSY_PARK, LW_BUSY_LATEST };
enum lw_retry_order { LW_ORDER_BLOCK, LW_ORDER_SKIP };
enum lw_log_keys { LW_KEYS_HASH, LW_KEYS_PLAIN, LW_KEYS_NONE };
/* How the HTTP API shows the payloads of messages. */
enum lw_payloads { LW_PAYLOADS_SHOW, LW_PAYLOADS_MASK, LW_PAYLOADS_HIDE };
enum lw_dead_to { LW_DEAD_REDIS, LW_DEAD_TOPIC };

/* The place of a value in a record: the key of the record, a header with a given name, or a JSON
 * pointer into the payload. */
struct lw_rule {
    enum lw_key_from from;
    char *arg; /* name of the header, or JSON pointer (RFC 6901); NULL for the key of the record */
};

struct lw_property {
    char *name, *value;
    bool secret; /* true if the value must never be shown */
};

/* A secret that HTTP requests carry, and the name by which the audit stream records the senders of
 * such requests. */
struct lw_token {
    char *name, *secret;
    /* true if requests with this token may also change things; false if they may only read */
    bool write;
};

/* Limits of the fleet or of a group; 0: no limit. */
struct lw_limit {
    int running;    /* maximum number of messages in handlers at once */
    int per_second; /* maximum number of messages that start in a second */
    int burst;      /* number of messages above per_second that may start at once */
    /* of limits in force only: */
    bool paused; /* true: an operator has paused it, and nothing starts */
    bool set;    /* true: an operator has set it, and the file says something else */
    bool own;    /* true: of a group that has limits of its own, not those of limits.group */
};

/* The limits of a group that has some of its own. */
struct lw_group_limit {
    struct lw_bytes name; /* as lw_lane_id() makes it; owned */
    struct lw_limit limit;
};

/* A group that has another part of the handler time than others. */
struct lw_group_weight {
    struct lw_bytes name; /* as lw_lane_id() makes it; owned */
    int weight;
};

/* Limits of the fleet and of its groups: those of the file, and those in force, which operators
 * change. */
struct lw_limits {
    struct lw_limit fleet;         /* limits of the whole fleet */
    struct lw_limit group;         /* limits of each group that `groups` does not name */
    struct lw_group_limit *groups; /* sorted by name */
    size_t n_groups;
};

struct redisReply;

struct lw_config {
    char *path; /* path of the configuration file, as given */
    char *name;
    int workers;
    struct {
        char **topics;
        size_t n_topics;
        /* all entries of kafka.properties, with group.id and auto.offset.reset filled in */
        struct lw_property *properties;
        size_t n_properties;
        char *group_id;
        /* name of this supervisor in the consumer group; NULL stands for the host's name */
        char *member_id;
        /* true if kafka.member_id is "off", which makes workers dynamic members of the group */
        bool dynamic;
        /* true if kafka.on_stop is "stay": workers that stop in an orderly way keep their place in
         * the group */
        bool stay;
        /* true if group.protocol is "consumer", the new group protocol of KIP-848 */
        bool new_protocol;
        /* true if auto.offset.reset is "latest": a group without commits then begins at the end of
         * the log */
        bool reset_latest;
    } kafka;
    struct {
        char **urls; /* shard s is stored at urls[s % n_urls]; NULL with Sentinels or a cluster */
        size_t n_urls;
        int shards;
        char *username, *password; /* login for URLs that contain none; NULL for no login */
        /* TLS settings for rediss:// URLs. If `on` is true (the section is given), they also apply
         * to servers found through Sentinels or in a cluster. */
        struct lw_tls tls;
        int db; /* database number on a server that Sentinels name */
        struct {
            bool on;          /* true if the section redis.sentinel is given */
            char **addresses; /* addresses of Sentinels in the form host[:port], as written */
            size_t n_addresses;
            char *master, *username, *password;
            /* TLS settings for the Sentinels; `on` is true if the section is given */
            struct lw_tls tls;
        } sentinel;
        struct {
            bool on;      /* true if the section redis.cluster is given */
            char **nodes; /* addresses of cluster nodes in the form host[:port], as written */
            size_t n_nodes;
        } cluster;
    } redis;
    struct {
        struct lw_rule from;
        /* the rule key.from as written; part of the schema that all workers must share */
        char *from_text;
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
        int64_t max_age_s; /* how long after its first failure a message may count no attempt */
        enum lw_retry_order order;
    } retry;
    struct {
        bool on; /* true if group.from is given */
        struct lw_rule from;
        char *from_text; /* the rule group.from as written; NULL if it is not given */
        struct lw_group_weight *weights; /* group.weights, sorted by name */
        size_t n_weights;
    } group;
    struct lw_limits limits;
    struct {
        enum lw_dead_to to;
        char *topic; /* topic for dead letters; NULL if dead letters stay in Redis */
    } dead;
    struct {
        bool business; /* true if dedup.id is not "offset" and window_s > 0 */
        struct lw_rule id;
        int64_t window_s;
    } dedup;
    struct {
        char *type;
        /* the whole handler section with ${VAR} expanded; owned by the configuration */
        json_t *json;
        /* the handler section as shown to people: with secrets as "***" and ${VAR} as written */
        json_t *shown;
        /* the value of handler.threads or, for exec, of handler.processes: the number of slots of a
         * worker's handler; 1 for http */
        int threads;
        /* for exec: maximum number of messages of different keys that one process has at once; for
         * http: maximum number of requests that a worker has in flight */
        int in_flight;
        int batch; /* for exec and http: maximum number of messages of a key in one request */
        int64_t timeout_ms; /* maximum duration of one handler run; 0 means no limit */
    } handler;
    struct {
        int64_t grace_ms;
        /* maximum time that a rebalance waits for handlers: grace_ms, but less than
         * max.poll.interval.ms */
        int64_t revoke_ms;
    } shutdown;
    struct {
        char *listen; /* value of http.listen as written */
        char *host;   /* numeric address to listen on; NULL if http.listen is "off" */
        int port;     /* port to listen on; 0 for any free port */
        /* the same for http.health_listen, where only metrics and health are served */
        char *health_listen, *health_host;
        int health_port;
        /* all tokens; http.token is among them as a write token with the name "token" */
        struct lw_token *tokens;
        size_t n_tokens;
        /* names that are accepted in a request's Host header, besides the names of this machine */
        char **hosts;
        size_t n_hosts;
        enum lw_payloads payloads;
        /* JSON pointers to the values that are hidden if payloads are shown as LW_PAYLOADS_MASK */
        char **mask;
        size_t n_mask;
    } http;
    struct {
        /* URL with path to which spans are posted; NULL if nothing is traced */
        char *endpoint;
        /* fraction (0 to 1) of the messages without a trace for which a new trace is begun */
        double ratio;
        /* headers of each request; all their values count as secrets */
        struct lw_property *headers;
        size_t n_headers;
        int64_t timeout_ms; /* maximum duration of one request */
        struct lw_tls tls;
        /* name of the service in the spans; NULL stands for the application's `name` */
        char *service;
        enum lw_log_keys keys; /* how a message's key is shown in its span */
    } tracing;
    struct {
        enum lw_log_level level;
        bool json;
        enum lw_log_keys keys;
    } log;
};

/* One `--set path=value`. A value that parses as JSON is used as JSON; any other value is used as a
 * string. */
struct lw_override {
    const char *path, *value;
};
/* Appends the text of one --set option to the n entries of `set`, which has room for `max` entries.
 * Cuts `text` at the '=', and keeps pointers into it. Returns NULL, or a text that says what is
 * wrong with the option. */
const char *lw_override_add(struct lw_override *set, size_t *n, size_t max, char *text);

static inline bool lw_limit_any(const struct lw_limit *limit) {
    return limit->running || limit->per_second;
}

/* Returns true if workers ask for permits, because the file limits the fleet or groups, or names
 * groups, which operators can limit and pause. */
static inline bool lw_config_limits(const struct lw_config *c) {
    return c->group.on || lw_limit_any(&c->limits.fleet);
}

/* The limits in force are in the hash `limits` of shard 0 (queue/lua/limit.lua). */
enum {
    LW_LIMIT_COUNT_MAX = 1000000, /* highest value of running, per_second and burst */
    LW_WEIGHT_MAX = 1000,         /* highest weight of a group */
    LW_LIMIT_TEXT = 40,           /* room for the text of a limit */
};
/* Writes "RUNNING PER_SECOND BURST". Returns out. */
const char *lw_limit_text(const struct lw_limit *limit, char out[LW_LIMIT_TEXT]);
/* Returns limits.burst if it is not given. */
int lw_limit_burst(int per_second);
/* Reads the answer of HGETALL. Returns false, with *out empty, if a value is not of its form. Free
 * *out with lw_limits_free(). */
bool lw_limits_read(struct lw_limits *out, const struct redisReply *r);
void lw_limits_free(struct lw_limits *l);
/* Returns true if something limits how many messages run at once, in the fleet or in groups. */
bool lw_limits_running(const struct lw_limits *l);
/* Returns true if the fleet or any group has a limit or is paused. */
bool lw_limits_any(const struct lw_limits *l);
/* Returns the weight of a group, 1 if the file gives none. `name` is as lw_lane_id() makes it. */
int lw_group_weight(const struct lw_config *c, struct lw_bytes name);
/* Returns the limits of a group. `name` is as lw_lane_id() makes it. */
const struct lw_limit *lw_limits_group(const struct lw_limits *l, struct lw_bytes name);

/* Returns true if a worker may be granted several messages of a key at once. retry.order and dedup
 * must allow it, and each start must be free, because a limit needs a place and a token for each
 * (consumer/worker/limit.c). */
static inline bool lw_config_runs_ahead(const struct lw_config *c) {
    return c->lock.run_ahead > 1 && c->retry.order == LW_ORDER_BLOCK && !c->dedup.business &&
           !lw_config_limits(c);
}

/* Returns true if a handler may get several messages of a key together, as a batch. */
static inline bool lw_config_batches(const struct lw_config *c) {
    return lw_config_runs_ahead(c) && c->queue.on_busy != LW_BUSY_LATEST;
}

/* Returns the value of a property in kafka.properties, or NULL if the property is not given. */
const char *lw_config_property(const struct lw_config *c, const char *name);

/* Returns the maximum number of messages of different keys that a worker runs at once. */
static inline int lw_config_at_once(const struct lw_config *c) {
    return c->handler.threads * (c->handler.in_flight > 1 ? c->handler.in_flight : 1);
}

/* Holds the problems that were found while loading: lines of text, each ended by '\n'. A
 * configuration with `errors` is refused, while `warnings` are only shown. The caller initializes
 * the structure with {0}.
 *
 * `check_handler`, if set, is called once while loading, after all keys were read, so that problems
 * of the handler section are listed with the others. It gets the configuration even if there were
 * errors; then only strings in `dead`, `dedup` and `handler` can be NULL. Commands set
 * `check_handler` to lw_config_check_handler (cli/check/check.h) or call
 * lw_config_load_checked(). */
struct lw_problems {
    struct lw_buf errors, warnings;
    int n_errors, n_warnings;
    void (*check_handler)(const struct lw_config *c, struct lw_problems *problems);
};

/* Loads a configuration. Returns NULL if there is an error, and problems->n_errors is then greater
 * than 0. */
struct lw_config *lw_config_load(const char *path, const struct lw_override *set, size_t n_set,
                                 struct lw_problems *problems);
/* Parses a configuration from a text. `name` stands for the name of the file in reported
 * problems. */
struct lw_config *lw_config_parse(const char *name, const char *text, size_t n,
                                  const struct lw_override *set, size_t n_set,
                                  struct lw_problems *problems);
void lw_config_free(struct lw_config *c);
/* Fills in *out from the section `redis`: how to find the servers of the shards and how to log in.
 * The caller frees *out with lw_redis_servers_free(). Returns -1 with *err only if an allocation
 * failed, because loading has checked everything else. */
int lw_config_servers(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err);
/* Returns the number of Redis servers on which the shards are stored. In a cluster each shard
 * counts as one server (lw_redis_servers_count()). */
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
/* Writes the reference page of the configuration (Markdown), made from the table of keys. */
void lw_config_reference(struct lw_buf *out);

#endif
