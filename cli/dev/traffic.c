/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the traffic of `latchwork dev`: a process that produces orders and reads what the
 * group has committed.
 *
 * One order in `every` is new. The others repeat an earlier order, and most of them repeat a recent
 * order (the distance back follows a Zipf distribution). The topic and partition of each message
 * are random. As a result, several workers get the same primary key within a short time. */
#include "cli/dev/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "kafka/conf.h"

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_MS = 20,
    COMMITS_EVERY_MS = 300,
    COMMITS_MS = 2000,
    CUSTOMERS = 300,
    QUEUE_FULL_MS = 100
};
/* With --faults, every ODD_EVERY-th message contains an order that the service refuses, until
 * DEV_ODD_ORDERS such orders were produced. */
enum { FAULTS_CUSTOMERS = 60, ODD_EVERY = 50 };
/* With --tenants, each tenant but the one that floods has one order in SMALL_EVERY. */
enum { TENANT_CUSTOMERS = 40, SMALL_EVERY = 20 };

struct traffic {
    const struct dev_home *home;
    const struct dev_options *o;
    struct dev_shared *shared;
    rd_kafka_t *producer, *group;
    rd_kafka_topic_t *topics[DEV_TOPICS];
    uint64_t state; /* state of the generator of random numbers */
    int64_t sent, orders, refused;
};

static uint64_t draw(struct traffic *t) { return lw_random_next(&t->state); }

static int topic_index(const char *name) {
    int t = 0;
    while (t < DEV_TOPICS - 1 && strcmp(dev_topics[t], name) != 0) t++;
    return t;
}

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk;
    struct traffic *t = opaque;
    if (m->err) {
        if (!t->refused++) lw_error("cannot produce an order: %s", rd_kafka_err2str(m->err));
        return;
    }
    _Atomic int64_t *end = &t->shared->ends[topic_index(rd_kafka_topic_name(m->rkt))][m->partition];
    if (m->offset + 1 > atomic_load(end)) atomic_store(end, m->offset + 1);
    atomic_fetch_add(&t->shared->produced, 1);
}

static rd_kafka_t *client(struct traffic *t, rd_kafka_type_t type, const char *const *settings,
                          struct lw_err *err) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    bool ok = rd_kafka_conf_set(conf, "bootstrap.servers", t->shared->brokers, why, sizeof why) ==
              RD_KAFKA_CONF_OK;
    for (; ok && *settings; settings += 2)
        ok = rd_kafka_conf_set(conf, settings[0], settings[1], why, sizeof why) == RD_KAFKA_CONF_OK;
    rd_kafka_conf_set_opaque(conf, t);
    if (type == RD_KAFKA_PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *rk = ok ? rd_kafka_new(type, conf, why, sizeof why) : NULL;
    if (rk) return rk;
    rd_kafka_conf_destroy(conf);
    lw_fail(err, "traffic: %s", why);
    return NULL;
}

static int open_traffic(struct traffic *t, struct lw_err *err) {
    static const char *const producer[] = {
        "enable.idempotence", "true", "allow.auto.create.topics", "false", "linger.ms", "5", NULL};
    static const char *const group[] = {"group.id", DEV_NAME, "enable.auto.commit", "false", NULL};
    t->producer = client(t, RD_KAFKA_PRODUCER, producer, err);
    t->group = t->producer ? client(t, RD_KAFKA_CONSUMER, group, err) : NULL;
    if (!t->group) return -1;
    for (int i = 0; i < DEV_TOPICS; i++)
        if (!(t->topics[i] = rd_kafka_topic_new(t->producer, dev_topics[i], NULL)))
            return lw_fail(err, "traffic: topic %s", dev_topics[i]);
    return 0;
}

/* Chooses the order that the next message contains, and returns its number. */
static int64_t choose(struct traffic *t) {
    if (t->sent % t->o->every == 0) {
        atomic_store(&t->shared->orders, ++t->orders);
        return t->orders - 1;
    }
    double u = (double)(draw(t) >> 11) / 9007199254740992.0; /* 2^53 */
    /* the distance back is between 1 and t->orders, with a probability proportional to 1 /
     * distance */
    int64_t back = (int64_t)pow((double)t->orders, u);
    return back >= t->orders ? 0 : t->orders - back;
}

/* Writes order number i of the orders in CHF, which the service of --faults refuses. Each of these
 * orders has its own customer. In exactly one of these orders, the amount is not a number. */
static int write_odd(char *text, size_t size, int i) {
    const char *amount = i == DEV_ODD_ORDERS / 2 ? "\"12,50\"" : "1250";
    return snprintf(text, size,
                    "{\"id\":\"order-chf-%d\",\"customer\":\"customer-ch-%d\",\"amount\":%s,"
                    "\"currency\":\"CHF\"}",
                    i, i, amount);
}

static int write_order_of_tenant(struct traffic *t, char *text, size_t size) {
    int turn = (int)(t->sent % SMALL_EVERY), tenant = turn < DEV_TENANTS ? turn : DEV_FLOOD;
    int64_t order = t->sent / SMALL_EVERY + turn;
    atomic_fetch_add(&t->shared->tenant_sent[tenant], 1);
    return snprintf(text, size,
                    "{\"id\":\"order-%" PRId64 "\",\"tenant\":\"%s\",\"customer\":\"%s-%d\","
                    "\"amount\":%d}",
                    t->sent, dev_tenants[tenant], dev_tenants[tenant],
                    (int)(order % TENANT_CUSTOMERS), (int)(t->sent * 7919 % 100000));
}

static int write_order(struct traffic *t, char *text, size_t size) {
    if (t->o->tenants) return write_order_of_tenant(t, text, size);
    int64_t order = choose(t), odd = t->sent / ODD_EVERY;
    if (t->o->faults && t->sent % ODD_EVERY == 0 && odd >= 1 && odd <= DEV_ODD_ORDERS)
        return write_odd(text, size, (int)odd);
    return snprintf(text, size,
                    "{\"id\":\"order-%" PRId64 "\",\"customer\":\"customer-%d\",\"amount\":%d}",
                    order, (int)(order * 7 % (t->o->faults ? FAULTS_CUSTOMERS : CUSTOMERS)),
                    (int)(order * 7919 % 100000));
}

static void send_one(struct traffic *t) {
    char text[160];
    int n = write_order(t, text, sizeof text);
    uint64_t dice = draw(t);
    rd_kafka_topic_t *topic = t->topics[dice % DEV_TOPICS];
    int32_t partition = (int32_t)(dice / DEV_TOPICS % DEV_PARTITIONS);
    while (
        rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, text, (size_t)n, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            lw_error("cannot send an order: %s", rd_kafka_err2str(rd_kafka_last_error()));
            t->refused++;
            break;
        }
        rd_kafka_poll(t->producer, QUEUE_FULL_MS);
    }
    t->sent++;
}

/* Returns the number of messages in so many bursts; a burst may be less than one message. */
static int64_t in_bursts(const struct traffic *t, int64_t bursts) {
    return bursts * t->o->burst_ms * t->o->rate / 1000;
}

/* Returns the number of messages that should have been produced by now. Messages are produced in
 * whole bursts. If the number of messages is limited, the last burst is due only when the flag
 * `last` in the shared memory is set. */
static int64_t due(const struct traffic *t, int64_t elapsed_ms) {
    int64_t all = t->o->messages, n = in_bursts(t, elapsed_ms / t->o->burst_ms + 1);
    if (!all || n < all) return n;
    if (atomic_load(&t->shared->last)) return all;
    return in_bursts(t, (all - 1) * 1000 / (t->o->burst_ms * t->o->rate));
}

static void read_commits(struct traffic *t) {
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new(DEV_TOPICS * DEV_PARTITIONS);
    for (int i = 0; i < DEV_TOPICS; i++)
        rd_kafka_topic_partition_list_add_range(list, dev_topics[i], 0, DEV_PARTITIONS - 1);
    rd_kafka_resp_err_t code = rd_kafka_committed(t->group, list, COMMITS_MS);
    if (code) lw_warn("cannot read the commits of the group: %s", rd_kafka_err2str(code));
    for (int i = 0; i < list->cnt && !code; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        if (p->offset >= 0)
            atomic_store(&t->shared->committed[topic_index(p->topic)][p->partition], p->offset);
    }
    rd_kafka_topic_partition_list_destroy(list);
}

/* Produces messages and reads commits until SIGTERM ends the process. The function never
 * returns. */
static void drive(struct traffic *t) {
    int64_t start = 0, commits = 0;
    for (;;) {
        int64_t now = lw_boot_ms();
        if (!start && atomic_load(&t->shared->go)) start = now;
        for (int64_t n = start ? due(t, now - start) : 0; t->sent < n;) send_one(t);
        if (now - commits >= COMMITS_EVERY_MS) {
            read_commits(t);
            commits = now;
        }
        rd_kafka_poll(t->producer, POLL_MS);
    }
}

static int traffic_main(void *ctx, int ready_fd) {
    struct traffic *t = ctx;
    struct lw_err err = {0};
    if (open_traffic(t, &err)) {
        dev_child_ready(ready_fd, err.text);
        return 1;
    }
    dev_child_ready(ready_fd, NULL);
    drive(t);
    return 0;
}

int dev_traffic_start(struct dev_child *c, const struct dev_home *h, const struct dev_options *o,
                      struct dev_shared *shared, struct lw_err *err) {
    struct traffic t = {
        .home = h, .o = o, .shared = shared, .state = o->demo ? 1 : (uint64_t)lw_boot_us()};
    return dev_child_start(c, "traffic", h->log, traffic_main, &t, err);
}
