/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/line.h"

#include "base/json_place.h"
#include "base/redis/command.h"
#include "handlers/json_text.h"

#include <stdlib.h>

/* --- requests --------------------------------------------------------------------------------- */

#define ADD(out, text) lw_buf_add(out, text, sizeof(text) - 1)

static void add_number(struct lw_buf *out, int64_t v) {
    char digits[24];
    lw_buf_add(out, digits, lw_decimal(v, digits));
}

/* Appends `,"name":"text"`, or `,"name_base64":"…"` if the text is not UTF-8, or `,"name":null` if
 * the pointer of the text is NULL. */
static void add_bytes(struct lw_buf *out, const char *name, struct lw_bytes v) {
    bool text = !v.p || lw_utf8_ok(v);
    ADD(out, ",\"");
    lw_buf_add(out, name, strlen(name));
    if (!text) ADD(out, "_base64");
    ADD(out, "\":");
    if (!v.p)
        ADD(out, "null");
    else if (text)
        lw_json_string(out, v);
    else
        lw_json_base64(out, v);
}

/* Appends the name or value of a header. If it is not UTF-8, appends the object {"base64":"…"}
 * instead. add_bytes() adds "_base64" to the name of a member, but a header is written as a pair,
 * which has no member names. */
static void add_header_part(struct lw_buf *out, struct lw_bytes v) {
    if (!v.p) {
        ADD(out, "null");
    } else if (lw_utf8_ok(v)) {
        lw_json_string(out, v);
    } else {
        ADD(out, "{\"base64\":");
        lw_json_base64(out, v);
        ADD(out, "}");
    }
}

static void add_headers(struct lw_buf *out, const struct lw_job *job) {
    ADD(out, ",\"headers\":[");
    for (size_t i = 0; i < job->n_headers; i++) {
        if (i) ADD(out, ",");
        ADD(out, "[");
        add_header_part(out, job->headers[i].name);
        ADD(out, ",");
        add_header_part(out, job->headers[i].value);
        ADD(out, "]");
    }
    ADD(out, "]");
}

static void add_message(struct lw_buf *out, const struct lw_job *job, int64_t deadline_ms) {
    ADD(out, "{\"id\":");
    lw_json_string(out, lw_bytes_of(job->identity));
    add_bytes(out, "key", job->key);
    ADD(out, ",\"fence\":");
    assert(job->fence <= INT64_MAX);
    add_number(out, (int64_t)job->fence);
    ADD(out, ",\"attempt\":");
    add_number(out, job->attempt);
    ADD(out, ",\"topic\":");
    lw_json_string(out, lw_bytes_of(job->topic));
    ADD(out, ",\"partition\":");
    add_number(out, job->partition);
    ADD(out, ",\"offset\":");
    add_number(out, job->offset);
    ADD(out, ",\"timestamp_ms\":");
    if (job->timestamp_ms >= 0)
        add_number(out, job->timestamp_ms);
    else
        ADD(out, "null");
    if (deadline_ms) ADD(out, ",\"deadline_ms\":"), add_number(out, deadline_ms);
    add_headers(out, job);
    add_bytes(out, "payload", job->payload);
    ADD(out, "}");
}

void lw_exec_request(struct lw_buf *out, struct lw_job *const *jobs, size_t n,
                     int64_t deadline_ms) {
    if (n > 1) ADD(out, "{\"batch\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) ADD(out, ",");
        add_message(out, jobs[i], i ? 0 : deadline_ms);
    }
    if (n > 1) ADD(out, "]}");
    ADD(out, "\n");
}

void lw_exec_cancel(struct lw_buf *out, const struct lw_job *job) {
    ADD(out, "{\"cancel\":");
    lw_json_string(out, lw_bytes_of(job->identity));
    ADD(out, "}\n");
}

/* --- answers: the usual forms, without building a document ------------------------------------ */

/* Position in a line, and the end of the line. */
struct scan {
    const char *p, *end;
};

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static bool take(struct scan *s, char c) {
    skip_space(s);
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

/* Reads a string of printable ASCII without escapes. Returns false for any other value, which the
 * caller must give to the JSON parser. */
static bool take_text(struct scan *s, struct lw_bytes *out) {
    if (!take(s, '"')) return false;
    const char *from = s->p;
    while (s->p < s->end && *s->p >= ' ' && *s->p < 0x7f && *s->p != '"' && *s->p != '\\') s->p++;
    if (s->p == s->end || *s->p != '"') return false;
    *out = lw_bytes(from, (size_t)(s->p++ - from));
    return true;
}

static bool is(struct lw_bytes a, const char *text) { return lw_bytes_eq(a, lw_bytes_of(text)); }

static bool outcome_of(struct lw_bytes word, enum lw_outcome *outcome) {
    if (is(word, "done")) return *outcome = LW_DONE, true;
    if (is(word, "retry")) return *outcome = LW_RETRY, true;
    if (is(word, "dead")) return *outcome = LW_DEAD, true;
    return false;
}

/* Reads a number of an attempt. */
static bool take_attempt(struct scan *s, int64_t *out) {
    skip_space(s);
    int64_t v = 0;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9' && v < INT32_MAX)
        v = 10 * v + (*s->p++ - '0');
    *out = v;
    return v > 0 && v <= INT32_MAX;
}

/* Reads {"id":"…","attempt":1,"outcome":"…","reason":"…"}, with its members in any order; `attempt`
 * and `reason` are optional. */
static bool take_answer(struct scan *s, struct lw_exec_answer *a) {
    *a = (struct lw_exec_answer){0};
    bool has_outcome = false;
    if (!take(s, '{')) return false;
    do {
        struct lw_bytes name, value;
        if (!take_text(s, &name) || !take(s, ':')) return false;
        if (is(name, "attempt")) {
            if (a->attempt || !take_attempt(s, &a->attempt)) return false;
            continue;
        }
        if (!take_text(s, &value)) return false;
        if (is(name, "id") && !a->id.p)
            a->id = value;
        else if (is(name, "reason") && !a->reason.p)
            a->reason = value;
        else if (is(name, "outcome") && !has_outcome)
            has_outcome = outcome_of(value, &a->outcome);
        else
            return false;
    } while (take(s, ','));
    return take(s, '}') && a->id.p && has_outcome;
}

static struct lw_exec_answer *room(struct lw_exec_said *said) {
    said->answers = lw_more(said->answers, said->n, &said->cap, sizeof *said->answers);
    return &said->answers[said->n];
}

static bool read_usual(struct lw_exec_said *said, struct lw_bytes line) {
    static const char batch[] = "{\"batch\":";
    struct scan s = {line.p, line.p + line.n};
    bool many = line.n > sizeof batch && memcmp(line.p, batch, sizeof batch - 1) == 0;
    if (many) s.p += sizeof batch - 1;
    if (many && !take(&s, '[')) return false;
    do {
        if (!take_answer(&s, room(said))) return false;
        said->n++;
    } while (many && take(&s, ','));
    if (many && (!take(&s, ']') || !take(&s, '}'))) return false;
    skip_space(&s);
    return s.p == s.end;
}

struct lw_bytes lw_exec_begun(struct lw_bytes line) {
    if (!line.n) return (struct lw_bytes){0};
    struct scan s = {line.p, line.p + line.n};
    struct lw_bytes name, value;
    bool known = take(&s, '{') && take_text(&s, &name) && is(name, "id") && take(&s, ':') &&
                 take_text(&s, &value);
    return known ? value : (struct lw_bytes){0};
}

/* --- answers: any other form ------------------------------------------------------------------ */

static struct lw_bytes text_of(const json_t *v) {
    return lw_bytes(json_string_value(v), json_string_length(v));
}

static int read_outcome(const json_t *answer, enum lw_outcome *outcome, struct lw_err *err) {
    const json_t *v = json_object_get(answer, "outcome");
    if (!json_is_string(v))
        return lw_fail(err, "handler's answer has no \"outcome\" (done, retry or dead)");
    if (outcome_of(text_of(v), outcome)) return 0;
    return lw_fail(err,
                   "handler's answer has an unknown outcome \"%.64s\" (known: done, retry, dead)",
                   json_string_value(v));
}

static int read_attempt(const json_t *answer, int64_t *attempt, struct lw_err *err) {
    const json_t *v = json_object_get(answer, "attempt");
    *attempt = json_integer_value(v);
    if (!v || json_is_null(v) || (*attempt > 0 && *attempt <= INT32_MAX)) return 0;
    return lw_fail(err, "handler's answer has an \"attempt\" that is not a number above 0");
}

/* Reads the members of an answer other than its id. */
static int read_rest(struct lw_exec_answer *a, const json_t *answer, struct lw_err *err) {
    const json_t *why = json_object_get(answer, "reason");
    if (read_attempt(answer, &a->attempt, err) || read_outcome(answer, &a->outcome, err) ||
        lw_retry_read(answer, "handler's answer", &a->retry, err))
        return -1;
    if (why && !json_is_string(why) && !json_is_null(why))
        return lw_fail(err, "handler's answer has a \"reason\" that is not a string");
    if (json_is_string(why)) a->reason = text_of(why);
    return 0;
}

/* Makes the answer a retry of the message that it names. */
static void refuse_one(struct lw_exec_said *said, struct lw_exec_answer *a, const char *why) {
    json_t *text = json_stringn_nocheck(why, strlen(why));
    if (!said->faults) said->faults = json_array();
    json_array_append_new(said->faults, text);
    *a = (struct lw_exec_answer){
        .id = a->id, .outcome = LW_RETRY, .reason = text_of(text), .malformed = true};
}

static int read_answer(struct lw_exec_said *said, const json_t *answer, struct lw_err *err) {
    struct lw_exec_answer *a = room(said);
    struct lw_err why = {0};
    *a = (struct lw_exec_answer){0};
    if (!json_is_object(answer)) return lw_fail(err, "handler's answer is not a JSON object");
    const json_t *id = json_object_get(answer, "id");
    if (!json_is_string(id)) return lw_fail(err, "handler's answer has no \"id\"");
    a->id = text_of(id);
    if (read_rest(a, answer, &why)) refuse_one(said, a, why.text);
    said->n++;
    return 0;
}

static int read_batch(struct lw_exec_said *said, const json_t *batch, struct lw_err *err) {
    if (!json_is_array(batch))
        return lw_fail(err, "handler's answer has a \"batch\" that is not an array");
    const json_t *answer;
    size_t i;
    int bad = 0;
    json_array_foreach(batch, i, answer) bad |= read_answer(said, answer, err);
    return bad || said->n ? bad : lw_fail(err, "handler's answer has an empty \"batch\"");
}

static int read_document(struct lw_exec_said *said, struct lw_err *err) {
    const json_t *hello = json_object_get(said->document, "hello"),
                 *batch = json_object_get(said->document, "batch");
    if (!hello)
        return batch ? read_batch(said, batch, err) : read_answer(said, said->document, err);
    json_int_t version = json_integer_value(hello);
    if (version < 1 || version > INT32_MAX)
        return lw_fail(err, "handler's \"hello\" is not a version number");
    said->hello = (int)version;
    return 0;
}

/* --- lines that are not JSON ------------------------------------------------------------------ */

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the code of the escape \uXXXX at `p`, or -1. */
static int escape_at(const char *p, const char *end) {
    int code = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        int d = digit_of(p[i]);
        if (d < 0) return -1;
        code = code << 4 | d;
    }
    return code;
}

/* Replaces halves of surrogate pairs by U+FFFD, and bytes that are not UTF-8 by question marks,
 * each by as many bytes as it had. Returns false if there is nothing to replace. */
static bool mend(struct lw_buf *out, struct lw_bytes line) {
    bool changed = false;
    if (!line.n) return false;
    lw_buf_clear(out);
    lw_buf_add(out, line.p, line.n);
    for (char *p = out->p, *end = p + line.n; p < end;) {
        int code = escape_at(p, end), low = code < 0 ? -1 : escape_at(p + 6, end);
        if (code >= 0xd800 && code < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
            p += 12;
        } else if (code >= 0xd800 && code < 0xe000) {
            memcpy(p, "\\ufffd", 6), p += 6;
            changed = true;
        } else if (*p == '\\') {
            p += 2;
        } else if ((unsigned char)*p < 0x80) {
            p++;
        } else {
            ptrdiff_t n = 2;
            while (n <= 4 && n <= end - p && !lw_utf8_ok(lw_bytes(p, (size_t)n))) n++;
            bool ok = n <= 4 && n <= end - p;
            if (!ok) *p = '?', n = 1, changed = true;
            p += n;
        }
    }
    return changed;
}

/* Finds the id in a line that is not JSON. Returns a NULL pointer if there is none, or if different
 * ids may be meant, as where a line begins within another one. */
static struct lw_bytes find_id(struct lw_bytes line) {
    static const char name[] = "\"id\"";
    struct lw_bytes found = {0};
    struct scan s = {line.p, line.p + line.n};
    while ((s.p = memmem(s.p, (size_t)(s.end - s.p), name, sizeof name - 1))) {
        struct lw_bytes id;
        s.p += sizeof name - 1;
        if (!take(&s, ':') || !take_text(&s, &id) || (found.p && !lw_bytes_eq(found, id)))
            return (struct lw_bytes){0};
        found = id;
    }
    return found;
}

/* --- a line ----------------------------------------------------------------------------------- */

static void forget(struct lw_exec_said *said) {
    if (said->document) json_decref(said->document);
    if (said->faults) json_decref(said->faults);
    said->document = said->faults = NULL;
    said->n = 0;
    said->hello = 0;
}

int lw_exec_read(struct lw_exec_said *said, struct lw_bytes line, struct lw_err *err) {
    /* of a member that occurs twice, nobody knows which one is meant */
    enum { HOW = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES };
    forget(said);
    if (read_usual(said, line)) return 0;
    said->n = 0;
    json_error_t bad;
    said->document = json_loadb(line.p, line.n, HOW, &bad);
    if (!said->document && mend(&said->mended, line))
        said->document = json_loadb(said->mended.p, said->mended.n, HOW, &bad);
    if (said->document) return read_document(said, err);
    struct lw_err why = {0};
    lw_fail(&why, "handler's answer is not JSON: %s (column %d)", bad.text, lw_json_column(&bad));
    struct lw_bytes id = find_id(line);
    if (!id.p) return lw_fail(err, "%s", why.text);
    struct lw_exec_answer *a = room(said);
    a->id = id;
    refuse_one(said, a, why.text);
    said->n = 1;
    return 0;
}

void lw_exec_said_free(struct lw_exec_said *said) {
    forget(said);
    lw_buf_free(&said->mended);
    free(said->answers);
}
