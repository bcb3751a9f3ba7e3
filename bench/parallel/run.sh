#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the Java contenders of the benchmark. bench/parallel/README describes the
# contenders and their options.
#
# run.sh build         compiles the contenders with Maven, and fetches the jars that they need, into
#                      $LW_PARALLEL_OUT (default: build/bench/parallel), unless they are up to date
# run.sh OPTION ...    builds if necessary, then becomes the java process with the pid of this
#                      script
#
# The variable LW_PARALLEL_JAVA contains more arguments for java, which are inserted before the
# class.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${LW_PARALLEL_OUT:-$root/build/bench/parallel}
case $out in
/*) ;;
*) out=$(pwd)/$out ;;
esac

die() {
    echo "parallel: $*" >&2
    exit 1
}

built() {
    [ -e "$out/.complete" ] && [ -z "$(find "$here/pom.xml" "$here/src" -newer "$out/.complete")" ]
}

build() {
    if built; then return; fi
    mkdir -p "$out"
    # If several scripts start together, the lock lets only one of them build.
    exec 9> "$out/.lock"
    flock 9
    if ! built; then
        command -v mvn > /dev/null || die "no mvn; install Maven: scripts/deps.sh test"
        command -v javac > /dev/null ||
            die "no javac; install a JDK, 17 or later: scripts/deps.sh bench"
        echo "parallel: building with Maven (once)" >&2
        rm -rf "$out/libs"
        mvn -q -B -DskipTests -Dout="$out" -f "$here/pom.xml" package >&2 ||
            die "Maven could not build it"
        touch "$out/.complete"
    fi
    exec 9>&-
}

build
if [ "${1:-}" = build ]; then exit 0; fi
# shellcheck disable=SC2086
exec java -Xms512m -Xmx512m -XX:+UseParallelGC ${LW_PARALLEL_JAVA:-} -cp "$out/libs/*" \
    latchwork.bench.Parallel "$@"
