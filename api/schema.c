/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the notation for shapes of JSON, which api/private.h explains: converts a shape to
 * a JSON schema, and checks the bodies of requests against it. */
#include "api/private.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

/* --- from the notation to a schema ------------------------------------------------------------ */

static json_t *parse(const char **p);

static const char *word(const char **p, char *out, size_t size) {
    size_t n = 0;
    while (isalnum((unsigned char)**p) || **p == '_') {
        assert(n + 1 < size);
        out[n++] = *(*p)++;
    }
    out[n] = 0;
    return out;
}

static json_t *parse_object(const char **p) {
    json_t *members = json_object(), *required = json_array();
    while (**p != '}') {
        char name[64];
        word(p, name, sizeof name);
        if (**p == '?')
            (*p)++;
        else
            json_array_append_new(required, json_string(name));
        assert(**p == ':');
        (*p)++;
        json_object_set_new(members, name, parse(p));
        if (**p == ',') (*p)++;
    }
    (*p)++;
    json_t *v = json_pack("{s:s,s:o,s:b}", "type", "object", "properties", members,
                          "additionalProperties", 0);
    if (json_array_size(required)) json_object_set(v, "required", required);
    json_decref(required);
    return v;
}

static json_t *parse_one(const char **p) {
    char name[64];
    if (**p == '{') return ++*p, parse_object(p);
    if (**p == '[') {
        ++*p;
        json_t *v = json_pack("{s:s,s:o}", "type", "array", "items", parse(p));
        assert(**p == ']');
        return ++*p, v;
    }
    if (**p == '*') return ++*p, json_object();
    word(p, name, sizeof name);
    if (isupper((unsigned char)name[0]))
        return json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", name));
    const char *type = !strcmp(name, "s")   ? "string"
                       : !strcmp(name, "i") ? "integer"
                       : !strcmp(name, "n") ? "number"
                       : !strcmp(name, "b") ? "boolean"
                                            : "object";
    return json_pack("{s:s}", "type", type);
}

/* Extends a schema so that it also allows null. A "type" becomes a list of two types, and a
 * reference becomes a choice of two schemas. */
static json_t *or_null(json_t *v) {
    json_t *type = json_object_get(v, "type");
    if (!type) return json_pack("{s:[o,{s:s}]}", "anyOf", v, "type", "null");
    json_object_set_new(v, "type", json_pack("[O,s]", type, "null"));
    return v;
}

static json_t *parse(const char **p) {
    json_t *v = parse_one(p);
    if (**p == '?') return ++*p, or_null(v);
    if (**p == '|') return ++*p, json_pack("{s:[o,o]}", "anyOf", v, parse_one(p));
    return v;
}

json_t *api_schema(const char *text) {
    const char *p = text;
    json_t *v = parse(&p);
    assert(!*p);
    return v;
}

json_t *api_body_schema(const struct api_route *r) {
    json_t *v = api_schema(r->body ? r->body : "{}"), *filter = r->filter ? api_schema("{}") : NULL;
    for (size_t i = 0; i < api_n_params && filter; i++) {
        const char *type = api_params[i].type;
        if (r->filter & api_params[i].bit)
            json_object_set_new(json_object_get(filter, "properties"), api_params[i].name,
                                api_schema(type[0] == '[' ? "s|[s]" : type));
    }
    if (filter) json_object_set_new(json_object_get(v, "properties"), "filter", filter);
    return v;
}

/* --- does a body fit? ------------------------------------------------------------------------- */

static bool is_of(const json_t *v, const char *type) {
    switch (type[0]) {
    case 's': return json_is_string(v);
    case 'i': return json_is_integer(v);
    case 'b': return json_is_boolean(v);
    case 'a': return json_is_array(v);
    case 'o': return json_is_object(v);
    default: return type[1] == 'u' && type[2] == 'm' ? json_is_number(v) : json_is_null(v);
    }
}

static bool has_type(const json_t *v, const json_t *type) {
    size_t i;
    const json_t *one;
    if (!type) return true;
    if (json_is_string(type)) return is_of(v, json_string_value(type));
    json_array_foreach(type, i, one)
        if (is_of(v, json_string_value(one))) return true;
    return false;
}

static const char *type_text(const json_t *type) {
    return json_string_value(json_is_array(type) ? json_array_get(type, 0) : type);
}

static bool fits(const json_t *schema, const json_t *v, const char *name, struct lw_err *err);

static bool members_fit(const json_t *schema, const json_t *v, struct lw_err *err) {
    const json_t *known = json_object_get(schema, "properties"), *one;
    const char *name;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, one)
        if (!json_object_get(v, json_string_value(one)))
            return lw_fail(err, "\"%s\" is missing", json_string_value(one)), false;
    json_object_foreach((json_t *)(uintptr_t)v, name, one) {
        const json_t *of = json_object_get(known, name);
        if (!of) return lw_fail(err, "unknown member \"%.60s\"", name), false;
        if (!fits(of, one, name, err)) return false;
    }
    return true;
}

static bool fits(const json_t *schema, const json_t *v, const char *name, struct lw_err *err) {
    const json_t *type = json_object_get(schema, "type"), *any = json_object_get(schema, "anyOf"),
                 *one;
    size_t i;
    json_array_foreach(any, i, one) {
        struct lw_err ignored = {0};
        if (fits(one, v, name, &ignored)) return true;
    }
    if (any || !has_type(v, type))
        return lw_fail(err, "\"%s\": expected %s", name,
                       any ? "a string or a list of strings" : type_text(type)),
               false;
    if (json_is_object(v) && json_object_get(schema, "properties"))
        return members_fit(schema, v, err);
    json_array_foreach(v, i, one)
        if (!fits(json_object_get(schema, "items"), one, name, err)) return false;
    return true;
}

bool api_fits(const json_t *schema, const json_t *v, struct lw_err *err) {
    return fits(schema, v, "body", err);
}
