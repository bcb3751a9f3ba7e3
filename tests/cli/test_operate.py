#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs doc/tutorial-operate.md step by step on a running demo. The commands, the handler and the
configuration are read from the page, so the page and the program cannot disagree. The test then
runs every command of `queue` and `dead` with --json, while the workers are loaded.
Usage: test_operate.py [BUILD]
No test asserts a time. Time limits only turn a hang into a failure."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.ports import free_port  # noqa: E402
from lib.process import wait_until  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
PAGE = os.path.join(ROOT, "doc/tutorial-operate.md")
CUSTOMER = "customer-0"


def sections():
    """Returns [(heading, [(language, text)])] of the page. Blocks without a language show output,
    and are left out."""
    out = [("", [])]
    block = None
    for line in open(PAGE):
        if block is not None and line.rstrip() == "```":
            if block[0]:
                out[-1][1].append((block[0], "".join(block[1])))
            block = None
        elif block is not None:
            block[1].append(line)
        elif line.startswith("```"):
            block = (line.strip()[3:], [])
        elif line.startswith("## "):
            out.append((line[3:].strip(), []))
    return [s for s in out if s[1]]


class World:
    def __init__(self, directory):
        self.dir = directory
        self.env = dict(os.environ, TMPDIR=directory, USER="operator")
        for name in ("NO_COLOR", "LATCHWORK_JOURNAL", "VISUAL"):
            self.env.pop(name, None)
        os.symlink(BUILD, os.path.join(directory, "build"))
        os.mkdir(os.path.join(directory, "till"))
        editor = os.path.join(directory, "editor")
        with open(editor, "w") as f:
            f.write("#!/bin/sh\nsed -i 's/}$/, \"rate\": 1}/' \"$1\"\n")
        os.chmod(editor, 0o755)
        self.env["EDITOR"] = editor
        self.terminals = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def terminal(self, text, name):
        """Starts, in the background, a command that runs in a terminal until Ctrl-C."""
        with open(self.path(name), "wb") as out:
            p = subprocess.Popen(
                ["bash", "-ec", text],
                cwd=self.dir,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.terminals.append(p)
        return p

    def said(self, name):
        return open(self.path(name), errors="replace").read()

    def run(self, command, status=0):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.dir,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=120,
        )
        assert done.returncode == status, "%s: status %d\n%s%s" % (
            command,
            done.returncode,
            done.stdout,
            done.stderr,
        )
        return done.stdout

    def until(self, command, good, limit_s=60):
        """Runs the command repeatedly, as an operator would, until good() is true for its output.
        Returns that output."""
        seen = []

        def look():
            seen.append(self.run(command))
            return good(seen[-1])

        try:
            wait_until(look, limit_s, command, 0.5)
        except Exception as e:
            raise AssertionError("%s\nat last it said:\n%s" % (e, seen[-1] if seen else "")) from e
        return seen[-1]

    def rows(self, command, **more):
        return [json.loads(line) for line in self.run(command + " --json", **more).splitlines()]

    def end(self):
        """Ends the background commands with Ctrl-C, the one started last first. Returns their exit
        statuses."""
        out = []
        for p in reversed(self.terminals):
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGINT)
            try:
                out.append(p.wait(60))
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                out.append("killed")
        self.terminals = []
        return out


def dead_lines(text):
    return [line.split() for line in text.splitlines() if re.match(r"\d+:\d", line)]


def lines_of(block):
    assert block[0] == "sh", block
    return block[1].splitlines()


# --- the page's sections: a function each, which gets its blocks ----------------------------------


def something_to_operate(w, blocks):
    dev, handler, config, exports, run = blocks
    assert [b[0] for b in blocks] == ["sh", "python", "json", "sh", "sh"]
    w.terminal(dev[1], "dev.out")
    wait_until(lambda: re.search(r"^  workers ", w.said("dev.out"), re.M), 60, "a welcome of dev")
    with open(w.path("till/handler.py"), "w") as f:
        f.write(handler[1])
    with open(w.path("till/till.json"), "w") as f:
        f.write(config[1])
    # The page sets the variables BROKER, REDIS and LISTEN. The test replaces their values by its
    # own.
    assert re.findall(r"(\w+)=\S+", exports[1]) == ["BROKER", "REDIS", "LISTEN"], exports
    w.env["LISTEN"] = "127.0.0.1:%d" % free_port()
    w.env["BROKER"] = re.search(r"^  broker +(\S+)", w.said("dev.out"), re.M).group(1)
    w.env["REDIS"] = re.search(r"^  redis +(\S+)", w.said("dev.out"), re.M).group(1)
    w.terminal(run[1], "run.out")


def what_is_stuck(w, blocks):
    stats, ls = lines_of(blocks[0])
    text = w.until(ls, lambda out: CUSTOMER in out)
    key, waiting, *_ = next(
        line for line in text.splitlines() if line.startswith(CUSTOMER + " ")
    ).split()
    assert int(waiting) > 0
    w.holder = text.split()[-1]
    # Wait until there are dead letters. There will be ten, or only nine if one of the ten messages
    # waits behind the message of the stuck customer.
    text = w.until(
        stats,
        lambda out: re.search(r"^dead +[1-9]", out, re.M) and re.search(r"^in +[1-9]", out, re.M),
    )
    assert re.search(r"^lanes .* 1 held", text, re.M) and re.search(
        r"^ +\d+  %s$" % CUSTOMER, text, re.M
    ), text
    assert "NO_RATE" in text and re.search(r"^out +\d+ per second", text, re.M), text


def who_holds_it(w, blocks):
    show, lock = lines_of(blocks[0])
    show = w.until(show, lambda out: len(re.findall(r"^orders-", out, re.M)) == 3)
    lock = w.run(lock)
    worker = re.search(r"^holder +(\S+-\d+-\w+)$", show, re.M).group(1)
    fence = re.search(r"fence (\d+)", show).group(1)
    assert worker in lock and fence in lock, lock
    w.fence, w.worker = int(fence), worker


def break_it(w, blocks):
    dry, execute = lines_of(blocks[0])
    text = w.run(dry)
    assert "would break" in text and w.worker in text and "--execute" in text, text
    assert (
        w.rows("build/latchwork lock show %s -c till/till.json" % CUSTOMER)[0]["holder"] == w.worker
    ), "a dry run breaks nothing"
    text = w.run(execute)
    assert int(re.search(r"the fence is (\d+)", text).group(1)) > w.fence, text
    (ls,) = lines_of(blocks[1])
    w.until(ls, lambda out: re.search(r"^%s +0 " % CUSTOMER, out, re.M))


def why_did_ten_die(w, blocks):
    ls, filtered, show = lines_of(blocks[0])
    rows = dead_lines(w.until(ls, lambda out: len(dead_lines(out)) == 10))
    assert sorted(r[1] for r in rows) == sorted(
        "orders-%s/2/%d" % (t, i) for t in ("web", "shop") for i in range(5)
    ), rows
    amounts = [json.loads(r["payload"])["amount"] for r in w.rows(ls)]
    assert len(dead_lines(w.run(filtered))) == sum(a > 0 for a in amounts) > 0
    text = w.run(show)
    assert (
        "identity orders-shop/2/3" in text
        and "reason   NO_RATE: no exchange rate for order-" in text
        and '"customer"' in text
    ), text


def mend_a_payload(w, blocks):
    edit, show = lines_of(blocks[0])
    text = w.run(edit)
    assert "use dead replay to run it" in text, text
    text = w.run(show)
    assert (
        "edited by" in text
        and re.search(r'^\+.*, "rate": 1}', text, re.M)
        and re.search(r"^-\{.*[^1]}", text, re.M)
    ), text
    attempt, dry, execute = lines_of(blocks[1])
    assert "tried: done" in w.run(attempt)
    assert "would be put" in w.run(dry)
    assert len(dead_lines(w.run("build/latchwork dead ls -c till/till.json"))) == 10, (
        "neither a trial nor a dry run takes one away"
    )
    assert "1 put; job 2" in w.run(execute)
    w.until("build/latchwork dead ls -c till/till.json", lambda out: len(dead_lines(out)) == 9)


def replay_at_a_rate(w, blocks):
    rates, dry, execute, ls = lines_of(blocks[0])
    w.run(rates)
    assert "9 would be put" in w.run(dry)
    text = w.run(execute)
    assert "9 put; job 3: finished" in text, text
    assert w.until(ls, lambda out: not dead_lines(out))
    wait_until(
        lambda: metric(w, "messages_total", 'outcome="dead"') == 10,
        30,
        "ten dead, none of them again",
    )


def replay_an_hour(w, blocks):
    without, dry, execute = lines_of(blocks[0])
    before = w.rows("build/latchwork ledger -c till/till.json")
    text = w.run(without)
    n = int(re.search(r"; (\d+) left out: done", text).group(1))
    assert n > 0 and "would be put" not in text, text
    text = w.run(dry)
    assert int(re.search(r"; (\d+) would be put", text).group(1)) >= n, text
    text = w.run(execute)
    assert int(re.search(r"; (\d+) put", text).group(1)) >= n and "job 4: finished" in text, text
    w.until(
        "build/latchwork queue ls -c till/till.json --key customer-7",
        lambda out: re.search(r"^customer-7 +0 ", out, re.M),
    )
    after = w.rows("build/latchwork ledger -c till/till.json")
    back = [
        (b, a)
        for b, a in zip(before, after)
        if "committed" in b and a["committed"] < b["committed"]
    ]
    assert not back, "the group's offsets only go on"


def who_did_what(w, blocks):
    text = w.run(*lines_of(blocks[0]))
    for wanted in (
        r"lock break .*key %s" % CUSTOMER,
        r" edit .*dead edit orders-shop/2/3",
        r" 3  finished +9  dead replay --reason NO_RATE\*",
        r" 4  finished .*queue replay --key customer-7 --topic orders-web --from 1h --again",
    ):
        assert re.search(wanted, text), "%s in\n%s" % (wanted, text)


def metric(w, name, label=""):
    text = w.run("curl -s http://$LISTEN/metrics")
    return sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("latchwork_%s{" % name) or line.startswith("latchwork_%s " % name)
        if label in line
    )


def see_it_in_the_metrics(w, blocks):
    curl, ledger = lines_of(blocks[0])
    # Repeat the command, because the figures are refreshed only every few seconds, as the page
    # says.
    text = w.until(
        curl, lambda out: re.search(r'^latchwork_dead_letters\{shard="0"\} 0$', out, re.M)
    )
    assert re.search(r'^latchwork_messages_total\{outcome="dead"\} 10$', text, re.M), text
    assert int(re.search(r"^latchwork_leases_lost_total (\d+)$", text, re.M).group(1)) >= 1, text
    assert re.search(r"^latchwork_waiting_messages \d+$", text, re.M), text
    assert "it agrees" in w.run(ledger)


def drop_what_shall_never_run(w, blocks):
    pause, replay, export, dry, drop, imported, resume = lines_of(blocks[0])
    assert "customer-7: paused" in w.run(pause)
    assert re.search(r"2 put", w.run(replay))
    exported = [json.loads(line) for line in w.run(export).splitlines()]
    assert len([e for e in exported if e.get("replay")]) == 2 and {
        e["lane"] for e in exported if "lane" in e
    } <= {"customer-7"}, exported
    assert "1 would be dropped" in w.run(dry) and not os.path.exists(w.path("till/dropped.jsonl"))
    assert "1 dropped" in w.run(drop)
    (backup,) = [json.loads(line) for line in w.said("till/dropped.jsonl").splitlines()]
    left = [json.loads(line)["identity"] for line in w.run(export).splitlines()]
    assert (
        backup["identity"] in [e["identity"] for e in exported] and backup["identity"] not in left
    )
    assert "1 put" in w.run(imported)
    assert "customer-7: resumed" in w.run(resume)
    w.until(
        "build/latchwork queue ls -c till/till.json --key customer-7",
        lambda out: re.search(r"^customer-7 +0 ", out, re.M),
    )


STEPS = {
    "Something to operate": something_to_operate,
    "What is stuck?": what_is_stuck,
    "Who holds it, and since when?": who_holds_it,
    "Break its lock": break_it,
    "Why did ten messages die?": why_did_ten_die,
    "Correct a payload": mend_a_payload,
    "Replay them at 5 a second": replay_at_a_rate,
    "Replay an hour of one key": replay_an_hour,
    "What was done, and by whom?": who_did_what,
    "See it in the metrics": see_it_in_the_metrics,
    "Drop what should never run": drop_what_shall_never_run,
}

# --- every command with --json, while the workers are loaded --------------------------------------

EVERY = {
    "queue": {
        "ls": [
            "",
            "--sort size --limit 3 --match 'customer-*'",
            "--topic orders-web --older-than 1h --attempts 1 --partition 0 --reverse",
        ],
        "show": ["customer-7", "customer-7 --raw --limit 2", "nobody"],
        "pause": ["customer-9", "--key customer-9", "--match 'customer-1?' --execute"],
        "resume": ["customer-9", "--match 'customer-1?' --execute"],
        "export": ["", "--key customer-7 --where '/amount>=0'"],
        "stats": ["--over 500ms"],
        "replay": [
            "orders-web/0/0 --again",
            "--key customer-8 --from 10m --limit 3 --again --execute",
            "--topic orders-shop --from @5 --to @9 --execute",
            "orders-web/1/1 --try --execute",
            "orders-web/1/1 --to-topic orders-web",
        ],
        "drop": ["--key customer-8", "--key customer-8 --execute --backup till/again.jsonl"],
        "audit": ["", "--limit 2"],
        "import": ["till/dropped.jsonl", "till/dropped.jsonl --execute"],
    },
    "dead": {
        "ls": ["", "--reason 'NO*' --error rate --from 1h --to 0s --where /id --key customer-7"],
        "show": ["%s"],
        "export": ["", "%s"],
        "edit": ["%s"],
        "replay": ["--match '*'", "%s --execute"],
        "drop": ["--match '*'", "--match '*' --execute --backup till/letters.jsonl"],
    },
}


def every_command_with_json(w):
    # Without the file `rates`, the records of partition 2 become dead letters again, under new
    # identities.
    os.unlink(w.path("till/rates"))
    done = metric(w, "messages_total", 'outcome="done"')
    w.run(
        "build/latchwork queue replay -c till/till.json --topic orders-web --partition 2 --from @0 --to @5 --again --execute"
    )
    letters = lambda: w.rows("build/latchwork dead ls -c till/till.json")  # noqa: E731
    wait_until(lambda: len(letters()) == 5, 30, "five dead letters")
    ran = 0
    for noun, verbs in EVERY.items():
        listed = re.findall(
            r"^  ([a-z]+) ", w.run("build/latchwork %s --help" % noun).split("Examples")[0], re.M
        )
        assert sorted(listed) == sorted(verbs), "verbs that are tested: %s; that there are: %s" % (
            sorted(verbs),
            sorted(listed),
        )
        for verb, calls in verbs.items():
            assert "usage: latchwork %s %s" % (noun, verb) in w.run(
                "build/latchwork %s %s --help" % (noun, verb)
            )
            for call in calls:
                words = call % letters()[0]["identity"] if "%s" in call else call
                rows = w.rows("build/latchwork %s %s -c till/till.json %s" % (noun, verb, words))
                assert all(isinstance(r, dict) for r in rows), rows
                if verb in ("replay", "drop", "import"):
                    assert (
                        rows[-1]["type"] == "summary"
                        and rows[-1]["dry_run"] == ("--execute" not in call)
                        and not rows[-1]["problems"]
                    ), rows
                ran += 1
    wait_until(
        lambda: w.rows("build/latchwork queue stats -c till/till.json")[0]["out_per_second"] > 0,
        30,
        "commits, by stats",
    )
    assert metric(w, "messages_total", 'outcome="done"') > done, (
        "no load: nothing was done meanwhile"
    )
    w.until("build/latchwork ledger -c till/till.json", lambda out: "it agrees" in out)
    print("%d commands with --json" % ran)


def main():
    passed = 0
    with tempfile.TemporaryDirectory(prefix="lw-op-", dir="/tmp") as directory:
        w = World(directory)
        try:
            page = sections()
            assert [heading for heading, _ in page] == list(STEPS), "the page's steps: %s" % [
                heading for heading, _ in page
            ]
            for heading, blocks in page:
                try:
                    STEPS[heading](w, blocks)
                except Exception:
                    print("FAILED: %s" % heading)
                    raise
                passed += 1
            every_command_with_json(w)
            assert w.end() == [0, 0], "Ctrl-C ends both in order"
        except BaseException:
            if os.path.exists(w.path("run.out")):
                print("run said:\n" + w.said("run.out")[-3000:])
            raise
        finally:
            w.end()
    print("%d steps passed" % passed)


if __name__ == "__main__":
    main()
