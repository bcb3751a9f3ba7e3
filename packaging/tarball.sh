#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds or tests the tarball for other distributions in a clean chroot. Needs root.
# usage: packaging/tarball.sh build|twice|test
#
#   build   writes the tarball, its bill of materials (SPDX) and SHA256SUMS to build/tarball
#   twice   builds the tarball again, and fails if its bytes differ
#   test    unpacks and runs the tarball in a clean chroot of Debian 13, which has none of the
#           libraries that the tarball contains
#
# Only files that git tracks are built. The files have the date of the newest commit. The chroots
# are kept in $LW_CLEAN_CHROOTS (default build/clean).
# exit: 0 built, equal or passed; 1 failed; 2 wrong usage, or a chroot cannot be made
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/tarball
again=$PWD/build/tarball-again
source=$PWD/build/packaging/rdkafka-2.15.1

in_chroot() { # SUITE FOLDER COMMAND…: runs a command in a clean chroot that shares this folder
    local suite=$1 shared=$2
    shift 2
    mkdir -p "$shared" "$source"
    LW_CHROOTS=${LW_CLEAN_CHROOTS:-$PWD/build/clean} LW_CHROOT_CLEAN=1 LW_CHROOT_TREE=tarball \
        LW_CHROOT_SHARED="$shared $source" tests/matrix/debian.sh "$suite" "$@"
}

build() { # OUT: builds the tarball and writes it to OUT
    rm -rf "$1"
    packaging/rdkafka-source.sh "$source"
    in_chroot bookworm "$1" env SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" RDKAFKA="$source" \
        packaging/build-tarball.sh "$1"
    (cd "$1" && sha256sum ./*.tar.gz ./*.spdx.json >SHA256SUMS)
}

state() { # prints the commit, and a hash of the changes since the commit
    git rev-parse HEAD
    git diff HEAD | sha256sum
}

first() { # builds the tarball, unless it was already built from the tree as it is now
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
    cmp "$out/SHA256SUMS" "$again/SHA256SUMS" || {
        echo "tarball.sh: the second build has other bytes; both are kept: $out, $again" >&2
        exit 1
    }
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
