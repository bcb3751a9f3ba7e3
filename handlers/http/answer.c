/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/answer.h"

#include "handlers/json_text.h"
#include "handlers/reason.h"

#include <curl/curl.h>
#include <stdio.h>
#include <strings.h>

enum { EXCERPT = 200 };

/* --- Retry-After ------------------------------------------------------------------------------ */

/* Converts a value of Retry-After, in seconds or as a date, to a wait in ms of at most an hour.
 * Returns 0 if the value is neither or lies in the past. */
static int64_t retry_after_ms(const char *value, int64_t now_s) {
    value += strspn(value, " \t");
    size_t n = strspn(value, "0123456789"), rest = n + strspn(value + n, " \t");
    int64_t seconds = 0;
    if (n && !value[rest]) {
        for (size_t i = 0; i < n && seconds <= LW_RETRY_AFTER_MAX_MS; i++)
            seconds = 10 * seconds + (value[i] - '0');
    } else if (*value) {
        time_t at = curl_getdate(value, NULL);
        seconds = at < 0 ? 0 : (int64_t)at - now_s;
    }
    if (seconds <= 0) return 0;
    return seconds < LW_RETRY_AFTER_MAX_MS / 1000 ? seconds * 1000 : LW_RETRY_AFTER_MAX_MS;
}

/* --- the status ------------------------------------------------------------------------------- */

static enum lw_outcome outcome_of(int status) {
    if (status >= 200 && status < 300) return LW_DONE;
    if (status == 409 || status == 412) return LW_BACK;
    if (status == 408 || status == 425 || status == 429) return LW_RETRY;
    return status >= 400 && status < 500 ? LW_DEAD : LW_RETRY;
}

/* Copies the beginning of a body as one line. Copies nothing if the body is not text. */
static void excerpt(struct lw_bytes body, char out[EXCERPT + 1]) {
    size_t n = lw_bytes_fit(body, EXCERPT);
    out[0] = '\0';
    if (!n || !lw_utf8_ok(lw_bytes(body.p, n))) return;
    memcpy(out, body.p, n);
    out[n] = '\0';
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = ' ';
}

void answer_by_status(const struct http_answer *a, int64_t now_s, struct http_verdict *out) {
    char text[EXCERPT + 1];
    *out = (struct http_verdict){.outcome = outcome_of(a->status)};
    out->retry.wait_ms = retry_after_ms(a->retry_after, now_s);
    if (out->outcome == LW_DONE || out->outcome == LW_BACK) return;
    excerpt(a->body, text);
    snprintf(out->reason, sizeof out->reason, "the service answered %d%s%s%s", a->status,
             a->status >= 300 && a->status < 400 ? " (redirects are not followed)" : "",
             *text ? ": " : "", text);
}

/* --- the body --------------------------------------------------------------------------------- */

/* Returns true if the body has the word, in letters of either case. */
static bool has_word(struct lw_bytes body, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= body.n; i++)
        if (strncasecmp(body.p + i, word, n) == 0) return true;
    return false;
}

/* Returns the body behind a byte order mark and white space. */
static struct lw_bytes content(struct lw_bytes body) {
    static const char mark[] = "\xef\xbb\xbf";
    if (!body.n) return body;
    size_t at = body.n >= 3 && memcmp(body.p, mark, 3) == 0 ? 3 : 0;
    while (at < body.n && strchr(" \t\r\n", body.p[at])) at++;
    return lw_bytes(body.p + at, body.n - at);
}

/* Returns the name of a member that differs from "outcome" or "batch" only in the case of its
 * letters, or NULL. */
static const char *misspelled(json_t *object) {
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        if ((!strcasecmp(name, "outcome") && strcmp(name, "outcome") != 0) ||
            (!strcasecmp(name, "batch") && strcmp(name, "batch") != 0))
            return name;
    }
    return NULL;
}

/* Returns true if one of the list's members is an object that names an outcome. */
static bool lists_outcomes(json_t *list) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        if (json_object_get(one, "outcome") || misspelled(one)) return true;
    }
    return false;
}

int answer_document(const struct http_answer *a, json_t **out, struct lw_err *err) {
    struct lw_bytes body = content(a->body);
    bool object = body.n && body.p[0] == '{', list = body.n && body.p[0] == '[';
    bool meant = (object || list) && (has_word(body, "outcome") || has_word(body, "batch"));
    json_error_t error;
    *out = NULL;
    if (!meant && !(a->json && body.n) && !(list && a->batch)) return 0;
    json_t *document =
        json_loadb(body.p, body.n,
                   JSON_ALLOW_NUL | JSON_DECODE_ANY | (meant ? JSON_REJECT_DUPLICATES : 0), &error);
    if (!document)
        return lw_fail(err, "the answer's body cannot be read: malformed JSON at byte %d: %s",
                       error.position, error.text);
    const char *wrong = misspelled(document);
    json_t *outcomes = json_object_get(document, "batch");
    if (wrong) {
        lw_fail(err, "the answer's body has \"%s\"; expected \"%s\"", wrong,
                strcasecmp(wrong, "batch") ? "outcome" : "batch");
        json_decref(document);
        return -1;
    }
    if (json_object_get(document, "outcome") || (outcomes && a->batch) ||
        lists_outcomes(outcomes) || (json_is_array(document) && a->batch) ||
        lists_outcomes(document))
        *out = document;
    else
        json_decref(document);
    return 0;
}

static void retry(struct http_verdict *out, const char *reason) {
    out->outcome = LW_RETRY;
    lw_reason_copy(out->reason, reason);
}

/* Converts the name of an outcome to its value. Returns false for a name that a service may not
 * use. */
static bool outcome_word(const char *word, enum lw_outcome *out) {
    return lw_outcome_of(word, out) && (*out == LW_DONE || *out == LW_RETRY || *out == LW_DEAD);
}

static void read_outcome(const json_t *answer, struct http_verdict *out) {
    static const char *const usual[] = {[LW_RETRY] = "the service asked for a retry",
                                        [LW_DEAD] = "the service gave the message up"};
    const json_t *outcome = json_object_get(answer, "outcome"),
                 *why = json_object_get(answer, "reason");
    const char *word = json_is_string(outcome) ? json_string_value(outcome) : "";
    char text[160];
    struct lw_retry when = out->retry;
    struct lw_err err = {0};
    if (lw_retry_read(answer, "the answer's body", &when, &err)) {
        retry(out, err.text);
        return;
    }
    if (!outcome_word(word, &out->outcome)) {
        snprintf(text, sizeof text,
                 "the answer's body has an unknown outcome \"%.64s\" (known: done, retry, dead)",
                 word);
        retry(out, text);
        return;
    }
    out->reason[0] = '\0';
    out->retry = when;
    if (out->outcome == LW_DONE) return;
    lw_reason_copy(out->reason,
                   json_string_length(why) ? json_string_value(why) : usual[out->outcome]);
}

void answer_by_document(const json_t *document, size_t at, size_t n, const char *identity,
                        struct http_verdict *out) {
    const json_t *list = json_is_array(document) ? document : json_object_get(document, "batch");
    char text[160];
    if (!json_is_array(list) && !json_object_get(document, "outcome")) {
        retry(out, "the answer's body has a \"batch\" that is no list of outcomes");
        return;
    }
    if (!json_is_array(list)) {
        read_outcome(document, out);
        /* What is not done ends the batch, but nothing says that one "done" is meant for all. */
        if (out->outcome == LW_DONE && n > 1)
            retry(out, "the answer's body has one outcome for a batch of several messages");
        return;
    }
    const json_t *one = json_array_get(list, at), *id = json_object_get(one, "id");
    if (json_array_size(list) != n) {
        snprintf(text, sizeof text, "the answer's body has %zu outcomes for %zu messages",
                 json_array_size(list), n);
        if (json_array_size(list) > n || !json_is_object(one)) {
            retry(out, text);
            return;
        }
    }
    if (!json_is_object(one)) {
        snprintf(text, sizeof text, "outcome %zu of the answer's body is no object", at);
        retry(out, text);
    } else if (id && strcmp(json_is_string(id) ? json_string_value(id) : "", identity) != 0) {
        snprintf(text, sizeof text,
                 "the answer's body has the outcome of another message: \"%.64s\"",
                 json_is_string(id) ? json_string_value(id) : "");
        retry(out, text);
    } else {
        read_outcome(one, out);
    }
}
