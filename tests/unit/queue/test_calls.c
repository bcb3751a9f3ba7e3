/* SPDX-License-Identifier: Apache-2.0 */
/* Tests each argument with which the scripts gate, settle and claim are called. */
#include "queue/calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct lw_commands commands;
static struct lw_places places;

static struct lw_lane_call call_of(void) {
    lw_commands_reset(&commands);
    lw_places_clear(&places);
    return (struct lw_lane_call){.commands = &commands,
                                 .sha = "SHA",
                                 .prefix = lw_bytes_of("lw:{x.0}:"),
                                 .epoch = "epoch",
                                 .lanes = "lanes",
                                 .floor = "floor",
                                 .fence = "fence",
                                 .ready = "ready",
                                 .dead = "dead",
                                 .claimed = "claimed",
                                 .epoch_id = "ID",
                                 .redis_ms = 1000,
                                 .ttl_ms = 400,
                                 .handoff_ms = 200,
                                 .fences = 64};
}

/* Compares the arguments of a call with `want`, which ends with NULL. */
static void assert_args(const char *const *want) {
    int n = 0;
    assert_int_equal(commands.n, 1);
    for (; want[n]; n++) {
        assert_true(n < commands.cmd[0].argc);
        assert_int_equal(commands.len[n], strlen(want[n]));
        assert_memory_equal(commands.argv[n], want[n], strlen(want[n]));
    }
    assert_int_equal(commands.cmd[0].argc, n);
}

static struct lw_bytes text(const char *s) { return lw_bytes_of(s); }

static void gate_parks(void **state) {
    (void)state;
    struct lw_lane_call c = call_of();
    char token[LW_TOKEN_TEXT];
    static const char orders[] = "orders:3";
    lw_places_add(&places, orders, LW_SEGMENT + 0x0203);
    lw_places_add(&places, orders, LW_SEGMENT + 0x0201);
    lw_gate_begin(&c, &places, 2);
    lw_call_lane(&c, text("a")), lw_call_lane(&c, text("b"));
    lw_gate_args(&c, &places, &(struct lw_gate_call){.token = lw_token_text(token, "w", 7)});
    static const char *const want[] = {"EVALSHA",
                                       "SHA",
                                       "8",
                                       "epoch",
                                       "lanes",
                                       "floor",
                                       "fence",
                                       "lw:{x.0}:state:orders:3:1",
                                       "lw:{x.0}:tries:orders:3:1",
                                       "lw:{x.0}:lock:a",
                                       "lw:{x.0}:lock:b",
                                       "ID",
                                       "1000",
                                       "100",
                                       "400",
                                       "w.7",
                                       "0",
                                       "64",
                                       "",
                                       "\1\2\3\1\2\1",
                                       "1",
                                       "orders:3",
                                       "1",
                                       "128",
                                       "128",
                                       NULL};
    assert_args(want);
}

static void gate_carries(void **state) {
    (void)state;
    struct lw_lane_call c = call_of();
    static const char a[] = "a:1", b[] = "b:1";
    lw_places_add(&places, a, 257);
    lw_places_add(&places, b, 258);
    lw_gate_begin(&c, &places, 1);
    lw_call_lane(&c, text("k"));
    lw_gate_args(&c, &places,
                 &(struct lw_gate_call){.dedup = true, .token = text("t"), .counts = text("\x82")});
    lw_call_group(&c, &(struct lw_bytes){"G", 1}, true);
    lw_call_envelope(&c, text("E1")), lw_call_dedup(&c, text("D1"));
    lw_call_envelope(&c, text("E2")), lw_call_dedup(&c, text(""));
    static const char *const want[] = {"EVALSHA",
                                       "SHA",
                                       "9",
                                       "epoch",
                                       "lanes",
                                       "floor",
                                       "fence",
                                       "lw:{x.0}:state:a:1:0",
                                       "lw:{x.0}:tries:a:1:0",
                                       "lw:{x.0}:state:b:1:0",
                                       "lw:{x.0}:tries:b:1:0",
                                       "lw:{x.0}:lock:k",
                                       "ID",
                                       "1000",
                                       "100",
                                       "400",
                                       "t",
                                       "1",
                                       "64",
                                       "\x82",
                                       "\1\1\1\2\1\2",
                                       "2",
                                       "a:1",
                                       "0",
                                       "64",
                                       "64",
                                       "b:1",
                                       "0",
                                       "64",
                                       "64",
                                       "!G",
                                       "E1",
                                       "D1",
                                       "E2",
                                       "",
                                       NULL};
    assert_args(want);
}

/* If a batch has few messages that lie far apart, the script must read only the part of the
 * segment around each message. */
static void far_messages_are_not_read_at_once(void **state) {
    (void)state;
    struct lw_lane_call c = call_of();
    static const char a[] = "a:1";
    lw_places_add(&places, a, 257);
    lw_places_add(&places, a, 257 + 4 * 256);
    lw_gate_begin(&c, &places, 1);
    lw_call_lane(&c, text("k"));
    lw_gate_args(&c, &places, &(struct lw_gate_call){.token = text("t"), .counts = text("\2")});
    int n = commands.cmd[0].argc;
    assert_int_equal(commands.len[n - 2], 1);
    assert_memory_equal(commands.argv[n - 2], "1", 1);
    assert_memory_equal(commands.argv[n - 1], "0", 1);
}

static void settle_says_what_became_of_each(void **state) {
    (void)state;
    struct lw_lane_call c = call_of();
    char value[LW_TOKEN_TEXT];
    unsigned char items[4 * LW_ITEM_BYTES];
    static const struct lw_settle_item of[] = {{1, 2, LW_DONE, LW_GO_KEEP, 1, 2, 3},
                                               {1, 1, LW_RETRY, LW_GO_DROP, 1, 1, 1},
                                               {2, 1, LW_DEAD, LW_GO_NEXT, 1, 1, 1},
                                               {2, 1, LW_DEAD_SENT, LW_GO_HEADS, 1, 1, 1}};
    static const char a[] = "a:1";
    for (int i = 0; i < 4; i++) lw_settle_item(&of[i], items + LW_ITEM_BYTES * i);
    lw_places_add(&places, a, 257);
    c.skip = true;
    lw_settle_begin(&c, &places, 4);
    for (int i = 0; i < 4; i++) lw_call_lane(&c, text("k"));
    lw_settle_args(&c, &places,
                   &(struct lw_settle_call){.dedup = true,
                                            .window_s = 60,
                                            .bounds = {1, 2, 3},
                                            .items = lw_bytes((char *)items, sizeof items),
                                            .n_values = 1});
    lw_call_value(&c, lw_value_text(value, "w", 7, 99));
    for (int i = 0; i < 4; i++)
        lw_settle_last(&c, of[i].outcome, 500 + i, "why", text("ENVELOPE"),
                       i == 1 ? &(struct lw_bytes){"G", 1} : NULL);
    lw_call_dedup(&c, text("D"));
    static const char *const want[] = {"EVALSHA",
                                       "SHA",
                                       "12",
                                       "epoch",
                                       "lanes",
                                       "floor",
                                       "fence",
                                       "ready",
                                       "dead",
                                       "lw:{x.0}:state:a:1:0",
                                       "lw:{x.0}:tries:a:1:0",
                                       "lw:{x.0}:lock:k",
                                       "lw:{x.0}:lock:k",
                                       "lw:{x.0}:lock:k",
                                       "lw:{x.0}:lock:k",
                                       "ID",
                                       "400",
                                       "200",
                                       "skip",
                                       "60",
                                       "64",
                                       "1 2 3",
                                       "\1\2dk\1\2\3"
                                       "\1\1r-\1\1\1"
                                       "\2\1xn\1\1\1"
                                       "\2\1sh\1\1\1",
                                       "\1\1\1",
                                       "1",
                                       "a:1",
                                       "0",
                                       "64",
                                       "64",
                                       "1",
                                       "w.7:99",
                                       "501",
                                       "ENVELOPE",
                                       "=G",
                                       "why",
                                       "ENVELOPE",
                                       "D",
                                       NULL};
    assert_args(want);
}

static void claim_says_what_it_takes(void **state) {
    (void)state;
    struct lw_lane_call c = call_of();
    lw_claim_begin(&c, 1);
    lw_call_lane(&c, text("k"));
    lw_claim_args(&c, &(struct lw_claim_call){
                          .taken = 5, .token = text("t"), .want = 8, .bounds = {1, 2, 3}});
    static const char *const want[] = {"EVALSHA", "SHA",   "7",     "epoch",   "lanes",
                                       "floor",   "fence", "ready", "claimed", "lw:{x.0}:lock:k",
                                       "ID",      "1000",  "100",   "400",     "200",
                                       "block",   "5",     "t",     "64",      "8",
                                       "1 2 3",   NULL};
    assert_args(want);
}

static int free_commands(void **state) {
    (void)state;
    lw_commands_free(&commands);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gate_parks), cmocka_unit_test(gate_carries),
                                       cmocka_unit_test(far_messages_are_not_read_at_once),
                                       cmocka_unit_test(settle_says_what_became_of_each),
                                       cmocka_unit_test(claim_says_what_it_takes)};
    return cmocka_run_group_tests_name("calls", tests, NULL, free_commands);
}
