/* A small HTTP server for what the exporter shows: GET and HEAD only, read-only, bounded in connections and time. It answers only requests
 * whose Host header names an address, "localhost" or this machine: a page in a browser can then not reach it through a name of its own. */
#ifndef LW_CONSUMER_HTTP_H
#define LW_CONSUMER_HTTP_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdbool.h>

enum { LW_HTTP_CONNECTIONS = 32, LW_HTTP_IDLE_S = 10 };

struct lw_http;

/* Fills `body` and names its type; returns the status, 404 for a path that is not known. Called by one thread at a time. */
typedef int lw_http_answer_fn(void *ctx, const char *path, struct lw_buf *body, const char **type);

/* host: a numeric address. port 0: any free one. Runs in a thread of its own. */
struct lw_http *lw_http_open(const char *host, int port, lw_http_answer_fn *answer, void *ctx, struct lw_err *err);
int lw_http_port(const struct lw_http *h);
void lw_http_close(struct lw_http *h);

/* May a request with this Host header (NULL: none) be answered? `machine`: this machine's name. */
bool lw_http_host_ok(const char *host, const char *machine);

#endif
