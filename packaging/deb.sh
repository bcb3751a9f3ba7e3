#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds or tests the Debian packages of this tree in a clean chroot. Needs root.
# usage: packaging/deb.sh build|twice|test|secured|systemd|here bookworm|trixie
#
#   build    writes the packages to build/deb/DISTRIBUTION, and fails at a warning of lintian
#   twice    builds the packages again in another folder, time zone and language, and fails if their
#            bytes differ
#   test     installs the packages in a clean chroot and runs debian/tests, as autopkgtest does
#   secured  installs the packages in a clean chroot, and follows the documents with a secured Kafka
#            and a Valkey with TLS until messages are handled
#   systemd  boots systemd in a clean chroot and runs services of the installed unit
#   here     builds the packages without a chroot, in a container that may not mount: it must be of
#            DISTRIBUTION, and what the build needs is installed in it
#
# Packages are built only from files that git tracks. They have the date of the newest commit.
# $MAINTAINER is the maintainer of the packages, as "NAME <ADDRESS>". The chroots are kept in
# $LW_CLEAN_CHROOTS (default build/clean). If $LW_DEBS is set, the packages in this folder are
# tested, and none are built.
# exit: 0 the packages were built, both builds are equal, or the tests passed; 1 failed; 2 wrong
#       usage, or a chroot cannot be made
set -euo pipefail
cd "$(dirname "$0")/.."
usage() {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
[ $# -eq 2 ] || usage
what=$1 distribution=$2
case $what in build | twice | test | secured | systemd | here) ;; *) usage ;; esac
case $distribution in
bookworm | trixie) ;;
*)
    echo "deb.sh: packages can be built for bookworm and trixie, not for \"$distribution\"" >&2
    exit 2
    ;;
esac
out=$(realpath -m "${LW_DEBS:-build/deb/$distribution}")
again=$PWD/build/deb/again-$distribution
source=$PWD/build/packaging/rdkafka-2.15.1
epoch=$(git log -1 --format=%ct)
maintainer=${MAINTAINER:-Latchwork maintainers <maintainers@latchwork.example>}
rdkafka=

# The librdkafka of Debian 12 cannot log in to Kafka 4 by SCRAM, so a newer librdkafka is built into
# the program for bookworm.
fetch_rdkafka() {
    [ "$distribution" = bookworm ] || return 0
    rdkafka=$source
    packaging/rdkafka-source.sh "$source"
}

in_chroot() { # FOLDER COMMAND…: runs a command in a clean chroot that shares this folder
    local shared=$1
    shift
    mkdir -p "$shared"
    LW_CHROOTS=${LW_CLEAN_CHROOTS:-$PWD/build/clean} LW_CHROOT_CLEAN=1 LW_CHROOT_TREE=deb \
        LW_CHROOT_SHARED="$shared $rdkafka" \
        tests/matrix/debian.sh "$distribution" "$@"
}

build() { # OUT FOLDER [NAME=VALUE…]: builds the packages in FOLDER and writes them to OUT
    local to=$1 where=(in_chroot "$1")
    [ "$what" != here ] || where=()
    shift
    fetch_rdkafka
    rm -rf "$to"
    "${where[@]}" env DISTRIBUTION="$distribution" SOURCE_DATE_EPOCH="$epoch" \
        MAINTAINER="$maintainer" RDKAFKA="$rdkafka" "${@:2}" \
        packaging/build-deb.sh "$to" "$1"
}

compare() {
    local different=0 count=0 file
    for file in "$out"/*.deb; do
        count=$((count + 1))
        cmp "$file" "$again/${file##*/}" || different=1
    done
    [ $different -eq 0 ] || {
        echo "deb.sh: the second build of $distribution has other bytes; both are kept: $out, $again" >&2
        exit 1
    }
    rm -rf "$again"
    echo "$distribution: $count packages, built twice, are the same"
}

state() { # prints the commit, and a hash of the changes since the commit
    git rev-parse HEAD
    git diff HEAD | sha256sum
}

first() { # builds the packages, unless they were already built from the tree as it is now
    local now
    [ -z "${LW_DEBS:-}" ] || return 0
    now=$(state)
    if [ -e "$out/.built-from" ] && [ "$now" = "$(cat "$out/.built-from")" ]; then return 0; fi
    build "$out" /build/latchwork
    (cd "$out" && sha256sum ./*.deb >SHA256SUMS)
    echo "$now" >"$out/.built-from"
}

# What is missing is said before anything is fetched or built.
if [ "$what" != here ]; then
    tests/matrix/debian.sh --check
elif ! (. /etc/os-release && [ "${VERSION_CODENAME-}" = "$distribution" ]); then
    echo "deb.sh: this system is not $distribution, so its packages need a chroot: deb.sh build" >&2
    exit 2
fi

case $what in
build | here)
    first
    ls -l "$out"
    ;;
twice)
    first
    build "$again" /var/tmp/another/place TZ=Pacific/Kiritimati LANG=C.UTF-8 LC_ALL=C.UTF-8
    compare
    ;;
test)
    first
    in_chroot "$out" packaging/test-deb.sh "$out"
    ;;
secured)
    first
    packaging/secured.py "$distribution" "$out"
    ;;
systemd)
    first
    in_chroot "$out" packaging/test-systemd.sh "$out"
    ;;
esac
