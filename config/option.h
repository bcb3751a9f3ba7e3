/* SPDX-License-Identifier: Apache-2.0 */
/* Only the files of config/ include this header. It declares a row of the table of keys, and data
 * that those files share. */
#ifndef LW_CONFIG_OPTION_H
#define LW_CONFIG_OPTION_H

#include "config/config.h"

enum {
    LW_CONFIG_BYTES_MAX = 1 << 20,
    LW_SECRET_FILE_MAX = 64 << 10,
    LW_SLOTS_MAX = 4096,
    LW_AT_ONCE_MAX = 10000,
    LW_TOPICS_MAX = 64,
    LW_URLS_MAX = 1024,
    LW_SENTINELS_MAX = 64,
    LW_NODES_MAX = 64,
    LW_SENTINEL_PORT = 26379,
    LW_REDIS_PORT = 6379,
    LW_MEMBER_ID_MAX = 100
};

/* A string with ${…}, kept as it was in the file, so that reported problems never show the expanded
 * value. */
struct lw_expanded {
    json_t *string;
    char *raw;
    bool from_file;
    bool failed; /* a problem was already reported, so the value is not checked */
};

struct lw_loader {
    struct lw_config *c;
    struct lw_problems *problems;
    struct lw_expanded *expanded;
    size_t n_expanded;
};

enum lw_option_kind {
    LW_OPT_INT,    /* an int at `at`, from min to max */
    LW_OPT_INT64,  /* an int64_t at `at`, from min to max */
    LW_OPT_WORD,   /* one of `words`; its index, an enum, is stored at `at` */
    LW_OPT_EITHER, /* one of two `words`; a bool at `at` is true for the second */
    /* a string of at most `max` bytes; a char * at `at`, NULL if the key is not given */
    LW_OPT_TEXT,
    LW_OPT_CUSTOM, /* a value that `take` reads and `show` writes */
    /* the handler section: only the handler type knows those of its keys that lw_options does not
     * list */
    LW_OPT_HANDLER,
};

struct lw_option {
    const char *path;
    enum lw_option_kind kind;
    size_t at; /* offset of the value in struct lw_config */
    int64_t min, max;
    const char *const *words; /* list of words, ended by NULL */
    /* the default as JSON text, read as if it had been given; NULL: computed, or none */
    const char *dflt;
    const char *dflt_text; /* the default as the reference page words it, if dflt is NULL */
    /* the form of a value as the reference page words it, for LW_OPT_CUSTOM */
    const char *form;
    /* the default does not apply if one of these keys or sections is given */
    const char *unless[2];
    bool required;
    bool secret; /* the text of an LW_OPT_TEXT is never shown */
    void (*take)(struct lw_loader *l, const struct lw_option *o, json_t *value);
    /* returns the value with secrets masked; NULL: there is nothing to show */
    json_t *(*show)(const struct lw_config *c);
    const char *help;
};

extern const struct lw_option lw_options[];
extern const size_t lw_n_options;

/* The next functions are in keys.c, which has the table of keys. */
const struct lw_option *lw_option_find(const char *path);
bool lw_option_section(const char *path);
/* finds the key most similar to `path`; "" if none is */
void lw_option_nearest(const char *path, char *out, size_t size);

/* The characters allowed in names of Kafka topics, applications, tokens and hosts. */
#define LW_PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* The next functions are in take.c, which reads and checks the values of keys. */
void lw_option_take(struct lw_loader *l, const struct lw_option *o, json_t *value);
void lw_take_name(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_topics(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_member_id(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_urls(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_nodes(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_addresses(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_db(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_tls_verify(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_key_from(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_dedup_id(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_dead_to(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_handler_type(struct lw_loader *l, const struct lw_option *o, json_t *v);
/* The next functions are in http.c, which reads and checks the section http. */
void lw_take_http_listen(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_token(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_read_tokens(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_write_tokens(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_hosts(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_mask(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_finish_http(struct lw_loader *l);
/* The next functions are in tracing.c, which reads, checks and shows the section tracing. */
void lw_take_tracing_endpoint(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_tracing_ratio(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_tracing_headers(struct lw_loader *l, const struct lw_option *o, json_t *v);
json_t *lw_show_tracing_endpoint(const struct lw_config *c);
json_t *lw_show_tracing_ratio(const struct lw_config *c);
json_t *lw_show_tracing_headers(const struct lw_config *c);
void lw_finish_tracing(struct lw_loader *l);

/* Maximum size of the short form in which reported problems show a value. The short form never
 * contains a secret. */
enum { LW_SHOWN_MAX = 160 };
const char *lw_shown(const struct lw_loader *l, json_t *v, char buf[LW_SHOWN_MAX]);
const struct lw_expanded *lw_was_expanded(const struct lw_loader *l, const json_t *v);
/* Returns a string of 1 to max bytes, or NULL after reporting a problem. */
const char *lw_take_text(struct lw_loader *l, const char *path, json_t *v, size_t max);

/* Returns true after reporting a problem if the text is not a JSON pointer. The problem shows the
 * example. */
bool lw_pointer_problem(struct lw_loader *l, const char *path, const char *pointer,
                        const char *example);

bool lw_unusable(const struct lw_loader *l, const json_t *v);

/* Expands ${VAR}, ${VAR:-default} and ${file:PATH} in every string below v (expand.c). */
void lw_expand(struct lw_loader *l, const char *path, json_t *v);
void lw_expand_free(struct lw_loader *l);

/* Applies one --set (override.c). */
void lw_override(struct lw_loader *l, json_t *root, const struct lw_override *set);

/* The next functions are in kafka.c, which checks kafka.properties. */
void lw_take_properties(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_finish_kafka(struct lw_loader *l);
bool lw_topic_problem(struct lw_loader *l, const char *path, const char *topic);

/* Makes the checks that concern more than one key (finish.c). */
void lw_finish(struct lw_loader *l);

/* The next functions are in redis.c, which computes how to reach the servers of the shards. */
/* notes that a section is given, since it may matter even if empty */
void lw_section_given(struct lw_loader *l, const char *path);
void lw_finish_redis(struct lw_loader *l);

/* The next functions are in secret.c, which decides which values are secrets. */
bool lw_secret_name(const char *name); /* returns true if a key of this name contains a secret */
json_t *lw_masked(const struct lw_loader *l, json_t *v);

/* The next functions are in print.c, and return values as they are shown to people. */
json_t *lw_show_name(const struct lw_config *c);
json_t *lw_show_topics(const struct lw_config *c);
json_t *lw_show_properties(const struct lw_config *c);
json_t *lw_show_member_id(const struct lw_config *c);
json_t *lw_show_urls(const struct lw_config *c);
json_t *lw_show_addresses(const struct lw_config *c);
json_t *lw_show_nodes(const struct lw_config *c);
json_t *lw_show_db(const struct lw_config *c);
json_t *lw_show_sentinel_verify(const struct lw_config *c);
json_t *lw_show_tls_verify(const struct lw_config *c);
json_t *lw_show_key_from(const struct lw_config *c);
json_t *lw_show_dedup_id(const struct lw_config *c);
json_t *lw_show_dead_to(const struct lw_config *c);
json_t *lw_show_handler(const struct lw_config *c);
json_t *lw_show_http_listen(const struct lw_config *c);
json_t *lw_show_http_token(const struct lw_config *c);
json_t *lw_show_http_read_tokens(const struct lw_config *c);
json_t *lw_show_http_write_tokens(const struct lw_config *c);
json_t *lw_show_http_hosts(const struct lw_config *c);
json_t *lw_show_http_mask(const struct lw_config *c);

#endif
