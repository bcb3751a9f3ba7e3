/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork dev`: starts the processes that cli/dev/private.h lists, shows
 * what they do, and ends them. */
#include "cli/dev/dev.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/dev/private.h"

#include <errno.h>
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
    SERVICE_WORKERS = 2,
    SERVICE_RATE = 100,
    BURST_MS = 100,
    RATE_MAX = 20000,
    DEMO_MESSAGES = 20000,
    DEMO_RATE = 3000,
    DEMO_BURST_MS = 1000
};

struct dev {
    struct dev_options o;
    struct dev_home home;
    struct dev_shared *shared;
    struct dev_view view;
    struct dev_demo demo;
    struct dev_child redis, broker, service, traffic, fleet;
    sigset_t signals;
    bool stop; /* true: this process has received a signal to end, or stdout has failed */
};

/* --- options ---------------------------------------------------------------------------------- */

struct dev_args {
    struct cli_args cli;
    int64_t workers, rate; /* values of --workers and --rate; 0: not given */
    bool keep, demo, faults, tenants;
};

static const struct cli_option options[] = {
    {.name = "workers",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "number of worker processes",
     .dflt = "4",
     .at = offsetof(struct dev_args, workers),
     .min = 1,
     .max = DEV_WORKERS},
    {.name = "rate",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "orders per second",
     .dflt = "500",
     .at = offsetof(struct dev_args, rate),
     .min = 1,
     .max = RATE_MAX},
    {.name = "keep",
     .kind = CLI_FLAG,
     .help = "keep the temporary folder",
     .at = offsetof(struct dev_args, keep)},
    {.name = "faults",
     .kind = CLI_FLAG,
     .help = "inject faults: the workers call a service that never answers one order, refuses "
             "ten, and is slow at times; 2 workers and "
             "100 orders per second by default",
     .at = offsetof(struct dev_args, faults)},
    {.name = "tenants",
     .kind = CLI_FLAG,
     .help = "limit tenants, one of which floods the others: the workers call a service for each "
             "order, no more often for a tenant than limits.group says; 2 workers and 100 orders "
             "per second by default",
     .at = offsetof(struct dev_args, tenants)},
    {.name = "demo",
     .kind = CLI_FLAG,
     .help = "run 20,000 messages of 2,000 primary keys, kill one worker half-way, print a table "
             "of figures and exit, with status 0 only if they are right",
     .at = offsetof(struct dev_args, demo)},
    {0},
};

static const char *const usage[] = {"[--workers\1N] [--rate\1N] [--faults\1|\1--tenants] [--keep]",
                                    "--demo [--keep]", NULL};
static const char *const examples[] = {"", "--faults", "--tenants", "--demo", NULL};

static const struct cli_status statuses[] = {
    {"0", "ended by Ctrl-C; with --demo: the figures are right", 0},
    {"1",
     "a process did not start, or ended early; with --demo: a figure is wrong, or the demo was "
     "interrupted",
     0},
    {"2", "usage error", 0},
    {0},
};

static void set_demo(struct dev_options *o) {
    o->workers = DEFAULT_WORKERS;
    o->rate = DEMO_RATE;
    o->messages = DEMO_MESSAGES;
    o->burst_ms = DEMO_BURST_MS;
}

/* --- signals ---------------------------------------------------------------------------------- */

/* Blocks the signals that should end the program. The program looks for these signals only between
 * two steps, so no step is interrupted. */
static void hold_signals(struct dev *d) {
    sigemptyset(&d->signals);
    sigaddset(&d->signals, SIGINT), sigaddset(&d->signals, SIGTERM), sigaddset(&d->signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &d->signals, NULL);
    /* if stdout is a pipe whose reader has ended, this process must still clean up and end
     * normally */
    signal(SIGPIPE, SIG_IGN);
    /* the parent process may have set SIGCHLD to be ignored, and then wait() would not work */
    signal(SIGCHLD, SIG_DFL);
}

/* Waits at most `ms` milliseconds for a signal that ends the program. Returns true if the program
 * must end, because such a signal has come or because stdout cannot be written. */
static bool asked_to_stop(struct dev *d, int64_t ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    if (sigtimedwait(&d->signals, NULL, &t) > 0 || ferror(stdout)) d->stop = true;
    return d->stop;
}

/* --- starting --------------------------------------------------------------------------------- */

static bool calls_service(const struct dev_options *o) { return o->faults || o->tenants; }

static int share(struct dev *d, struct lw_err *err) {
    d->shared =
        mmap(NULL, sizeof *d->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (d->shared != MAP_FAILED) return 0;
    d->shared = NULL;
    return lw_fail(err, "shared memory: %s", strerror(errno));
}

static int configure(struct dev *d, char **text, struct lw_err *err) {
    if (d->o.demo && setenv("LATCHWORK_JOURNAL", d->home.journal, 1))
        return lw_fail(err, "setenv: %s", strerror(errno));
    return dev_home_configure(&d->home, &d->o, d->shared, text, err);
}

/* Waits until all workers are ready. Returns 0 when all are ready or when a signal ends the
 * program, and -1 if a child has failed or the wait takes too long. */
static int await_workers(struct dev *d, struct lw_err *err) {
    int64_t until = lw_boot_ms() + READY_MS;
    int ready = 0;
    while (ready < d->o.workers && !asked_to_stop(d, TICK_MS)) {
        ready = 0;
        for (int i = 0; i < d->o.workers; i++) ready += atomic_load(&d->shared->workers[i].ready);
        if (dev_child_ended(&d->fleet))
            return lw_fail(err, "the supervisor ended at once; see %s", d->home.log);
        if (lw_boot_ms() >= until)
            return lw_fail(err, "%d of %d workers are ready after %d s; see %s", ready,
                           d->o.workers, READY_MS / 1000, d->home.log);
    }
    return 0;
}

static int start_all(struct dev *d, struct lw_err *err) {
    char *config = NULL;
    int r = dev_redis_start(&d->redis, &d->home, err);
    if (!r) r = dev_broker_start(&d->broker, &d->home, d->shared, err);
    if (!r && calls_service(&d->o)) r = dev_service_start(&d->service, &d->home, d->shared, err);
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

/* --- running ---------------------------------------------------------------------------------- */

static int look_after(struct dev *d, struct lw_err *err) {
    struct dev_child *all[] = {&d->redis, &d->broker, &d->service, &d->traffic, &d->fleet};
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
            /* A demo that takes too long is not reported as a failure here, because its figures
             * will show what is missing. */
            return 0;
        }
    }
    return 0;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Ends the workers first, because they need Redis and the broker in order to settle and commit. */
static void end_fleet(struct dev *d) { dev_child_end(&d->fleet, FLEET_END_MS); }

static void end_all(struct dev *d) {
    end_fleet(d);
    dev_child_end(&d->traffic, CHILD_END_MS);
    dev_child_end(&d->service, CHILD_END_MS);
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

/* Returns true if the folder should be kept after a failure, which is the case if the log in it is
 * not empty. */
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
        /* A signal stopped the program before the demo checked its figures, so the demo counts as
         * failed. */
        if (d->o.demo) status = 1;
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

static int run_args(void *args) {
    const struct dev_args *a = args;
    if (a->demo && (a->workers || a->rate))
        return cli_misuse(&a->cli, "--demo has a fixed number of workers and a fixed rate; leave "
                                   "out --workers and --rate");
    if (a->demo + a->faults + a->tenants > 1)
        return cli_misuse(&a->cli, "use only one of --demo, --faults and --tenants");
    struct dev *d = lw_alloc(sizeof *d);
    d->o = (struct dev_options){.every = 10,
                                .burst_ms = BURST_MS,
                                .keep = a->keep,
                                .demo = a->demo,
                                .faults = a->faults,
                                .tenants = a->tenants};
    bool service = calls_service(&d->o);
    d->o.workers = a->workers ? (int)a->workers : service ? SERVICE_WORKERS : DEFAULT_WORKERS;
    d->o.rate = a->rate ? a->rate : service ? SERVICE_RATE : DEFAULT_RATE;
    if (d->o.demo) set_demo(&d->o);
    hold_signals(d);
    int status = run(d);
    free(d);
    return status;
}

const struct cli_command cli_dev = {
    .name = "dev",
    .summary = "run everything on this machine, with nothing configured",
    .about = "Runs everything on this machine, with nothing configured: a private redis-server, a "
             "broker in memory, sample orders being "
             "produced, workers that insert them into SQLite, and a live line of what happens. All "
             "of it lives in one temporary folder. "
             "Ctrl-C ends it and leaves nothing behind.",
    .usage = usage,
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct dev_args),
    .run = run_args,
};
