#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages whose text is already in the program and the headers: latchwork.json(5),
latchwork-handler(3), latchwork-lock(3).
  usage: scripts/man-pages.py PROGRAM FOLDER"""

import os
import re
import subprocess
import sys

PROGRAM, FOLDER = sys.argv[1:3]
VERSION = subprocess.run(
    [PROGRAM, "--version"], check=True, stdout=subprocess.PIPE, text=True
).stdout.split()[1]
HEADERS = {
    "handler": ("handlers for Latchwork, written in C", "latchwork.json(5), latchwork(1)"),
    "lock": (
        "locks between threads, processes and machines, through Redis",
        "latchwork(1), latchwork-handler(3), pkg-config(1)",
    ),
}


def text(s):
    """Escapes a text for roff, so that none of its characters is a request or an escape."""
    s = s.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in s.split("\n"))


def words(s):
    """Converts the Markdown within a line: `code` and *words* become bold and italic, and a link
    becomes its text."""
    s = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", s).replace("\\|", "|")
    out = []
    for i, part in enumerate(re.split(r"(?<!`)`(?!`)([^`]+)`", s)):
        out.append(text(part) if i % 2 == 0 else "\\fB" + text(part) + "\\fR")
    joined = "".join(out)
    return "\\&" + joined if joined[:1] in (".", "'") else joined


def example(lines):
    while not lines[-1].strip():
        lines = lines[:-1]
    return ".PP\n.in +4n\n.EX\n" + text("\n".join(lines)) + "\n.EE\n.in\n"


def title(name, section, kind):
    return f'.\\" Written by scripts/man-pages.py; run: make reference\n.TH {name.upper()} {section} "" "Latchwork {VERSION}" "{kind}"\n'


def see_also(pages):
    return (
        ".SH SEE ALSO\n"
        + ",\n".join(f".BR {p[:-3]} {p[-3:]}" for p in pages.split(", ")).replace(",\n", " ,\n")
        + "\n"
    )


# The next functions write latchwork.json(5), from the table of keys.


def configuration():
    """Converts the page of `check --reference`, which consists of paragraphs and a table of
    keys."""
    page = subprocess.run(
        [PROGRAM, "check", "--reference"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    out = title("latchwork.json", 5, "File Formats")
    out += ".SH NAME\nlatchwork.json \\- configuration of Latchwork\n.SH DESCRIPTION\n"
    keys = ""
    for line in page.splitlines():
        cells = (
            re.split(r"(?<!\\) \| ", line.strip().strip("|").strip())
            if line.startswith("| ")
            else []
        )
        if len(cells) < 3 or cells[0] in ("key", "---"):
            if line and not line.startswith(("#", "<!--", "|")):
                out += ".PP\n" + words(line) + "\n"
            continue
        key, value, default, meaning = (
            cells if len(cells) == 4 else (cells[0], cells[1], "", cells[2])
        )
        note = (
            "required"
            if default == "required"
            else "default: " + default
            if default.strip()
            else ""
        )
        keys += (
            f".TP\n{words(key)}: {words(value)}"
            + (f" ({words(note)})" if note else "")
            + "\n"
            + words(meaning)
            + "\n"
        )
    out += ".SH KEYS\n" + keys
    out += ".SH EXAMPLE\n" + example(
        """{
  "name": "orders",
  "kafka": { "topics": ["orders"], "properties": { "bootstrap.servers": "127.0.0.1:9092" } },
  "redis": { "url": "redis://127.0.0.1:6379/0" },
  "handler": { "type": "exec", "command": ["python3", "handler.py"], "processes": 4 }
}""".split("\n")
    )
    return out + see_also("latchwork(1), latchwork-handler(3)")


# The next functions write the pages that are made from C headers.


def prose(comment):
    """Converts a comment to roff. Sentences become paragraphs. A word and its meaning on a line
    that is indented by two columns become an item of a list. Other indented lines become
    examples."""
    out, par, code, items = "", [], [], False

    def end_paragraph():
        nonlocal out, par
        if par:
            out += ".PP\n" + text("\n".join(par)) + "\n"
        par = []

    for line in comment + [""]:
        item = re.match(r" {2}(\w+) {2,}(\S.*)", line)
        if item:
            end_paragraph()
            out += ".TP\n.B " + text(item[1]) + "\n" + text(item[2]) + "\n"
        items = bool(item) or (items and line.startswith("      "))
        if items:
            if not item:
                out += text(line.strip()) + "\n"
            continue
        indented = line.startswith("    ")
        if code and not indented and line.strip():
            out += example(code)
            code = []
        if indented:
            end_paragraph()
            code.append(line[4:])
        elif line.strip():
            par.append(line.strip())
        elif par:
            end_paragraph()
        elif code:
            code.append("")
    return out + (example(code) if code else "")


def comment_lines(block):
    lines = re.sub(r"^/\*|\*/$", "", block.strip()).split("\n")
    return [re.sub(r"^ \* ?", "", line) if i else line.strip() for i, line in enumerate(lines)]


def blocks(source):
    """Returns the (comment, code) pairs of the header's interface, in order. If code is None, the
    comment is a heading."""
    for block in re.split(r"\n\s*\n(?=\S)", source):
        block = block.strip("\n")
        heading = re.match(r"/\* --- (.*?) -+ \*/", block)
        if heading:
            yield heading.group(1), None
            block = block[heading.end() :].strip("\n")
        m = re.match(r"/\*.*?\*/\n", block + "\n", re.S)
        comment = comment_lines(m.group()) if m else []
        code = (block + "\n")[m.end() :] if m else block
        if comment or code.strip():
            yield comment, code.strip("\n")


def header(name):
    what, others = HEADERS[name]
    source = open(f"include/latchwork/{name}.h").read()
    source = re.sub(r"\A(/[/*] ?SPDX[^\n]*\n)+\n?", "", source)
    head, rest = source.split("*/", 1)
    interface = re.split(r'extern "C" \{\n#endif\n', rest, maxsplit=1)[1]
    interface = re.split(r"#ifdef __cplusplus\n\}", interface)[0]
    out = title("latchwork-" + name, 3, "Library Functions")
    out += f".SH NAME\nlatchwork\\-{name} \\- {what}\n.SH SYNOPSIS\n" + example(
        [f"#include <latchwork/{name}.h>"]
    )
    out += ".SH DESCRIPTION\n" + prose(comment_lines(head)) + ".SH INTERFACE\n"
    for comment, code in blocks(interface):
        if code is None:
            out += ".SS " + text(comment) + "\n"
        else:
            out += prose(comment) + (example(code.split("\n")) if code.strip() else "")
    return out + see_also(others)


def main():
    pages = {"latchwork.json.5": configuration()}
    for name in HEADERS:
        pages[f"latchwork-{name}.3"] = header(name)
    for name, page in pages.items():
        path = os.path.join(FOLDER, name)
        with open(path + ".tmp", "w") as f:
            f.write(page)
        os.rename(path + ".tmp", path)


main()
