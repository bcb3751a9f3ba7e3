/* SPDX-License-Identifier: Apache-2.0 */
/* Tests locks on a real cluster whose nodes use TLS for all connections, including those between
 * nodes. The client uses its TLS settings and login for all nodes, including those that it learns
 * from the slot map. */
#include "cluster.h"

static char folder[] = "/tmp/lw-tls-XXXXXX";
static char ca[64], cert[64], key[64], client_cert[64], client_key[64];

static const char *in_folder(const char *name, char out[64]) {
    snprintf(out, 64, "%s/%s", folder, name);
    return out;
}

static int start(void **state) {
    (void)state;
    char command[128];
    if (!mkdtemp(folder)) return -1;
    snprintf(command, sizeof command, "tests/support/certs.sh %s", folder);
    if (system(command)) return -1;
    in_folder("client.pem", client_cert), in_folder("client.key", client_key);
    const char *more[] = {"--tls-cluster",
                          "yes",
                          "--tls-replication",
                          "yes",
                          "--tls-ca-cert-file",
                          in_folder("ca.pem", ca),
                          "--tls-cert-file",
                          in_folder("server.pem", cert),
                          "--tls-key-file",
                          in_folder("server.key", key),
                          "--user",
                          "u",
                          "on",
                          ">secret",
                          "~*",
                          "&*",
                          "+@all",
                          NULL};
    return start_masters(false, more) ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    char command[64];
    stop_nodes();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static struct latchwork_client_options secured(void) {
    return (struct latchwork_client_options){LATCHWORK_CLIENT_INIT, .flags = LATCHWORK_FLAG_TLS,
                                             .user = "u",           .password = "secret",
                                             .tls_ca = ca,          .tls_cert = client_cert,
                                             .tls_key = client_key, .connect_ms = LIMIT_MS,
                                             .command_ms = LIMIT_MS};
}

/* Gives the client the address of one node, takes locks on all three nodes, and moves the slot of
 * one lock. */
static void learned_nodes_speak_tls(void **state) {
    (void)state;
    struct latchwork_client_options o = secured();
    o.cluster = addresses;
    o.n_cluster = 1;
    struct latchwork_client *c = latchwork_client_open(NULL, &o, &error);
    if (!c) fail_msg("%s", error.text);
    int on[MASTERS] = {0};
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        on[owner_of(slot_of(name))]++;
        struct latchwork_lock *l = open_kind(c, name, LATCHWORK_KIND_MUTEX, LEASE_MS);
        struct latchwork_hold *h = take(l, 0), *none = NULL;
        if (i == 0) {
            int slot = slot_of(name), from = owner_of(slot), to = (from + 1) % MASTERS;
            assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 300, &none, &error));
            begin_move(slot, from, to);
            assert_true(move_keys(slot, from, to) > 0);
            assert_ok(latchwork_hold_renew(h, 0, &error));
            end_move(slot, from, to);
        }
        assert_ok(latchwork_hold_release(h, &error));
        latchwork_lock_close(l);
    }
    for (int i = 0; i < MASTERS; i++) assert_true(on[i] > 0);
    latchwork_client_close(c);
}

/* Gives the client a URL for its first node. The scheme and login of the URL must apply to all
 * nodes. */
static void a_url_holds_for_all_nodes(void **state) {
    (void)state;
    char at[96];
    struct latchwork_client_options o = secured();
    o.flags = 0;
    o.user = o.password = NULL;
    o.cluster = addresses + 1;
    o.n_cluster = 1;
    snprintf(at, sizeof at, "rediss://u:secret@%s", address[0]);
    struct latchwork_client *c = latchwork_client_open(at, &o, &error);
    if (!c) fail_msg("%s", error.text);
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", i);
        struct latchwork_lock *l = open_kind(c, name, LATCHWORK_KIND_MUTEX, LEASE_MS);
        struct latchwork_hold *h = take(l, 0);
        assert_ok(latchwork_hold_release(h, &error));
        latchwork_lock_close(l);
    }
    latchwork_client_close(c);
}

static void without_its_certificate(void **state) {
    (void)state;
    struct latchwork_client_options o = secured();
    o.tls_cert = o.tls_key = NULL;
    struct latchwork_client *c = open_cluster(&o);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_client_ping(c, &error));
    assert_non_null(strstr(error.text, "certificate"));
    latchwork_client_close(c);
    o = secured();
    o.password = "wrong";
    c = open_cluster(&o);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_client_ping(c, &error));
    assert_int_equal(error.code, LATCHWORK_E_DENIED);
    latchwork_client_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learned_nodes_speak_tls),
        cmocka_unit_test(a_url_holds_for_all_nodes),
        cmocka_unit_test(without_its_certificate),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
