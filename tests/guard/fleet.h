/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a small fleet in this process: the real worker logic and the real scripts on the fake Redis
 * of the simulation (tests/sim/redis/store.h), with a fake Kafka and a handler that is done at
 * once, under a clock that advances 2 ms per round. There are no faults, no threads and no real
 * randomness: the same shape makes the same calls every time, so their cost can be bounded without
 * a stopwatch.
 *
 * A round serves each worker as consumer/process/process.c does: handlers' answers, Redis' answers,
 * hints, records, then one turn. */
#ifndef LW_TESTS_GUARD_FLEET_H
#define LW_TESTS_GUARD_FLEET_H

#include <stdbool.h>
#include <stdint.h>

enum { FLEET_WORKERS = 2, FLEET_PARTITIONS = 8 };

struct fleet_shape {
    const char *name;
    int workers; /* number of workers, which share the partitions */
    int keys;    /* number of keys, drawn uniformly */
    /* number of records that are delivered in all; each has 200 bytes and goes to a random
     * partition */
    int records;
    /* maximum number of records that a worker has taken and not run yet; new records arrive only as
     * the worker runs these */
    int ahead;
    int stride;      /* distance between two offsets; 0 stands for 1 */
    int max_waiting; /* queue.max_waiting; 0 stands for the default */
    /* maximum number of records of a partition that are remembered; 0 stands for the default */
    int part_records;
    /* number of early records of partition 0 whose own key stays paused until all other records are
     * done */
    int stays;
    /* all lanes are paused until the measurement ends; a message counts when it is parked, instead
     * of when it is done */
    bool paused;
    bool board;  /* the fleet has a board, as under a supervisor */
    bool traced; /* every message is traced, which needs the board */
    int from;    /* number of counted messages at which the measurement begins */
    int to;      /* number of counted messages at which the measurement ends */
};

struct fleet_figures { /* holds the totals of the rounds that were measured */
    uint64_t messages;
    uint64_t rounds;
    /* number of commands sent to Redis, and number of their bytes on the wire */
    uint64_t commands, bytes;
    uint64_t inside;      /* number of commands that scripts called */
    uint64_t allocations; /* number of allocations that the worker's code made */
    uint64_t parked, drained;
};

/* Runs the whole shape. If a message did not run exactly once, or not in the order of its partition
 * and key, ends the program, because the cost of a wrong worker is of no interest. */
void fleet_run(const struct fleet_shape *shape, struct fleet_figures *out);

#endif
