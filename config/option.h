/* SPDX-License-Identifier: Apache-2.0 */
/* Declares a row of the table of configuration keys, and what else the files of config/ share. Only
 * these files and cli/reference/completion.c include this header. */
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

/* A string that contained ${…}, with its text as it was in the file, so that reported problems
 * never show the expanded value. */
struct lw_expanded {
    json_t *string;
    char *raw;
    bool from_file;
    bool failed; /* true if a problem was already reported; the value is then not checked */
};

struct lw_loader {
    struct lw_config *c;
    struct lw_problems *problems;
    struct lw_expanded *expanded;
    size_t n_expanded;
};

enum lw_option_kind {
    LW_OPT_INT,    /* an integer from min to max, stored as an int at offset `at` */
    LW_OPT_INT64,  /* an integer from min to max, stored as an int64_t at offset `at` */
    LW_OPT_WORD,   /* one of `words`, whose index is stored as an enum at offset `at` */
    LW_OPT_EITHER, /* one of two `words`; the bool at offset `at` is true for the second word */
    /* a string of at most `max` bytes, stored as a char * at offset `at`, which is NULL if the key
     * is not given */
    LW_OPT_TEXT,
    LW_OPT_CUSTOM, /* a value that the function `take` reads and the function `show` writes */
    /* the handler section, which may have keys that only the handler type knows and lw_options does
     * not list */
    LW_OPT_HANDLER,
};

struct lw_option {
    const char *path;
    enum lw_option_kind kind;
    size_t at; /* offset of the value in struct lw_config */
    int64_t min, max;
    const char *const *words; /* list of words, ended by NULL */
    const char *hint;         /* for words: what the error about another word adds; may be NULL */
    /* the default as JSON text, which is read as if the user had given it; NULL if the default is
     * computed or there is none */
    const char *dflt;
    const char *dflt_text; /* if dflt is NULL: the default in the words of the reference page */
    /* for LW_OPT_CUSTOM: the form of a value in the words of the reference page */
    const char *form;
    /* keys or sections; if one of them is given, the default does not apply */
    const char *unless[2];
    bool required;
    bool secret; /* true if the text of an LW_OPT_TEXT must never be shown */
    void (*take)(struct lw_loader *l, const struct lw_option *o, json_t *value);
    /* returns the value to be shown, with secrets masked, or NULL if there is nothing to show */
    json_t *(*show)(const struct lw_config *c);
    const char *help;
};

extern const struct lw_option lw_options[];
extern const size_t lw_n_options;

/* The functions declared from here to lw_option_nearest() are in keys.c, which has the table of
 * keys. */
const struct lw_option *lw_option_find(const char *path);
bool lw_option_section(const char *path);
/* Finds the key most similar to `path`. Sets `out` to "" if no key is similar. */
void lw_option_nearest(const char *path, char *out, size_t size);

/* The functions lw_option_take() to lw_take_handler_type() are in take.c, which reads and checks
 * the values of keys. */
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
/* Reads a rule: `word`, "header:NAME" or "json:/pointer". Returns false after reporting a
 * problem. */
bool lw_take_rule(struct lw_loader *l, const char *path, json_t *v, const char *word,
                  struct lw_rule *out);
/* Reads a whole number from 1 to `max`, or reports a problem. */
void lw_take_count(struct lw_loader *l, const char *path, json_t *v, int max, int *out);
void lw_take_dedup_id(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_dead_to(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_handler_type(struct lw_loader *l, const struct lw_option *o, json_t *v);
/* The functions lw_take_group_from() to lw_group_free() are in limits.c, which reads, checks and
 * shows the sections `group` and `limits`. */
void lw_take_group_from(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_groups(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_weights(struct lw_loader *l, const struct lw_option *o, json_t *v);
json_t *lw_show_weights(const struct lw_config *c);
json_t *lw_show_group_from(const struct lw_config *c);
json_t *lw_show_groups(const struct lw_config *c);
void lw_finish_limits(struct lw_loader *l);
void lw_group_free(struct lw_config *c);
/* The functions lw_take_http_listen() to lw_finish_http() are in http.c, which reads and checks the
 * section `http`. */
void lw_take_http_listen(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_token(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_read_tokens(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_write_tokens(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_hosts(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_http_mask(struct lw_loader *l, const struct lw_option *o, json_t *v);
/* Sets http.payloads, which is not given: hidden from everybody who only has to reach the port. */
void lw_default_payloads(struct lw_config *c);
void lw_finish_http(struct lw_loader *l);
void lw_finish_handler(struct lw_loader *l);
/* The functions lw_take_tracing_endpoint() to lw_finish_tracing() are in tracing.c, which reads,
 * checks and shows the section `tracing`. */
void lw_take_tracing_endpoint(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_tracing_ratio(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_take_tracing_headers(struct lw_loader *l, const struct lw_option *o, json_t *v);
json_t *lw_show_tracing_endpoint(const struct lw_config *c);
json_t *lw_show_tracing_ratio(const struct lw_config *c);
json_t *lw_show_tracing_headers(const struct lw_config *c);
void lw_finish_tracing(struct lw_loader *l);

/* Maximum size, in bytes, of the short form in which reported problems show a value. The short form
 * never contains a secret. */
enum { LW_SHOWN_MAX = 160 };
const char *lw_shown(const struct lw_loader *l, json_t *v, char buf[LW_SHOWN_MAX]);
const struct lw_expanded *lw_was_expanded(const struct lw_loader *l, const json_t *v);
/* Checks that a value is a string of 1 to max bytes, and returns its text. Returns NULL after
 * reporting a problem. */
const char *lw_take_text(struct lw_loader *l, const char *path, json_t *v, size_t max);
/* Appends a copy of `text` to a list of *n texts. */
void lw_add_text(char ***list, size_t *n, const char *text);

/* If the text is not a JSON pointer, reports a problem, which shows `example`, and returns true. */
bool lw_pointer_problem(struct lw_loader *l, const char *path, const char *pointer,
                        const char *example);

bool lw_unusable(const struct lw_loader *l, const json_t *v);

/* Expands ${VAR}, ${VAR:-default} and ${file:PATH} in every string in v and below it (expand.c). */
void lw_expand(struct lw_loader *l, const char *path, json_t *v);
void lw_expand_free(struct lw_loader *l);

/* Applies one --set option to the JSON tree of the configuration (override.c). */
void lw_override(struct lw_loader *l, json_t *root, const struct lw_override *set);

/* These functions are in kafka.c, which checks kafka.properties. */
void lw_take_properties(struct lw_loader *l, const struct lw_option *o, json_t *v);
void lw_finish_kafka(struct lw_loader *l);

/* Makes the checks that involve more than one key of the configuration (finish.c). */
void lw_finish(struct lw_loader *l);

/* lw_section_given() and lw_finish_redis() are in redis.c, which computes how to reach the servers
 * of the shards. */
/* Records that a section is given, because even an empty section may have an effect. */
void lw_section_given(struct lw_loader *l, const char *path);
void lw_finish_redis(struct lw_loader *l);

/* lw_secret_name() and lw_masked() are in secret.c, which decides which values are secrets. */
/* returns true if the name of a key says that its value is a secret */
bool lw_secret_name(const char *name);
json_t *lw_masked(const struct lw_loader *l, json_t *v);

/* The functions below are in print.c. Each returns a value of the configuration as people see
 * it. */
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
json_t *lw_show_http_health_listen(const struct lw_config *c);
json_t *lw_show_http_token(const struct lw_config *c);
json_t *lw_show_http_read_tokens(const struct lw_config *c);
json_t *lw_show_http_write_tokens(const struct lw_config *c);
json_t *lw_show_http_hosts(const struct lw_config *c);
json_t *lw_show_http_mask(const struct lw_config *c);

#endif
