#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the compiler and the libraries are recent enough to build Latchwork. Names on stderr
# everything that is missing or too old.
#   usage: need.sh CC "NAME [>= VERSION], …"
#   exit: 0 nothing is missing or too old, 1 something is
set -eu
cc=$1
status=0
say() {
    echo "latchwork: $*" >&2
    status=1
}
if ! command -v pkg-config >/dev/null 2>&1; then
    say "pkg-config is missing"
elif ! command -v "${cc%% *}" >/dev/null 2>&1; then
    say "the compiler $cc is missing"
elif ! echo 'int main(void) { return 0; }' | $cc -std=c17 -x c -fsyntax-only - 2>/dev/null; then
    say "the compiler $cc does not support C17; use gcc 8, clang 6 or later"
fi
old_ifs=$IFS
IFS=,
for need in $2; do
    IFS=$old_ifs
    # shellcheck disable=SC2086 # NAME >= VERSION, three words
    set -- $need
    if ! pkg-config --exists "$1" 2>/dev/null; then
        say "the library $1 is missing${3:+ ($3 or later is needed)}"
    elif [ $# -eq 3 ] && ! pkg-config --atleast-version="$3" "$1"; then
        say "the library $1 is $(pkg-config --modversion "$1"); $3 or later is needed"
    fi
done
[ $status -eq 0 ] ||
    echo "latchwork: on Debian and its relatives, make deps installs what is missing" >&2
exit $status
