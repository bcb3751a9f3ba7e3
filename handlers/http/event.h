/* SPDX-License-Identifier: Apache-2.0 */
/* event: a message as a CloudEvent 1.0. In binary mode the attributes are headers and the body is
 * the payload. In structured mode the body is the whole event as a JSON object, and in batch mode
 * an array of such objects. The functions of this file do no I/O. */
#ifndef LW_HANDLERS_HTTP_EVENT_H
#define LW_HANDLERS_HTTP_EVENT_H

#include "handlers/handler.h"
#include "handlers/http/head.h"

/* The headers that the configuration sets. A record's header of the same name is left out. */
struct event_fixed {
    char **lines; /* one string per header, as "Name: value" */
    size_t n;
};

/* The names of record headers that are passed on: each is a name, or the beginning of names
 * followed by '*'. The case of letters does not matter. */
struct event_passed {
    const char *const *names;
    size_t n;
};

/* The names that are passed on if the configuration names none: the trace context. */
extern const struct event_passed event_passed_usual;

/* Returns true for a header by which services recognize who asks, and from where: credentials, the
 * host, what a proxy says of its client. A record never sets such a header, because whoever may
 * produce records could then act as somebody else. A name with '_' is such a header, because many
 * servers take '_' for '-'. */
bool event_trusted(struct lw_bytes name);

/* Returns true for a header that neither a record nor the configuration may set, because HTTP,
 * CloudEvents, Standard Webhooks or Latchwork define it. */
bool event_reserved(struct lw_bytes name);

/* Returns true if `a` begins with the text. As always in HTTP, the case of letters does not
 * matter. */
bool event_begins(struct lw_bytes a, const char *with);
/* Returns true if a Content-Type says JSON: application/json, text/json or any/thing+json. */
bool event_json_type(struct lw_bytes type);

/* Adds headers with the attributes and the content type of the message. deadline_ms is the time
 * after which the response no longer counts, in ms since 1970; 0 means no limit. */
void event_head(struct http_head *head, const struct lw_job *job, const char *usual_type,
                int64_t deadline_ms);
/* Adds the headers latchwork-fence, latchwork-attempt and latchwork-deadline-ms. */
void event_head_own(struct http_head *head, const struct lw_job *job, int64_t deadline_ms);
/* Adds the record's headers that `passed` names and that are valid in HTTP. Leaves out a header
 * that is reserved, that services trust, that `fixed` sets, or that would make `head` larger than
 * HEAD_MAX bytes. */
void event_head_record(struct http_head *head, const struct lw_job *job,
                       const struct event_fixed *fixed, const struct event_passed *passed);

/* Appends the event as a JSON object. Record headers that `passed` names become attributes of the
 * event, if their names are valid attribute names. `passed` may be NULL: none. */
void event_json(struct lw_buf *out, const struct lw_job *job, const char *usual_type,
                const struct event_passed *passed);

#endif
