#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that doc/how-to/troubleshooting.md is an index of errors. Each text that the page quotes
must be the beginning of a message in the code. Each warning and error of a worker, of the
supervisor and of `check` must be on the page if it contains at least three literal words. The texts
that doc/how-to/refused.md quotes must also be in the code.
Usage: test_troubleshooting.py [BUILD]"""

import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PAGE, REFUSED = "doc/how-to/troubleshooting.md", "doc/how-to/refused.md"
FOLDERS = ["base", "config", "handlers", "kafka", "consumer", "lock/lane", "monitor"]
FOLDERS += ["cli/run", "cli/check"]
LEVELS = {
    "lw_info": 0,
    "lw_warn": 0,
    "lw_error": 0,
    "PROBLEM": 1,
    "lw_problem": 1,
    "lw_problem_warn": 1,
    "lw_log": 1,
    "lw_warn_some": 1,
    "lw_some": 4,
    "lw_log_some": 5,
    "lw_log_with": 3,
    "tell_end": 3,
}
CONVERSION = r"%[-+ 0#]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:ll|l|z|h)?[a-zA-Z]"


def calls(text):
    """Yields (function, arguments) for each call in C of a function that is listed in LEVELS."""
    for m in re.finditer(r"\b(" + "|".join(LEVELS) + r")\s*\(", text):
        args, now, i, depth = [], "", m.end(), 1
        while depth:
            string = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, i)
            if string:
                now += string.group()
                i = string.end()
                continue
            c = text[i]
            depth += (c in "([{") - (c in ")]}")
            if c == "," and depth == 1:
                args.append(now.strip())
                now = ""
            elif depth:
                now += c
            i += 1
        yield m.group(1), args + [now.strip()]


def message(literal):
    """Returns the text of a message as the log shows it, with … in place of each value."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|(PRI\w+)', literal)
    text = "".join("d" if macro else string for string, macro in parts).replace('\\"', '"')
    return squeeze(re.sub(CONVERSION, "…", text).replace("%%", "%"))


def squeeze(text):
    text = re.sub(r'"…"', "…", text)
    text = re.sub(r"…(?:\s*…)+", "…", text)
    return " ".join(text.split())


def own_words(text):
    return len(re.findall(r"[A-Za-z][A-Za-z'-]+", text))


def messages(infos):
    """Returns {text of a message: path of its source file} for all warnings and errors. If `infos`
    is true, returns the messages of level info instead."""
    out = {}
    for folder in FOLDERS:
        for path in sorted(glob.glob(folder + "/**/*.c", recursive=True)):
            for name, args in calls(open(path).read()):
                at = LEVELS[name]
                if (name == "lw_info") != infos:
                    continue
                if name.startswith("lw_problem") and folder != "cli/check":
                    # Errors about the configuration are not on the page, because each of them
                    # begins with the key's path and says what is right.
                    continue
                if len(args) <= at or not args[at].startswith('"'):
                    continue
                levels = {"lw_log": 0, "lw_log_with": 0, "lw_some": 1, "lw_log_some": 2}
                if name in levels and not re.search("LW_LOG_(WARN|ERROR)", args[levels[name]]):
                    continue
                if name == "tell_end":
                    if "WARN" not in args[2]:
                        continue
                    text = "… " + message(args[at])
                else:
                    text = message(args[at])
                out["redis …: " + text if name == "PROBLEM" else text] = path
    return out


def quoted(page):
    """Returns the texts in code quotes in the first column of the page's tables."""
    for n, line in enumerate(open(page), 1):
        if line.startswith("| `"):
            for text in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                yield n, squeeze(text)


def regular(entry):
    """Turns an entry of the page into a pattern. An … in the entry matches any text, even text that
    is literal in the code."""
    return re.compile(".*?".join(re.escape(p) for p in entry.split("…")))


def main():
    known, infos, bad = messages(False), messages(True), []
    entries = list(quoted(PAGE))
    for n, entry in entries:
        if not any(regular(entry).match(m) for m in [*known, *infos]):
            bad.append(f"{PAGE}:{n}: no message of the code begins with: {entry}")
    patterns = [regular(e) for _, e in entries]
    for text, path in known.items():
        if own_words(text) >= 3 and not any(p.match(text) for p in patterns):
            bad.append(f"{path}: not in {PAGE}: {text}")
    strings = "\n".join(
        squeeze(message(m))
        for f in FOLDERS
        for path in glob.glob(f + "/**/*.c", recursive=True)
        for m in re.findall(
            r'"(?:[^"\\]|\\.)*"(?:\s*(?:PRI\w+\s*)?"(?:[^"\\]|\\.)*")*', open(path).read()
        )
    )
    for n, entry in quoted(REFUSED):
        for part in entry.split("…"):
            part = part.strip(' ",')
            if own_words(part) >= 2 and part not in strings:
                bad.append(f"{REFUSED}:{n}: not in the code: {part}")
    for line in bad:
        print(line)
    print(f"{len(entries)} entries, {len(known)} messages, {len(bad)} wrong")
    if len(entries) < 50 or len(known) < 50:
        print("hardly anything was found")
        bad.append("")
    return 1 if bad else 0


sys.exit(main())
