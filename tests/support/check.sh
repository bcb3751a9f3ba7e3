# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Counts the checks of a test. Sourced by tests in sh, from the top of the tree: makes the folder
# $dir, which goes when the test ends. The test ends with `summary`.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

check() { # NAME COMMAND…: counts the test NAME as passed if the command succeeds
    name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $name"
        tail -n 20 "$dir/out" | sed 's/^/    | /'
    fi
}

summary() { # prints the numbers; fails if a check has failed
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
