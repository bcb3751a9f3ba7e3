#include "consumer/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct lw_http {
    struct MHD_Daemon *daemon;
    lw_http_answer_fn *answer;
    void *ctx;
    int port;
    char machine[256];
};

/* --- the Host header ---------------------------------------------------------------------------------------------------------------- */

static bool is_port(const char *s) { return !*s || (*s == ':' && s[1] && strspn(s + 1, "0123456789") == strlen(s + 1)); }

/* `name` is this machine's, with or without a domain behind it on either side. */
static bool is_machine(const char *name, size_t n, const char *machine) {
    size_t first = strcspn(machine, "."), whole = strlen(machine);
    if (!first) return false;
    return (n == first || n == whole) && strncasecmp(name, machine, n) == 0;
}

bool lw_http_host_ok(const char *host, const char *machine) {
    char name[256];
    unsigned char address[16];
    if (!host) return false; /* HTTP/1.1 demands one */
    const char *end = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end) return false;
    bool v6 = *host == '[';
    size_t n = (size_t)(end - host) - (v6 ? 1 : 0);
    if (!n || n >= sizeof name || !is_port(v6 ? end + 1 : end)) return false;
    memcpy(name, host + (v6 ? 1 : 0), n);
    name[n] = 0;
    if (v6) return inet_pton(AF_INET6, name, address) == 1;
    return inet_pton(AF_INET, name, address) == 1 || strcasecmp(name, "localhost") == 0 || is_machine(name, n, machine);
}

/* --- answering ---------------------------------------------------------------------------------------------------------------------- */

static enum MHD_Result send_body(struct MHD_Connection *c, int status, const char *type, struct lw_buf *body) {
    struct MHD_Response *r = MHD_create_response_from_buffer(body->n, body->p, MHD_RESPMEM_MUST_COPY);
    lw_buf_free(body);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method, const char *version,
                                  const char *upload, size_t *upload_size, void **state) {
    static int seen;
    struct lw_http *h = cls;
    (void)version, (void)upload;
    if (!*state) { /* headers only: the answer comes with the next call */
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_size) { /* a body is read and thrown away */
        *upload_size = 0;
        return MHD_YES;
    }
    struct lw_buf body = {0};
    const char *type = "text/plain; charset=utf-8";
    int status;
    if (!lw_http_host_ok(MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST), h->machine)) {
        status = 421;
        lw_buf_addf(&body, "this Host is not served here: use an address, localhost or the machine's name\n");
    } else if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        lw_buf_addf(&body, "read-only: GET or HEAD\n");
    } else {
        status = h->answer(h->ctx, url, &body, &type);
    }
    return send_body(c, status, type, &body);
}

/* --- life --------------------------------------------------------------------------------------------------------------------------- */

static int make_address(const char *host, int port, struct sockaddr_storage *out, socklen_t *n, struct lw_err *err) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *n = sizeof *v4;
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *n = sizeof *v6;
    } else {
        return lw_fail(err, "%s is not a numeric address", host);
    }
    return 0;
}

static int listen_at(const char *host, int port, int *got_port, struct lw_err *err) {
    struct sockaddr_storage address;
    socklen_t n = 0;
    if (make_address(host, port, &address, &n, err)) return -1;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) && !bind(fd, (struct sockaddr *)&address, n) &&
              !listen(fd, 64) && !getsockname(fd, (struct sockaddr *)&address, &n);
    if (!ok) {
        lw_fail(err, "can't listen on %s port %d: %s", host, port, strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    *got_port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&address)->sin_port
                                                   : ((struct sockaddr_in6 *)(void *)&address)->sin6_port);
    return fd;
}

static void no_log(void *cls, const char *fmt, va_list ap) { (void)cls, (void)fmt, (void)ap; } /* clients that go away */

struct lw_http *lw_http_open(const char *host, int port, lw_http_answer_fn *answer, void *ctx, struct lw_err *err) {
    struct lw_http *h = lw_alloc(sizeof *h);
    *h = (struct lw_http){.answer = answer, .ctx = ctx};
    gethostname(h->machine, sizeof h->machine - 1);
    signal(SIGPIPE, SIG_IGN);
    int fd = listen_at(host, port, &h->port, err);
    if (fd >= 0) {
        h->daemon =
            MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, h,
                             MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                             (unsigned)LW_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LW_HTTP_IDLE_S, MHD_OPTION_END);
        if (h->daemon) return h;
        lw_fail(err, "the HTTP server can't be started");
        close(fd);
    }
    free(h);
    return NULL;
}

int lw_http_port(const struct lw_http *h) { return h->port; }

void lw_http_close(struct lw_http *h) {
    if (!h) return;
    MHD_stop_daemon(h->daemon); /* closes the socket too */
    free(h);
}
