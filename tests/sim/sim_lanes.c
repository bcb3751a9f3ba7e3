/* The deterministic simulation: seeds through the modes of fault, all oracles on.
 * usage: sim_lanes [--seeds N] [--first N] [--mode NAME] [--trace] [--until-bad] [--operate] [--mutate SCRIPT FROM TO]
 * --operate: modes with an operator (operator.h), who drops, replays, breaks, pauses and tries in the middle of it.
 * One seed again: sim_lanes --first SEED --seeds 1 --trace */
#include "tests/sim/world.h"

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
    {.name = "floors", .crash = 1, .pause = 3, .loss = 2, .pace = 2, .sparse = 4096, .churn = 4, .deaf = true},
    {.name = "lag", .pause = 1, .failover = 2, .loss = 2, .pace = 3, .churn = 2, .lag = true},
    {.name = "churn", .loss = 4, .churn = 8, .burst = 12, .idle = 5},
    {.name = "ahead", .loss = 2, .burst = 12, .idle = 5, .churn = 3, .pool = true, .big = true, .max_run = 50},
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
    {.name = "repairs", .wipe = 4, .failover = 1, .loss = 20, .pace = 2, .churn = 4, .deaf = true},
};
/* With an operator at work beside all that (--operate). */
static const struct faults operators[] = {
    {.name = "operator", .operate = 1},
    {.name = "operatorahead", .operate = 2, .churn = 3, .burst = 12, .idle = 5, .pool = true, .big = true, .max_run = 50},
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
};
enum { MODES = sizeof modes / sizeof modes[0], OPERATORS = sizeof operators / sizeof operators[0] };

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
        else if (!strcmp(argv[i], "--until-bad"))
            until_bad = true;
        else if (!strcmp(argv[i], "--operate"))
            operate = true;
        else if (!strcmp(argv[i], "--mutate") && i + 3 < argc) {
            m = (struct mutation){argv[i + 1], argv[i + 2], argv[i + 3]};
            i += 3;
        } else {
            fprintf(stderr,
                    "usage: %s [--seeds N] [--first N] [--mode NAME] [--trace] [--until-bad] [--operate] [--mutate SCRIPT FROM TO]\n",
                    argv[0]);
            return 2;
        }
    }
    lw_log_setup(o.trace ? LW_LOG_DEBUG : LW_LOG_OFF, false, "sim");
    int bad = 0;
    struct lw_counts totals = {0};
    for (long seed = first; seed < first + seeds; seed++) {
        const struct faults *f = operate ? &operators[seed % OPERATORS] : &modes[seed % MODES];
        for (int k = 0; only && k < MODES; k++)
            if (!strcmp(modes[k].name, only)) f = &modes[k];
        for (int k = 0; only && k < OPERATORS; k++)
            if (!strcmp(operators[k].name, only)) f = &operators[k];
        struct options run = o;
        run.dead_topic = seed / MODES % 3 == 1;
        run.skip_order = seed / MODES % 7 == 3;
        const char *why = world_run((uint64_t)seed, f, &run, &m, &totals);
        if (!why) continue;
        bad++;
        printf("seed %ld mode %s: %s\n", seed, f->name, why);
        fflush(stdout);
        if (until_bad) return 1;
    }
    printf("runs of handlers %" PRIu64 ", again for a stored effect %" PRIu64 ", done %" PRIu64 ", dead %" PRIu64 ", parked %" PRIu64
           ", heads handed over %" PRIu64 ", stale settles %" PRIu64 ", epochs lost %" PRIu64 ", connections cut %" PRIu64 "\n",
           totals.received, totals.reruns, totals.done, totals.dead, totals.parked, totals.drained, totals.stale, totals.epochs_lost,
           totals.redelivered);
    printf("%ld passed, %d failed\n", seeds - bad, bad);
    return bad ? 1 : 0;
}
