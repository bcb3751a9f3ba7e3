/* SPDX-License-Identifier: Apache-2.0 */
/* Shows on the terminal what `latchwork dev` does while it runs. */
#include "cli/dev/private.h"

#include "base/bytes.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LIVE_MS = 200, PLAIN_MS = 2000, RATE_MS = 1000, LINE = 512 };

void dev_view_init(struct dev_view *v, const struct dev_home *h, const struct dev_options *o,
                   struct dev_shared *shared) {
    int64_t now = lw_boot_ms();
    *v = (struct dev_view){
        .home = h, .o = o, .shared = shared, .start_ms = now, .shown_ms = now, .last_ms = now};
    const char *term = getenv("TERM");
    v->terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

const char *dev_count(int64_t n, char *out) {
    char digits[24];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%" PRId64, n), at = 0;
    for (size_t i = 0; i < len; i++) {
        out[at++] = digits[i];
        if ((len - i) % 3 == 1 && i + 1 < len && digits[i] != '-') out[at++] = ',';
    }
    out[at] = '\0';
    return out;
}

static void list_pids(const struct dev_view *v) {
    for (int i = 0; i < v->o->workers; i++)
        printf(" %d", (int)atomic_load(&v->shared->workers[i].pid));
    putchar('\n');
}

static void places(const struct dev_view *v) {
    const struct dev_home *h = v->home;
    printf("  page      http://127.0.0.1:%d/#/?token=%s\n", h->page_port, h->token);
    printf("  config    %s\n", h->config);
    printf("  broker    %s   topics %s and %s, %d partitions each\n", v->shared->brokers,
           dev_topics[0], dev_topics[1], DEV_PARTITIONS);
    printf("  redis     unix://%s\n", h->socket);
    if (v->shared->service_port)
        printf("  service   http://127.0.0.1:%d/orders\n", v->shared->service_port);
    else
        printf("  rows      %s   table orders\n", h->database);
    printf("  log       %s\n", h->log);
    printf("  workers  ");
    list_pids(v);
}

static void faults(void) {
    printf("\nSomething is wrong here, and the page shows what; doc/tutorial-page.md leads "
           "through it:\n\n");
    printf("  one key is stuck; find it, see who holds it, and break its lock\n");
    printf("  %d orders are dead letters; see why, correct the payload of one, and replay all at 5 "
           "per second\n",
           DEV_ODD_ORDERS);
    printf("  the service is slow for ten seconds of each ninety; the charts show when\n");
}

static void tenants(const struct dev_view *v) {
    const char *program = program_invocation_name, *config = v->home->config,
               *flood = dev_tenants[DEV_FLOOD];
    printf(
        "\nThe limits under limits.group are for each tenant. Orders of %s wait in Redis, in order, "
        "and those of the others go through. Try, in another terminal:\n\n",
        flood);
    printf("  %s group ls -c %s\n", program, config);
    printf("      who runs, who waits, and since when a tenant has been held up by its limits\n");
    printf("  %s group set %s -c %s --per-second 50\n", program, flood, config);
    printf("      more for one tenant, at once, in all workers\n");
    printf("  %s group pause %s -c %s\n", program, flood, config);
    printf("      nothing of it starts, and the others go on\n");
    printf("  %s queue show %s-1 -c %s\n", program, flood, config);
    printf("      why nothing of this customer runs\n");
    printf("  %s group resume %s -c %s\n", program, flood, config);
}

static void hints(const struct dev_view *v) {
    const struct dev_home *h = v->home;
    printf("\nTry, in another terminal:\n\n");
    printf("  kill -9 %d\n", (int)atomic_load(&v->shared->workers[0].pid));
    printf("      a worker dies in the middle of its work; the others continue its orders, and "
           "none is lost or inserted twice\n");
    printf("  redis-cli -s %s FLUSHALL\n", h->socket);
    printf("      Redis forgets everything; Kafka is the source of truth\n");
    printf("  sqlite3 %s 'select count(*), count(distinct id) from orders'\n", h->database);
    printf("  %s queue ls -c %s\n", program_invocation_name, h->config);
    printf("      list the keys that have waiting messages; most of the time there are few\n");
    printf("  %s run -c %s\n", program_invocation_name, h->config);
    printf("      more workers join the group\n");
    printf("  kcat -b %s -C -t %s -o -5 -e\n", v->shared->brokers, dev_topics[0]);
    printf("      the last orders (kcat is a program of its own; clients made of librdkafka work, "
           "Java's do not)\n");
}

void dev_view_welcome(const struct dev_view *v, const char *config) {
    char rate[32], all[32], keys[32];
    dev_count(v->o->rate, rate);
    if (v->o->demo) {
        printf("Latchwork demo: %s messages of %s primary keys over two topics, %d workers, one of "
               "them killed with -9 half-way.\n\n",
               dev_count(v->o->messages, all), dev_count(v->o->messages / v->o->every, keys),
               v->o->workers);
        places(v);
    } else {
        printf("Latchwork dev: %s orders per second; ", rate);
        if (v->o->tenants)
            printf("most are of one tenant, %s", dev_tenants[DEV_FLOOD]);
        else
            printf("one in %d is new, the others repeat an earlier one", (int)v->o->every);
        printf(". Ctrl-C ends it%s.\n\n", v->o->keep ? "" : " and leaves nothing behind");
        places(v);
        printf("\n%s", config);
        if (v->o->faults)
            faults();
        else if (v->o->tenants)
            tenants(v);
        else
            hints(v);
    }
    putchar('\n');
    fflush(stdout);
}

static int alive(const struct dev_view *v) {
    int n = 0;
    for (int i = 0; i < v->o->workers; i++) n += atomic_load(&v->shared->workers[i].pid) > 0;
    return n;
}

/* Returns the number of done messages. With a service, this is the sum of the workers' counts.
 * Otherwise it is the number of rows that were inserted or ignored as duplicates, as the database's
 * transactions counted them. The workers' counts would be too low, because a killed worker may not
 * have seen the end of its last transaction. */
static int64_t written(struct dev_view *v) {
    if (v->shared->service_port) return (int64_t)atomic_load(&v->shared->done);
    struct dev_rows rows;
    /* if reading fails, the figures of the last successful reading are used */
    if (!dev_rows_read(v->home, &rows, NULL)) v->rows = rows;
    return v->rows.inserted + v->rows.ignored;
}

/* Measures the rate over at least a second, because messages are produced in bursts. */
static void measure(struct dev_view *v, int64_t now, int64_t done) {
    int64_t span = now - v->last_ms;
    if (span < RATE_MS) return;
    v->rate = (done - v->last_done) * 1000 / span;
    v->last_done = done;
    v->last_ms = now;
}

/* The tenant that floods comes last, with its rate. */
static void compose_tenants(struct dev_view *v, int64_t now, const char *waiting, char *out,
                            size_t size) {
    struct lw_buf b = {0};
    char done[32], sent[32];
    measure(v, now, atomic_load(&v->shared->tenant_done[DEV_FLOOD]));
    lw_buf_addf(&b, "%3d s", (int)((now - v->start_ms) / 1000));
    for (int i = 0; i < DEV_TENANTS; i++) {
        int tenant = (DEV_FLOOD + 1 + i) % DEV_TENANTS;
        lw_buf_addf(&b, "  %s %s of %s", dev_tenants[tenant],
                    dev_count(atomic_load(&v->shared->tenant_done[tenant]), done),
                    dev_count(atomic_load(&v->shared->tenant_sent[tenant]), sent));
    }
    lw_buf_addf(&b, ", %d/s  waiting %s%c", (int)v->rate, waiting, 0);
    snprintf(out, size, "%s", b.p);
    lw_buf_free(&b);
}

static void compose(struct dev_view *v, int64_t now, char *out, size_t size) {
    char n[7][32], waiting[32] = "?";
    int64_t done = written(v), in_redis = dev_redis_waiting(v->home);
    if (in_redis >= 0) dev_count(in_redis, waiting);
    if (v->o->tenants) {
        compose_tenants(v, now, waiting, out, size);
        return;
    }
    measure(v, now, done);
    dev_count(atomic_load(&v->shared->produced), n[0]), dev_count(done, n[1]),
        dev_count(v->rate, n[2]);
    dev_count(v->rows.rows, n[3]), dev_count(v->rows.ignored, n[4]);
    dev_count((int64_t)atomic_load(&v->shared->parked), n[5]),
        dev_count((int64_t)atomic_load(&v->shared->drained), n[6]);
    if (v->o->faults) {
        snprintf(out, size, "%3d s  %s of %s done, %s/s  workers %d/%d  waiting %s  dead %" PRIu64,
                 (int)((now - v->start_ms) / 1000), n[1], n[0], n[2], alive(v), v->o->workers,
                 waiting, atomic_load(&v->shared->dead));
        return;
    }
    snprintf(out, size,
             "%3d s  %s of %s done, %s/s  workers %d/%d  rows %s  duplicates ignored %s  waiting "
             "%s  parked %s  drained %s",
             (int)((now - v->start_ms) / 1000), n[1], n[0], n[2], alive(v), v->o->workers, n[3],
             n[4], waiting, n[5], n[6]);
}

/* Returns the maximum length of a live line, which is less than the width of the terminal. A line
 * that does not fit into one line of the terminal could not be overwritten. */
static int width(void) {
    struct winsize w = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : 79;
}

void dev_view_tick(struct dev_view *v) {
    int64_t now = lw_boot_ms();
    if (now - v->shown_ms < (v->terminal ? LIVE_MS : PLAIN_MS)) return;
    char line[LINE];
    compose(v, now, line, sizeof line);
    v->shown_ms = now;
    v->live = v->terminal;
    if (v->terminal)
        printf("\r%.*s\033[K", width(), line);
    else
        printf("%s\n", line);
    fflush(stdout);
}

void dev_view_say(struct dev_view *v, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (v->live) fputs("\r\033[K", stdout);
    v->live = false;
    vprintf(fmt, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}
