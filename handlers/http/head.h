/* SPDX-License-Identifier: Apache-2.0 */
/* head: the headers of a request, in one buffer that is used again for the next request. */
#ifndef LW_HANDLERS_HTTP_HEAD_H
#define LW_HANDLERS_HTTP_HEAD_H

#include "base/bytes.h"

#include <curl/curl.h>
#include <stdbool.h>

enum { HEAD_MAX = 32 << 10 }; /* maximum size of all headers in bytes */

/* The headers of one request. The caller initializes the structure with {0}, or with `raw` set. */
struct http_head {
    /* the lines; each ends with a NUL, as libcurl takes them, unless `raw` is true */
    struct lw_buf text;
    /* true: the lines stand in the text as HTTP/1.1 has them, each ended by CR LF; head_list()
     * can't be used */
    bool raw;
    size_t n;                 /* number of lines */
    struct curl_slist *nodes; /* the list that head_list() made last */
    size_t cap;
};

void head_clear(struct http_head *h);
void head_free(struct http_head *h);
/* Adds a header. The name must be a token and the value must pass head_value_ok(). */
void head_add(struct http_head *h, struct lw_bytes name, struct lw_bytes value);
void head_add_text(struct http_head *h, const char *name, const char *value);
void head_add_number(struct http_head *h, const char *name, int64_t value);
/* Adds a header whose value may be any bytes: what is not printable ASCII, spaces, quotes and
 * percent signs become %XX, as CloudEvents asks for. */
void head_add_encoded(struct http_head *h, const char *name, struct lw_bytes value);
/* Adds a line in libcurl's form: "Name: value", or "Name:" to send no such header. */
void head_add_line(struct http_head *h, const char *line);
/* Returns the headers as a list, which is valid until the next call for this head. The list is not
 * to be freed. */
struct curl_slist *head_list(struct http_head *h);

/* true if the name is a token of RFC 9110 of at most 256 bytes */
bool head_name_ok(struct lw_bytes name);
/* true if the value has at most 8 KiB and no control characters except tabs */
bool head_value_ok(struct lw_bytes value);

#endif
