/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that explanations of Kafka's errors name the missing right, the resource and the user, but
 * no secret. */
#include "kafka/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/librdkafka.h"

static struct lw_property properties[4];
static struct lw_config config;

static void with(const char *protocol, const char *name, const char *value, bool secret) {
    properties[0] =
        (struct lw_property){(char *)"security.protocol", (char *)(uintptr_t)protocol, false};
    properties[1] = (struct lw_property){(char *)(uintptr_t)name, (char *)(uintptr_t)value, secret};
    properties[2] = (struct lw_property){(char *)"sasl.password", (char *)"hunter2", true};
    config.kafka.properties = properties;
    config.kafka.n_properties = 3;
    config.kafka.group_id = (char *)"shop";
}

static void test_principal(void **state) {
    (void)state;
    char out[LW_PRINCIPAL_MAX];
    with("sasl_ssl", "sasl.username", "orders", false);
    assert_string_equal(lw_kafka_principal(&config, out), "user \"orders\"");
    /* this user name came from a file of secrets, so it must not be shown */
    with("SASL_PLAINTEXT", "sasl.username", "hunter2", true);
    assert_string_equal(lw_kafka_principal(&config, out), "this user");
    with("ssl", "ssl.certificate.location", "/etc/me.pem", false);
    assert_string_equal(lw_kafka_principal(&config, out),
                        "the user of the certificate in /etc/me.pem");
    with("plaintext", "sasl.username", "orders", false);
    assert_string_equal(lw_kafka_principal(&config, out), "user \"ANONYMOUS\"");
}

static void said(rd_kafka_resp_err_t code, const char *text, const char *topic, const char *want) {
    char out[LW_EXPLAINED_MAX];
    assert_string_equal(lw_kafka_explain(&config, code, text, "READ", topic, out), want);
}

static void test_rights(void **state) {
    (void)state;
    with("sasl_ssl", "sasl.username", "orders", false);
    said(RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, "T", NULL,
         "user \"orders\" may not READ the consumer group shop; allow READ on it (T)");
    said(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "T", "a",
         "user \"orders\" may not READ topic a; allow READ on it (T)");
    said(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "T", NULL,
         "user \"orders\" may not READ a topic; allow READ on it (T)");
    config.dead.topic = (char *)"grave";
    said(RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, "T", NULL,
         "user \"orders\" may not WRITE topic grave; allow WRITE on it, and on a broker before 2.8 "
         "also IDEMPOTENT_WRITE on the cluster "
         "(T)");
    config.dead.topic = NULL;
    said(RD_KAFKA_RESP_ERR__TRANSPORT, "Connection refused", NULL, "Connection refused");
}

static void test_login(void **state) {
    (void)state;
    char out[LW_EXPLAINED_MAX];
    with("sasl_ssl", "sasl.mechanism", "SCRAM-SHA-512", false);
    lw_kafka_explain(&config, RD_KAFKA_RESP_ERR__AUTHENTICATION, "invalid credentials", "READ",
                     NULL, out);
    assert_int_equal(strstr(out, "can't log in by SCRAM") != NULL, rd_kafka_version() < 0x020601ff);
    with("sasl_ssl", "sasl.mechanism", "PLAIN", false);
    said(RD_KAFKA_RESP_ERR__AUTHENTICATION, "invalid credentials", NULL, "invalid credentials");
}

static void test_tls(void **state) {
    (void)state;
    char out[LW_EXPLAINED_MAX];
    with("ssl", "client.id", "x", false);
    assert_string_equal(lw_kafka_certificate_error(10), "it has expired");
    assert_null(lw_kafka_certificate_error(0));
    lw_kafka_explain(&config, RD_KAFKA_RESP_ERR__SSL,
                     "SSL handshake failed: unexpected eof while reading", "READ", NULL, out);
    assert_non_null(strstr(out, "Perhaps this listener has no TLS"));
    lw_kafka_explain(&config, RD_KAFKA_RESP_ERR__TRANSPORT,
                     "alert bad certificate: SSL alert number 42", "READ", NULL, out);
    assert_non_null(strstr(out, "does not accept this client's certificate"));
    /* in this test no certificate was checked, so the explanation cannot say why one was refused */
    said(RD_KAFKA_RESP_ERR__SSL, "certificate verify failed", NULL, "certificate verify failed");
}

static void test_files(void **state) {
    (void)state;
    char out[LW_EXPLAINED_MAX];
    with("ssl", "ssl.ca.location", "/nowhere/ca.pem", false);
    assert_string_equal(lw_kafka_explain_start(&config, "system lib", out),
                        "kafka.properties.ssl.ca.location: /nowhere/ca.pem can't be read: No such "
                        "file or directory");
    with("ssl", "ssl.key.location", "/nowhere/hunter2", true);
    assert_string_equal(
        lw_kafka_explain_start(&config, "system lib", out),
        "kafka.properties.ssl.key.location: the file can't be read: No such file or directory");
    with("ssl", "ssl.key.location", "/dev/null", false);
    lw_kafka_explain_start(&config, "ssl.key.location failed: PEM lib", out);
    assert_non_null(strstr(out, "ssl.key.password is wrong or missing, or the file is no PEM key "
                                "(ssl.key.location failed: PEM lib)"));
    with("ssl", "ssl.ca.location", "probe", false);
    assert_string_equal(lw_kafka_explain_start(&config, "T", out), "kafka.properties: T");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_principal),
                                       cmocka_unit_test(test_rights), cmocka_unit_test(test_login),
                                       cmocka_unit_test(test_tls), cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
