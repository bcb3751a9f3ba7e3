/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a small fleet in this process: the real worker logic and the real scripts on the fake Redis
 * of the simulation (tests/sim/redis/store.h), with a fake Kafka and a handler that finishes every
 * job in the next round. After the first quarantine, the clock advances 2 ms per round. There are
 * no faults, no threads and no real randomness. A fleet is described by its shape (struct
 * fleet_shape). The same shape makes the same calls every time, so their cost can be bounded
 * without measuring time.
 *
 * In each round, each worker is served in the order of consumer/process/process.c: results of the
 * handler, answers of Redis, hints, records, and then one turn. */
#ifndef LW_TESTS_GUARD_FLEET_H
#define LW_TESTS_GUARD_FLEET_H

#include <stdbool.h>
#include <stdint.h>

enum { FLEET_WORKERS = 2, FLEET_PARTITIONS = 8 };

struct fleet_shape {
    const char *name;
    int workers; /* number of workers, which divide the partitions among themselves */
    int keys;    /* number of keys; each record gets a random one */
    /* Total number of records. Each has a payload of 200 bytes and is in a random partition. */
    int records;
    /* Maximum number of records that a worker has taken and not finished. More records are
     * delivered only when the worker has finished some. */
    int ahead;
    int stride;      /* distance between consecutive offsets; 0 means 1 */
    int max_waiting; /* queue.max_waiting; 0: the default */
    /* Maximum number of records of a partition that a worker remembers. 0: the default. */
    int part_records;
    /* Number of early records of partition 0 that share a key which no other record has. The lane
     * of this key stays paused until all other records are done. */
    int stays;
    /* True if all lanes are paused until the measurement ends. Messages are then counted when they
     * are parked, and not when they are done. */
    bool paused;
    bool board;  /* true if the fleet has a board, as it does under a supervisor */
    bool traced; /* true if every message is traced; tracing needs the board */
    int from;    /* the measurement begins when this many messages have been counted */
    int to;      /* the measurement ends when this many messages have been counted */
};

struct fleet_figures { /* totals of the rounds that were measured */
    uint64_t messages;
    uint64_t rounds;
    /* Number of commands that the workers sent to Redis, and the total length of these commands in
     * bytes. */
    uint64_t commands, bytes;
    uint64_t inside;      /* number of commands called by scripts */
    uint64_t allocations; /* number of allocations made by the worker's code */
    uint64_t parked, drained;
};

/* Runs the fleet that the shape describes until all records are done. The cost of a faulty worker
 * means nothing, so this function ends the program if a record did not run exactly once, or if the
 * records of a key in one partition did not run in order. */
void fleet_run(const struct fleet_shape *shape, struct fleet_figures *out);

#endif
