/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the deterministic simulation. Each seed is one run, in one of the modes of faults, and is
 * checked by all oracles.
 *
 * usage: sim_lanes [--seeds N] [--first N] [--mode NAME] [--trace] [--until-bad] [--operate]
 *                  [--dead-topic] [--mutate SCRIPT FROM TO]
 *
 * --operate runs the modes with an operator (operator.h), which drops and replays messages, breaks
 * and pauses lanes, and makes trials during the run. To repeat one seed:
 * sim_lanes --first SEED --seeds 1 --trace */
#include "tests/sim/world/world.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct faults modes[] = {
    {.name = "calm"},
    {.name = "loss", .loss = 1},
    {.name = "crash", .crash = 1, .loss = 1},
    {.name = "zombie", .crash = 1, .pause = 1, .loss = 1},
    {.name = "wipe", .wipe = 1},
    {.name = "wipeloss", .wipe = 1, .loss = 1},
    {.name = "failover", .failover = 1, .loss = 1},
    {.name = "all", .crash = 1, .pause = 1, .wipe = 1, .failover = 1, .loss = 1},
    {.name = "clock", .clock = 1},
    {.name = "clockback", .clock = 1, .back = true, .loss = 1},
    {.name = "late", .crash = 1, .pause = 1, .loss = 3, .pace = 4},
    {.name = "slow", .crash = 1, .pause = 2, .loss = 2, .pace = 2, .idle = 7},
    {.name = "ghost", .loss = 15, .burst = 6},
    {.name = "wipelate", .pause = 2, .wipe = 3, .loss = 1, .pace = 3, .idle = 7, .churn = 2},
    {.name = "deaf", .pause = 3, .wipe = 3, .loss = 3, .pace = 3, .churn = 4, .deaf = true},
    {.name = "floors",
     .crash = 1,
     .pause = 3,
     .loss = 2,
     .pace = 2,
     .sparse = 4096,
     .churn = 4,
     .deaf = true},
    {.name = "lag", .pause = 1, .failover = 2, .loss = 2, .pace = 3, .churn = 2, .lag = true},
    {.name = "churn", .loss = 4, .churn = 8, .burst = 12, .idle = 5},
    {.name = "ahead",
     .loss = 2,
     .burst = 12,
     .idle = 5,
     .churn = 3,
     .pool = true,
     .big = true,
     .max_run = 50},
    {.name = "aheadlate",
     .crash = 1,
     .pause = 2,
     .loss = 4,
     .pace = 3,
     .burst = 12,
     .idle = 4,
     .pool = true,
     .big = true,
     .prompt = true,
     .max_run = 50},
    {.name = "kill",
     .crash = 1,
     .pause = 3,
     .loss = 6,
     .pace = 2,
     .burst = 12,
     .idle = 3,
     .churn = 3,
     .pool = true,
     .prompt = true,
     .max_run = 20},
    {.name = "aheadwipe",
     .pause = 2,
     .wipe = 2,
     .loss = 3,
     .pace = 2,
     .burst = 12,
     .idle = 6,
     .churn = 4,
     .pool = true,
     .big = true,
     .max_run = 50},
    {.name = "tight",
     .loss = 2,
     .burst = 12,
     .idle = 4,
     .churn = 3,
     .pool = true,
     .tight = true,
     .max_run = 50},
    {.name = "tightkill",
     .crash = 1,
     .pause = 2,
     .wipe = 1,
     .loss = 4,
     .pace = 2,
     .burst = 12,
     .idle = 4,
     .pool = true,
     .tight = true,
     .prompt = true,
     .max_run = 20},
    {.name = "repair",
     .loss = 1,
     .churn = 4,
     .ttl_ms = 3000,
     .repairs = 2,
     .linger = 9,
     .burst = 12,
     .cut_repairs = 4,
     .disaster = 1.5},
    {.name = "repairlate",
     .crash = 0.5,
     .pause = 0.5,
     .wipe = 0.3,
     .loss = 3,
     .churn = 3,
     .ttl_ms = 2000,
     .repairs = 1,
     .linger = 5,
     .burst = 12,
     .pool = true,
     .max_run = 50,
     .commits = 0.3,
     .seeks = 0.3,
     .cut_repairs = 2,
     .disaster = 1},
    {.name = "offline",
     .crash = 0.3,
     .wipe = 0.3,
     .failover = 0.2,
     .loss = 3,
     .churn = 3,
     .linger = 7,
     .commits = 4,
     .seeks = 1},
    {.name = "dedup", .dedup = true, .loss = 1, .churn = 2, .burst = 6},
    {.name = "dedupkill",
     .dedup = true,
     .crash = 1,
     .pause = 1,
     .wipe = 1,
     .loss = 3,
     .churn = 2,
     .burst = 6,
     .prompt = true},
    {.name = "skip", .skip = true, .crash = 1, .loss = 2, .churn = 2, .burst = 6},
    {.name = "poison",
     .poison = true,
     .loss = 1,
     .churn = 2,
     .burst = 6,
     .pool = true,
     .max_run = 20},
    {.name = "stubborn", .stubborn = true, .churn = 2, .burst = 6},
    {.name = "later", .later = true, .crash = 0.5, .pause = 0.5, .loss = 2, .churn = 2, .burst = 6},
    {.name = "repairs", .wipe = 4, .failover = 1, .loss = 20, .pace = 2, .churn = 4, .deaf = true},
    {.name = "vanish", .vanish = 2, .crash = 1, .loss = 1},
    /* In the modes far and farlag, more than 64 segments lie between the watermark and the waiting
     * messages, as in a compacted topic. */
    {.name = "far", .crash = 1, .loss = 2, .churn = 2, .sparse = 1 << 22},
    {.name = "ttls", .pause = 3, .wipe = 2, .loss = 2, .pace = 3, .churn = 2, .longer = 4},
    {.name = "farlag", .failover = 2, .loss = 1, .churn = 2, .sparse = 1 << 22, .lag = true},
    {.name = "attach", .attach = 3, .loss = 1, .crash = 1},
    {.name = "failback", .failback = 1, .attach = 1, .loss = 1},
    {.name = "limits",
     .running = 2,
     .per_second = 40,
     .fine = true,
     .loss = 1,
     .churn = 2,
     .burst = 6},
    {.name = "limitskill",
     .running = 2,
     .per_second = 100,
     .fine = true,
     .crash = 1,
     .pause = 1,
     .loss = 2,
     .churn = 2,
     .burst = 6,
     .prompt = true},
    {.name = "limitswipe",
     .running = 3,
     .wipe = 2,
     .failover = 1,
     .pause = 1,
     .loss = 2,
     .churn = 2,
     .burst = 6,
     .linger = 7},
    {.name = "limitsclock",
     .per_second = 100,
     .fine = true,
     .clock = 1,
     .back = true,
     .wipe = 1,
     .loss = 1},
    {.name = "groups",
     .running = 3,
     .per_second = 60,
     .group_running = 2,
     .group_per_second = 35,
     .fine = true,
     .loss = 1,
     .churn = 2,
     .burst = 6},
    {.name = "groupskill",
     .group_running = 1,
     .group_per_second = 50,
     .fine = true,
     .crash = 1,
     .pause = 1,
     .loss = 2,
     .churn = 2,
     .burst = 6,
     .prompt = true},
    {.name = "groupswipe",
     .running = 3,
     .group_running = 2,
     .wipe = 2,
     .failover = 1,
     .pause = 1,
     .loss = 2,
     .churn = 2,
     .burst = 6,
     .linger = 7},
    {.name = "groupstune",
     .running = 3,
     .per_second = 100,
     .group_running = 2,
     .group_per_second = 50,
     .one_free = true,
     .fine = true,
     .retune = 0.2,
     .crash = 1,
     .pause = 1,
     .loss = 1,
     .churn = 2,
     .burst = 6},
    {.name = "fair",
     .groups = true,
     .crash = 1,
     .pause = 1,
     .wipe = 0.5,
     .loss = 2,
     .churn = 2,
     .burst = 12,
     .tight = true,
     .linger = 7,
     .prompt = true},
    {.name = "errors", .errors = 1, .loss = 1, .churn = 2, .burst = 6},
    {.name = "errorskill",
     .errors = 2,
     .refusals = 0.3,
     .full = 0.3,
     .crash = 1,
     .pause = 1,
     .loss = 2,
     .pace = 2,
     .burst = 12,
     .idle = 4,
     .churn = 2,
     .pool = true,
     .prompt = true,
     .max_run = 20},
    {.name = "errorswipe",
     .errors = 2,
     .refusals = 1,
     .wipe = 1,
     .failover = 1,
     .loss = 1,
     .churn = 2,
     .linger = 7,
     .burst = 12},
    {.name = "torn", .torn = 1, .crash = 0.3, .loss = 1, .churn = 2, .burst = 6},
    {.name = "tornkill",
     .torn = 3,
     .crash = 1,
     .pause = 1,
     .wipe = 0.5,
     .failover = 0.5,
     .loss = 2,
     .sparse = 300,
     .churn = 3,
     .burst = 12,
     .idle = 4,
     .pool = true,
     .prompt = true,
     .max_run = 20},
    {.name = "full",
     .full = 2,
     .crash = 0.5,
     .loss = 1,
     .churn = 2,
     .burst = 12,
     .pool = true,
     .max_run = 20},
    {.name = "first",
     .fresh = true,
     .ttl_ms = 3000,
     .crash = 2,
     .pause = 2,
     .wipe = 2,
     .loss = 1,
     .idle = 6,
     .churn = 8},
    {.name = "firstall",
     .fresh = true,
     .crash = 1,
     .pause = 2,
     .wipe = 2,
     .failover = 2,
     .lag = true,
     .loss = 2,
     .attach = 1,
     .failback = 0.5,
     .errors = 1,
     .pace = 2,
     .idle = 4,
     .churn = 3,
     .burst = 6,
     .pool = true,
     .commits = 0.3,
     .seeks = 0.3,
     .disaster = 1,
     .max_run = 20},
    {.name = "slots", .move = 0.5, .planned = true, .ttl_ms = 8000},
    {.name = "slotsloss", .move = 2, .loss = 1, .crash = 1, .churn = 2, .burst = 6},
    {.name = "slotskill",
     .move = 2,
     .restart = 1,
     .failover = 0.5,
     .crash = 1,
     .pause = 1,
     .loss = 2,
     .pace = 2,
     .burst = 12,
     .idle = 4,
     .churn = 2,
     .pool = true,
     .prompt = true,
     .max_run = 20},
    {.name = "slotslost",
     .move = 1,
     .restart = 2,
     .failover = 0.5,
     .lag = true,
     .loss = 0.3,
     .idle = 6,
     .ttl_ms = 6000},
    {.name = "unlist", .unlist = 2, .loss = 1, .churn = 2},
    {.name = "unlistkill",
     .unlist = 2,
     .crash = 2,
     .pause = 1,
     .loss = 3,
     .churn = 3,
     .burst = 12,
     .idle = 5},
    {.name = "unlistskip",
     .skip = true,
     .unlist = 2,
     .crash = 1,
     .loss = 2,
     .churn = 2,
     .burst = 6},
    {.name = "refused", .refused = true, .loss = 0.5, .churn = 0.1, .burst = 12, .pool = true},
    {.name = "latest", .latest = true, .loss = 1, .churn = 2, .burst = 12, .idle = 5, .pool = true},
    {.name = "latestkill",
     .latest = true,
     .crash = 1,
     .pause = 2,
     .loss = 3,
     .pace = 2,
     .burst = 12,
     .idle = 4,
     .churn = 3,
     .prompt = true,
     .max_run = 20},
    {.name = "latestwipe",
     .latest = true,
     .wipe = 2,
     .failover = 1,
     .pause = 1,
     .loss = 2,
     .churn = 3,
     .burst = 12,
     .big = true,
     .max_run = 50},
};
/* The modes in which an operator is at work (--operate). */
static const struct faults operators[] = {
    {.name = "operator", .operate = 1},
    {.name = "operatorahead",
     .operate = 2,
     .churn = 3,
     .burst = 12,
     .idle = 5,
     .pool = true,
     .big = true,
     .max_run = 50},
    {.name = "operatorkill",
     .operate = 1,
     .crash = 1,
     .pause = 2,
     .loss = 4,
     .pace = 2,
     .burst = 12,
     .idle = 4,
     .churn = 3,
     .pool = true,
     .prompt = true,
     .max_run = 20},
    /* A wipe of Redis also deletes the records of replays and drops, so no oracle could check them.
     * In modes with wipes the operator therefore only makes trials. */
    {.name = "trials", .operate = 4, .trials = true, .wipe = 2, .failover = 1, .loss = 1},
    {.name = "trialsclock", .operate = 4, .trials = true, .clock = 1, .loss = 1},
    {.name = "trialslate",
     .operate = 4,
     .trials = true,
     .pause = 2,
     .wipe = 2,
     .loss = 2,
     .pace = 2},
};
enum { MODES = sizeof modes / sizeof modes[0], OPERATORS = sizeof operators / sizeof operators[0] };

static const struct faults *mode_of(const char *name) {
    for (int k = 0; k < MODES; k++)
        if (!strcmp(modes[k].name, name)) return &modes[k];
    for (int k = 0; k < OPERATORS; k++)
        if (!strcmp(operators[k].name, name)) return &operators[k];
    return NULL;
}

static int no_such_mode(const char *program, const char *name) {
    fprintf(stderr, "%s: there is no mode \"%s\"; the modes are:", program, name);
    for (int k = 0; k < MODES; k++) fprintf(stderr, " %s", modes[k].name);
    for (int k = 0; k < OPERATORS; k++) fprintf(stderr, " %s", operators[k].name);
    fputc('\n', stderr);
    return 2;
}

int main(int argc, char **argv) {
    long seeds = 300, first = 0;
    const char *only = NULL;
    bool until_bad = false, operate = false;
    struct options o = {.records = 100, .steps = 16000};
    struct mutation m = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
            seeds = atol(argv[++i]);
        else if (!strcmp(argv[i], "--first") && i + 1 < argc)
            first = atol(argv[++i]);
        else if (!strcmp(argv[i], "--mode") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--trace"))
            o.trace = true;
        else if (!strcmp(argv[i], "--dead-topic"))
            o.dead_topic = true;
        else if (!strcmp(argv[i], "--until-bad"))
            until_bad = true;
        else if (!strcmp(argv[i], "--operate"))
            operate = true;
        else if (!strcmp(argv[i], "--mutate") && i + 3 < argc) {
            m = (struct mutation){argv[i + 1], argv[i + 2], argv[i + 3]};
            i += 3;
        } else {
            fprintf(stderr,
                    "usage: %s [--seeds N] [--first N] [--mode NAME] [--trace] [--until-bad] "
                    "[--operate] [--dead-topic] [--mutate SCRIPT "
                    "FROM TO]\n",
                    argv[0]);
            return 2;
        }
    }
    const struct faults *named = only ? mode_of(only) : NULL;
    if (only && !named) return no_such_mode(argv[0], only);
    lw_log_setup(o.trace ? LW_LOG_DEBUG : LW_LOG_OFF, false, "sim");
    int bad = 0;
    struct lw_counts totals = {0};
    for (long seed = first; seed < first + seeds; seed++) {
        const struct faults *f = named     ? named
                                 : operate ? &operators[seed % OPERATORS]
                                           : &modes[seed % MODES];
        struct options run = o;
        run.dead_topic = o.dead_topic || seed / MODES % 3 == 1;
        run.skip_order = f->skip || seed / MODES % 7 == 3;
        const char *why = world_run((uint64_t)seed, f, &run, &m, &totals);
        if (!why) continue;
        bad++;
        printf("seed %ld mode %s: %s\n", seed, f->name, why);
        fflush(stdout);
        if (until_bad) return 1;
    }
    printf("runs of handlers %" PRIu64 ", again for a stored effect %" PRIu64 ", done %" PRIu64
           ", dead %" PRIu64 ", parked %" PRIu64 ", drained %" PRIu64 ", stale settles %" PRIu64
           ", epochs lost %" PRIu64 ", connections cut %" PRIu64 "\n",
           totals.received, totals.retried, totals.done, totals.dead, totals.parked, totals.drained,
           totals.stale, totals.epochs_lost, totals.redelivered);
    printf("%ld passed, %d failed\n", seeds - bad, bad);
    return bad ? 1 : 0;
}
