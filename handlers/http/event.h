/* SPDX-License-Identifier: Apache-2.0 */
/* event: a message as a CloudEvent 1.0. In binary mode the attributes are headers and the body is
 * the payload; in structured mode the whole event is a JSON object, in batch mode the body is an
 * array of such objects. Nothing here does I/O. */
#ifndef LW_HANDLERS_HTTP_EVENT_H
#define LW_HANDLERS_HTTP_EVENT_H

#include "handlers/handler.h"
#include "handlers/http/head.h"

/* Headers that the configuration sets. A record's header of the same name is left out. */
struct event_fixed {
    char **lines; /* the headers, each as "Name: value" */
    size_t n;
};

/* Returns true for a header that no record and no configuration may set, because HTTP, CloudEvents,
 * Standard Webhooks or Latchwork give it a meaning of their own. */
bool event_reserved(struct lw_bytes name);
/* Returns the content type of a record: its header content-type, or `usual`. */
struct lw_bytes event_content_type(const struct lw_job *job, const char *usual);

/* Adds the attributes of the message and its content type. deadline_ms: when the answer no longer
 * counts, in ms since 1970; 0: there is no limit. */
void event_head(struct http_head *head, const struct lw_job *job, const char *usual_type,
                int64_t deadline_ms);
/* Adds latchwork-fence, latchwork-attempt and latchwork-deadline-ms. */
void event_head_own(struct http_head *head, const struct lw_job *job, int64_t deadline_ms);
/* Adds those headers of the record that are valid in HTTP and that nobody else sets, up to HEAD_MAX
 * bytes in all. */
void event_head_record(struct http_head *head, const struct lw_job *job,
                       const struct event_fixed *fixed);

/* Appends the event as a JSON object. If `all_headers` is true, the object also contains those
 * record headers whose names are valid as names of attributes. */
void event_json(struct lw_buf *out, const struct lw_job *job, const char *usual_type,
                bool all_headers);

#endif
