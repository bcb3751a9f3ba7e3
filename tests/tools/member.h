/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a consumer group, for source_test.c. Each member checks the records that its source
 * delivers. The topics have no gaps, so the offsets of a partition must be contiguous, and a member
 * notices each record that is skipped, repeated or out of order. */
#ifndef LW_TESTS_MEMBER_H
#define LW_TESTS_MEMBER_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "kafka/source.h"
#include "queue/epoch.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 4, GENS = 64, GIVE_UP_MS = 60000, OFFSETS = 400000 };

static const char *brokers, *kafka_dir, *tools_dir;
static int passed, failed, problems;

/* --- checking --------------------------------------------------------------------------------- */

static void problem(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void problem(const char *fmt, ...) {
    if (problems++ > 10) return;
    va_list args;
    va_start(args, fmt);
    printf("      ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

#define CHECK(what)                                           \
    do {                                                      \
        if (!(what)) problem("line %d: %s", __LINE__, #what); \
    } while (0)

/* --- running tools ---------------------------------------------------------------------------- */

static char line[1024]; /* the shell command that was started last */

__attribute__((format(printf, 1, 0))) static pid_t spawn(const char *fmt, va_list args) {
    vsnprintf(line, sizeof line, fmt, args);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void finish(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (status) {
        printf("a tool failed\n");
        exit(1);
    }
}

static pid_t start(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static pid_t start(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    pid_t pid = spawn(fmt, args);
    va_end(args);
    return pid;
}

#define TOOL(fmt, ...) finish(start("%s/kafkatool %s " fmt, tools_dir, brokers, __VA_ARGS__))
#define RIG(command) \
    finish(start("tests/live/kafka/kafka.sh %s %s > /dev/null", command, kafka_dir))

/* --- members of a group ----------------------------------------------------------------------- */

struct owned {
    uint32_t gen;
    int32_t partition;
    int64_t next; /* offset of the record that must be delivered next */
    int64_t committed, begin, log_begin, log_end, end;
    bool gone, held;
};

struct member {
    struct lw_source *s;
    struct lw_config c;
    const char *member_id; /* id of a static member; NULL for a dynamic member */
    struct lw_property properties[12];
    struct owned owned[GENS];
    int n_owned;
    int64_t records;
    int assigns, revokes, revoked_parts, losts, commits_ok, commits_bad;
    /* `seek_every` is the number of records between two seeks in the record callback; 0 means no
     * seeks. `seeks` is the number of seeks so far. */
    int64_t seek_every, seeks;
    /* If `bare` is true, the member commits nothing when partitions are revoked, and does not check
     * the offset that is reported at the end of a partition. */
    bool bare;
    /* A reluctant member lets partitions go only after it was asked six times. `not_yet` counts how
     * often it refused the present revocation. */
    bool reluctant;
    int not_yet;
    /* the fleet that the last answer to lw_source_look() named */
    bool looked;
    char fleet[LW_FLEET + 1];
    char fatal[1024];
    char topic[64], group[64], reset[16];
};

static uint8_t seen[PARTS][OFFSETS]; /* number of deliveries of each offset in the current case */

static struct owned *owned_by(struct member *m, uint32_t gen) {
    for (int i = 0; i < m->n_owned; i++)
        if (m->owned[i].gen == gen) return &m->owned[i];
    return NULL;
}

static struct owned *current(struct member *m, int32_t partition) {
    for (int i = m->n_owned - 1; i >= 0; i--)
        if (m->owned[i].partition == partition && !m->owned[i].gone) return &m->owned[i];
    return NULL;
}

static int n_current(struct member *m) {
    int n = 0;
    for (int i = 0; i < m->n_owned; i++) n += !m->owned[i].gone;
    return n;
}

static void on_assign(void *ctx, const struct lw_assigned *a) {
    struct member *m = ctx;
    m->assigns++;
    CHECK(m->n_owned < GENS);
    CHECK(!current(m, a->partition));
    CHECK(!strcmp(a->topic, m->topic));
    for (int i = 0; i < m->n_owned; i++) CHECK(m->owned[i].gen < a->gen);
    struct owned *o = &m->owned[m->n_owned++];
    *o = (struct owned){.gen = a->gen,
                        .partition = a->partition,
                        .next = a->begin,
                        .committed = a->committed,
                        .begin = a->begin,
                        .end = -1};
    o->log_begin = a->log_begin;
    o->log_end = a->log_end;
}

static bool on_revoke(void *ctx, const uint32_t *gens, size_t n, bool lost) {
    struct member *m = ctx;
    if (m->reluctant && !lost && ++m->not_yet <= 5) return false;
    m->not_yet = 0;
    m->revokes++;
    m->losts += lost;
    m->revoked_parts += (int)n;
    if (m->bare) return true;
    struct lw_commit all[PARTS] = {0};
    for (size_t i = 0; i < n; i++) {
        struct owned *o = owned_by(m, gens[i]);
        CHECK(o && !o->gone);
        if (!o) return true;
        all[i] = (struct lw_commit){o->gen, o->next, ""};
    }
    struct lw_err err = {0};
    if (!lost && lw_source_commit_sync(m->s, all, n, NULL, 10000, &err))
        problem("commit at revoke: %s", err.text);
    for (size_t i = 0; i < n; i++) owned_by(m, gens[i])->gone = true;
    return true;
}

static void maybe_seek(struct member *m, struct owned *o) {
    if (!m->seek_every || m->records % m->seek_every) return;
    int64_t to = o->next > 700 ? o->next - rand() % 700 : 0;
    struct lw_err err = {0};
    if (lw_source_seek(m->s, o->gen, to, &err)) problem("seek: %s", err.text);
    o->next = to;
    m->seeks++;
}

static void on_record(void *ctx, uint32_t gen, rd_kafka_message_t *r) {
    struct member *m = ctx;
    struct owned *o = owned_by(m, gen);
    if (m->not_yet) problem("a record came while a revocation waits");
    if (!o || o->gone || o->held)
        problem("record of partition %d, which is %s", (int)r->partition,
                o && o->held ? "held" : "not ours");
    else if (r->partition != o->partition || r->offset != o->next)
        problem("%d: offset %" PRId64 " came, expected %" PRId64, (int)r->partition, r->offset,
                o->next);
    m->records++;
    if (r->offset < OFFSETS && seen[r->partition][r->offset] < 255) seen[r->partition][r->offset]++;
    if (o) {
        o->next = r->offset + 1;
        maybe_seek(m, o);
    }
    rd_kafka_message_destroy(r);
}

static void on_end(void *ctx, uint32_t gen, int64_t offset) {
    struct owned *o = owned_by(ctx, gen);
    if (((struct member *)ctx)->bare) return;
    CHECK(o && !o->gone);
    if (!o) return;
    CHECK(offset == o->next);
    o->end = offset;
}

static void on_committed(void *ctx, uint32_t gen, int64_t offset, bool ok) {
    struct member *m = ctx;
    (void)offset;
    CHECK(owned_by(m, gen));
    m->commits_ok += ok;
    m->commits_bad += !ok;
}

static void on_looked(void *ctx, const struct lw_group_offset *o) {
    struct member *m = ctx;
    m->looked = true;
    if (o->fleet[0]) snprintf(m->fleet, sizeof m->fleet, "%s", o->fleet);
}

static void on_fatal(void *ctx, const char *reason) {
    struct member *m = ctx;
    CHECK(!*m->fatal);
    snprintf(m->fatal, sizeof m->fatal, "%s", reason);
}

static const struct lw_source_events events = {on_assign,    on_revoke, on_record, on_end,
                                               on_committed, on_looked, NULL,      on_fatal};

static void setup(struct member *m, const char *topic, const char *group) {
    *m = (struct member){0};
    snprintf(m->topic, sizeof m->topic, "%s", topic);
    snprintf(m->group, sizeof m->group, "%s", group);
    /* `topics` is a ring of topic names, one per call of setup(). At most eight members may use
     * their names at the same time, because each call frees the name of the eighth call before it.
     * The last eight names are never freed. */
    static char *topics[8];
    static int used;
    char **slot = &topics[used++ % 8];
    free(*slot);
    *slot = lw_strdup(topic);
    m->c.kafka.topics = slot;
    m->c.kafka.n_topics = 1;
    m->c.kafka.group_id = m->group;
    m->c.kafka.properties = m->properties;
}

static void property(struct member *m, const char *name, const char *value) {
    m->properties[m->c.kafka.n_properties++] =
        (struct lw_property){.name = (char *)(uintptr_t)name, .value = (char *)(uintptr_t)value};
}

static void join_with(struct member *m, const struct lw_source_events *ev) {
    property(m, "bootstrap.servers", brokers);
    /* Use a short fetch wait, because a seek waits until the fetch in flight is answered. */
    property(m, "fetch.wait.max.ms", "20");
    property(m, "auto.offset.reset", m->c.kafka.reset_latest ? "latest" : "earliest");
    struct lw_err err = {0};
    m->s = lw_source_open(&m->c, m->member_id, ev, m, &err);
    if (!m->s) {
        printf("can't open: %s\n", err.text);
        exit(1);
    }
}

static void join(struct member *m) { join_with(m, &events); }

static void leave(struct member *m) {
    if (m->s) lw_source_close(m->s, 10000);
    m->s = NULL;
    CHECK(m->bare || n_current(m) == 0);
}

/* Waits for an event of any member, then polls each member once. */
static void turn(struct member **all, int n) {
    struct pollfd fds[4];
    for (int i = 0; i < n; i++)
        fds[i] = (struct pollfd){.fd = lw_source_fd(all[i]->s), .events = POLLIN};
    poll(fds, (nfds_t)n, 100);
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (fds[i].revents && read(fds[i].fd, &count, sizeof count) < 0) CHECK(errno == EAGAIN);
        lw_source_poll(all[i]->s, 64);
    }
}

#define UNTIL(condition, ...)                                                              \
    do {                                                                                   \
        struct member *these[] = {__VA_ARGS__};                                            \
        int64_t until_ms = lw_boot_ms() + GIVE_UP_MS;                                      \
        while (!(condition) && lw_boot_ms() < until_ms)                                    \
            turn(these, (int)(sizeof these / sizeof *these));                              \
        if (!(condition)) problem("line %d: waited in vain for %s", __LINE__, #condition); \
    } while (0)

/* Polls the members for the whole given time, even if an event comes earlier. */
#define DURING(ms, ...)                                                        \
    do {                                                                       \
        struct member *these[] = {__VA_ARGS__};                                \
        for (int64_t until_ms = lw_boot_ms() + (ms); lw_boot_ms() < until_ms;) \
            turn(these, (int)(sizeof these / sizeof *these));                  \
    } while (0)

static int64_t distinct(void) {
    int64_t n = 0;
    for (int p = 0; p < PARTS; p++)
        for (int64_t o = 0; o < OFFSETS; o++) n += seen[p][o] > 0;
    return n;
}

static int64_t doubled(void) {
    int64_t n = 0;
    for (int p = 0; p < PARTS; p++)
        for (int64_t o = 0; o < OFFSETS; o++) n += seen[p][o] > 1;
    return n;
}

static void fill(const char *topic, int64_t n) {
    TOOL("generate %s --messages %" PRId64 " --keys 500 --partitioner roundrobin", topic, n);
}

static void make_topic(const char *topic, int64_t n) {
    TOOL("create %s %d", topic, PARTS);
    if (n) fill(topic, n);
}

static bool all_at_end(struct member *m, int64_t each) {
    int n = 0;
    for (int i = 0; i < m->n_owned; i++)
        n += !m->owned[i].gone && m->owned[i].next == each && m->owned[i].end == each;
    return n == PARTS;
}

/* Commits the position of each partition asynchronously. */
static void commit_all(struct member *m) {
    struct lw_commit all[PARTS];
    size_t n = 0;
    for (int i = 0; i < m->n_owned; i++)
        if (!m->owned[i].gone) all[n++] = (struct lw_commit){m->owned[i].gen, m->owned[i].next, ""};
    struct lw_err err = {0};
    if (n && !lw_source_commit_busy(m->s) && lw_source_commit(m->s, all, n, &err))
        problem("commit: %s", err.text);
}

#endif
