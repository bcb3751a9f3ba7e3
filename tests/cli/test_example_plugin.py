#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the plugin that README.md, the tutorial and handler.h show. Its threads run in several
processes and append lines to the same file. No line may be torn. The test takes no arguments."""

import collections
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROCESSES, THREADS, LINES = 4, 4, 300

DRIVER = r"""
#include <latchwork/handler.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { PROCESSES = %d, THREADS = %d, LINES = %d };
extern const struct latchwork_handler latchwork_handler;
static int process;
static void *work(void *arg) {
    char payload[3000], identity[64];
    for (int i = 0; i < LINES; i++) {
        size_t n = 200 + (size_t)(i * 37) %% 2500;
        memset(payload, 'a' + process, n);
        snprintf(identity, sizeof identity, "t/%%d/%%d", process * THREADS + (int)(long)arg, i);
        struct latchwork_message m = {
            .identity = identity, .payload = (void *)payload, .payload_len = n};
        if (latchwork_handler.handle(NULL, &m, NULL, 0) != LATCHWORK_DONE) exit(1);
    }
    return NULL;
}
int main(void) {
    for (process = 0; process < PROCESSES - 1 && fork(); process++) continue;
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    return 0;
}
""" % (PROCESSES, THREADS, LINES)


def plugins():
    for page in ("README.md", "doc/tutorial.md"):
        with open(os.path.join(ROOT, page)) as f:
            blocks = re.findall(r"```c\n(.*?)```", f.read(), re.S)
        found = [b for b in blocks if "latchwork_handler = " in b]
        assert found, "%s shows no plugin" % page
        yield page, found[0]
    with open(os.path.join(ROOT, "include/latchwork/handler.h")) as f:
        lines = [
            line[7:]
            for line in f.read().split("*/")[1].splitlines()
            if line.startswith(" *     ") or line == " *"
        ]
    text = "\n".join(lines)
    yield (
        "handler.h",
        text[
            : text.index("LATCHWORK_HANDLER_INIT")
            + len("LATCHWORK_HANDLER_INIT, .handle = handle};")
        ]
        + "\n",
    )


def lines_of(plugin, folder):
    for name, text in (("plugin.c", plugin), ("driver.c", DRIVER)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    subprocess.run(
        [
            "cc",
            "-pthread",
            "-I",
            os.path.join(ROOT, "include"),
            "-o",
            "driver",
            "plugin.c",
            "driver.c",
        ],
        cwd=folder,
        check=True,
    )
    out = subprocess.run(
        ["sh", "-c", "./driver | cat"], cwd=folder, stdout=subprocess.PIPE, check=True, timeout=120
    ).stdout
    return out.decode().splitlines()


def main():
    failed = 0
    for page, plugin in plugins():
        with tempfile.TemporaryDirectory() as folder:
            lines = lines_of(plugin, folder)
        torn = [line for line in lines if not re.fullmatch(r"t/\d+/\d+ (a+|b+|c+|d+)", line)]
        twice = [
            n for n, k in collections.Counter(line.split(" ")[0] for line in lines).items() if k > 1
        ]
        whole = len(lines) == PROCESSES * THREADS * LINES and not torn and not twice
        if not whole:
            print("FAILED: %s: %d lines, %d torn: %.200s" % (page, len(lines), len(torn), torn[:1]))
        failed += not whole
    print("%d passed, %d failed" % (3 - failed, failed))
    sys.exit(1 if failed else 0)


main()
