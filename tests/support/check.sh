# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Counts the checks of a test that is written in sh. Such a test sources this file from the top of
# the tree, and ends with `summary`. The folder $dir is temporary and is removed when the test ends.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

check() { # usage: check NAME COMMAND…. Counts the check NAME as passed if COMMAND succeeds.
    name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $name"
        tail -n 20 "$dir/out" | sed 's/^/    | /'
    fi
}

summary() { # Prints the numbers of passed and failed checks. Fails if a check has failed.
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
