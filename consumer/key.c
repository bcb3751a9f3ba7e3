#include "consumer/key.h"

#include <stdio.h>

/* ---- a validating scanner over JSON text ----
 *
 * One pass from the first byte to the last, so that a document is accepted or refused whole. `target` is set where the pointer leads; of
 * doubled names the last wins, as it does in most parsers that a handler may use. */

enum { DEPTH_MAX = 512, NO_MATCH = -1 };

enum kind { NOTHING, STRING, NUMBER, LITERAL, OBJECT, ARRAY };

struct value {
    enum kind kind;
    struct lw_bytes raw; /* a string's without its quotes */
    bool escaped;
};

struct scan {
    const unsigned char *begin, *p, *end;
    const char *pointer;    /* RFC 6901 */
    struct lw_buf *scratch; /* decoded names */
    struct value target;
    struct lw_err *err;
    int depth;
};

/* Every function below returns 0, or -1 with the first error and its position. */
static int bad(const struct scan *s, const unsigned char *where, const char *what) {
    return lw_fail(s->err, "malformed JSON at byte %zu: %s", (size_t)(where - s->begin), what);
}

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) s->p++;
}

static bool next_is(const struct scan *s, char c) { return s->p < s->end && *s->p == (unsigned char)c; }

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/* ---- strings ---- */

static int hex4(const unsigned char *p, const unsigned char *end) {
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = p[i], lower = (unsigned char)(c | 0x20);
        if (is_digit(c))
            v = v * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            v = v * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return v;
}

/* At 'u'. Sets *code and moves past the escape, both halves of a surrogate pair included. */
static int scan_unicode(struct scan *s, unsigned *code) {
    const unsigned char *at = s->p - 1;
    int hi = hex4(s->p + 1, s->end), lo;
    if (hi < 0) return bad(s, at, "\\u needs four hexadecimal digits");
    s->p += 5;
    *code = (unsigned)hi;
    if (hi < 0xd800 || hi > 0xdfff) return 0;
    if (hi > 0xdbff || s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u') return bad(s, at, "half a surrogate pair");
    lo = hex4(s->p + 2, s->end);
    if (lo < 0xdc00 || lo > 0xdfff) return bad(s, at, "half a surrogate pair");
    *code = 0x10000 + (((unsigned)hi - 0xd800) << 10) + ((unsigned)lo - 0xdc00);
    s->p += 6;
    return 0;
}

/* Behind a backslash. */
static int scan_escape(struct scan *s) {
    unsigned code;
    if (next_is(s, 'u')) return scan_unicode(s, &code);
    if (s->p == s->end || !*s->p || !strchr("\"\\/bfnrt", *s->p)) return bad(s, s->p - 1, "unknown escape");
    s->p++;
    return 0;
}

/* One character of more than one byte: no overlong form, no surrogate, nothing above U+10FFFF. */
static int scan_utf8(struct scan *s) {
    unsigned char c = *s->p, low = 0x80, high = 0xbf;
    int more = c >= 0xc2 && c <= 0xdf ? 1 : c >= 0xe0 && c <= 0xef ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    if (!more || s->end - s->p <= more || s->p[1] < low || s->p[1] > high) return bad(s, s->p, "not UTF-8");
    for (int i = 2; i <= more; i++)
        if ((s->p[i] & 0xc0) != 0x80) return bad(s, s->p, "not UTF-8");
    s->p += more + 1;
    return 0;
}

/* At the opening quote. */
static int scan_string(struct scan *s, struct value *v) {
    const unsigned char *open = s->p++;
    *v = (struct value){.kind = STRING};
    while (s->p < s->end) {
        unsigned char c = *s->p;
        if (c == '"') {
            v->raw = lw_bytes((const char *)open + 1, (size_t)(s->p++ - open - 1));
            return 0;
        }
        if (c < 0x20) return bad(s, s->p, "control character in a string");
        if (c == '\\') {
            v->escaped = true;
            s->p++;
            if (scan_escape(s)) return -1;
        } else if (c < 0x80) {
            s->p++;
        } else if (scan_utf8(s)) {
            return -1;
        }
    }
    return bad(s, s->p, "the document ends inside a string");
}

static void put_utf8(struct lw_buf *out, unsigned c) {
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) b[i] = (char)(0x80 | (c & 0x3f));
    b[0] = (char)(lead[n] | c);
    lw_buf_add(out, b, n);
}

/* Decodes a string that scan_string() accepted. */
static void decode(struct lw_bytes raw, struct lw_buf *out) {
    struct scan s = {.begin = (const unsigned char *)raw.p, .p = (const unsigned char *)raw.p};
    s.end = s.p + raw.n;
    while (s.p < s.end) {
        const unsigned char *run = memchr(s.p, '\\', (size_t)(s.end - s.p));
        if (!run) run = s.end;
        lw_buf_add(out, s.p, (size_t)(run - s.p));
        s.p = run;
        if (s.p == s.end) return;
        unsigned code = 0;
        s.p++;
        if (*s.p == 'u') {
            scan_unicode(&s, &code);
        } else {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            code = (unsigned char)to[strchr(from, *s.p++) - from];
        }
        put_utf8(out, code);
    }
}

static struct lw_bytes text_of(const struct value *v, struct lw_buf *scratch) {
    if (!v->escaped) return v->raw;
    scratch->n = 0;
    decode(v->raw, scratch);
    return lw_bytes(scratch->p, scratch->n);
}

/* ---- numbers and words ---- */

static int scan_digits(struct scan *s) {
    if (s->p == s->end || !is_digit(*s->p)) return bad(s, s->p, "a digit is missing");
    while (s->p < s->end && is_digit(*s->p)) s->p++;
    return 0;
}

static int scan_number(struct scan *s, struct value *v) {
    const unsigned char *start = s->p;
    if (next_is(s, '-')) s->p++;
    if (next_is(s, '0'))
        s->p++;
    else if (scan_digits(s))
        return -1;
    if (s->p < s->end && is_digit(*s->p)) return bad(s, s->p, "a number with a leading zero");
    if (next_is(s, '.')) {
        s->p++;
        if (scan_digits(s)) return -1;
    }
    if (next_is(s, 'e') || next_is(s, 'E')) {
        s->p++;
        if (next_is(s, '+') || next_is(s, '-')) s->p++;
        if (scan_digits(s)) return -1;
    }
    *v = (struct value){.kind = NUMBER, .raw = lw_bytes((const char *)start, (size_t)(s->p - start))};
    return 0;
}

static int scan_word(struct scan *s, struct value *v) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) < n || memcmp(s->p, words[i], n)) continue;
        *v = (struct value){.kind = LITERAL, .raw = lw_bytes((const char *)s->p, n)};
        s->p += n;
        return 0;
    }
    return bad(s, s->p, s->p == s->end ? "the document ends where a value should be" : "a value should be here");
}

/* ---- the pointer ---- */

/* Is `name` the pointer's step that begins at `step` (behind its '/')? Steps write ~ as ~0 and / as ~1. */
static bool is_step(const char *step, struct lw_bytes name) {
    size_t i = 0;
    for (; *step && *step != '/'; step++, i++) {
        char c = *step;
        if (c == '~') c = *++step == '1' ? '/' : '~';
        if (i >= name.n || name.p[i] != c) return false;
    }
    return i == name.n;
}

static bool is_index(const char *step, size_t index) {
    char text[24];
    int n = snprintf(text, sizeof text, "%zu", index);
    return is_step(step, lw_bytes(text, (size_t)n));
}

/* Where the pointer goes on behind the step at `at`. */
static int after_step(const struct scan *s, int at) { return at + 1 + (int)strcspn(s->pointer + at + 1, "/"); }

/* ---- values ----
 *
 * `at` is how far the pointer has led to this value: its next step begins there, or it ends there and this is the target; NO_MATCH
 * where this value is off its way. */

static int scan_value(struct scan *s, int at);

static int scan_member(struct scan *s, int at) {
    struct value name;
    if (!next_is(s, '"')) return bad(s, s->p, "a name in quotes should be here");
    if (scan_string(s, &name)) return -1;
    int below = NO_MATCH;
    if (at != NO_MATCH && s->pointer[at] && is_step(s->pointer + at + 1, text_of(&name, s->scratch))) {
        below = after_step(s, at);
        s->target = (struct value){0}; /* a name that came before with the same text is void */
    }
    skip_space(s);
    if (!next_is(s, ':')) return bad(s, s->p, "a colon should be here");
    s->p++;
    return scan_value(s, below);
}

static int scan_element(struct scan *s, int at, size_t index) {
    bool match = at != NO_MATCH && s->pointer[at] && is_index(s->pointer + at + 1, index);
    return scan_value(s, match ? after_step(s, at) : NO_MATCH);
}

/* At the opening bracket or brace. */
static int scan_container(struct scan *s, int at, struct value *v) {
    const unsigned char *open = s->p;
    bool object = *open == '{';
    char close = object ? '}' : ']';
    if (++s->depth > DEPTH_MAX) return bad(s, s->p, "nested deeper than 512");
    s->p++;
    skip_space(s);
    for (size_t i = 0; !next_is(s, close); i++) {
        if (i && !next_is(s, ',')) return bad(s, s->p, object ? "a comma or } should be here" : "a comma or ] should be here");
        if (i) s->p++;
        skip_space(s);
        if (object ? scan_member(s, at) : scan_element(s, at, i)) return -1;
        skip_space(s);
    }
    s->p++;
    s->depth--;
    *v = (struct value){.kind = object ? OBJECT : ARRAY};
    return 0;
}

static int scan_value(struct scan *s, int at) {
    struct value v = {0};
    int r;
    skip_space(s);
    if (next_is(s, '{') || next_is(s, '['))
        r = scan_container(s, at, &v);
    else if (next_is(s, '"'))
        r = scan_string(s, &v);
    else if (s->p < s->end && (*s->p == '-' || is_digit(*s->p)))
        r = scan_number(s, &v);
    else
        r = scan_word(s, &v);
    if (r == 0 && at != NO_MATCH && !s->pointer[at]) s->target = v;
    return r;
}

static int scan_document(struct scan *s) {
    if (scan_value(s, 0)) return -1;
    skip_space(s);
    return s->p == s->end ? 0 : bad(s, s->p, "something follows the document");
}

/* ---- the rules ---- */

static enum lw_key_result missing(struct lw_err *err, const char *what, const char *arg) {
    lw_fail(err, what, arg);
    return LW_KEY_MISSING;
}

static enum lw_key_result find_json(const struct lw_rule *rule, const struct lw_record *r, struct lw_buf *scratch, struct lw_bytes *out,
                                    struct lw_err *err) {
    static const char *const kinds[] = {[LITERAL] = "true or false", [OBJECT] = "an object", [ARRAY] = "a list"};
    if (!r->payload.p) return missing(err, "the payload is null, so it has no %s", rule->arg);
    struct scan s = {.begin = (const unsigned char *)r->payload.p, .pointer = rule->arg, .scratch = scratch, .err = err};
    s.p = s.begin;
    s.end = s.begin + r->payload.n;
    if (scan_document(&s)) return LW_KEY_BAD;
    const struct value *v = &s.target;
    if (v->kind == NOTHING) return missing(err, "the payload has no %s", rule->arg);
    if (v->kind == LITERAL && *v->raw.p == 'n') return missing(err, "%s is null", rule->arg);
    if (v->kind != STRING && v->kind != NUMBER) {
        lw_fail(err, "%s is %s, not a string or a number", *rule->arg ? rule->arg : "the payload", kinds[v->kind]);
        return LW_KEY_BAD;
    }
    *out = text_of(v, scratch);
    return LW_KEY_OK;
}

static enum lw_key_result find_header(const struct lw_rule *rule, const struct lw_record *r, struct lw_bytes *out, struct lw_err *err) {
    struct lw_bytes name = lw_bytes_of(rule->arg);
    for (size_t i = r->n_headers; i-- > 0;) {
        if (!lw_bytes_eq(r->headers[i].name, name)) continue;
        if (!r->headers[i].value.p) return missing(err, "header %s is null", rule->arg);
        *out = r->headers[i].value;
        return LW_KEY_OK;
    }
    return missing(err, "no header %s", rule->arg);
}

enum lw_key_result lw_key_find(const struct lw_rule *rule, const struct lw_record *r, struct lw_buf *scratch, struct lw_bytes *out,
                               struct lw_err *err) {
    scratch->n = 0;
    switch (rule->from) {
    case LW_KEY_HEADER: return find_header(rule, r, out, err);
    case LW_KEY_JSON: return find_json(rule, r, scratch, out, err);
    case LW_KEY_MESSAGE: break;
    }
    if (!r->key.p) return missing(err, "%s", "the message has no key");
    *out = r->key;
    return LW_KEY_OK;
}
