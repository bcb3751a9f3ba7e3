/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/event.h"

#include "base/json_scan.h"
#include "base/redis/command.h"
#include "handlers/json_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

enum { DEPTH_MAX = 512, SOURCE = 300, PARTITION_TEXT = 16, TIME = 32, ATTRIBUTE_MAX = 20 };

static const char type_name[] = "latchwork.message";

/* --- what both forms need --------------------------------------------------------------------- */

static bool is(struct lw_bytes a, const char *text) {
    return strlen(text) == a.n && strncasecmp(a.p, text, a.n) == 0;
}
bool event_begins(struct lw_bytes a, const char *with) {
    return strlen(with) <= a.n && strncasecmp(a.p, with, strlen(with)) == 0;
}

bool event_reserved(struct lw_bytes name) {
    static const char *const words[] = {
        "connection",     "content-length",   "content-type", "expect",
        "http2-settings", "keep-alive",       "te",           "trailer",
        "upgrade",        "transfer-encoding"};
    static const char *const starts[] = {"ce-", "latchwork-", "webhook-", "proxy-"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is(name, words[i])) return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (event_begins(name, starts[i])) return true;
    return false;
}

const struct event_passed event_passed_usual = {
    (const char *const[]){"traceparent", "tracestate", "baggage"}, 3};

bool event_trusted(struct lw_bytes name) {
    static const char *const words[] = {"authorization", "cookie",    "set-cookie",
                                        "host",          "forwarded", "via",
                                        "x-real-ip",     "from",      "x-client-cert"};
    static const char *const starts[] = {"x-forwarded-", "x-original-", "proxy-", "sec-"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is(name, words[i])) return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (event_begins(name, starts[i])) return true;
    return name.n && memchr(name.p, '_', name.n);
}

static bool passes(const struct event_passed *passed, struct lw_bytes name) {
    for (size_t i = 0; i < passed->n; i++) {
        const char *want = passed->names[i];
        size_t n = strlen(want);
        if (n && want[n - 1] == '*' ? n - 1 <= name.n && !strncasecmp(want, name.p, n - 1)
                                    : is(name, want))
            return !event_trusted(name);
    }
    return false;
}

/* Returns the content type of a record: the value of its header content-type, or `usual` if it has
 * no valid header of this name. */
static struct lw_bytes content_type(const struct lw_job *job, const char *usual) {
    for (size_t i = 0; i < job->n_headers; i++) {
        const struct lw_header *h = &job->headers[i];
        if (is(h->name, "content-type") && h->value.n && head_value_ok(h->value) &&
            lw_utf8_ok(h->value))
            return h->value;
    }
    return lw_bytes_of(usual);
}

/* Writes the attribute "source" of an event, which is "/TOPIC/PARTITION". */
static struct lw_bytes source(const struct lw_job *job, char out[SOURCE]) {
    size_t n = strnlen(job->topic, SOURCE - PARTITION_TEXT);
    out[0] = '/';
    memcpy(out + 1, job->topic, n++);
    out[n++] = '/';
    return lw_bytes(out, n + lw_decimal(job->partition, out + n));
}

static char *put_digits(char *at, int value, int width) {
    for (int i = width - 1; i >= 0; i--, value /= 10) at[i] = (char)('0' + value % 10);
    return at + width;
}

/* Writes a time as RFC 3339 with milliseconds. Returns false for a record without a timestamp. */
static bool time_text(int64_t ms, char out[TIME]) {
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    if (ms < 0 || !gmtime_r(&s, &tm) || tm.tm_year > 8099) return false;
    const struct {
        int value, width;
        char then;
    } parts[] = {{tm.tm_year + 1900, 4, '-'}, {tm.tm_mon + 1, 2, '-'}, {tm.tm_mday, 2, 'T'},
                 {tm.tm_hour, 2, ':'},        {tm.tm_min, 2, ':'},     {tm.tm_sec, 2, '.'},
                 {(int)(ms % 1000), 3, 'Z'}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        out = put_digits(out, parts[i].value, parts[i].width);
        *out++ = parts[i].then;
    }
    *out = '\0';
    return true;
}

/* --- headers ---------------------------------------------------------------------------------- */

static void add_key(struct http_head *head, const struct lw_job *job) {
    struct lw_buf text = {0};
    if (!job->key.p) return;
    if (lw_utf8_ok(job->key)) {
        head_add_encoded(head, "ce-partitionkey", job->key);
        return;
    }
    lw_json_base64(&text, job->key);
    head_add(head, lw_bytes_of("latchwork-key-base64"), lw_bytes(text.p + 1, text.n - 2));
    lw_buf_free(&text);
}

void event_head_own(struct http_head *head, const struct lw_job *job, int64_t deadline_ms) {
    head_add_number(head, "latchwork-fence", (int64_t)job->fence);
    head_add_number(head, "latchwork-attempt", job->attempt);
    if (deadline_ms) head_add_number(head, "latchwork-deadline-ms", deadline_ms);
}

void event_head(struct http_head *head, const struct lw_job *job, const char *usual_type,
                int64_t deadline_ms) {
    char text[SOURCE], at[TIME];
    if (job->payload.p)
        head_add(head, lw_bytes_of("content-type"), content_type(job, usual_type));
    else
        head_add_line(head, "content-type:");
    head_add_text(head, "ce-specversion", "1.0");
    head_add_text(head, "ce-id", job->identity);
    head_add(head, lw_bytes_of("ce-source"), source(job, text));
    head_add_text(head, "ce-type", type_name);
    if (time_text(job->timestamp_ms, at)) head_add_text(head, "ce-time", at);
    add_key(head, job);
    event_head_own(head, job, deadline_ms);
}

static bool is_fixed(const struct event_fixed *fixed, struct lw_bytes name) {
    for (size_t i = 0; i < fixed->n; i++)
        if (strncasecmp(fixed->lines[i], name.p, name.n) == 0 &&
            strchr(":;", fixed->lines[i][name.n]))
            return true;
    return false;
}

void event_head_record(struct http_head *head, const struct lw_job *job,
                       const struct event_fixed *fixed, const struct event_passed *passed) {
    for (size_t i = 0; i < job->n_headers; i++) {
        const struct lw_header *h = &job->headers[i];
        bool usable = h->value.p && head_name_ok(h->name) && head_value_ok(h->value) &&
                      !event_reserved(h->name) && passes(passed, h->name);
        bool fits = head->text.n + h->name.n + h->value.n + 4 <= HEAD_MAX;
        if (usable && fits && !is_fixed(fixed, h->name)) head_add(head, h->name, h->value);
    }
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void add_name(struct lw_buf *out, const char *name) { lw_buf_addf(out, ",\"%s\":", name); }

static void add_string(struct lw_buf *out, const char *name, struct lw_bytes value) {
    add_name(out, name);
    lw_json_string(out, value);
}

/* Returns the media type without its parameters. */
static struct lw_bytes media_type(struct lw_bytes type) {
    size_t n = 0;
    while (n < type.n && type.p[n] != ';' && type.p[n] != ' ') n++;
    return lw_bytes(type.p, n);
}

bool event_json_type(struct lw_bytes type) {
    struct lw_bytes media = media_type(type);
    return is(media, "application/json") || is(media, "text/json") ||
           (media.n > 5 && strncasecmp(media.p + media.n - 5, "+json", 5) == 0);
}

static bool is_json(struct lw_bytes text) {
    struct lw_buf scratch = {0};
    bool valid = lw_json_scan(text, (struct lw_json_rules){.depth_max = DEPTH_MAX}, NULL, 0, NULL,
                              &scratch, NULL) == 0;
    lw_buf_free(&scratch);
    return valid;
}

static void add_data(struct lw_buf *out, const struct lw_job *job, const char *usual_type) {
    struct lw_bytes type = content_type(job, usual_type);
    if (!job->payload.p) return;
    bool json = event_json_type(type), valid = json && is_json(job->payload);
    /* In an event with a JSON type, "data" must be a JSON value, so a malformed payload gets
     * another type. */
    if (json && !valid) type = lw_bytes_of("application/octet-stream");
    add_string(out, "datacontenttype", type);
    if (valid) {
        add_name(out, "data");
        lw_buf_add(out, job->payload.p, job->payload.n);
    } else if (event_begins(type, "text/") && lw_utf8_ok(job->payload)) {
        add_string(out, "data", job->payload);
    } else {
        add_name(out, "data_base64");
        lw_json_base64(out, job->payload);
    }
}

/* Returns true if a record's header of this name may become an attribute of the event. The name
 * must consist of lower-case letters and digits, at most ATTRIBUTE_MAX of them. It must not be a
 * name that CloudEvents or Latchwork uses. */
static bool is_attribute(struct lw_bytes name) {
    static const char *const taken[] = {"id",         "source",      "type", "specversion",
                                        "time",       "subject",     "data", "datacontenttype",
                                        "dataschema", "partitionkey"};
    if (!name.n || name.n > ATTRIBUTE_MAX || event_begins(name, "latchwork")) return false;
    for (size_t i = 0; i < name.n; i++)
        if (!islower((unsigned char)name.p[i]) && !isdigit((unsigned char)name.p[i])) return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (is(name, taken[i])) return false;
    return true;
}

static bool comes_again(const struct lw_job *job, size_t i) {
    for (size_t k = i + 1; k < job->n_headers; k++)
        if (lw_bytes_eq(job->headers[k].name, job->headers[i].name)) return true;
    return false;
}

static void add_attributes(struct lw_buf *out, const struct lw_job *job,
                           const struct event_passed *passed) {
    for (size_t i = 0; i < job->n_headers; i++) {
        const struct lw_header *h = &job->headers[i];
        if (!h->value.p || !is_attribute(h->name) || !passes(passed, h->name) ||
            comes_again(job, i) || !head_value_ok(h->value) || !lw_utf8_ok(h->value))
            continue;
        lw_buf_add(out, ",", 1);
        lw_json_string(out, h->name);
        lw_buf_add(out, ":", 1);
        lw_json_string(out, h->value);
    }
}

static void add_json_key(struct lw_buf *out, const struct lw_job *job) {
    if (!job->key.p) return;
    if (lw_utf8_ok(job->key)) {
        add_string(out, "partitionkey", job->key);
    } else {
        add_name(out, "latchworkkeybase64");
        lw_json_base64(out, job->key);
    }
}

void event_json(struct lw_buf *out, const struct lw_job *job, const char *usual_type,
                const struct event_passed *passed) {
    char text[SOURCE], at[TIME];
    lw_buf_addf(out, "{\"specversion\":\"1.0\",\"type\":\"%s\"", type_name);
    add_string(out, "id", lw_bytes_of(job->identity));
    add_string(out, "source", source(job, text));
    if (time_text(job->timestamp_ms, at)) add_string(out, "time", lw_bytes_of(at));
    add_json_key(out, job);
    /* The fence is a string, because it has 64 bits and an integer of CloudEvents has only 32. */
    lw_buf_addf(out, ",\"latchworkfence\":\"%" PRIu64 "\",\"latchworkattempt\":%d", job->fence,
                job->attempt);
    if (passed) add_attributes(out, job, passed);
    add_data(out, job, usual_type);
    lw_buf_add(out, "}", 1);
}
