/* What the scripts cost Redis: commands inside them, per message. Each is about a microsecond of the one thread that all lanes share. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 64, PARTITIONS = 4, GATE_MOST = BATCH + 20, SETTLE_MOST = 24 };

/* Calls of a command since RESETSTAT, from a line of INFO commandstats: cmdstat_NAME:calls=N,… */
static int64_t calls_of(const char *line) {
    const char *calls = strstr(line, ":calls=");
    return calls ? atoll(calls + 7) : 0;
}
/* What tests and workers send themselves; the rest was called by a script. */
static bool from_outside(const char *line) {
    static const char *const names[] = {"evalsha", "script|load", "script|flush", "config|", "info", "time"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(line + strlen("cmdstat_"), names[i], strlen(names[i])) == 0) return true;
    return false;
}
/* TIME is called by the tests too, and once by each of the scripts counted here. */
static int64_t commands_in_script(struct lt *l) {
    redisReply *r = redisCommand(l->admin, "INFO commandstats");
    assert_non_null(r);
    int64_t n = 1;
    char *save = NULL;
    for (char *line = strtok_r(r->str, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
        if (strncmp(line, "cmdstat_", 8) == 0 && !from_outside(line)) n += calls_of(line);
    freeReplyObject(r);
    lt_text(l, "CONFIG RESETSTAT");
    return n;
}

static void make_batch(struct lt_msg *m, char (*lanes)[24], int64_t first_offset) {
    for (int i = 0; i < BATCH; i++) {
        snprintf(lanes[i], sizeof lanes[i], "lane %d", i);
        m[i] = lt_msg(i / (BATCH / PARTITIONS), first_offset + i % (BATCH / PARTITIONS), lanes[i], "t1");
    }
}

static void assert_at_most(const char *what, int64_t n, int64_t most) {
    print_message("%s: %" PRId64 " commands for %d messages of %d partitions, %.2f a message\n", what, n, BATCH, PARTITIONS,
                  (double)n / BATCH);
    if (n > most) fail_msg("%s: %" PRId64 " commands, more than %" PRId64, what, n, most);
}

static void gate_and_settle_without_waiters(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[BATCH];
    static char lanes[BATCH][24];
    make_batch(m, lanes, 100);
    lt_text(l, "CONFIG RESETSTAT");
    lt_gate(l, m, BATCH);
    int64_t gate = commands_in_script(l) - 1; /* the support looks at the fence */
    for (int i = 0; i < BATCH; i++) assert_int_equal(l->answers[i], 'R');
    lt_settle(l, m, BATCH);
    int64_t settle = commands_in_script(l);
    for (int i = 0; i < BATCH; i++) assert_int_equal(l->answers[i], 'L');
    assert_true(gate > BATCH); /* the count counts */
    assert_at_most("gate", gate, GATE_MOST);
    assert_at_most("settle", settle, SETTLE_MOST);
    assert_at_most("both", gate + settle, 2 * BATCH);
}

int main(void) {
    const struct CMUnitTest tests[] = {LT(gate_and_settle_without_waiters)};
    return LT_RUN(tests, LT_PLAIN);
}
