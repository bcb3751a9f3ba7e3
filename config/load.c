/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a configuration in these steps: text → JSON → overrides → ${…} → each key by the table of
 * keys → defaults → checks that involve several keys. */
#include "config/option.h"

#include "base/json_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reading ---------------------------------------------------------------------------------- */

/* Reports malformed JSON with its position and jansson's error text. The end of that text is cut
 * off, because it quotes the input near the error, which may be a secret. If an object has the same
 * key twice, the whole text is shown, because the text names this key. */
static void syntax_problem(struct lw_problems *problems, const char *name, const json_error_t *e) {
    size_t n = strlen(e->text);
    if (json_error_code(e) == json_error_null_character) {
        lw_problem(problems, "%s:%d:%d: \\u0000 is not allowed", name, e->line, lw_json_column(e));
        return;
    }
    const char *near = strstr(e->text, " near ");
    if (near && json_error_code(e) != json_error_duplicate_key) n = (size_t)(near - e->text);
    lw_problem(problems, "%s:%d:%d: %.*s", name, e->line, lw_json_column(e), (int)n, e->text);
}

static json_t *parse_root(const char *name, const char *text, size_t n,
                          struct lw_problems *problems) {
    json_error_t e;
    if (n > LW_CONFIG_BYTES_MAX) return lw_problem(problems, "%s: larger than 1 MiB", name), NULL;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return syntax_problem(problems, name, &e), NULL;
    if (json_is_object(root)) return root;
    lw_problem(problems, "%s: must hold an object {…}, holds a list", name);
    json_decref(root);
    return NULL;
}

/* --- walking ---------------------------------------------------------------------------------- */

static void walk(struct lw_loader *l, const char *section, json_t *object);

static void unknown(struct lw_loader *l, const char *path) {
    char near[128];
    lw_option_nearest(path, near, sizeof near);
    if (*near)
        lw_problem(l->problems, "%s: unknown key; did you mean %s?", path, near);
    else
        lw_problem(l->problems, "%s: unknown key", path);
}

static void walk_section(struct lw_loader *l, const char *path, json_t *v) {
    char buf[LW_SHOWN_MAX];
    if (!json_is_object(v)) {
        lw_problem(l->problems, "%s: must be an object, is %s", path, lw_shown(l, v, buf));
        return;
    }
    lw_section_given(l, path);
    walk(l, path, v);
}

static void walk_one(struct lw_loader *l, const char *path, json_t *v, bool open) {
    const struct lw_option *o = lw_option_find(path);
    if (o && o->kind == LW_OPT_HANDLER) {
        if (json_is_object(v)) l->c->handler.json = json_incref(v);
        walk_section(l, path, v);
    } else if (o) {
        lw_option_take(l, o, v);
    } else if (lw_option_section(path)) {
        walk_section(l, path, v);
    } else if (!open) {
        unknown(l, path);
    }
}

static void walk(struct lw_loader *l, const char *section, json_t *object) {
    const struct lw_option *s = lw_option_find(section);
    const char *name;
    json_t *v;
    json_object_foreach(object, name, v) {
        char path[256];
        snprintf(path, sizeof path, "%s%s%.200s", section, *section ? "." : "", name);
        /* do not take a name that contains a dot for the path of a key in another section */
        if (strchr(name, '.') && !(s && s->kind == LW_OPT_HANDLER))
            unknown(l, path);
        else
            walk_one(l, path, v, s && s->kind == LW_OPT_HANDLER);
    }
}

/* --- defaults --------------------------------------------------------------------------------- */

static json_t *given(json_t *root, const char *path) {
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        char section[64];
        snprintf(section, sizeof section, "%.*s", (int)(dot - path), path);
        root = json_object_get(root, section);
    }
    return json_object_get(root, path);
}

/* Fills in the defaults before the values are read. So the default stays in place if a value is
 * rejected. */
static void take_defaults(struct lw_loader *l, json_t *root) {
    for (size_t i = 0; i < lw_n_options; i++) {
        const struct lw_option *o = &lw_options[i];
        if (!o->dflt) continue;
        bool plain =
            o->kind != LW_OPT_CUSTOM || o->take == lw_take_name || o->take == lw_take_key_from;
        if (!plain && given(root, o->path)) continue;
        if ((o->unless[0] && given(root, o->unless[0])) ||
            (o->unless[1] && given(root, o->unless[1])))
            continue;
        json_t *v = json_loads(o->dflt, JSON_DECODE_ANY, NULL);
        lw_option_take(l, o, v);
        json_decref(v);
    }
}

static void check_required(struct lw_loader *l, json_t *root) {
    for (size_t i = 0; i < lw_n_options; i++) {
        const struct lw_option *o = &lw_options[i];
        if (!o->required || given(root, o->path)) continue;
        bool below = !strncmp(o->path, "handler.", 8);
        /* another check already reported a handler that is not an object */
        if (below && !json_is_object(json_object_get(root, "handler"))) continue;
        lw_problem(l->problems, "%s: missing; it has no default", o->path);
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

static void load(struct lw_loader *l, json_t *root, const struct lw_override *set, size_t n_set) {
    for (size_t i = 0; i < n_set; i++) lw_override(l, root, &set[i]);
    lw_expand(l, "", root);
    take_defaults(l, root);
    walk(l, "", root);
    check_required(l, root);
    if (!given(root, "http.payloads")) lw_default_payloads(l->c);
    if (!l->c->handler.json) l->c->handler.json = json_object();
    lw_finish(l);
    if (l->problems->check_handler && l->c->handler.type)
        l->problems->check_handler(l->c, l->problems);
    l->c->handler.shown = lw_masked(l, l->c->handler.json);
}

struct lw_config *lw_config_parse(const char *name, const char *text, size_t n,
                                  const struct lw_override *set, size_t n_set,
                                  struct lw_problems *problems) {
    json_t *root = parse_root(name, text, n, problems);
    if (!root) return NULL;
    struct lw_loader l = {.c = lw_alloc(sizeof(struct lw_config)), .problems = problems};
    l.c->path = lw_strdup(name);
    load(&l, root, set, n_set);
    lw_expand_free(&l);
    json_decref(root);
    if (!problems->n_errors) return l.c;
    lw_config_free(l.c);
    return NULL;
}

struct lw_config *lw_config_load(const char *path, const struct lw_override *set, size_t n_set,
                                 struct lw_problems *problems) {
    FILE *f = fopen(path, "re");
    if (!f) return lw_problem(problems, "%s: %s", path, strerror(errno)), NULL;
    char *text = lw_alloc(LW_CONFIG_BYTES_MAX + 1);
    size_t n = fread(text, 1, LW_CONFIG_BYTES_MAX + 1, f);
    int failed = ferror(f) ? errno : 0;
    fclose(f);
    struct lw_config *c = NULL;
    if (failed)
        lw_problem(problems, "%s: %s", path, strerror(failed));
    else
        c = lw_config_parse(path, text, n, set, n_set, problems);
    free(text);
    return c;
}

static void free_strings(char **s, size_t n) {
    for (size_t i = 0; i < n; i++) free(s[i]);
    free(s);
}

void lw_config_free(struct lw_config *c) {
    if (!c) return;
    free(c->path);
    free(c->name);
    free_strings(c->kafka.topics, c->kafka.n_topics);
    for (size_t i = 0; i < c->kafka.n_properties; i++) {
        free(c->kafka.properties[i].name);
        free(c->kafka.properties[i].value);
    }
    free(c->kafka.properties);
    free(c->kafka.group_id);
    free(c->kafka.member_id);
    free_strings(c->redis.urls, c->redis.n_urls);
    free(c->redis.username), free(c->redis.password);
    lw_tls_free(&c->redis.tls);
    free_strings(c->redis.cluster.nodes, c->redis.cluster.n_nodes);
    free_strings(c->redis.sentinel.addresses, c->redis.sentinel.n_addresses);
    free(c->redis.sentinel.master), free(c->redis.sentinel.username),
        free(c->redis.sentinel.password);
    lw_tls_free(&c->redis.sentinel.tls);
    free(c->key.from.arg);
    free(c->key.from_text);
    free(c->dead.topic);
    free(c->dedup.id.arg);
    free(c->http.listen), free(c->http.host);
    free(c->http.health_listen), free(c->http.health_host);
    for (size_t i = 0; i < c->http.n_tokens; i++)
        free(c->http.tokens[i].name), free(c->http.tokens[i].secret);
    free(c->http.tokens);
    free_strings(c->http.hosts, c->http.n_hosts);
    free_strings(c->http.mask, c->http.n_mask);
    lw_group_free(c);
    free(c->tracing.endpoint), free(c->tracing.service);
    for (size_t i = 0; i < c->tracing.n_headers; i++)
        free(c->tracing.headers[i].name), free(c->tracing.headers[i].value);
    free(c->tracing.headers);
    lw_tls_free(&c->tracing.tls);
    free(c->handler.type);
    json_decref(c->handler.json);
    json_decref(c->handler.shown);
    free(c);
}
