#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the source, which is the code in kafka/, with a real Apache Kafka.
# Usage: test_source.sh [BUILD [CASE]]
# The last line of the output is "N passed, N failed".
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
dir=$(mktemp -d "${TMPDIR:-/tmp}/latchwork-source.XXXXXX")
kafka=tests/live/kafka/kafka.sh
cleanup() {
    status=$?
    trap - EXIT
    $kafka kill "$dir" || true
    rm -rf "$dir"
    exit $status
}
trap cleanup EXIT
trap 'exit 1' INT TERM
brokers=$($kafka start "$dir" 0)
"$build/tests/tools/source_test" "$brokers" "$dir" ${2:+"$2"}
