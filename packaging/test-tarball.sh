#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the tarball in a folder on a system without the libraries that the tarball contains.
# packaging/tarball.sh runs it in a clean chroot.
# usage: test-tarball.sh FOLDER
set -eu
packages=$1
export DEBIAN_FRONTEND=noninteractive PATH="/usr/local/bin:$PATH"
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # keeps packages from starting their servers
chmod 755 /usr/sbin/policy-rc.d
cd "$packages"
sha256sum --check SHA256SUMS
mkdir -p /opt
tar -xzf latchwork-*.tar.gz -C /opt
ln -s "$(basename /opt/latchwork-*)" /opt/latchwork
ln -s /opt/latchwork/bin/latchwork /usr/local/bin/latchwork
# every library must come from the tarball or be a part of the C library
ldd /opt/latchwork/bin/latchwork | awk '$2 == "=>" && $3 !~ /^\/opt\// {print $1}' |
    grep -Ev '^(linux-vdso|libc|libm|libpthread|libdl|librt|libresolv|libutil)\.so' && exit 1
latchwork version --verbose
latchwork version --verbose | grep -q SCRAM || {
    echo "test-tarball.sh: its librdkafka has no SCRAM" >&2
    exit 1
}
# test a handler in another language, then the demo, which needs a redis-server
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 redis-server >/tmp/install.log 2>&1 || {
    tail -n 40 /tmp/install.log >&2
    exit 1
}
cd /tmp
latchwork handler new orders --lang python
(cd orders && latchwork handler test -c orders.json)
latchwork dev --demo
