#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes all manual pages. Their text is already in the program, in cli/page.md and in the headers:
latchwork(1) and a page for each command, latchwork.json(5), latchwork-handler(3),
latchwork-lock(3). The build runs this; no page is in the repository.
  usage: scripts/man-pages.py PROGRAM FOLDER"""

import os
import re
import subprocess
import sys

PROGRAM, FOLDER = sys.argv[1:3]
HEADERS = {
    "handler": ("handlers for Latchwork, written in C", "latchwork.json(5), latchwork(1)"),
    "lock": (
        "locks between threads, processes and machines, through Redis",
        "latchwork(1), latchwork-handler(3), pkg-config(1)",
    ),
}
# What a table whose first cell has this name becomes: a section of this title.
TABLES = {"verb": "VERBS", "option": "OPTIONS", "exit status": '"EXIT STATUS"', "key": "KEYS"}


HELP = ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrint how the command is used.\n"


def printed(*words):
    return subprocess.run([PROGRAM, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


VERSION = printed("--version").split()[1]


def text(s):
    """Escapes a text for roff, so that none of its characters is a request or an escape."""
    s = s.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in s.split("\n"))


def words(s):
    """Converts the Markdown within a line: `code`, **bold** and *italic* text get their fonts, and
    a link becomes its text."""
    out = []
    for i, part in enumerate(re.split(r"(?<!`)`(?!`)([^`]+)`", s)):
        if i % 2:
            out.append("\\fB" + text(part.replace("\\|", "|")) + "\\fR")
            continue
        part = re.sub(r"\\([|*\[])", r"\1", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", part))
        part = re.sub(r"\*\*([^*]+)\*\*", "\1B\\1\1R", text(part))
        part = re.sub(r"(?<!\w)\*(\w[^*]*)\*(?!\w)", "\1I\\1\1R", part)
        out.append(part.replace("\1", "\\f"))
    # a link whose text is code is split by the code: what is left of it goes
    joined = re.sub(r"\[(\\fB[^\]]*\\fR)\]\([^)]*\)", r"\1", "".join(out))
    return "\\&" + joined if joined[:1] in (".", "'") else joined


def sentence(s):
    return words(s[:1].upper() + s[1:] + ("" if s.endswith((".", "!", "?")) else ".")) + "\n"


def example(lines):
    while not lines[-1].strip():
        lines = lines[:-1]
    return ".PP\n.in +4n\n.EX\n" + text("\n".join(lines)) + "\n.EE\n.in\n"


def title(name, section, kind, what):
    return (
        '.\\" Written by scripts/man-pages.py.\n'
        f'.TH {text(name.upper())} {section} "" "Latchwork {VERSION}" "{kind}"\n'
        f".SH NAME\n{text(name)} \\- {words(what)}\n"
    )


def see_also(pages):
    items = [f".BR {text(p[:-3])} {p[-3:]}" for p in pages.split(", ")]
    return '.SH "SEE ALSO"\n' + ",\n".join(items) + "\n"


# The next functions write the pages whose text is Markdown: latchwork.json(5), latchwork(1) and the
# commands.


def row(kind, cells):
    """Converts the row of a table: the term, and what is said about it."""
    term, rest = cells[0], cells[1:]
    if kind == "option":
        # the words of an option are bold, its value is italic
        term = re.sub(r"`(--?[\w-]+) ([^`]+)`", lambda m: f"`{m[1]}` *{m[2]}*", term)
        rest = [rest[-1]] + ([f"Taken by {rest[0]}."] if len(rest) > 1 and rest[0] != "all" else [])
    elif kind == "exit status":
        term = f"**{term}**"
        rest = [rest[-1]] + ([f"Of {rest[0]}."] if len(rest) > 1 and rest[0] != "all" else [])
    elif kind == "verb":
        term = f"**{term}**"
    elif kind == "key":
        default = f" (default: {rest[1]})" if len(rest) == 3 and rest[1].strip() else ""
        default = " (required)" if len(rest) == 3 and rest[1] == "required" else default
        term, rest = f"{term}: {rest[0]}{default}", [rest[-1]]
    return f".TP\n{words(term)}\n" + "".join(sentence(r) for r in rest if r)


def markdown(lines, section="DESCRIPTION"):
    """Converts paragraphs, lists, examples, tables and headings. What follows a table that is a
    section by itself, and has no heading, gets the heading NOTES."""
    out, kind, fence, code, paragraph = "", None, False, [], False
    for line in lines + [""]:
        indented = not fence and line.startswith("    ") and (code or not paragraph)
        if fence and not line.startswith("```"):
            code.append(line)
            continue
        if indented:
            code.append(line[4:])
            continue
        if code and (fence or line.strip()):
            out, code = out + example(code), []
        if section and line.strip() and not line.startswith(("#", "|", "<!--")):
            out, section = out + f".SH {section}\n", None
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if line.startswith("```"):
            fence, kind = not fence, None
        elif cells and kind is None:
            kind = cells[0]
            if kind in TABLES and TABLES[kind] not in out:
                out, section = out + f".SH {TABLES[kind]}\n", "NOTES"
                out += HELP if kind == "option" else ""
        elif cells and not set(cells[0]) <= set("-: "):
            out += row(kind, cells)
        elif line.startswith("### "):
            out, section = out + f'.SH "{text(line[4:].upper())}"\n', None
        elif line.startswith("- "):
            out += ".IP \\(bu 2\n" + words(line[2:]) + "\n"
        elif line.strip() and not line.startswith(("#", "<!--", "|")):
            out += ("" if paragraph else ".PP\n") + words(line.strip()) + "\n"
        elif code:
            code.append("")
        paragraph = bool(line.strip()) and not cells and not line.startswith("#")
        if not cells:
            kind = None
    return out + (example(code) if code else "")


def configuration():
    out = title("latchwork.json", 5, "File Formats", "configuration of Latchwork")
    out += markdown(printed("check", "--reference").splitlines())
    out += ".SH EXAMPLE\n" + example(
        """{
  "name": "orders",
  "kafka": { "topics": ["orders"], "properties": { "bootstrap.servers": "127.0.0.1:9092" } },
  "redis": { "url": "redis://127.0.0.1:6379/0" },
  "handler": { "type": "exec", "command": ["python3", "handler.py"], "processes": 4 }
}""".split("\n")
    )
    return out + see_also("latchwork(1), latchwork-handler(3)")


def synopsis(name, usage):
    bold = rf"latchwork {name}(?: (?!KEY\b)[a-z]+\b)?" if name else r"latchwork"
    lines = [re.sub("^" + bold, lambda m: f"**{m[0]}**", line) for line in usage if line]
    lines = [words(re.sub(r"\[", r"\\[", line)) for line in lines]
    return ".SH SYNOPSIS\n" + "\n.br\n".join(lines) + "\n"


def command(name, summary, part):
    """Converts the part of doc/reference/commands.md about a command: its usage, its text, and
    examples at the end."""
    usage, rest = re.match(r"\s*```\n(.*?)```\n(.*)", part, re.S).groups()
    rest, examples = re.match(r"(.*)```sh\n(.*?)```\s*\Z", rest, re.S).groups()
    return (
        title(f"latchwork-{name}", 1, "User Commands", summary)
        + synopsis(name, usage.splitlines())
        + markdown(rest.splitlines())
        + ".SH EXAMPLES\n"
        + example(examples.splitlines())
        + see_also("latchwork(1)")
    )


def commands():
    """Returns latchwork.1 and the page of each command."""
    summaries = dict(re.findall(r"^  ([a-z]+) +(\S.*)", printed("--help"), re.M))
    parts = re.split(r"^## (\w+)\n", printed("reference", "doc/reference/commands.md"), flags=re.M)
    parts = {n: p for n, p in zip(parts[1::2], parts[2::2]) if "```" in p}
    first, more = open("cli/page.md").read().split("### ", 1)
    usage = ["latchwork COMMAND [options]", "latchwork COMMAND --help", "latchwork --version"]
    out = title("latchwork", 1, "User Commands", "consume Kafka with one handler per primary key")
    out += synopsis("", usage) + markdown(first.splitlines()) + ".SH COMMANDS\n"
    for name, summary in summaries.items():
        out += f".TP\n.B {name}\n{sentence(summary)}"
    out += markdown(("### " + more).splitlines())
    out += see_also(", ".join(f"latchwork-{name}(1)" for name in parts))
    pages = {"latchwork.1": out}
    for name, part in parts.items():
        pages[f"latchwork-{name}.1"] = command(name, summaries[name], part)
    return pages


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
    out = title("latchwork-" + name, 3, "Library Functions", what)
    out += ".SH SYNOPSIS\n" + example([f"#include <latchwork/{name}.h>"])
    out += ".SH DESCRIPTION\n" + prose(comment_lines(head)) + ".SH INTERFACE\n"
    for comment, code in blocks(interface):
        if code is None:
            out += ".SS " + text(comment) + "\n"
        else:
            out += prose(comment) + (example(code.split("\n")) if code.strip() else "")
    return out + see_also(others)


def main():
    pages = {**commands(), "latchwork.json.5": configuration()}
    for name in HEADERS:
        pages[f"latchwork-{name}.3"] = header(name)
    for name, page in pages.items():
        path = os.path.join(FOLDER, name)
        with open(path + ".tmp", "w") as f:
            f.write(page)
        os.rename(path + ".tmp", path)


main()
