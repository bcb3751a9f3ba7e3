/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out the state of this worker's Kafka connection: whether the worker is in the group and can
 * read its partitions, and if not, why.
 *
 * The rebalance callback reports membership, but too late: if the coordinator dies, librdkafka
 * revokes an assignment only after session.timeout.ms, and it never revokes an empty assignment.
 * Therefore this file also uses librdkafka's statistics. They contain the group's state, and say
 * which brokers are connected and which of these have not answered for long. */
#include "kafka/private.h"

#include "base/clock.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_MS = 10000, LEADER_DOWN_MS = 10000 };

const char *const lw_kafka_state_name[LW_KAFKA_STATES] = {"joined", "joining", "unreachable",
                                                          "silent", "refused", "no_topic"};

/* --- what the statistics say ------------------------------------------------------------------ */

static int64_t property_ms(const struct lw_config *c, const char *name) {
    for (size_t i = 0; i < c->kafka.n_properties; i++)
        if (!strcmp(c->kafka.properties[i].name, name))
            return strtoll(c->kafka.properties[i].value, NULL, 10);
    return 0;
}

/* Returns the maximum time for which a healthy broker may be silent. A broker may delay the answer
 * to a fetch by fetch.wait.max.ms, and a coordinator may get no request between two heartbeats. */
static int64_t silence_limit_ms(const struct lw_config *c) {
    return SILENT_MS + property_ms(c, "fetch.wait.max.ms") +
           property_ms(c, "heartbeat.interval.ms");
}

static int64_t integer(const json_t *o, const char *name) {
    return json_integer_value(json_object_get(o, name));
}

static bool is_up(const json_t *broker) {
    const char *state = json_string_value(json_object_get(broker, "state"));
    return state && !strcmp(state, "UP");
}

static void note_broker(struct lw_kafka_look *k, const char *name, int64_t silent_ms,
                        int64_t down_ms) {
    if (silent_ms > k->silent_ms) {
        k->silent_ms = silent_ms;
        snprintf(k->silent, sizeof k->silent, "%s", name);
    }
    if (down_ms > k->leader_down_ms) {
        k->leader_down_ms = down_ms;
        snprintf(k->leader, sizeof k->leader, "%s", name);
    }
}

/* Evaluates the statistics of one broker. The statistics list the connection to the coordinator as
 * a separate ("logical") broker. */
static void look_at_broker(struct lw_kafka_look *k, const char *name, const json_t *b) {
    bool logical = !strcmp(name, "GroupCoordinator"), up = is_up(b);
    int64_t silent_ms = up && integer(b, "waitresp_cnt") > 0 ? integer(b, "rxidle") / 1000 : 0;
    bool leads = json_object_size(json_object_get(b, "toppars")) > 0;
    /* a coordinator answers those who join only when all members do, which may take minutes */
    if (logical && (!strcmp(k->join, "wait-join") || !strcmp(k->join, "wait-sync"))) silent_ms = 0;
    if (logical) name = "the group's coordinator";
    note_broker(k, name, leads || logical ? silent_ms : 0,
                leads && !up ? integer(b, "stateage") / 1000 : 0);
    if (up) k->brokers_up++;
}

static void copy(char *to, size_t size, const json_t *o, const char *name) {
    const char *text = json_string_value(json_object_get(o, name));
    snprintf(to, size, "%s", text ? text : "");
}

static void take_stats(struct lw_kafka_look *k, json_t *brokers, const json_t *group) {
    const char *name;
    json_t *b;
    copy(k->group, sizeof k->group, group, "state");
    copy(k->join, sizeof k->join, group, "join_state");
    k->brokers_up = 0;
    k->silent_ms = k->leader_down_ms = 0;
    json_object_foreach(brokers, name, b) look_at_broker(k, name, b);
    k->stats_ms = lw_boot_ms();
    if (k->brokers_up) k->down_ms = 0;
    if (!k->brokers_up && !k->down_ms) k->down_ms = k->stats_ms;
}

/* Parses one object of the statistics. Only the objects that we need are parsed, because the rest
 * of the text grows with the number of partitions. */
static json_t *object_after(const char *text, const char *name) {
    const char *p = text ? strstr(text, name) : NULL;
    return p ? json_loads(p + strlen(name), JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

int lw_source_stats(rd_kafka_t *rk, char *text, size_t n, void *source) {
    struct lw_source *s = source;
    (void)rk, (void)n;
    json_t *brokers = object_after(text, "\"brokers\":"), *group = object_after(text, "\"cgrp\":");
    if (brokers && group) take_stats(&s->look, brokers, group);
    json_decref(brokers), json_decref(group);
    return 0; /* return 0, because librdkafka still owns the text and frees it */
}

/* --- what errors and rebalances say ----------------------------------------------------------- */

void lw_source_note(struct lw_source *s, rd_kafka_resp_err_t code, const char *text) {
    struct lw_kafka_look *k = &s->look;
    snprintf(k->trouble, sizeof k->trouble, "%s", text);
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && !k->down_ms) k->down_ms = lw_boot_ms();
    if (code != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART &&
        code != RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION)
        return;
    for (size_t i = 0; i < s->config->kafka.n_topics; i++) {
        /* the text of librdkafka is "Subscribed topic not available: NAME: …" */
        const char *name = s->config->kafka.topics[i], *at = strstr(text, name);
        size_t length = strlen(name);
        if (at && at > text && at[-1] == ' ' && at[length] == ':') k->missing[i] = true;
    }
}

static void found_topic(struct lw_source *s, const char *topic) {
    for (size_t i = 0; i < s->config->kafka.n_topics; i++)
        if (!strcmp(s->config->kafka.topics[i], topic)) s->look.missing[i] = false;
}

static bool still_missing(struct lw_source *s, const char *topic) {
    const struct rd_kafka_metadata *m = NULL;
    rd_kafka_topic_t *t = rd_kafka_topic_new(s->rk, topic, NULL);
    if (!t) return true;
    bool missing =
        rd_kafka_metadata(s->rk, 0, t, &m, 1000) || m->topic_cnt != 1 || m->topics[0].err;
    if (m) rd_kafka_metadata_destroy(m);
    rd_kafka_topic_destroy(t);
    return missing;
}

/* Records that the topics of an assignment exist. If this worker got no partition of a topic, only
 * a metadata request can find out whether the topic exists. */
void lw_source_assigned(struct lw_source *s, const rd_kafka_topic_partition_list_t *list) {
    struct lw_kafka_look *k = &s->look;
    k->assigned = !s->dead;
    for (int i = 0; i < list->cnt; i++) {
        found_topic(s, list->elems[i].topic);
        if (!lw_source_part_of(s, list->elems[i].topic, list->elems[i].partition))
            k->assigned = false;
    }
    for (size_t i = 0; i < s->config->kafka.n_topics; i++)
        if (k->missing[i]) k->missing[i] = still_missing(s, s->config->kafka.topics[i]);
    k->since_ms = lw_boot_ms();
}

void lw_source_unassigned(struct lw_source *s) {
    s->look.assigned = false;
    s->look.since_ms = lw_boot_ms();
}

/* --- the judgement ---------------------------------------------------------------------------- */

static const char *missing_topic(const struct lw_source *s) {
    for (size_t i = 0; i < s->config->kafka.n_topics; i++)
        if (s->look.missing[i]) return s->config->kafka.topics[i];
    return NULL;
}

static bool reads_any(const struct lw_source *s) {
    for (size_t i = 0; i < s->n_parts; i++)
        if (!s->parts[i]->paused) return true;
    return false;
}

static enum lw_kafka_state judge_members(const struct lw_source *s, int64_t now, char *why,
                                         size_t size) {
    const struct lw_kafka_look *k = &s->look;
    /* the statistics must be newer than the rebalance to describe the present state */
    bool fresh = k->stats_ms - k->since_ms >= LW_SOURCE_STATS_MS;
    bool up = !fresh || !strcmp(k->group, "up");
    /* a worker that waits for such a broker says so, rather than that it joins the group */
    if (k->silent_ms > silence_limit_ms(s->config)) {
        snprintf(why, size, "kafka: %s has not answered for %lld s", k->silent,
                 (long long)k->silent_ms / 1000);
        return LW_KAFKA_SILENT;
    }
    if (!k->assigned || (fresh && !s->n_parts && up && strcmp(k->join, "steady") != 0)) {
        snprintf(why, size, "kafka: joining group %s for %lld s%s%s", s->config->kafka.group_id,
                 (long long)(now - k->since_ms) / 1000, fresh && k->join[0] ? ": " : "",
                 fresh ? k->join : "");
        return LW_KAFKA_JOINING;
    }
    if (!up) {
        snprintf(why, size, "kafka: the coordinator of group %s is not reachable (%s)",
                 s->config->kafka.group_id, k->group);
        return LW_KAFKA_UNREACHABLE;
    }
    if (k->leader_down_ms > LEADER_DOWN_MS && reads_any(s)) {
        snprintf(
            why, size,
            "kafka: %s, the leader of partitions of this worker, has been unreachable for %lld s",
            k->leader, (long long)k->leader_down_ms / 1000);
        return LW_KAFKA_UNREACHABLE;
    }
    snprintf(why, size, "%s", s->n_parts ? "" : "kafka: in the group, without a partition");
    return LW_KAFKA_JOINED;
}

enum lw_kafka_state lw_source_state(const struct lw_source *s, char *why, size_t size) {
    const struct lw_kafka_look *k = &s->look;
    int64_t now = lw_boot_ms();
    const char *topic = missing_topic(s);
    if (s->auth_since_ms) {
        snprintf(why, size, "kafka: the brokers have refused this client for %lld s: %s",
                 (long long)(now - s->auth_since_ms) / 1000, k->trouble);
        return LW_KAFKA_REFUSED;
    }
    if (k->down_ms) {
        snprintf(why, size, "kafka: no broker reachable for %lld s%s%s",
                 (long long)(now - k->down_ms) / 1000, k->trouble[0] ? ": " : "", k->trouble);
        return LW_KAFKA_UNREACHABLE;
    }
    if (topic) {
        snprintf(why, size, "kafka: topic %s does not exist, or this worker may not see it", topic);
        return LW_KAFKA_NO_TOPIC;
    }
    return judge_members(s, now, why, size);
}
