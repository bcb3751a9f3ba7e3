#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Latchwork on a distribution, and tests it there with one server, librdkafka and Kafka.
# usage: tests/matrix/cell.sh DISTRIBUTION SERVER LIBRDKAFKA KAFKA PART…
# example: tests/matrix/cell.sh here valkey-8.1 own 3.9.1 live no_faults_drain
#
# DISTRIBUTION
#     here: this machine
#     bookworm, trixie, noble: this machine if it runs that distribution, or else a chroot made by
#     tests/matrix/debian.sh, which needs root
# SERVER
#     a name from tests/matrix/servers.txt, or own: the installed redis-server
# LIBRDKAFKA
#     own: the distribution's version
#     a version that tests/matrix/librdkafka.sh can build, which the program then loads
# KAFKA
#     a version of Kafka, or none: no part needs Kafka
# PART
#     server, lua, lock: the tests of that name in tests/run.sh; with another server than the
#     installed one, server leaves out what talks to PostgreSQL only
#     live [SCENARIO…]: the scenarios of tests/matrix/live.py; this part comes last
# The output has a line "versions: …", which lists the versions that were used.
# exit: 0 all passed, 1 something failed, 2 wrong usage, or something that the
#   tests need (the server, librdkafka, Kafka, the build) is not available
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 5 ] || { sed -n '4,5s/^# //p' "$0" >&2; exit 2; }
distribution=$1 server=$2 library=$3 kafka=$4
shift 4
export LW_SERVERS=${LW_SERVERS:-$PWD/build/servers} \
    LW_LIBRDKAFKA=${LW_LIBRDKAFKA:-$PWD/build/librdkafka} \
    LW_KAFKA_LIBS=${LW_KAFKA_LIBS:-$PWD/build/kafka/libs}

own_codename() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release; }

prepare() {
    [ "$server" = own ] || tests/matrix/servers.sh "$server" >/dev/null || exit 2
    [ "$library" = own ] || tests/matrix/librdkafka.sh "$library" >/dev/null || exit 2
    [ "$kafka" = none ] || LW_KAFKA_VERSION=$kafka tests/live/kafka/kafka.sh fetch >/dev/null ||
        exit 2
    mkdir -p "$LW_SERVERS" "$LW_LIBRDKAFKA"
}

versions() {
    local rdkafka
    rdkafka=$(python3 -c 'import ctypes; f = ctypes.CDLL("librdkafka.so.1").rd_kafka_version_str; f.restype = ctypes.c_char_p; print(f().decode())')
    printf 'versions: system=%s server=%s librdkafka=%s hiredis=%s kafka=%s\n' \
        "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release | tr ' ' '_')" \
        "$("${LW_REDIS_SERVER:-redis-server}" --version | sed 's/ server v=/_/; s/ .*//')" \
        "$rdkafka" "$(pkg-config --modversion hiredis)" "$kafka"
}

run_parts() {
    local status=0
    versions
    while [ $# -gt 0 ]; do
        case $1 in
        live)
            shift
            tests/matrix/live.py build "$@" || status=1
            return $status
            ;;
        server | lua | lock)
            local kind=$1
            [ "$kind/$server" = server/own ] || kind=${kind/server/redis}
            tests/run.sh "$kind" build || status=1
            ;;
        *) echo "cell.sh: unknown part $1" >&2; return 2 ;;
        esac
        shift
    done
    return $status
}

run_here() {
    [ -z "${CELL_INSIDE:-}" ] || scripts/deps.sh plain
    mkdir -p build
    make --no-print-directory -s tests >build/matrix.log 2>&1 || {
        tail -n 20 build/matrix.log >&2
        echo "cell.sh: the build failed" >&2
        exit 2
    }
    export LW_KAFKA_VERSION=$kafka
    if [ "$server" != own ]; then
        export LW_REDIS_SERVER=$LW_SERVERS/$server/bin/redis-server \
            PATH=$LW_SERVERS/$server/bin:$PATH
    fi
    [ "$library" = own ] || export LD_LIBRARY_PATH=$LW_LIBRDKAFKA/$library/lib
    run_parts "$@"
}

if [ "$distribution" = here ] || [ "$distribution" = "$(own_codename)" ]; then
    [ -n "${CELL_INSIDE:-}" ] || prepare
    run_here "$@"
else
    prepare
    LW_CHROOT_TREE=${LW_CHROOT_TREE:-matrix} \
        LW_CHROOT_SHARED="$LW_SERVERS $LW_LIBRDKAFKA $(dirname "$LW_KAFKA_LIBS")" \
        tests/matrix/debian.sh "$distribution" env CELL_INSIDE=1 LW_SERVERS="$LW_SERVERS" \
        LW_LIBRDKAFKA="$LW_LIBRDKAFKA" LW_KAFKA_LIBS="$LW_KAFKA_LIBS" \
        tests/matrix/cell.sh here "$server" "$library" "$kafka" "$@"
fi
