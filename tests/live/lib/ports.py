# SPDX-License-Identifier: Apache-2.0
"""Finds free ports on the loopback interface. The ports are below the range from which the system
takes ports for outgoing connections. Otherwise, an outgoing connection could take a chosen port
before its server starts."""

import random
import socket

from .process import Failure

FIRST, LAST = 11000, 32000
# Use the system's random numbers, because a test that seeds `random` must not choose the same ports
# as another test.
choice = random.SystemRandom()


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def free_ports(n):
    """Returns the first of n consecutive ports that are free now."""
    for _ in range(200):
        first = choice.randrange(FIRST, LAST - n)
        if all(is_free(port) for port in range(first, first + n)):
            return first
    raise Failure(
        "%d neighbouring ports of 127.0.0.1 between %d and %d are free nowhere" % (n, FIRST, LAST)
    )


def free_port():
    return free_ports(1)
