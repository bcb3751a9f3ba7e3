#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how many messages per second sleeping coroutines can handle on this CPU. There are
several processes with a number of coroutines each. Each coroutine parses the JSON of a request,
sleeps, and writes the JSON of an answer. There is no Kafka, no Redis and no pipe. The program
prints the same line as the other programs of this benchmark."""

import argparse
import asyncio
import json
import multiprocessing
import time

REQUEST = json.dumps(
    {
        "id": "t/0/123456",
        "key": "k012345",
        "fence": 1763671234567890,
        "attempt": 1,
        "topic": "t",
        "partition": 0,
        "offset": 123456,
        "timestamp_ms": 1763671234567,
        "headers": [],
        "payload": "x" * 200,
    }
)


async def one(left, work_s):
    while left:
        left.pop()
        request = json.loads(REQUEST)
        await asyncio.sleep(work_s)
        json.dumps({"id": request["id"], "outcome": "done"})


async def many(n, at_a_time, work_s):
    left = [None] * n
    await asyncio.gather(*(one(left, work_s) for _ in range(at_a_time)))


def process(n, at_a_time, work_s, ready, go):
    ready.release()
    go.wait()
    asyncio.run(many(n, at_a_time, work_s))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--work-us", type=int, required=True)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--at-a-time", type=int, default=100)
    a = parser.parse_args()
    ready, go = multiprocessing.Semaphore(0), multiprocessing.Event()
    rest = (a.messages // a.processes, a.at_a_time, a.work_us / 1e6, ready, go)
    processes = [multiprocessing.Process(target=process, args=rest) for _ in range(a.processes)]
    for p in processes:
        p.start()
    for _ in processes:
        ready.acquire()
    first_us = time.monotonic_ns() // 1000
    go.set()
    for p in processes:
        p.join()
    print(
        json.dumps(
            {
                "messages": a.messages // a.processes * a.processes,
                "first_us": first_us,
                "last_us": time.monotonic_ns() // 1000,
            }
        )
    )


main()
