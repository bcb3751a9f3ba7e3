/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one value of a known configuration key, or reports what is wrong with the value. */
#include "base/bytes.h"
#include "base/json_scan.h"
#include "base/redis/url.h"
#include "config/option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { RULE_MAX = 1024, TOPIC_MAX = 249, URL_TEXT_MAX = 4096, ADDRESS_MAX = 300 };

_Static_assert(sizeof(enum lw_key_missing) == sizeof(int) &&
                   sizeof(enum lw_log_level) == sizeof(int),
               "words are stored as int");

static void *at(const struct lw_loader *l, const struct lw_option *o) {
    return (char *)l->c + o->at;
}

const char *lw_shown(const struct lw_loader *l, json_t *v, char buf[LW_SHOWN_MAX]) {
    const struct lw_expanded *was = lw_was_expanded(l, v);
    char *safe = NULL;
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    case JSON_INTEGER:
        snprintf(buf, LW_SHOWN_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return buf;
    case JSON_REAL: snprintf(buf, LW_SHOWN_MAX, "%g", json_real_value(v)); return buf;
    case JSON_STRING: break;
    }
    safe = lw_or_abort(lw_url_redact(was ? was->raw : json_string_value(v)));
    /* the query of a URL may hold a secret, too */
    char *query = strstr(safe, "://") ? strpbrk(safe, "?#") : NULL;
    if (query && strlen(query) > 3) memcpy(query + 1, "***", 4);
    snprintf(buf, LW_SHOWN_MAX, strlen(safe) > 128 ? "\"%.125s…\"" : "\"%s\"", safe);
    free(safe);
    return buf;
}

/* --- simple kinds ----------------------------------------------------------------------------- */

/* Returns true if the value is an integer, or a string that became one when a variable was
 * expanded, such as "${WORKERS:-2}". */
static bool as_integer(const struct lw_loader *l, json_t *v, int64_t *out) {
    if (json_is_integer(v)) return *out = json_integer_value(v), true;
    if (!json_is_string(v) || !lw_was_expanded(l, v)) return false;
    const char *text = json_string_value(v);
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *text && !*end && !errno && *text != ' ';
}

static bool take_number(struct lw_loader *l, const char *path, json_t *v, int64_t min, int64_t max,
                        int64_t *n) {
    char buf[LW_SHOWN_MAX];
    if (as_integer(l, v, n) && *n >= min && *n <= max) return true;
    lw_problem(l->problems, "%s: must be a whole number from %lld to %lld, is %s", path,
               (long long)min, (long long)max, lw_shown(l, v, buf));
    return false;
}

void lw_take_count(struct lw_loader *l, const char *path, json_t *v, int max, int *out) {
    int64_t n;
    if (!lw_unusable(l, v) && take_number(l, path, v, 1, max, &n)) *out = (int)n;
}

static void take_integer(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    int64_t n;
    if (!take_number(l, o->path, v, o->min, o->max, &n)) return;
    if (o->kind == LW_OPT_INT)
        *(int *)at(l, o) = (int)n;
    else
        *(int64_t *)at(l, o) = n;
}

static void take_word(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    for (int i = 0; json_is_string(v) && o->words[i]; i++) {
        if (strcmp(json_string_value(v), o->words[i])) continue;
        if (o->kind == LW_OPT_EITHER)
            *(bool *)at(l, o) = i == 1;
        else
            memcpy(at(l, o), &i, sizeof i);
        return;
    }
    struct lw_buf list = {0};
    for (int i = 0; o->words[i]; i++)
        lw_buf_addf(&list, "%s\"%s\"", !i ? "" : o->words[i + 1] ? ", " : " or ", o->words[i]);
    lw_problem(l->problems, "%s: must be %s, is %s%s%s", o->path, list.p, lw_shown(l, v, buf),
               o->hint ? "; " : "", o->hint ? o->hint : "");
    lw_buf_free(&list);
}

static void take_string(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char **to = at(l, o);
    if (o->secret && !json_is_string(v)) {
        lw_problem(l->problems, "%s: must be a string", o->path);
        return;
    }
    const char *text = lw_take_text(l, o->path, v, (size_t)o->max);
    if (!text) return;
    free(*to);
    *to = lw_strdup(text);
}

void lw_option_take(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    if (lw_unusable(l, v)) return;
    switch (o->kind) {
    case LW_OPT_INT:
    case LW_OPT_INT64: take_integer(l, o, v); break;
    case LW_OPT_WORD:
    case LW_OPT_EITHER: take_word(l, o, v); break;
    case LW_OPT_TEXT: take_string(l, o, v); break;
    case LW_OPT_CUSTOM: o->take(l, o, v); break;
    case LW_OPT_HANDLER: break;
    }
}

/* --- texts ------------------------------------------------------------------------------------ */

void lw_add_text(char ***list, size_t *n, const char *text) {
    *list = lw_realloc(*list, (*n + 1) * sizeof **list);
    (*list)[(*n)++] = lw_strdup(text);
}

const char *lw_take_text(struct lw_loader *l, const char *path, json_t *v, size_t max) {
    char buf[LW_SHOWN_MAX];
    if (lw_unusable(l, v)) return NULL;
    if (!json_is_string(v))
        return lw_problem(l->problems, "%s: must be a string, is %s", path, lw_shown(l, v, buf)),
               NULL;
    if (json_string_length(v) == 0)
        return lw_problem(l->problems, "%s: must not be empty", path), NULL;
    if (json_string_length(v) > max)
        return lw_problem(l->problems, "%s: longer than %zu bytes", path, max), NULL;
    return json_string_value(v);
}

static const char plain[] = LW_PLAIN;

void lw_take_name(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    const char *text = lw_take_text(l, o->path, v, 64);
    if (!text) return;
    if (text[strspn(text, plain)])
        lw_problem(l->problems, "%s: must be 1 to 64 of A-Z a-z 0-9 . _ -, is %s", o->path,
                   lw_shown(l, v, buf));
    free(l->c->name);
    l->c->name = lw_strdup(text);
}

void lw_take_member_id(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    const char *text = lw_take_text(l, o->path, v, LW_MEMBER_ID_MAX);
    if (!text) return;
    if (text[strspn(text, plain)])
        lw_problem(l->problems, "%s: must be 1 to %d of A-Z a-z 0-9 . _ -, or \"off\", is %s",
                   o->path, (int)LW_MEMBER_ID_MAX, lw_shown(l, v, buf));
    l->c->kafka.dynamic = !strcmp(text, "off");
    free(l->c->kafka.member_id);
    l->c->kafka.member_id = l->c->kafka.dynamic ? NULL : lw_strdup(text);
}

/* --- topics ----------------------------------------------------------------------------------- */

static bool topic_problem(struct lw_loader *l, const char *path, const char *topic) {
    if (*topic == '^') {
        lw_problem(l->problems,
                   "%s: \"%.100s\" is a pattern: a topic that comes into being must not join a "
                   "running group unasked; list the names",
                   path, topic);
    } else if (!*topic || strlen(topic) > TOPIC_MAX || !strcmp(topic, ".") ||
               !strcmp(topic, "..") || topic[strspn(topic, plain)]) {
        lw_problem(l->problems,
                   "%s: \"%.100s\" is no topic name: Kafka allows 1 to 249 of A-Z a-z 0-9 . _ -",
                   path, topic);
    } else {
        return false;
    }
    return true;
}

static void add_topic(struct lw_loader *l, const char *path, json_t *v) {
    const char *topic = lw_take_text(l, path, v, TOPIC_MAX);
    if (!topic || topic_problem(l, path, topic)) return;
    for (size_t i = 0; i < l->c->kafka.n_topics; i++) {
        if (strcmp(l->c->kafka.topics[i], topic)) continue;
        lw_problem(l->problems, "%s: %s is listed twice", path, topic);
        return;
    }
    lw_add_text(&l->c->kafka.topics, &l->c->kafka.n_topics, topic);
}

void lw_take_topics(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX], path[64];
    if (!json_is_array(v)) {
        lw_problem(l->problems, "%s: must be a list of topic names, is %s", o->path,
                   lw_shown(l, v, buf));
        return;
    }
    size_t n = json_array_size(v);
    if (n == 0 || n > LW_TOPICS_MAX)
        lw_problem(l->problems, "%s: must list 1 to %d topics, lists %zu", o->path,
                   (int)LW_TOPICS_MAX, n);
    for (size_t i = 0; i < n && i < LW_TOPICS_MAX; i++) {
        snprintf(path, sizeof path, "%s[%zu]", o->path, i);
        add_topic(l, path, json_array_get(v, i));
    }
}

/* --- Redis ------------------------------------------------------------------------------------ */

static void add_url(struct lw_loader *l, const char *path, json_t *v) {
    struct lw_redis_url parsed;
    struct lw_err err = {0};
    char buf[LW_SHOWN_MAX];
    const char *url = lw_take_text(l, path, v, URL_TEXT_MAX);
    if (!url) return;
    if (lw_redis_url_parse(url, &parsed, &err)) {
        lw_problem(l->problems, "%s: %s: %s", path, lw_shown(l, v, buf), err.text);
        return;
    }
    lw_redis_url_free(&parsed);
    for (size_t i = 0; i < l->c->redis.n_urls; i++)
        if (!strcmp(l->c->redis.urls[i], url))
            lw_problem(l->problems, "%s: the same server is listed twice", path);
    lw_add_text(&l->c->redis.urls, &l->c->redis.n_urls, url);
}

void lw_take_urls(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char path[64], buf[LW_SHOWN_MAX];
    if (json_is_string(v)) {
        add_url(l, o->path, v);
        return;
    }
    size_t n = json_array_size(v); /* the size is 0 if v is not an array */
    if (n == 0 || n > LW_URLS_MAX) {
        lw_problem(l->problems, "%s: must be a URL or a list of 1 to %d of them, is %s", o->path,
                   (int)LW_URLS_MAX,
                   json_is_array(v) && !n ? "an empty list" : lw_shown(l, v, buf));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s[%zu]", o->path, i);
        add_url(l, path, json_array_get(v, i));
    }
}

/* Says where a list of addresses (of Sentinels or cluster nodes) is stored, and how each address is
 * checked. */
struct addresses {
    char ***list;
    size_t *n, max;
    int port; /* port for an address without a port */
    const char *one;
};

static void add_address(struct lw_loader *l, const struct addresses *a, const char *path,
                        json_t *v) {
    struct lw_redis_url parsed;
    struct lw_err err = {0};
    char buf[LW_SHOWN_MAX];
    const char *text = lw_take_text(l, path, v, ADDRESS_MAX);
    if (!text) return;
    if (lw_redis_address_parse(text, a->port, &parsed, &err)) {
        lw_problem(l->problems, "%s: %s: %s", path, lw_shown(l, v, buf), err.text);
        return;
    }
    lw_redis_url_free(&parsed);
    for (size_t i = 0; i < *a->n; i++)
        if (!strcmp((*a->list)[i], text))
            lw_problem(l->problems, "%s: the same %s is listed twice", path, a->one);
    lw_add_text(a->list, a->n, text);
}

static void take_addresses(struct lw_loader *l, const struct lw_option *o, json_t *v,
                           const struct addresses *a) {
    char path[64], buf[LW_SHOWN_MAX];
    size_t n = json_array_size(v); /* the size is 0 if v is not an array */
    if (n == 0 || n > a->max) {
        lw_problem(l->problems, "%s: must be a list of 1 to %zu addresses, as 10.0.0.7:%d, is %s",
                   o->path, a->max, a->port, lw_shown(l, v, buf));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s[%zu]", o->path, i);
        add_address(l, a, path, json_array_get(v, i));
    }
}

void lw_take_addresses(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    struct addresses a = {&l->c->redis.sentinel.addresses, &l->c->redis.sentinel.n_addresses,
                          LW_SENTINELS_MAX, LW_SENTINEL_PORT, "Sentinel"};
    take_addresses(l, o, v, &a);
}

void lw_take_nodes(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    struct addresses a = {&l->c->redis.cluster.nodes, &l->c->redis.cluster.n_nodes, LW_NODES_MAX,
                          LW_REDIS_PORT, "node"};
    l->c->redis.cluster.on = true;
    take_addresses(l, o, v, &a);
}

/* The key redis.db has its own function instead of the kind LW_OPT_INT, because its value is shown
 * only if the configuration contains it. */
void lw_take_db(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    int64_t n;
    if (!as_integer(l, v, &n) || n < 0 || n > o->max)
        lw_problem(l->problems, "%s: must be a whole number from 0 to %lld, is %s", o->path,
                   (long long)o->max, lw_shown(l, v, buf));
    else
        l->c->redis.db = (int)n;
}

void lw_take_tls_verify(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    if (json_is_boolean(v))
        *(bool *)at(l, o) = json_is_false(v);
    else
        lw_problem(l->problems, "%s: must be true or false, is %s", o->path, lw_shown(l, v, buf));
}

/* --- rules ------------------------------------------------------------------------------------ */

bool lw_pointer_problem(struct lw_loader *l, const char *path, const char *pointer,
                        const char *example) {
    if (*pointer && *pointer != '/')
        return lw_problem(l->problems, "%s: a JSON pointer begins with \"/\", as %s", path,
                          example),
               true;
    if (!lw_json_pointer_ok(pointer))
        return lw_problem(l->problems,
                          "%s: in a JSON pointer \"~\" is written ~0 and \"/\" ~1 (RFC 6901)",
                          path),
               true;
    return false;
}

/* Reads the place of a value: header:NAME, json:/pointer, or exactly the text `word`. Returns false
 * after reporting a problem. */
bool lw_take_rule(struct lw_loader *l, const char *path, json_t *v, const char *word,
                  struct lw_rule *out) {
    char buf[LW_SHOWN_MAX];
    const char *text = lw_take_text(l, path, v, RULE_MAX);
    if (!text) return false;
    struct lw_rule rule = {.from = LW_KEY_MESSAGE};
    if (!strncmp(text, "header:", 7) && text[7]) {
        rule = (struct lw_rule){LW_KEY_HEADER, lw_strdup(text + 7)};
    } else if (!strncmp(text, "json:", 5)) {
        if (lw_pointer_problem(l, path, text + 5, "json:/order/id")) return false;
        rule = (struct lw_rule){LW_KEY_JSON, lw_strdup(text + 5)};
    } else if (strcmp(text, word)) {
        lw_problem(l->problems, "%s: must be \"%s\", \"header:NAME\" or \"json:/pointer\", is %s",
                   path, word, lw_shown(l, v, buf));
        return false;
    }
    free(out->arg);
    *out = rule;
    return true;
}

void lw_take_key_from(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    if (!lw_take_rule(l, o->path, v, "message-key", &l->c->key.from)) return;
    free(l->c->key.from_text);
    l->c->key.from_text = lw_strdup(json_string_value(v));
}

void lw_take_dedup_id(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    lw_take_rule(l, o->path, v, "offset", &l->c->dedup.id);
}

void lw_take_dead_to(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    const char *text = lw_take_text(l, o->path, v, TOPIC_MAX + 6);
    if (!text) return;
    if (!strcmp(text, "redis")) {
        l->c->dead.to = LW_DEAD_REDIS;
    } else if (strncmp(text, "topic:", 6)) {
        lw_problem(l->problems, "%s: must be \"redis\" or \"topic:NAME\", is %s", o->path,
                   lw_shown(l, v, buf));
    } else if (!topic_problem(l, o->path, text + 6)) {
        l->c->dead.to = LW_DEAD_TOPIC;
        free(l->c->dead.topic);
        l->c->dead.topic = lw_strdup(text + 6);
    }
}

/* --- handler ---------------------------------------------------------------------------------- */

/* Accepts any name as a handler type, because only the registry has the list of types
 * (lw_handler_find()). */
void lw_take_handler_type(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    const char *text = lw_take_text(l, o->path, v, 64);
    if (!text) return;
    free(l->c->handler.type);
    l->c->handler.type = lw_strdup(text);
}
