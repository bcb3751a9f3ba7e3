/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the warnings and errors about the version and the features of librdkafka. The version and
 * the features are arguments of the tested function, so the test works with any librdkafka. */
#include "config/librdkafka.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <librdkafka/rdkafka.h>

#define ALL "gzip,ssl,sasl,sasl_gssapi,sasl_plain,sasl_scram,sasl_oauthbearer,oidc"

/* `what` is the report that is expected: W for a warning, R for an error that refuses the
 * configuration, and - for no report. The warning or error must contain `says`. */
static void judged(int line, const char *text, int version, const char *features, const char *name,
                   const char *value, char what, const char *says) {
    struct lw_librdkafka k = {version, text, features};
    struct lw_problems p = {0};
    bool refused = lw_librdkafka_judge(&k, name, value, &p);
    const struct lw_buf *b = what == 'R' ? &p.errors : &p.warnings;
    bool told = b->n && memmem(b->p, b->n, says, strlen(says)) &&
                memmem(b->p, b->n, text, strlen(text)) && memmem(b->p, b->n, name, strlen(name));
    if (refused != (what == 'R') || p.n_errors != (what == 'R') || p.n_warnings != (what == 'W') ||
        (what != '-' && !told))
        fail_msg("line %d: %s=%s with %s: %d errors, %d warnings: %.*s", line, name, value, text,
                 p.n_errors, p.n_warnings, (int)b->n, b->n ? b->p : "");
    lw_problems_free(&p);
}

#define JUDGED(...) judged(__LINE__, __VA_ARGS__)

static void test_versions(void **state) {
    (void)state;
    JUDGED("2.0.2", 0x020002ff, ALL, "sasl.mechanism", "SCRAM-SHA-256", 'W', "invalid credentials");
    JUDGED("2.6.0", 0x020600ff, ALL, "sasl.mechanisms", "SCRAM-SHA-512", 'W', "librdkafka 2.6.1");
    JUDGED("2.6.1", 0x020601ff, ALL, "sasl.mechanism", "SCRAM-SHA-256", '-', "");
    JUDGED("2.0.2", 0x020002ff, ALL, "sasl.mechanism", "PLAIN", '-', "");
    JUDGED("2.1.1", 0x020101ff, ALL, "security.protocol", "SASL_SSL", 'W', "use librdkafka 2.2");
    JUDGED("2.2.0", 0x020200ff, ALL, "security.protocol", "ssl", '-', "");
    JUDGED("2.0.2", 0x020002ff, ALL, "security.protocol", "sasl_plaintext", '-', "");
    JUDGED("2.14.2", 0x020e02ff, ALL, "group.protocol", "consumer", 'R', "2.15");
    JUDGED("2.15.0", 0x020f00ff, ALL, "group.protocol", "Consumer", '-', "");
    JUDGED("2.14.2", 0x020e02ff, ALL, "group.protocol", "classic", '-', "");
    JUDGED("2.0.2", 0x020002ff, ALL, "enable.sasl.oauthbearer.unsecure.jwt", "true", 'R',
           "crashes");
    JUDGED("2.8.0", 0x020800ff, ALL, "enable.sasl.oauthbearer.unsecure.jwt", "true", '-', "");
    JUDGED("2.5.0", 0x020500ff, ALL, "enable.metrics.push", "true", 'R', "aborts");
    JUDGED("2.5.0", 0x020500ff, ALL, "enable.metrics.push", "false", '-', "");
    JUDGED("2.5.3", 0x020503ff, ALL, "enable.metrics.push", "true", '-', "");
    JUDGED("2.6.0", 0x020600ff, ALL, "partition.assignment.strategy", "range,cooperative-sticky",
           'R', "use range");
    JUDGED("2.8.0", 0x020800ff, ALL, "partition.assignment.strategy", "cooperative-sticky", 'W',
           "range is safe");
    JUDGED("2.10.0", 0x020a00ff, ALL, "partition.assignment.strategy", "cooperative-sticky", '-',
           "");
}

static void test_features(void **state) {
    (void)state;
    JUDGED("2.15.1", 0x020f01ff, "gzip,sasl_plain", "security.protocol", "ssl", 'R', "without TLS");
    JUDGED("2.15.1", 0x020f01ff, "ssl_other", "security.protocol", "sasl_ssl", 'R', "without TLS");
    JUDGED("2.15.1", 0x020f01ff, "gzip,sasl_plain", "sasl.mechanism", "SCRAM-SHA-256", 'R',
           "without SASL SCRAM");
    JUDGED("2.15.1", 0x020f01ff, "gzip,sasl_plain", "sasl.mechanism", "OAUTHBEARER", 'R',
           "without SASL OAUTHBEARER");
    JUDGED("2.15.1", 0x020f01ff, "gzip,sasl_plain", "sasl.mechanisms", "GSSAPI", 'R', "Kerberos");
    JUDGED("2.15.1", 0x020f01ff, "gzip", "sasl.mechanism", "PLAIN", 'R', "without SASL PLAIN");
    JUDGED("2.15.1", 0x020f01ff, "gzip", "sasl.oauthbearer.method", "oidc", 'R', "without OIDC");
    JUDGED("2.15.1", 0x020f01ff, "gzip", "sasl.oauthbearer.method", "default", '-', "");
    JUDGED("2.15.1", 0x020f01ff, ALL, "sasl.oauthbearer.method", "oidc", '-', "");
}

static int warnings(const char *text, int version) {
    struct lw_librdkafka k = {version, text, ALL};
    struct lw_problems p = {0};
    lw_librdkafka_judge_all(&k, &p);
    int n = p.n_warnings;
    assert_int_equal(p.n_errors, 0);
    lw_problems_free(&p);
    return n;
}

static void test_every_configuration(void **state) {
    (void)state;
    assert_int_equal(warnings("2.9.0", 0x020900ff), 0);
    assert_int_equal(warnings("2.10.0", 0x020a00ff), 1);
    assert_int_equal(warnings("2.10.1", 0x020a01ff), 0);
}

static bool limit(int version, const char *text) {
    struct lw_librdkafka k = {version, "", ALL};
    struct lw_buf out = {0};
    lw_librdkafka_limits(&k, "- ", &out);
    bool found = out.n && memmem(out.p, out.n, text, strlen(text));
    lw_buf_free(&out);
    return found;
}

static void test_limits(void **state) {
    (void)state;
    assert_true(limit(0x020e01ff, "- below 2.14.2 it can crash"));
    assert_false(limit(0x020e02ff, "can crash"));
    assert_false(limit(0x020f01ff, "- "));
}

static void test_metrics_are_muted(void **state) {
    (void)state;
    assert_false(lw_librdkafka_mute(&(struct lw_librdkafka){0x020400ff, "", ""}));
    assert_true(lw_librdkafka_mute(&(struct lw_librdkafka){0x020500ff, "", ""}));
    assert_false(lw_librdkafka_mute(&(struct lw_librdkafka){0x020503ff, "", ""}));
}

static void test_loaded(void **state) {
    (void)state;
    const struct lw_librdkafka *k = lw_librdkafka_loaded();
    assert_int_equal(k->version, rd_kafka_version());
    assert_string_equal(k->text, rd_kafka_version_str());
    assert_true(lw_librdkafka_has(k, "sasl_plain"));
    assert_false(lw_librdkafka_has(k, "sasl_pl"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_every_configuration),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_metrics_are_muted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
