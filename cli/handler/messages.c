/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/handler/messages.h"

#include "base/clock.h"
#include "base/json_place.h"
#include "handlers/section.h"
#include "queue/codes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_MAX_BYTES = 16 << 20, HEADERS_MAX = 1000 };

const char *const handler_result_words[RESULT_N] = {
    "none", LW_WORD_DONE, LW_WORD_RETRY, LW_WORD_DEAD, LW_WORD_BACK, "skipped", "crashed", "stuck"};

/* The names that a member of a message in the file may have. The test uses the members up to
 * "expect" in this list. It ignores the members after "expect", which `queue export` and `dead
 * export` write. */
static const char *const known[] = {
    "key",      "key_base64",   "payload",        "payload_base64", "headers",   "headers_base64",
    "topic",    "partition",    "offset",         "timestamp_ms",   "ts",        "attempt",
    "expect",   "tstype",       "identity",       "replay",         "first_ms",  "dedup",
    "attempts", "dedup_base64", "lane",           "lane_base64",    "shard",     "due_ms",
    "id",       "reason",       "tried_first_ms", "died_ms",        "edited_by", "edited_ms",
    NULL};

/* The state of the reader: the line that is being read, and where errors in it are reported. */
struct reader {
    struct handler_messages *all;
    const struct lw_config *c;
    struct lw_problems *problems;
    const char *path;
    size_t line;
};

static int wrong(const struct reader *r, const char *what) {
    lw_problem(r->problems, "%s:%zu: %s", r->path, r->line, what);
    return -1;
}

static void *own(struct handler_messages *all, void *p) {
    all->owned = lw_more(all->owned, all->n_owned, &all->cap_owned, sizeof *all->owned);
    all->owned[all->n_owned++] = p;
    return p;
}

/* --- values ----------------------------------------------------------------------------------- */

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes padded base64 (RFC 4648). */
static int decode(const struct reader *r, const char *text, struct lw_bytes *out) {
    size_t n = strlen(text), used = 0;
    char *to = own(r->all, lw_alloc(n / 4 * 3 + 1));
    if (n % 4) return wrong(r, "malformed base64: its length is not a multiple of 4");
    size_t digits = n && text[n - 1] == '=' ? n - 1 - (text[n - 2] == '=') : n;
    unsigned bits = 0, have = 0;
    for (size_t i = 0; i < digits; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return wrong(r, "malformed base64: it has a character that is not a base64 digit");
        bits = bits << 6 | (unsigned)digit;
        have += 6;
        if (have >= 8) to[used++] = (char)(bits >> (have -= 8));
    }
    *out = lw_bytes(to, used);
    return 0;
}

/* Converts a JSON value to bytes: a string becomes its text, null becomes bytes with p = NULL, and
 * any other value becomes compact JSON. */
static struct lw_bytes text_of(const struct reader *r, const json_t *v) {
    if (!v || json_is_null(v)) return (struct lw_bytes){0};
    if (json_is_string(v)) return lw_bytes(json_string_value(v), json_string_length(v));
    char *text = own(r->all, lw_or_abort(json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT)));
    return lw_bytes_of(text);
}

static int take_bytes(const struct reader *r, const json_t *line, const char *name,
                      struct lw_bytes *out) {
    char encoded[32];
    snprintf(encoded, sizeof encoded, "%s_base64", name);
    const json_t *v = json_object_get(line, encoded);
    if (json_is_string(v)) return decode(r, json_string_value(v), out);
    if (v) return wrong(r, "key_base64 and payload_base64 must be strings");
    *out = text_of(r, json_object_get(line, name));
    return 0;
}

static int take_number(const struct reader *r, const json_t *line, const char *name, int64_t least,
                       int64_t most, int64_t *out) {
    const json_t *v = json_object_get(line, name);
    if (!v) return 0;
    if (json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most) {
        *out = json_integer_value(v);
        return 0;
    }
    char text[128];
    snprintf(text, sizeof text, "%s: expected a number from %lld to %lld", name, (long long)least,
             (long long)most);
    return wrong(r, text);
}

/* --- headers ---------------------------------------------------------------------------------- */

/* Reads a name or value of a header, which is a text, null, or {"base64":"…"}. If `encoded` is
 * true, a text is base64. */
static int header_part(const struct reader *r, const json_t *v, bool encoded,
                       struct lw_bytes *out) {
    const json_t *inner = json_object_get(v, "base64");
    if (json_is_string(inner)) return decode(r, json_string_value(inner), out);
    if (encoded && json_is_string(v)) return decode(r, json_string_value(v), out);
    if (!json_is_string(v) && !json_is_null(v))
        return wrong(r, "headers: a name or value must be a string, null or {\"base64\":\"…\"}");
    *out = text_of(r, v);
    return 0;
}

static int add_header(const struct reader *r, struct handler_message *m, const json_t *name,
                      const json_t *value, bool encoded) {
    struct lw_header *h = &m->headers[m->n_headers++];
    if (header_part(r, name, encoded, &h->name) || header_part(r, value, encoded, &h->value))
        return -1;
    return h->name.p ? 0 : wrong(r, "headers: a name must not be null");
}

/* Reads a list of headers, either as pairs, [["name","value"],…], or in the form that kcat writes,
 * ["name","value",…]. */
static int take_list(const struct reader *r, struct handler_message *m, const json_t *list,
                     bool encoded) {
    bool pairs = json_is_array(json_array_get(list, 0));
    size_t n = json_array_size(list);
    if (n > 2 * HEADERS_MAX) return wrong(r, "headers: expected at most 1,000");
    if (!pairs && n % 2) return wrong(r, "headers: a name without a value");
    m->headers = own(r->all, lw_alloc((n + 1) * sizeof *m->headers));
    for (size_t i = 0; i < n; i += pairs ? 1 : 2) {
        const json_t *at = pairs ? json_array_get(list, i) : list;
        size_t first = pairs ? 0 : i;
        if (pairs && json_array_size(at) != 2)
            return wrong(r, "headers: each must be [\"name\",\"value\"]");
        if (add_header(r, m, json_array_get(at, first), json_array_get(at, first + 1), encoded))
            return -1;
    }
    return 0;
}

static int take_headers(const struct reader *r, const json_t *line, struct handler_message *m) {
    const json_t *plain = json_object_get(line, "headers"),
                 *encoded = json_object_get(line, "headers_base64");
    const json_t *v = encoded ? encoded : plain;
    if (!v) return 0;
    if (json_is_array(v)) return take_list(r, m, v, encoded != NULL);
    if (!json_is_object(v))
        return wrong(r, "headers: must be pairs, [[\"name\",\"value\"],…], or an object");
    m->headers = own(r->all, lw_alloc((json_object_size(v) + 1) * sizeof *m->headers));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, name, value) {
        struct lw_header *h = &m->headers[m->n_headers++];
        h->name = lw_bytes_of(name);
        if (header_part(r, value, false, &h->value)) return -1;
    }
    return 0;
}

/* --- expectations ----------------------------------------------------------------------------- */

static int expect_word(const struct reader *r, const json_t *v, enum handler_result *out) {
    const char *word = json_string_value(v);
    for (int i = RESULT_DONE; word && i <= RESULT_SKIPPED; i++) {
        if (strcmp(word, handler_result_words[i]) != 0) continue;
        *out = (enum handler_result)i;
        return 0;
    }
    return wrong(
        r, "expect: must be done, retry, dead, back or skipped, or {\"outcome\":…,\"reason\":…}");
}

static int take_expect(const struct reader *r, const json_t *line, struct handler_message *m) {
    const json_t *v = json_object_get(line, "expect");
    if (!v) return 0;
    if (!json_is_object(v)) return expect_word(r, v, &m->expect);
    const json_t *reason = json_object_get(v, "reason");
    if (json_object_size(v) != 1 + (reason != NULL))
        return wrong(r, "expect: must have no members but outcome and reason");
    if (reason && !json_is_string(reason))
        return wrong(r, "expect.reason: must be a string, a part of the reason");
    m->expect_reason = json_string_value(reason);
    return expect_word(r, json_object_get(v, "outcome"), &m->expect);
}

/* --- messages --------------------------------------------------------------------------------- */

static int check_names(const struct reader *r, const json_t *line) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)line, name, v) {
        bool good = false;
        for (size_t i = 0; known[i] && !good; i++) good = strcmp(known[i], name) == 0;
        if (good) continue;
        const char *near = lw_section_nearest(name, known);
        lw_problem(r->problems, "%s:%zu: unknown member \"%.64s\"%s%s%s", r->path, r->line, name,
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        return -1;
    }
    return 0;
}

/* Returns the offset for the next message of a partition if the file gives none: one more than the
 * offset of the message that was read last for this partition, or 0 if there is none. */
static int64_t next_offset(const struct handler_messages *all, const char *topic,
                           int32_t partition) {
    for (size_t i = all->n; i > 0; i--) {
        const struct handler_message *m = &all->m[i - 1];
        if (m->partition == partition && strcmp(m->topic, topic) == 0) return m->offset + 1;
    }
    return 0;
}

static int take_place(const struct reader *r, const json_t *line, struct handler_message *m) {
    const json_t *topic = json_object_get(line, "topic");
    if (topic &&
        (!json_is_string(topic) || !json_string_length(topic) || json_string_length(topic) > 249))
        return wrong(r, "topic: must be a string of 1 to 249 characters");
    m->topic = topic ? json_string_value(topic) : r->c->kafka.topics[0];
    int64_t partition = 0, attempt = 1;
    if (take_number(r, line, "partition", 0, INT32_MAX, &partition) ||
        take_number(r, line, "attempt", 1, INT32_MAX, &attempt))
        return -1;
    m->partition = (int32_t)partition;
    m->attempt = (int)attempt;
    m->offset = next_offset(r->all, m->topic, m->partition);
    m->timestamp_ms = lw_wall_ms();
    return take_number(r, line, "ts", -1, INT64_MAX, &m->timestamp_ms) ||
                   take_number(r, line, "offset", 0, INT64_MAX / 2, &m->offset) ||
                   take_number(r, line, "timestamp_ms", -1, INT64_MAX, &m->timestamp_ms)
               ? -1
               : 0;
}

/* Finds the primary key in the same way as a worker. A message without a key becomes dead, or is
 * skipped if the setting key.missing is skip. A message whose key is not valid becomes dead. */
static void find_key(const struct reader *r, struct handler_message *m) {
    struct lw_record record = {m->record_key, m->payload, m->headers, m->n_headers};
    struct lw_record_at at = {lw_bytes_of(m->topic), m->partition, m->offset};
    struct lw_buf scratch = {0};
    struct lw_err err = {0};
    struct lw_bytes key;
    enum lw_key_result found = lw_key_of(r->c, &record, &at, &scratch, &key, &err);
    if (found == LW_KEY_OK) m->key = lw_bytes(own(r->all, lw_memdup(key.p, key.n)), key.n);
    lw_buf_free(&scratch);
    if (found == LW_KEY_OK) return;
    bool skips = found == LW_KEY_MISSING && r->c->key.missing == LW_MISSING_SKIP;
    m->decided = skips ? RESULT_SKIPPED : RESULT_DEAD;
    m->why = own(r->all, lw_strdup(err.text));
}

static int take_message(const struct reader *r, const json_t *line) {
    struct handler_message m = {.line = r->line, .next = HANDLER_NO_NEXT};
    if (!json_is_object(line)) return wrong(r, "must be a JSON object");
    if (check_names(r, line) || take_place(r, line, &m) ||
        take_bytes(r, line, "key", &m.record_key) || take_bytes(r, line, "payload", &m.payload) ||
        take_headers(r, line, &m) || take_expect(r, line, &m))
        return -1;
    find_key(r, &m);
    struct handler_messages *all = r->all;
    all->m = lw_more(all->m, all->n, &all->cap, sizeof *all->m);
    all->m[all->n++] = m;
    return 0;
}

static int take_line(const struct reader *r, const char *text, size_t n) {
    json_error_t bad;
    if (strspn(text, " \t\r\n") >= n) return 0;
    if (r->all->n == HANDLER_MESSAGES_MAX)
        return wrong(r, "too many messages; expected at most 10,000");
    json_t *line = json_loadb(text, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &bad);
    if (!line && json_error_code(&bad) == json_error_numeric_overflow)
        return wrong(r, "a number is too large to be read here; write the payload as a text that "
                        "holds the JSON, which keeps all digits: \"payload\": \"{\\\"id\\\": …}\"");
    if (!line) {
        lw_problem(r->problems, "%s:%zu: not JSON: %s (column %d)", r->path, r->line, bad.text,
                   lw_json_column(&bad));
        return -1;
    }
    json_array_append_new(r->all->documents, line);
    return take_message(r, line);
}

/* --- messages of one key ---------------------------------------------------------------------- */

static int by_key(const void *a, const void *b) {
    const struct handler_message *const *x = a, *const *y = b;
    size_t n = (*x)->key.n < (*y)->key.n ? (*x)->key.n : (*y)->key.n;
    int differs = n ? memcmp((*x)->key.p, (*y)->key.p, n) : 0;
    if (!differs && (*x)->key.n != (*y)->key.n) differs = (*x)->key.n < (*y)->key.n ? -1 : 1;
    return differs ? differs : (*x)->line < (*y)->line ? -1 : 1;
}

/* Links the messages of each key into a list, in the order of the file. */
static void link_keys(struct handler_messages *all) {
    struct handler_message **sorted = lw_alloc((all->n + 1) * sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (!all->m[i].decided) sorted[n++] = &all->m[i];
    qsort(sorted, n, sizeof(struct handler_message *), by_key);
    for (size_t i = 0; i < n; i++) {
        bool follows = i > 0 && lw_bytes_eq(sorted[i - 1]->key, sorted[i]->key);
        sorted[i]->first = !follows;
        if (follows) sorted[i - 1]->next = (int)(sorted[i] - all->m);
    }
    free(sorted);
}

/* --- the file --------------------------------------------------------------------------------- */

static int read_lines(struct reader *r, FILE *f) {
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;
    int bad = 0;
    while ((n = getline(&text, &cap, f)) >= 0) {
        r->line++;
        if (n > LINE_MAX_BYTES)
            bad = wrong(r, "too long; expected at most 16 MiB");
        else if (take_line(r, text, (size_t)n))
            bad = -1;
        if (r->all->n == HANDLER_MESSAGES_MAX && bad) break;
    }
    if (ferror(f)) bad = wrong(r, strerror(errno));
    free(text);
    return bad;
}

int handler_messages_read(struct handler_messages *all, const struct lw_config *c, const char *path,
                          struct lw_problems *problems) {
    struct reader r = {.all = all, .c = c, .problems = problems, .path = path};
    *all = (struct handler_messages){.documents = json_array()};
    FILE *f = fopen(path, "re");
    if (!f) {
        lw_problem(problems, "%s: %s", path, strerror(errno));
        return -1;
    }
    int bad = read_lines(&r, f);
    fclose(f);
    if (!bad && !all->n) {
        lw_problem(problems, "%s: no messages; expected one JSON object per line", path);
        return -1;
    }
    link_keys(all);
    return bad;
}

void handler_messages_free(struct handler_messages *all) {
    for (size_t i = 0; i < all->n_owned; i++) free(all->owned[i]);
    free(all->owned);
    free(all->m);
    json_decref(all->documents);
    *all = (struct handler_messages){0};
}
