/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/key.h"

#include "base/json_scan.h"

#include <assert.h>
#include <inttypes.h>

enum { DEPTH_MAX = 512 };

static enum lw_key_result find_json(const struct lw_rule *rule, const struct lw_record *r,
                                    struct lw_buf *scratch, struct lw_bytes *out,
                                    struct lw_err *err) {
    assert(rule->from == LW_KEY_JSON && rule->arg);
    static const struct lw_json_rules rules = {.depth_max = DEPTH_MAX};
    static const char *const kinds[] = {[LW_JSON_TRUE] = "true or false",
                                        [LW_JSON_FALSE] = "true or false",
                                        [LW_JSON_OBJECT] = "an object",
                                        [LW_JSON_ARRAY] = "a list"};
    if (!r->payload.p)
        return lw_fail(err, "the payload is null, so it has no %s", rule->arg), LW_KEY_MISSING;
    struct lw_json_path path;
    struct lw_json_value v;
    lw_json_path_init(&path, rule->arg);
    if (lw_json_scan(r->payload, rules, &path, 1, &v, scratch, err)) return LW_KEY_BAD;
    switch (v.kind) {
    case LW_JSON_NOTHING: return lw_fail(err, "the payload has no %s", rule->arg), LW_KEY_MISSING;
    case LW_JSON_NULL: return lw_fail(err, "%s is null", rule->arg), LW_KEY_MISSING;
    case LW_JSON_STRING:
    case LW_JSON_INTEGER:
    case LW_JSON_REAL: *out = lw_json_text(&v, scratch); return LW_KEY_OK;
    default:
        lw_fail(err, "%s is %s, not a string or a number", *rule->arg ? rule->arg : "the payload",
                kinds[v.kind]);
        return LW_KEY_BAD;
    }
}

static enum lw_key_result find_header(const struct lw_rule *rule, const struct lw_record *r,
                                      struct lw_bytes *out, struct lw_err *err) {
    assert(rule->from == LW_KEY_HEADER && rule->arg);
    struct lw_bytes name = lw_bytes_of(rule->arg);
    for (size_t i = r->n_headers; i-- > 0;) {
        if (!lw_bytes_eq(r->headers[i].name, name)) continue;
        if (!r->headers[i].value.p)
            return lw_fail(err, "header %s is null", rule->arg), LW_KEY_MISSING;
        *out = r->headers[i].value;
        return LW_KEY_OK;
    }
    return lw_fail(err, "no header %s", rule->arg), LW_KEY_MISSING;
}

enum lw_key_result lw_key_find(const struct lw_rule *rule, const struct lw_record *r,
                               struct lw_buf *scratch, struct lw_bytes *out, struct lw_err *err) {
    scratch->n = 0;
    switch (rule->from) {
    case LW_KEY_HEADER: return find_header(rule, r, out, err);
    case LW_KEY_JSON: return find_json(rule, r, scratch, out, err);
    case LW_KEY_MESSAGE: break;
    }
    if (!r->key.p) return lw_fail(err, "the message has no key (key.missing)"), LW_KEY_MISSING;
    *out = r->key;
    return LW_KEY_OK;
}

enum lw_key_result lw_key_of(const struct lw_config *c, const struct lw_record *r,
                             const struct lw_record_at *at, struct lw_buf *scratch,
                             struct lw_bytes *out, struct lw_err *err) {
    enum lw_key_result how = lw_key_find(&c->key.from, r, scratch, out, err);
    if (how != LW_KEY_MISSING || c->key.missing != LW_MISSING_OWN) return how;
    assert(at->topic.n && at->partition >= 0 && at->offset >= 0);
    scratch->n = 0;
    lw_buf_addf(scratch, "%.*s/%" PRId32 "/%" PRId64, (int)at->topic.n, at->topic.p, at->partition,
                at->offset);
    *out = lw_bytes(scratch->p, scratch->n);
    return LW_KEY_OK;
}
