#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the tarball for other distributions in a clean chroot of Debian 12, or tests it. Needs
# root, for chroot and mount.
# usage: packaging/tarball.sh build|twice|test
#
#   build   puts the tarball, its bill of materials (SPDX) and SHA256SUMS into build/tarball
#   twice   builds it again and compares: the same bytes are expected
#   test    unpacks it in a clean chroot of Debian 13, which has none of its libraries, and runs it
#
# Only files that git knows are built. Files are dated by the newest commit. The chroots are kept in
# $LW_CLEAN_CHROOTS (default build/clean).
# exit: 0 built, equal, or passed; 1 not; 2 usage, or no chroot can be made
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/tarball
again=$PWD/build/tarball-again
source=$PWD/build/packaging/rdkafka-2.15.1

in_chroot() { # SUITE FOLDER COMMAND…: runs a command in a clean chroot, in which this folder is shared
    local suite=$1 shared=$2
    shift 2
    mkdir -p "$shared" "$source"
    LW_CHROOTS=${LW_CLEAN_CHROOTS:-$PWD/build/clean} LW_CHROOT_CLEAN=1 LW_CHROOT_TREE=tarball LW_CHROOT_SHARED="$shared $source" tests/matrix/debian.sh "$suite" "$@"
}

build() { # OUT
    rm -rf "$1"
    packaging/rdkafka-source.sh "$source"
    in_chroot bookworm "$1" env SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" RDKAFKA="$source" packaging/build-tarball.sh "$1"
    (cd "$1" && sha256sum ./*.tar.gz ./*.spdx.json >SHA256SUMS)
}

state() { # what the tarball was built from
    git rev-parse HEAD
    git diff HEAD | sha256sum
}

first() { # builds the tarball unless it is there and nothing has changed since
    [ ! -e "$out/.built-from" ] || ! state | cmp -s - "$out/.built-from" || return 0
    build "$out"
    state >"$out/.built-from"
}

case ${1:-} in
build)
    first
    ls -l "$out"
    ;;
twice)
    first
    build "$again"
    cmp "$out/SHA256SUMS" "$again/SHA256SUMS" || { echo "tarball.sh: the second build has other bytes; both are kept: $out, $again" >&2; exit 1; }
    rm -rf "$again"
    echo "the tarball, built twice, is the same"
    ;;
test)
    first
    in_chroot trixie "$out" packaging/test-tarball.sh "$out"
    ;;
*)
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
    ;;
esac
