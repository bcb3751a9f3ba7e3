/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork dev: starts everything, shows it, ends everything. cli/dev/private.h tells what is started. */
#include "cli/dev/dev.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/dev/demo.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TICK_MS = 5, READY_MS = 30000, DEMO_MS = 120000, FLEET_END_MS = 15000, CHILD_END_MS = 2000 };
enum {
    DEFAULT_WORKERS = 4,
    DEFAULT_RATE = 500,
    BURST_MS = 100,
    RATE_MAX = 20000,
    DEMO_MESSAGES = 20000,
    DEMO_RATE = 3000,
    DEMO_BURST_MS = 1000
};

static const char help_text[] =
    "usage: latchwork dev [--workers N] [--rate N] [--keep] | --demo\n"
    "\n"
    "Everything on this machine, with nothing configured: a private redis-server, a broker in memory,\n"
    "sample orders being produced, workers that insert them into SQLite, and a live line of what happens.\n"
    "All of it lives in one temporary folder. Ctrl-C ends it and leaves nothing behind.\n"
    "\n"
    "      --workers N   worker processes (4)\n"
    "      --rate N      orders a second (500)\n"
    "      --keep        the folder stays\n"
    "      --demo        20,000 messages of 2,000 primary keys, one worker killed half-way; ends by itself with\n"
    "                    a table of figures, and with 0 only if they are as they must be\n"
    "  -h, --help        this text\n"
    "\n"
    "Exit status: 0 ended by Ctrl-C, or the demo's figures are right; 1 a failure; 2 usage.\n";

struct dev {
    struct dev_options o;
    struct dev_home home;
    struct dev_shared *shared;
    struct dev_view view;
    struct dev_demo demo;
    struct dev_child redis, broker, traffic, fleet;
    sigset_t signals;
    bool stop; /* asked to end */
};

/* --- options -------------------------------------------------------------------------------------------------------------------- */

static int misuse(const char *fmt, const char *what) {
    fputs("latchwork dev: ", stderr);
    fprintf(stderr, fmt, what);
    fputs("; see: latchwork dev --help\n", stderr);
    return -1;
}

static int number(const char *name, const char *text, int64_t max, int64_t *out) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && n >= 1 && n <= max) {
        *out = n;
        return 0;
    }
    fprintf(stderr, "latchwork dev: %s %s: a number from 1 to %" PRId64 " is wanted\n", name, text, max);
    return -1;
}

static int parse(struct dev_options *o, bool *help, int argc, char **argv) {
    static const struct option options[] = {
        {"workers", required_argument, NULL, 'w'}, {"rate", required_argument, NULL, 'r'}, {"keep", no_argument, NULL, 'k'},
        {"demo", no_argument, NULL, 'd'},          {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0},
    };
    int64_t workers = DEFAULT_WORKERS;
    int opt;
    bool sized = false;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        sized |= opt == 'w' || opt == 'r';
        switch (opt) {
        case 'w':
            if (number("--workers", optarg, DEV_WORKERS, &workers)) return -1;
            break;
        case 'r':
            if (number("--rate", optarg, RATE_MAX, &o->rate)) return -1;
            break;
        case 'k': o->keep = true; break;
        case 'd': o->demo = true; break;
        case 'h': *help = true; break;
        case ':': return misuse("%s needs a value", argv[optind - 1]);
        default: return misuse("unknown option %s", argv[optind - 1]);
        }
    }
    o->workers = (int)workers;
    if (*help) return 0;
    if (optind < argc) return misuse("unexpected argument %s", argv[optind]);
    return o->demo && sized ? misuse("--workers and --rate are given for the demo%s", "") : 0;
}

static void set_demo(struct dev_options *o) {
    o->workers = DEFAULT_WORKERS;
    o->rate = DEMO_RATE;
    o->messages = DEMO_MESSAGES;
    o->burst_ms = DEMO_BURST_MS;
}

/* --- signals -------------------------------------------------------------------------------------------------------------------- */

/* They are only looked for where it suits: nothing is ever left half-done by one. */
static void hold_signals(struct dev *d) {
    sigemptyset(&d->signals);
    sigaddset(&d->signals, SIGINT), sigaddset(&d->signals, SIGTERM), sigaddset(&d->signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &d->signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader of our output that goes away ends us in order, too */
    signal(SIGCHLD, SIG_DFL); /* ignored by who started us, no child could be waited for */
}

/* Waits, at most ms, for a wish to end. */
static bool asked_to_stop(struct dev *d, int64_t ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    if (sigtimedwait(&d->signals, NULL, &t) > 0 || ferror(stdout)) d->stop = true;
    return d->stop;
}

/* --- starting ------------------------------------------------------------------------------------------------------------------- */

static int share(struct dev *d, struct lw_err *err) {
    d->shared = mmap(NULL, sizeof *d->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (d->shared != MAP_FAILED) return 0;
    d->shared = NULL;
    return lw_fail(err, "shared memory: %s", strerror(errno));
}

static int configure(struct dev *d, char **text, struct lw_err *err) {
    if (d->o.demo && setenv("LATCHWORK_JOURNAL", d->home.journal, 1)) return lw_fail(err, "setenv: %s", strerror(errno));
    return dev_home_configure(&d->home, &d->o, d->shared->brokers, text, err);
}

/* 0: all workers are ready; -1: one of the children has failed, or it takes too long. Ends early when asked to stop. */
static int await_workers(struct dev *d, struct lw_err *err) {
    int64_t until = lw_boot_ms() + READY_MS;
    int ready = 0;
    while (ready < d->o.workers && !asked_to_stop(d, TICK_MS)) {
        ready = 0;
        for (int i = 0; i < d->o.workers; i++) ready += atomic_load(&d->shared->workers[i].ready);
        if (dev_child_ended(&d->fleet)) return lw_fail(err, "the supervisor ended at once; see %s", d->home.log);
        if (lw_boot_ms() >= until)
            return lw_fail(err, "%d of %d workers are ready after %d s; see %s", ready, d->o.workers, READY_MS / 1000, d->home.log);
    }
    return 0;
}

static int start_all(struct dev *d, struct lw_err *err) {
    char *config = NULL;
    int r = dev_redis_start(&d->redis, &d->home, err);
    if (!r) r = dev_broker_start(&d->broker, &d->home, d->shared, err);
    if (!r) r = configure(d, &config, err);
    if (!r) r = dev_fleet_start(&d->fleet, &d->home, d->shared, err);
    if (!r) r = dev_traffic_start(&d->traffic, &d->home, &d->o, d->shared, err);
    if (!r) r = await_workers(d, err);
    if (!r && !d->stop) {
        dev_view_init(&d->view, &d->home, &d->o, d->shared);
        dev_view_welcome(&d->view, config);
        atomic_store(&d->shared->go, true);
    }
    free(config);
    return r;
}

/* --- running -------------------------------------------------------------------------------------------------------------------- */

static int look_after(struct dev *d, struct lw_err *err) {
    struct dev_child *all[] = {&d->redis, &d->broker, &d->traffic, &d->fleet};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!dev_child_ended(all[i])) continue;
        char how[160];
        dev_child_describe(all[i], how, sizeof how);
        return lw_fail(err, "%s; see %s", how, d->home.log);
    }
    return 0;
}

static int run_all(struct dev *d, struct lw_err *err) {
    int64_t until = lw_boot_ms() + DEMO_MS;
    while (!asked_to_stop(d, TICK_MS)) {
        if (look_after(d, err)) return -1;
        dev_view_tick(&d->view);
        if (!d->o.demo) continue;
        dev_demo_tick(&d->demo, &d->view);
        if (dev_demo_finished(&d->view)) return 0;
        if (lw_boot_ms() >= until) {
            dev_view_say(&d->view, "not finished after %d s", DEMO_MS / 1000);
            return 0; /* the figures will tell what is missing */
        }
    }
    return 0;
}

/* --- ending --------------------------------------------------------------------------------------------------------------------- */

/* The workers settle and commit, which takes Redis and the broker: those go last. */
static void end_fleet(struct dev *d) { dev_child_end(&d->fleet, FLEET_END_MS); }

static void end_all(struct dev *d) {
    end_fleet(d);
    dev_child_end(&d->traffic, CHILD_END_MS);
    dev_child_end(&d->broker, CHILD_END_MS);
    dev_child_end(&d->redis, CHILD_END_MS);
}

static int judge(struct dev *d) {
    double s = (double)(lw_boot_ms() - d->view.start_ms) / 1000;
    end_fleet(d);
    dev_view_say(&d->view, "finished in %.1f s", s);
    int bad = dev_demo_judge(&d->demo, &d->view);
    if (!bad) puts("All figures are as they must be.");
    return bad ? 1 : 0;
}

/* After a failure the folder tells more, if anything came so far as to write to its log. */
static bool worth_keeping(const struct dev *d) {
    struct stat log;
    return stat(d->home.log, &log) == 0 && log.st_size > 0;
}

static int run(struct dev *d) {
    struct lw_err err = {0};
    int status = 0;
    if (share(d, &err) || dev_home_make(&d->home, &err)) {
        fprintf(stderr, "latchwork dev: %s\n", err.text);
        return 1;
    }
    if (start_all(d, &err) || (!d->stop && run_all(d, &err))) {
        if (d->view.live) putchar('\n');
        fflush(stdout);
        fprintf(stderr, "latchwork dev: %s\n", err.text);
        status = 1;
    }
    if (!status && d->stop) {
        if (d->view.start_ms) dev_view_say(&d->view, "ending");
        if (d->o.demo) status = 1; /* nothing was shown */
    } else if (!status) {
        status = judge(d);
    }
    end_all(d);
    if (d->o.keep || (status && !d->stop && worth_keeping(d)))
        printf("kept: %s\n", d->home.folder);
    else
        dev_home_remove(&d->home);
    return status;
}

int lw_cmd_dev(int argc, char **argv) {
    struct dev *d = lw_alloc(sizeof *d);
    d->o = (struct dev_options){.rate = DEFAULT_RATE, .every = 10, .burst_ms = BURST_MS};
    bool help = false;
    int status = 2;
    if (parse(&d->o, &help, argc, argv) == 0) {
        if (d->o.demo) set_demo(&d->o);
        if (!help) hold_signals(d);
        status = help ? 0 : run(d);
        if (help) fputs(help_text, stdout);
    }
    free(d);
    return status;
}
