/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct scan {
    const unsigned char *begin, *p, *end;
    struct lw_json_rules rules;
    struct lw_json_path *paths;
    size_t n;
    struct lw_json_value *values;
    struct lw_buf *scratch; /* buffer for decoded names */
    struct lw_err *err;
    int depth; /* number of objects and arrays that enclose the place of the scan */
    /* true if the escape \u0000 was scanned after this field was last set to false */
    bool nul_seen;
};

/* Sets the error to the position and the reason of a refusal. Always returns -1. The functions
 * scan_…() below return 0, or -1 with such an error. */
static int bad(const struct scan *s, const unsigned char *where, const char *what) {
    return lw_fail(s->err, "malformed JSON at byte %zu: %s", (size_t)(where - s->begin), what);
}

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool next_is(const struct scan *s, char c) {
    return s->p < s->end && *s->p == (unsigned char)c;
}

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/* --- strings ---------------------------------------------------------------------------------- */

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

/* Scans an escape \uXXXX, beginning at its 'u'. Sets *code, and moves past the escape or, if it
 * begins a surrogate pair, past both escapes of the pair. */
static int scan_unicode(struct scan *s, unsigned *code) {
    const unsigned char *at = s->p - 1;
    int hi = hex4(s->p + 1, s->end), lo;
    if (hi < 0) return bad(s, at, "\\u needs four hexadecimal digits");
    s->p += 5;
    *code = (unsigned)hi;
    if (hi < 0xd800 || hi > 0xdfff) return 0;
    if (hi > 0xdbff || s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
        return bad(s, at, "half a surrogate pair");
    lo = hex4(s->p + 2, s->end);
    if (lo < 0xdc00 || lo > 0xdfff) return bad(s, at, "half a surrogate pair");
    *code = 0x10000 + (((unsigned)hi - 0xd800) << 10) + ((unsigned)lo - 0xdc00);
    s->p += 6;
    return 0;
}

/* Scans an escape whose backslash was just read. */
static int scan_escape(struct scan *s) {
    unsigned code = 0;
    if (next_is(s, 'u')) {
        if (scan_unicode(s, &code)) return -1;
        s->nul_seen |= code == 0;
        return 0;
    }
    if (s->p == s->end || !*s->p || !strchr("\"\\/bfnrt", *s->p))
        return bad(s, s->p - 1, "unknown escape");
    s->p++;
    return 0;
}

/* Scans one UTF-8 character of more than one byte. Refuses overlong forms, surrogates, and code
 * points above U+10FFFF. */
static int scan_utf8(struct scan *s) {
    unsigned char c = *s->p, low = 0x80, high = 0xbf;
    int more = c >= 0xc2 && c <= 0xdf   ? 1
               : c >= 0xe0 && c <= 0xef ? 2
               : c >= 0xf0 && c <= 0xf4 ? 3
                                        : 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    if (!more || s->end - s->p <= more || s->p[1] < low || s->p[1] > high)
        return bad(s, s->p, "not UTF-8");
    for (int i = 2; i <= more; i++)
        if ((s->p[i] & 0xc0) != 0x80) return bad(s, s->p, "not UTF-8");
    s->p += more + 1;
    return 0;
}

/* Skips plain characters (ASCII that is neither control, quote nor backslash), eight at a time, by
 * Mycroft's test for a zero byte in a word (1987). The function skips only words of eight plain
 * characters. The caller checks the remaining bytes one by one. */
static const unsigned char *skip_plain(const unsigned char *p, const unsigned char *end) {
    const uint64_t ones = 0x0101010101010101, tops = ones * 0x80;
    for (uint64_t w; end - p >= 8; p += 8) {
        memcpy(&w, p, 8);
        uint64_t quote = w ^ ones * '"', back = w ^ ones * '\\';
        if ((((w - ones * 0x20) | (quote - ones) | (back - ones)) & ~w & tops) | (w & tops)) break;
    }
    return p;
}

/* Scans a string, beginning at its opening quote. */
static int scan_string(struct scan *s, struct lw_json_value *v) {
    const unsigned char *open = s->p++;
    v->kind = LW_JSON_STRING;
    v->escaped = false;
    while (s->p < s->end) {
        s->p = skip_plain(s->p, s->end);
        if (s->p == s->end) break;
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

/* Decodes a string that scan_string() has accepted. */
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

struct lw_bytes lw_json_text(const struct lw_json_value *v, struct lw_buf *scratch) {
    if (!v->escaped) return v->raw;
    lw_buf_clear(scratch);
    decode(v->raw, scratch);
    return lw_bytes(scratch->p, scratch->n);
}

/* --- numbers and words ------------------------------------------------------------------------ */

bool lw_json_integer(struct lw_bytes raw, int64_t *out) {
    bool minus = raw.n && *raw.p == '-';
    uint64_t v = 0, most = (uint64_t)INT64_MAX + minus;
    for (size_t i = minus; i < raw.n; i++) {
        uint64_t digit = (uint64_t)(raw.p[i] - '0');
        if (v > (most - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = minus ? (int64_t)-v : (int64_t)v;
    return true;
}

bool lw_json_real(struct lw_bytes raw, double *out) {
    char brief[64], *copy = raw.n < sizeof brief ? brief : lw_alloc(raw.n + 1);
    memcpy(copy, raw.p, raw.n);
    copy[raw.n] = '\0';
    errno = 0;
    *out = strtod(copy, NULL);
    bool ok = !(errno == ERANGE && fabs(*out) == HUGE_VAL);
    if (copy != brief) free(copy);
    return ok;
}

/* Refuses an integer that does not fit into 64 bits, and any other number that does not fit into a
 * double. Most numbers are so short that they are accepted without a conversion. */
static int check_fit(const struct scan *s, const struct lw_json_value *v, bool exponent) {
    const unsigned char *start = (const unsigned char *)v->raw.p;
    int64_t integer;
    double real;
    if (v->kind == LW_JSON_INTEGER && v->raw.n > 18 && !lw_json_integer(v->raw, &integer))
        return bad(s, start, *start == '-' ? "too big negative integer" : "too big integer");
    if (v->kind == LW_JSON_REAL && (exponent || v->raw.n > 300) && !lw_json_real(v->raw, &real))
        return bad(s, start, "real number overflow");
    return 0;
}

static int scan_digits(struct scan *s) {
    if (s->p == s->end || !is_digit(*s->p)) return bad(s, s->p, "a digit is missing");
    while (s->p < s->end && is_digit(*s->p)) s->p++;
    return 0;
}

static int scan_number(struct scan *s, struct lw_json_value *v) {
    const unsigned char *start = s->p;
    bool exponent = false;
    *v = (struct lw_json_value){.kind = LW_JSON_INTEGER};
    if (next_is(s, '-')) s->p++;
    if (next_is(s, '0'))
        s->p++;
    else if (scan_digits(s))
        return -1;
    if (s->p < s->end && is_digit(*s->p)) return bad(s, s->p, "a number with a leading zero");
    if (next_is(s, '.')) {
        s->p++;
        if (scan_digits(s)) return -1;
        v->kind = LW_JSON_REAL;
    }
    if (next_is(s, 'e') || next_is(s, 'E')) {
        s->p++;
        if (next_is(s, '+') || next_is(s, '-')) s->p++;
        if (scan_digits(s)) return -1;
        v->kind = LW_JSON_REAL;
        exponent = true;
    }
    v->raw = lw_bytes((const char *)start, (size_t)(s->p - start));
    return s->rules.fit ? check_fit(s, v, exponent) : 0;
}

static int scan_word(struct scan *s, struct lw_json_value *v) {
    static const struct {
        const char *text;
        enum lw_json_kind kind;
    } words[] = {{"true", LW_JSON_TRUE}, {"false", LW_JSON_FALSE}, {"null", LW_JSON_NULL}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].text);
        if ((size_t)(s->end - s->p) < n || memcmp(s->p, words[i].text, n) != 0) continue;
        *v = (struct lw_json_value){.kind = words[i].kind, .raw = lw_bytes((const char *)s->p, n)};
        s->p += n;
        return 0;
    }
    return bad(s, s->p,
               s->p == s->end ? "the document ends where a value should be"
                              : "a value should be here");
}

/* --- pointers --------------------------------------------------------------------------------- */

bool lw_json_pointer_ok(const char *pointer) {
    if (*pointer && *pointer != '/') return false;
    for (const char *p = pointer; (p = strchr(p, '~')); p++)
        if (p[1] != '0' && p[1] != '1') return false;
    return true;
}

static uint32_t mark_of(size_t n, char first) { return (uint32_t)n << 8 | (unsigned char)first; }

/* Returns a number that combines the length and the first byte of one step of a pointer, both after
 * unescaping. Two steps with different numbers differ. `next` points to the '/' before the step.
 * The step ends before the next '/' or at the end of the pointer. */
static uint32_t mark_step(const char *next) {
    if (!*next) return 0;
    const char *p = next + 1;
    char first = *p == '/' ? '\0' : *p == '~' ? (p[1] == '1' ? '/' : '~') : *p;
    size_t n = 0;
    for (; *p && *p != '/'; p++) n += *p != '~';
    return mark_of(n, first);
}

void lw_json_path_init(struct lw_json_path *path, const char *pointer) {
    *path = (struct lw_json_path){.pointer = pointer, .first_mark = mark_step(pointer)};
}

static void restart(struct lw_json_path *path) {
    path->next = path->pointer;
    path->depth = 0;
    path->mark = path->first_mark;
}

static void step_on(struct lw_json_path *path) {
    do path->next++;
    while (*path->next && *path->next != '/');
    path->depth++;
    path->mark = mark_step(path->next);
}

static void step_back(struct lw_json_path *path) {
    if (path->depth == 1) {
        restart(path);
        return;
    }
    do path->next--;
    while (*path->next != '/');
    path->depth--;
    path->mark = mark_step(path->next);
}

/* Returns true if a step of a pointer names the member `name`. The step begins with the '/' at
 * `next`. In a step, ~0 stands for ~ and ~1 stands for /. */
static bool is_step(const char *next, struct lw_bytes name) {
    size_t i = 0;
    for (const char *p = next + 1; *p && *p != '/'; p++, i++) {
        char c = *p;
        if (c == '~') c = *++p == '1' ? '/' : '~';
        if (i >= name.n || name.p[i] != c) return false;
    }
    return i == name.n;
}

/* Returns true if a step of a pointer is the number `index`, written without a leading zero. The
 * step begins with the '/' at `next`. */
static bool is_index(const char *next, size_t index) {
    const char *p = next + 1;
    if (p[0] == '0' && is_digit((unsigned char)p[1])) return false;
    size_t v = 0, n = 0;
    for (; is_digit((unsigned char)*p) && n < 18; p++, n++) v = v * 10 + (size_t)(*p - '0');
    return n && (!*p || *p == '/') && v == index;
}

/* The scan has come to the member `name` or, if `name` is NULL, to the element `index` of the
 * container that was opened last. Moves each path forward by one step if it leads to this container
 * and its next step is this member or element. Forgets the value that was found earlier for a moved
 * path, because the last of two equal names counts. Returns false if no path was moved. */
static bool enter(struct scan *s, const struct lw_bytes *name, size_t index) {
    bool any = false;
    uint32_t mark = name ? mark_of(name->n, name->n ? *name->p : '\0') : 0;
    for (size_t i = 0; i < s->n; i++) {
        struct lw_json_path *path = &s->paths[i];
        if (path->depth != s->depth - 1 || !*path->next) continue;
        if (name ? path->mark != mark || !is_step(path->next, *name) : !is_index(path->next, index))
            continue;
        step_on(path);
        s->values[i].kind = LW_JSON_NOTHING;
        any = true;
    }
    return any;
}

static void leave(struct scan *s) {
    for (size_t i = 0; i < s->n; i++)
        if (s->paths[i].depth == s->depth) step_back(&s->paths[i]);
}

/* --- values --------------------------------------------------------------------------------------
 *
 * `wanted` is true if at least one path leads to the value. A path leads to the value if the number
 * of steps taken on the path equals the number of open containers. A value that is not wanted is
 * only checked for its syntax. */

static int scan_value(struct scan *s, bool wanted);

static int scan_member(struct scan *s, bool wanted) {
    struct lw_json_value name = {0};
    const unsigned char *open = s->p;
    if (!next_is(s, '"')) return bad(s, s->p, "a name in quotes should be here");
    s->nul_seen = false;
    if (scan_string(s, &name)) return -1;
    if (s->nul_seen && s->rules.fit) return bad(s, open, "NUL in a name");
    if (wanted) {
        struct lw_bytes text = lw_json_text(&name, s->scratch);
        wanted = enter(s, &text, 0);
    }
    skip_space(s);
    if (!next_is(s, ':')) return bad(s, s->p, "a colon should be here");
    s->p++;
    if (scan_value(s, wanted)) return -1;
    if (wanted) leave(s);
    return 0;
}

static int scan_element(struct scan *s, bool wanted, size_t index) {
    wanted = wanted && enter(s, NULL, index);
    if (scan_value(s, wanted)) return -1;
    if (wanted) leave(s);
    return 0;
}

static int too_deep(const struct scan *s) {
    return lw_fail(s->err, "malformed JSON at byte %zu: nested deeper than %d",
                   (size_t)(s->p - s->begin), s->rules.depth_max);
}

/* Scans an object or array, beginning at its opening brace or bracket. */
static int scan_container(struct scan *s, bool wanted, struct lw_json_value *v) {
    const unsigned char *open = s->p;
    bool object = *open == '{';
    char close = object ? '}' : ']';
    if (s->depth == s->rules.depth_max) return too_deep(s);
    s->depth++;
    s->p++;
    skip_space(s);
    for (size_t i = 0; !next_is(s, close); i++) {
        if (i && !next_is(s, ','))
            return bad(s, s->p,
                       object ? "a comma or } should be here" : "a comma or ] should be here");
        if (i) s->p++;
        skip_space(s);
        if (object ? scan_member(s, wanted) : scan_element(s, wanted, i)) return -1;
        skip_space(s);
    }
    s->p++;
    s->depth--;
    *v = (struct lw_json_value){.kind = object ? LW_JSON_OBJECT : LW_JSON_ARRAY};
    v->raw = lw_bytes((const char *)open, (size_t)(s->p - open));
    return 0;
}

static int scan_value(struct scan *s, bool wanted) {
    struct lw_json_value v;
    int r;
    skip_space(s);
    if (next_is(s, '{') || next_is(s, '['))
        r = scan_container(s, wanted, &v);
    else if (next_is(s, '"'))
        r = scan_string(s, &v);
    else if (s->p < s->end && (*s->p == '-' || is_digit(*s->p)))
        r = scan_number(s, &v);
    else
        r = scan_word(s, &v);
    if (r) return -1;
    for (size_t i = 0; wanted && i < s->n; i++)
        if (s->paths[i].depth == s->depth && !*s->paths[i].next) s->values[i] = v;
    return 0;
}

int lw_json_scan(struct lw_bytes text, struct lw_json_rules rules, struct lw_json_path *paths,
                 size_t n, struct lw_json_value *values, struct lw_buf *scratch,
                 struct lw_err *err) {
    struct scan s = {
        .rules = rules, .paths = paths, .n = n, .values = values, .scratch = scratch, .err = err};
    s.begin = s.p = (const unsigned char *)text.p;
    s.end = s.p + text.n;
    for (size_t i = 0; i < n; i++) {
        restart(&paths[i]);
        values[i].kind = LW_JSON_NOTHING;
    }
    if (scan_value(&s, true)) return -1;
    skip_space(&s);
    return s.p == s.end ? 0 : bad(&s, s.p, "something follows the document");
}
