/* SPDX-License-Identifier: Apache-2.0 */
/* kafka.properties: passed to librdkafka as it is, except what would break the guarantees. */
#include "config/option.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROPERTIES_MAX = 512, VALUE_MAX = 65536, COOPERATIVE_FLOOR = 0x020601ff, COOPERATIVE_SOUND = 0x020a00ff };

/* Refused values. `value` NULL: any. */
static const struct refusal {
    const char *name, *value, *reason;
} refusals[] = {
    {"enable.auto.commit", "true",
     "offsets are committed only when all before them is done; librdkafka would commit what was merely fetched"},
    {"enable.auto.offset.store", "true",
     "offsets are committed only when all before them is done; librdkafka would store what was merely fetched"},
    {"enable.partition.eof", "false", "the ends of partitions tell compaction gaps and --drain where they stand"},
    {"offset.store.method", "file", "offsets live in the group, so that another worker can go on"},
    {"group.protocol", "consumer", "the new group protocol is not in this version; use classic"},
};

static bool same_value(const char *want, const char *value) {
    static const char *const yes[] = {"true", "t", "1"}, *const no[] = {"false", "f", "0"};
    const char *const *words = !strcmp(want, "true") ? yes : !strcmp(want, "false") ? no : NULL;
    for (int i = 0; words && i < 3; i++)
        if (!strcasecmp(words[i], value)) return true;
    return !strcasecmp(want, value);
}

static const char *refused(const char *name, const char *value) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (!strcmp(refusals[i].name, name) && same_value(refusals[i].value, value)) return refusals[i].reason;
    return NULL;
}

/* librdkafka knows its properties best. Its text may quote the value, which may be a secret or come from a variable. */
static void ask_librdkafka(struct lw_loader *l, const char *path, const struct lw_property *p, bool quote) {
    char text[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_res_t res = rd_kafka_conf_set(conf, p->name, p->value, text, sizeof text);
    rd_kafka_conf_destroy(conf);
    if (res == RD_KAFKA_CONF_OK) return;
    if (res == RD_KAFKA_CONF_UNKNOWN || quote)
        lw_problem(l->problems, "%s: %s", path, text);
    else
        lw_problem(l->problems, "%s: librdkafka does not take this value (not shown: it may be a secret)", path);
}

static char *value_text(struct lw_loader *l, const char *path, json_t *v) {
    char buf[LW_SHOWN_MAX];
    if (json_is_string(v)) {
        if (json_string_length(v) <= VALUE_MAX) return lw_strdup(json_string_value(v));
        lw_problem(l->problems, "%s: longer than %d bytes", path, (int)VALUE_MAX);
        return NULL;
    }
    if (json_is_number(v) || json_is_boolean(v)) return lw_strdup(lw_shown(l, v, buf));
    lw_problem(l->problems, "%s: must be a string, a number, true or false, is %s", path, lw_shown(l, v, buf));
    return NULL;
}

static struct lw_property *append(struct lw_config *c, const char *name, char *value) {
    c->kafka.properties = lw_realloc(c->kafka.properties, (c->kafka.n_properties + 1) * sizeof *c->kafka.properties);
    struct lw_property *p = &c->kafka.properties[c->kafka.n_properties++];
    *p = (struct lw_property){lw_strdup(name), value, lw_secret_name(name)};
    return p;
}

static void take_property(struct lw_loader *l, const char *name, json_t *v) {
    char path[320];
    snprintf(path, sizeof path, "kafka.properties.%.250s", name);
    char *value = lw_unusable(l, v) ? NULL : value_text(l, path, v);
    if (!value) return;
    const struct lw_expanded *was = lw_was_expanded(l, v);
    struct lw_property *p = append(l->c, name, value);
    if (was && was->from_file) p->secret = true;
    const char *reason = refused(name, value);
    if (reason)
        lw_problem(l->problems, "%s: refused: %s", path, reason);
    else
        ask_librdkafka(l, path, p, !p->secret && !was);
}

void lw_take_properties(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    const char *name;
    json_t *item;
    if (!json_is_object(v)) {
        lw_problem(l->problems, "%s: must be an object of librdkafka properties, is %s", o->path, lw_shown(l, v, buf));
        return;
    }
    if (json_object_size(v) > PROPERTIES_MAX) {
        lw_problem(l->problems, "%s: more than %d properties", o->path, (int)PROPERTIES_MAX);
        return;
    }
    json_object_foreach(v, name, item) take_property(l, name, item);
}

static const char *property(const struct lw_config *c, const char *name) {
    for (size_t i = 0; i < c->kafka.n_properties; i++)
        if (!strcmp(c->kafka.properties[i].name, name)) return c->kafka.properties[i].value;
    return NULL;
}

static const char *property_or(struct lw_config *c, const char *name, const char *dflt) {
    const char *value = property(c, name);
    return value ? value : append(c, name, lw_strdup(dflt))->value;
}

static void finish_reset(struct lw_loader *l) {
    const char *reset = property_or(l->c, "auto.offset.reset", "earliest");
    l->c->kafka.reset_latest = !strcmp(reset, "latest");
    if (l->c->kafka.reset_latest || !strcmp(reset, "earliest")) return;
    lw_problem(l->problems, "kafka.properties.auto.offset.reset: must be \"earliest\" or \"latest\": where a group without commits begins");
}

static void finish_strategy(struct lw_loader *l) {
    const char *strategy = property(l->c, "partition.assignment.strategy");
    if (!strategy || !strstr(strategy, "cooperative-sticky")) return;
    if (rd_kafka_version() < COOPERATIVE_FLOOR)
        lw_problem(l->problems,
                   "kafka.properties.partition.assignment.strategy: refused: cooperative-sticky can loop for ever below librdkafka 2.6.1 "
                   "(this is %s); use range",
                   rd_kafka_version_str());
    else if (rd_kafka_version() < COOPERATIVE_SOUND)
        lw_problem_warn(
            l->problems,
            "kafka.properties.partition.assignment.strategy: with cooperative-sticky a commit during a rebalance can lose the assignment "
            "below librdkafka 2.10 (this is %s); range is safe",
            rd_kafka_version_str());
}

/* The worker does not poll while a rebalance waits for handlers, so librdkafka counts that wait
 * against max.poll.interval.ms. */
static void finish_poll_interval(struct lw_loader *l) {
    enum { DEFAULT_MS = 300000, MARGIN_MS = 10000 };
    struct lw_config *c = l->c;
    const char *text = property(c, "max.poll.interval.ms");
    int64_t poll_ms = text ? atoll(text) : DEFAULT_MS;
    int64_t most_ms = poll_ms > 2 * MARGIN_MS ? poll_ms - MARGIN_MS : poll_ms / 2;
    c->shutdown.revoke_ms = c->shutdown.grace_ms < most_ms ? c->shutdown.grace_ms : most_ms;
    if (c->shutdown.grace_ms <= most_ms) return;
    lw_problem_warn(
        l->problems,
        "shutdown.grace_ms: %lld is too long for kafka.properties.max.poll.interval.ms (%lld): a rebalance waits at most %lld ms "
        "for handlers; set max.poll.interval.ms to %lld, or shutdown.grace_ms to %lld",
        (long long)c->shutdown.grace_ms, (long long)poll_ms, (long long)most_ms, (long long)(c->shutdown.grace_ms + MARGIN_MS),
        (long long)most_ms);
}

void lw_finish_kafka(struct lw_loader *l) {
    struct lw_config *c = l->c;
    if (!property(c, "metadata.broker.list")) property_or(c, "bootstrap.servers", "127.0.0.1:9092");
    const char *servers = property(c, "bootstrap.servers");
    if (servers && !*servers) lw_problem(l->problems, "kafka.properties.bootstrap.servers: must not be empty");
    const char *group = property_or(c, "group.id", c->name);
    if (!*group || strlen(group) > 255) lw_problem(l->problems, "kafka.properties.group.id: must be 1 to 255 bytes");
    c->kafka.group_id = lw_strdup(group);
    finish_reset(l);
    finish_strategy(l);
    finish_poll_interval(l);
    if (property(c, "group.instance.id") && c->workers > 1)
        lw_problem(l->problems,
                   "kafka.properties.group.instance.id: refused with workers = %d: workers that share it throw each other out of the group",
                   c->workers);
    const char *isolation = property(c, "isolation.level");
    if (isolation && !strcmp(isolation, "read_uncommitted"))
        lw_problem_warn(l->problems,
                        "kafka.properties.isolation.level: read_uncommitted hands records of aborted transactions to the handler, too");
}
