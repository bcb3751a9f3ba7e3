/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a configuration, and writes the reference page of all keys, by means of the table of
 * keys. */
#include "base/bytes.h"
#include "base/redis/url.h"
#include "config/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *lw_show_name(const struct lw_config *c) { return json_string(c->name); }
json_t *lw_show_key_from(const struct lw_config *c) { return json_string(c->key.from_text); }

/* Returns the configured member id, or "off" if the members are dynamic. Returns NULL, so that
 * nothing is shown, if no id is configured; the host's name is then the id. */
json_t *lw_show_member_id(const struct lw_config *c) {
    if (c->kafka.dynamic) return json_string("off");
    return c->kafka.member_id ? json_string(c->kafka.member_id) : NULL;
}

json_t *lw_show_topics(const struct lw_config *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->kafka.n_topics; i++)
        json_array_append_new(list, json_string(c->kafka.topics[i]));
    return list;
}

json_t *lw_show_properties(const struct lw_config *c) {
    json_t *object = json_object();
    for (size_t i = 0; i < c->kafka.n_properties; i++) {
        const struct lw_property *p = &c->kafka.properties[i];
        json_object_set_new(object, p->name, json_string(p->secret ? "***" : p->value));
    }
    return object;
}

static json_t *show_url(const char *url) {
    char *safe = lw_or_abort(lw_url_redact(url));
    json_t *v = json_string(safe);
    free(safe);
    return v;
}

json_t *lw_show_urls(const struct lw_config *c) {
    if (!c->redis.n_urls) return NULL;
    if (c->redis.n_urls == 1) return show_url(c->redis.urls[0]);
    json_t *list = json_array();
    for (size_t i = 0; i < c->redis.n_urls; i++)
        json_array_append_new(list, show_url(c->redis.urls[i]));
    return list;
}

static json_t *show_list(char *const *text, size_t n) {
    json_t *list = n ? json_array() : NULL;
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_string(text[i]));
    return list;
}

json_t *lw_show_addresses(const struct lw_config *c) {
    return show_list(c->redis.sentinel.addresses, c->redis.sentinel.n_addresses);
}
json_t *lw_show_nodes(const struct lw_config *c) {
    return show_list(c->redis.cluster.nodes, c->redis.cluster.n_nodes);
}

json_t *lw_show_db(const struct lw_config *c) {
    return c->redis.db ? json_integer(c->redis.db) : NULL;
}

/* lw_show_sentinel_verify() and lw_show_tls_verify() return NULL for the default, which is then not
 * shown, because most fleets do not use TLS. */
json_t *lw_show_sentinel_verify(const struct lw_config *c) {
    return c->redis.sentinel.tls.no_verify ? json_false() : NULL;
}
json_t *lw_show_tls_verify(const struct lw_config *c) {
    return c->redis.tls.no_verify ? json_false() : NULL;
}

json_t *lw_show_dead_to(const struct lw_config *c) {
    return c->dead.to == LW_DEAD_TOPIC ? json_sprintf("topic:%s", c->dead.topic)
                                       : json_string("redis");
}

json_t *lw_show_dedup_id(const struct lw_config *c) {
    const struct lw_rule *r = &c->dedup.id;
    if (r->from == LW_KEY_MESSAGE) return json_string("offset");
    return json_sprintf("%s:%s", r->from == LW_KEY_HEADER ? "header" : "json", r->arg);
}

json_t *lw_show_http_listen(const struct lw_config *c) { return json_string(c->http.listen); }
json_t *lw_show_http_health_listen(const struct lw_config *c) {
    return c->http.health_listen ? json_string(c->http.health_listen) : NULL;
}
json_t *lw_show_http_hosts(const struct lw_config *c) {
    return show_list(c->http.hosts, c->http.n_hosts);
}
json_t *lw_show_http_mask(const struct lw_config *c) {
    return show_list(c->http.mask, c->http.n_mask);
}

json_t *lw_show_http_token(const struct lw_config *c) {
    for (size_t i = 0; i < c->http.n_tokens; i++)
        if (!strcmp(c->http.tokens[i].name, "token")) return json_string("***");
    return NULL;
}

static json_t *show_tokens(const struct lw_config *c, bool write) {
    json_t *object = json_object();
    for (size_t i = 0; i < c->http.n_tokens; i++)
        if (c->http.tokens[i].write == write && strcmp(c->http.tokens[i].name, "token"))
            json_object_set_new(object, c->http.tokens[i].name, json_string("***"));
    if (json_object_size(object)) return object;
    json_decref(object);
    return NULL;
}

json_t *lw_show_http_read_tokens(const struct lw_config *c) { return show_tokens(c, false); }
json_t *lw_show_http_write_tokens(const struct lw_config *c) { return show_tokens(c, true); }

static json_t *show_text(const char *text, bool secret) {
    return text ? json_string(secret ? "***" : text) : NULL;
}

static json_t *show(const struct lw_config *c, const struct lw_option *o) {
    const void *at = (const char *)c + o->at;
    int word;
    switch (o->kind) {
    case LW_OPT_INT: /* a number below the least one stands for a key that is not given */
        return *(const int *)at < o->min ? NULL : json_integer(*(const int *)at);
    case LW_OPT_INT64: return json_integer(*(const int64_t *)at);
    case LW_OPT_WORD: memcpy(&word, at, sizeof word); return json_string(o->words[word]);
    case LW_OPT_EITHER: return json_string(o->words[*(const bool *)at ? 1 : 0]);
    case LW_OPT_TEXT: return show_text(*(char *const *)at, o->secret);
    case LW_OPT_CUSTOM:
    case LW_OPT_HANDLER: return o->show ? o->show(c) : NULL;
    }
    return NULL;
}

/* Stores a value under its path, and creates the sections that the path names. */
static void put(json_t *root, const char *path, json_t *v) {
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        char section[64];
        snprintf(section, sizeof section, "%.*s", (int)(dot - path), path);
        json_t *object = json_object_get(root, section);
        if (!object) json_object_set_new(root, section, object = json_object());
        root = object;
    }
    json_object_set_new(root, path, v);
}

/* Adds TLS sections that are given but empty. With Sentinels or a cluster, even an empty section
 * turns TLS on. */
static void show_given(const struct lw_config *c, json_t *root) {
    json_t *redis = json_object_get(root, "redis"), *sentinel = json_object_get(redis, "sentinel");
    if (!c->redis.sentinel.on && !c->redis.cluster.on) return;
    if (c->redis.tls.on && !json_object_get(redis, "tls"))
        json_object_set_new(redis, "tls", json_object());
    if (c->redis.sentinel.tls.on && !json_object_get(sentinel, "tls"))
        json_object_set_new(sentinel, "tls", json_object());
}

void lw_config_print(const struct lw_config *c, struct lw_buf *out) {
    json_t *root = json_object();
    for (size_t i = 0; i < lw_n_options; i++) {
        /* skip the options of the handler here, because the whole section is printed below */
        if (!strncmp(lw_options[i].path, "handler.", 8)) continue;
        json_t *v = show(c, &lw_options[i]);
        if (v) put(root, lw_options[i].path, v);
    }
    show_given(c, root);
    char *text = json_dumps(root, JSON_INDENT(2));
    lw_buf_addf(out, "%s\n", text ? text : "{}");
    free(text);
    json_decref(root);
}

/* --- the reference page ----------------------------------------------------------------------- */

static void form(const struct lw_option *o, struct lw_buf *out) {
    switch (o->kind) {
    case LW_OPT_INT:
    case LW_OPT_INT64:
        lw_buf_addf(out, "%lld to %lld", (long long)o->min, (long long)o->max);
        break;
    case LW_OPT_WORD:
    case LW_OPT_EITHER:
        for (int i = 0; o->words[i]; i++)
            lw_buf_addf(out, "%s`%s`", !i ? "" : o->words[i + 1] ? ", " : " or ", o->words[i]);
        break;
    case LW_OPT_TEXT: lw_buf_addf(out, "string of at most %lld bytes", (long long)o->max); break;
    case LW_OPT_CUSTOM:
    case LW_OPT_HANDLER: lw_buf_addf(out, "%s", o->form); break;
    }
}

static void row(const struct lw_option *o, struct lw_buf *out) {
    lw_buf_addf(out, "| `%s` | ", o->path);
    form(o, out);
    if (o->required)
        lw_buf_addf(out, " | required");
    else if (o->dflt)
        lw_buf_addf(out, " | `%s`", o->dflt);
    else
        lw_buf_addf(out, " | %s", o->dflt_text ? o->dflt_text : "");
    lw_buf_addf(out, " | %s |\n", o->help);
}

void lw_config_reference(struct lw_buf *out) {
    lw_buf_addf(
        out,
        "# Configuration\n\n"
        "<!-- made by `latchwork check --reference` from the table of keys in config/keys.c -->\n\n"
        "One JSON file of at most 1 MiB. Unknown keys and doubled keys are errors; all problems "
        "are listed at once. `--set path=value` "
        "overrides "
        "a key; its value is JSON if it parses as JSON, otherwise a string.\n\n"
        "In every string, `${VAR}` is replaced by an environment variable (an error if it is not "
        "set), `${VAR:-default}` by the default "
        "if "
        "the variable is unset or empty, and `${file:PATH}` by a file's text without its last "
        "newline; PATH may hold variables itself, "
        "such as "
        "`${file:${CREDENTIALS_DIRECTORY}/redis}`. Write `$${` for a literal `${`. "
        "Numbers "
        "may be put in this way, too: `\"workers\": \"${WORKERS:-2}\"`. Secrets belong into "
        "variables or files: they are never printed.\n\n"
        "| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < lw_n_options; i++) row(&lw_options[i], out);
}
