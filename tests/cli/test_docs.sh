#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the documents are true. Generated pages must agree with the program, links must have a
# target, tests that are named must exist, configurations must load, handlers must compile, and no
# page may name the machine on which it was written.
# Usage: tests/cli/test_docs.sh [BUILD_DIR]
# shellcheck disable=SC2013,SC1003 # words on lines, and a backslash that is meant
LC_ALL=C.UTF-8
export LC_ALL
build=$(pwd)/${1:-build}
program=$build/latchwork
[ -x "$program" ] || { echo "no program at $program"; exit 1; }
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
# shellcheck disable=SC2012 # the names of the pages are plain
pages="$(ls ./*.md | sed "s|^\./||") tests/README.md bench/README.md
    bench/NOTES.md $(find doc -name '*.md' | sort)"

# --- the generated pages --------------------------------------------------------------------------
"$program" reference | grep '^doc/' >"$dir/generated" || bad "reference lists nothing"
while read -r file; do
    "$program" reference "$file" >"$dir/page"
    if cmp -s "$dir/page" "$file"; then
        good
    else
        bad "$file is not what the tables say; run: make reference"
    fi
done <"$dir/generated"
for option in --reference:configuration --reference-metrics:metrics; do
    if "$program" check "${option%:*}" | cmp -s - "doc/reference/${option#*:}.md"; then
        good
    else
        bad "check ${option%:*} prints another page"
    fi
done

# groff must print no warning about a man page. Every option that --help prints must be in the man
# page of its command. The help must fit into 80 columns.
for page in "$build"/man/*; do
    if groff -K utf8 -man -Tutf8 -ww -z "$page" >"$dir/err" 2>&1 && [ ! -s "$dir/err" ]; then
        good
    else
        bad "$page: $(head -n 3 "$dir/err")"
    fi
done
for command in $("$program" --help | sed -n '/not in this version/d; s/^  \([a-z]*\) .*/\1/p'); do
    "$program" "$command" --help >"$dir/help"
    for verb in $(sed -n '/^Examples/q; s/^  \([a-z]*\)  *[a-z].*/\1/p' "$dir/help"); do
        case $command in
        queue | dead | lock | handler) "$program" "$command" "$verb" --help >>"$dir/help" ;;
        esac
    done
    if [ -z "$(awk 'length($0) > 80' "$dir/help")" ]; then
        good
    else
        bad "$command --help: wider than 80 columns: $(awk 'length($0) > 80' "$dir/help" | head -n 2)"
    fi
    for option in $(sed -n 's/^ *\(-., \)*--\([a-z-]*\).*/\2/p' "$dir/help" | sort -u); do
        if tr -d '\\' <"$build/man/latchwork-$command.1" | grep -q "^.*--$option\(fR\|\$\)"; then
            good
        else
            bad "latchwork-$command.1 does not tell of --$option"
        fi
    done
done
if [ -z "$("$program" --help | awk 'length($0) > 80')" ]; then
    good
else
    bad "--help is wider than 80 columns"
fi

# Each folder with more than ten files, outside doc/, must have a README.md of at least five lines.
# A tarball is no clone.
git ls-files >"$dir/files" 2>/dev/null ||
    find . \( -name build -o -name __pycache__ \) -prune -o -type f -printf '%P\n' >"$dir/files"
sed -n '/^doc\//d; /README\.md$/d; s|/[^/]*$||p' "$dir/files" | sort | uniq -c >"$dir/folders"
large=0
while read -r n folder; do
    [ "$n" -gt 10 ] || continue
    large=$((large + 1))
    lines=$(grep -sc . "$folder/README.md")
    if [ "${lines:-0}" -ge 5 ]; then
        good
    else
        bad "$folder has $n files and no README.md of five lines: what lives here, what may include it, where to start"
    fi
done <"$dir/folders"
[ $large -gt 20 ] || bad "hardly any folder with more than ten files was found"

# Each link [text](path) must lead to a file. The path is relative to the folder of the page.
# shellcheck disable=SC2046,SC2086 # lists of files
readmes=$(grep 'README\.md$' "$dir/files")
# shellcheck disable=SC2046,SC2086
grep -noE '\]\([^)]+\)' $(printf '%s\n' $pages $readmes | sort -u) >"$dir/links"
while IFS=: read -r page line link; do
    target=${link#](}
    target=${target%)}
    case $target in http:* | https:*) continue ;; esac
    target=${target%%#*}
    if [ -e "$(dirname "$page")/$target" ]; then
        good
    else
        bad "$page:$line: $target is not there"
    fi
done <"$dir/links"
[ -s "$dir/links" ] || bad "no links found"

# Each test that a page names as `tests/FILE` or `tests/FILE:NAME` must exist.
exists() { # usage: exists FILE NAME. Succeeds if the file has a test of this name.
    case $1 in
    tests/unit/*.c | tests/lua/*.c) grep -Eq "^static void $2\\(void \\*\\*state\\)" "$1" &&
        grep -Eq "[(,]$2[,)]" "$1" ;;
    tests/sim/sim_lanes.c) grep -q "{.name = \"$2\"" "$1" ;;
    tests/sim/mutants.py) grep -Fq "    '$2': [" "$1" ;;
    tests/live/*.py) grep -A1 '^@scenario' "$1" | grep -q "^def $2(" ;;
    *) grep -Eq "(^|[ *])$2\\(" "$1" ;;
    esac
}
# usage: named PAGE MINIMUM. Checks that the page names more than MINIMUM tests, and that each of
# these tests exists.
named() {
    grep -oE '`tests/[^`]+\.(c|h|py|sh)(:[^`]+)?`' "$1" | tr -d '`' | sort -u >"$dir/named"
    while IFS=: read -r file name; do
        if [ ! -f "$file" ]; then
            bad "$1 names $file, which is not there"
        elif [ -n "$name" ] && ! exists "$file" "$name"; then
            bad "$1 names $name of $file, which is not there"
        else
            good
        fi
    done <"$dir/named"
    [ "$(wc -l <"$dir/named")" -gt "$2" ] || bad "$1 names hardly any test"
}
named tests/README.md 50
named doc/design/faults.md 50

# The pages guarantees.md and tests/README.md must list the same promises.
grep -hE '^### [0-9]+\. ' doc/explanation/guarantees.md >"$dir/promises"
grep -hE '^### [0-9]+\. ' tests/README.md >"$dir/shown"
if cmp -s "$dir/promises" "$dir/shown" && [ -s "$dir/shown" ]; then
    good
else
    bad "guarantees.md and tests/README.md name different promises: $(diff "$dir/promises" "$dir/shown" | grep '^[<>]' | tr '\n' ' ')"
fi

# The code in pages must work: each ```json block with a "kafka" section must load as a
# configuration, each ```c block must compile as a plugin, and each ```python block must compile.
blocks() { # usage: blocks LANGUAGE PAGE. Writes each block of this language to $dir/block.N.
    rm -f "$dir"/block.*
    awk -v lang="$1" -v to="$dir/block." '
        !in_block && $1 == "```" lang { in_block = 1; n++; next }
        in_block && $1 == "```" { in_block = 0; close(to n); next }
        in_block { print > (to n) }' "$2"
}
mkdir -p "$dir/handlers/examples/tail" "$dir/first"
: >"$dir/my.so"
: >"$dir/handlers/examples/tail/tail.so"
configurations=0
for page in $pages; do
    blocks json "$page"
    for block in "$dir"/block.*; do
        [ -e "$block" ] || continue
        if ! grep -q '"kafka"' "$block"; then continue; fi
        configurations=$((configurations + 1))
        if (cd "$dir" && BROKER=127.0.0.1:9092 REDIS=unix:///nowhere "$program" check -c "$block") \
            >/dev/null 2>"$dir/err"; then
            good
        else
            bad "$page: a configuration has errors: $(grep -v '^warning' "$dir/err")"
        fi
    done
    blocks c "$page"
    for block in "$dir"/block.*; do
        [ -e "$block" ] || continue
        if ${CC:-cc} -Wall -Werror -fsyntax-only -Iinclude -x c "$block" 2>"$dir/err"; then
            good
        else
            bad "$page: C: $(head -n 3 "$dir/err")"
        fi
    done
    blocks python "$page"
    for block in "$dir"/block.*; do
        [ -e "$block" ] || continue
        # An indented block is only a part of a program. The line `if True:` before it makes it
        # complete.
        if { head -n 1 "$block" | grep -q '^ ' && echo 'if True:'; cat "$block"; } |
            python3 -c 'import ast, sys; ast.parse(sys.stdin.read())' 2>"$dir/err"; then
            good
        else
            bad "$page: Python: $(tail -n 1 "$dir/err")"
        fi
    done
done
[ $configurations -gt 5 ] || bad "only $configurations configurations found"

# The page protocol.md must name each script, and the page commands.md must name each command.
for script in queue/lua/*.lua lock/lua/*.lua; do
    name=$(basename "$script" .lua)
    [ "$name" = lane ] || { grep -q "^| $name |" doc/explanation/protocol.md && good; } ||
        bad "protocol.md does not tell of $script"
done
"$program" --help | awk '/^  [a-z]/ {print $1}' >"$dir/commands"
while read -r command; do
    if grep -q "^## $command\$\|\`$command\`" doc/reference/commands.md; then
        good
    else
        bad "commands.md does not tell of $command"
    fi
done <"$dir/commands"

# Code and tests cite a rule of the protocol as: rule "NAME". Each such name must be in protocol.md
# in bold, and no rule may be cited by a number.
sources=$(find . \( -path ./build -o -path ./.git \) -prune -o -type f \
    -regex '.*\.\(c\|h\|lua\|py\|sh\|md\)' ! -name test_docs.sh -print)
# shellcheck disable=SC2086 # a list of files
grep -ohE '[Rr]ule "[^"]+"' $sources | sed 's/.*"\(.*\)"/\1/' | sort -u >"$dir/cited"
while read -r rule; do
    # shellcheck disable=SC2086 # a list of files
    if grep -Fq "**$rule**" doc/explanation/protocol.md; then
        good
    else
        bad "protocol.md has no rule \"$rule\", which is cited: $(grep -lF "rule \"$rule\"" $sources | tr '\n' ' ')"
    fi
done <"$dir/cited"
[ "$(wc -l <"$dir/cited")" -gt 8 ] || bad "hardly any rule of the protocol is cited"
# shellcheck disable=SC2086 # a list of files
if grep -nE '\b[Rr]ules? [0-9]+' $sources; then
    bad "a rule is cited by a number: protocol.md has names"
else
    good
fi

# The output of `make help` must have one line per target, and no line without a target.
make() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory "$@"; }
make -npq help 2>/dev/null | sed -n 's/^\.PHONY: *//p' | tr ' ' '\n' | grep . |
    sort -u >"$dir/targets"
make help | sed -n 's/^  \([a-z0-9-]*\) .*[^ ]$/\1/p' | sort >"$dir/help"
while read -r target; do
    if grep -Fxq "$target" "$dir/help"; then
        good
    else
        bad "make help says nothing of $target: write '## $target: TEXT' above its rule"
    fi
done <"$dir/targets"
comm -13 "$dir/targets" "$dir/help" >"$dir/extra"
if [ -s "$dir/extra" ]; then
    bad "make help tells of what is no .PHONY target, or tells it twice: $(tr '\n' ' ' <"$dir/extra")"
else
    good
fi
[ "$(wc -l <"$dir/targets")" -gt 30 ] || bad "hardly any .PHONY target was found"

# The entries of the glossary must be in alphabetical order. No word may have two entries. Each term
# of protocol.md and each script must have an entry.
sed -n 's/^- \*\*\([^*]*\)\*\*.*: .*/\1/p' doc/glossary.md |
    tr '[:upper:]' '[:lower:]' >"$dir/words"
if LC_ALL=C sort -cu "$dir/words" 2>"$dir/err"; then
    good
else
    bad "doc/glossary.md is not in order, or has a word twice: $(cat "$dir/err")"
fi
if [ "$(wc -l <"$dir/words")" = "$(grep -c '^- ' doc/glossary.md)" ]; then
    good
else
    bad "doc/glossary.md has an entry that is not '- **WORD**: SENTENCE'"
fi
{
    sed -n '/^## Words/,/^## Scripts/p' doc/explanation/protocol.md | grep -o '\*\*[a-z]*\*\*:' |
        tr -d '*:'
    sed -n 's/^| \([a-z]*\) | .*/\1/p' doc/explanation/protocol.md | sed 's/^hints$/hint/'
} | sort -u >"$dir/needed"
while read -r word; do
    # Skip the scripts of operators' commands, which need no entry in the glossary, and the word
    # `script`, which is the heading of a table.
    case $word in put | drop | job | wake | edit | look | script) continue ;; esac
    if grep -Fxq "$word" "$dir/words"; then
        good
    else
        bad "doc/glossary.md does not explain $word, a word of protocol.md"
    fi
done <"$dir/needed"
[ "$(wc -l <"$dir/needed")" -gt 20 ] || bad "hardly any word found in protocol.md"

# No page may contain a path of the machine on which the page was written.
# shellcheck disable=SC2086 # a list of files
if grep -nE '/w[o]rk/|/tmp/w-|/r[o]ot/|/home/' $pages doc/lifecycle.txt; then
    bad "a path of one machine"
else
    good
fi

summary
