/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/http.h"

#include "base/clock.h"
#include "base/thread.h"
#include "monitor/page.h"
#include "monitor/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* A body that is too large is read and discarded up to this number of bytes, because some
     * clients read the response only after they have sent the whole body. */
    SWALLOW_MAX = 1 << 20,
};

/* The threads beside MHD's: two for slow requests, and one that sends the answers to wrong
 * tokens. */
enum { SHORT, LENGTHY, DENIED, LINES };

struct pending {
    struct lw_http_request q;
    struct lw_http_answer a;
    struct MHD_Connection *connection;
    struct pending *next;
    int64_t due_ms; /* time at which the answer to a wrong token is sent */
    size_t received;
    bool large, bad, asked;
};

/* A connection, from accept to close. Only the thread of libmicrohttpd (MHD) uses it. */
struct client {
    struct client *older, *newer;
    int fd;
    bool kept;  /* true if the request waits for a slow thread, or the response is a stream */
    bool ended; /* true if the socket is shut down; MHD will close the connection soon */
};

/* A thread that answers slow requests, so that they do not delay quick requests, and the list of
 * the requests that wait for this thread. */
struct line {
    struct lw_http *http;
    pthread_t thread;
    bool lengthy, started;
    int most;
    /* The mutex `lock` of struct lw_http guards the fields below. */
    pthread_cond_t more;
    struct pending *first, **last;
    int waiting; /* number of requests in the list or being answered */
};

struct lw_http {
    struct MHD_Daemon *daemon;
    struct client *oldest, *newest; /* list of clients, used only by MHD's thread */
    int n_clients;                  /* number of clients that are not `ended` */
    struct lw_http_handler handler;
    struct lw_streams *streams;
    int port;
    char machine[256];
    struct line line[LINES];
    pthread_mutex_t lock; /* guards `closing` and the last fields of each struct line */
    bool closing;
};

/* --- connections ------------------------------------------------------------------------------ */

static void end_oldest(struct lw_http *h) {
    struct client *c = h->oldest;
    while (c && (c->kept || c->ended)) c = c->newer;
    if (!c || c == h->newest) return;
    c->ended = true;
    h->n_clients--;
    shutdown(c->fd, SHUT_RDWR); /* makes MHD close the connection */
}

static void add_client(struct lw_http *h, struct client *c) {
    c->older = h->newest;
    if (c->older)
        c->older->newer = c;
    else
        h->oldest = c;
    h->newest = c;
    if (++h->n_clients > LW_HTTP_CROWD) end_oldest(h);
}

static void remove_client(struct lw_http *h, const struct client *c) {
    if (c->older)
        c->older->newer = c->newer;
    else
        h->oldest = c->newer;
    if (c->newer)
        c->newer->older = c->older;
    else
        h->newest = c->older;
    if (!c->ended) h->n_clients--;
}

static void on_connection(void *cls, struct MHD_Connection *mc, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    struct lw_http *h = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct client *c = *context = lw_alloc(sizeof *c);
        *c = (struct client){.fd = info ? info->connect_fd : -1};
        add_client(h, c);
    } else if (*context) {
        remove_client(h, *context);
        free(*context);
        *context = NULL;
    }
}

static void keep_client(struct MHD_Connection *mc, bool kept) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct client *c = info ? info->socket_context : NULL;
    if (c) c->kept = kept;
}

/* --- a request -------------------------------------------------------------------------------- */

static bool is_api(const struct pending *p) { return !strncmp(p->q.path, "/api/", 5); }

static void refuse(struct pending *p, int status, const char *why) {
    if (is_api(p)) {
        lw_http_error(&p->a, status, "%s", why);
        return;
    }
    p->a.status = status;
    lw_buf_addf(&p->a.body, "%s\n", why);
}

static char *decoded(const char *text, bool *bad) {
    struct lw_buf b = {0};
    if (!lw_http_decode(lw_bytes_of(text), &b)) *bad = true;
    lw_buf_add(&b, "", 1);
    return b.p;
}

static enum MHD_Result take_arg(void *cls, enum MHD_ValueKind kind, const char *name,
                                const char *value) {
    struct pending *p = cls;
    (void)kind;
    if (p->q.n_args == LW_HTTP_ARGS) {
        p->bad = true;
        return MHD_NO;
    }
    struct lw_http_arg *a = &p->q.args[p->q.n_args++];
    a->name = decoded(name, &p->bad);
    a->value = decoded(value ? value : "", &p->bad);
    return MHD_YES;
}

static struct pending *begin(struct MHD_Connection *c, const char *url, const char *method) {
    struct pending *p = lw_alloc(sizeof *p);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *length =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    p->connection = c;
    p->q.path = url;
    p->q.post = !strcmp(method, MHD_HTTP_METHOD_POST);
    p->q.authorization =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    p->q.if_none_match =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
    p->q.takes_gzip = lw_http_takes_gzip(
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT_ENCODING));
    p->large = length && strtoull(length, NULL, 10) > LW_HTTP_BODY_MAX;
    if (info && info->client_addr) {
        const struct sockaddr *at = info->client_addr;
        getnameinfo(at,
                    at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                              : sizeof(struct sockaddr_in),
                    p->q.from, sizeof p->q.from, NULL, 0, NI_NUMERICHOST);
    }
    MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, take_arg, p);
    return p;
}

static void on_end(void *cls, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode why) {
    struct pending *p = *state;
    (void)cls, (void)c, (void)why;
    if (!p) return;
    for (size_t i = 0; i < p->q.n_args; i++) free(p->q.args[i].name), free(p->q.args[i].value);
    lw_buf_free(&p->q.body);
    lw_buf_free(&p->a.body);
    lw_buf_free(&p->a.next);
    free(p);
    *state = NULL;
}

static struct MHD_Response *stream_of(struct lw_http *h, struct pending *p) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(p->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct MHD_Response *r = info ? lw_streams_add(h->streams, p->connection, info->connect_fd,
                                                   lw_bytes(p->a.body.p, p->a.body.n))
                                  : NULL;
    if (r) {
        keep_client(p->connection, true);
        /* Without the header X-Accel-Buffering, nginx would hold events back until its buffer is
         * full. */
        MHD_add_response_header(r, "X-Accel-Buffering", "no");
        return r;
    }
    p->a.stream = false;
    refuse(p, MHD_HTTP_SERVICE_UNAVAILABLE, "too many streams are open; close a page");
    return NULL;
}

static enum MHD_Result send_answer(struct lw_http *h, struct pending *p) {
    keep_client(p->connection, false);
    struct MHD_Response *r = p->a.stream ? stream_of(h, p) : NULL;
    if (!r) r = MHD_create_response_from_buffer(p->a.body.n, p->a.body.p, MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
                            p->a.type ? p->a.type : "text/plain; charset=utf-8");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, p->a.tag ? "no-cache" : "no-store");
    if (p->a.tag) MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, p->a.tag);
    if (p->a.tag) MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    if (p->a.gzip && p->a.body.n)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Content-Security-Policy", LW_PAGE_CSP);
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
    MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    if (p->a.status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, p->a.allow ? p->a.allow : "GET, HEAD");
    if (p->a.status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (p->a.status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "2");
    if (p->a.next.n) {
        lw_buf_add(&p->a.next, "", 1);
        MHD_add_response_header(r, "Latchwork-Next", p->a.next.p);
    }
    enum MHD_Result ok = MHD_queue_response(p->connection, (unsigned)p->a.status, r);
    MHD_destroy_response(r);
    return ok;
}

/* --- the slow ones ---------------------------------------------------------------------------- */

/* Passes the request to a thread. Returns false if that thread's list is full, or if the server is
 * closing. Otherwise the thread owns the request until it is answered. */
static bool hand_over(struct lw_http *h, struct pending *p, struct line *l, bool keep) {
    pthread_mutex_lock(&h->lock);
    bool room = l->waiting < l->most && !h->closing;
    if (room) {
        l->waiting++;
        keep_client(p->connection, keep);
        MHD_suspend_connection(p->connection);
        p->next = NULL;
        *l->last = p;
        l->last = &p->next;
        pthread_cond_signal(&l->more);
    }
    pthread_mutex_unlock(&h->lock);
    return room;
}

static struct pending *next(struct line *l, bool *closing) {
    struct lw_http *h = l->http;
    pthread_mutex_lock(&h->lock);
    while (!l->first && !h->closing) pthread_cond_wait(&l->more, &h->lock);
    struct pending *p = l->first;
    if (p && !(l->first = p->next)) l->last = &l->first;
    *closing = h->closing;
    pthread_mutex_unlock(&h->lock);
    return p;
}

static void *be_slow(void *ctx) {
    struct line *l = ctx;
    struct lw_http *h = l->http;
    struct pending *p;
    bool closing;
    while ((p = next(l, &closing))) {
        if (closing || lw_boot_ms() >= p->q.until_ms)
            refuse(p, MHD_HTTP_SERVICE_UNAVAILABLE,
                   closing ? "ending" : "others were first, and slow; ask again");
        else
            h->handler.slow(h->handler.ctx, &p->q, &p->a, l->lengthy);
        pthread_mutex_lock(&h->lock);
        l->waiting--;
        pthread_mutex_unlock(&h->lock);
        MHD_resume_connection(p->connection);
    }
    return NULL;
}

/* Sends the answers to wrong tokens, each LW_HTTP_DENIED_MS after its request, so that tokens can
 * not be guessed quickly. The list is in the order of the times. */
static void *be_late(void *ctx) {
    struct line *l = ctx;
    struct lw_http *h = l->http;
    pthread_mutex_lock(&h->lock);
    while (l->first || !h->closing) {
        int64_t now = lw_boot_ms();
        struct pending *p = l->first;
        if (!p) {
            pthread_cond_wait(&l->more, &h->lock);
        } else if (now < p->due_ms && !h->closing) {
            lw_cond_wait_ms(&l->more, &h->lock, p->due_ms - now);
        } else {
            if (!(l->first = p->next)) l->last = &l->first;
            l->waiting--;
            MHD_resume_connection(p->connection);
        }
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* --- answering -------------------------------------------------------------------------------- */

static const char *header(const struct pending *p, const char *name) {
    return MHD_lookup_connection_value(p->connection, MHD_HEADER_KIND, name);
}

static bool host_ok(const struct lw_http *h, const struct pending *p) {
    const char *host = header(p, MHD_HTTP_HEADER_HOST);
    return lw_http_host_ok(host, h->machine) ||
           lw_http_host_named(host, h->handler.hosts, h->handler.n_hosts);
}

static enum MHD_Result answer(struct lw_http *h, struct pending *p, const char *method) {
    bool reads = !strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD);
    p->asked = true;
    p->q.until_ms = lw_boot_ms() + LW_HTTP_LIMIT_MS;
    if (!host_ok(h, p))
        refuse(p, 421,
               "this Host is not served here: use an address, localhost, the machine's name or one "
               "of http.hosts");
    else if (!lw_http_origin_ok(header(p, MHD_HTTP_HEADER_ORIGIN), header(p, MHD_HTTP_HEADER_HOST)))
        refuse(p, MHD_HTTP_FORBIDDEN,
               "pages of another site may not call this server: Origin differs from Host");
    else if (is_api(p) && !lw_http_fetch_site_ok(header(p, "Sec-Fetch-Site")))
        refuse(p, MHD_HTTP_FORBIDDEN, "pages of another site may not call the API");
    else if (p->large)
        refuse(p, 413, "the body is too large");
    else if (p->bad)
        refuse(p, MHD_HTTP_BAD_REQUEST, "the query can't be read");
    else if (!reads && !p->q.post)
        refuse(p, MHD_HTTP_METHOD_NOT_ALLOWED, "read-only: GET or HEAD");
    else if (!h->handler.quick(h->handler.ctx, &p->q, &p->a)) {
        bool lengthy = h->handler.lengthy && h->handler.lengthy(h->handler.ctx, &p->q);
        if (hand_over(h, p, &h->line[lengthy ? LENGTHY : SHORT], true)) return MHD_YES;
        refuse(p, MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests wait; ask again");
    } else if (p->a.status == MHD_HTTP_UNAUTHORIZED && p->q.authorization) {
        p->due_ms = lw_boot_ms() + LW_HTTP_DENIED_MS;
        /* MHD_NO closes the connection */
        return hand_over(h, p, &h->line[DENIED], false) ? MHD_YES : MHD_NO;
    }
    return send_answer(h, p);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state) {
    struct lw_http *h = cls;
    struct pending *p = *state;
    (void)version;
    if (!p) { /* MHD calls this function first without a body */
        *state = p = begin(c, url, method);
        return p->large ? answer(h, p, method) : MHD_YES;
    }
    if (*upload_size) {
        p->received += *upload_size;
        p->large |= p->received > LW_HTTP_BODY_MAX;
        if (!p->large) lw_buf_add(&p->q.body, upload, *upload_size);
        *upload_size = 0;
        return p->received > SWALLOW_MAX ? MHD_NO : MHD_YES;
    }
    return p->asked ? send_answer(h, p) : answer(h, p, method);
}

/* --- life ------------------------------------------------------------------------------------- */

static int make_address(const char *host, int port, struct sockaddr_storage *out, socklen_t *n,
                        struct lw_err *err) {
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
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
              !bind(fd, (struct sockaddr *)&address, n) && !listen(fd, 64) &&
              !getsockname(fd, (struct sockaddr *)&address, &n);
    if (!ok) {
        lw_fail(err, "can't listen on %s port %d: %s", host, port, strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    *got_port =
        ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&address)->sin_port
                                           : ((struct sockaddr_in6 *)(void *)&address)->sin6_port);
    return fd;
}

static void no_log(void *cls, const char *fmt, va_list ap) {
    (void)cls, (void)fmt, (void)ap;
} /* MHD's own messages only report clients that disconnect, so they are not logged */

static size_t leave_escaped(void *cls, struct MHD_Connection *c, char *text) {
    (void)cls, (void)c;
    /* Leaves the text undecoded and returns its length, because the name of a lane in a path may
     * contain an encoded '/'. */
    return strlen(text);
}

static void end_slow(struct lw_http *h) {
    pthread_mutex_lock(&h->lock);
    h->closing = true;
    for (int i = 0; i < LINES; i++) pthread_cond_signal(&h->line[i].more);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < LINES; i++)
        if (h->line[i].started) pthread_join(h->line[i].thread, NULL);
}

static bool start_slow(struct lw_http *h, struct lw_err *err) {
    static const int most[LINES] = {LW_HTTP_WAITING, LW_HTTP_LENGTHY, LW_HTTP_DENIED};
    for (int i = 0; i < LINES && h->handler.slow; i++) {
        struct line *l = &h->line[i];
        *l = (struct line){.http = h, .lengthy = i == LENGTHY, .most = most[i], .last = &l->first};
        lw_cond_init(&l->more);
        int failed = pthread_create(&l->thread, NULL, i == DENIED ? be_late : be_slow, l);
        l->started = !failed;
        if (failed) lw_fail(err, "no thread for HTTP: %s", strerror(failed));
        if (failed) return false;
    }
    return true;
}

struct lw_http *lw_http_open(const char *host, int port, const struct lw_http_handler *handler,
                             struct lw_err *err) {
    struct lw_http *h = lw_alloc(sizeof *h);
    *h = (struct lw_http){.handler = *handler, .lock = PTHREAD_MUTEX_INITIALIZER};
    h->streams = lw_streams_open();
    gethostname(h->machine, sizeof h->machine - 1);
    signal(SIGPIPE, SIG_IGN);
    int fd = listen_at(host, port, &h->port, err);
    if (fd >= 0 && start_slow(h, err)) {
        h->daemon = MHD_start_daemon(
            MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ERROR_LOG |
                MHD_ALLOW_SUSPEND_RESUME,
            0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL,
            MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)LW_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LW_HTTP_IDLE_S,
            MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
            h, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL, MHD_OPTION_END);
        if (h->daemon) return h;
        lw_fail(err, "the HTTP server can't be started");
    }
    if (fd >= 0) close(fd);
    end_slow(h);
    lw_streams_close(h->streams);
    free(h);
    return NULL;
}

int lw_http_port(const struct lw_http *h) { return h->port; }

void lw_http_publish(struct lw_http *h, struct lw_bytes text) {
    lw_streams_publish(h->streams, text);
}
int lw_http_streams(const struct lw_http *h) { return lw_streams_count(h->streams); }

void lw_http_close(struct lw_http *h) {
    if (!h) return;
    /* These two calls resume all suspended requests, which MHD requires before
     * MHD_stop_daemon(). */
    end_slow(h);
    lw_streams_end(h->streams);
    MHD_stop_daemon(h->daemon); /* also closes the socket */
    lw_streams_close(h->streams);
    free(h);
}
