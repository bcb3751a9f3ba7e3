/* SPDX-License-Identifier: Apache-2.0 */
/* head: the headers of a request. The buffer is reused for the next request. */
#ifndef LW_HANDLERS_HTTP_HEAD_H
#define LW_HANDLERS_HTTP_HEAD_H

#include "base/bytes.h"

#include <curl/curl.h>
#include <stdbool.h>

enum { HEAD_MAX = 32 << 10 }; /* maximum total size of the headers in bytes */

/* The headers of one request. The caller sets all fields to 0 at first. */
struct http_head {
    struct lw_buf text;       /* the lines of the headers; each ends with a NUL */
    size_t n;                 /* number of lines */
    struct curl_slist *nodes; /* the list that head_list() returned last */
    size_t cap;
};

void head_clear(struct http_head *h);
void head_free(struct http_head *h);
/* Adds a header. The name must be a token and the value must pass head_value_ok(). */
void head_add(struct http_head *h, struct lw_bytes name, struct lw_bytes value);
void head_add_text(struct http_head *h, const char *name, const char *value);
void head_add_number(struct http_head *h, const char *name, int64_t value);
/* Adds a header whose value may be any bytes. Spaces, quotes, percent signs and all bytes that are
 * not printable ASCII become %XX, as CloudEvents prescribes. */
void head_add_encoded(struct http_head *h, const char *name, struct lw_bytes value);
/* Adds a line in libcurl's form: "Name: value", or "Name:" to remove a header that libcurl would
 * send. */
void head_add_line(struct http_head *h, const char *line);
/* Returns the headers as a list for libcurl. The list stays valid until this head is passed to
 * another function, and the caller must not free it. */
struct curl_slist *head_list(struct http_head *h);

/* Returns true if the name is a token of RFC 9110 with at most 256 bytes. */
bool head_name_ok(struct lw_bytes name);
/* Returns true if the value has at most 8 KiB and no control characters except tabs. */
bool head_value_ok(struct lw_bytes value);

#endif
