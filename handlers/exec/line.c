/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/line.h"

#include "handlers/json_text.h"
#include "handlers/reason.h"

#include <inttypes.h>

/* Appends `,"name":"text"`, or `,"name_base64":"…"` if it is not UTF-8, or `,"name":null`. */
static void add_bytes(struct lw_buf *out, const char *name, struct lw_bytes v) {
    if (!v.p) {
        lw_buf_addf(out, ",\"%s\":null", name);
    } else if (lw_utf8_ok(v)) {
        lw_buf_addf(out, ",\"%s\":", name);
        lw_json_string(out, v);
    } else {
        lw_buf_addf(out, ",\"%s_base64\":", name);
        lw_json_base64(out, v);
    }
}

/* A header pair has no name that could be marked, so bytes that are not UTF-8 become an object:
 * {"base64":"…"}. */
static void add_header_part(struct lw_buf *out, struct lw_bytes v) {
    if (!v.p) {
        lw_buf_add(out, "null", 4);
    } else if (lw_utf8_ok(v)) {
        lw_json_string(out, v);
    } else {
        lw_buf_addf(out, "{\"base64\":");
        lw_json_base64(out, v);
        lw_buf_add(out, "}", 1);
    }
}

static void add_headers(struct lw_buf *out, const struct lw_job *job) {
    lw_buf_addf(out, ",\"headers\":[");
    for (size_t i = 0; i < job->n_headers; i++) {
        lw_buf_addf(out, i ? ",[" : "[");
        add_header_part(out, job->headers[i].name);
        lw_buf_add(out, ",", 1);
        add_header_part(out, job->headers[i].value);
        lw_buf_add(out, "]", 1);
    }
    lw_buf_add(out, "]", 1);
}

void lw_exec_request(struct lw_buf *out, const struct lw_job *job) {
    lw_buf_addf(out, "{\"id\":");
    lw_json_string(out, lw_bytes_of(job->identity));
    add_bytes(out, "key", job->key);
    lw_buf_addf(out, ",\"fence\":%" PRIu64 ",\"attempt\":%d,\"topic\":", job->fence, job->attempt);
    lw_json_string(out, lw_bytes_of(job->topic));
    lw_buf_addf(out, ",\"partition\":%" PRId32 ",\"offset\":%" PRId64, job->partition, job->offset);
    if (job->timestamp_ms >= 0)
        lw_buf_addf(out, ",\"timestamp_ms\":%" PRId64, job->timestamp_ms);
    else
        lw_buf_addf(out, ",\"timestamp_ms\":null");
    add_headers(out, job);
    add_bytes(out, "payload", job->payload);
    lw_buf_add(out, "}\n", 2);
}

void lw_exec_cancel(struct lw_buf *out, const struct lw_job *job) {
    lw_buf_addf(out, "{\"cancel\":");
    lw_json_string(out, lw_bytes_of(job->identity));
    lw_buf_add(out, "}\n", 2);
}

static int read_outcome(const json_t *answer, enum lw_outcome *outcome, struct lw_err *err) {
    const json_t *v = json_object_get(answer, "outcome");
    if (!json_is_string(v)) return lw_fail(err, "handler's answer has no \"outcome\" (done, retry or dead)");
    const char *word = json_string_value(v);
    if (lw_outcome_of(word, outcome) && (*outcome == LW_DONE || *outcome == LW_RETRY || *outcome == LW_DEAD)) return 0;
    return lw_fail(err, "handler's answer has an unknown outcome \"%.64s\" (known: done, retry, dead)", word);
}

static int read_answer(const json_t *answer, const char *identity, enum lw_outcome *outcome, char *reason, struct lw_err *err) {
    if (!json_is_object(answer)) return lw_fail(err, "handler's answer is not a JSON object");
    const json_t *id = json_object_get(answer, "id");
    if (!json_is_string(id)) return lw_fail(err, "handler's answer has no \"id\"");
    if (strcmp(json_string_value(id), identity) != 0)
        return lw_fail(err, "handler answered for another message: \"%.128s\"", json_string_value(id));
    if (read_outcome(answer, outcome, err)) return -1;
    const json_t *why = json_object_get(answer, "reason");
    if (why && !json_is_string(why) && !json_is_null(why)) return lw_fail(err, "handler's answer has a \"reason\" that is not a string");
    reason[0] = '\0';
    if (*outcome == LW_DONE) return 0;
    const char *text = json_is_string(why) && json_string_length(why) ? json_string_value(why) : NULL;
    if (!text) text = *outcome == LW_RETRY ? "handler asked for a retry" : "handler gave the message up";
    lw_reason_copy(reason, text);
    return 0;
}

int lw_exec_answer(struct lw_bytes line, const char *identity, enum lw_outcome *outcome, char *reason, struct lw_err *err) {
    json_error_t bad;
    json_t *answer = json_loadb(line.p, line.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &bad);
    if (!answer) return lw_fail(err, "handler's answer is not JSON: %s (column %d)", bad.text, bad.column);
    int r = read_answer(answer, identity, outcome, reason, err);
    json_decref(answer);
    return r;
}
