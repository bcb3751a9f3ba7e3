/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the service that `latchwork dev --faults` and `latchwork dev --tenants` call for each
 * order. For an order of a tenant it works a while, and counts it. For --faults it misbehaves on
 * purpose:
 *
 *   - it never answers the first order of DEV_STUCK_CUSTOMER, so this customer's key is stuck
 *     until an operator breaks its lock;
 *   - it refuses the first nine orders in CHF, because it has no exchange rate yet, and accepts
 *     all later orders in CHF;
 *   - it always refuses an order whose amount is not a number, so this order's payload must
 *     be edited;
 *   - it answers slowly for ten of every ninety seconds.
 *
 * Each connection has its own thread, so a request may wait without delaying other requests. */
#include "cli/dev/private.h"

#include "base/bytes.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BODY_MAX = 65536,
    PLAIN_MS = 2,
    SLOW_MS = 150,
    PERIOD_MS = 90000,
    SLOW_FROM_MS = 60000,
    SLOW_UNTIL_MS = 70000,
    HANG_LOOK_MS = 50
};
enum { REFUSED = 422 };

struct service {
    struct dev_shared *shared;
    int64_t start_ms;
    atomic_int refused; /* number of orders in CHF that were refused */
    /* true: the first order of DEV_STUCK_CUSTOMER was received and is never answered; later orders
     * of this customer are answered */
    atomic_bool hung;
};

struct answer {
    int status;
    char reason[256];
};

static bool slow_now(const struct service *s) {
    int64_t at = (lw_boot_ms() - s->start_ms) % PERIOD_MS;
    return at >= SLOW_FROM_MS && at < SLOW_UNTIL_MS;
}

/* Waits until the worker closes the connection. The worker does that when it loses the lease of the
 * key. */
static void hang(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    while (info && recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        lw_sleep_ms(HANG_LOOK_MS);
}

static const char *text_of(const json_t *order, const char *name) {
    const char *text = json_string_value(json_object_get(order, name));
    return text ? text : "";
}

/* Returns the number of the order's tenant, or DEV_TENANTS if it has none. */
static int tenant_of(const json_t *order) {
    int i = 0;
    while (i < DEV_TENANTS && strcmp(text_of(order, "tenant"), dev_tenants[i]) != 0) i++;
    return i;
}

__attribute__((format(printf, 1, 2))) static struct answer refuse(const char *fmt, ...) {
    struct answer a = {.status = REFUSED};
    va_list args;
    va_start(args, fmt);
    vsnprintf(a.reason, sizeof a.reason, fmt, args);
    va_end(args);
    return a;
}

static struct answer judge(struct service *s, const json_t *order) {
    const json_t *amount = json_object_get(order, "amount");
    if (!json_is_object(order)) return refuse("NO_ORDER: the payload is no JSON object");
    if (!json_is_number(amount))
        return refuse("BAD_AMOUNT: /amount must be a number, but is \"%.60s\"",
                      text_of(order, "amount"));
    if (!strcmp(text_of(order, "currency"), "CHF") &&
        atomic_fetch_add(&s->refused, 1) < DEV_ODD_ORDERS - 1)
        return refuse("NO_RATE: no exchange rate for CHF yet, wanted by %.60s",
                      text_of(order, "id"));
    return (struct answer){.status = MHD_HTTP_NO_CONTENT};
}

static enum MHD_Result reply(struct MHD_Connection *c, const struct answer *a) {
    json_t *j =
        a->reason[0] ? json_pack("{s:s,s:s}", "outcome", "dead", "reason", a->reason) : NULL;
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    struct MHD_Response *r = MHD_create_response_from_buffer(
        text ? strlen(text) : 0, text ? text : "", MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    enum MHD_Result result = MHD_queue_response(c, (unsigned)a->status, r);
    MHD_destroy_response(r);
    free(text);
    json_decref(j);
    return result;
}

static enum MHD_Result serve(struct service *s, struct MHD_Connection *c,
                             const struct lw_buf *body) {
    json_t *order = json_loadb(body->p ? body->p : "", body->n, 0, NULL);
    bool stuck =
        !strcmp(text_of(order, "customer"), DEV_STUCK_CUSTOMER) && !atomic_exchange(&s->hung, true);
    int tenant = tenant_of(order);
    struct answer a = {0};
    lw_sleep_ms(tenant < DEV_TENANTS || slow_now(s) ? SLOW_MS : PLAIN_MS);
    if (stuck)
        hang(c);
    else
        a = judge(s, order);
    if (tenant < DEV_TENANTS) atomic_fetch_add(&s->shared->tenant_done[tenant], 1);
    json_decref(order);
    return stuck ? MHD_NO : reply(c, &a);
}

/* libmicrohttpd calls this function first with the headers, then with each part of the body, and
 * last with the end of the request. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **context) {
    (void)url, (void)method, (void)version;
    struct lw_buf *body = *context;
    if (!body) {
        *context = lw_alloc(sizeof *body);
        return MHD_YES;
    }
    if (!*size) return serve(cls, c, body);
    if (body->n + *size <= BODY_MAX) lw_buf_add(body, data, *size);
    *size = 0;
    return MHD_YES;
}

static void on_end(void *cls, struct MHD_Connection *c, void **context,
                   enum MHD_RequestTerminationCode why) {
    (void)cls, (void)c, (void)why;
    struct lw_buf *body = *context;
    if (!body) return;
    lw_buf_free(body);
    free(body);
    *context = NULL;
}

static int service_main(void *ctx, int ready_fd) {
    static struct service s;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    s.shared = ctx;
    s.start_ms = lw_boot_ms();
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL,
                         NULL, on_request, &s, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at,
                         MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (!info) {
        dev_child_ready(ready_fd, "the service cannot listen on 127.0.0.1");
        return 1;
    }
    s.shared->service_port = info->port;
    dev_child_ready(ready_fd, NULL);
    for (;;) pause();
}

int dev_service_start(struct dev_child *c, const struct dev_home *h, struct dev_shared *shared,
                      struct lw_err *err) {
    return dev_child_start(c, "service", h->log, service_main, shared, err);
}
