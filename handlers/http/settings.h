/* SPDX-License-Identifier: Apache-2.0 */
/* settings: the handler section of type http, checked and ready for use. */
#ifndef LW_HANDLERS_HTTP_SETTINGS_H
#define LW_HANDLERS_HTTP_SETTINGS_H

#include "config/config.h"
#include "handlers/http/event.h"
#include "handlers/http/sign.h"

enum http_mode { HTTP_BINARY, HTTP_STRUCTURED, HTTP_BATCH };

enum { HTTP_HEADERS_MAX = 32, HTTP_PASSED_MAX = 64, HTTP_URL_MAX = 2048 };

struct http_settings {
    char *url;
    char *service; /* scheme, host and port, as the log names the service */
    char *host;    /* host of the URL, without the brackets of an IPv6 address */
    char *port;
    /* `target_url` is the URL for libcurl, in which tls.server_name, if it is set, replaces the
     * host */
    char *target_url;
    /* `connect_to` is the host to which libcurl connects, in libcurl's format; NULL:
     * tls.server_name is not set */
    struct curl_slist *connect_to;
    /* `host_line` is the header Host for handler.url; NULL: the header that libcurl makes is
     * right */
    char *host_line;
    enum http_mode mode;
    char *content_type;
    /* `fixed` holds the configured headers, which each request gets; its lines belong to this
     * structure. */
    struct event_fixed fixed;
    /* `passed` has the names of record headers that are passed on, borrowed from the configuration
     * except for the list itself */
    struct event_passed passed;
    const char **passed_names;
    struct signer signer;
    struct lw_tls tls;
    int64_t connect_timeout_ms;
    int breaker_percent;
};

/* Reads the section and reports every problem. *out must be freed, even if problems were
 * reported. */
void http_settings_read(const struct lw_config *c, struct http_settings *out,
                        struct lw_problems *problems);
void http_settings_free(struct http_settings *s);

#endif
