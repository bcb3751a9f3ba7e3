#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain consumer loop with confluent-kafka, which promises nothing. The loop locks no key, does
no work for a message, and leaves commits to the library. The program prints the same line as the
other programs of this benchmark."""

import argparse
import json
import time

from confluent_kafka import Consumer


def main():
    parser = argparse.ArgumentParser()
    for name in ("brokers", "topic", "group"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--messages", type=int, required=True)
    a = parser.parse_args()
    consumer = Consumer(
        {"bootstrap.servers": a.brokers, "group.id": a.group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([a.topic])
    n = first_us = 0
    give_up = time.monotonic() + 300
    while n < a.messages and time.monotonic() < give_up:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise SystemExit(str(message.error()))
        message.key(), message.value()
        first_us = first_us or time.monotonic_ns() // 1000
        n += 1
    last_us = time.monotonic_ns() // 1000
    consumer.close()
    print(json.dumps({"messages": n, "first_us": first_us, "last_us": last_us}))


main()
