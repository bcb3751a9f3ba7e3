/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the section kafka.properties. Each property is passed to librdkafka unchanged,
 * unless it would break a guarantee. */
#include "config/librdkafka.h"
#include "config/option.h"

#include <assert.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROPERTIES_MAX = 512, VALUE_MAX = 65536 };

/* Lists properties, each with a value that is refused and the reason for the refusal. */
static const struct refusal {
    const char *name, *value, *reason;
} refusals[] = {
    {"enable.auto.commit", "true",
     "offsets are committed only when all before them is done; librdkafka would commit what was "
     "merely fetched"},
    {"enable.auto.offset.store", "true",
     "offsets are committed only when all before them is done; librdkafka would store what was "
     "merely fetched"},
    {"enable.partition.eof", "false",
     "the ends of partitions tell compaction gaps and --drain where they stand"},
    {"offset.store.method", "file", "offsets live in the group, so that another worker can go on"},
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
        if (!strcmp(refusals[i].name, name) && same_value(refusals[i].value, value))
            return refusals[i].reason;
    return NULL;
}

/* Lets librdkafka check a property. librdkafka's error text may quote the value, which may be a
 * secret or come from a variable, so the text is shown only if `quote` is true or the property is
 * unknown. */
static void ask_librdkafka(struct lw_loader *l, const char *path, const struct lw_property *p,
                           bool quote) {
    char text[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_res_t res = rd_kafka_conf_set(conf, p->name, p->value, text, sizeof text);
    rd_kafka_conf_destroy(conf);
    if (res == RD_KAFKA_CONF_OK) return;
    if (res == RD_KAFKA_CONF_UNKNOWN || quote)
        lw_problem(l->problems, "%s: %s", path, text);
    else
        lw_problem(l->problems,
                   "%s: librdkafka does not take this value (not shown: it may be a secret)", path);
}

static char *value_text(struct lw_loader *l, const char *path, json_t *v) {
    char buf[LW_SHOWN_MAX];
    if (json_is_string(v)) {
        if (json_string_length(v) <= VALUE_MAX) return lw_strdup(json_string_value(v));
        lw_problem(l->problems, "%s: longer than %d bytes", path, (int)VALUE_MAX);
        return NULL;
    }
    if (json_is_number(v) || json_is_boolean(v)) return lw_strdup(lw_shown(l, v, buf));
    lw_problem(l->problems, "%s: must be a string, a number, true or false, is %s", path,
               lw_shown(l, v, buf));
    return NULL;
}

static struct lw_property *append(struct lw_config *c, const char *name, char *value) {
    c->kafka.properties =
        lw_realloc(c->kafka.properties, (c->kafka.n_properties + 1) * sizeof *c->kafka.properties);
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
    else if (!lw_librdkafka_judge(lw_librdkafka_loaded(), name, value, l->problems))
        ask_librdkafka(l, path, p, !p->secret && !was);
}

void lw_take_properties(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    const char *name;
    json_t *item;
    if (!json_is_object(v)) {
        lw_problem(l->problems, "%s: must be an object of librdkafka properties, is %s", o->path,
                   lw_shown(l, v, buf));
        return;
    }
    if (json_object_size(v) > PROPERTIES_MAX) {
        lw_problem(l->problems, "%s: more than %d properties", o->path, (int)PROPERTIES_MAX);
        return;
    }
    json_object_foreach(v, name, item) take_property(l, name, item);
}

const char *lw_config_property(const struct lw_config *c, const char *name) {
    for (size_t i = 0; i < c->kafka.n_properties; i++)
        if (!strcmp(c->kafka.properties[i].name, name)) return c->kafka.properties[i].value;
    return NULL;
}

static const char *property_or(struct lw_config *c, const char *name, const char *dflt) {
    const char *value = lw_config_property(c, name);
    return value ? value : append(c, name, lw_strdup(dflt))->value;
}

static void finish_reset(struct lw_loader *l) {
    const char *reset = property_or(l->c, "auto.offset.reset", "earliest");
    l->c->kafka.reset_latest = !strcmp(reset, "latest");
    if (l->c->kafka.reset_latest)
        lw_problem_warn(l->problems,
                        "kafka.properties.auto.offset.reset: with latest, what is written before "
                        "the group's first start, or to a partition that is added while no worker "
                        "runs, is never read");
    if (l->c->kafka.reset_latest || !strcmp(reset, "earliest")) return;
    lw_problem(l->problems, "kafka.properties.auto.offset.reset: must be \"earliest\" or "
                            "\"latest\": where a group without commits begins");
}

/* Refuses properties whose values the broker decides in the new group protocol (KIP-848), because
 * librdkafka would refuse to start with them. */
static void finish_protocol(struct lw_loader *l) {
    static const char *const moved[][2] = {
        {"session.timeout.ms", "the broker sets it: group.consumer.session.timeout.ms"},
        {"heartbeat.interval.ms", "the broker sets it: group.consumer.heartbeat.interval.ms"},
        {"partition.assignment.strategy",
         "the broker assigns partitions; group.remote.assignor chooses how"},
    };
    const char *protocol = lw_config_property(l->c, "group.protocol");
    l->c->kafka.new_protocol = protocol && !strcasecmp(protocol, "consumer");
    /* With the new group protocol, a worker is a static member only if kafka.member_id asks for it:
     * the broker refuses a restarted static member until the session of the dead process has
     * ended. */
    if (l->c->kafka.new_protocol && !l->c->kafka.member_id) l->c->kafka.dynamic = true;
    for (size_t i = 0; l->c->kafka.new_protocol && i < sizeof moved / sizeof *moved; i++)
        if (lw_config_property(l->c, moved[i][0]))
            lw_problem(
                l->problems,
                "kafka.properties.%s: refused with group.protocol \"consumer\": %s; leave it out",
                moved[i][0], moved[i][1]);
}

static bool starts(const char *text, const char *with) {
    return !strncasecmp(text, with, strlen(with));
}

static const char *mechanism(const struct lw_config *c) {
    const char *given = lw_config_property(c, "sasl.mechanism");
    return given ? given : lw_config_property(c, "sasl.mechanisms");
}

/* Refuses OAUTHBEARER without a source of tokens: either librdkafka makes an unsigned token itself,
 * or it gets a signed token by OIDC. */
static void finish_oauth(struct lw_loader *l) {
    const char *method = lw_config_property(l->c, "sasl.oauthbearer.method"),
               *own = lw_config_property(l->c, "enable.sasl.oauthbearer.unsecure.jwt");
    if ((method && !strcasecmp(method, "oidc")) || (own && same_value("true", own))) return;
    lw_problem(
        l->problems,
        "kafka.properties.sasl.mechanism: refused: OAUTHBEARER has no source of tokens; set "
        "sasl.oauthbearer.method to \"oidc\", or "
        "enable.sasl.oauthbearer.unsecure.jwt to true if the brokers accept unsigned tokens");
}

static void finish_sasl(struct lw_loader *l, const char *protocol) {
    const char *how = mechanism(l->c);
    bool sasl = starts(protocol, "sasl_");
    if (!sasl && how)
        lw_problem_warn(l->problems,
                        "kafka.properties.sasl.mechanism: no effect while security.protocol is "
                        "\"%s\"; set that to \"sasl_ssl\"",
                        protocol);
    if (!sasl) return;
    if (!how &&
        !lw_librdkafka_judge(lw_librdkafka_loaded(), "sasl.mechanism", "GSSAPI", l->problems))
        lw_problem_warn(l->problems, "kafka.properties.sasl.mechanism: not set, so librdkafka uses "
                                     "GSSAPI (Kerberos); set it to GSSAPI, PLAIN, "
                                     "SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER");
    if (how && !strcmp(how, "OAUTHBEARER")) finish_oauth(l);
    if (how && starts(protocol, "sasl_plaintext") &&
        (!strcmp(how, "PLAIN") || !strcmp(how, "OAUTHBEARER")))
        lw_problem_warn(l->problems,
                        "kafka.properties.security.protocol: with sasl_plaintext the %s travels "
                        "unencrypted; use sasl_ssl",
                        *how == 'P' ? "password" : "token");
}

static void finish_security(struct lw_loader *l) {
    const char *given = lw_config_property(l->c, "security.protocol");
    const char *protocol = given ? given : "plaintext";
    finish_sasl(l, protocol);
    if (strcasestr(protocol, "ssl")) return;
    for (size_t i = 0; i < l->c->kafka.n_properties; i++)
        if (starts(l->c->kafka.properties[i].name, "ssl."))
            lw_problem_warn(l->problems,
                            "kafka.properties.%s: no effect while security.protocol is \"%s\"; set "
                            "that to \"ssl\" or \"sasl_ssl\"",
                            l->c->kafka.properties[i].name, protocol);
}

/* Sets how long a rebalance may wait for handlers, and warns if this is less than
 * shutdown.grace_ms. The worker does not poll during that wait, so librdkafka counts the wait
 * against max.poll.interval.ms. */
static void finish_poll_interval(struct lw_loader *l) {
    enum { DEFAULT_MS = 300000, MARGIN_MS = 10000 };
    struct lw_config *c = l->c;
    const char *text = lw_config_property(c, "max.poll.interval.ms");
    int64_t poll_ms = text ? atoll(text) : DEFAULT_MS;
    int64_t most_ms = poll_ms > 2 * MARGIN_MS ? poll_ms - MARGIN_MS : poll_ms / 2;
    c->shutdown.revoke_ms = c->shutdown.grace_ms < most_ms ? c->shutdown.grace_ms : most_ms;
    if (c->shutdown.grace_ms <= most_ms) return;
    lw_problem_warn(l->problems,
                    "shutdown.grace_ms: %lld is too long for kafka.properties.max.poll.interval.ms "
                    "(%lld): a rebalance waits at most %lld ms "
                    "for handlers; set max.poll.interval.ms to %lld, or shutdown.grace_ms to %lld",
                    (long long)c->shutdown.grace_ms, (long long)poll_ms, (long long)most_ms,
                    (long long)(c->shutdown.grace_ms + MARGIN_MS), (long long)most_ms);
}

void lw_finish_kafka(struct lw_loader *l) {
    struct lw_config *c = l->c;
    if (!lw_config_property(c, "metadata.broker.list"))
        property_or(c, "bootstrap.servers", "127.0.0.1:9092");
    const char *servers = lw_config_property(c, "bootstrap.servers");
    if (servers && !*servers)
        lw_problem(l->problems, "kafka.properties.bootstrap.servers: must not be empty");
    const char *group = property_or(c, "group.id", c->name),
               *instance = lw_config_property(c, "group.instance.id");
    if (instance && (!*instance || strlen(instance) > 200))
        lw_problem(l->problems, "kafka.properties.group.instance.id: must be 1 to 200 bytes, to "
                                "which each worker appends its number");
    assert(group);
    if (!*group || strlen(group) > 255)
        lw_problem(l->problems, "kafka.properties.group.id: must be 1 to 255 bytes");
    c->kafka.group_id = lw_strdup(group);
    finish_reset(l);
    finish_protocol(l);
    finish_security(l);
    finish_poll_interval(l);
    lw_librdkafka_judge_all(lw_librdkafka_loaded(), l->problems);
    const char *isolation = lw_config_property(c, "isolation.level");
    if (isolation && !strcmp(isolation, "read_uncommitted"))
        lw_problem_warn(l->problems, "kafka.properties.isolation.level: read_uncommitted hands "
                                     "records of aborted transactions to the handler, too");
}
