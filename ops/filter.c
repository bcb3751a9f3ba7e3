/* SPDX-License-Identifier: Apache-2.0 */
/* Implements filters, which choose the lanes and messages that a command is about. */
#include "base/json_place.h"
#include "ops/ops.h"
#include "ops/time.h"

#include <stdlib.h>
#include <string.h>

/* --- globs over any bytes --------------------------------------------------------------------- */

static const char *set_end(const char *p, const char *end) {
    /* Returns the end of a set "[…]" in a pattern. `p` points to the character after the '['. */
    if (p < end && (*p == '!' || *p == '^')) p++;
    if (p < end) p++; /* a ']' in the first place is a member of the set, not its end */
    while (p < end && *p != ']') p++;
    return p < end ? p : NULL;
}

static bool in_set(const char *p, const char *end, char c) {
    bool not = *p == '!' || *p == '^', found = false;
    if (not ) p++;
    for (; p < end; p++) {
        if (p + 2 < end && p[1] == '-') {
            found |=
                (unsigned char)*p <= (unsigned char)c && (unsigned char)c <= (unsigned char)p[2];
            p += 2;
        } else {
            found |= *p == c;
        }
    }
    return found != not ;
}

static bool one(const char **p, const char *end, char c) {
    const char *close;
    if (**p == '?') {
        (*p)++;
        return true;
    }
    if (**p == '[' && (close = set_end(*p + 1, end))) {
        bool is = in_set(*p + 1, close, c);
        *p = close + 1;
        return is;
    }
    if (**p == '\\' && *p + 1 < end) (*p)++;
    return *(*p)++ == c;
}

bool ops_glob(struct lw_bytes pattern, struct lw_bytes text) {
    const char *p = pattern.p, *end = p + pattern.n, *star = NULL;
    size_t i = 0, from = 0;
    while (i < text.n) {
        const char *at = p;
        if (p < end && *p == '*') {
            star = ++p;
            from = i;
        } else if (p < end && one(&p, end, text.p[i])) {
            i++;
        } else if (star) {
            p = star;
            i = ++from;
        } else {
            p = at;
            return false;
        }
    }
    while (p < end && *p == '*') p++;
    return p == end;
}

/* --- --where ---------------------------------------------------------------------------------- */

struct where {
    char *pointer;
    /* `op` is the comparison: = ! < > or ~, l for <=, g for >=, or 0 if the filter only tests that
     * the member exists */
    char op;
    const char *value;
};

static int split(const char *text, struct where *w) {
    static const struct {
        const char *text;
        char op;
    } ops[] = {{"!=", '!'}, {"<=", 'l'}, {">=", 'g'}, {"==", '='},
               {"=", '='},  {"<", '<'},  {">", '>'},  {"~", '~'}};
    if (*text && *text != '/') return -1;
    size_t n = strcspn(text, "!<>=~");
    size_t len = n;
    while (len && text[len - 1] == ' ') len--;
    w->pointer = lw_memdup(text, len);
    w->op = 0;
    for (size_t i = 0; text[n] && i < sizeof ops / sizeof *ops && !w->op; i++)
        if (strncmp(text + n, ops[i].text, strlen(ops[i].text)) == 0) {
            w->op = ops[i].op;
            w->value = text + n + strlen(ops[i].text);
            w->value += strspn(w->value, " ");
        }
    if (!text[n] || w->op) return 0;
    free(w->pointer);
    return -1;
}

static bool compare(const json_t *v, char op, const char *value) {
    char *end;
    double wanted = strtod(value, &end);
    bool number = end != value && !*end;
    double d = 0;
    int c;
    if (json_is_number(v) && number && op != '~') {
        d = json_number_value(v) - wanted;
        c = d < 0 ? -1 : d > 0;
    } else {
        char *own = NULL;
        const char *text = json_is_string(v)
                               ? json_string_value(v)
                               : (own = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY));
        if (!text) return false;
        c = op == '~' ? strstr(text, value) == NULL : strcmp(text, value);
        bool same_kind = json_is_string(v) || strchr("=!~", op);
        free(own);
        if (!same_kind) return false; /* only texts and numbers can be ordered */
    }
    switch (op) {
    case '=':
    case '~': return c == 0;
    case '!': return c != 0;
    case '<': return c < 0;
    case 'l': return c <= 0;
    case '>': return c > 0;
    default: return c >= 0;
    }
}

static bool where_holds(const char *text, const json_t *payload) {
    struct where w;
    if (split(text, &w)) return false;
    const json_t *v = lw_json_at(payload, w.pointer);
    free(w.pointer);
    if (!w.op) return v != NULL;
    return v ? compare(v, w.op, w.value) : w.op == '!';
}

static bool payload_matches(const struct ops *o, struct lw_bytes payload) {
    if (!o->args.n_where) return true;
    json_t *v =
        payload.p ? json_loadb(payload.p, payload.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    if (!v) return false;
    bool all = true;
    for (size_t i = 0; i < o->args.n_where; i++) all &= where_holds(o->args.where[i], v);
    json_decref(v);
    return all;
}

/* --- the filters ------------------------------------------------------------------------------ */

int ops_filter_check(struct ops *o, struct lw_err *err) {
    const struct ops_args *a = &o->args;
    for (size_t i = 0; i < a->n_where; i++) {
        struct where w;
        if (split(a->where[i], &w))
            return lw_fail(err,
                           "--where %s: expected a JSON pointer, or a pointer, an operator (= != < "
                           "<= > >= ~) and a value, such as /total>100",
                           a->where[i]);
        free(w.pointer);
    }
    if (a->sort && strcmp(a->sort, "age") && strcmp(a->sort, "size"))
        return lw_fail(err, "--sort %s: expected age or size", a->sort);
    const char *times[] = {a->from, a->to};
    for (size_t i = 0; i < 2; i++)
        if (times[i] && *times[i] != '@' && ops_time_ms(times[i], o->asked_ms) < 0)
            return lw_fail(err, "--%s %s: expected a time such as 2026-11-21T12:00:00Z or 1h (ago)",
                           i ? "to" : "from", times[i]);
    return 0;
}

bool ops_has_filter(const struct ops *o) {
    const struct ops_args *a = &o->args;
    return a->n_keys || a->n_where || a->match || a->topic || a->reason || a->error || a->from ||
           a->to || a->partition >= 0 || a->attempts >= 0 || a->older_ms >= 0 || a->n_words;
}

bool ops_lane_matches(const struct ops *o, struct lw_bytes lane) {
    const struct ops_args *a = &o->args;
    if (a->match && !ops_glob(lw_bytes_of(a->match), lane)) return false;
    if (!a->n_keys) return true;
    char room[LW_LANE_ROOM];
    for (size_t i = 0; i < a->n_keys; i++)
        if (lw_bytes_eq(lw_lane_named(lw_bytes_of(a->keys[i]), room, sizeof room), lane))
            return true;
    return false;
}

static bool common(const struct ops *o, struct lw_bytes topic, int64_t partition, int64_t first_ms,
                   int64_t attempts) {
    const struct ops_args *a = &o->args;
    if (a->topic && !lw_bytes_eq(lw_bytes_of(a->topic), topic)) return false;
    if (a->partition >= 0 && a->partition != partition) return false;
    if (a->older_ms >= 0 && o->asked_ms - first_ms < a->older_ms) return false;
    return a->attempts < 0 || attempts >= a->attempts;
}

bool ops_lane_head_matches(const struct ops *o, const struct ops_lane *l) {
    const struct ops_args *a = &o->args;
    if (!l->has_head) return !a->topic && a->partition < 0 && a->older_ms < 0 && a->attempts <= 0;
    return common(o, lw_bytes_of(l->topic), l->partition, l->first_ms, l->attempts);
}

static bool named(const struct ops *o, const struct ops_message *m) {
    char identity[320];
    ops_identity(&m->e, identity, sizeof identity);
    bool any = false;
    for (int i = 0; i < o->args.n_words; i++) {
        if (strcmp(o->args.words[i], identity) != 0 &&
            (!m->id[0] || strcmp(o->args.words[i], m->id) != 0))
            continue;
        if (o->met) o->met[i] = OPS_MET;
        any = true;
    }
    return any;
}

void ops_mark_word(const struct ops *o, const char *word, enum ops_met met) {
    for (int i = 0; o->met && i < o->args.n_words; i++)
        if (strcmp(o->args.words[i], word) == 0) o->met[i] = (unsigned char)met;
}

int ops_tell_missing(struct ops *o, const char *why) {
    int n = 0;
    for (int i = 0; o->met && !o->args.resume && i < o->args.n_words; i++) {
        if (o->met[i] == OPS_MET) continue;
        n++;
        if (o->met[i] == OPS_TOLD || o->quiet) continue;
        fprintf(stderr, "latchwork %s %s: %s: %s\n", o->noun, o->verb, o->args.words[i], why);
        o->met[i] = OPS_TOLD;
    }
    return n;
}

static bool dead_matches(const struct ops *o, const struct ops_message *m) {
    const struct ops_args *a = &o->args;
    if (a->reason && !ops_glob(lw_bytes_of(a->reason), m->reason)) return false;
    if (a->error && !memmem(m->reason.p, m->reason.n, a->error, strlen(a->error))) return false;
    if (a->from && m->last_ms < ops_time_ms(a->from, o->asked_ms)) return false;
    return !a->to || m->last_ms < ops_time_ms(a->to, o->asked_ms);
}

bool ops_message_matches(const struct ops *o, const struct ops_message *m) {
    /* named() is called before other filters reject the message, because it marks the argument as
     * found */
    bool is_named = !o->args.n_words || ((!m->bad || m->id[0]) && named(o, m));
    if (!ops_lane_matches(o, m->lane)) return false;
    if (m->id[0] && !dead_matches(o, m)) return false;
    /* the envelope cannot be decoded, so only the fields stored beside it are known */
    if (m->bad) {
        const struct ops_args *a = &o->args;
        bool asked = a->topic || a->n_where || a->partition >= 0 || a->older_ms >= 0 || a->n_keys;
        return !asked && (a->attempts < 0 || m->attempts >= a->attempts) && is_named;
    }
    /* The record is from a topic that the application does not consume. The function that read the
     * record has already applied the other filters. */
    if (m->foreign) return payload_matches(o, m->e.payload);
    if (!common(o, m->e.topic, m->e.partition, m->e.first_ms, m->attempts)) return false;
    return is_named && payload_matches(o, m->e.payload);
}
