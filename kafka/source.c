/* SPDX-License-Identifier: Apache-2.0 */
/* The source: opening, polling, seeking and closing. Rebalances are in kafka/assign.c, commits in
 * kafka/commit.c.
 *
 * No record can be skipped or overtake another record, because the forwarding of a partition's
 * fetch queue is switched off *before* rd_kafka_assign() (kafka/assign.c). librdkafka keeps the
 * forwarding switched off when it starts to fetch, so the records of a partition come only through
 * its own queue, in the order of offsets. A seek or a new assignment raises librdkafka's version
 * barrier before it returns, so that records fetched earlier count as outdated. */
#include "kafka/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/conf.h"
#include "kafka/explain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    /* maximum number of records read from one partition before the next partition is read */
    BURST = 32,
    CONSUMER_EVENTS = 1000, /* maximum number of errors handled per poll */
    /* time between reads of queues that look empty; such a read makes librdkafka signal new records
     * in them again */
    SWEEP_MS = 200,
    SEEK_MS = 5000, /* time for which a seek is retried */
    /* AUTH_MS: this process ends if the brokers have rejected its credentials or rights for longer
     * than this time */
    AUTH_MS = 60000,
    TROUBLE_MS = 10000, /* minimum time between two log lines about the same problem */
    INSPECTOR_MS = 500,
    COUNT_MS = 2000,   /* time that Kafka has at the start to tell how many partitions there are */
    DESTROY_MS = 3000, /* minimum time that librdkafka's threads are given to end */
    /* error code of the new group protocol if another member uses our id; older headers of
     * librdkafka have no name for this code */
    UNRELEASED_INSTANCE_ID = 111,
};

/* --- the partitions we have ------------------------------------------------------------------- */

struct lw_part *lw_source_part(const struct lw_source *s, uint32_t gen) {
    size_t low = 0, high = s->n_parts;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->parts[mid]->gen < gen)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_parts && s->parts[low]->gen == gen ? s->parts[low] : NULL;
}

struct lw_part *lw_source_part_of(const struct lw_source *s, const char *topic, int32_t partition) {
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->parts[i]->partition == partition && !strcmp(s->parts[i]->topic, topic))
            return s->parts[i];
    return NULL;
}

/* --- troubles --------------------------------------------------------------------------------- */

void lw_source_fatal(struct lw_source *s, const char *fmt, ...) {
    if (s->dead) return;
    s->dead = true;
    struct lw_err reason = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason.text, sizeof reason.text, fmt, args);
    va_end(args);
    s->ev.fatal(s->ctx, reason.text);
}

static bool is_auth(rd_kafka_resp_err_t code) {
    return code == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
           code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
}

/* Returns true if an error concerns the data of a partition. After such an error, reading would
 * stop forever at one record, or continue after a record that could not be read. */
static bool is_loss(rd_kafka_resp_err_t code) {
    return code == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
           code == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE || code == RD_KAFKA_RESP_ERR__BAD_MSG ||
           code == RD_KAFKA_RESP_ERR__BAD_COMPRESSION ||
           code == RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED || code == RD_KAFKA_RESP_ERR_INVALID_MSG ||
           code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
}

/* Logs a problem after which librdkafka retries by itself. Logs the same problem at most once in
 * ten seconds. If authentication fails for a minute, reports a fatal error, which ends the
 * process. */
static void note_trouble(struct lw_source *s, rd_kafka_resp_err_t code, const char *text,
                         const char *topic) {
    int64_t now = lw_boot_ms();
    char out[LW_EXPLAINED_MAX];
    text = lw_kafka_explain(s->config, code, text, "READ", topic, out);
    lw_source_note(s, code, text);
    if (s->trouble != code || now - s->trouble_ms > TROUBLE_MS) {
        lw_warn("kafka: %s (%s); retrying", text, rd_kafka_err2name(code));
        s->trouble = code;
        s->trouble_ms = now;
    }
    if (!is_auth(code)) return;
    if (!s->auth_since_ms) s->auth_since_ms = now;
    if (now - s->auth_since_ms > AUTH_MS)
        lw_source_fatal(s,
                        "kafka: the brokers have rejected our credentials or rights for %d s: %s; "
                        "this worker ends and is restarted",
                        AUTH_MS / 1000, text);
}

static void end_for_good(struct lw_source *s) {
    char why[512];
    rd_kafka_resp_err_t which = rd_kafka_fatal_error(s->rk, why, sizeof why);
    bool taken = (int)which == UNRELEASED_INSTANCE_ID;
    s->fenced = taken || which == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    if (taken)
        lw_source_fatal(
            s,
            "kafka: group %s still has a member %s, which is this worker's id: a process that died "
            "less than the group's session "
            "timeout ago, or another supervisor; give each supervisor its own kafka.member_id",
            s->config->kafka.group_id, s->member_id ? s->member_id : "of its group.instance.id");
    else if (s->fenced)
        lw_source_fatal(s,
                        "kafka: another member of group %s has joined as %s, which is this "
                        "worker's id; give each supervisor its own "
                        "kafka.member_id",
                        s->config->kafka.group_id,
                        s->member_id ? s->member_id : "its group.instance.id");
    else
        lw_source_fatal(s, "kafka: %s (%s)", why, rd_kafka_err2name(which));
}

static void on_error(rd_kafka_t *rk, int code, const char *text, void *source) {
    (void)rk;
    if (code == RD_KAFKA_RESP_ERR__FATAL)
        end_for_good(source);
    else
        note_trouble(source, code, text, NULL);
}

/* --- opening ---------------------------------------------------------------------------------- */

void lw_source_wake(struct lw_source *s) {
    uint64_t one = 1;
    /* the write fails only if the eventfd's counter is full, and then the eventfd is readable
     * anyway */
    ssize_t r = write(s->fd, &one, sizeof one);
    (void)r;
}

static int subscribe(struct lw_source *s, struct lw_err *err) {
    const struct lw_config *c = s->config;
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new((int)c->kafka.n_topics);
    for (size_t i = 0; i < c->kafka.n_topics; i++)
        rd_kafka_topic_partition_list_add(list, c->kafka.topics[i], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(s->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code ? lw_fail(err, "kafka.topics: can't subscribe: %s", rd_kafka_err2str(code)) : 0;
}

static int connect_kafka(struct lw_source *s, struct lw_err *err) {
    rd_kafka_conf_t *conf = lw_kafka_conf_consumer(s->config, s->member_id, err);
    if (!conf) return -1;
    rd_kafka_conf_set_opaque(conf, s);
    rd_kafka_conf_set_rebalance_cb(conf, lw_source_rebalance);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_stats_cb(conf, lw_source_stats);
    s->rk = lw_kafka_new(s->config, RD_KAFKA_CONSUMER, conf, err);
    if (!s->rk) return -1;
    rd_kafka_poll_set_consumer(s->rk);
    s->consumer_queue = rd_kafka_queue_get_consumer(s->rk);
    s->commit_queue = rd_kafka_queue_new(s->rk);
    uint64_t one = 1;
    rd_kafka_queue_io_event_enable(s->consumer_queue, s->fd, &one, sizeof one);
    rd_kafka_queue_io_event_enable(s->commit_queue, s->fd, &one, sizeof one);
    /* before the group may give a partition to this worker; if it fails, at the first assignment */
    lw_source_count(s, lw_boot_ms() + COUNT_MS);
    return subscribe(s, err);
}

struct lw_source *lw_source_open(const struct lw_config *c, const char *member_id,
                                 const struct lw_source_events *ev, void *ctx, struct lw_err *err) {
    struct lw_source *s = lw_alloc(sizeof *s);
    if (!member_id) member_id = lw_config_property(c, "group.instance.id");
    *s = (struct lw_source){
        .config = c, .ev = *ev, .ctx = ctx, .member_id = member_id ? lw_strdup(member_id) : NULL};
    s->look.since_ms = lw_boot_ms();
    s->look.missing = lw_alloc((c->kafka.n_topics + 1) * sizeof *s->look.missing);
    s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->fd < 0) {
        lw_fail(err, "eventfd: %s", strerror(errno));
        free(s->look.missing);
        lw_source_forget_counts(s);
        free(s->member_id);
        free(s);
        return NULL;
    }
    if (connect_kafka(s, err)) {
        lw_source_close(s, DESTROY_MS);
        return NULL;
    }
    return s;
}

int lw_source_fd(struct lw_source *s) { return s->fd; }

/* --- polling ---------------------------------------------------------------------------------- */

static void on_message_error(struct lw_source *s, struct lw_part *p, const rd_kafka_message_t *m) {
    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        if (p && m->offset >= p->next) s->ev.end(s->ctx, p->gen, m->offset);
    } else if (m->err == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED) {
        lw_error("kafka: polled too late, so the group went on without this worker: %s; rejoining",
                 rd_kafka_message_errstr(m));
    } else if (m->err == RD_KAFKA_RESP_ERR__FATAL) {
        /* librdkafka reports a consumer's fatal error as an rd_kafka_message_t, not as an event */
        end_for_good(s);
    } else if (is_loss(m->err)) {
        s->refused = m->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
                     m->err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
        lw_source_fatal(
            s,
            "%s/%d: can't read on at offset %lld: %s (%s). Nothing was skipped. If the topic was "
            "deleted and recreated, give the application another \"name\" and group.id; otherwise "
            "restore the log",
            m->rkt ? rd_kafka_topic_name(m->rkt) : "?", (int)m->partition, (long long)m->offset,
            rd_kafka_message_errstr(m), rd_kafka_err2name(m->err));
    } else {
        note_trouble(s, m->err, rd_kafka_message_errstr(m),
                     m->rkt ? rd_kafka_topic_name(m->rkt) : NULL);
    }
}

/* Handles `m` and takes ownership of it. Returns 1 if a record was delivered, otherwise 0. */
static int on_message(struct lw_source *s, struct lw_part *p, rd_kafka_message_t *m) {
    if (m->err) {
        on_message_error(s, p, m);
    } else if (p && !p->broken && m->offset >= p->next) {
        p->next = m->offset + 1;
        s->auth_since_ms = 0;
        lw_source_saw(s, p, m);
        s->ev.record(s->ctx, p->gen, m);
        return 1;
    } else if (p) {
        lw_warn_some(20, "%s/%d: offset %lld came again (expected %lld); dropped", p->topic,
                     (int)p->partition, (long long)m->offset, (long long)p->next);
    }
    rd_kafka_message_destroy(m);
    return 0;
}

/* Reads the consumer queue, and handles its rebalances (in their callback) and errors. According to
 * librdkafka's code, no record comes through this queue. If a record comes nevertheless, it was
 * fetched before its partition got a separate queue, so it is still in order and is delivered.
 * Reading this queue also shows librdkafka that the worker is alive (max.poll.interval.ms). */
static int serve_consumer_queue(struct lw_source *s) {
    int n = 0;
    rd_kafka_message_t *m;
    for (int i = 0; i < CONSUMER_EVENTS && (m = rd_kafka_consume_queue(s->consumer_queue, 0)); i++)
        n += on_message(
            s, m->rkt ? lw_source_part_of(s, rd_kafka_topic_name(m->rkt), m->partition) : NULL, m);
    return n;
}

static int read_part(struct lw_source *s, struct lw_part *p, int max, bool sweep) {
    if (p->paused || (!sweep && !rd_kafka_queue_length(p->queue))) return 0;
    int n = 0;
    rd_kafka_message_t *m;
    /* take one record at a time, because rd_kafka_consume_batch_queue() sets wrong offsets in
     * librdkafka 2.0.2 */
    while (n < max && !p->paused && !s->dead && (m = rd_kafka_consume_queue(p->queue, 0)))
        n += on_message(s, p, m);
    return n;
}

static int read_parts(struct lw_source *s, int max) {
    bool sweep = lw_boot_ms() - s->swept_ms > SWEEP_MS;
    if (sweep) s->swept_ms = lw_boot_ms();
    int n = 0, before;
    s->turn++;
    do {
        before = n;
        for (size_t i = 0; i < s->n_parts && n < max && !s->dead; i++) {
            int room = max - n < BURST ? max - n : BURST;
            n += read_part(s, s->parts[(s->turn + i) % s->n_parts], room, sweep);
        }
        sweep = false;
    } while (n > before && n < max);
    return n;
}

int lw_source_poll(struct lw_source *s, int max) {
    s->polled_ms = lw_boot_ms();
    lw_source_serve_commits(s, 0);
    lw_source_serve_look(s);
    int n = serve_consumer_queue(s);
    if (s->revoked) lw_source_revoke(s);
    if (!s->dead) lw_source_check(s);
    if (s->dead || s->revoked) return n;
    if (n < max) n += read_parts(s, max - n);
    /* poll again, because more records may be queued, and librdkafka signals only queues that were
     * empty */
    if (n >= max) lw_source_wake(s);
    return n;
}

/* --- pausing, seeking ------------------------------------------------------------------------- */

void lw_source_pause(struct lw_source *s, uint32_t gen, bool pause) {
    struct lw_part *p = lw_source_part(s, gen);
    if (!p || p->broken || p->paused == pause) return;
    p->paused = pause;
    if (!pause) lw_source_wake(s);
}

int64_t lw_source_log_end(const struct lw_source *s, uint32_t gen) {
    const struct lw_part *p = lw_source_part(s, gen);
    int64_t low, high;
    if (!p || rd_kafka_get_watermark_offsets(s->rk, p->topic, p->partition, &low, &high) ||
        high < 0)
        return -1;
    return high;
}

/* Tries a seek once. A seek that times out is still in progress, and the next attempt replaces it.
 * (librdkafka 2.0.2 waits for only a thousandth of the given time.) */
static rd_kafka_resp_err_t try_seek(struct lw_source *s, const struct lw_part *p, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, p->topic, p->partition)->offset = offset;
    rd_kafka_error_t *error = rd_kafka_seek_partitions(s->rk, list, 1000);
    rd_kafka_resp_err_t code = error ? rd_kafka_error_code(error) : list->elems[0].err;
    if (error) rd_kafka_error_destroy(error);
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

/* Returns true if no seek is needed, because the fetcher has not started and will begin at
 * `offset`. Inside a rebalance callback, waiting for the fetcher is useless, because the fetcher
 * may start only after the callback has returned. */
static bool begins_there(const struct lw_part *p, int64_t offset, rd_kafka_resp_err_t code) {
    return code == RD_KAFKA_RESP_ERR__STATE && !p->moved && offset == p->begin &&
           p->next == p->begin;
}

int lw_source_seek_part(struct lw_source *s, struct lw_part *p, int64_t offset,
                        struct lw_err *err) {
    rd_kafka_resp_err_t code;
    int64_t give_up_ms = lw_boot_ms() + SEEK_MS;
    /* librdkafka answers _STATE until the fetcher has started, which happens a moment after
     * rd_kafka_assign() */
    while ((code = try_seek(s, p, offset)) && !begins_there(p, offset, code) &&
           lw_boot_ms() < give_up_ms)
        lw_sleep_ms(5);
    if (begins_there(p, offset, code)) return 0;
    if (code) {
        p->broken = p->paused = true;
        return lw_fail(err, "%s/%d: can't go to offset %lld: %s", p->topic, (int)p->partition,
                       (long long)offset, rd_kafka_err2str(code));
    }
    p->next = offset;
    p->moved = true;
    lw_source_wake(s);
    return 0;
}

int lw_source_seek(struct lw_source *s, uint32_t gen, int64_t offset, struct lw_err *err) {
    struct lw_part *p = lw_source_part(s, gen);
    if (!p)
        return lw_fail(err, "can't seek: the partition is no longer assigned (generation %u)", gen);
    if (offset < 0)
        return lw_fail(err, "%s/%d: can't go to offset %lld", p->topic, (int)p->partition,
                       (long long)offset);
    return lw_source_seek_part(s, p, offset, err);
}

bool lw_source_refused(const struct lw_source *s) { return s->refused; }

/* --- closing ---------------------------------------------------------------------------------- */

void lw_source_decline(struct lw_source *s) { s->declining = true; }
void lw_source_keep_place(struct lw_source *s) { s->keep_place = true; }
bool lw_source_fenced(const struct lw_source *s) { return s->fenced; }
static bool is_member(struct lw_source *s) {
    char *id = rd_kafka_memberid(s->rk);
    bool is = id && *id;
    if (id) rd_kafka_mem_free(s->rk, id);
    return is;
}

static bool is_connected(struct lw_source *s) {
    char *id = rd_kafka_clusterid(s->rk, 0);
    if (id) rd_kafka_mem_free(s->rk, id);
    return id;
}

static void await_membership(struct lw_source *s, bool is, int64_t until_ms) {
    while (is_member(s) != is && lw_boot_ms() < until_ms) {
        serve_consumer_queue(s);
        lw_source_serve_commits(s, 20);
    }
}

/* Gives up our place in the group. In the classic protocol, librdkafka sends LeaveGroup for a
 * static member when it unsubscribes, but never when it closes. In the new protocol, librdkafka
 * always asks the broker to keep the place. A join in flight must end before the member
 * unsubscribes, because the broker may already list this member, or still list the previous process
 * under this member's id. */
static void give_up_place(struct lw_source *s, int64_t until_ms) {
    if (is_connected(s)) await_membership(s, true, until_ms);
    if (rd_kafka_unsubscribe(s->rk)) return;
    await_membership(s, false, until_ms);
    if (is_member(s))
        lw_warn("kafka: could not leave the group in time; its partitions wait until "
                "session.timeout.ms expires");
}

/* Leaves the group within a time limit. Because rd_kafka_consumer_close() has no limit, the close
 * gets a separate queue, which this function serves until the time is over. */
static void leave_group(struct lw_source *s, int64_t until_ms) {
    rd_kafka_queue_t *queue = rd_kafka_queue_new(s->rk);
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(s->rk, queue);
    if (error) {
        lw_warn("kafka: can't leave the group: %s; its partitions wait until "
                "session.timeout.ms expires",
                rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    } else {
        while (!rd_kafka_consumer_closed(s->rk) && lw_boot_ms() < until_ms) {
            rd_kafka_message_t *m = rd_kafka_consume_queue(queue, 20);
            if (m) rd_kafka_message_destroy(m);
            lw_source_serve_commits(s, 0);
        }
        if (!rd_kafka_consumer_closed(s->rk))
            lw_warn("kafka: leaving the group took too long; its partitions wait until "
                    "session.timeout.ms expires");
    }
    lw_source_serve_commits(s, 0);
    rd_kafka_queue_destroy(queue);
}

void lw_source_close(struct lw_source *s, int64_t timeout_ms) {
    if (!s) return;
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    bool gone = lw_source_end_look(s);
    lw_inspector_close(s->inspector, INSPECTOR_MS);
    s->inspector = NULL;
    if (s->rk) {
        s->declining = true;
        if (s->revoked) lw_source_revoke(s);
        bool leaves = s->member_id && *s->member_id && !s->keep_place && !s->fenced &&
                      !s->config->kafka.new_protocol;
        if (leaves) give_up_place(s, until_ms - timeout_ms / 4);
        leave_group(s, until_ms);
        lw_source_lose_all(s);
        rd_kafka_queue_io_event_enable(s->consumer_queue, -1, NULL, 0);
        rd_kafka_queue_io_event_enable(s->commit_queue, -1, NULL, 0);
        rd_kafka_queue_destroy(s->consumer_queue);
        rd_kafka_queue_destroy(s->commit_queue);
        int64_t left_ms = until_ms - lw_boot_ms();
        gone = gone && lw_kafka_destroy(s->rk, left_ms > DESTROY_MS ? left_ms : DESTROY_MS);
    }
    close(s->fd);
    free(s->parts);
    if (!gone) return; /* librdkafka may still call back, so the source must stay in memory */
    lw_source_forget_commits(s);
    free(s->look.missing);
    lw_source_forget_counts(s);
    free(s->member_id);
    free(s);
}
