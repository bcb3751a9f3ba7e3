/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the source, which is the code in kafka/, with a real Kafka. tests/live/test_source.sh runs
 * this program.
 *
 *   source_test BROKERS KAFKA_DIR            runs all cases except `cooperative` and `measure`
 *   source_test BROKERS KAFKA_DIR measure    measures how many records lw_source_poll() delivers
 *                                            per second
 *   source_test BROKERS KAFKA_DIR CASE       runs one case by name
 *
 * KAFKA_DIR is the folder in which kafka.sh runs Kafka. Some cases restart or kill this Kafka.
 * One thread runs all members of the consumer group, and polls them in turn. */
#include "tests/tools/member.h"

#include <signal.h>

enum { LIMIT_S = 180 }; /* time limit of one case */

/* --- cases ------------------------------------------------------------------------------------ */

/* Members join and leave while messages are produced. Every record must be delivered exactly once,
 * and the records of each assignment must be contiguous. */
static void rebalances(const char *topic, const char *strategy, int64_t messages) {
    static struct member a, b;
    struct member *two[] = {&a, &b};
    make_topic(topic, 0);
    setup(&a, topic, topic);
    property(&a, "heartbeat.interval.ms", "200");
    if (strategy) property(&a, "partition.assignment.strategy", strategy);
    join(&a);
    a.reluctant = true; /* its revocations wait for some polls */
    pid_t producing = start("%s/kafkatool %s generate %s --messages %" PRId64
                            " --keys 500 --partitioner roundrobin --rate 12000",
                            tools_dir, brokers, topic, messages);
    UNTIL(a.records > messages / 20, &a);
    int shared = 0;
    for (int round = 0; round < 3; round++) {
        setup(&b, topic, topic);
        property(&b, "heartbeat.interval.ms", "200");
        if (strategy) property(&b, "partition.assignment.strategy", strategy);
        join(&b);
        UNTIL(n_current(&a) == PARTS / 2 && n_current(&b) == PARTS / 2, &a, &b);
        int64_t before = b.records;
        UNTIL(b.records > before + 1000 || distinct() == messages, &a, &b);
        /* The second member must get records before all records have been read. */
        CHECK(b.records > 1000 && distinct() < messages);
        shared++;
        commit_all(&a);
        commit_all(&b);
        turn(two, 2);
        leave(&b);
        CHECK(b.revokes == 1 && b.revoked_parts == PARTS / 2 && b.losts == 0 && !*b.fatal);
        UNTIL(n_current(&a) == PARTS, &a);
    }
    UNTIL(a.owned[0].gone || n_current(&a) == PARTS, &a);
    finish(producing);
    UNTIL(all_at_end(&a, messages / PARTS), &a);
    CHECK(distinct() == messages);
    /* No record may be delivered twice, because all records were committed at each revoke. */
    CHECK(doubled() == 0);
    CHECK(shared == 3 && !*a.fatal && a.commits_bad == 0);
    if (!strategy)
        CHECK(a.revokes == 6 && a.revoked_parts == 3 * (PARTS + PARTS / 2) && a.losts == 0);
    a.reluctant = false;
    leave(&a);
}

static void case_rebalances(void) { rebalances("rebalances", NULL, 200000); }
static void case_cooperative(void) { rebalances("cooperative", "cooperative-sticky", 280000); }

/* Seeks both inside and outside the record callback, and on partitions that are held back as well
 * as on others. The next record that is delivered must be the record at the offset of the seek. */
static void case_seek(void) {
    static struct member m;
    make_topic("seek", 40000);
    setup(&m, "seek", "seek");
    join(&m);
    m.seek_every = 1009;
    UNTIL(m.records > 50000, &m);
    CHECK(m.seeks > 40);
    m.seek_every = 0;
    for (int i = 0; i < 60; i++) {
        struct owned *o = current(&m, i % PARTS);
        struct lw_err err = {0};
        bool hold = i % 3 == 0;
        lw_source_pause(m.s, o->gen, hold);
        o->held = hold;
        DURING(5, &m);
        CHECK(!lw_source_seek(m.s, o->gen, rand() % 5000, &err));
        m.records = 0;
        CHECK(lw_source_seek(m.s, o->gen, -5, &err) == -1);
        int64_t to = rand() % 9000;
        CHECK(!lw_source_seek(m.s, o->gen, to, &err));
        o->next = to;
        lw_source_pause(m.s, o->gen, false);
        o->held = false;
        UNTIL(o->next > to, &m);
    }
    UNTIL(all_at_end(&m, 10000), &m);
    struct lw_err err = {0};
    CHECK(lw_source_seek(m.s, 4000000000u, 0, &err) == -1 &&
          strstr(err.text, "no longer assigned"));
    leave(&m);
}

static void case_hold(void) {
    static struct member m;
    make_topic("hold", 40000);
    setup(&m, "hold", "hold");
    join(&m);
    UNTIL(m.records > 4000, &m);
    struct owned *o = current(&m, 2);
    lw_source_pause(m.s, o->gen, true);
    o->held = true;
    int64_t at = o->next;
    UNTIL(current(&m, 0)->next == 10000 && current(&m, 1)->next == 10000 &&
              current(&m, 3)->next == 10000,
          &m);
    CHECK(o->next == at && at < 10000);
    lw_source_pause(m.s, o->gen, false);
    o->held = false;
    /* on_record() checks that the partition continues at the same offset. */
    UNTIL(all_at_end(&m, 10000), &m);
    leave(&m);
}

static void case_commits(void) {
    static struct member m;
    make_topic("commits", 400);
    setup(&m, "commits", "commits");
    join(&m);
    UNTIL(all_at_end(&m, 100), &m);
    struct lw_commit some[] = {{current(&m, 0)->gen, 40, "0123456789abcdef"},
                               {current(&m, 3)->gen, 70, ""},
                               {current(&m, 1)->gen, 5, ""}};
    struct lw_err err = {0};
    CHECK(!lw_source_commit(m.s, some, 3, &err));
    CHECK(lw_source_commit_busy(m.s));
    CHECK(lw_source_commit(m.s, some, 3, &err) == -1 && strstr(err.text, "unanswered"));
    UNTIL(!lw_source_commit_busy(m.s), &m);
    CHECK(m.commits_ok == 3 && m.commits_bad == 0);
    bool ok[2] = {false, false};
    struct lw_commit more[] = {{current(&m, 2)->gen, 33, ""}, {current(&m, 1)->gen, 6, ""}};
    CHECK(!lw_source_commit_sync(m.s, more, 2, ok, 10000, &err));
    CHECK(ok[0] && ok[1] && m.commits_ok == 5);
    struct lw_commit wrong = {4000000000u, 1, ""};
    struct lw_err wrong_err = {0};
    CHECK(lw_source_commit(m.s, &wrong, 1, &wrong_err) == -1 &&
          strstr(wrong_err.text, "no longer assigned"));
    m.bare = true; /* The member leaves without committing. */
    leave(&m);
    static struct member other;
    setup(&other, "commits", "commits");
    join(&other);
    UNTIL(n_current(&other) == PARTS, &other);
    CHECK(current(&other, 0)->committed == 40 && current(&other, 1)->committed == 6);
    CHECK(current(&other, 2)->committed == 33);
    CHECK(current(&other, 3)->committed == 70 && current(&other, 3)->begin == 70);
    CHECK(lw_source_look(other.s, false));
    UNTIL(other.looked, &other);
    CHECK(!strcmp(other.fleet, "0123456789abcdef"));
    UNTIL(all_at_end(&other, 100), &other);
    leave(&other);
}

static void case_reset(void) {
    static struct member m;
    make_topic("reset", 400);
    TOOL("delete-records %s 1 30", "reset");
    setup(&m, "reset", "reset-earliest");
    join(&m);
    UNTIL(all_at_end(&m, 100), &m);
    CHECK(current(&m, 0)->committed == -1 && current(&m, 0)->begin == 0 &&
          current(&m, 0)->log_end == 100);
    CHECK(current(&m, 1)->begin == 30 && current(&m, 1)->log_begin == 30);
    leave(&m);
    setup(&m, "reset", "reset-latest");
    m.c.kafka.reset_latest = true;
    join(&m);
    UNTIL(n_current(&m) == PARTS, &m);
    CHECK(current(&m, 1)->begin == 100 && current(&m, 1)->committed == -1);
    fill("reset", 40);
    UNTIL(all_at_end(&m, 110), &m);
    CHECK(m.records == 40);
    leave(&m);
}

static void expect_fatal(const char *topic, const char *group, const char *text) {
    static struct member m;
    setup(&m, topic, group);
    join(&m);
    UNTIL(*m.fatal, &m);
    if (!strstr(m.fatal, text)) problem("fatal says: %s", m.fatal);
    CHECK(m.assigns == 0 && m.records == 0);
    leave(&m);
}

/* A committed offset that is outside the log, and a seek to an offset that is no longer in the log,
 * must each end the reading with a clear error (faults 22 and 23 of doc/design/faults.md). */
static void case_fatal(void) {
    make_topic("fatal", 400);
    TOOL("set-offsets %s 2 50", "fatal-deleted fatal");
    TOOL("delete-records %s 2 80", "fatal");
    expect_fatal("fatal", "fatal-deleted",
                 "fatal/2: the committed offset 50 is no longer in the log, which begins at 80");
    TOOL("set-offsets %s 0 101", "fatal-beyond fatal");
    expect_fatal("fatal", "fatal-beyond",
                 "fatal/0: the committed offset 101 is past the end of the log, which is 100");
    static struct member m;
    setup(&m, "fatal", "fatal-later");
    join(&m);
    UNTIL(all_at_end(&m, 100), &m);
    struct lw_err err = {0};
    CHECK(!lw_source_seek(m.s, current(&m, 2)->gen, 60, &err));
    UNTIL(*m.fatal, &m);
    CHECK(strstr(m.fatal, "fatal/2: can't read on at offset 60"));
    int64_t records = m.records;
    DURING(200, &m);
    CHECK(m.records == records);
    leave(&m);
}

/* A member that holds back partitions for a long time must stay in the group. A member that does
 * not poll must be removed from the group, and its next commit must then be refused. */
static void case_max_poll(void) {
    static struct member m;
    make_topic("maxpoll", 40000);
    setup(&m, "maxpoll", "maxpoll");
    property(&m, "session.timeout.ms", "1500");
    property(&m, "heartbeat.interval.ms", "300");
    property(&m, "max.poll.interval.ms", "1500");
    join(&m);
    UNTIL(m.records > 100, &m);
    for (int p = 0; p < PARTS; p++)
        lw_source_pause(m.s, current(&m, p)->gen, true), current(&m, p)->held = true;
    int64_t records = m.records;
    DURING(4000, &m);
    CHECK(m.revokes == 0 && m.records == records && n_current(&m) == PARTS);
    for (int p = 0; p < PARTS; p++)
        lw_source_pause(m.s, current(&m, p)->gen, false), current(&m, p)->held = false;
    UNTIL(all_at_end(&m, 10000), &m);
    uint32_t gen = current(&m, 0)->gen;
    lw_sleep_ms(3500);
    /* The broker has removed the member, which does not know it yet. */
    struct lw_commit late = {gen, 10000, ""};
    struct lw_err err = {0};
    bool ok = true;
    CHECK(lw_source_commit_sync(m.s, &late, 1, &ok, 1000, &err) == 0 && !ok);
    UNTIL(m.losts == 1, &m);
    CHECK(m.revoked_parts == PARTS);
    CHECK(lw_source_commit_sync(m.s, &late, 1, NULL, 1000, &err) == -1);
    /* The member joins again and reads from the beginning, because nothing was committed. */
    UNTIL(n_current(&m) == PARTS, &m);
    CHECK(current(&m, 0)->gen > gen && current(&m, 0)->begin == 0);
    UNTIL(all_at_end(&m, 10000), &m);
    leave(&m);
}

/* --- the broker goes away --------------------------------------------------------------------- */

/* The broker stops and comes back before the member's session ends. The member must stay in the
 * group and continue to read, and its next commit must be accepted at once. If the restart took
 * longer than the session, Kafka would remove the member and rightly refuse its commits until it
 * has joined again. The session is therefore longer than a restart takes on a busy machine. */
static void case_restart(void) {
    static struct member m;
    make_topic("restart", 40000);
    setup(&m, "restart", "restart");
    property(&m, "session.timeout.ms", "120000");
    join(&m);
    UNTIL(m.records > 4000, &m);
    RIG("restart");
    fill("restart", 4000);
    UNTIL(all_at_end(&m, 11000), &m);
    CHECK(distinct() == 44000);
    commit_all(&m);
    UNTIL(!lw_source_commit_busy(m.s), &m);
    CHECK(m.commits_ok == PARTS && m.commits_bad == 0);
    CHECK(m.revokes == 0 && m.losts == 0 && !*m.fatal);
    leave(&m);
}

/* Closing a source must end even if no broker answers, and every partition must be revoked. This
 * case is the last one, because it leaves no broker running. */
static void case_close_alone(void) {
    static struct member m;
    make_topic("alone", 4000);
    setup(&m, "alone", "alone");
    join(&m);
    UNTIL(all_at_end(&m, 1000), &m);
    RIG("kill");
    struct lw_commit one = {current(&m, 0)->gen, 500, ""};
    struct lw_err err = {0};
    CHECK(lw_source_commit_sync(m.s, &one, 1, NULL, 500, &err) == -1);
    m.bare = true;
    lw_source_close(m.s, 2000); /* If this call hangs, alarm() ends the program. */
    CHECK(m.revokes == 1 && m.revoked_parts == PARTS);
}

/* A member gets an assignment while it leaves. The member must turn the assignment down without
 * reporting it, and must leave within 3 s and without an error. In the first round
 * lw_source_decline() is called before the member leaves, and in the second round only
 * lw_source_close() is called. */
static void case_declined(void) {
    static struct member a, b;
    make_topic("declined", 400);
    for (int closing = 0; closing < 2; closing++) {
        setup(&a, "declined", "declined");
        join(&a);
        /* Wait until the group has assigned partitions. The assignment then waits in the source's
         * event queue, because the member is not polled. */
        lw_sleep_ms(4000);
        if (!closing) {
            lw_source_decline(a.s);
            DURING(1500, &a);
        }
        int64_t since_ms = lw_boot_ms();
        leave(&a);
        CHECK(a.assigns == 0 && !*a.fatal);
        CHECK(lw_boot_ms() - since_ms < 3000);
    }
    /* Another member must be able to join, which shows that the group still works. */
    setup(&b, "declined", "declined");
    join(&b);
    UNTIL(n_current(&b) == PARTS, &b);
    leave(&b);
}

/* A group has two static members, a and b, and a leaves. If a keeps its place for a restart, the
 * next member with the id of a must get the same partitions at once, and b must not lose a
 * partition. If a gives up its place, b must get the partitions of a before the session of a would
 * end. */
static void case_static(void) {
    enum { ROUNDS = 150 };
    static struct member a, b, c;
    make_topic("static", 4000);
    setup(&a, "static", "static");
    a.member_id = "a";
    join(&a);
    setup(&b, "static", "static");
    b.member_id = "b";
    join(&b);
    UNTIL(n_current(&a) == PARTS / 2 && n_current(&b) == PARTS / 2, &a, &b);
    int revokes = b.revokes;
    for (int i = 0; i < ROUNDS; i++) {
        /* Restart the member many times, because a bug that made a close hang showed in only one of
         * seventy restarts. */
        int32_t mine = current(&a, 0) ? 0 : PARTS - 1;
        lw_source_keep_place(a.s);
        leave(&a);
        setup(&a, "static", "static");
        a.member_id = "a";
        join(&a);
        UNTIL(n_current(&a) == PARTS / 2, &a, &b);
        CHECK(current(&a, mine) && b.revokes == revokes && n_current(&b) == PARTS / 2);
    }
    int64_t since_ms = lw_boot_ms();
    leave(&a);
    UNTIL(n_current(&b) == PARTS, &b);
    CHECK(lw_boot_ms() - since_ms < 10000); /* less than session.timeout.ms, which is 15 s */
    /* A second member with the same id must take the place of the first member. */
    setup(&c, "static", "static");
    c.member_id = "b";
    join(&c);
    UNTIL(n_current(&c) == PARTS && *b.fatal, &b, &c);
    CHECK(lw_source_fenced(b.s) && strstr(b.fatal, "which is this worker's id"));
    b.bare = true;
    leave(&b);
    CHECK(n_current(&c) == PARTS && !*c.fatal);
    leave(&c);
}

/* --- asking, and the sink --------------------------------------------------------------------- */

static int64_t end_sum;
static void on_ends(void *ctx, const char *topic, int32_t partition, int64_t end) {
    (void)ctx;
    CHECK(!strcmp(topic, "ends") && partition >= 0 && partition < PARTS);
    end_sum += end;
}

static void case_admin(void) {
    static struct member m;
    make_topic("ends", 400);
    setup(&m, "ends", "ends");
    property(&m, "bootstrap.servers", brokers);
    struct lw_err err = {0};
    CHECK(!lw_source_ends(&m.c, 10000, on_ends, NULL, &err) && end_sum == 400);
    char id[64];
    CHECK(!lw_source_cluster_id(&m.c, 10000, id, sizeof id, &err) &&
          !strcmp(id, "MkU3OEVBNTcwNTJENDM2Qg"));
    CHECK(lw_source_cluster_id(&m.c, 10000, id, 5, &err) == -1);
    setup(&m, "no-such-topic", "ends");
    property(&m, "bootstrap.servers", brokers);
    struct lw_err missing = {0};
    CHECK(lw_source_ends(&m.c, 10000, on_ends, NULL, &missing) == -1 &&
          strstr(missing.text, "no-such-topic"));
    setup(&m, "ends", "ends");
    property(&m, "bootstrap.servers", "127.0.0.1:1");
    struct lw_err nobody = {0};
    CHECK(lw_source_cluster_id(&m.c, 500, id, sizeof id, &nobody) == -1);
    setup(&m, "ends", "ends");
    property(&m, "no.such.property", "1");
    struct lw_err unknown = {0};
    CHECK(!lw_source_open(&m.c, NULL, &events, &m, &unknown) &&
          strstr(unknown.text, "no.such.property"));
}

static int sink_ok, sink_bad, sink_never;
static void on_done(void *ctx, enum lw_letter_end how, const char *reason) {
    CHECK((how == LW_SENT) == (*reason == 0));
    CHECK(ctx == &sink_ok);
    sink_ok += how == LW_SENT;
    sink_bad += how != LW_SENT;
    sink_never += how == LW_SENT_NEVER;
}

static int letters_seen;
static void check_letter(void *ctx, uint32_t gen, rd_kafka_message_t *r) {
    (void)ctx;
    (void)gen;
    rd_kafka_headers_t *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    letters_seen++;
    if (!rd_kafka_message_headers(r, &headers)) {
        CHECK(r->key_len == 3 && !memcmp(r->key, "k\0y", 3) && r->len == 5 &&
              !memcmp(r->payload, "hello", 5));
        CHECK(!rd_kafka_header_get_all(headers, 0, &name, &value, &size) &&
              !strcmp(name, "reason") && size == 3 && !memcmp(value, "bad", 3));
        CHECK(!rd_kafka_header_get_all(headers, 1, &name, &value, &size) && !strcmp(name, "none") &&
              !value);
    } else {
        CHECK(!r->key && !r->payload);
    }
    rd_kafka_message_destroy(r);
}

static void case_sink(void) {
    static struct member m;
    make_topic("letters", 0);
    setup(&m, "letters", "letters");
    property(&m, "bootstrap.servers", brokers);
    /* Set a property that is for consumers only. The producer must ignore it. */
    property(&m, "fetch.min.bytes", "1");
    struct lw_err err = {0};
    struct lw_sink *k = lw_sink_open(&m.c, &err);
    CHECK(k);
    if (!k) return;
    struct lw_header headers[] = {{lw_bytes_of("reason"), lw_bytes_of("bad")},
                                  {lw_bytes_of("none"), {NULL, 0}}};
    struct lw_bytes none = {NULL, 0};
    CHECK(!lw_sink_send(k, "no-such-topic", none, lw_bytes_of("x"), NULL, 0, on_done, &sink_ok,
                        &err));
    CHECK(!lw_sink_send(k, "letters", lw_bytes("k\0y", 3), lw_bytes_of("hello"), headers, 2,
                        on_done, &sink_ok, &err));
    CHECK(!lw_sink_send(k, "letters", none, none, NULL, 0, on_done, &sink_ok, &err));
    for (int64_t until = lw_boot_ms() + GIVE_UP_MS; sink_ok + sink_bad < 3 && lw_boot_ms() < until;
         lw_sleep_ms(20))
        lw_sink_poll(k);
    CHECK(sink_ok == 2 && sink_bad == 1 && !sink_never);
    CHECK(
        !lw_sink_send(k, "nor-this-one", none, lw_bytes_of("x"), NULL, 0, on_done, &sink_ok, &err));
    lw_sink_close(k, 300);
    CHECK(sink_bad == 2); /* The record must be reported as failed when the sink is closed. */
    struct lw_source_events read_letters = events;
    read_letters.record = check_letter;
    setup(&m, "letters", "letters");
    m.bare = true;
    join_with(&m, &read_letters);
    UNTIL(letters_seen == 2, &m);
    leave(&m);
}

static void count_only(void *ctx, uint32_t gen, rd_kafka_message_t *r) {
    (void)gen;
    ((struct member *)ctx)->records++;
    rd_kafka_message_destroy(r);
}

static void case_measure(void) {
    static struct member m;
    enum { MESSAGES = 1000000 };
    make_topic("measure", MESSAGES);
    setup(&m, "measure", "measure");
    struct lw_source_events count = events;
    count.record = count_only;
    m.bare = true;
    join_with(&m, &count);
    UNTIL(m.records > 0, &m);
    int64_t since_us = lw_boot_us(), first = m.records;
    UNTIL(m.records == MESSAGES, &m);
    printf("      %.0f records/s singly through lw_source_poll(64)\n",
           (double)(MESSAGES - first) * 1e6 / (double)(lw_boot_us() - since_us));
    leave(&m);
}

/* --- all -------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
    bool on_demand;
} cases[] = {
    {"rebalances", case_rebalances, false},
    /* The case `cooperative` runs only if it is named, because bugs of librdkafka make it fail. */
    {"cooperative", case_cooperative, true},
    {"seek", case_seek, false},
    {"hold", case_hold, false},
    {"commits", case_commits, false},
    {"reset", case_reset, false},
    {"fatal", case_fatal, false},
    {"max_poll", case_max_poll, false},
    {"admin", case_admin, false},
    {"sink", case_sink, false},
    {"restart", case_restart, false},
    {"declined", case_declined, false},
    {"static", case_static, false},
    {"close_alone", case_close_alone, false},
    {"measure", case_measure, true},
};

/* Ends a test that hangs, and prints the command that the test started last. To find the cause of a
 * hang, run the case again and attach gdb(1). */
static void hangs(int sig) {
    (void)sig;
    static const char text[] = "      no end in time; the command started last: ";
    if (write(STDOUT_FILENO, text, sizeof text - 1) > 0 &&
        write(STDOUT_FILENO, line, sizeof line) > 0)
        _exit(1);
    _exit(2);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: source_test BROKERS KAFKA_DIR [CASE]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    brokers = argv[1];
    kafka_dir = argv[2];
    tools_dir = dirname(lw_strdup(argv[0]));
    lw_log_setup(getenv("LW_TEST_LOG") ? LW_LOG_DEBUG : LW_LOG_OFF, false, "source_test");
    signal(SIGALRM, hangs);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 3 ? strcmp(argv[3], cases[i].name) != 0 : cases[i].on_demand) continue;
        memset(seen, 0, sizeof seen);
        problems = 0;
        alarm(LIMIT_S);
        int64_t since_ms = lw_boot_ms();
        cases[i].run();
        printf("%s source %s (%lld ms)\n", problems ? "FAIL" : "ok  ", cases[i].name,
               (long long)(lw_boot_ms() - since_ms));
        if (problems)
            failed++;
        else
            passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
