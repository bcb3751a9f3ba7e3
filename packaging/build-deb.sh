#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages from the tree that contains this script. Run this script only on a
# Debian system that may be changed, because the script installs what the build needs.
# packaging/deb.sh runs it in a clean chroot.
# usage: build-deb.sh OUT [FOLDER]
#
# The packages are written to OUT, and built in FOLDER (default /build/latchwork). The environment
# must have DISTRIBUTION, SOURCE_DATE_EPOCH and MAINTAINER. If librdkafka is to be built into the
# program, RDKAFKA is the folder of its source.
# exit: 0 if the packages are built and lintian finds no error and no warning in them
set -eu
out=$1 work=${2:-/build/latchwork}
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
release=$(. /etc/os-release && echo "$VERSION_ID")
profiles=${RDKAFKA:+pkg.latchwork.rdkafka}
export DEBIAN_FRONTEND=noninteractive DEB_BUILD_PROFILES="$profiles"

quiet() { # COMMAND…: runs a command, and prints the end of its output only if it fails
    "$@" >/tmp/quiet.log 2>&1 || {
        tail -n 40 /tmp/quiet.log >&2
        echo "build-deb.sh: failed: $*" >&2
        exit 1
    }
}

# FILE: prints a licence as a paragraph of debian/copyright; for the Apache licence, prints only
# where Debian keeps it
licence() {
    printf ' .\n %s:\n .\n' "$(basename "$1")"
    if grep -q 'Apache License' "$1"; then
        echo ' Apache-2.0, see /usr/share/common-licenses/Apache-2.0'
    else
        sed 's/[[:space:]]*$//; s/^$/./; s/^/ /' "$1"
    fi
}

copy() { # copies the sources, with debian/ at the top
    rm -rf "$work"
    mkdir -p "$work"
    tar -cf - --exclude=./build . | tar -xf - -C "$work"
    cd "$work"
    cp -r packaging/debian debian
    sed -i "s/@MAINTAINER@/$MAINTAINER/" debian/control
    cat >debian/changelog <<END
latchwork ($version-1~deb${release}u1) $DISTRIBUTION; urgency=medium

  * Version $version; see the changelog of the project.

 -- $MAINTAINER  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
    [ -n "$profiles" ] || return 0
    cp -r "$RDKAFKA" rdkafka
    cat packaging/debian/copyright.rdkafka >>debian/copyright
    for file in "$RDKAFKA"/LICENSE "$RDKAFKA"/LICENSE.*; do licence "$file" >>debian/copyright; done
}

quiet apt-get update -qq
quiet apt-get install -y -qq --no-install-recommends dpkg-dev build-essential lintian
copy
quiet apt-get build-dep -y -qq --no-install-recommends ${profiles:+-P "$profiles"} ./
dpkg-buildpackage -b -us -uc >../build.log 2>&1 || {
    tail -n 60 ../build.log >&2
    echo "build-deb.sh: the packages do not build" >&2
    exit 1
}
lintian --allow-root --fail-on error,warning --suppress-tags-from-file debian/lintian-not-released \
    ../latchwork_*.changes
mkdir -p "$out"
cp ../*.deb ../*.changes ../*.buildinfo "$out/"
