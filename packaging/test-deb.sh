#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the Debian packages in a folder: installs them as a user does, runs debian/tests by
# autopkgtest, and removes them. Run this script only on a Debian system that may be changed.
# packaging/deb.sh runs it in a clean chroot.
# usage: test-deb.sh FOLDER
set -eu
packages=$1
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # keeps packages from starting their servers
chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$packages"/latchwork_*.deb >/tmp/install.log 2>&1 ||
    {
        tail -n 40 /tmp/install.log >&2
        exit 1
    }
latchwork --version
apt-get install -y -qq --no-install-recommends autopkgtest dpkg-dev >/tmp/install.log 2>&1 || {
    tail -n 40 /tmp/install.log >&2
    exit 1
}
rm -rf /tmp/tree
mkdir -p /tmp/tree
tar -cf - --exclude=./build . | tar -xf - -C /tmp/tree
cp -r packaging/debian /tmp/tree/debian
sed -i 's/@MAINTAINER@/Nobody <nobody@example.org>/' /tmp/tree/debian/control
printf 'latchwork (0-1) unstable; urgency=low\n\n  * Tests.\n\n -- Nobody <nobody@example.org>  Thu, 01 Jan 1970 00:00:00 +0000\n' >/tmp/tree/debian/changelog
status=0
autopkgtest --no-built-binaries "$packages"/*.deb /tmp/tree -- null || status=$?
# autopkgtest returns 8 if it has run no test, which counts as a failure here
[ $status -eq 0 ] || { echo "test-deb.sh: autopkgtest ended with status $status" >&2; exit 1; }
apt-get purge -y -qq 'latchwork*' 'liblatchwork*' >/dev/null
[ ! -e /usr/bin/latchwork ] || {
    echo "test-deb.sh: the program is still there after the package was removed" >&2
    exit 1
}
