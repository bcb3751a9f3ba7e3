#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the unit of the Debian packages in a folder on a real systemd. Run this script only on a
# Debian system that may be changed. It boots the systemd of that system in separate namespaces,
# where a service runs packaging/test-systemd-inside.sh. packaging/deb.sh runs it in a clean chroot.
# usage: test-systemd.sh FOLDER
set -eu
packages=$1
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # keeps packages from starting their servers
chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -y -qq --no-install-recommends systemd dbus procps python3 nodejs \
    default-jdk-headless redis-server "$packages"/latchwork_*.deb >/tmp/install.log 2>&1 ||
    { tail -n 40 /tmp/install.log >&2; exit 1; }
mkdir -p /test
cp "$here/test-systemd-inside.sh" /test/inside
cat >/etc/systemd/system/test.service <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh /test/inside
StandardOutput=file:/test/out
StandardError=inherit
ExecStopPost=/bin/systemctl --no-block --force exit
END
# Remove or mask everything through which this systemd could affect the machine outside the
# namespaces.
rm -f /etc/machine-id
touch /etc/machine-id
systemctl -q mask redis-server.service systemd-udevd.service systemd-modules-load.service \
    systemd-logind.service getty.target
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s ../test.service /etc/systemd/system/multi-user.target.wants/
systemctl -q set-default multi-user.target
# shellcheck disable=SC2016 # expanded inside
timeout -k 10 300 unshare --pid --fork --kill-child --cgroup --uts --ipc --mount \
    --propagation private sh -c '
    mkdir /tmp/dev && mount -t tmpfs tmpfs /tmp/dev && mkdir /tmp/dev/pts /tmp/dev/shm || exit 2
    for d in null zero full random urandom tty; do
        : >/tmp/dev/$d && mount --bind /dev/$d /tmp/dev/$d || exit 2
    done
    umount -l -R /dev && mount --move /tmp/dev /dev &&
        mount -t devpts -o newinstance,ptmxmode=666 devpts /dev/pts &&
        ln -s pts/ptmx /dev/ptmx && ln -s /proc/self/fd /dev/fd || exit 2
    umount -l -R /proc && mount -t proc proc /proc && mount -t sysfs sysfs /sys &&
        mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount -t tmpfs tmpfs /run || exit 2
    mount --make-rshared / || exit 2 # credentials come to a service by propagation
    exec env -i container=chroot PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --system --log-target=null --show-status=no
' || true
cat /test/out
grep -qx 'systemd: everything passed' /test/out
