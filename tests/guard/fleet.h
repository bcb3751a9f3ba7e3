/* SPDX-License-Identifier: Apache-2.0 */
/* A small fleet in this process: the real worker logic and the real scripts over the fake Redis of the simulation
 * (tests/sim/redis/store.h), a fake Kafka and a handler that is done at once, under a clock that goes 2 ms a round. No faults, no threads,
 * no chance: the same shape gives the same calls every time, so what they cost can be bounded without a stopwatch.
 *
 * A round serves each worker as consumer/process/process.c does: handlers' answers, Redis' answers, hints, records, then one turn. */
#ifndef LW_TESTS_GUARD_FLEET_H
#define LW_TESTS_GUARD_FLEET_H

#include <stdbool.h>
#include <stdint.h>

enum { FLEET_WORKERS = 2, FLEET_PARTITIONS = 8 };

struct fleet_shape {
    const char *name;
    int workers;      /* the partitions are shared out among them */
    int keys;         /* drawn uniformly */
    int records;      /* delivered in all, of 200 bytes, each to a random partition */
    int ahead;        /* records of its partitions that a worker has taken and that have not run, at most: as many arrive as are done */
    int stride;       /* between two offsets; 0: 1 */
    int max_waiting;  /* queue.max_waiting; 0: the default */
    int part_records; /* most records remembered of a partition; 0: the default */
    int stays;        /* so many of the first records, of partition 0, have a key of their own, which is paused until all others are done */
    bool paused; /* all lanes, until what is measured is over: what is counted as a message is one that was parked, not one that is done */
    int from;    /* measured from here on: so many are done by then */
    int to;      /* … up to here */
};

struct fleet_figures { /* of what was measured */
    uint64_t messages;
    uint64_t rounds;
    uint64_t commands, bytes; /* sent to Redis, bytes as on the wire */
    uint64_t inside;          /* commands that scripts called */
    uint64_t allocations;     /* by the worker's code */
    uint64_t parked, drained;
};

/* Runs all of it. Ends the program where a message did not run exactly once, or not in the order of its partition and key: what a wrong
 * worker costs is of no interest. */
void fleet_run(const struct fleet_shape *shape, struct fleet_figures *out);

#endif
