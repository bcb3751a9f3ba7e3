# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Counts the checks of a test that is written in sh. Such a test sources this file from the top of
# the tree, and ends with `summary`. The folder $dir is temporary and is removed when the test ends.
# A test that has more to do at its end sets the trap EXIT again. What the last command under test
# wrote is in $dir/out and $dir/err, if the test puts it there.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

good() { passed=$((passed + 1)); }
bad() { # usage: bad WHAT. Counts a failed check, and shows what the last command wrote.
    failed=$((failed + 1))
    echo "FAILED: $1"
    for stream in out err check; do
        [ ! -s "$dir/$stream" ] || tail -n 20 "$dir/$stream" | sed "s/^/  $stream: /"
    done
}
check() { # usage: check NAME COMMAND…. The command must succeed.
    name=$1
    shift
    if "$@" >"$dir/check" 2>&1; then good; else bad "$name"; fi
    rm -f "$dir/check"
}
ok() { # usage: ok NAME CONDITION. The shell must find that the condition is true.
    if eval "$2"; then good; else bad "$1"; fi
}
equal() { # usage: equal NAME IS MUST-BE. The two texts must be equal.
    if [ "$2" = "$3" ]; then good; else bad "$1: is '$2', must be '$3'"; fi
}
# usage: ends_with STATUS STDOUT STDERR NAME IS. A command ended with the status IS, which must be
# STATUS, and wrote $dir/out and $dir/err. STDOUT and STDERR are patterns (ERE), which some line
# must match. The pattern "" means that the output must be empty.
ends_with() {
    want=$1 out=$2 err=$3 name=$4 status=$5
    if [ "$status" -ne "$want" ]; then bad "$name: exit status $status, wanted $want"; return; fi
    for stream in out err; do
        eval "pattern=\$$stream"
        if [ -z "$pattern" ]; then
            if [ -s "$dir/$stream" ]; then bad "$name: std$stream is not empty"; return; fi
        elif ! grep -Eq -- "$pattern" "$dir/$stream"; then
            bad "$name: std$stream lacks /$pattern/"
            return
        fi
    done
    good
}

summary() { # Prints the numbers of passed and failed checks. Fails if a check has failed.
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
